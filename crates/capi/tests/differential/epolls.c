/*
 * epoll: several of them, one in another, other descriptors in them, and registrations whose
 * descriptor is closed.
 */
#include "suite.h"

static char bytes[256];

CASE(two_epolls_of_one_socket)
{
    struct pair pair = connected();
    int level = epoll_new(), edge = epoll_new();

    epoll_add(level, pair.fd, EV(IN), 1);
    epoll_add(edge, pair.fd, EV(IN) | EV(ET), 2);
    PEER(write, pair.peer, "x", 1);
    try_events(level);
    try_events(edge);
    try_events(edge);
    try_events(level);
    epoll_del(level, pair.fd);
    PEER(write, pair.peer, "y", 1);
    try_events(level);
    try_events(edge);
}

CASE(two_epolls_with_other_wishes)
{
    struct pair pair = connected();
    int one = epoll_new(), two = epoll_new();

    epoll_add(one, pair.fd, EV(IN), 1);
    epoll_add(two, pair.fd, EV(OUT) | EV(ONESHOT), 2);
    try_events(one);
    try_events(two);
    try_events(two);
    PEER(write, pair.peer, "x", 1);
    try_events(one);
    try_events(two);
}

CASE(eight_epolls_of_one_socket)
{
    struct pair pair = connected();
    int epolls[8];

    for (int i = 0; i < 8; i++) {
        epolls[i] = epoll_new();
        epoll_add(epolls[i], pair.fd, EV(IN), (uint64_t)i);
    }
    PEER(write, pair.peer, "x", 1);
    for (int i = 0; i < 8; i++)
        try_events(epolls[i]);
    TRY(read, pair.fd, bytes, 1);
    for (int i = 0; i < 8; i++)
        try_events(epolls[i]);
}

CASE(epoll_closed_with_registrations)
{
    struct pair pair = connected();
    int one = epoll_new(), two = epoll_new();

    epoll_add(one, pair.fd, EV(OUT), 1);
    epoll_add(two, pair.fd, EV(OUT), 2);
    TRY(close, one);
    try_events(two);
    try_events(one);
    TRY(write, pair.fd, "x", 1);
}

/* Closing what is registered. */

CASE(registered_socket_closed)
{
    struct pair pair = connected();
    int epoll = epoll_new();

    epoll_add(epoll, pair.fd, EV(IN) | EV(OUT), 1);
    try_events(epoll);
    TRY(close, pair.fd);
    try_events(epoll);
    epoll_del(epoll, pair.fd);
    epoll_mod(epoll, pair.fd, EV(IN), 1);
}

CASE(registered_socket_closed_with_an_event_pending)
{
    struct pair pair = connected();
    int epoll = epoll_new();

    epoll_add(epoll, pair.fd, EV(IN), 1);
    PEER(write, pair.peer, "x", 1);
    settle();
    TRY(close, pair.fd);
    try_events(epoll);
}

CASE(registered_socket_closed_and_its_number_used_again)
{
    struct pair pair = connected();
    int epoll = epoll_new(), other;

    epoll_add(epoll, pair.fd, EV(IN) | EV(OUT), 1);
    TRY(close, pair.fd);
    other = tcp_socket(&me);
    note(" %s", other == pair.fd ? "same" : "other");
    try_events(epoll);
    epoll_mod(epoll, other, EV(IN), 2);
    epoll_add(epoll, other, EV(OUT), 3);
    try_events(epoll);
}

CASE(registered_listener_closed)
{
    struct sockaddr_in at;
    int fd = tcp_listener(&me, 8, &at), other = tcp_socket(&peer), epoll = epoll_new();

    epoll_add(epoll, fd, EV(IN), 1);
    PEER(connect, other, (struct sockaddr *)&at, sizeof at);
    await(&me, fd, POLLIN);
    TRY(close, fd);
    try_events(epoll);
}

/* One in another. */

CASE(nested_level)
{
    struct pair pair = connected();
    int inner = epoll_new(), outer = epoll_new();

    epoll_add(inner, pair.fd, EV(IN), 1);
    epoll_add(outer, inner, EV(IN), 2);
    try_events(outer);
    PEER(write, pair.peer, "x", 1);
    try_events(outer);
    try_events(outer);
    try_events(inner);
    TRY(read, pair.fd, bytes, 1);
    try_events(outer);
    try_events(inner);
}

CASE(nested_edge)
{
    struct pair pair = connected();
    int inner = epoll_new(), outer = epoll_new();

    epoll_add(inner, pair.fd, EV(IN), 1);
    epoll_add(outer, inner, EV(IN) | EV(ET), 2);
    PEER(write, pair.peer, "x", 1);
    try_events(outer);
    try_events(outer);
    PEER(write, pair.peer, "y", 1);
    try_events(outer);
}

CASE(nested_edge_within_level)
{
    struct pair pair = connected();
    int inner = epoll_new(), outer = epoll_new();

    epoll_add(inner, pair.fd, EV(IN) | EV(ET), 1);
    epoll_add(outer, inner, EV(IN), 2);
    PEER(write, pair.peer, "x", 1);
    try_events(outer);
    try_events(outer);
    try_events(inner);
    try_events(outer);
}

CASE(nested_once)
{
    struct pair pair = connected();
    int inner = epoll_new(), outer = epoll_new();

    epoll_add(inner, pair.fd, EV(OUT), 1);
    epoll_add(outer, inner, EV(IN) | EV(ONESHOT), 2);
    try_events(outer);
    try_events(outer);
    epoll_mod(outer, inner, EV(IN), 3);
    try_events(outer);
}

CASE(nested_never_writable)
{
    struct pair pair = connected();
    int inner = epoll_new(), outer = epoll_new();

    epoll_add(inner, pair.fd, EV(OUT), 1);
    epoll_add(outer, inner, EV(OUT), 2);
    try_events(outer);
    try_poll(inner);
    try_poll(outer);
}

CASE(nested_ready_before_it_is_added)
{
    struct pair pair = connected();
    int inner = epoll_new(), outer = epoll_new();

    epoll_add(inner, pair.fd, EV(OUT), 1);
    try_events(inner);
    epoll_add(outer, inner, EV(IN), 2);
    try_events(outer);
}

CASE(nested_in_a_circle)
{
    int one = epoll_new(), two = epoll_new();

    epoll_add(one, two, EV(IN), 1);
    epoll_add(two, one, EV(IN), 2);
    epoll_del(one, two);
    epoll_add(two, one, EV(IN), 2);
}

CASE(nested_in_a_circle_of_three)
{
    int one = epoll_new(), two = epoll_new(), three = epoll_new();

    epoll_add(one, two, EV(IN), 1);
    epoll_add(two, three, EV(IN), 2);
    epoll_add(three, one, EV(IN), 3);
}

CASE(nested_deep)
{
    struct pair pair = connected();
    int epolls[8];

    epolls[0] = epoll_new();
    epoll_add(epolls[0], pair.fd, EV(OUT), 0);
    for (int i = 1; i < 8; i++) {
        epolls[i] = epoll_new();
        epoll_add(epolls[i], epolls[i - 1], EV(IN), (uint64_t)i);
    }
    for (int i = 0; i < 5; i++)
        try_events(epolls[i]);
}

CASE(nested_inner_closed)
{
    struct pair pair = connected();
    int inner = epoll_new(), outer = epoll_new();

    epoll_add(inner, pair.fd, EV(OUT), 1);
    epoll_add(outer, inner, EV(IN), 2);
    try_events(outer);
    TRY(close, inner);
    try_events(outer);
}

CASE(nested_socket_closed)
{
    struct pair pair = connected();
    int inner = epoll_new(), outer = epoll_new();

    epoll_add(inner, pair.fd, EV(OUT), 1);
    epoll_add(outer, inner, EV(IN), 2);
    try_events(outer);
    TRY(close, pair.fd);
    try_events(outer);
    try_events(inner);
}

CASE(nested_and_direct)
{
    struct pair one = connected(), two = connected();
    int inner = epoll_new(), outer = epoll_new();

    epoll_add(inner, one.fd, EV(IN), 1);
    epoll_add(outer, inner, EV(IN), 2);
    epoll_add(outer, two.fd, EV(IN), 3);
    PEER(write, one.peer, "x", 1);
    PEER(write, two.peer, "y", 1);
    try_events(outer);
    TRY(read, two.fd, bytes, 1);
    try_events(outer);
}

CASE(two_inner_ones_of_one_outer)
{
    struct pair pair = connected();
    int left = epoll_new(), right = epoll_new(), outer = epoll_new();

    epoll_add(left, pair.fd, EV(IN), 1);
    epoll_add(right, pair.fd, EV(OUT), 2);
    epoll_add(outer, left, EV(IN), 3);
    epoll_add(outer, right, EV(IN), 4);
    try_events(outer);
    PEER(write, pair.peer, "x", 1);
    try_events(outer);
}

/* Other descriptors. */

CASE(pipe_in_epoll_level)
{
    int ends[2], epoll = epoll_new();

    TRY(pipe, ends);
    keep(&me, ends[0]);
    keep(&me, ends[1]);
    epoll_add(epoll, ends[0], EV(IN), 1);
    epoll_add(epoll, ends[1], EV(OUT), 2);
    try_events(epoll);
    TRY(write, ends[1], "hello", 5);
    try_events(epoll);
    TRY(read, ends[0], bytes, 2);
    try_events(epoll);
    TRY(read, ends[0], bytes, 10);
    try_events(epoll);
}

CASE(pipe_in_epoll_edge)
{
    int ends[2], epoll = epoll_new();

    TRY(pipe, ends);
    keep(&me, ends[0]);
    keep(&me, ends[1]);
    epoll_add(epoll, ends[0], EV(IN) | EV(ET), 1);
    TRY(write, ends[1], "a", 1);
    try_events(epoll);
    try_events(epoll);
    TRY(write, ends[1], "b", 1);
    try_events(epoll);
    try_events(epoll);
}

CASE(pipe_in_epoll_ends)
{
    int ends[2], epoll = epoll_new();

    TRY(pipe, ends);
    keep(&me, ends[0]);
    epoll_add(epoll, ends[0], EV(IN), 1);
    TRY(write, ends[1], "a", 1);
    TRY(close, ends[1]);
    try_events(epoll);
    TRY(read, ends[0], bytes, 10);
    try_events(epoll);
    TRY(read, ends[0], bytes, 10);
}

CASE(pipe_in_epoll_without_a_reader)
{
    int ends[2], epoll = epoll_new();

    TRY(pipe, ends);
    keep(&me, ends[1]);
    epoll_add(epoll, ends[1], EV(OUT), 1);
    try_events(epoll);
    TRY(close, ends[0]);
    try_events(epoll);
    TRY(write, ends[1], "a", 1);
}

CASE(eventfd_in_epoll)
{
    uint64_t value = 3;
    int fd = keep(&me, CALL(eventfd, 0, EFD_NONBLOCK)), epoll = epoll_new();

    epoll_add(epoll, fd, EV(IN), 1);
    try_events(epoll);
    TRY(write, fd, (char *)&value, sizeof value);
    try_events(epoll);
    TRY(read, fd, (char *)&value, sizeof value);
    note(" value=%d", (int)value);
    try_events(epoll);
    epoll_mod(epoll, fd, EV(OUT), 2);
    try_events(epoll);
}

CASE(eventfd_in_epoll_edge)
{
    uint64_t value = 1;
    int fd = keep(&me, CALL(eventfd, 0, EFD_NONBLOCK)), epoll = epoll_new();

    epoll_add(epoll, fd, EV(IN) | EV(ET), 1);
    TRY(write, fd, (char *)&value, sizeof value);
    try_events(epoll);
    try_events(epoll);
    TRY(write, fd, (char *)&value, sizeof value);
    try_events(epoll);
    try_events(epoll);
}

CASE(everything_in_one_epoll)
{
    struct sockaddr_in at;
    struct pair pair = connected();
    int ends[2], listener = tcp_listener(&me, 8, &at), other = tcp_socket(&peer), epoll = epoll_new(), inner = epoll_new();
    uint64_t value = 1;
    int counter = keep(&me, CALL(eventfd, 0, EFD_NONBLOCK));

    TRY(pipe, ends);
    keep(&me, ends[0]);
    keep(&me, ends[1]);
    epoll_add(epoll, pair.fd, EV(IN), 1);
    epoll_add(epoll, ends[0], EV(IN), 2);
    epoll_add(epoll, listener, EV(IN), 3);
    epoll_add(epoll, counter, EV(IN), 4);
    epoll_add(inner, pair.fd, EV(IN), 9);
    epoll_add(epoll, inner, EV(IN), 5);
    try_events(epoll);
    PEER(write, pair.peer, "x", 1);
    CALL(write, ends[1], "x", 1);
    CALL(write, counter, (char *)&value, sizeof value);
    PEER(connect, other, (struct sockaddr *)&at, sizeof at);
    await(&me, listener, POLLIN);
    try_events(epoll);
    CALL(read, pair.fd, bytes, 1);
    CALL(read, ends[0], bytes, 1);
    try_events(epoll);
}
