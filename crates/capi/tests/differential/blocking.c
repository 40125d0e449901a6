/*
 * Calls that wait: what ends the wait, and that they did wait. The other end is the aide, which
 * has a thread of its own.
 */
#include "suite.h"

/* Delay of the aide's actions. */
#define LATER_MS 30
#define SHORT_MS 25

static char bytes[70000];

/* Notes how long something took, if that is certain. */
static void note_wait(long began)
{
    long took = now_ms() - began;

    note(took < SHORT_MS ? " at once" : took < 5000 ? " waited" : " waited too long");
}

static void aide_writes(void *pair)
{
    AIDE(write, ((struct pair *)pair)->peer, "hello", 5);
}

static void aide_writes_twice(void *pair)
{
    aide_writes(pair);
    usleep(LATER_MS * 1000);
    aide_writes(pair);
}

static void aide_writes_and_ends(void *pair)
{
    aide_writes(pair);
    AIDE(shutdown, ((struct pair *)pair)->peer, SHUT_WR);
}

static void aide_ends(void *pair)
{
    AIDE(shutdown, ((struct pair *)pair)->peer, SHUT_WR);
}

static void aide_resets(void *pair)
{
    struct linger linger = {1, 0};
    int fd = ((struct pair *)pair)->peer;

    AIDE(setsockopt, fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    AIDE(close, fd);
}

static void aide_reads_all(void *pair)
{
    static char there[65536];
    int fd = ((struct pair *)pair)->peer;
    long quiet_since = now_ms();

    while (now_ms() - quiet_since < 300)
        if (AIDE(read, fd, there, sizeof there) > 0)
            quiet_since = now_ms();
        else
            usleep(500);
}

CASE(blocking_read_then_bytes)
{
    struct pair pair = with_aide();
    long began = now_ms();

    later(LATER_MS, aide_writes, &pair);
    TRY(read, pair.fd, bytes, 10);
    note_wait(began);
    TRY(recv, pair.fd, bytes, 10, MSG_DONTWAIT);
    aide_join();
}

CASE(blocking_read_then_the_end)
{
    struct pair pair = with_aide();
    long began = now_ms();

    later(LATER_MS, aide_ends, &pair);
    TRY(read, pair.fd, bytes, 10);
    note_wait(began);
    TRY(read, pair.fd, bytes, 10);
    aide_join();
}

CASE(blocking_read_then_a_reset)
{
    struct pair pair = with_aide();
    long began = now_ms();

    later(LATER_MS, aide_resets, &pair);
    TRY(read, pair.fd, bytes, 10);
    note_wait(began);
    TRY(read, pair.fd, bytes, 10);
    aide_join();
}

CASE(blocking_read_of_nothing)
{
    struct pair pair = with_aide();

    TRY(read, pair.fd, bytes, 0);
    TRY(write, pair.fd, bytes, 0);
    TRY(readv, pair.fd, NULL, 0);
}

CASE(blocking_readv_then_bytes)
{
    struct pair pair = with_aide();
    struct iovec parts[2] = {{bytes, 2}, {bytes + 2, 10}};

    later(LATER_MS, aide_writes, &pair);
    TRY(readv, pair.fd, parts, 2);
    note(" '%.5s'", bytes);
    aide_join();
}

CASE(blocking_recvmsg_then_bytes)
{
    struct pair pair = with_aide();
    struct iovec part = {bytes, 10};
    struct msghdr message;

    memset(&message, 0, sizeof message);
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    later(LATER_MS, aide_writes, &pair);
    TRY(recvmsg, pair.fd, &message, 0);
    note(" '%.5s'", bytes);
    aide_join();
}

CASE(blocking_peek_then_bytes)
{
    struct pair pair = with_aide();

    later(LATER_MS, aide_writes, &pair);
    TRY(recv, pair.fd, bytes, 10, MSG_PEEK);
    TRY(recv, pair.fd, bytes, 10, 0);
    aide_join();
}

CASE(blocking_waitall_then_all)
{
    struct pair pair = with_aide();

    later(LATER_MS, aide_writes_twice, &pair);
    TRY(recv, pair.fd, bytes, 10, MSG_WAITALL);
    note(" '%.10s'", bytes);
    aide_join();
}

CASE(blocking_waitall_then_the_end)
{
    struct pair pair = with_aide();

    later(LATER_MS, aide_writes_and_ends, &pair);
    TRY(recv, pair.fd, bytes, 10, MSG_WAITALL);
    TRY(recv, pair.fd, bytes, 10, MSG_WAITALL);
    aide_join();
}

CASE(blocking_waitall_then_a_reset)
{
    struct pair pair = with_aide();

    later(0, aide_writes, &pair);
    await(&me, pair.fd, POLLIN);
    later(LATER_MS, aide_resets, &pair);
    TRY(recv, pair.fd, bytes, 10, MSG_WAITALL);
    TRY(recv, pair.fd, bytes, 10, MSG_WAITALL);
    TRY(recv, pair.fd, bytes, 10, MSG_WAITALL);
    aide_join();
}

static void set_time(int fd, int option, int ms)
{
    struct timeval time = {ms / 1000, ms % 1000 * 1000};

    CALL(setsockopt, fd, SOL_SOCKET, option, &time, sizeof time);
}

CASE(blocking_read_times_out)
{
    struct pair pair = with_aide();
    long began = now_ms();

    set_time(pair.fd, SO_RCVTIMEO, LATER_MS);
    TRY(read, pair.fd, bytes, 10);
    note_wait(began);
    try_so_error(pair.fd);
    aide_do(aide_writes, &pair);
    TRY(read, pair.fd, bytes, 10);
}

CASE(blocking_waitall_times_out)
{
    struct pair pair = with_aide();

    set_time(pair.fd, SO_RCVTIMEO, 200);
    later(0, aide_writes, &pair);
    TRY(recv, pair.fd, bytes, 10, MSG_WAITALL);
    aide_join();
}

CASE(blocking_write_then_room)
{
    struct pair pair = with_aide();
    long filled, rest = 0, count;

    set_blocking(&me, pair.fd, false);
    filled = fill(&me, pair.fd);
    set_blocking(&me, pair.fd, true);
    later(LATER_MS, aide_reads_all, &pair);
    count = CALL(write, pair.fd, bytes, sizeof bytes);
    rest = count;
    note(" %s", filled > 0 && rest == (long)sizeof bytes ? "all" : "not all");
    aide_join();
}

CASE(blocking_write_then_a_reset)
{
    struct pair pair = with_aide();

    set_blocking(&me, pair.fd, false);
    fill(&me, pair.fd);
    set_blocking(&me, pair.fd, true);
    later(LATER_MS, aide_resets, &pair);
    TRY(write, pair.fd, bytes, 10);
    TRY(write, pair.fd, bytes, 10);
    aide_join();
}

CASE(blocking_write_times_out)
{
    struct pair pair = with_aide();
    long began;

    set_blocking(&me, pair.fd, false);
    fill(&me, pair.fd);
    set_blocking(&me, pair.fd, true);
    set_time(pair.fd, SO_SNDTIMEO, LATER_MS);
    began = now_ms();
    TRY(write, pair.fd, bytes, 10);
    note_wait(began);
}

struct caller {
    struct sockaddr_in at;
    int fd;
};

static void aide_connects(void *argument)
{
    struct caller *caller = (struct caller *)argument;

    caller->fd = tcp_socket(&aide);
    AIDE(connect, caller->fd, (struct sockaddr *)&caller->at, sizeof caller->at);
}

CASE(blocking_accept_then_a_connection)
{
    struct caller caller;
    int fd = tcp_listener(&me, 4, &caller.at);
    long began = now_ms();

    set_blocking(&me, fd, true);
    later(LATER_MS, aide_connects, &caller);
    note(" %d", keep(&me, CALL(accept, fd, NULL, NULL)) >= 0);
    note_wait(began);
    aide_join();
}

CASE(blocking_accept_times_out)
{
    struct sockaddr_in at;
    int fd = tcp_listener(&me, 4, &at);
    long began = now_ms();

    set_blocking(&me, fd, true);
    set_time(fd, SO_RCVTIMEO, LATER_MS);
    TRY(accept, fd, NULL, NULL);
    note_wait(began);
}

CASE(blocking_connect_done)
{
    struct sockaddr_in at = listening_aide();
    int fd = tcp_socket(&me);

    set_blocking(&me, fd, true);
    TRY(connect, fd, (struct sockaddr *)&at, sizeof at);
    TRY(connect, fd, (struct sockaddr *)&at, sizeof at);
    try_poll(fd);
    TRY(write, fd, "hello", 5);
}

CASE(blocking_connect_refused)
{
    struct sockaddr_in at = closed_port();
    int fd = tcp_socket(&me);

    set_blocking(&me, fd, true);
    TRY(connect, fd, (struct sockaddr *)&at, sizeof at);
    try_so_error(fd);
    try_poll(fd);
}

CASE(blocking_connect_refused_then_connected)
{
    struct sockaddr_in closed = closed_port(), open = listening_aide();
    int fd = tcp_socket(&me);

    set_blocking(&me, fd, true);
    TRY(connect, fd, (struct sockaddr *)&closed, sizeof closed);
    TRY(connect, fd, (struct sockaddr *)&open, sizeof open);
    TRY(write, fd, "x", 1);
}

CASE(blocking_connect_gives_up_waiting)
{
    struct sockaddr_in at = silent_peer();
    int fd = tcp_socket(&me);
    long began = now_ms();

    set_blocking(&me, fd, true);
    set_time(fd, SO_SNDTIMEO, LATER_MS);
    TRY(connect, fd, (struct sockaddr *)&at, sizeof at);
    note_wait(began);
    TRY(connect, fd, (struct sockaddr *)&at, sizeof at);
    try_poll(fd);
}

CASE(blocking_connect_timed_out)
{
    struct sockaddr_in at = silent_peer();
    int fd = tcp_socket(&me), timeout_ms = 300;

    set_blocking(&me, fd, true);
    CALL(setsockopt, fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof timeout_ms);
    TRY(connect, fd, (struct sockaddr *)&at, sizeof at);
    try_so_error(fd);
}

CASE(waiting_epoll_then_bytes)
{
    struct pair pair = with_aide();
    int epoll = epoll_new();
    long began = now_ms();

    epoll_add(epoll, pair.fd, EV(IN), 1);
    later(LATER_MS, aide_writes, &pair);
    try_events_within(epoll, 4000);
    note_wait(began);
    aide_join();
}

CASE(waiting_epoll_for_ever)
{
    struct pair pair = with_aide();
    int epoll = epoll_new();

    epoll_add(epoll, pair.fd, EV(IN) | EV(RDHUP), 1);
    later(LATER_MS, aide_ends, &pair);
    try_events_within(epoll, -1);
    aide_join();
}

CASE(waiting_epoll_then_a_connection)
{
    struct caller caller;
    int fd = tcp_listener(&me, 4, &caller.at), epoll = epoll_new();

    epoll_add(epoll, fd, EV(IN), 1);
    later(LATER_MS, aide_connects, &caller);
    try_events_within(epoll, 4000);
    aide_join();
}

CASE(waiting_nested_epoll_then_bytes)
{
    struct pair pair = with_aide();
    int inner = epoll_new(), outer = epoll_new();

    epoll_add(inner, pair.fd, EV(IN), 1);
    epoll_add(outer, inner, EV(IN), 2);
    later(LATER_MS, aide_writes, &pair);
    try_events_within(outer, 4000);
    try_events_within(inner, 4000);
    aide_join();
}

CASE(waiting_poll_then_bytes)
{
    struct pair pair = with_aide();
    struct pollfd entry = {pair.fd, POLLIN, 0};
    long began = now_ms();

    later(LATER_MS, aide_writes, &pair);
    TRY(poll, &entry, 1, 4000);
    note(" %x", (unsigned)entry.revents);
    note_wait(began);
    aide_join();
}

CASE(waiting_poll_times_out)
{
    struct pair pair = with_aide();
    struct pollfd entry = {pair.fd, POLLIN, 0};
    long began = now_ms();

    TRY(poll, &entry, 1, LATER_MS);
    note_wait(began);
    TRY(poll, NULL, 0, LATER_MS);
}

static void on_signal(int number)
{
    (void)number;
}

static void aide_signals(void *thread)
{
    pthread_kill(*(pthread_t *)thread, SIGUSR1);
}

static void wait_epoll_until_a_signal(void)
{
    pthread_t self = pthread_self();
    int epoll = epoll_new();

    later(LATER_MS, aide_signals, &self);
    try_events_within(epoll, 4000);
    aide_join();
}

CASE(waiting_epoll_then_a_signal)
{
    REGISTER_SIGNAL(SIGUSR1, on_signal);
    wait_epoll_until_a_signal();
}

CASE(waiting_poll_then_a_signal)
{
    pthread_t self = pthread_self();

    REGISTER_SIGNAL(SIGUSR1, on_signal);
    later(LATER_MS, aide_signals, &self);
    TRY(poll, NULL, 0, 4000);
    aide_join();
}

/* The handler was not registered with the library. */
CASE(waiting_epoll_then_a_signal_of_libc_s)
{
    signal(SIGUSR1, on_signal);
    wait_epoll_until_a_signal();
}

CASE(waiting_poll_then_a_signal_of_libc_s)
{
    struct pollfd entry = {connected().fd, POLLIN, 0};
    pthread_t self = pthread_self();

    signal(SIGUSR1, on_signal);
    later(LATER_MS, aide_signals, &self);
    TRY(poll, &entry, 1, 2000);
    aide_join();
}

/* A call with a time limit is never restarted after a handler. */
static void set_recv_limit(int fd)
{
    struct timeval limit = {4, 0};

    CALL(setsockopt, fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
}

CASE(blocking_read_then_a_signal)
{
    struct pair pair = with_aide();
    pthread_t self = pthread_self();
    long began = now_ms();

    REGISTER_SIGNAL(SIGUSR1, on_signal);
    set_recv_limit(pair.fd);
    later(LATER_MS, aide_signals, &self);
    TRY(read, pair.fd, bytes, 10);
    note_wait(began);
    aide_join();
    later(LATER_MS, aide_writes, &pair);
    TRY(read, pair.fd, bytes, 10);
    aide_join();
}

CASE(blocking_read_then_a_signal_of_libc_s)
{
    struct pair pair = with_aide();
    pthread_t self = pthread_self();

    signal(SIGUSR1, on_signal);
    set_recv_limit(pair.fd);
    later(LATER_MS, aide_signals, &self);
    TRY(read, pair.fd, bytes, 10);
    aide_join();
}

CASE(lingering_close_then_a_signal)
{
    struct linger linger = {1, 3};
    struct pair pair = with_aide();
    pthread_t self = pthread_self();
    long began = now_ms();

    REGISTER_SIGNAL(SIGUSR1, on_signal);
    /* More bytes than the peer takes, as it does not read. */
    set_blocking(&me, pair.fd, false);
    fill(&me, pair.fd);
    set_blocking(&me, pair.fd, true);
    TRY(setsockopt, pair.fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    later(LATER_MS, aide_signals, &self);
    TRY(close, pair.fd);
    note(now_ms() - began < 2500 ? " soon" : " late");
    TRY(close, pair.fd);
    aide_join();
}

CASE(blocking_waitall_then_a_signal)
{
    struct pair pair = with_aide();
    pthread_t self = pthread_self();

    REGISTER_SIGNAL(SIGUSR1, on_signal);
    set_recv_limit(pair.fd);
    aide_do(aide_writes, &pair);
    later(LATER_MS, aide_signals, &self);
    TRY(recv, pair.fd, bytes, 10, MSG_WAITALL);
    aide_join();
}

CASE(blocking_accept_then_a_signal)
{
    struct sockaddr_in at;
    pthread_t self = pthread_self();
    int fd = tcp_listener(&me, 4, &at);

    REGISTER_SIGNAL(SIGUSR1, on_signal);
    set_blocking(&me, fd, true);
    set_recv_limit(fd);
    later(LATER_MS, aide_signals, &self);
    TRY(accept, fd, NULL, NULL);
    aide_join();
}

CASE(blocking_peek_waitall_then_the_end)
{
    struct pair pair = with_aide();

    later(LATER_MS, aide_writes_and_ends, &pair);
    TRY(recv, pair.fd, bytes, 10, MSG_WAITALL | MSG_PEEK);
    TRY(recv, pair.fd, bytes, 10, MSG_WAITALL);
    TRY(recv, pair.fd, bytes, 10, MSG_WAITALL);
    aide_join();
}

CASE(blocking_waitall_into_parts)
{
    struct pair pair = with_aide();
    struct iovec parts[2] = {{bytes, 3}, {bytes + 3, 7}};
    struct msghdr message;

    memset(&message, 0, sizeof message);
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    later(LATER_MS, aide_writes_twice, &pair);
    TRY(recvmsg, pair.fd, &message, MSG_WAITALL);
    note(" '%.10s'", bytes);
    aide_join();
}

CASE(blocking_pipe)
{
    int ends[2];

    TRY(pipe, ends);
    keep(&me, ends[0]);
    keep(&me, ends[1]);
    TRY(write, ends[1], "hello", 5);
    TRY(read, ends[0], bytes, 10);
    TRY(close, ends[1]);
    TRY(read, ends[0], bytes, 10);
}
