/*
 * relay: clients connect over Millstream, the server behind it is the kernel's; one loop serves
 * both.
 *
 *   relay [-f CONFIG] [-p PORT] [-s SECONDS] ADDRESS:PORT
 *
 * mtcp_attach_fd gives a kernel descriptor a number in the context. From then on epoll, mtcp_read,
 * mtcp_write and mtcp_shutdown treat it like a socket. So the loop below does not know which end
 * of a connection is whose. A timerfd in the same epoll prints the statistics.
 */
#include <arpa/inet.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <mtcp_epoll.h>

#include "common.h"

#define EVENTS_MAX 256
#define BUFFER 16384

struct end {
    struct relay *relay;
    struct end *other;
    int sockid;    /* -1: closed */
    int has_ended; /* the end will send no more */
    int was_shut;  /* the end was told that the other one sends no more */
    uint32_t watched;
    size_t len, sent; /* bytes read here for the other end */
    char bytes[BUFFER];
};

struct relay {
    struct end client, server;
    struct relay *next_dead;
};

static mctx_t mctx;
static int epoll, listener, ticker;
static struct sockaddr_in backend;
static long relays_total, relays_open;
static long long bytes_total;
/* Ended relays whose events may still be in the batch. */
static struct relay *dead;

static void watch(void *what, int op, int sockid, uint32_t events)
{
    struct mtcp_epoll_event event;

    event.events = events;
    event.data.ptr = what;
    if (mtcp_epoll_ctl(mctx, epoll, op, sockid, &event) < 0)
        die("mtcp_epoll_ctl");
}

static void close_end(struct end *end)
{
    if (end->sockid < 0)
        return;
    mtcp_close(mctx, end->sockid);
    end->sockid = -1;
}

static void finish(struct relay *relay)
{
    if (relay->client.sockid < 0)
        return;
    close_end(&relay->client);
    close_end(&relay->server);
    relay->next_dead = dead;
    dead = relay;
    relays_open--;
}

/* Moves the available bytes from one end to the other. -1: an end is broken. */
static int move(struct end *from, struct end *to)
{
    for (;;) {
        ssize_t count;

        while (from->sent < from->len) {
            count = mtcp_write(mctx, to->sockid, from->bytes + from->sent, from->len - from->sent);
            if (count < 0)
                return errno == EAGAIN ? 0 : -1;
            from->sent += (size_t)count;
            bytes_total += count;
        }
        from->len = from->sent = 0;
        if (from->has_ended) {
            if (!to->was_shut && mtcp_shutdown(mctx, to->sockid, SHUT_WR) < 0)
                return -1;
            to->was_shut = 1;
            return 0;
        }
        count = mtcp_read(mctx, from->sockid, from->bytes, BUFFER);
        if (count < 0)
            return errno == EAGAIN ? 0 : -1;
        from->has_ended = count == 0;
        from->len = (size_t)count;
    }
}

/* Asks an end only for usable events: input if there is room for bytes, room if there are bytes. */
static void ask(struct end *end)
{
    uint32_t events = 0;

    if (end->len == 0 && !end->has_ended)
        events |= MTCP_EPOLLIN;
    if (end->other->len > 0)
        events |= MTCP_EPOLLOUT;
    if (events != end->watched)
        watch(end, MTCP_EPOLL_CTL_MOD, end->sockid, events);
    end->watched = events;
}

static void on_event(struct end *end, uint32_t events)
{
    struct relay *relay = end->relay;
    struct end *client = &relay->client, *server = &relay->server;

    if (client->sockid < 0)
        return; /* ended earlier in this batch */
    if (events & MTCP_EPOLLERR || move(client, server) < 0 || move(server, client) < 0 || (client->was_shut && server->was_shut)) {
        finish(relay);
        return;
    }
    ask(client);
    ask(server);
}

static void start_end(struct end *end, struct end *other, struct relay *relay, int sockid)
{
    end->relay = relay;
    end->other = other;
    end->sockid = sockid;
    end->watched = MTCP_EPOLLIN;
    watch(end, MTCP_EPOLL_CTL_ADD, sockid, MTCP_EPOLLIN);
}

static void accept_one(int sockid)
{
    struct relay *relay = (struct relay *)calloc(1, sizeof *relay);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), attached;

    if (!relay || fd < 0)
        die("relay");
    if (connect(fd, (struct sockaddr *)&backend, sizeof backend) < 0 && errno != EINPROGRESS)
        die("connect");
    attached = mtcp_attach_fd(mctx, fd);
    if (attached < 0)
        die("mtcp_attach_fd");
    /* The context has its own copy of the descriptor. */
    close(fd);
    start_end(&relay->client, &relay->server, relay, sockid);
    start_end(&relay->server, &relay->client, relay, attached);
    relays_total++;
    relays_open++;
}

static void accept_all(void)
{
    int sockid;

    while ((sockid = mtcp_accept4(mctx, listener, NULL, NULL, SOCK_NONBLOCK)) >= 0)
        accept_one(sockid);
}

static void bury(void)
{
    while (dead) {
        struct relay *next = dead->next_dead;

        free(dead);
        dead = next;
    }
}

static void tell(void)
{
    printf("relay: %ld connections, %ld open, %lld bytes\n", relays_total, relays_open, bytes_total);
    fflush(stdout);
}

static void open_all(int port, int seconds)
{
    struct sockaddr_in at;
    struct itimerspec period;
    int fd;

    memset(&at, 0, sizeof at);
    at.sin_family = AF_INET;
    at.sin_port = htons((uint16_t)port);
    epoll = mtcp_epoll_create(mctx, EVENTS_MAX);
    listener = mtcp_socket(mctx, AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (epoll < 0 || listener < 0)
        die("mtcp_socket");
    if (mtcp_bind(mctx, listener, (struct sockaddr *)&at, sizeof at) < 0 || mtcp_listen(mctx, listener, 1024) < 0)
        die("mtcp_listen");
    watch(&listener, MTCP_EPOLL_CTL_ADD, listener, MTCP_EPOLLIN);

    memset(&period, 0, sizeof period);
    period.it_interval.tv_sec = period.it_value.tv_sec = seconds;
    fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (fd < 0 || timerfd_settime(fd, 0, &period, NULL) < 0)
        die("timerfd");
    ticker = mtcp_attach_fd(mctx, fd);
    if (ticker < 0)
        die("mtcp_attach_fd");
    watch(&ticker, MTCP_EPOLL_CTL_ADD, ticker, MTCP_EPOLLIN);
}

static void run(void)
{
    struct mtcp_epoll_event events[EVENTS_MAX];
    uint64_t ticks;

    while (!is_over) {
        int count = mtcp_epoll_wait(mctx, epoll, events, EVENTS_MAX, -1);

        if (count < 0 && errno != EINTR)
            die("mtcp_epoll_wait");
        for (int i = 0; i < count; i++) {
            if (events[i].data.ptr == &listener)
                accept_all();
            else if (events[i].data.ptr == &ticker) {
                if (mtcp_read(mctx, ticker, (char *)&ticks, sizeof ticks) == sizeof ticks)
                    tell();
            } else
                on_event((struct end *)events[i].data.ptr, events[i].events);
        }
        bury();
    }
}

int main(int argc, char **argv)
{
    const char *config = NULL;
    int option, port = 80, seconds = 1;
    char *colon;

    while ((option = getopt(argc, argv, "f:p:s:")) != -1) {
        if (option == 'f')
            config = optarg;
        else if (option == 'p')
            port = (int)number("-p", optarg, 1, 65535);
        else if (option == 's')
            seconds = (int)number("-s", optarg, 1, 86400);
        else
            return 2;
    }
    colon = optind + 1 == argc ? strchr(argv[optind], ':') : NULL;
    if (!colon) {
        fprintf(stderr, "usage: relay [-f CONFIG] [-p PORT] [-s SECONDS] ADDRESS:PORT\n");
        return 2;
    }
    *colon = '\0';
    backend.sin_family = AF_INET;
    backend.sin_port = htons((uint16_t)number("port", colon + 1, 1, 65535));
    if (inet_pton(AF_INET, argv[optind], &backend.sin_addr) != 1) {
        fprintf(stderr, "%s: not an IPv4 address\n", argv[optind]);
        return 2;
    }
    start(config, 1);
    end_on_signals();
    mctx = mtcp_create_context(0);
    if (!mctx)
        die("mtcp_create_context");
    open_all(port, seconds);
    printf("relay: ready at port %d\n", port);
    fflush(stdout);
    run();
    tell();
    mtcp_destroy_context(mctx);
    mtcp_destroy();
    return 0;
}
