/*
 * webserver: serves the files of a directory from memory, with a stack on each thread.
 *
 *   webserver [-f CONFIG] [-t THREADS] [-p PORT] DIRECTORY
 *
 * The structure of every mTCP server: one thread per core, each with a context, an epoll and a
 * listener of its own at the same port. A connection arrives at the thread whose stack received it
 * and stays there, so the threads only share the files, which do not change. Requests may be
 * pipelined. Bytes that cannot be written at once are written when epoll reports room.
 */
#include <pthread.h>
#include <unistd.h>

#include <mtcp_epoll.h>

#include "common.h"
#include "files.h"

#define EVENTS_MAX 256
#define BACKLOG 1024
/* Longest request, including headers. */
#define REQUEST_MAX 8192
#define HEAD_MAX 256

static struct files files;
static int port = 80;

/* A connection. It reads requests while it has nothing to write, and otherwise writes. */
struct connection {
    struct connection *next, **place; /* list: next one, and the pointer to this one */
    int sockid;
    int closes; /* closes after the answer */
    size_t request_len;
    size_t head_len, head_sent;
    size_t body_sent;
    const struct file *body; /* NULL: none */
    char request[REQUEST_MAX + 1];
    char head[HEAD_MAX];
};

struct worker {
    pthread_t thread;
    int core;
    mctx_t mctx;
    int epoll;
    int listener;
    struct connection *connections; /* open connections */
};

/* Answers. */

static void answer(struct connection *connection, const char *status, const struct file *file, int has_body)
{
    size_t length = file ? file->length : 0;
    int len = snprintf(connection->head, HEAD_MAX, "HTTP/1.1 %s\r\nContent-Length: %zu\r\nContent-Type: %s\r\nConnection: %s\r\n\r\n", status, length,
                       file ? file->type : "text/plain", connection->closes ? "close" : "keep-alive");

    connection->head_len = (size_t)len;
    connection->head_sent = 0;
    connection->body = has_body && length > 0 ? file : NULL;
    connection->body_sent = 0;
}

/* True if the client's version and headers say that it wants no further answer on this
 * connection. */
static int wants_close(const char *version, const char *headers)
{
    if (strcasestr(headers, "\r\nConnection: close"))
        return 1;
    return strcmp(version, "HTTP/1.1") != 0 && !strcasestr(headers, "\r\nConnection: keep-alive");
}

/* Parses the request that ends at `end`, whose last byte was replaced by a zero. */
static void understand(struct connection *connection)
{
    char method[8], path[1024], version[16], *query;
    const char *headers = strstr(connection->request, "\r\n");

    if (sscanf(connection->request, "%7s %1023s %15s", method, path, version) != 3 || strncmp(version, "HTTP/1.", 7) != 0) {
        connection->closes = 1;
        answer(connection, "400 Bad Request", NULL, 0);
        return;
    }
    connection->closes = wants_close(version, headers ? headers : "");
    query = strchr(path, '?');
    if (query)
        *query = '\0';
    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0) {
        connection->closes = 1; /* the request may have a body, which is not read */
        answer(connection, "405 Method Not Allowed", NULL, 0);
        return;
    }
    const struct file *file = files_find(&files, path);
    answer(connection, file ? "200 OK" : "404 Not Found", file, strcmp(method, "GET") == 0);
}

/* Takes one complete request out of the bytes read, if there is one. */
static int take_request(struct connection *connection)
{
    char *end;
    size_t len;

    connection->request[connection->request_len] = '\0';
    end = strstr(connection->request, "\r\n\r\n");
    if (!end) {
        if (connection->request_len < REQUEST_MAX)
            return 0;
        connection->closes = 1;
        answer(connection, "431 Request Header Fields Too Large", NULL, 0);
        return 1;
    }
    len = (size_t)(end - connection->request) + 4;
    end[2] = '\0';
    understand(connection);
    connection->request_len -= len;
    memmove(connection->request, connection->request + len, connection->request_len);
    return 1;
}

/* Connections. */

static void finish(struct worker *worker, struct connection *connection)
{
    /* Closing also removes the socket from the epoll. */
    mtcp_close(worker->mctx, connection->sockid);
    *connection->place = connection->next;
    if (connection->next)
        connection->next->place = connection->place;
    free(connection);
}

/* Writes the remaining answer. 1: done; 0: no room; -1: the client is gone. */
static int write_answer(struct worker *worker, struct connection *connection)
{
    while (connection->head_sent < connection->head_len || connection->body) {
        struct iovec parts[2];
        int parts_count = 0;
        ssize_t sent;
        size_t of_head;

        if (connection->head_sent < connection->head_len) {
            parts[parts_count].iov_base = connection->head + connection->head_sent;
            parts[parts_count++].iov_len = connection->head_len - connection->head_sent;
        }
        if (connection->body) {
            parts[parts_count].iov_base = connection->body->bytes + connection->body_sent;
            parts[parts_count++].iov_len = connection->body->length - connection->body_sent;
        }
        sent = mtcp_writev(worker->mctx, connection->sockid, parts, parts_count);
        if (sent < 0)
            return errno == EAGAIN ? 0 : -1;
        of_head = connection->head_len - connection->head_sent;
        of_head = (size_t)sent < of_head ? (size_t)sent : of_head;
        connection->head_sent += of_head;
        connection->body_sent += (size_t)sent - of_head;
        if (connection->body && connection->body_sent == connection->body->length)
            connection->body = NULL;
    }
    connection->head_len = connection->head_sent = 0;
    return 1;
}

static void watch(struct worker *worker, struct connection *connection, int op, uint32_t events)
{
    struct mtcp_epoll_event event;

    event.events = events;
    event.data.ptr = connection;
    if (mtcp_epoll_ctl(worker->mctx, worker->epoll, op, connection->sockid, &event) < 0)
        die("mtcp_epoll_ctl");
}

/* Answers all complete requests. 0: waits for epoll; -1: over. */
static int go_on(struct worker *worker, struct connection *connection)
{
    for (;;) {
        int done = connection->head_len > 0 ? write_answer(worker, connection) : 1;
        ssize_t got;

        if (done < 0)
            return -1;
        if (done == 0) {
            watch(worker, connection, MTCP_EPOLL_CTL_MOD, MTCP_EPOLLOUT);
            return 0;
        }
        if (connection->closes)
            return -1;
        if (take_request(connection))
            continue;
        got = mtcp_read(worker->mctx, connection->sockid, connection->request + connection->request_len, REQUEST_MAX - connection->request_len);
        if (got > 0) {
            connection->request_len += (size_t)got;
            continue;
        }
        return got < 0 && errno == EAGAIN ? 0 : -1;
    }
}

static void on_event(struct worker *worker, struct connection *connection, uint32_t events)
{
    int is_writing = connection->head_len > 0;

    if (events & MTCP_EPOLLERR || go_on(worker, connection) < 0) {
        finish(worker, connection);
        return;
    }
    if (is_writing && connection->head_len == 0)
        watch(worker, connection, MTCP_EPOLL_CTL_MOD, MTCP_EPOLLIN);
}

static void accept_all(struct worker *worker)
{
    for (;;) {
        struct connection *connection;
        int sockid = mtcp_accept4(worker->mctx, worker->listener, NULL, NULL, SOCK_NONBLOCK);

        if (sockid < 0)
            return; /* EAGAIN, or a limit: connections wait in the queue */
        connection = (struct connection *)malloc(sizeof *connection);
        if (!connection) {
            mtcp_close(worker->mctx, sockid);
            return;
        }
        memset(connection, 0, offsetof(struct connection, request));
        connection->sockid = sockid;
        connection->next = worker->connections;
        connection->place = &worker->connections;
        if (connection->next)
            connection->next->place = &connection->next;
        worker->connections = connection;
        watch(worker, connection, MTCP_EPOLL_CTL_ADD, MTCP_EPOLLIN);
        /* The request arrived with the handshake's last packet, or soon after. */
        on_event(worker, connection, 0);
    }
}

/* Threads. */

static int listen_at(mctx_t mctx, int family)
{
    struct sockaddr_in6 six;
    struct sockaddr_in four;
    int listener = mtcp_socket(mctx, family, SOCK_STREAM | SOCK_NONBLOCK, 0);

    if (listener < 0)
        die("mtcp_socket");
    memset(&four, 0, sizeof four);
    four.sin_family = AF_INET;
    four.sin_port = htons((uint16_t)port);
    memset(&six, 0, sizeof six);
    six.sin6_family = AF_INET6; /* takes clients of both families */
    six.sin6_port = htons((uint16_t)port);
    if ((family == AF_INET6 ? mtcp_bind(mctx, listener, (struct sockaddr *)&six, sizeof six)
                            : mtcp_bind(mctx, listener, (struct sockaddr *)&four, sizeof four)) < 0)
        die("mtcp_bind");
    if (mtcp_listen(mctx, listener, BACKLOG) < 0)
        die("mtcp_listen");
    return listener;
}

static void *work(void *argument)
{
    struct worker *worker = (struct worker *)argument;
    struct mtcp_epoll_event events[EVENTS_MAX], event;

    mtcp_core_affinitize(worker->core);
    worker->mctx = mtcp_create_context(worker->core);
    if (!worker->mctx)
        die("mtcp_create_context");
    worker->epoll = mtcp_epoll_create(worker->mctx, EVENTS_MAX);
    if (worker->epoll < 0)
        die("mtcp_epoll_create");
    worker->listener = listen_at(worker->mctx, AF_INET6);
    event.events = MTCP_EPOLLIN;
    event.data.ptr = NULL; /* no connection: the listener */
    if (mtcp_epoll_ctl(worker->mctx, worker->epoll, MTCP_EPOLL_CTL_ADD, worker->listener, &event) < 0)
        die("mtcp_epoll_ctl");
    printf("webserver: thread %d is ready\n", worker->core);
    fflush(stdout);

    while (!is_over) {
        int count = mtcp_epoll_wait(worker->mctx, worker->epoll, events, EVENTS_MAX, -1);

        if (count < 0 && errno != EINTR)
            die("mtcp_epoll_wait");
        for (int i = 0; i < count; i++) {
            if (events[i].data.ptr)
                on_event(worker, (struct connection *)events[i].data.ptr, events[i].events);
            else
                accept_all(worker);
        }
    }
    while (worker->connections)
        finish(worker, worker->connections);
    mtcp_destroy_context(worker->mctx);
    return NULL;
}

int main(int argc, char **argv)
{
    static struct worker workers[THREADS_MAX];
    const char *config = NULL;
    int option, threads = 0;

    while ((option = getopt(argc, argv, "f:t:p:")) != -1) {
        if (option == 'f')
            config = optarg;
        else if (option == 't')
            threads = (int)number("-t", optarg, 1, THREADS_MAX);
        else if (option == 'p')
            port = (int)number("-p", optarg, 1, 65535);
        else
            return 2;
    }
    if (optind + 1 != argc) {
        fprintf(stderr, "usage: webserver [-f CONFIG] [-t THREADS] [-p PORT] DIRECTORY\n");
        return 2;
    }
    files_load(&files, argv[optind]);
    threads = start(config, threads);
    end_on_signals();
    for (int i = 0; i < threads; i++) {
        workers[i].core = i;
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
            die("pthread_create");
    }
    for (int i = 0; i < threads; i++)
        pthread_join(workers[i].thread, NULL);
    files_free(&files);
    mtcp_destroy();
    return 0;
}
