/*
 * Pipes, event counters, and poll.
 */
#include "suite.h"

static char bytes[70000];

static void new_pipe(int ends[2])
{
    TRY(pipe, ends);
    for (int i = 0; i < 2; i++) {
        keep(&me, ends[i]);
        set_blocking(&me, ends[i], false);
    }
}

CASE(pipe_without_a_place)
{
    TRY(pipe, NULL);
}

CASE(pipe_carries_bytes)
{
    int ends[2];

    new_pipe(ends);
    TRY(read, ends[0], bytes, 10);
    TRY(write, ends[1], "hello", 5);
    TRY(write, ends[1], "world", 5);
    TRY(read, ends[0], bytes, 7);
    note(" '%.7s'", bytes);
    TRY(read, ends[0], bytes, 7);
    TRY(read, ends[0], bytes, 7);
}

CASE(pipe_ends_the_wrong_way)
{
    int ends[2];

    new_pipe(ends);
    TRY(write, ends[0], "x", 1);
    TRY(read, ends[1], bytes, 1);
    TRY(recv, ends[0], bytes, 1, 0);
    TRY(send, ends[1], "x", 1, 0);
}

CASE(pipe_of_nothing)
{
    int ends[2];

    new_pipe(ends);
    TRY(write, ends[1], bytes, 0);
    TRY(read, ends[0], bytes, 0);
    TRY(read, ends[0], bytes, 1);
}

CASE(pipe_full)
{
    int ends[2];
    long count, total = 0;

    new_pipe(ends);
    while ((count = CALL(write, ends[1], bytes, 4096)) > 0)
        total += count;
    note(" %ld", total);
    TRY(write, ends[1], bytes, 1);
    try_poll(ends[1]);
    try_poll(ends[0]);
    TRY(read, ends[0], bytes, 4096);
    try_poll(ends[1]);
    TRY(write, ends[1], bytes, 4096);
}

CASE(pipe_larger_than_its_room)
{
    int ends[2];

    new_pipe(ends);
    TRY(write, ends[1], bytes, sizeof bytes);
    TRY(write, ends[1], bytes, 1);
    TRY(read, ends[0], bytes, sizeof bytes);
}

CASE(pipe_writer_gone)
{
    int ends[2];

    new_pipe(ends);
    TRY(write, ends[1], "last", 4);
    TRY(close, ends[1]);
    try_poll(ends[0]);
    TRY(read, ends[0], bytes, 10);
    try_poll(ends[0]);
    TRY(read, ends[0], bytes, 10);
}

CASE(pipe_reader_gone)
{
    int ends[2];

    new_pipe(ends);
    TRY(close, ends[0]);
    try_poll(ends[1]);
    TRY(write, ends[1], "x", 1);
}

CASE(pipe_of_parts)
{
    int ends[2];
    struct iovec out[2] = {{bytes, 3}, {bytes + 3, 4}}, in[2] = {{bytes, 2}, {bytes + 10, 20}};

    new_pipe(ends);
    TRY(writev, ends[1], out, 2);
    TRY(readv, ends[0], in, 2);
}

CASE(pipe_ioctl_and_flags)
{
    int ends[2], count = -1;

    new_pipe(ends);
    TRY(write, ends[1], "hello", 5);
    TRY(ioctl, ends[0], FIONREAD, &count);
    note(" %d", count);
    note(" %x %x", (unsigned)CALL(fcntl, ends[0], F_GETFL, 0) & (O_ACCMODE | O_NONBLOCK),
         (unsigned)CALL(fcntl, ends[1], F_GETFL, 0) & (O_ACCMODE | O_NONBLOCK));
}

static int counter(unsigned initial, int flags)
{
    return keep(&me, CALL(eventfd, initial, flags));
}

static void try_count(int fd)
{
    uint64_t value = 0;

    if (TRY(read, fd, (char *)&value, sizeof value) > 0)
        note(" value=%llu", (unsigned long long)value);
}

static void try_add(int fd, uint64_t value)
{
    TRY(write, fd, (char *)&value, sizeof value);
}

CASE(eventfd_flags)
{
    TRY(eventfd, 0, 0x40);
    note(" %d", counter(0, EFD_NONBLOCK | EFD_CLOEXEC | EFD_SEMAPHORE) >= 0);
    note(" %x", (unsigned)CALL(fcntl, counter(0, EFD_NONBLOCK), F_GETFL, 0) & O_NONBLOCK);
    note(" %x", (unsigned)CALL(fcntl, counter(0, 0), F_GETFL, 0) & O_NONBLOCK);
}

CASE(eventfd_counts)
{
    int fd = counter(5, EFD_NONBLOCK);

    try_count(fd);
    try_count(fd);
    try_add(fd, 2);
    try_add(fd, 3);
    try_poll(fd);
    try_count(fd);
    try_poll(fd);
}

CASE(eventfd_semaphore)
{
    int fd = counter(2, EFD_NONBLOCK | EFD_SEMAPHORE);

    try_count(fd);
    try_count(fd);
    try_count(fd);
}

CASE(eventfd_full)
{
    int fd = counter(0, EFD_NONBLOCK);

    try_add(fd, UINT64_MAX);
    try_add(fd, UINT64_MAX - 1);
    try_poll(fd);
    try_add(fd, 1);
    try_count(fd);
    try_add(fd, 1);
}

CASE(eventfd_lengths)
{
    int fd = counter(1, EFD_NONBLOCK);

    TRY(read, fd, bytes, 4);
    TRY(write, fd, bytes, 4);
    TRY(read, fd, bytes, 0);
    TRY(write, fd, bytes, 0);
    TRY(read, fd, bytes, 100);
}

CASE(poll_of_nothing)
{
    TRY(poll, NULL, 0, 0);
}

CASE(poll_of_wrong_and_negative)
{
    struct pair pair = connected();
    struct pollfd entries[4] = {{-1, POLLIN, 0x55}, {1 << 20, POLLIN, 0}, {pair.fd, POLLOUT, 0}, {-pair.fd - 2, POLLOUT, 0}};

    TRY(poll, entries, 4, 0);
    for (int i = 0; i < 4; i++)
        note(" %x", (unsigned)entries[i].revents);
}

CASE(poll_same_descriptor_twice)
{
    struct pair pair = connected();
    struct pollfd entries[2] = {{pair.fd, POLLOUT, 0}, {pair.fd, POLLIN, 0}};

    TRY(poll, entries, 2, 0);
    note(" %x %x", (unsigned)entries[0].revents, (unsigned)entries[1].revents);
    PEER(write, pair.peer, "x", 1);
    settle();
    TRY(poll, entries, 2, 0);
    note(" %x %x", (unsigned)entries[0].revents, (unsigned)entries[1].revents);
}

CASE(poll_asked_for_nothing)
{
    struct pair pair = connected();
    struct pollfd entry = {pair.fd, 0, 0};

    TRY(poll, &entry, 1, 0);
    reset_by(&peer, pair.peer);
    TRY(poll, &entry, 1, 0);
    note(" %x", (unsigned)entry.revents);
}

CASE(poll_of_an_epoll)
{
    struct pair pair = connected();
    int epoll = epoll_new();

    try_poll(epoll);
    epoll_add(epoll, pair.fd, EV(IN), 1);
    try_poll(epoll);
    PEER(write, pair.peer, "x", 1);
    settle();
    try_poll(epoll);
    TRY(read, pair.fd, bytes, 1);
    try_poll(epoll);
}

CASE(poll_of_everything)
{
    struct sockaddr_in at;
    struct pair pair = connected();
    int ends[2], listener = tcp_listener(&me, 4, &at), epoll = epoll_new(), fd = counter(1, EFD_NONBLOCK);
    struct pollfd entries[5];

    new_pipe(ends);
    entries[0] = (struct pollfd){pair.fd, POLLIN | POLLOUT, 0};
    entries[1] = (struct pollfd){ends[1], POLLIN | POLLOUT, 0};
    entries[2] = (struct pollfd){listener, POLLIN | POLLOUT, 0};
    entries[3] = (struct pollfd){epoll, POLLIN | POLLOUT, 0};
    entries[4] = (struct pollfd){fd, POLLIN | POLLOUT, 0};
    TRY(poll, entries, 5, 0);
    for (int i = 0; i < 5; i++)
        note(" %x", (unsigned)entries[i].revents);
}
