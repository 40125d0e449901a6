/*
 * An echo server as an epoll program of the kernel, before it became an mTCP program (after.c;
 * docs/porting.md explains what changed).
 *
 *   before [PORT]
 */
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

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

static void watch(int epoll, int fd)
{
    struct epoll_event event;

    event.events = EPOLLIN;
    event.data.fd = fd;
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) < 0)
        die("epoll_ctl");
}

static int listen_at(int port)
{
    struct sockaddr_in at;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), on = 1;

    if (listener < 0)
        die("socket");
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    memset(&at, 0, sizeof at);
    at.sin_family = AF_INET;
    at.sin_port = htons((uint16_t)port);
    if (bind(listener, (struct sockaddr *)&at, sizeof at) < 0)
        die("bind");
    if (listen(listener, 128) < 0)
        die("listen");
    return listener;
}

static void accept_all(int epoll, int listener)
{
    int fd;

    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0)
        watch(epoll, fd);
}

/* What the client does not take at once is dropped: this is an example of something else. */
static void echo(int fd)
{
    char bytes[8192];
    ssize_t count = read(fd, bytes, sizeof bytes);

    if (count > 0)
        count = write(fd, bytes, (size_t)count);
    if (count == 0 || (count < 0 && errno != EAGAIN))
        close(fd);
}

static void serve(int port)
{
    struct epoll_event events[EVENTS_MAX];
    int epoll, listener;

    epoll = epoll_create1(0);
    if (epoll < 0)
        die("epoll_create1");
    listener = listen_at(port);
    watch(epoll, listener);
    printf("ready at port %d\n", port);
    fflush(stdout);

    while (!is_over) {
        int count = epoll_wait(epoll, events, EVENTS_MAX, -1);

        for (int i = 0; i < count; i++) {
            if (events[i].data.fd == listener)
                accept_all(epoll, listener);
            else
                echo(events[i].data.fd);
        }
    }
}

int main(int argc, char **argv)
{
    struct sigaction action;

    memset(&action, 0, sizeof action);
    action.sa_handler = end_soon;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    serve(argc > 1 ? atoi(argv[1]) : 7);
    return 0;
}
