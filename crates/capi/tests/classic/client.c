/*
 * The client, conversation by conversation.
 */
#include "classic.h"

#define CONNECTIONS 12

static mctx_t mctx;
static int epoll;
static struct sockaddr_in server;

/* Waits for one event of the socket, with all bits of one mask and none of the other. */
static uint32_t expect(int sockid, uint32_t all, uint32_t none)
{
    struct mtcp_epoll_event events[4];
    int count = mtcp_epoll_wait(mctx, epoll, events, 4, 10000);

    MUST(count == 1);
    MUST(events[0].data.sockid == sockid);
    MUST((events[0].events & all) == all);
    MUST((events[0].events & none) == 0);
    return events[0].events;
}

static void expect_nothing(void)
{
    struct mtcp_epoll_event events[4];

    MUST(mtcp_epoll_wait(mctx, epoll, events, 4, 30) == 0);
}

/* A connection made without waiting, registered for EPOLLIN, that has sent a request. */
static int asking(char what)
{
    int sockid = mtcp_socket(mctx, AF_INET, SOCK_STREAM, 0);

    MUST(sockid >= 0 && mtcp_setsock_nonblock(mctx, sockid) == 0);
    MUST(mtcp_connect(mctx, sockid, (struct sockaddr *)&server, sizeof server) == -1 && errno == EINPROGRESS);
    watch(mctx, epoll, MTCP_EPOLL_CTL_ADD, sockid, MTCP_EPOLLOUT);
    expect(sockid, MTCP_EPOLLOUT, MTCP_EPOLLIN | MTCP_EPOLLERR | MTCP_EPOLLHUP);
    MUST(error_of(mctx, sockid) == 0);
    MUST(mtcp_write(mctx, sockid, &what, 1) == 1);
    watch(mctx, epoll, MTCP_EPOLL_CTL_MOD, sockid, MTCP_EPOLLIN);
    return sockid;
}

static void end(int sockid)
{
    MUST(mtcp_epoll_ctl(mctx, epoll, MTCP_EPOLL_CTL_DEL, sockid, NULL) == 0);
    MUST(mtcp_close(mctx, sockid) == 0);
}

/* Descriptors block by default. */
static void blocking_is_the_default(void)
{
    char bytes[6] = "";
    int sockid = mtcp_socket(mctx, AF_INET, SOCK_STREAM, 0);

    MUST(mtcp_connect(mctx, sockid, (struct sockaddr *)&server, sizeof server) == 0);
    MUST(mtcp_write(mctx, sockid, "ehello", 6) == 6);
    MUST(mtcp_recv(mctx, sockid, bytes, 5, MSG_WAITALL) == 5 && strcmp(bytes, "hello") == 0);
    MUST(mtcp_setsock_nonblock(mctx, sockid) == 0);
    MUST(mtcp_read(mctx, sockid, bytes, 5) == -1 && errno == EAGAIN);
    MUST(mtcp_close(mctx, sockid) == 0);
    MUST(mtcp_read(mctx, sockid, bytes, 5) == -1 && errno == EBADF);
}

static void registrations_are_kept(void)
{
    struct mtcp_epoll_event event = {MTCP_EPOLLIN, {NULL}};
    int sockid = asking(ECHO);

    MUST(mtcp_epoll_ctl(mctx, epoll, MTCP_EPOLL_CTL_ADD, sockid, &event) == -1 && errno == EEXIST);
    expect_nothing();
    MUST(mtcp_write(mctx, sockid, "x", 1) == 1);
    expect(sockid, MTCP_EPOLLIN, MTCP_EPOLLOUT);
    /* Level-triggered: the bytes are still unread. */
    expect(sockid, MTCP_EPOLLIN, MTCP_EPOLLOUT);
    end(sockid);
    MUST(mtcp_epoll_ctl(mctx, epoll, MTCP_EPOLL_CTL_DEL, sockid, NULL) == -1 && errno == EBADF);
    expect_nothing();
}

/* After the last byte the end is readable, and read returns 0. */
static void much_comes_whole_and_ends(void)
{
    static char bytes[16384];
    size_t got = 0;
    int sockid = asking(MUCH);

    for (;;) {
        ssize_t count;

        expect(sockid, MTCP_EPOLLIN, MTCP_EPOLLERR);
        count = mtcp_read(mctx, sockid, bytes, sizeof bytes);
        MUST(count >= 0);
        if (count == 0)
            break;
        for (ssize_t i = 0; i < count; i++)
            MUST(bytes[i] == much_at(got + (size_t)i));
        got += (size_t)count;
    }
    MUST(got == MUCH_BYTES);
    MUST(mtcp_read(mctx, sockid, bytes, sizeof bytes) == 0);
    end(sockid);
}

static void full_buffer_says_so_and_tells_of_room(void)
{
    static char bytes[20000];
    uint64_t sent = 0, counted = 0;
    int sockid = asking(SLOW), times_full = 0;

    watch(mctx, epoll, MTCP_EPOLL_CTL_MOD, sockid, MTCP_EPOLLOUT);
    while (times_full < 20) {
        ssize_t count = mtcp_write(mctx, sockid, bytes, sizeof bytes);

        MUST(count != 0);
        if (count > 0) {
            sent += (uint64_t)count;
            continue;
        }
        MUST(errno == EAGAIN);
        times_full++;
        expect(sockid, MTCP_EPOLLOUT, MTCP_EPOLLERR);
    }
    MUST(mtcp_shutdown(mctx, sockid, SHUT_WR) == 0);
    watch(mctx, epoll, MTCP_EPOLL_CTL_MOD, sockid, MTCP_EPOLLIN);
    while (mtcp_read(mctx, sockid, (char *)&counted, sizeof counted) != sizeof counted)
        expect(sockid, MTCP_EPOLLIN, MTCP_EPOLLERR);
    MUST(counted == sent);
    expect(sockid, MTCP_EPOLLIN, MTCP_EPOLLERR);
    MUST(mtcp_read(mctx, sockid, bytes, 1) == 0);
    end(sockid);
}

static void reset_is_an_error(void)
{
    char byte;
    int sockid = asking(RESET);

    expect(sockid, MTCP_EPOLLERR | MTCP_EPOLLHUP | MTCP_EPOLLIN, 0);
    MUST(error_of(mctx, sockid) == ECONNRESET);
    MUST(error_of(mctx, sockid) == 0);
    MUST(mtcp_read(mctx, sockid, &byte, 1) == 0);
    end(sockid);
}

static void refusal_is_an_error(void)
{
    struct sockaddr_in nobody = server;
    int sockid = mtcp_socket(mctx, AF_INET, SOCK_STREAM, 0);

    nobody.sin_port = htons(PORT + 1);
    MUST(mtcp_setsock_nonblock(mctx, sockid) == 0);
    MUST(mtcp_connect(mctx, sockid, (struct sockaddr *)&nobody, sizeof nobody) == -1 && errno == EINPROGRESS);
    watch(mctx, epoll, MTCP_EPOLL_CTL_ADD, sockid, MTCP_EPOLLIN | MTCP_EPOLLOUT);
    expect(sockid, MTCP_EPOLLERR, 0);
    MUST(error_of(mctx, sockid) == ECONNREFUSED);
    end(sockid);
}

/* Connections use the addresses in turn, and the server answers all of them. */
static void connections_leave_from_every_address(void)
{
    in_addr_t first = inet_addr(CLIENT);
    int sockids[CONNECTIONS], used[CLIENTS] = {0};

    MUST(mtcp_init_rss(mctx, first, CLIENTS + 1, server.sin_addr.s_addr, server.sin_port) == -1 && errno == EADDRNOTAVAIL);
    MUST(mtcp_init_rss(mctx, first, 0, server.sin_addr.s_addr, server.sin_port) == -1 && errno == EINVAL);
    MUST(mtcp_init_rss(mctx, first, CLIENTS, server.sin_addr.s_addr, server.sin_port) == 0);
    for (int i = 0; i < CONNECTIONS; i++) {
        struct sockaddr_in own;
        socklen_t len = sizeof own;
        uint32_t place;

        sockids[i] = asking(ECHO);
        MUST(mtcp_getsockname(mctx, sockids[i], (struct sockaddr *)&own, &len) == 0 && own.sin_port != 0);
        place = ntohl(own.sin_addr.s_addr) - ntohl(first);
        MUST(place < CLIENTS);
        used[place]++;
        MUST(mtcp_write(mctx, sockids[i], "x", 1) == 1);
        expect(sockids[i], MTCP_EPOLLIN, MTCP_EPOLLERR);
        watch(mctx, epoll, MTCP_EPOLL_CTL_MOD, sockids[i], 0);
    }
    for (int i = 0; i < CLIENTS; i++)
        MUST(used[i] == CONNECTIONS / CLIENTS);
    /* Registered for no events, with bytes to read: no event is reported. */
    expect_nothing();
    for (int i = 0; i < CONNECTIONS; i++)
        end(sockids[i]);
    MUST(mtcp_init_rss(mctx, INADDR_ANY, 1, server.sin_addr.s_addr, server.sin_port) == 0);
}

static void note_signal(int signum)
{
    (void)signum;
}

static void *interrupt(void *thread)
{
    struct timespec pause = {0, 50000000};

    nanosleep(&pause, NULL);
    MUST(pthread_kill(*(pthread_t *)thread, SIGUSR1) == 0);
    return NULL;
}

/* A wait without a limit ends when a handler has run, however it was registered. */
static void signals_end_waits(void)
{
    struct mtcp_epoll_event event;
    pthread_t self = pthread_self(), thread;

    MUST(mtcp_register_signal(SIGUSR1, note_signal) == SIG_DFL);
    for (int i = 0; i < 2; i++) {
        MUST(pthread_create(&thread, NULL, interrupt, &self) == 0);
        MUST(mtcp_epoll_wait(mctx, epoll, &event, 1, -1) == -1 && errno == EINTR);
        MUST(pthread_join(thread, NULL) == 0);
        signal(SIGUSR1, note_signal);
    }
}

void load(void)
{
    mctx = begin(0, &epoll);
    memset(&server, 0, sizeof server);
    server.sin_family = AF_INET;
    server.sin_addr.s_addr = inet_addr(SERVER);
    server.sin_port = htons(PORT);
    MUST(mtcp_init_rss(mctx, INADDR_ANY, 1, server.sin_addr.s_addr, server.sin_port) == 0);
    blocking_is_the_default();
    registrations_are_kept();
    much_comes_whole_and_ends();
    full_buffer_says_so_and_tells_of_room();
    reset_is_an_error();
    refusal_is_an_error();
    connections_leave_from_every_address();
    signals_end_waits();
    MUST(mtcp_epoll_wait(mctx, epoll, NULL, 0, 0) == -1 && errno == EINVAL);
    MUST(mtcp_epoll_wait(mctx, 600, NULL, 1, 0) == -1 && errno == EBADF);
    mtcp_destroy_context(mctx);
}
