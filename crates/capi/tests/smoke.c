/*
 * Two contexts of one process on an Ethernet of their own: a server thread with an epoll, a client
 * thread with blocking calls. Run by smoke.rs.
 */
#include <mtcp_epoll.h>

#include "common/must.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define CONNECTIONS 50
#define BYTES 300000

static volatile sig_atomic_t done;
static mctx_t foreign;

static void stop(int signal)
{
    (void)signal;
    done = 1;
}

static struct sockaddr_in address(const char *ip, int port)
{
    struct sockaddr_in name;
    memset(&name, 0, sizeof name);
    name.sin_family = AF_INET;
    name.sin_port = htons((uint16_t)port);
    name.sin_addr.s_addr = inet_addr(ip);
    return name;
}

static void add(mctx_t mctx, int ep, int sockid, uint32_t events)
{
    struct mtcp_epoll_event event;
    memset(&event, 0, sizeof event);
    event.events = events;
    event.data.sockid = sockid;
    MUST(mtcp_epoll_ctl(mctx, ep, MTCP_EPOLL_CTL_ADD, sockid, &event) == 0);
}

/* Echoes the bytes read. True: the connection is over. */
static int echo(mctx_t mctx, int sockid)
{
    static char buffer[65536];
    ssize_t n = mtcp_read(mctx, sockid, buffer, sizeof buffer);
    if (n < 0)
        return errno != EAGAIN;
    for (ssize_t at = 0; at < n;) {
        ssize_t sent = mtcp_write(mctx, sockid, buffer + at, (size_t)(n - at));
        if (sent > 0)
            at += sent;
        else if (errno != EAGAIN)
            return 1;
        else {
            struct pollfd room = { sockid, POLLOUT, 0 };
            MUST(mtcp_poll(mctx, &room, 1, 5000) == 1);
        }
    }
    return n == 0;
}

static void *serve(void *unused)
{
    struct mtcp_epoll_event events[64];
    struct sockaddr_in name = address("0.0.0.0", 80);
    mctx_t mctx = mtcp_create_context(0);
    (void)unused;
    MUST(mctx != NULL);
    MUST(mtcp_create_context(0) == NULL && errno == EEXIST);
    int ep = mtcp_epoll_create(mctx, 100);
    int listener = mtcp_socket(mctx, AF_INET, SOCK_STREAM, 0);
    MUST(ep > 0 && listener > ep);
    MUST(mtcp_setsock_nonblock(mctx, listener) == 0);
    MUST(mtcp_bind(mctx, listener, (struct sockaddr *)&name, sizeof name) == 0);
    MUST(mtcp_listen(mctx, listener, 128) == 0);
    MUST(mtcp_accept(mctx, listener, NULL, NULL) == -1 && errno == EAGAIN);
    add(mctx, ep, listener, MTCP_EPOLLIN);
    foreign = mctx;
    while (!done) {
        int n = mtcp_epoll_wait(mctx, ep, events, 64, -1);
        if (n < 0) {
            MUST(errno == EINTR);
            continue;
        }
        for (int i = 0; i < n; i++) {
            int sockid = events[i].data.sockid;
            if (sockid != listener) {
                if (echo(mctx, sockid))
                    MUST(mtcp_close(mctx, sockid) == 0);
                continue;
            }
            struct sockaddr_in peer;
            socklen_t len = sizeof peer;
            int accepted = mtcp_accept(mctx, listener, (struct sockaddr *)&peer, &len);
            MUST(accepted > 0 && len == sizeof peer && peer.sin_family == AF_INET);
            MUST(mtcp_setsock_nonblock(mctx, accepted) == 0);
            add(mctx, ep, accepted, MTCP_EPOLLIN);
        }
    }
    mtcp_destroy_context(mctx);
    MUST(mtcp_socket(mctx, AF_INET, SOCK_STREAM, 0) == -1 && errno == EINVAL);
    return NULL;
}

static void *send_all(mctx_t mctx, int sockid, const char *bytes)
{
    static char back[BYTES];
    size_t sent = 0, got = 0;
    while (got < BYTES) {
        size_t piece = BYTES - sent < 20000 ? BYTES - sent : 20000;
        if (piece > 0) {
            MUST(mtcp_write(mctx, sockid, bytes + sent, piece) == (ssize_t)piece);
            sent += piece;
        }
        ssize_t n = mtcp_read(mctx, sockid, back + got, sizeof back - got);
        MUST(n > 0);
        got += (size_t)n;
    }
    MUST(memcmp(bytes, back, BYTES) == 0);
    return NULL;
}

static void kernel_descriptors(mctx_t mctx)
{
    int pipes[2], value = 0;
    uint64_t count = 3;
    char text[8];
    struct mtcp_epoll_event events[4];
    int ep = mtcp_epoll_create1(mctx, 0);
    int outer = mtcp_epoll_create1(mctx, 0);
    int bell = mtcp_eventfd(mctx, 0, 0);
    MUST(mtcp_pipe(mctx, pipes) == 0 && bell > 0);
    add(mctx, ep, bell, MTCP_EPOLLIN);
    add(mctx, ep, pipes[0], MTCP_EPOLLIN);
    add(mctx, outer, ep, MTCP_EPOLLIN);
    MUST(mtcp_epoll_wait(mctx, outer, events, 4, 0) == 0);
    MUST(write(mtcp_kernel_fd(mctx, bell), &count, sizeof count) == sizeof count);
    MUST(mtcp_epoll_wait(mctx, outer, events, 4, 1000) == 1 && events[0].data.sockid == ep);
    MUST(mtcp_epoll_wait(mctx, ep, events, 4, -1) == 1 && events[0].data.sockid == bell);
    MUST(mtcp_read(mctx, bell, (char *)&count, sizeof count) == sizeof count && count == 3);
    MUST(mtcp_write(mctx, pipes[1], "abc", 3) == 3);
    MUST(mtcp_epoll_wait(mctx, ep, events, 4, -1) == 1 && events[0].data.sockid == pipes[0]);
    MUST(mtcp_read(mctx, pipes[0], text, sizeof text) == 3);
    MUST(mtcp_epoll_wait(mctx, ep, events, 4, 10) == 0);
    MUST(mtcp_socket_ioctl(mctx, 9999, FIONREAD, &value) == -1 && errno == EBADF);
    MUST(mtcp_close(mctx, pipes[0]) == 0 && mtcp_close(mctx, pipes[1]) == 0);
    MUST(mtcp_close(mctx, bell) == 0 && mtcp_close(mctx, ep) == 0 && mtcp_close(mctx, outer) == 0);
}

static void *call(void *server_ip)
{
    static char bytes[BYTES];
    struct sockaddr_in name = address((const char *)server_ip, 80);
    mctx_t mctx = mtcp_create_context(1);
    MUST(mctx != NULL);
    for (size_t at = 0; at < BYTES; at++)
        bytes[at] = (char)(at * 7 + at / 251);
    while (foreign == NULL)
        usleep(1000);
    usleep(20000);
    MUST(mtcp_socket(foreign, AF_INET, SOCK_STREAM, 0) == -1 && errno == EPERM);
    MUST(mtcp_init_rss(mctx, INADDR_ANY, 1, name.sin_addr.s_addr, name.sin_port) == 0);
    for (int i = 0; i < CONNECTIONS; i++) {
        struct sockaddr_in own;
        socklen_t len = sizeof own;
        int sockid = mtcp_socket(mctx, AF_INET, SOCK_STREAM, 0);
        MUST(sockid == 1);
        MUST(mtcp_connect(mctx, sockid, (struct sockaddr *)&name, sizeof name) == 0);
        MUST(mtcp_getsockname(mctx, sockid, (struct sockaddr *)&own, &len) == 0 && own.sin_port != 0);
        send_all(mctx, sockid, bytes);
        MUST(mtcp_close(mctx, sockid) == 0);
    }
    int sockid = mtcp_socket(mctx, AF_INET, SOCK_STREAM, 0), error = 0;
    socklen_t len = sizeof error;
    name.sin_port = htons(81);
    MUST(mtcp_connect(mctx, sockid, (struct sockaddr *)&name, sizeof name) == -1 && errno == ECONNREFUSED);
    mtcp_close(mctx, sockid);
    sockid = mtcp_socket(mctx, AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    MUST(mtcp_connect(mctx, sockid, (struct sockaddr *)&name, sizeof name) == -1 && errno == EINPROGRESS);
    struct pollfd outcome = { sockid, POLLOUT, 0 };
    MUST(mtcp_poll(mctx, &outcome, 1, 5000) == 1);
    MUST(mtcp_getsockopt(mctx, sockid, SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error == ECONNREFUSED);
    kernel_descriptors(mctx);
    mtcp_destroy_context(mctx);
    return NULL;
}

int main(int count, char **arguments)
{
    pthread_t server, client;
    MUST(count == 3);
    MUST(mtcp_create_context(0) == NULL && errno == EINVAL);
    MUST(mtcp_init(arguments[1]) == 0);
    MUST(mtcp_register_signal(SIGINT, stop) == SIG_DFL);
    MUST(pthread_create(&server, NULL, serve, NULL) == 0);
    MUST(pthread_create(&client, NULL, call, arguments[2]) == 0);
    MUST(pthread_join(client, NULL) == 0);
    raise(SIGINT);
    MUST(pthread_join(server, NULL) == 0);
    mtcp_destroy();
    return 0;
}
