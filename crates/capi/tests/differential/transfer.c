/*
 * Bytes: all forms of reading and writing, and both orders of closing.
 */
#include "suite.h"

static char bytes[70000];

/* Notes the bytes read as text. */
static void note_bytes(long count)
{
    if (count > 0)
        note(" '%.*s'", (int)count, bytes);
}

CASE(read_parts)
{
    struct pair pair = connected();

    TRY_PEER(write, pair.peer, "hello world", 11);
    settle();
    note_bytes(TRY(read, pair.fd, bytes, 4));
    note_bytes(TRY(read, pair.fd, bytes, 100));
    TRY(read, pair.fd, bytes, 1);
}

CASE(read_two_writes_at_once)
{
    struct pair pair = connected();

    PEER(write, pair.peer, "hello ", 6);
    settle();
    PEER(write, pair.peer, "world", 5);
    settle();
    note_bytes(TRY(read, pair.fd, bytes, 100));
}

CASE(read_both_ways_at_once)
{
    struct pair pair = connected();
    char other[10];

    TRY(write, pair.fd, "to you", 6);
    TRY_PEER(write, pair.peer, "to me", 5);
    settle();
    note_bytes(TRY(read, pair.fd, bytes, 100));
    TRY_PEER(read, pair.peer, other, sizeof other);
}

CASE(read_of_nothing_at_the_end)
{
    struct pair pair = connected();

    TRY(read, pair.fd, bytes, 0);
    PEER(write, pair.peer, "x", 1);
    settle();
    TRY(read, pair.fd, bytes, 0);
    TRY(recv, pair.fd, bytes, 0, MSG_PEEK);
    PEER(shutdown, pair.peer, SHUT_WR);
    settle();
    TRY(read, pair.fd, bytes, 0);
    TRY(read, pair.fd, bytes, 1);
    TRY(read, pair.fd, bytes, 0);
    TRY(recv, pair.fd, bytes, 0, 0);
}

CASE(read_into_a_null_buffer)
{
    struct pair pair = connected();

    TRY(read, pair.fd, NULL, 10);
    TRY(read, pair.fd, NULL, 0);
    TRY(write, pair.fd, NULL, 0);
}

CASE(write_of_nothing)
{
    struct pair pair = connected();

    TRY(write, pair.fd, bytes, 0);
    TRY(send, pair.fd, bytes, 0, 0);
    settle();
    TRY_PEER(read, pair.peer, bytes, 1);
    fill(&me, pair.fd);
    TRY(write, pair.fd, bytes, 0);
    TRY(send, pair.fd, bytes, 0, 0);
    TRY(write, pair.fd, bytes, 1);
}

CASE(peek_then_read)
{
    struct pair pair = connected();

    TRY(recv, pair.fd, bytes, 10, MSG_PEEK);
    PEER(write, pair.peer, "hello", 5);
    settle();
    note_bytes(TRY(recv, pair.fd, bytes, 3, MSG_PEEK));
    note_bytes(TRY(recv, pair.fd, bytes, 10, MSG_PEEK));
    note_bytes(TRY(recv, pair.fd, bytes, 2, 0));
    note_bytes(TRY(recv, pair.fd, bytes, 10, MSG_PEEK));
    note_bytes(TRY(read, pair.fd, bytes, 10));
    TRY(recv, pair.fd, bytes, 10, MSG_PEEK);
    PEER(shutdown, pair.peer, SHUT_WR);
    settle();
    TRY(recv, pair.fd, bytes, 10, MSG_PEEK);
    TRY(recv, pair.fd, bytes, 10, MSG_PEEK);
}

CASE(recv_trunc_drops_bytes)
{
    struct pair pair = connected();

    PEER(write, pair.peer, "hello", 5);
    settle();
    TRY(recv, pair.fd, NULL, 3, MSG_TRUNC);
    note_bytes(TRY(recv, pair.fd, bytes, 10, 0));
}

CASE(recv_unknown_flags)
{
    struct pair pair = connected();

    PEER(write, pair.peer, "hello", 5);
    settle();
    TRY(recv, pair.fd, bytes, 1, MSG_ERRQUEUE);
    TRY(recv, pair.fd, bytes, 1, MSG_OOB);
    TRY(recv, pair.fd, bytes, 1, MSG_NOSIGNAL);
    TRY(recv, pair.fd, bytes, 1, MSG_CMSG_CLOEXEC);
    TRY(recv, pair.fd, bytes, 1, 0x00800000);
}

CASE(recv_waitall_without_blocking)
{
    struct pair pair = connected();

    PEER(write, pair.peer, "hello", 5);
    settle();
    note_bytes(TRY(recv, pair.fd, bytes, 10, MSG_WAITALL));
    TRY(recv, pair.fd, bytes, 10, MSG_WAITALL);
}

CASE(recv_dontwait_on_a_blocking_socket)
{
    struct pair pair = connected();

    set_blocking(&me, pair.fd, true);
    TRY(recv, pair.fd, bytes, 10, MSG_DONTWAIT);
    TRY(recv, pair.fd, bytes, 10, MSG_DONTWAIT | MSG_WAITALL);
    PEER(write, pair.peer, "hello", 5);
    settle();
    note_bytes(TRY(recv, pair.fd, bytes, 10, MSG_DONTWAIT | MSG_WAITALL));
}

CASE(send_dontwait_on_a_blocking_socket)
{
    struct pair pair = connected();

    fill(&me, pair.fd);
    set_blocking(&me, pair.fd, true);
    TRY(send, pair.fd, bytes, 1, MSG_DONTWAIT);
}

CASE(send_more_is_sent_in_the_end)
{
    struct pair pair = connected();

    TRY(send, pair.fd, "a", 1, MSG_MORE);
    TRY(send, pair.fd, "b", 1, 0);
    settle();
    note_bytes(TRY_PEER(read, pair.peer, bytes, 10));
}

CASE(recvfrom_tells_nothing_of_a_stream)
{
    struct pair pair = connected();
    struct sockaddr_in from;
    socklen_t len = sizeof from;

    memset(&from, 0x55, sizeof from);
    PEER(write, pair.peer, "hello", 5);
    settle();
    TRY(recvfrom, pair.fd, bytes, 10, 0, (struct sockaddr *)&from, &len);
    note(" len=%u family=%x", (unsigned)len, from.sin_family);
    TRY(recvfrom, pair.fd, bytes, 10, 0, NULL, NULL);
}

CASE(sendto_with_an_address)
{
    struct pair pair = connected();
    struct sockaddr_in to = address_of(&peer, 1);

    TRY(sendto, pair.fd, "x", 1, 0, (struct sockaddr *)&to, sizeof to);
    TRY(sendto, pair.fd, "x", 1, 0, NULL, 0);
    TRY(sendto, pair.fd, "x", 1, 0, (struct sockaddr *)&to, 3);
    settle();
    note_bytes(TRY_PEER(read, pair.peer, bytes, 10));
}

/* Vectors. */

CASE(iovec_counts)
{
    static char one[1];
    static struct iovec many[IOV_MAX + 1];
    struct pair pair = connected();

    for (int i = 0; i <= IOV_MAX; i++)
        many[i] = (struct iovec){one, 1};
    TRY(writev, pair.fd, many, 0);
    TRY(writev, pair.fd, many, -1);
    TRY(writev, pair.fd, many, IOV_MAX + 1);
    TRY(writev, pair.fd, many, IOV_MAX);
    TRY(writev, pair.fd, many, INT_MAX);
    TRY(readv, pair.fd, many, 0);
    TRY(readv, pair.fd, many, -1);
    TRY(readv, pair.fd, many, IOV_MAX + 1);
    TRY(readv, pair.fd, many, INT_MAX);
    settle();
    TRY_PEER(readv, pair.peer, many, IOV_MAX);
}

CASE(iovec_lengths)
{
    struct pair pair = connected();
    struct iovec huge[2] = {{bytes, (size_t)SSIZE_MAX}, {bytes, (size_t)SSIZE_MAX}}, negative = {bytes, (size_t)-1};

    TRY(readv, pair.fd, &negative, 1);
    TRY(writev, pair.fd, &negative, 1);
    TRY(readv, pair.fd, huge, 2);
}

CASE(iovec_of_empty_parts)
{
    struct pair pair = connected();
    struct iovec empty[3] = {{bytes, 0}, {NULL, 0}, {bytes, 0}};

    TRY(writev, pair.fd, empty, 3);
    TRY(readv, pair.fd, empty, 3);
}

CASE(iovec_scatters_and_gathers)
{
    static char hello[] = "hello", world[] = "world";
    struct pair pair = connected();
    char a[3], b[1], c[20];
    struct iovec out[4] = {{hello, 5}, {NULL, 0}, {world, 1}, {world, 5}}, in[4] = {{a, 3}, {b, 0}, {b, 1}, {c, sizeof c}};
    long got;

    TRY(writev, pair.fd, out, 4);
    settle();
    got = TRY_PEER(readv, pair.peer, in, 4);
    note(" '%.3s' '%c' '%.*s'", a, b[0], got > 4 ? (int)got - 4 : 0, c);
}

CASE(msg_of_parts)
{
    static char hello[] = "hello ", world[] = "world";
    struct pair pair = connected();
    struct iovec out[2] = {{hello, 6}, {world, 5}}, in[2] = {{bytes, 4}, {bytes + 4, 100}};
    struct msghdr message;

    memset(&message, 0, sizeof message);
    message.msg_iov = out;
    message.msg_iovlen = 2;
    TRY(sendmsg, pair.fd, &message, 0);
    settle();
    message.msg_iov = in;
    message.msg_flags = -1;
    note_bytes(TRY_PEER(recvmsg, pair.peer, &message, MSG_PEEK));
    note(" flags=%x", (unsigned)message.msg_flags);
    note_bytes(TRY_PEER(recvmsg, pair.peer, &message, 0));
    note(" flags=%x", (unsigned)message.msg_flags);
    TRY_PEER(recvmsg, pair.peer, &message, 0);
}

CASE(msg_of_no_parts)
{
    struct pair pair = connected();
    struct msghdr message;

    memset(&message, 0, sizeof message);
    TRY(sendmsg, pair.fd, &message, 0);
    TRY(recvmsg, pair.fd, &message, 0);
    message.msg_iovlen = IOV_MAX + 1;
    TRY(sendmsg, pair.fd, &message, 0);
    TRY(recvmsg, pair.fd, &message, 0);
}

CASE(msg_with_name_and_room)
{
    struct pair pair = connected();
    struct sockaddr_in name = address_of(&peer, 9);
    struct iovec part = {bytes, 10};
    char control[64];
    struct msghdr message;

    memset(&message, 0, sizeof message);
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_name = &name;
    message.msg_namelen = sizeof name;
    TRY(sendmsg, pair.fd, &message, 0);
    PEER(write, pair.peer, "hello", 5);
    settle();
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    TRY(recvmsg, pair.fd, &message, 0);
    note(" namelen=%u controllen=%u", (unsigned)message.msg_namelen, (unsigned)message.msg_controllen);
}

/* In a large transfer, no byte is lost or duplicated. */

CASE(large_transfer)
{
    static char out[200000], in[200000];
    struct pair pair = connected();
    size_t sent = 0, got = 0;
    long end = now_ms() + 5000;

    for (size_t i = 0; i < sizeof out; i++)
        out[i] = (char)(i * 2654435761u >> 13);
    while (got < sizeof in && now_ms() < end) {
        ssize_t count = sent < sizeof out ? CALL(write, pair.fd, out + sent, sizeof out - sent) : 0;

        sent += count > 0 ? (size_t)count : 0;
        count = PEER(read, pair.peer, in + got, sizeof in - got);
        if (count > 0)
            got += (size_t)count;
        else
            pass_ms(0);
    }
    note(" sent=%zu got=%zu %s", sent, got, memcmp(in, out, sizeof in) ? "other bytes" : "same bytes");
}

/* Ends. */

CASE(shutdown_writing_then_reading)
{
    struct pair pair = connected();

    TRY(shutdown, pair.fd, SHUT_WR);
    settle();
    TRY_PEER(read, pair.peer, bytes, 1);
    TRY(write, pair.fd, "x", 1);
    TRY_PEER(write, pair.peer, "still", 5);
    settle();
    note_bytes(TRY(read, pair.fd, bytes, 10));
    TRY(shutdown, pair.fd, SHUT_RD);
    TRY(read, pair.fd, bytes, 10);
    try_poll(pair.fd);
}

CASE(shutdown_reading_then_bytes_come)
{
    struct pair pair = connected();

    TRY(shutdown, pair.fd, SHUT_RD);
    TRY(read, pair.fd, bytes, 1);
    try_poll(pair.fd);
    TRY_PEER(write, pair.peer, "late", 4);
    settle();
    note_bytes(TRY(read, pair.fd, bytes, 10));
    TRY(write, pair.fd, "x", 1);
    settle();
    TRY_PEER(read, pair.peer, bytes, 10);
}

CASE(shutdown_reading_with_bytes_waiting)
{
    struct pair pair = connected();

    PEER(write, pair.peer, "hello", 5);
    settle();
    TRY(shutdown, pair.fd, SHUT_RD);
    note_bytes(TRY(read, pair.fd, bytes, 3));
    note_bytes(TRY(read, pair.fd, bytes, 10));
    TRY(read, pair.fd, bytes, 10);
}

CASE(shutdown_both_at_once)
{
    struct pair pair = connected();

    TRY(shutdown, pair.fd, SHUT_RDWR);
    settle();
    TRY(read, pair.fd, bytes, 1);
    TRY(write, pair.fd, "x", 1);
    TRY_PEER(read, pair.peer, bytes, 1);
    try_poll(pair.fd);
    TRY_PEER(shutdown, pair.peer, SHUT_WR);
    settle();
    try_poll(pair.fd);
    TRY(shutdown, pair.fd, SHUT_RDWR);
}

CASE(shutdown_twice)
{
    struct pair pair = connected();

    TRY(shutdown, pair.fd, SHUT_WR);
    TRY(shutdown, pair.fd, SHUT_WR);
    TRY_PEER(shutdown, pair.peer, SHUT_WR);
    settle();
    TRY(shutdown, pair.fd, SHUT_WR);
    TRY(shutdown, pair.fd, SHUT_RD);
}

CASE(shutdown_simultaneous)
{
    struct pair pair = connected();

    TRY(shutdown, pair.fd, SHUT_WR);
    TRY_PEER(shutdown, pair.peer, SHUT_WR);
    settle();
    TRY(read, pair.fd, bytes, 1);
    TRY_PEER(read, pair.peer, bytes, 1);
    try_poll(pair.fd);
    TRY(getpeername, pair.fd, (struct sockaddr *)bytes, &(socklen_t){16});
}

CASE(shutdown_of_a_listener)
{
    struct sockaddr_in at;
    int fd = tcp_listener(&me, 4, &at), other = tcp_socket(&peer);

    TRY(shutdown, fd, SHUT_WR);
    try_poll(fd);
    TRY(shutdown, fd, SHUT_RD);
    try_poll(fd);
    TRY(accept, fd, NULL, NULL);
    PEER(connect, other, (struct sockaddr *)&at, sizeof at);
    await(&peer, other, POLLOUT);
    TRY_PEER(write, other, "x", 1);
    TRY(listen, fd, 4);
    try_poll(fd);
}

CASE(bytes_before_the_end_are_read)
{
    struct pair pair = connected();

    PEER(write, pair.peer, "hello", 5);
    PEER(close, pair.peer);
    settle();
    try_poll(pair.fd);
    note_bytes(TRY(read, pair.fd, bytes, 2));
    note_bytes(TRY(read, pair.fd, bytes, 10));
    TRY(read, pair.fd, bytes, 10);
    TRY(read, pair.fd, bytes, 10);
}

CASE(writing_to_who_has_closed)
{
    struct pair pair = connected();

    PEER(close, pair.peer);
    settle();
    TRY(write, pair.fd, "x", 1);
    settle();
    TRY(write, pair.fd, "x", 1);
    TRY(write, pair.fd, "x", 1);
    TRY(read, pair.fd, bytes, 1);
    try_so_error(pair.fd);
}

CASE(writing_to_who_has_closed_then_reading)
{
    struct pair pair = connected();

    PEER(close, pair.peer);
    settle();
    TRY(write, pair.fd, "x", 1);
    settle();
    try_poll(pair.fd);
    TRY(read, pair.fd, bytes, 1);
    TRY(read, pair.fd, bytes, 1);
    TRY(write, pair.fd, "x", 1);
}

CASE(closing_with_unread_bytes_resets)
{
    struct pair pair = connected();

    TRY(write, pair.fd, "unread", 6);
    settle();
    PEER(close, pair.peer);
    settle();
    try_poll(pair.fd);
    TRY(read, pair.fd, bytes, 1);
    try_so_error(pair.fd);
}

CASE(reset_while_readable)
{
    struct pair pair = connected();

    PEER(write, pair.peer, "hello", 5);
    settle();
    reset_by(&peer, pair.peer);
    try_poll(pair.fd);
    TRY(ioctl, pair.fd, FIONREAD, bytes);
    note_bytes(TRY(recv, pair.fd, bytes, 2, MSG_PEEK));
    note_bytes(TRY(read, pair.fd, bytes, 2));
    note_bytes(TRY(read, pair.fd, bytes, 10));
    TRY(read, pair.fd, bytes, 10);
    TRY(write, pair.fd, "x", 1);
    try_so_error(pair.fd);
    try_poll(pair.fd);
}

CASE(reset_then_written)
{
    struct pair pair = connected();

    reset_by(&peer, pair.peer);
    TRY(write, pair.fd, "x", 1);
    TRY(write, pair.fd, "x", 1);
    TRY(read, pair.fd, bytes, 1);
    try_so_error(pair.fd);
}

CASE(reset_then_shut_down)
{
    struct pair pair = connected();

    reset_by(&peer, pair.peer);
    TRY(shutdown, pair.fd, SHUT_WR);
    try_so_error(pair.fd);
    TRY(shutdown, pair.fd, SHUT_WR);
    TRY(getpeername, pair.fd, (struct sockaddr *)bytes, &(socklen_t){16});
}

CASE(reset_after_my_end)
{
    struct pair pair = connected();

    TRY(shutdown, pair.fd, SHUT_WR);
    settle();
    reset_by(&peer, pair.peer);
    try_poll(pair.fd);
    TRY(read, pair.fd, bytes, 1);
    try_so_error(pair.fd);
}

CASE(reset_after_the_peers_end)
{
    struct pair pair = connected();

    PEER(shutdown, pair.peer, SHUT_WR);
    settle();
    reset_by(&peer, pair.peer);
    try_poll(pair.fd);
    TRY(read, pair.fd, bytes, 1);
    TRY(write, pair.fd, "x", 1);
    try_so_error(pair.fd);
}

CASE(linger_of_nothing_resets)
{
    struct pair pair = connected();
    struct linger linger = {1, 0};

    TRY(setsockopt, pair.fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    TRY(close, pair.fd);
    settle();
    TRY_PEER(read, pair.peer, bytes, 1);
}

CASE(linger_waits_for_the_peer)
{
    struct pair pair = connected();
    struct linger linger = {1, 5};
    long began = now_ms();

    TRY(setsockopt, pair.fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    TRY(write, pair.fd, "hello", 5);
    set_blocking(&me, pair.fd, true);
    TRY(close, pair.fd);
    note(" %s", now_ms() - began < 1000 ? "soon" : "late");
    settle();
    note_bytes(TRY_PEER(read, pair.peer, bytes, 10));
    TRY_PEER(read, pair.peer, bytes, 10);
}

CASE(closing_with_unsent_bytes_sends_them)
{
    struct pair pair = connected();
    long filled = fill(&me, pair.fd);

    TRY(close, pair.fd);
    note(" %s", drain(&peer, pair.peer) == filled ? "all" : "not all");
    TRY_PEER(read, pair.peer, bytes, 1);
}

/* IPv6. */

CASE(six_conversation)
{
    struct pair pair = connected6();

    TRY(write, pair.fd, "hello", 5);
    settle();
    note_bytes(TRY_PEER(read, pair.peer, bytes, 10));
    TRY_PEER(shutdown, pair.peer, SHUT_WR);
    settle();
    TRY(read, pair.fd, bytes, 10);
    try_poll(pair.fd);
}

CASE(six_reset)
{
    struct pair pair = connected6();

    reset_by(&peer, pair.peer);
    try_poll(pair.fd);
    TRY(read, pair.fd, bytes, 1);
}

/* Counts that ioctl returns. */

CASE(ioctl_counts_what_can_be_read)
{
    struct pair pair = connected();
    int count = -1;

    TRY(ioctl, pair.fd, FIONREAD, &count);
    note(" count=%d", count);
    PEER(write, pair.peer, "hello", 5);
    settle();
    TRY(ioctl, pair.fd, FIONREAD, &count);
    note(" count=%d", count);
    CALL(read, pair.fd, bytes, 2);
    TRY(ioctl, pair.fd, FIONREAD, &count);
    note(" count=%d", count);
    PEER(shutdown, pair.peer, SHUT_WR);
    settle();
    TRY(ioctl, pair.fd, FIONREAD, &count);
    note(" count=%d", count);
}

CASE(ioctl_sets_non_blocking)
{
    struct pair pair = connected();
    int off = 0, on = 1;

    TRY(ioctl, pair.fd, FIONBIO, &off);
    note(" %x", (unsigned)CALL(fcntl, pair.fd, F_GETFL, 0) & O_NONBLOCK);
    TRY(ioctl, pair.fd, FIONBIO, &on);
    note(" %x", (unsigned)CALL(fcntl, pair.fd, F_GETFL, 0) & O_NONBLOCK);
    TRY(read, pair.fd, bytes, 1);
}
