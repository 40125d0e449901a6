/*
 * epoll: registrations, and every edge of readiness of one socket.
 */
#include "suite.h"

static char bytes[256];

/* Registrations. */

CASE(epoll_create_sizes)
{
    TRY(epoll_create, 0);
    TRY(epoll_create, -1);
    note(" one=%d", keep(&me, CALL(epoll_create, 1)) >= 0);
    TRY(epoll_create1, 1);
    note(" cloexec=%d", keep(&me, CALL(epoll_create1, EPOLL_CLOEXEC)) >= 0);
}

CASE(epoll_ctl_unknown_operation)
{
    event_t event;
    int epoll = epoll_new(), fd = tcp_socket(&me);

    memset(&event, 0, sizeof event);
    TRY(epoll_ctl, epoll, 0, fd, &event);
    TRY(epoll_ctl, epoll, 4, fd, &event);
    TRY(epoll_ctl, epoll, EPOLL_CTL_ADD, fd, &event);
    TRY(epoll_ctl, epoll, 4, fd, &event);
}

CASE(epoll_ctl_without_an_event)
{
    int epoll = epoll_new(), fd = tcp_socket(&me);

    TRY(epoll_ctl, epoll, EPOLL_CTL_ADD, fd, NULL);
    epoll_add(epoll, fd, EV(IN), 1);
    TRY(epoll_ctl, epoll, EPOLL_CTL_MOD, fd, NULL);
    TRY(epoll_ctl, epoll, EPOLL_CTL_DEL, fd, NULL);
}

CASE(epoll_ctl_of_itself)
{
    int epoll = epoll_new();

    epoll_add(epoll, epoll, EV(IN), 1);
    epoll_mod(epoll, epoll, EV(IN), 1);
    epoll_del(epoll, epoll);
}

CASE(epoll_ctl_both_descriptors_wrong)
{
    int fd = tcp_socket(&me);

    epoll_add(-1, -1, EV(IN), 1);
    epoll_add(fd, -1, EV(IN), 1);
    epoll_add(fd, fd, EV(IN), 1);
    epoll_add(-1, fd, EV(IN), 1);
}

CASE(epoll_wait_counts)
{
    event_t events[2];
    int epoll = epoll_new();

    TRY(epoll_wait, epoll, events, 0, 0);
    TRY(epoll_wait, epoll, events, -1, 0);
    TRY(epoll_wait, epoll, events, INT_MAX, 0);
    TRY(epoll_wait, epoll, events, 2, 0);
}

CASE(epoll_wait_times_out)
{
    int epoll = epoll_new();
    long began = now_ms();

    try_events_within(epoll, 30);
    note(" %s", now_ms() - began >= 29 ? "later" : "too early");
}

CASE(added_twice_and_removed_twice)
{
    struct pair pair = connected();
    int epoll = epoll_new();

    epoll_mod(epoll, pair.fd, EV(IN), 1);
    epoll_del(epoll, pair.fd);
    epoll_add(epoll, pair.fd, EV(OUT), 1);
    epoll_add(epoll, pair.fd, EV(OUT), 2);
    try_events(epoll);
    epoll_del(epoll, pair.fd);
    try_events(epoll);
    epoll_del(epoll, pair.fd);
    epoll_add(epoll, pair.fd, EV(OUT), 3);
    try_events(epoll);
}

CASE(data_has_sixty_four_bits)
{
    struct pair pair = connected();
    int epoll = epoll_new();

    epoll_add(epoll, pair.fd, EV(OUT), 0xfedcba9876543210ull);
    try_events(epoll);
    epoll_mod(epoll, pair.fd, EV(OUT), UINT64_MAX);
    try_events(epoll);
}

CASE(two_with_the_same_data)
{
    struct pair one = connected(), two = connected();
    int epoll = epoll_new();

    epoll_add(epoll, one.fd, EV(OUT), 5);
    epoll_add(epoll, two.fd, EV(OUT), 5);
    try_events(epoll);
}

CASE(no_event_asked_for)
{
    struct pair pair = connected();
    int epoll = epoll_new();

    epoll_add(epoll, pair.fd, 0, 1);
    try_events(epoll);
    PEER(write, pair.peer, "x", 1);
    try_events(epoll);
    PEER(shutdown, pair.peer, SHUT_WR);
    try_events(epoll);
    CALL(shutdown, pair.fd, SHUT_WR);
    try_events(epoll);
}

CASE(every_event_asked_for)
{
    struct pair pair = connected();
    int epoll = epoll_new();
    uint32_t all = EV(IN) | EV(OUT) | EV(PRI) | EV(RDHUP) | EV(RDNORM) | EV(WRNORM) | EV(RDBAND) | EV(WRBAND) | EV(MSG);

    epoll_add(epoll, pair.fd, all, 1);
    try_events(epoll);
    PEER(write, pair.peer, "x", 1);
    try_events(epoll);
    PEER(shutdown, pair.peer, SHUT_WR);
    try_events(epoll);
    CALL(shutdown, pair.fd, SHUT_WR);
    try_events(epoll);
}

CASE(fewer_places_than_events)
{
    struct pair one = connected(), two = connected(), three = connected();
    int epoll = epoll_new();

    epoll_add(epoll, one.fd, EV(OUT), 1);
    epoll_add(epoll, two.fd, EV(OUT), 2);
    epoll_add(epoll, three.fd, EV(OUT), 3);
    settle();
    /* Level-triggered descriptors take turns. */
    try_events_max(epoll, 1, 0);
    try_events_max(epoll, 1, 0);
    try_events_max(epoll, 1, 0);
    try_events_max(epoll, 1, 0);
    try_events_max(epoll, 2, 0);
    try_events_max(epoll, 2, 0);
}

/* A wait reports all descriptors that were ready before it: some programs count on that. */
CASE(many_ready_and_room_for_all)
{
    enum { MANY = 60 };
    event_t events[MANY * 2];
    int epoll = epoll_new();

    for (int i = 0; i < MANY; i++) {
        struct pair pair = connected();

        CALL(epoll_ctl, epoll, EPOLL_CTL_ADD, pair.fd, &(event_t){.events = EV(IN)});
        PEER(write, pair.peer, "x", 1);
    }
    settle();
    TRY(epoll_wait, epoll, events, MANY * 2, 1000);
    TRY(epoll_wait, epoll, events, MANY * 2, 0);
    TRY(epoll_wait, epoll, events, MANY / 2, 0);
}

CASE(fewer_places_than_edges)
{
    struct pair one = connected(), two = connected(), three = connected();
    int epoll = epoll_new();

    epoll_add(epoll, one.fd, EV(OUT) | EV(ET), 1);
    epoll_add(epoll, two.fd, EV(OUT) | EV(ET), 2);
    epoll_add(epoll, three.fd, EV(OUT) | EV(ET), 3);
    settle();
    try_events_max(epoll, 2, 0);
    try_events_max(epoll, 2, 0);
    try_events_max(epoll, 2, 0);
}

/* Level. */

CASE(level_readable)
{
    struct pair pair = connected();
    int epoll = epoll_new();

    epoll_add(epoll, pair.fd, EV(IN), 1);
    try_events(epoll);
    TRY_PEER(write, pair.peer, "hello", 5);
    try_events(epoll);
    try_events(epoll);
    TRY(read, pair.fd, bytes, 2);
    try_events(epoll);
    TRY(read, pair.fd, bytes, 10);
    try_events(epoll);
    TRY(read, pair.fd, bytes, 10);
    TRY_PEER(write, pair.peer, "again", 5);
    try_events(epoll);
}

CASE(level_writable)
{
    struct pair pair = connected();
    int epoll = epoll_new();

    epoll_add(epoll, pair.fd, EV(OUT), 1);
    try_events(epoll);
    note(" filled=%d", fill(&me, pair.fd) > 0);
    try_events(epoll);
    note(" drained=%d", drain(&peer, pair.peer) > 0);
    try_events(epoll);
    try_events(epoll);
}

CASE(level_both_ways)
{
    struct pair pair = connected();
    int epoll = epoll_new();

    epoll_add(epoll, pair.fd, EV(IN) | EV(OUT), 1);
    try_events(epoll);
    PEER(write, pair.peer, "x", 1);
    try_events(epoll);
    fill(&me, pair.fd);
    try_events(epoll);
    TRY(read, pair.fd, bytes, 1);
    try_events(epoll);
    drain(&peer, pair.peer);
    try_events(epoll);
}

CASE(level_peek_takes_nothing)
{
    struct pair pair = connected();
    int epoll = epoll_new();

    epoll_add(epoll, pair.fd, EV(IN), 1);
    PEER(write, pair.peer, "hello", 5);
    try_events(epoll);
    TRY(recv, pair.fd, bytes, 5, MSG_PEEK);
    try_events(epoll);
    TRY(recv, pair.fd, bytes, 5, 0);
    try_events(epoll);
}

CASE(level_ready_before_it_is_added)
{
    struct pair pair = connected();
    int epoll = epoll_new();

    PEER(write, pair.peer, "x", 1);
    settle();
    epoll_add(epoll, pair.fd, EV(IN), 1);
    try_events(epoll);
}

CASE(level_modified_to_and_fro)
{
    struct pair pair = connected();
    int epoll = epoll_new();

    PEER(write, pair.peer, "x", 1);
    epoll_add(epoll, pair.fd, EV(IN), 1);
    try_events(epoll);
    epoll_mod(epoll, pair.fd, EV(OUT), 2);
    try_events(epoll);
    epoll_mod(epoll, pair.fd, EV(IN) | EV(OUT), 3);
    try_events(epoll);
    epoll_mod(epoll, pair.fd, 0, 4);
    try_events(epoll);
    epoll_mod(epoll, pair.fd, EV(IN), 5);
    try_events(epoll);
}

CASE(level_taken_between_event_and_wait)
{
    struct pair pair = connected();
    int epoll = epoll_new();

    epoll_add(epoll, pair.fd, EV(IN), 1);
    PEER(write, pair.peer, "x", 1);
    settle();
    TRY(read, pair.fd, bytes, 1);
    try_events(epoll);
}

/* Edge. */

CASE(edge_readable)
{
    struct pair pair = connected();
    int epoll = epoll_new();

    epoll_add(epoll, pair.fd, EV(IN) | EV(ET), 1);
    try_events(epoll);
    PEER(write, pair.peer, "hello", 5);
    try_events(epoll);
    try_events(epoll);
    TRY(read, pair.fd, bytes, 2);
    try_events(epoll);
    PEER(write, pair.peer, "more", 4);
    try_events(epoll);
    try_events(epoll);
    TRY(read, pair.fd, bytes, 100);
    try_events(epoll);
    PEER(write, pair.peer, "last", 4);
    try_events(epoll);
}

CASE(edge_two_writes_are_one_event)
{
    struct pair pair = connected();
    int epoll = epoll_new();

    epoll_add(epoll, pair.fd, EV(IN) | EV(ET), 1);
    PEER(write, pair.peer, "a", 1);
    settle();
    PEER(write, pair.peer, "b", 1);
    try_events(epoll);
    try_events(epoll);
}

CASE(edge_writable)
{
    struct pair pair = connected();
    int epoll = epoll_new();

    epoll_add(epoll, pair.fd, EV(OUT) | EV(ET), 1);
    try_events(epoll);
    try_events(epoll);
    CALL(write, pair.fd, "x", 1);
    try_events(epoll);
    drain(&peer, pair.peer);
    try_events(epoll);
    fill(&me, pair.fd);
    try_events(epoll);
    drain(&peer, pair.peer);
    try_events(epoll);
    try_events(epoll);
}

CASE(edge_ready_before_it_is_added)
{
    struct pair pair = connected();
    int epoll = epoll_new();

    PEER(write, pair.peer, "x", 1);
    settle();
    epoll_add(epoll, pair.fd, EV(IN) | EV(ET), 1);
    try_events(epoll);
    try_events(epoll);
}

CASE(edge_modified_is_told_again)
{
    struct pair pair = connected();
    int epoll = epoll_new();

    PEER(write, pair.peer, "x", 1);
    epoll_add(epoll, pair.fd, EV(IN) | EV(ET), 1);
    try_events(epoll);
    try_events(epoll);
    epoll_mod(epoll, pair.fd, EV(IN) | EV(ET), 2);
    try_events(epoll);
    try_events(epoll);
    epoll_mod(epoll, pair.fd, EV(OUT) | EV(ET), 3);
    try_events(epoll);
    try_events(epoll);
    epoll_mod(epoll, pair.fd, EV(IN), 4);
    try_events(epoll);
    try_events(epoll);
}

CASE(edge_read_to_the_last_byte_without_asking_again)
{
    struct pair pair = connected();
    int epoll = epoll_new();

    epoll_add(epoll, pair.fd, EV(IN) | EV(ET), 1);
    PEER(write, pair.peer, "12345", 5);
    try_events(epoll);
    TRY(read, pair.fd, bytes, 5);
    PEER(write, pair.peer, "6", 1);
    try_events(epoll);
}

CASE(edge_both_ways)
{
    struct pair pair = connected();
    int epoll = epoll_new();

    epoll_add(epoll, pair.fd, EV(IN) | EV(OUT) | EV(ET), 1);
    try_events(epoll);
    try_events(epoll);
    PEER(write, pair.peer, "x", 1);
    try_events(epoll);
    try_events(epoll);
}

CASE(edge_the_end)
{
    struct pair pair = connected();
    int epoll = epoll_new();

    epoll_add(epoll, pair.fd, EV(IN) | EV(RDHUP) | EV(ET), 1);
    PEER(write, pair.peer, "hello", 5);
    try_events(epoll);
    PEER(shutdown, pair.peer, SHUT_WR);
    try_events(epoll);
    try_events(epoll);
    TRY(read, pair.fd, bytes, 10);
    TRY(read, pair.fd, bytes, 10);
    try_events(epoll);
}

/* Once. */

CASE(once_level)
{
    struct pair pair = connected();
    int epoll = epoll_new();

    epoll_add(epoll, pair.fd, EV(IN) | EV(ONESHOT), 1);
    try_events(epoll);
    PEER(write, pair.peer, "hello", 5);
    try_events(epoll);
    try_events(epoll);
    PEER(write, pair.peer, "more", 4);
    try_events(epoll);
    epoll_add(epoll, pair.fd, EV(IN) | EV(ONESHOT), 2);
    epoll_mod(epoll, pair.fd, EV(IN) | EV(ONESHOT), 3);
    try_events(epoll);
    try_events(epoll);
    drain(&me, pair.fd);
    epoll_mod(epoll, pair.fd, EV(IN) | EV(ONESHOT), 4);
    try_events(epoll);
    PEER(write, pair.peer, "x", 1);
    try_events(epoll);
    try_events(epoll);
}

CASE(once_edge)
{
    struct pair pair = connected();
    int epoll = epoll_new();

    epoll_add(epoll, pair.fd, EV(IN) | EV(ONESHOT) | EV(ET), 1);
    PEER(write, pair.peer, "hello", 5);
    try_events(epoll);
    PEER(write, pair.peer, "more", 4);
    try_events(epoll);
    epoll_mod(epoll, pair.fd, EV(IN) | EV(ONESHOT) | EV(ET), 2);
    try_events(epoll);
    try_events(epoll);
}

CASE(once_fired_is_silent_about_the_end)
{
    struct pair pair = connected();
    int epoll = epoll_new();

    epoll_add(epoll, pair.fd, EV(IN) | EV(ONESHOT), 1);
    PEER(write, pair.peer, "x", 1);
    try_events(epoll);
    PEER(shutdown, pair.peer, SHUT_WR);
    try_events(epoll);
    reset_by(&peer, pair.peer);
    try_events(epoll);
    epoll_mod(epoll, pair.fd, EV(IN), 2);
    try_events(epoll);
}

CASE(once_then_for_ever)
{
    struct pair pair = connected();
    int epoll = epoll_new();

    epoll_add(epoll, pair.fd, EV(OUT) | EV(ONESHOT), 1);
    try_events(epoll);
    try_events(epoll);
    epoll_mod(epoll, pair.fd, EV(OUT), 2);
    try_events(epoll);
    try_events(epoll);
}

CASE(once_asked_for_what_is_not)
{
    struct pair pair = connected();
    int epoll = epoll_new();

    fill(&me, pair.fd);
    epoll_add(epoll, pair.fd, EV(OUT) | EV(ONESHOT), 1);
    PEER(write, pair.peer, "x", 1);
    try_events(epoll);
    drain(&peer, pair.peer);
    try_events(epoll);
    try_events(epoll);
}

/* Ends. */

CASE(peer_ends_level)
{
    struct pair pair = connected();
    int epoll = epoll_new();

    epoll_add(epoll, pair.fd, EV(IN) | EV(OUT) | EV(RDHUP), 1);
    PEER(shutdown, pair.peer, SHUT_WR);
    try_events(epoll);
    TRY(read, pair.fd, bytes, 1);
    try_events(epoll);
    TRY(shutdown, pair.fd, SHUT_WR);
    try_events(epoll);
    try_poll(pair.fd);
}

CASE(peer_ends_not_asked_for)
{
    struct pair pair = connected();
    int epoll = epoll_new();

    epoll_add(epoll, pair.fd, EV(OUT), 1);
    PEER(shutdown, pair.peer, SHUT_WR);
    try_events(epoll);
    epoll_mod(epoll, pair.fd, EV(RDHUP), 2);
    try_events(epoll);
    epoll_mod(epoll, pair.fd, 0, 3);
    try_events(epoll);
}

CASE(peer_closes_level)
{
    struct pair pair = connected();
    int epoll = epoll_new();

    epoll_add(epoll, pair.fd, EV(IN) | EV(RDHUP), 1);
    PEER(close, pair.peer);
    try_events(epoll);
    TRY(write, pair.fd, "x", 1);
    try_events(epoll);
    TRY(write, pair.fd, "x", 1);
    try_so_error(pair.fd);
}

CASE(i_end_level)
{
    struct pair pair = connected();
    int epoll = epoll_new();

    epoll_add(epoll, pair.fd, EV(IN) | EV(OUT) | EV(RDHUP), 1);
    TRY(shutdown, pair.fd, SHUT_WR);
    try_events(epoll);
    TRY(shutdown, pair.fd, SHUT_RD);
    try_events(epoll);
}

CASE(i_end_edge)
{
    struct pair pair = connected();
    int epoll = epoll_new();

    epoll_add(epoll, pair.fd, EV(IN) | EV(RDHUP) | EV(ET), 1);
    try_events(epoll);
    TRY(shutdown, pair.fd, SHUT_RD);
    try_events(epoll);
    try_events(epoll);
}

CASE(peer_resets_level)
{
    struct pair pair = connected();
    int epoll = epoll_new();

    epoll_add(epoll, pair.fd, EV(IN) | EV(OUT) | EV(RDHUP), 1);
    reset_by(&peer, pair.peer);
    try_events(epoll);
    try_events(epoll);
    try_so_error(pair.fd);
    try_events(epoll);
    try_so_error(pair.fd);
    TRY(read, pair.fd, bytes, 1);
    TRY(write, pair.fd, "x", 1);
    try_events(epoll);
}

CASE(peer_resets_edge)
{
    struct pair pair = connected();
    int epoll = epoll_new();

    epoll_add(epoll, pair.fd, EV(IN) | EV(ET), 1);
    reset_by(&peer, pair.peer);
    try_events(epoll);
    try_events(epoll);
    TRY(read, pair.fd, bytes, 1);
    try_events(epoll);
}

CASE(peer_resets_not_asked_for)
{
    struct pair pair = connected();
    int epoll = epoll_new();

    epoll_add(epoll, pair.fd, 0, 1);
    reset_by(&peer, pair.peer);
    try_events(epoll);
    try_so_error(pair.fd);
    try_events(epoll);
}

CASE(peer_resets_while_readable_level)
{
    struct pair pair = connected();
    int epoll = epoll_new();

    epoll_add(epoll, pair.fd, EV(IN) | EV(RDHUP), 1);
    PEER(write, pair.peer, "hello", 5);
    try_events(epoll);
    reset_by(&peer, pair.peer);
    try_events(epoll);
    TRY(read, pair.fd, bytes, 2);
    try_events(epoll);
    TRY(read, pair.fd, bytes, 10);
    TRY(read, pair.fd, bytes, 10);
    try_events(epoll);
}

/* Sockets that are not connected, or not yet. */

CASE(fresh_socket_in_epoll)
{
    int fd = tcp_socket(&me), epoll = epoll_new();

    epoll_add(epoll, fd, EV(IN) | EV(OUT) | EV(RDHUP), 1);
    try_events(epoll);
    epoll_mod(epoll, fd, EV(IN), 2);
    try_events(epoll);
    epoll_mod(epoll, fd, 0, 3);
    try_events(epoll);
}

CASE(fresh_socket_in_epoll_then_connected)
{
    struct sockaddr_in at;
    int fd = tcp_socket(&me), epoll = epoll_new();

    tcp_listener(&peer, 8, &at);
    epoll_add(epoll, fd, EV(IN) | EV(OUT) | EV(ET), 1);
    try_events(epoll);
    TRY(connect, fd, (struct sockaddr *)&at, sizeof at);
    await(&me, fd, POLLOUT);
    try_events(epoll);
    try_events(epoll);
}

CASE(fresh_socket_in_epoll_then_listening)
{
    struct sockaddr_in at = address_of(&me, 0);
    socklen_t len = sizeof at;
    int fd = tcp_socket(&me), other = tcp_socket(&peer), epoll = epoll_new();

    epoll_add(epoll, fd, EV(IN), 1);
    try_events(epoll);
    TRY(bind, fd, (struct sockaddr *)&at, len);
    TRY(listen, fd, 4);
    try_events(epoll);
    CALL(getsockname, fd, (struct sockaddr *)&at, &len);
    PEER(connect, other, (struct sockaddr *)&at, sizeof at);
    await(&me, fd, POLLIN);
    try_events(epoll);
}

CASE(connecting_in_epoll)
{
    int fd = connecting(), epoll = epoll_new();

    epoll_add(epoll, fd, EV(IN) | EV(OUT) | EV(RDHUP), 1);
    try_events(epoll);
}

CASE(refused_in_epoll_level)
{
    int fd = refused(), epoll = epoll_new();

    epoll_add(epoll, fd, EV(IN) | EV(OUT) | EV(RDHUP), 1);
    try_events(epoll);
    try_so_error(fd);
    try_events(epoll);
}

CASE(refused_in_epoll_edge)
{
    struct sockaddr_in at = closed_port();
    int fd = tcp_socket(&me), epoll = epoll_new();

    CALL(connect, fd, (struct sockaddr *)&at, sizeof at);
    epoll_add(epoll, fd, EV(OUT) | EV(ET), 1);
    try_events(epoll);
    try_events(epoll);
    try_so_error(fd);
    try_events(epoll);
}

CASE(refused_in_epoll_once)
{
    struct sockaddr_in at = closed_port();
    int fd = tcp_socket(&me), epoll = epoll_new();

    CALL(connect, fd, (struct sockaddr *)&at, sizeof at);
    epoll_add(epoll, fd, EV(IN) | EV(ONESHOT), 1);
    try_events(epoll);
    try_events(epoll);
}

CASE(listener_level)
{
    struct sockaddr_in at;
    int fd = tcp_listener(&me, 8, &at), one = tcp_socket(&peer), two = tcp_socket(&peer), epoll = epoll_new();

    epoll_add(epoll, fd, EV(IN) | EV(OUT), 1);
    try_events(epoll);
    PEER(connect, one, (struct sockaddr *)&at, sizeof at);
    await(&me, fd, POLLIN);
    try_events(epoll);
    try_events(epoll);
    PEER(connect, two, (struct sockaddr *)&at, sizeof at);
    await(&peer, two, POLLOUT);
    settle();
    note(" accepted=%d", keep(&me, CALL(accept, fd, NULL, NULL)) >= 0);
    try_events(epoll);
    note(" accepted=%d", keep(&me, CALL(accept, fd, NULL, NULL)) >= 0);
    try_events(epoll);
    TRY(accept, fd, NULL, NULL);
}

CASE(listener_edge)
{
    struct sockaddr_in at;
    int fd = tcp_listener(&me, 8, &at), one = tcp_socket(&peer), two = tcp_socket(&peer), epoll = epoll_new();

    epoll_add(epoll, fd, EV(IN) | EV(ET), 1);
    PEER(connect, one, (struct sockaddr *)&at, sizeof at);
    await(&me, fd, POLLIN);
    try_events(epoll);
    try_events(epoll);
    PEER(connect, two, (struct sockaddr *)&at, sizeof at);
    await(&peer, two, POLLOUT);
    try_events(epoll);
    try_events(epoll);
    note(" accepted=%d", keep(&me, CALL(accept, fd, NULL, NULL)) >= 0);
    try_events(epoll);
}

CASE(listener_whose_connection_was_reset)
{
    struct sockaddr_in at;
    int fd = tcp_listener(&me, 8, &at), other = tcp_socket(&peer), epoll = epoll_new(), got;

    epoll_add(epoll, fd, EV(IN), 1);
    PEER(connect, other, (struct sockaddr *)&at, sizeof at);
    await(&me, fd, POLLIN);
    reset_by(&peer, other);
    try_events(epoll);
    got = keep(&me, CALL(accept, fd, NULL, NULL));
    note(" accepted=%d", got >= 0);
    set_blocking(&me, got, false);
    TRY(read, got, bytes, 1);
    try_events(epoll);
}
