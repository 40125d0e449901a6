/*
 * A web server in the style of mTCP: a thread for each core, level-triggered, with connections in
 * an array indexed by descriptor. The name of a document is its length.
 *
 *   docserver -f CONFIG -N CORES [-d]      -d: into the background once the configuration is read
 */
#include <mtcp_api.h>
#include <mtcp_epoll.h>
#include "ports.h"

#define MAX_FLOW_NUM 10000
#define MAX_EVENTS (MAX_FLOW_NUM * 3)
#define HTTP_HEADER_LEN 1024
#define SNDBUF_SIZE (8 * 1024)
#define DOCUMENT_MAX (100 << 20)
/* Period of a document's bytes. */
#define DOCUMENT_PERIOD 182

struct server_vars {
    char request[HTTP_HEADER_LEN];
    int recv_len;
    int keep_alive;
    char header[256];
    int header_len, header_sent;
    long total, sent;
    uint8_t busy;
};

struct thread_context {
    mctx_t mctx;
    int ep;
    struct server_vars *svars;
};

static char *document;
static int core_limit;
static pthread_t app_thread[MAX_CPUS];
static int done[MAX_CPUS];
static struct {
    uint64_t accepts, answers, bytes, errors, events_max;
} stats[MAX_CPUS];

static void close_connection(struct thread_context *ctx, int sockid, struct server_vars *sv)
{
    mtcp_epoll_ctl(ctx->mctx, ctx->ep, MTCP_EPOLL_CTL_DEL, sockid, NULL);
    mtcp_close(ctx->mctx, sockid);
    memset(sv, 0, offsetof(struct server_vars, header));
    sv->busy = FALSE;
}

static void want(struct thread_context *ctx, int sockid, uint32_t events)
{
    struct mtcp_epoll_event ev;

    ev.events = events;
    ev.data.sockid = sockid;
    mtcp_epoll_ctl(ctx->mctx, ctx->ep, MTCP_EPOLL_CTL_MOD, sockid, &ev);
}

/* Writes until there is no room. 1: everything was written. */
static int send_until_available(struct thread_context *ctx, int sockid, struct server_vars *sv, int cpu)
{
    int ret;

    while (sv->header_sent < sv->header_len) {
        ret = mtcp_write(ctx->mctx, sockid, sv->header + sv->header_sent, sv->header_len - sv->header_sent);
        if (ret < 0)
            return errno == EAGAIN ? 0 : -1;
        sv->header_sent += ret;
    }
    while (sv->sent < sv->total) {
        long len = sv->total - sv->sent < SNDBUF_SIZE ? sv->total - sv->sent : SNDBUF_SIZE;

        ret = mtcp_write(ctx->mctx, sockid, document + sv->sent, len);
        if (ret < 0)
            return errno == EAGAIN ? 0 : -1;
        sv->sent += ret;
        stats[cpu].bytes += ret;
    }
    stats[cpu].answers++;
    return 1;
}

static int handle_request(struct thread_context *ctx, int sockid, struct server_vars *sv, int cpu)
{
    char *path;
    int ret;

    path = strchr(sv->request, ' ');
    sv->total = path ? atol(path + 2) : 0;
    if (sv->total < 0 || sv->total > DOCUMENT_MAX)
        sv->total = 0;
    sv->keep_alive = strstr(sv->request, "HTTP/1.1") ? !strstr(sv->request, "Connection: close") : strcasestr(sv->request, "Connection: keep-alive") != NULL;
    sv->header_len = snprintf(sv->header, sizeof(sv->header), "HTTP/1.%d 200 OK\r\nContent-Length: %ld\r\nConnection: %s\r\n\r\n",
                              strstr(sv->request, "HTTP/1.1") != NULL, sv->total, sv->keep_alive ? "Keep-Alive" : "Close");
    sv->header_sent = 0;
    sv->sent = 0;
    sv->recv_len = 0;
    sv->busy = TRUE;
    ret = send_until_available(ctx, sockid, sv, cpu);
    if (ret == 0) {
        want(ctx, sockid, MTCP_EPOLLIN | MTCP_EPOLLOUT);
        return 0;
    }
    sv->busy = FALSE;
    if (ret < 0 || !sv->keep_alive)
        close_connection(ctx, sockid, sv);
    return ret;
}

static void handle_read(struct thread_context *ctx, int sockid, struct server_vars *sv, int cpu)
{
    int rd = mtcp_read(ctx->mctx, sockid, sv->request + sv->recv_len, HTTP_HEADER_LEN - 1 - sv->recv_len);

    if (rd <= 0) {
        if (rd < 0 && errno == EAGAIN)
            return;
        if (rd < 0)
            stats[cpu].errors++;
        close_connection(ctx, sockid, sv);
        return;
    }
    sv->recv_len += rd;
    sv->request[sv->recv_len] = '\0';
    if (!sv->busy && strstr(sv->request, "\r\n\r\n"))
        handle_request(ctx, sockid, sv, cpu);
    else if (sv->recv_len >= HTTP_HEADER_LEN - 1)
        close_connection(ctx, sockid, sv);
}

static void handle_write(struct thread_context *ctx, int sockid, struct server_vars *sv, int cpu)
{
    int ret = send_until_available(ctx, sockid, sv, cpu);

    if (ret == 0)
        return;
    sv->busy = FALSE;
    if (ret < 0 || !sv->keep_alive)
        close_connection(ctx, sockid, sv);
    else
        want(ctx, sockid, MTCP_EPOLLIN);
}

static int accept_connection(struct thread_context *ctx, int listener, int cpu)
{
    struct mtcp_epoll_event ev;
    int c = mtcp_accept(ctx->mctx, listener, NULL, NULL);

    if (c < 0) {
        if (errno != EAGAIN)
            fprintf(stderr, "mtcp_accept() error %s\n", strerror(errno));
        return c;
    }
    if (c >= MAX_FLOW_NUM) {
        fprintf(stderr, "Invalid socket id %d.\n", c);
        mtcp_close(ctx->mctx, c);
        return c;
    }
    memset(&ctx->svars[c], 0, sizeof ctx->svars[c]);
    ev.events = MTCP_EPOLLIN;
    ev.data.sockid = c;
    mtcp_setsock_nonblock(ctx->mctx, c);
    mtcp_epoll_ctl(ctx->mctx, ctx->ep, MTCP_EPOLL_CTL_ADD, c, &ev);
    stats[cpu].accepts++;
    return c;
}

static int create_listener(struct thread_context *ctx)
{
    struct sockaddr_in saddr;
    struct mtcp_epoll_event ev;
    int listener = mtcp_socket(ctx->mctx, AF_INET, SOCK_STREAM, 0);

    if (listener < 0 || mtcp_setsock_nonblock(ctx->mctx, listener) < 0)
        return -1;
    saddr.sin_family = AF_INET;
    saddr.sin_addr.s_addr = INADDR_ANY;
    saddr.sin_port = htons(80);
    if (mtcp_bind(ctx->mctx, listener, (struct sockaddr *)&saddr, sizeof(struct sockaddr_in)) < 0)
        return -1;
    if (mtcp_listen(ctx->mctx, listener, 4096) < 0)
        return -1;
    ev.events = MTCP_EPOLLIN;
    ev.data.sockid = listener;
    mtcp_epoll_ctl(ctx->mctx, ctx->ep, MTCP_EPOLL_CTL_ADD, listener, &ev);
    return listener;
}

static void *run_server_thread(void *arg)
{
    int core = *(int *)arg, listener, nevents, i;
    struct thread_context *ctx = calloc(1, sizeof(struct thread_context));
    struct mtcp_epoll_event *events = calloc(MAX_EVENTS, sizeof(struct mtcp_epoll_event));

    mtcp_core_affinitize(core);
    ctx->mctx = mtcp_create_context(core);
    if (!ctx->mctx) {
        fprintf(stderr, "Failed to create mtcp context!\n");
        exit(EXIT_FAILURE);
    }
    ctx->ep = mtcp_epoll_create(ctx->mctx, MAX_EVENTS);
    ctx->svars = calloc(MAX_FLOW_NUM, sizeof(struct server_vars));
    listener = create_listener(ctx);
    if (ctx->ep < 0 || listener < 0) {
        fprintf(stderr, "Failed to listen: %s\n", strerror(errno));
        exit(EXIT_FAILURE);
    }
    printf("[CPU %d] ready\n", core);
    fflush(stdout);
    while (!done[core]) {
        int do_accept = FALSE;

        nevents = mtcp_epoll_wait(ctx->mctx, ctx->ep, events, MAX_EVENTS, -1);
        if (nevents < 0) {
            if (errno != EINTR)
                perror("mtcp_epoll_wait");
            break;
        }
        if ((uint64_t)nevents > stats[core].events_max)
            stats[core].events_max = nevents;
        for (i = 0; i < nevents; i++) {
            int sockid = events[i].data.sockid;

            if (sockid == listener) {
                do_accept = TRUE;
            } else if (events[i].events & MTCP_EPOLLERR) {
                int err;
                socklen_t len = sizeof(err);

                if (mtcp_getsockopt(ctx->mctx, sockid, SOL_SOCKET, SO_ERROR, (void *)&err, &len) == 0)
                    stats[core].errors++;
                close_connection(ctx, sockid, &ctx->svars[sockid]);
            } else if (events[i].events & MTCP_EPOLLOUT) {
                handle_write(ctx, sockid, &ctx->svars[sockid], core);
            } else if (events[i].events & MTCP_EPOLLIN) {
                handle_read(ctx, sockid, &ctx->svars[sockid], core);
            }
        }
        if (do_accept)
            while (accept_connection(ctx, listener, core) >= 0)
                ;
    }
    mtcp_destroy_context(ctx->mctx);
    free(ctx->svars);
    free(events);
    free(ctx);
    return NULL;
}

static void signal_handler(int signum)
{
    int i;

    (void)signum;
    for (i = 0; i < core_limit; i++)
        done[i] = TRUE;
}

static void go_background(void)
{
    pid_t pid = fork();

    if (pid < 0)
        exit(EXIT_FAILURE);
    if (pid > 0) {
        printf("background %d\n", (int)pid);
        exit(EXIT_SUCCESS);
    }
    setsid();
}

int main(int argc, char **argv)
{
    struct mtcp_conf mcfg;
    static int cores[MAX_CPUS];
    char *conf_file = NULL;
    int o, i, background = FALSE;
    uint64_t accepts = 0, answers = 0, bytes = 0, errors = 0;

    core_limit = 1;
    while (-1 != (o = getopt(argc, argv, "f:N:d"))) {
        if (o == 'f')
            conf_file = optarg;
        else if (o == 'N')
            core_limit = atoi(optarg);
        else if (o == 'd')
            background = TRUE;
    }
    document = malloc(DOCUMENT_MAX + DOCUMENT_PERIOD);
    for (i = 0; i < DOCUMENT_PERIOD; i++)
        document[i] = document_byte(i);
    for (i = DOCUMENT_PERIOD; i < DOCUMENT_MAX; i += DOCUMENT_PERIOD)
        memcpy(document + i, document, DOCUMENT_PERIOD);
    mtcp_getconf(&mcfg);
    mcfg.num_cores = core_limit;
    mtcp_setconf(&mcfg);
    if (mtcp_init(conf_file)) {
        fprintf(stderr, "Failed to initialize mtcp\n");
        exit(EXIT_FAILURE);
    }
    mtcp_getconf(&mcfg);
    mcfg.max_concurrency = MAX_FLOW_NUM;
    mcfg.max_num_buffers = MAX_FLOW_NUM;
    mtcp_setconf(&mcfg);
    mtcp_register_signal(SIGINT, signal_handler);
    if (background)
        go_background();
    for (i = 0; i < core_limit; i++) {
        cores[i] = i;
        if (pthread_create(&app_thread[i], NULL, run_server_thread, (void *)&cores[i])) {
            perror("pthread_create");
            exit(EXIT_FAILURE);
        }
    }
    for (i = 0; i < core_limit; i++)
        pthread_join(app_thread[i], NULL);
    for (i = 0; i < core_limit; i++) {
        accepts += stats[i].accepts;
        answers += stats[i].answers;
        bytes += stats[i].bytes;
        errors += stats[i].errors;
        printf("[CPU %d] accepts %lu answers %lu bytes %lu errors %lu events_max %lu\n", i, stats[i].accepts, stats[i].answers, stats[i].bytes, stats[i].errors, stats[i].events_max);
    }
    printf("accepts %lu answers %lu bytes %lu errors %lu\n", accepts, answers, bytes, errors);
    mtcp_destroy();
    free(document);
    return 0;
}
