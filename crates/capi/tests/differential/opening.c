/*
 * Sockets, names, listening, connecting, accepting.
 */
#include "suite.h"

static char byte[1];

/* socket */

static void try_socket(int domain, int type, int protocol)
{
    errno = 0;
    note(" %s", keep(&me, CALL(socket, domain, type, protocol)) >= 0 ? "made" : strerrorname_np(errno));
}

CASE(socket_of_families_and_types)
{
    try_socket(AF_INET, SOCK_STREAM, 0);
    try_socket(AF_INET, SOCK_STREAM, IPPROTO_TCP);
    try_socket(AF_INET6, SOCK_STREAM, IPPROTO_TCP);
    try_socket(AF_INET, SOCK_STREAM, IPPROTO_UDP);
    try_socket(AF_INET, SOCK_STREAM, 12345);
    try_socket(AF_INET, SOCK_STREAM, -1);
    try_socket(AF_INET, 0, 0);
    try_socket(AF_INET, 99, 0);
    try_socket(9999, SOCK_STREAM, 0);
    try_socket(-1, SOCK_STREAM, 0);
    try_socket(AF_INET, SOCK_STREAM | 0x100, 0);
}

CASE(socket_of_other_services)
{
    try_socket(AF_INET, SOCK_DGRAM, 0);
    try_socket(AF_UNIX, SOCK_STREAM, 0);
    try_socket(AF_INET, SOCK_SEQPACKET, 0);
    try_socket(AF_UNSPEC, SOCK_STREAM, 0);
}

CASE(socket_flags)
{
    int fd = keep(&me, CALL(socket, AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));

    note(" %x %d", (unsigned)CALL(fcntl, fd, F_GETFL, 0) & O_NONBLOCK, CALL(fcntl, fd, F_GETFD, 0));
    fd = keep(&me, CALL(socket, AF_INET, SOCK_STREAM, 0));
    note(" %x %d", (unsigned)CALL(fcntl, fd, F_GETFL, 0) & O_NONBLOCK, CALL(fcntl, fd, F_GETFD, 0));
}

CASE(socket_numbers_are_the_lowest_free)
{
    int one = tcp_socket(&me), two = tcp_socket(&me), three = tcp_socket(&me);

    note(" %d %d", two - one, three - two);
    TRY(close, two);
    note(" %d", tcp_socket(&me) - one);
    note(" %d", tcp_socket(&me) - one);
}

CASE(fcntl_flags)
{
    int fd = tcp_socket(&me);

    TRY(fcntl, fd, F_SETFL, 0);
    note(" %x", (unsigned)CALL(fcntl, fd, F_GETFL, 0) & (O_NONBLOCK | O_ACCMODE | O_APPEND));
    TRY(fcntl, fd, F_SETFL, O_NONBLOCK | O_RDONLY | O_CREAT);
    note(" %x", (unsigned)CALL(fcntl, fd, F_GETFL, 0) & (O_NONBLOCK | O_ACCMODE | O_APPEND));
    TRY(fcntl, fd, F_SETFD, FD_CLOEXEC);
    TRY(fcntl, fd, F_GETFD, 0);
    TRY(fcntl, fd, F_SETFD, 0);
    TRY(fcntl, fd, F_GETFD, 0);
}

/* bind */

static long bind_to(int fd, struct sockaddr_in at)
{
    return TRY(bind, fd, (struct sockaddr *)&at, sizeof at);
}

CASE(bind_lengths)
{
    struct sockaddr_in at = address_of(&me, 0);
    struct sockaddr_storage large;
    int fd = tcp_socket(&me);

    TRY(bind, fd, (struct sockaddr *)&at, 0);
    TRY(bind, fd, (struct sockaddr *)&at, 1);
    TRY(bind, fd, (struct sockaddr *)&at, sizeof at - 1);
    TRY(bind, fd, (struct sockaddr *)&at, (socklen_t)-1);
    TRY(bind, fd, (struct sockaddr *)&at, sizeof large + 1);
    memset(&large, 0, sizeof large);
    memcpy(&large, &at, sizeof at);
    TRY(bind, fd, (struct sockaddr *)&large, sizeof large);
}

CASE(bind_families)
{
    struct sockaddr_in at = address_of(&me, 0);
    int fd = tcp_socket(&me);

    at.sin_family = AF_UNIX;
    bind_to(fd, at);
    at.sin_family = AF_INET6;
    bind_to(fd, at);
    at.sin_family = AF_UNSPEC;
    bind_to(fd, at);
    fd = tcp_socket(&me);
    at.sin_addr.s_addr = htonl(INADDR_ANY);
    bind_to(fd, at);
    at.sin_family = AF_INET;
    bind_to(tcp_socket6(&me), at);
}

CASE(bind_addresses)
{
    struct sockaddr_in at = address_of(&me, 0);

    at.sin_addr.s_addr = htonl(INADDR_ANY);
    bind_to(tcp_socket(&me), at);
    at.sin_addr.s_addr = htonl(0xcb007107); /* 203.0.113.7: nobody's */
    bind_to(tcp_socket(&me), at);
    at.sin_addr.s_addr = htonl(INADDR_BROADCAST);
    bind_to(tcp_socket(&me), at);
    at.sin_addr.s_addr = htonl(0xe0000001); /* 224.0.0.1 */
    bind_to(tcp_socket(&me), at);
}

CASE(bind_twice)
{
    struct sockaddr_in at = address_of(&me, 0);
    int fd = tcp_socket(&me);

    bind_to(fd, at);
    bind_to(fd, at);
}

static struct sockaddr_in name_of(int fd)
{
    struct sockaddr_in at;
    socklen_t len = sizeof at;

    memset(&at, 0, sizeof at);
    CALL(getsockname, fd, (struct sockaddr *)&at, &len);
    return at;
}

static int reusing(void)
{
    int on = 1, fd = tcp_socket(&me);

    CALL(setsockopt, fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    return fd;
}

CASE(bind_port_in_use)
{
    struct sockaddr_in at = address_of(&me, 0), any;
    int fd = tcp_socket(&me);

    bind_to(fd, at);
    at = name_of(fd);
    bind_to(tcp_socket(&me), at);
    any = at;
    any.sin_addr.s_addr = htonl(INADDR_ANY);
    bind_to(tcp_socket(&me), any);
    bind_to(reusing(), at);
}

CASE(bind_port_in_use_both_reuse)
{
    struct sockaddr_in at = address_of(&me, 0);
    int one = reusing(), two = reusing();

    bind_to(one, at);
    at = name_of(one);
    bind_to(two, at);
    TRY(listen, one, 4);
    TRY(listen, two, 4);
    bind_to(reusing(), at);
}

CASE(bind_port_after_the_listener_closed)
{
    struct sockaddr_in at;
    int fd = tcp_listener(&me, 4, &at);

    TRY(close, fd);
    bind_to(tcp_socket(&me), at);
}

CASE(bind_port_in_time_wait)
{
    int listener;
    struct pair pair = accepted(&listener);
    struct sockaddr_in at = name_of(listener);

    TRY(close, listener);
    TRY(close, pair.fd);
    settle();
    TRY_PEER(close, pair.peer);
    settle();
    bind_to(tcp_socket(&me), at);
    bind_to(reusing(), at);
}

CASE(bind_port_of_a_connection)
{
    int listener;
    struct pair pair = accepted(&listener);
    struct sockaddr_in at = name_of(pair.fd);

    TRY(close, listener);
    bind_to(tcp_socket(&me), at);
    bind_to(reusing(), at);
}

/* getsockname and getpeername */

static void try_name(int fd)
{
    struct sockaddr_storage address;
    socklen_t len = sizeof address;

    memset(&address, 0, sizeof address);
    if (TRY(getsockname, fd, (struct sockaddr *)&address, &len) == 0)
        note_address((struct sockaddr *)&address, len);
}

CASE(name_before_and_after)
{
    struct sockaddr_in any = address_of(&me, 0), at;
    int fd = tcp_socket(&me);

    tcp_listener(&peer, 4, &at);
    try_name(fd);
    any.sin_addr.s_addr = htonl(INADDR_ANY);
    bind_to(fd, any);
    try_name(fd);
    CALL(connect, fd, (struct sockaddr *)&at, sizeof at);
    try_name(fd);
    await(&me, fd, POLLOUT);
    try_name(fd);
}

CASE(name_before_and_after_without_bind)
{
    struct sockaddr_in at;
    int fd = tcp_socket(&me);

    tcp_listener(&peer, 4, &at);
    CALL(connect, fd, (struct sockaddr *)&at, sizeof at);
    note(" port=%d", name_of(fd).sin_port != 0);
    await(&me, fd, POLLOUT);
    note(" port=%d", name_of(fd).sin_port != 0);
}

CASE(name_of_six)
{
    struct pair pair = connected6();
    struct sockaddr_in6 at;
    socklen_t len = sizeof at;

    TRY(getsockname, pair.fd, (struct sockaddr *)&at, &len);
    note(" family=%d len=%u flow=%u scope=%u", at.sin6_family, (unsigned)len, at.sin6_flowinfo, at.sin6_scope_id);
    len = sizeof at;
    TRY(getpeername, pair.fd, (struct sockaddr *)&at, &len);
    note(" family=%d len=%u flow=%u scope=%u", at.sin6_family, (unsigned)len, at.sin6_flowinfo, at.sin6_scope_id);
    try_name(tcp_socket6(&me));
}

CASE(name_of_listener_and_accepted_agree)
{
    int listener;
    struct pair pair = accepted(&listener);
    struct sockaddr_in own = name_of(listener), got = name_of(pair.fd), seen;
    socklen_t len = sizeof seen;

    note(" %s", own.sin_port == got.sin_port && own.sin_addr.s_addr == got.sin_addr.s_addr ? "same" : "other");
    PEER(getpeername, pair.peer, (struct sockaddr *)&seen, &len);
    note(" %s", own.sin_port == seen.sin_port && own.sin_addr.s_addr == seen.sin_addr.s_addr ? "same" : "other");
    try_name(listener);
    TRY(getpeername, listener, (struct sockaddr *)&seen, &len);
}

CASE(name_after_listening_without_bind)
{
    int fd = tcp_socket(&me);

    TRY(listen, fd, 4);
    try_name(fd);
}

CASE(name_lengths)
{
    struct pair pair = connected();
    unsigned char address[32];

    for (socklen_t room = 0; room <= sizeof address; room += 5) {
        socklen_t len = room;
        size_t written = sizeof address;

        memset(address, 0xee, sizeof address);
        TRY(getsockname, pair.fd, (struct sockaddr *)address, &len);
        while (written > 0 && address[written - 1] == 0xee)
            written--;
        note(" len=%u within=%d", (unsigned)len, written <= room);
    }
}

CASE(name_wrong_pointers)
{
    struct pair pair = connected();
    struct sockaddr_in at;
    socklen_t len = (socklen_t)-1;

    TRY(getsockname, pair.fd, (struct sockaddr *)&at, &len);
    TRY(getpeername, pair.fd, (struct sockaddr *)&at, &len);
    TRY(getsockname, pair.fd, (struct sockaddr *)&at, NULL);
    len = sizeof at;
    TRY(getsockname, pair.fd, NULL, &len);
    len = 0;
    TRY(getsockname, pair.fd, NULL, &len);
    note(" len=%u", (unsigned)len);
}

CASE(peername_in_every_state)
{
    struct pair pair = connected();
    struct sockaddr_in at;
    socklen_t len = sizeof at;

    TRY(getpeername, pair.fd, (struct sockaddr *)&at, &len);
    note_address((struct sockaddr *)&at, len);
    PEER(shutdown, pair.peer, SHUT_WR);
    settle();
    TRY(getpeername, pair.fd, (struct sockaddr *)&at, &len);
    CALL(shutdown, pair.fd, SHUT_WR);
    settle();
    TRY(getpeername, pair.fd, (struct sockaddr *)&at, &len);
}

/* listen */

CASE(listen_backlogs)
{
    struct sockaddr_in at = address_of(&me, 0);
    int fd = tcp_socket(&me);

    bind_to(fd, at);
    TRY(listen, fd, -1);
    TRY(listen, fd, 0);
    TRY(listen, fd, INT_MAX);
    TRY(listen, fd, 1);
}

CASE(listen_then_connect)
{
    struct sockaddr_in at, own;
    int fd = tcp_listener(&me, 4, &own);

    tcp_listener(&peer, 4, &at);
    TRY(connect, fd, (struct sockaddr *)&at, sizeof at);
    bind_to(fd, address_of(&me, 0));
}

CASE(backlog_full)
{
    struct sockaddr_in at;
    int fd = tcp_listener(&me, 1, &at), others[4], epoll = epoll_new(), made = 0;

    epoll_add(epoll, fd, EV(IN), 1);
    for (int i = 0; i < 4; i++) {
        others[i] = tcp_socket(&peer);
        PEER(connect, others[i], (struct sockaddr *)&at, sizeof at);
        settle();
    }
    for (int i = 0; i < 4; i++) {
        struct pollfd entry = {others[i], POLLOUT, 0};

        made += PEER(poll, &entry, 1, 0);
    }
    note(" connected=%d", made);
    try_events(epoll);
    note(" accepted=%d", keep(&me, CALL(accept, fd, NULL, NULL)) >= 0);
    note(" accepted=%d", keep(&me, CALL(accept, fd, NULL, NULL)) >= 0);
    TRY(accept, fd, NULL, NULL);
    try_events(epoll);
}

CASE(backlog_is_closed_with_its_listener)
{
    struct sockaddr_in at;
    int fd = tcp_listener(&me, 4, &at), other = tcp_socket(&peer);

    PEER(connect, other, (struct sockaddr *)&at, sizeof at);
    await(&peer, other, POLLOUT);
    settle();
    TRY(close, fd);
    settle();
    TRY_PEER(read, other, byte, 1);
}

/* accept */

CASE(accept_tells_the_peer)
{
    struct sockaddr_in at, from, mine;
    int fd = tcp_listener(&me, 4, &at), other = tcp_socket(&peer), got;
    socklen_t len = sizeof from;

    PEER(connect, other, (struct sockaddr *)&at, sizeof at);
    await(&me, fd, POLLIN);
    got = keep(&me, CALL(accept, fd, (struct sockaddr *)&from, &len));
    note(" len=%u family=%d", (unsigned)len, from.sin_family);
    PEER(getsockname, other, (struct sockaddr *)&mine, &len);
    note(" %s", mine.sin_port == from.sin_port && mine.sin_addr.s_addr == from.sin_addr.s_addr ? "same" : "other");
    note(" %x", (unsigned)CALL(fcntl, got, F_GETFL, 0) & O_NONBLOCK);
}

CASE(accept_into_little_room)
{
    struct sockaddr_in at;
    unsigned char from[16];
    int fd = tcp_listener(&me, 4, &at), other = tcp_socket(&peer);
    socklen_t len = 4;

    memset(from, 0xee, sizeof from);
    PEER(connect, other, (struct sockaddr *)&at, sizeof at);
    await(&me, fd, POLLIN);
    note(" %d", keep(&me, CALL(accept, fd, (struct sockaddr *)from, &len)) >= 0);
    note(" len=%u beyond=%x", (unsigned)len, from[4]);
}

CASE(accept_wrong_length)
{
    struct sockaddr_in at, from;
    int fd = tcp_listener(&me, 4, &at), other = tcp_socket(&peer);
    socklen_t len = (socklen_t)-1;

    TRY(accept, fd, (struct sockaddr *)&from, &len);
    PEER(connect, other, (struct sockaddr *)&at, sizeof at);
    await(&me, fd, POLLIN);
    TRY(accept, fd, (struct sockaddr *)&from, &len);
    TRY(accept, fd, (struct sockaddr *)&from, NULL);
    TRY(accept, fd, NULL, NULL);
}

CASE(accept4_flags)
{
    struct sockaddr_in at;
    int fd = tcp_listener(&me, 4, &at), other = tcp_socket(&peer), got;

    TRY(accept4, fd, NULL, NULL, 1);
    TRY(accept4, fd, NULL, NULL, SOCK_NONBLOCK | 0x10);
    PEER(connect, other, (struct sockaddr *)&at, sizeof at);
    await(&me, fd, POLLIN);
    got = keep(&me, CALL(accept4, fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC));
    note(" %x %d", (unsigned)CALL(fcntl, got, F_GETFL, 0) & O_NONBLOCK, CALL(fcntl, got, F_GETFD, 0));
}

CASE(accepted_inherits_options)
{
    struct sockaddr_in at;
    int fd = tcp_listener(&me, 4, &at), other = tcp_socket(&peer), got, on = 1, idle_s = 77, value = -1;
    socklen_t len = sizeof value;

    CALL(setsockopt, fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    CALL(setsockopt, fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    CALL(setsockopt, fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    PEER(connect, other, (struct sockaddr *)&at, sizeof at);
    await(&me, fd, POLLIN);
    got = keep(&me, CALL(accept, fd, NULL, NULL));
    TRY(getsockopt, got, IPPROTO_TCP, TCP_NODELAY, &value, &len);
    note(" %d", value);
    TRY(getsockopt, got, SOL_SOCKET, SO_KEEPALIVE, &value, &len);
    note(" %d", value);
    TRY(getsockopt, got, IPPROTO_TCP, TCP_KEEPIDLE, &value, &len);
    note(" %d", value);
    TRY(getsockopt, got, SOL_SOCKET, SO_ACCEPTCONN, &value, &len);
    note(" %d", value);
}

CASE(accept_after_the_peer_wrote_and_closed)
{
    struct sockaddr_in at;
    int fd = tcp_listener(&me, 4, &at), other = tcp_socket(&peer), got;
    char bytes[8];

    PEER(connect, other, (struct sockaddr *)&at, sizeof at);
    await(&peer, other, POLLOUT);
    TRY_PEER(write, other, "hello", 5);
    TRY_PEER(close, other);
    settle();
    got = keep(&me, CALL(accept, fd, NULL, NULL));
    set_blocking(&me, got, false);
    TRY(read, got, bytes, 8);
    TRY(read, got, bytes, 8);
    try_poll(got);
}

/* connect */

CASE(connect_lengths_and_families)
{
    struct sockaddr_in at;
    int fd = tcp_socket(&me);

    tcp_listener(&peer, 4, &at);
    TRY(connect, fd, (struct sockaddr *)&at, 0);
    TRY(connect, fd, (struct sockaddr *)&at, 1);
    TRY(connect, fd, (struct sockaddr *)&at, sizeof at - 1);
    TRY(connect, fd, (struct sockaddr *)&at, (socklen_t)-1);
    at.sin_family = AF_INET6;
    TRY(connect, fd, (struct sockaddr *)&at, sizeof at);
    at.sin_family = AF_UNIX;
    TRY(connect, fd, (struct sockaddr *)&at, sizeof at);
    at.sin_family = AF_UNSPEC;
    TRY(connect, fd, (struct sockaddr *)&at, sizeof at);
    try_poll(fd);
}

CASE(connect_in_progress_and_done)
{
    struct sockaddr_in at;
    int fd = tcp_socket(&me);

    tcp_listener(&peer, 4, &at);
    TRY(connect, fd, (struct sockaddr *)&at, sizeof at);
    await(&me, fd, POLLOUT);
    try_poll(fd);
    try_so_error(fd);
    TRY(connect, fd, (struct sockaddr *)&at, sizeof at);
    TRY(connect, fd, (struct sockaddr *)&at, sizeof at);
}

CASE(connect_in_progress_meanwhile)
{
    struct sockaddr_in at = address_of(&peer, 1);
    int fd = connecting();

    try_poll(fd);
    TRY(connect, fd, (struct sockaddr *)&at, sizeof at);
    TRY(read, fd, byte, 1);
    TRY(write, fd, "x", 1);
    TRY(send, fd, "x", 1, 0);
    try_so_error(fd);
    TRY(listen, fd, 4);
    TRY(accept, fd, NULL, NULL);
    TRY(getpeername, fd, (struct sockaddr *)&at, &(socklen_t){sizeof at});
    note(" bound=%d", name_of(fd).sin_port != 0);
}

CASE(connect_in_progress_shut_down)
{
    int fd = connecting();

    TRY(shutdown, fd, SHUT_WR);
    settle();
    try_poll(fd);
    try_so_error(fd);
    TRY(write, fd, "x", 1);
}

CASE(connect_in_progress_dissolved)
{
    struct sockaddr_in none;
    int fd = connecting();

    memset(&none, 0, sizeof none);
    TRY(connect, fd, (struct sockaddr *)&none, sizeof none);
    try_poll(fd);
    try_so_error(fd);
}

CASE(connect_refused)
{
    struct sockaddr_in at = closed_port();
    int fd = refused();

    try_poll(fd);
    try_so_error(fd);
    try_so_error(fd);
    try_poll(fd);
    TRY(write, fd, "x", 1);
    TRY(read, fd, byte, 1);
    TRY(connect, fd, (struct sockaddr *)&at, sizeof at);
    await(&me, fd, POLLOUT);
    try_so_error(fd);
}

CASE(connect_refused_told_by_connect)
{
    struct sockaddr_in at = closed_port();
    int fd = refused();

    TRY(connect, fd, (struct sockaddr *)&at, sizeof at);
    try_so_error(fd);
}

CASE(connect_refused_told_by_read)
{
    int fd = refused();

    TRY(read, fd, byte, 1);
    TRY(read, fd, byte, 1);
    try_so_error(fd);
}

CASE(connect_refused_told_by_write)
{
    int fd = refused();

    TRY(write, fd, "x", 1);
    TRY(write, fd, "x", 1);
    try_so_error(fd);
}

CASE(connect_refused_then_connected)
{
    struct sockaddr_in at;
    int fd = refused();

    tcp_listener(&peer, 4, &at);
    try_so_error(fd);
    TRY(connect, fd, (struct sockaddr *)&at, sizeof at);
    await(&me, fd, POLLOUT);
    try_so_error(fd);
    TRY(write, fd, "x", 1);
}

CASE(connect_timed_out)
{
    struct sockaddr_in at = silent_peer();
    int fd = tcp_socket(&me), epoll = epoll_new();
    unsigned timeout_ms = 300;

    TRY(setsockopt, fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof timeout_ms);
    TRY(connect, fd, (struct sockaddr *)&at, sizeof at);
    epoll_add(epoll, fd, EV(IN) | EV(OUT), 1);
    for (long end = now_ms() + 4000; now_ms() < end;) {
        struct pollfd entry = {fd, POLLOUT, 0};

        if (CALL(poll, &entry, 1, 0) > 0)
            break;
        pass_ms(10);
    }
    try_events(epoll);
    try_so_error(fd);
    TRY(write, fd, "x", 1);
}

CASE(connect_after_the_connection_ended)
{
    struct sockaddr_in at;
    struct pair pair = connected();

    tcp_listener(&peer, 4, &at);
    CALL(shutdown, pair.fd, SHUT_WR);
    settle();
    PEER(close, pair.peer);
    settle();
    TRY(connect, pair.fd, (struct sockaddr *)&at, sizeof at);
}

CASE(connect_from_a_bound_port)
{
    struct sockaddr_in own = address_of(&me, 0), at, seen;
    int fd = tcp_socket(&me), listener = tcp_listener(&peer, 4, &at), got;
    socklen_t len = sizeof seen;

    bind_to(fd, own);
    own = name_of(fd);
    TRY(connect, fd, (struct sockaddr *)&at, sizeof at);
    await(&peer, listener, POLLIN);
    got = keep(&peer, PEER(accept, listener, (struct sockaddr *)&seen, &len));
    note(" %d %s", got >= 0, seen.sin_port == own.sin_port ? "same" : "other");
}

CASE(connect_to_port_zero)
{
    struct sockaddr_in at = address_of(&peer, 0);
    int fd = tcp_socket(&me);

    if (CALL(connect, fd, (struct sockaddr *)&at, sizeof at) < 0 && errno == EINPROGRESS)
        await(&me, fd, POLLOUT);
    try_poll(fd);
    try_so_error(fd);
}

CASE(connect_to_multicast_and_broadcast)
{
    struct sockaddr_in at = address_of(&peer, 80);

    at.sin_addr.s_addr = htonl(INADDR_BROADCAST);
    TRY(connect, tcp_socket(&me), (struct sockaddr *)&at, sizeof at);
    at.sin_addr.s_addr = htonl(0xe0000001);
    TRY(connect, tcp_socket(&me), (struct sockaddr *)&at, sizeof at);
}

CASE(close_while_connecting)
{
    int fd = connecting();

    TRY(close, fd);
    TRY(close, fd);
}
