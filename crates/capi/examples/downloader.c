/*
 * downloader: fetches a document many times, over many connections on many threads, and checks
 * that all copies are equal.
 *
 *   downloader [-f CONFIG] [-t THREADS] [-c CONNECTIONS] [-n DOWNLOADS] [-o FILE] http://ADDRESS[:PORT]/PATH
 *
 * The client side of mTCP. Each thread has a context and tells it by mtcp_init_rss where it will
 * connect, so that the context only takes local ports whose answers arrive at its own queue. One
 * loop per thread keeps its share of the connections busy.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include <mtcp_epoll.h>

#include "common.h"

#define EVENTS_MAX 256
#define HEAD_MAX 4096
#define CHUNK 65536

/* The requested document. */
static struct sockaddr_in server;
static char host[64], request[2048];
static const char *output;

struct download {
    int sockid;
    size_t request_sent;
    size_t head_len;     /* bytes of the answer's head that were read */
    int is_body;         /* the head is complete */
    long long length;    /* length of the body from the head; -1: until the end */
    long long body_len;
    uint64_t sum;        /* FNV-1a of the body */
    int file;            /* receives the body; -1: none */
    char head[HEAD_MAX + 1];
};

struct worker {
    pthread_t thread;
    int core, connections;
    long downloads; /* downloads still to begin */
    long open, done, failed;
    long long bytes;
    uint64_t sum; /* sum of the first body */
    mctx_t mctx;
    int epoll;
};

static void watch(struct worker *worker, struct download *download, int op, uint32_t events)
{
    struct mtcp_epoll_event event;

    event.events = events;
    event.data.ptr = download;
    if (mtcp_epoll_ctl(worker->mctx, worker->epoll, op, download->sockid, &event) < 0)
        die("mtcp_epoll_ctl");
}

/* Begins a download. The connection is open when epoll reports that it is writable. */
static void begin(struct worker *worker)
{
    struct download *download = (struct download *)calloc(1, sizeof *download);

    if (!download)
        die("calloc");
    download->length = -1;
    download->sum = 0xcbf29ce484222325ull;
    /* The first download of the first thread is kept. */
    download->file = output && worker->core == 0 && worker->done + worker->open == 0 ? open(output, O_WRONLY | O_CREAT | O_TRUNC, 0644) : -1;
    download->sockid = mtcp_socket(worker->mctx, AF_INET, SOCK_STREAM, 0);
    if (download->sockid < 0)
        die("mtcp_socket");
    mtcp_setsock_nonblock(worker->mctx, download->sockid);
    if (mtcp_connect(worker->mctx, download->sockid, (struct sockaddr *)&server, sizeof server) < 0 && errno != EINPROGRESS)
        die("mtcp_connect");
    watch(worker, download, MTCP_EPOLL_CTL_ADD, MTCP_EPOLLOUT);
    worker->downloads--;
    worker->open++;
}

static void finish(struct worker *worker, struct download *download, const char *fault)
{
    if (fault) {
        fprintf(stderr, "downloader: %s\n", fault);
        worker->failed++;
    } else {
        if (worker->done == 0)
            worker->sum = download->sum;
        else if (worker->sum != download->sum)
            worker->failed++;
        worker->done++;
        worker->bytes += download->body_len;
    }
    if (download->file >= 0)
        close(download->file);
    mtcp_close(worker->mctx, download->sockid);
    free(download);
    worker->open--;
    if (worker->downloads > 0 && !is_over)
        begin(worker);
}

static void take_body(struct download *download, const char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        download->sum = (download->sum ^ (unsigned char)bytes[i]) * 0x100000001b3ull;
    download->body_len += (long long)count;
    if (download->file >= 0 && write(download->file, bytes, count) != (ssize_t)count)
        die(output);
}

/* Reads the head until it is complete; the remaining bytes belong to the body. Returns NULL or an
 * error. */
static const char *take_head(struct download *download, const char *bytes, size_t count)
{
    size_t before = download->head_len, room = HEAD_MAX - before, taken = count < room ? count : room, head;
    char *end, *length;

    memcpy(download->head + before, bytes, taken);
    download->head_len += taken;
    download->head[download->head_len] = '\0';
    end = strstr(download->head, "\r\n\r\n");
    if (!end)
        return download->head_len == HEAD_MAX ? "the answer's head is too long" : NULL;
    head = (size_t)(end - download->head) + 4;
    *end = '\0';
    if (strncmp(download->head, "HTTP/1.", 7) != 0 || strncmp(download->head + 8, " 200", 4) != 0)
        return download->head;
    length = strcasestr(download->head, "\r\nContent-Length:");
    if (length)
        download->length = atoll(length + strlen("\r\nContent-Length:"));
    download->is_body = 1;
    take_body(download, bytes + (head - before), count - (head - before));
    return NULL;
}

/* Reads until no bytes are left. */
static void receive(struct worker *worker, struct download *download)
{
    static __thread char bytes[CHUNK];

    for (;;) {
        ssize_t count = mtcp_read(worker->mctx, download->sockid, bytes, sizeof bytes);
        const char *fault = NULL;

        if (count < 0 && errno == EAGAIN)
            return;
        if (count > 0 && download->is_body)
            take_body(download, bytes, (size_t)count);
        else if (count > 0)
            fault = take_head(download, bytes, (size_t)count);
        if (count < 0)
            fault = strerror(errno);
        if (count == 0 && (!download->is_body || download->length > download->body_len))
            fault = "the answer ends too early";
        if (fault || count == 0 || (download->is_body && download->length == download->body_len)) {
            finish(worker, download, fault);
            return;
        }
    }
}

static void on_event(struct worker *worker, struct download *download, uint32_t events)
{
    size_t left = strlen(request) - download->request_sent;
    ssize_t sent;

    if (events & MTCP_EPOLLERR) {
        int error = 0;
        socklen_t len = sizeof error;

        mtcp_getsockopt(worker->mctx, download->sockid, SOL_SOCKET, SO_ERROR, &error, &len);
        finish(worker, download, strerror(error));
        return;
    }
    if (left == 0) {
        receive(worker, download);
        return;
    }
    sent = mtcp_write(worker->mctx, download->sockid, request + download->request_sent, left);
    if (sent < 0 && errno != EAGAIN) {
        finish(worker, download, strerror(errno));
        return;
    }
    download->request_sent += sent > 0 ? (size_t)sent : 0;
    if (sent == (ssize_t)left)
        watch(worker, download, MTCP_EPOLL_CTL_MOD, MTCP_EPOLLIN);
}

static void *work(void *argument)
{
    struct worker *worker = (struct worker *)argument;
    struct mtcp_epoll_event events[EVENTS_MAX];

    mtcp_core_affinitize(worker->core);
    worker->mctx = mtcp_create_context(worker->core);
    if (!worker->mctx)
        die("mtcp_create_context");
    mtcp_init_rss(worker->mctx, INADDR_ANY, 1, server.sin_addr.s_addr, server.sin_port);
    worker->epoll = mtcp_epoll_create(worker->mctx, EVENTS_MAX);
    if (worker->epoll < 0)
        die("mtcp_epoll_create");
    while (worker->open < worker->connections && worker->downloads > 0)
        begin(worker);
    while (worker->open > 0 && !is_over) {
        int count = mtcp_epoll_wait(worker->mctx, worker->epoll, events, EVENTS_MAX, -1);

        if (count < 0 && errno != EINTR)
            die("mtcp_epoll_wait");
        for (int i = 0; i < count; i++)
            on_event(worker, (struct download *)events[i].data.ptr, events[i].events);
    }
    mtcp_destroy_context(worker->mctx);
    return NULL;
}

static void understand_url(const char *url)
{
    char path[1024] = "/";
    unsigned port = 80;
    char *colon;

    if (sscanf(url, "http://%63[^/]%1023s", host, path) < 1) {
        fprintf(stderr, "%s: not http://ADDRESS[:PORT]/PATH\n", url);
        exit(2);
    }
    snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", path, host);
    colon = strchr(host, ':');
    if (colon) {
        *colon = '\0';
        port = (unsigned)number("port", colon + 1, 1, 65535);
    }
    server.sin_family = AF_INET;
    server.sin_port = htons((uint16_t)port);
    if (inet_pton(AF_INET, host, &server.sin_addr) != 1) {
        fprintf(stderr, "%s: not an IPv4 address\n", host);
        exit(2);
    }
}

/* Adds up the threads' results; returns the exit status. */
static int report(const struct worker *workers, int threads, double seconds)
{
    long done = 0, failed = 0;
    long long bytes = 0;

    for (int i = 0; i < threads; i++) {
        done += workers[i].done;
        failed += workers[i].failed;
        bytes += workers[i].bytes;
        if (workers[i].done > 0 && workers[0].done > 0 && workers[i].sum != workers[0].sum)
            failed++;
    }
    printf("downloader: %ld downloads, %lld bytes, %ld failed, %.1f s, %.1f MB/s\n", done, bytes, failed, seconds, (double)bytes / seconds / 1e6);
    return failed > 0 || done == 0;
}

int main(int argc, char **argv)
{
    static struct worker workers[THREADS_MAX];
    const char *config = NULL;
    int option, threads = 0;
    long connections = 1, downloads = 1;
    struct timespec began, ended;

    while ((option = getopt(argc, argv, "f:t:c:n:o:")) != -1) {
        if (option == 'f')
            config = optarg;
        else if (option == 't')
            threads = (int)number("-t", optarg, 1, THREADS_MAX);
        else if (option == 'c')
            connections = number("-c", optarg, 1, 1000000);
        else if (option == 'n')
            downloads = number("-n", optarg, 1, 1000000000);
        else if (option == 'o')
            output = optarg;
        else
            return 2;
    }
    if (optind + 1 != argc) {
        fprintf(stderr, "usage: downloader [-f CONFIG] [-t THREADS] [-c CONNECTIONS] [-n DOWNLOADS] [-o FILE] URL\n");
        return 2;
    }
    understand_url(argv[optind]);
    threads = start(config, threads);
    end_on_signals();
    clock_gettime(CLOCK_MONOTONIC, &began);
    for (int i = 0; i < threads; i++) {
        workers[i].core = i;
        /* Shares of connections and downloads; the first threads get the remainder. */
        workers[i].connections = (int)(connections / threads + (i < connections % threads ? 1 : 0));
        workers[i].downloads = downloads / threads + (i < downloads % threads ? 1 : 0);
        if (workers[i].connections == 0)
            workers[i].connections = 1;
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
            die("pthread_create");
    }
    for (int i = 0; i < threads; i++)
        pthread_join(workers[i].thread, NULL);
    clock_gettime(CLOCK_MONOTONIC, &ended);
    mtcp_destroy();
    return report(workers, threads, (double)(ended.tv_sec - began.tv_sec) + (double)(ended.tv_nsec - began.tv_nsec) / 1e9);
}
