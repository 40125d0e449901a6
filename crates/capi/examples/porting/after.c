/*
 * The same echo server (before.c) as an mTCP program: docs/porting.md explains what changed.
 *
 *   after [PORT]
 */
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mtcp_epoll.h>

#define EVENTS_MAX 64

static volatile sig_atomic_t is_over;

static void end_soon(int signum)
{
    (void)signum;
    is_over = 1;
}

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static void watch(mctx_t mctx, int epoll, int sockid)
{
    struct mtcp_epoll_event event;

    event.events = MTCP_EPOLLIN;
    event.data.sockid = sockid;
    if (mtcp_epoll_ctl(mctx, epoll, MTCP_EPOLL_CTL_ADD, sockid, &event) < 0)
        die("mtcp_epoll_ctl");
}

static int listen_at(mctx_t mctx, int port)
{
    struct sockaddr_in at;
    int listener = mtcp_socket(mctx, AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), on = 1;

    if (listener < 0)
        die("mtcp_socket");
    mtcp_setsockopt(mctx, listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    memset(&at, 0, sizeof at);
    at.sin_family = AF_INET;
    at.sin_port = htons((uint16_t)port);
    if (mtcp_bind(mctx, listener, (struct sockaddr *)&at, sizeof at) < 0)
        die("mtcp_bind");
    if (mtcp_listen(mctx, listener, 128) < 0)
        die("mtcp_listen");
    return listener;
}

static void accept_all(mctx_t mctx, int epoll, int listener)
{
    int sockid;

    while ((sockid = mtcp_accept4(mctx, listener, NULL, NULL, SOCK_NONBLOCK)) >= 0)
        watch(mctx, epoll, sockid);
}

/* What the client does not take at once is dropped: this is an example of something else. */
static void echo(mctx_t mctx, int sockid)
{
    char bytes[8192];
    ssize_t count = mtcp_read(mctx, sockid, bytes, sizeof bytes);

    if (count > 0)
        count = mtcp_write(mctx, sockid, bytes, (size_t)count);
    if (count == 0 || (count < 0 && errno != EAGAIN))
        mtcp_close(mctx, sockid);
}

static void serve(int port)
{
    struct mtcp_epoll_event events[EVENTS_MAX];
    int epoll, listener;
    mctx_t mctx = mtcp_create_context(0);

    if (!mctx)
        die("mtcp_create_context");
    epoll = mtcp_epoll_create1(mctx, 0);
    if (epoll < 0)
        die("mtcp_epoll_create1");
    listener = listen_at(mctx, port);
    watch(mctx, epoll, listener);
    printf("ready at port %d\n", port);
    fflush(stdout);

    while (!is_over) {
        int count = mtcp_epoll_wait(mctx, epoll, events, EVENTS_MAX, -1);

        for (int i = 0; i < count; i++) {
            if (events[i].data.sockid == listener)
                accept_all(mctx, epoll, listener);
            else
                echo(mctx, events[i].data.sockid);
        }
    }
    mtcp_destroy_context(mctx);
}

int main(int argc, char **argv)
{
    if (mtcp_init(NULL) < 0)
        return 1;
    mtcp_register_signal(SIGINT, end_soon);
    mtcp_register_signal(SIGTERM, end_soon);
    serve(argc > 1 ? atoi(argv[1]) : 7);
    mtcp_destroy();
    return 0;
}
