/*
 * Socket options: round trips, lengths, refusals; SO_ERROR.
 */
#include "suite.h"

static const struct option {
    const char *name;
    int level, number;
    /* value before setting, value set, value after setting */
    int values[3];
} options[] = {
    {"SO_REUSEADDR", SOL_SOCKET, SO_REUSEADDR, {1, 0, 7}},
    {"SO_KEEPALIVE", SOL_SOCKET, SO_KEEPALIVE, {1, 0, 7}},
    {"SO_BROADCAST", SOL_SOCKET, SO_BROADCAST, {1, 0, 7}},
    {"SO_RCVLOWAT", SOL_SOCKET, SO_RCVLOWAT, {100, 0, -1}},
    {"SO_PRIORITY", SOL_SOCKET, SO_PRIORITY, {3, 0, 6}},
    {"SO_MAX_PACING_RATE", SOL_SOCKET, SO_MAX_PACING_RATE, {1000000, -1, 5}},
    {"SO_TYPE", SOL_SOCKET, SO_TYPE, {1, 2, 0}},
    {"SO_PROTOCOL", SOL_SOCKET, SO_PROTOCOL, {6, 17, 0}},
    {"SO_DOMAIN", SOL_SOCKET, SO_DOMAIN, {2, 10, 0}},
    {"SO_ACCEPTCONN", SOL_SOCKET, SO_ACCEPTCONN, {1, 0, 0}},
    {"SO_ERROR", SOL_SOCKET, SO_ERROR, {1, 0, 0}},
    {"unknown_of_the_socket", SOL_SOCKET, 9999, {1, 0, 0}},
    {"TCP_NODELAY", IPPROTO_TCP, TCP_NODELAY, {1, 0, 7}},
    {"TCP_CORK", IPPROTO_TCP, TCP_CORK, {1, 0, 7}},
    {"TCP_QUICKACK", IPPROTO_TCP, TCP_QUICKACK, {1, 1, 1}},
    {"TCP_MAXSEG", IPPROTO_TCP, TCP_MAXSEG, {1000, 10, 70000}},
    {"TCP_KEEPIDLE", IPPROTO_TCP, TCP_KEEPIDLE, {60, 0, 32768}},
    {"TCP_KEEPINTVL", IPPROTO_TCP, TCP_KEEPINTVL, {60, 0, 32768}},
    {"TCP_KEEPCNT", IPPROTO_TCP, TCP_KEEPCNT, {5, 0, 128}},
    {"TCP_SYNCNT", IPPROTO_TCP, TCP_SYNCNT, {3, 0, 128}},
    {"TCP_LINGER2", IPPROTO_TCP, TCP_LINGER2, {30, -1, 121}},
    {"TCP_DEFER_ACCEPT", IPPROTO_TCP, TCP_DEFER_ACCEPT, {3, 0, 7}},
    {"TCP_USER_TIMEOUT", IPPROTO_TCP, TCP_USER_TIMEOUT, {1000, 0, -1}},
    {"TCP_NOTSENT_LOWAT", IPPROTO_TCP, TCP_NOTSENT_LOWAT, {1000, 0, 5}},
    {"TCP_FASTOPEN", IPPROTO_TCP, TCP_FASTOPEN, {5, 0, -1}},
    {"TCP_INQ", IPPROTO_TCP, TCP_INQ, {1, 0, 2}},
    {"unknown_of_tcp", IPPROTO_TCP, 9999, {1, 0, 0}},
    {"IP_TOS", IPPROTO_IP, IP_TOS, {0x10, 0, 0xb8}},
    {"IP_TTL", IPPROTO_IP, IP_TTL, {10, 0, 256}},
    {"IP_MTU_DISCOVER", IPPROTO_IP, IP_MTU_DISCOVER, {0, 2, 99}},
    {"IP_FREEBIND", IPPROTO_IP, IP_FREEBIND, {1, 0, 7}},
    {"unknown_of_ip", IPPROTO_IP, 9999, {1, 0, 0}},
    {"IPV6_V6ONLY_of_four", IPPROTO_IPV6, IPV6_V6ONLY, {1, 0, 0}},
    {"unknown_level", 9999, 1, {1, 0, 0}},
    {"negative_level", -1, 1, {1, 0, 0}},
};

static void get(int fd, const struct option *option)
{
    int value = -1;
    socklen_t len = sizeof value;

    if (TRY(getsockopt, fd, option->level, option->number, &value, &len) == 0)
        note(":%d/%u", value, (unsigned)len);
}

static void round_trip(const void *first, const void *second)
{
    const struct option *option = first;
    const char *state = second;
    int fd = strcmp(state, "connected") == 0 ? connected().fd : tcp_socket(&me);
    /* The defaults of these are settings of the machine, and a connection's TCP_MAXSEG depends on
     * the wire. */
    bool is_default_known = option->number != TCP_SYNCNT || option->level != IPPROTO_TCP;

    if (is_default_known && !(option->level == IPPROTO_TCP && option->number == TCP_MAXSEG))
        get(fd, option);
    for (int i = 0; i < 3; i++) {
        TRY(setsockopt, fd, option->level, option->number, &option->values[i], sizeof(int));
        if (!(option->level == IPPROTO_TCP && option->number == TCP_MAXSEG))
            get(fd, option);
    }
}

/* Tries several lengths, for reading and for setting. */
static void lengths(const void *first, const void *second)
{
    const struct option *option = first;
    int fd = tcp_socket(&me);
    unsigned char value[16];

    (void)second;
    for (socklen_t room = 0; room <= 8; room++) {
        socklen_t len = room;
        int one = 1;

        memset(value, 0xee, sizeof value);
        TRY(getsockopt, fd, option->level, option->number, value, &len);
        note(":%u beyond=%x", (unsigned)len, value[room]);
        memset(value, 0, sizeof value);
        memcpy(value, &one, sizeof one);
        TRY(setsockopt, fd, option->level, option->number, value, room);
    }
    TRY(setsockopt, fd, option->level, option->number, value, (socklen_t)-1);
    TRY(getsockopt, fd, option->level, option->number, value, &(socklen_t){(socklen_t)-1});
}

#define OPTIONS (sizeof options / sizeof *options)

__attribute__((constructor)) static void add_all(void)
{
    static char names[OPTIONS][3][64];

    for (size_t i = 0; i < OPTIONS; i++) {
        snprintf(names[i][0], sizeof names[i][0], "option_%s_fresh", options[i].name);
        add_case(names[i][0], round_trip, &options[i], "fresh");
        snprintf(names[i][1], sizeof names[i][1], "option_%s_connected", options[i].name);
        add_case(names[i][1], round_trip, &options[i], "connected");
        snprintf(names[i][2], sizeof names[i][2], "option_%s_lengths", options[i].name);
        add_case(names[i][2], lengths, &options[i], NULL);
    }
}

CASE(option_null_pointers)
{
    int fd = tcp_socket(&me), value = 1;
    socklen_t len = sizeof value;

    TRY(setsockopt, fd, IPPROTO_TCP, TCP_NODELAY, NULL, sizeof value);
    TRY(getsockopt, fd, IPPROTO_TCP, TCP_NODELAY, NULL, &len);
    TRY(getsockopt, fd, IPPROTO_TCP, TCP_NODELAY, &value, NULL);
}

CASE(option_linger)
{
    struct linger linger = {1, 5};
    int fd = tcp_socket(&me);
    socklen_t len = sizeof linger;

    TRY(setsockopt, fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    memset(&linger, 0xee, sizeof linger);
    TRY(getsockopt, fd, SOL_SOCKET, SO_LINGER, &linger, &len);
    note(" %d %d/%u", linger.l_onoff, linger.l_linger, (unsigned)len);
    linger.l_onoff = 0;
    TRY(setsockopt, fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    TRY(setsockopt, fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger - 1);
    TRY(getsockopt, fd, SOL_SOCKET, SO_LINGER, &linger, &len);
    note(" %d", linger.l_onoff);
}

CASE(option_timeouts)
{
    struct timeval time = {1, 500000};
    int fd = tcp_socket(&me);
    socklen_t len = sizeof time;

    TRY(getsockopt, fd, SOL_SOCKET, SO_RCVTIMEO, &time, &len);
    note(" %ld.%06ld", (long)time.tv_sec, (long)time.tv_usec);
    time = (struct timeval){1, 500000};
    TRY(setsockopt, fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    TRY(getsockopt, fd, SOL_SOCKET, SO_RCVTIMEO, &time, &len);
    note(" %ld.%06ld", (long)time.tv_sec, (long)time.tv_usec);
    time = (struct timeval){0, 1000000};
    TRY(setsockopt, fd, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);
    time = (struct timeval){-1, 0};
    TRY(setsockopt, fd, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);
    TRY(setsockopt, fd, SOL_SOCKET, SO_SNDTIMEO, &time, 4);
    TRY(getsockopt, fd, SOL_SOCKET, SO_SNDTIMEO, &time, &len);
    note(" %ld.%06ld", (long)time.tv_sec, (long)time.tv_usec);
}

CASE(option_buffers)
{
    int fd = tcp_socket(&me), value = 100000;
    socklen_t len = sizeof value;

    TRY(setsockopt, fd, SOL_SOCKET, SO_RCVBUF, &value, sizeof value);
    TRY(getsockopt, fd, SOL_SOCKET, SO_RCVBUF, &value, &len);
    note(" %d", value);
    value = 1;
    TRY(setsockopt, fd, SOL_SOCKET, SO_SNDBUF, &value, sizeof value);
    TRY(getsockopt, fd, SOL_SOCKET, SO_SNDBUF, &value, &len);
    note(" %d", value);
}

CASE(option_congestion)
{
    char name[32] = "reno";
    int fd = tcp_socket(&me);
    socklen_t len = sizeof name;

    TRY(setsockopt, fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5);
    TRY(getsockopt, fd, IPPROTO_TCP, TCP_CONGESTION, name, &len);
    note(" %s/%u", name, (unsigned)len);
    TRY(setsockopt, fd, IPPROTO_TCP, TCP_CONGESTION, "nosuch", 6);
    TRY(setsockopt, fd, IPPROTO_TCP, TCP_CONGESTION, "", 0);
    len = 3;
    TRY(getsockopt, fd, IPPROTO_TCP, TCP_CONGESTION, name, &len);
    note(" %.3s/%u", name, (unsigned)len);
}

CASE(option_info)
{
    struct tcp_info info;
    struct pair pair = connected();
    socklen_t len = sizeof info;

    TRY(getsockopt, pair.fd, IPPROTO_TCP, TCP_INFO, &info, &len);
    note(" state=%d len=%u", info.tcpi_state, (unsigned)len);
    CALL(shutdown, pair.fd, SHUT_WR);
    settle();
    TRY(getsockopt, pair.fd, IPPROTO_TCP, TCP_INFO, &info, &len);
    note(" state=%d", info.tcpi_state == TCP_FIN_WAIT1 || info.tcpi_state == TCP_FIN_WAIT2);
    len = 1;
    TRY(getsockopt, pair.fd, IPPROTO_TCP, TCP_INFO, &info, &len);
    note(" len=%u", (unsigned)len);
}

CASE(option_error_is_told_once)
{
    struct pair pair;
    int fd = refused();

    try_so_error(fd);
    try_so_error(fd);
    pair = connected();
    reset_by(&peer, pair.peer);
    fd = pair.fd;
    try_so_error(fd);
    try_so_error(fd);
}

CASE(option_error_taken_by_poll_is_not)
{
    int fd = refused();

    try_poll(fd);
    try_poll(fd);
    try_so_error(fd);
    try_poll(fd);
}

CASE(option_lowat_delays_readiness)
{
    struct pair pair = connected();
    int lowat = 5, epoll = epoll_new();

    TRY(setsockopt, pair.fd, SOL_SOCKET, SO_RCVLOWAT, &lowat, sizeof lowat);
    epoll_add(epoll, pair.fd, EV(IN), 1);
    PEER(write, pair.peer, "123", 3);
    try_events(epoll);
    PEER(write, pair.peer, "45", 2);
    try_events(epoll);
}

CASE(option_lowat_and_the_end)
{
    struct pair pair = connected();
    int lowat = 50, epoll = epoll_new();

    TRY(setsockopt, pair.fd, SOL_SOCKET, SO_RCVLOWAT, &lowat, sizeof lowat);
    epoll_add(epoll, pair.fd, EV(IN), 1);
    PEER(write, pair.peer, "123", 3);
    try_events(epoll);
    PEER(shutdown, pair.peer, SHUT_WR);
    try_events(epoll);
}

CASE(option_six)
{
    int fd = tcp_socket6(&me), value = 1;
    socklen_t len = sizeof value;

    TRY(getsockopt, fd, IPPROTO_IPV6, IPV6_V6ONLY, &value, &len);
    note(" %d", value);
    value = 1;
    TRY(setsockopt, fd, IPPROTO_IPV6, IPV6_V6ONLY, &value, sizeof value);
    TRY(getsockopt, fd, IPPROTO_IPV6, IPV6_V6ONLY, &value, &len);
    note(" %d", value);
    value = 33;
    TRY(setsockopt, fd, IPPROTO_IPV6, IPV6_UNICAST_HOPS, &value, sizeof value);
    TRY(getsockopt, fd, IPPROTO_IPV6, IPV6_UNICAST_HOPS, &value, &len);
    note(" %d", value);
}
