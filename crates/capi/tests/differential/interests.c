/*
 * Exactly the requested events: the end only, urgent bytes only, none. A wait for something that
 * does not come sleeps. Urgent bytes. Kernel descriptors with various masks.
 */
#include "suite.h"

static char bytes[256];

/* Waits in vain, and notes whether the wait used the processor. */
static void try_asleep(int epoll)
{
    struct timespec before, after;
    long took_us;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
    try_events_within(epoll, 200);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
    took_us = (after.tv_sec - before.tv_sec) * 1000000L + (after.tv_nsec - before.tv_nsec) / 1000;
    note(took_us < 60000 ? " asleep" : " busy");
}

CASE(end_alone_asked_for)
{
    struct pair pair = connected();
    int epoll = epoll_new();

    epoll_add(epoll, pair.fd, EV(RDHUP), 1);
    try_events(epoll);
    PEER(write, pair.peer, "x", 1);
    try_events(epoll);
    try_asleep(epoll);
    PEER(shutdown, pair.peer, SHUT_WR);
    try_events(epoll);
    try_events(epoll);
}

CASE(end_alone_asked_for_edge)
{
    struct pair pair = connected();
    int epoll = epoll_new();

    epoll_add(epoll, pair.fd, EV(RDHUP) | EV(ET), 1);
    PEER(write, pair.peer, "x", 1);
    try_events(epoll);
    PEER(shutdown, pair.peer, SHUT_WR);
    try_events(epoll);
    try_events(epoll);
    reset_by(&peer, pair.peer);
    try_events(epoll);
}

CASE(nothing_asked_for)
{
    struct pair pair = connected();
    int epoll = epoll_new();

    epoll_add(epoll, pair.fd, 0, 1);
    PEER(write, pair.peer, "x", 1);
    try_events(epoll);
    try_asleep(epoll);
    PEER(shutdown, pair.peer, SHUT_WR);
    try_events(epoll);
    CALL(shutdown, pair.fd, SHUT_WR);
    try_events(epoll);
}

CASE(nothing_asked_for_then_everything)
{
    struct pair pair = connected();
    int epoll = epoll_new();

    epoll_add(epoll, pair.fd, EV(ET), 1);
    PEER(write, pair.peer, "x", 1);
    try_events(epoll);
    epoll_mod(epoll, pair.fd, EV(IN) | EV(ET), 2);
    try_events(epoll);
    epoll_mod(epoll, pair.fd, 0, 3);
    try_events(epoll);
    reset_by(&peer, pair.peer);
    try_events(epoll);
}

CASE(other_names_asked_for)
{
    struct pair pair = connected();
    int epoll = epoll_new();

    epoll_add(epoll, pair.fd, EV(RDNORM), 1);
    try_events(epoll);
    PEER(write, pair.peer, "x", 1);
    try_events(epoll);
    epoll_mod(epoll, pair.fd, EV(WRNORM), 2);
    try_events(epoll);
    epoll_mod(epoll, pair.fd, EV(RDBAND) | EV(WRBAND) | EV(MSG), 3);
    try_events(epoll);
    try_asleep(epoll);
}

CASE(exclusive_asked_for)
{
    struct pair pair = connected();
    int epoll = epoll_new(), other = epoll_new();

    epoll_add(epoll, pair.fd, EV(IN) | EPOLLEXCLUSIVE | EV(RDHUP), 1);
    epoll_add(epoll, pair.fd, EV(IN) | EPOLLEXCLUSIVE | EV(ONESHOT), 1);
    epoll_add(epoll, other, EV(IN) | EPOLLEXCLUSIVE, 1);
    epoll_add(epoll, pair.fd, EV(IN) | EPOLLEXCLUSIVE, 1);
    epoll_mod(epoll, pair.fd, EV(IN) | EPOLLEXCLUSIVE, 1);
    PEER(write, pair.peer, "x", 1);
    try_events(epoll);
}

CASE(urgent_byte_stands_apart)
{
    struct pair pair = connected();
    int epoll = epoll_new(), mark = -1;
    struct iovec parts[2] = {{bytes, 1}, {bytes + 1, 9}};

    epoll_add(epoll, pair.fd, EV(PRI), 1);
    PEER(send, pair.peer, "ab", 2, 0);
    PEER(send, pair.peer, "c", 1, MSG_OOB);
    PEER(send, pair.peer, "d", 1, 0);
    try_events(epoll);
    try_poll(pair.fd);
    TRY(readv, pair.fd, parts, 2);
    TRY(ioctl, pair.fd, SIOCATMARK, &mark);
    note(":%d", mark);
    TRY(recv, pair.fd, bytes, 1, MSG_OOB);
    note(":%c", bytes[0]);
    TRY(recv, pair.fd, bytes, 1, MSG_OOB);
    try_events(epoll);
    TRY(read, pair.fd, bytes, 10);
    note(":%c", bytes[0]);
    TRY(read, pair.fd, bytes, 10);
}

CASE(urgent_byte_in_line)
{
    struct pair pair = connected();
    int on = 1;

    TRY(setsockopt, pair.fd, SOL_SOCKET, SO_OOBINLINE, &on, sizeof on);
    PEER(send, pair.peer, "ab", 2, 0);
    PEER(send, pair.peer, "c", 1, MSG_OOB);
    settle();
    TRY(read, pair.fd, bytes, 10);
    TRY(recv, pair.fd, bytes, 1, MSG_OOB);
    TRY(read, pair.fd, bytes, 10);
    note(":%c", bytes[0]);
}

CASE(peek_into_parts)
{
    struct pair pair = connected();
    struct iovec parts[3] = {{bytes, 2}, {bytes + 10, 2}, {bytes + 20, 20}};
    struct msghdr message;

    PEER(write, pair.peer, "hello", 5);
    settle();
    memset(&message, 0, sizeof message);
    message.msg_iov = parts;
    message.msg_iovlen = 3;
    TRY(recvmsg, pair.fd, &message, MSG_PEEK);
    note(" '%.2s' '%.2s' '%.1s'", bytes, bytes + 10, bytes + 20);
    memset(bytes, 'x', sizeof bytes);
    TRY(recvmsg, pair.fd, &message, MSG_TRUNC);
    note(" '%.2s' flags=%x", bytes, (unsigned)message.msg_flags);
    TRY(recvmsg, pair.fd, &message, 0);
}

/* A kernel descriptor reports the kernel's events. */
CASE(pipe_asked_for_other_names)
{
    int ends[2], epoll = epoll_new();

    TRY(pipe, ends);
    keep(&me, ends[0]);
    keep(&me, ends[1]);
    epoll_add(epoll, ends[0], EV(RDNORM) | EV(PRI), 1);
    epoll_add(epoll, ends[1], EV(WRNORM), 2);
    try_events(epoll);
    TRY(write, ends[1], "x", 1);
    try_events(epoll);
}

CASE(eventfd_asked_for_other_names)
{
    int fd = keep(&me, CALL(eventfd, 1, EFD_NONBLOCK)), epoll = epoll_new();

    epoll_add(epoll, fd, EV(RDNORM) | EV(WRNORM), 1);
    try_events(epoll);
    try_asleep(epoll);
    epoll_mod(epoll, fd, EV(IN) | EV(ONESHOT), 2);
    try_events(epoll);
    try_events(epoll);
}

CASE(poll_of_an_epoll_of_everything)
{
    uint64_t one = 1;
    struct pair pair = connected();
    int inner = epoll_new(), outer = epoll_new(), fd = keep(&me, CALL(eventfd, 0, EFD_NONBLOCK));

    epoll_add(inner, pair.fd, EV(IN) | EV(ET), 1);
    epoll_add(inner, fd, EV(IN), 2);
    epoll_add(outer, inner, EV(IN), 3);
    try_poll(outer);
    TRY(write, fd, (char *)&one, sizeof one);
    try_poll(outer);
    try_poll(inner);
    TRY(read, fd, (char *)&one, sizeof one);
    try_poll(outer);
    PEER(write, pair.peer, "x", 1);
    settle();
    try_poll(outer);
    try_events(inner);
    try_poll(outer);
}
