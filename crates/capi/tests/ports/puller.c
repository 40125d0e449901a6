/*
 * A load generator in the style of mTCP. Each core keeps a number of connections open, each for
 * one document. It measures the time of each, and the longest silence.
 *
 *   puller -f CONFIG -N CORES -c CONNECTIONS -n TOTAL [-b BYTES] [-a ADDRESSES] SERVER      both numbers for each core
 */
#include <mtcp_api.h>
#include <mtcp_epoll.h>
#include "ports.h"

#define MAX_FLOW_NUM 10000
#define MAX_EVENTS 30000
#define BUF_SIZE (8 * 1024)
/* Connections without bytes for this long, while others receive some, are counted. */
#define SILENCE_MS 2000

struct wget_vars {
    uint8_t active, request_sent, headerset;
    char response[1024];
    int headerlen;
    long recv, file_len;
    long start, heard;
};

struct thread_context {
    int core;
    mctx_t mctx;
    int ep;
    struct wget_vars *wvars;
    int started, pending, finished, failed;
    long bytes, longest, silence;
    int silent;
};

static in_addr_t daddr;
static in_port_t dport;
static int concurrency = 100, total_flows = 1000, num_addr = 1, core_limit = 1;
static long document_len = 1000;
static volatile int done;
static struct thread_context *contexts[MAX_CPUS];

static int create_connection(struct thread_context *ctx)
{
    struct mtcp_epoll_event ev;
    struct sockaddr_in addr;
    int sockid = mtcp_socket(ctx->mctx, AF_INET, SOCK_STREAM, 0);

    if (sockid < 0) {
        fprintf(stderr, "Failed to create stream socket: %s\n", strerror(errno));
        return -1;
    }
    if (sockid >= MAX_FLOW_NUM || mtcp_setsock_nonblock(ctx->mctx, sockid) < 0)
        exit(EXIT_FAILURE);
    memset(&ctx->wvars[sockid], 0, sizeof(struct wget_vars));
    ctx->wvars[sockid].active = TRUE;
    ctx->wvars[sockid].start = ctx->wvars[sockid].heard = now_ms();
    addr.sin_family = AF_INET;
    addr.sin_addr.s_addr = daddr;
    addr.sin_port = dport;
    if (mtcp_connect(ctx->mctx, sockid, (struct sockaddr *)&addr, sizeof(struct sockaddr_in)) < 0 && errno != EINPROGRESS) {
        perror("mtcp_connect");
        mtcp_close(ctx->mctx, sockid);
        return -1;
    }
    ctx->started++;
    ctx->pending++;
    ev.events = MTCP_EPOLLOUT;
    ev.data.sockid = sockid;
    mtcp_epoll_ctl(ctx->mctx, ctx->ep, MTCP_EPOLL_CTL_ADD, sockid, &ev);
    return sockid;
}

static void close_connection(struct thread_context *ctx, int sockid, int failed)
{
    struct wget_vars *wv = &ctx->wvars[sockid];
    long took = now_ms() - wv->start;

    mtcp_epoll_ctl(ctx->mctx, ctx->ep, MTCP_EPOLL_CTL_DEL, sockid, NULL);
    mtcp_close(ctx->mctx, sockid);
    wv->active = FALSE;
    ctx->pending--;
    ctx->finished++;
    ctx->failed += failed;
    if (took > ctx->longest)
        ctx->longest = took;
    if (failed)
        fprintf(stderr, "[CPU %d] flow %d failed: %s; sent %d header %d received %ld of %ld\n", ctx->core, sockid, strerror(errno), wv->request_sent, wv->headerset, wv->recv, wv->file_len);
}

static void send_request(struct thread_context *ctx, int sockid, struct wget_vars *wv)
{
    struct mtcp_epoll_event ev;
    char request[256], host[INET_ADDRSTRLEN];
    int len, wr;

    inet_ntop(AF_INET, &daddr, host, sizeof(host));
    len = snprintf(request, sizeof(request), "GET /%ld HTTP/1.0\r\nUser-Agent: puller\r\nHost: %s\r\n\r\n", document_len, host);
    wr = mtcp_write(ctx->mctx, sockid, request, len);
    if (wr < len) {
        close_connection(ctx, sockid, 1);
        return;
    }
    wv->request_sent = TRUE;
    ev.events = MTCP_EPOLLIN;
    ev.data.sockid = sockid;
    mtcp_epoll_ctl(ctx->mctx, ctx->ep, MTCP_EPOLL_CTL_MOD, sockid, &ev);
}

/* Returns the number of bytes in a piece that belong to the document. */
static int take_header(struct wget_vars *wv, const char *buf, int len)
{
    int room = (int)sizeof(wv->response) - 1 - wv->headerlen, n = len < room ? len : room;
    char *end;

    memcpy(wv->response + wv->headerlen, buf, n);
    wv->response[wv->headerlen + n] = '\0';
    end = strstr(wv->response, "\r\n\r\n");
    if (!end) {
        wv->headerlen += n;
        return 0;
    }
    wv->headerset = TRUE;
    wv->file_len = atol(strstr(wv->response, "Content-Length: ") + 16);
    return len - (int)(end + 4 - wv->response - wv->headerlen);
}

static void handle_read(struct thread_context *ctx, int sockid, struct wget_vars *wv)
{
    char buf[BUF_SIZE];
    int rd, i, of_body;

    while ((rd = mtcp_read(ctx->mctx, sockid, buf, BUF_SIZE)) > 0) {
        long now = now_ms();

        if (now - wv->heard > ctx->silence)
            ctx->silence = now - wv->heard;
        ctx->silent += now - wv->heard > SILENCE_MS;
        wv->heard = now;
        of_body = wv->headerset ? rd : take_header(wv, buf, rd);
        for (i = rd - of_body; i < rd; i++)
            if (buf[i] != document_byte(wv->recv++)) {
                fprintf(stderr, "[CPU %d] flow %d: a wrong byte at %ld\n", ctx->core, sockid, wv->recv - 1);
                exit(EXIT_FAILURE);
            }
        ctx->bytes += of_body;
    }
    if (rd == 0)
        close_connection(ctx, sockid, !wv->headerset || wv->recv != document_len || wv->file_len != document_len);
    else if (errno != EAGAIN)
        close_connection(ctx, sockid, 1);
}

static void *run_wget(void *arg)
{
    struct thread_context *ctx = arg;
    struct mtcp_epoll_event *events = calloc(MAX_EVENTS, sizeof(struct mtcp_epoll_event));
    int i, nevents;

    mtcp_core_affinitize(ctx->core);
    ctx->mctx = mtcp_create_context(ctx->core);
    if (!ctx->mctx) {
        fprintf(stderr, "Failed to create mtcp context.\n");
        exit(EXIT_FAILURE);
    }
    mtcp_init_rss(ctx->mctx, INADDR_ANY, num_addr, daddr, dport);
    ctx->ep = mtcp_epoll_create(ctx->mctx, MAX_EVENTS);
    ctx->wvars = calloc(MAX_FLOW_NUM, sizeof(struct wget_vars));
    while (!done && ctx->finished < total_flows) {
        while (ctx->pending < concurrency && ctx->started < total_flows)
            if (create_connection(ctx) < 0)
                exit(EXIT_FAILURE);
        nevents = mtcp_epoll_wait(ctx->mctx, ctx->ep, events, MAX_EVENTS, -1);
        if (nevents < 0) {
            if (errno == EINTR)
                break;
            perror("mtcp_epoll_wait");
            exit(EXIT_FAILURE);
        }
        for (i = 0; i < nevents; i++) {
            int sockid = events[i].data.sockid;
            struct wget_vars *wv = &ctx->wvars[sockid];

            if (events[i].events & MTCP_EPOLLERR) {
                int err = 0;
                socklen_t len = sizeof(err);

                mtcp_getsockopt(ctx->mctx, sockid, SOL_SOCKET, SO_ERROR, (void *)&err, &len);
                errno = err;
                close_connection(ctx, sockid, 1);
            } else if (events[i].events & MTCP_EPOLLIN) {
                handle_read(ctx, sockid, wv);
            } else if (events[i].events == MTCP_EPOLLOUT && !wv->request_sent) {
                send_request(ctx, sockid, wv);
            } else {
                fprintf(stderr, "Socket %d: event: %s\n", sockid, EventToString(events[i].events));
                exit(EXIT_FAILURE);
            }
        }
    }
    mtcp_destroy_context(ctx->mctx);
    free(ctx->wvars);
    free(events);
    return NULL;
}

static void signal_handler(int signum)
{
    (void)signum;
    done = TRUE;
}

int main(int argc, char **argv)
{
    struct mtcp_conf mcfg;
    pthread_t app_thread[MAX_CPUS];
    char *conf_file = NULL;
    int i, o, finished = 0, failed = 0, silent = 0;
    long bytes = 0, longest = 0, silence = 0, began;

    while (-1 != (o = getopt(argc, argv, "f:N:c:n:b:a:"))) {
        switch (o) {
        case 'f':
            conf_file = optarg;
            break;
        case 'N':
            core_limit = atoi(optarg);
            break;
        case 'c':
            concurrency = atoi(optarg);
            break;
        case 'n':
            total_flows = atoi(optarg);
            break;
        case 'b':
            document_len = atol(optarg);
            break;
        case 'a':
            num_addr = atoi(optarg);
            break;
        }
    }
    daddr = inet_addr(argv[optind]);
    dport = htons(80);
    mtcp_getconf(&mcfg);
    mcfg.num_cores = core_limit;
    mtcp_setconf(&mcfg);
    if (mtcp_init(conf_file)) {
        fprintf(stderr, "Failed to initialize mtcp.\n");
        exit(EXIT_FAILURE);
    }
    mtcp_getconf(&mcfg);
    mcfg.max_concurrency = MAX_FLOW_NUM;
    mcfg.max_num_buffers = MAX_FLOW_NUM;
    mtcp_setconf(&mcfg);
    mtcp_register_signal(SIGINT, signal_handler);
    began = now_ms();
    for (i = 0; i < core_limit; i++) {
        contexts[i] = calloc(1, sizeof(struct thread_context));
        contexts[i]->core = i;
        if (pthread_create(&app_thread[i], NULL, run_wget, contexts[i])) {
            perror("pthread_create");
            exit(EXIT_FAILURE);
        }
    }
    for (i = 0; i < core_limit; i++) {
        pthread_join(app_thread[i], NULL);
        finished += contexts[i]->finished;
        failed += contexts[i]->failed;
        bytes += contexts[i]->bytes;
        silent += contexts[i]->silent;
        if (contexts[i]->longest > longest)
            longest = contexts[i]->longest;
        if (contexts[i]->silence > silence)
            silence = contexts[i]->silence;
        free(contexts[i]);
    }
    printf("finished %d failed %d bytes %ld in %ld ms; longest %ld ms, longest silence %ld ms, silent %d times\n", finished, failed, bytes, now_ms() - began, longest, silence, silent);
    mtcp_destroy();
    return failed != 0;
}
