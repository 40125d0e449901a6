/*
 * Every call on every kind of descriptor: its value or errno.
 *
 * A case is `on_<kind>_<call>`. It makes a descriptor in that state and calls once, and once more
 * if the call succeeded, since some errors are reported once only. Then poll shows the new state.
 */
#include "suite.h"

/* Kinds. */

static int none(void)
{
    return -1;
}

static int huge_number(void)
{
    return 1 << 30;
}

/* Takes the last of many numbers, so that the case's next descriptor has a lower number. */
static int just_closed(void)
{
    int fds[16];

    for (int i = 0; i < 16; i++)
        fds[i] = tcp_socket(&me);
    for (int i = 0; i < 16; i++)
        CALL(close, fds[i]);
    return fds[15];
}

static int fresh(void)
{
    return tcp_socket(&me);
}

static int bound(void)
{
    struct sockaddr_in at = address_of(&me, 0);
    int fd = tcp_socket(&me);

    CALL(bind, fd, (struct sockaddr *)&at, sizeof at);
    return fd;
}

static int listening(void)
{
    struct sockaddr_in at;

    return tcp_listener(&me, 8, &at);
}

static int with_peer(void (*then)(struct pair *))
{
    struct pair pair = connected();

    then(&pair);
    settle();
    return pair.fd;
}

static void nothing(struct pair *pair)
{
    (void)pair;
}

static void peer_writes(struct pair *pair)
{
    PEER(write, pair->peer, "0123456789", 10);
}

static void peer_ends(struct pair *pair)
{
    PEER(shutdown, pair->peer, SHUT_WR);
}

static void i_end(struct pair *pair)
{
    CALL(shutdown, pair->fd, SHUT_WR);
}

static void both_end(struct pair *pair)
{
    i_end(pair);
    peer_ends(pair);
}

static void i_stop_reading(struct pair *pair)
{
    CALL(shutdown, pair->fd, SHUT_RD);
}

static void peer_resets(struct pair *pair)
{
    reset_by(&peer, pair->peer);
}

static void peer_resets_after_bytes(struct pair *pair)
{
    peer_writes(pair);
    settle();
    peer_resets(pair);
}

static void reset_is_known(struct pair *pair)
{
    char byte;

    peer_resets(pair);
    await(&me, pair->fd, POLLIN);
    CALL(read, pair->fd, &byte, 1);
}

static int idle(void)
{
    return with_peer(nothing);
}

static int readable(void)
{
    return with_peer(peer_writes);
}

static int half_closed_by_peer(void)
{
    return with_peer(peer_ends);
}

static int half_closed_by_me(void)
{
    return with_peer(i_end);
}

static int closed_both_ways(void)
{
    return with_peer(both_end);
}

static int shut_for_reading(void)
{
    return with_peer(i_stop_reading);
}

static int reset(void)
{
    return with_peer(peer_resets);
}

static int reset_behind_bytes(void)
{
    return with_peer(peer_resets_after_bytes);
}

static int reset_and_told(void)
{
    return with_peer(reset_is_known);
}

static int pipe_end(int end)
{
    int ends[2] = {-1, -1};

    CALL(pipe, ends);
    for (int i = 0; i < 2; i++) {
        keep(&me, ends[i]);
        set_blocking(&me, ends[i], false);
    }
    return ends[end];
}

static int pipe_for_reading(void)
{
    return pipe_end(0);
}

static int pipe_for_writing(void)
{
    return pipe_end(1);
}

static int event_counter(void)
{
    return keep(&me, CALL(eventfd, 0, EFD_NONBLOCK));
}

static const struct kind {
    const char *name;
    int (*make)(void);
} kinds[] = {
    {"none", none},
    {"huge_number", huge_number},
    {"just_closed", just_closed},
    {"fresh", fresh},
    {"bound", bound},
    {"listening", listening},
    {"connecting", connecting},
    {"refused", refused},
    {"idle", idle},
    {"readable", readable},
    {"half_closed_by_peer", half_closed_by_peer},
    {"half_closed_by_me", half_closed_by_me},
    {"closed_both_ways", closed_both_ways},
    {"shut_for_reading", shut_for_reading},
    {"reset", reset},
    {"reset_behind_bytes", reset_behind_bytes},
    {"reset_and_told", reset_and_told},
    {"epoll", epoll_new},
    {"pipe_for_reading", pipe_for_reading},
    {"pipe_for_writing", pipe_for_writing},
    {"eventfd", event_counter},
};

/* Calls. */

static char buffer[64];

static void call_bind(int fd)
{
    struct sockaddr_in at = address_of(&me, 0);

    TRY(bind, fd, (struct sockaddr *)&at, sizeof at);
}

static void call_listen(int fd)
{
    TRY(listen, fd, 4);
}

static void call_connect(int fd)
{
    struct sockaddr_in at = silent_peer();

    TRY(connect, fd, (struct sockaddr *)&at, sizeof at);
}

static void call_accept(int fd)
{
    TRY(accept, fd, NULL, NULL);
}

static void call_accept4_with_unknown_flags(int fd)
{
    TRY(accept4, fd, NULL, NULL, 0x40);
}

static void call_read(int fd)
{
    TRY(read, fd, buffer, 4);
}

static void call_read_of_nothing(int fd)
{
    TRY(read, fd, buffer, 0);
}

static void call_readv(int fd)
{
    struct iovec parts[2] = {{buffer, 2}, {buffer + 2, 2}};

    TRY(readv, fd, parts, 2);
}

static void call_recv(int fd)
{
    TRY(recv, fd, buffer, 4, 0);
}

static void call_recv_peek(int fd)
{
    TRY(recv, fd, buffer, 4, MSG_PEEK | MSG_DONTWAIT);
}

static void call_recv_of_nothing(int fd)
{
    TRY(recv, fd, buffer, 0, 0);
}

static void call_recvfrom(int fd)
{
    struct sockaddr_in from;
    socklen_t len = sizeof from;

    if (TRY(recvfrom, fd, buffer, 4, 0, (struct sockaddr *)&from, &len) >= 0)
        note(" len=%u", (unsigned)len);
}

static void call_recvmsg(int fd)
{
    struct iovec part = {buffer, 4};
    struct msghdr message;

    memset(&message, 0, sizeof message);
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (TRY(recvmsg, fd, &message, 0) >= 0)
        note(" flags=%x namelen=%u", (unsigned)message.msg_flags, (unsigned)message.msg_namelen);
}

static void call_write(int fd)
{
    TRY(write, fd, "01234567", 8);
}

static void call_write_of_nothing(int fd)
{
    TRY(write, fd, buffer, 0);
}

static void call_writev(int fd)
{
    static char bytes[8] = "abcdefg";
    struct iovec parts[2] = {{bytes, 4}, {bytes + 4, 4}};

    TRY(writev, fd, parts, 2);
}

static void call_send(int fd)
{
    TRY(send, fd, "01234567", 8, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void call_sendto(int fd)
{
    struct sockaddr_in at = address_of(&peer, 9);

    TRY(sendto, fd, "01234567", 8, MSG_NOSIGNAL, (struct sockaddr *)&at, sizeof at);
}

static void call_sendmsg(int fd)
{
    static char bytes[8] = "abcdefg";
    struct iovec part = {bytes, 8};
    struct msghdr message;

    memset(&message, 0, sizeof message);
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    TRY(sendmsg, fd, &message, MSG_NOSIGNAL);
}

static void call_shutdown_reading(int fd)
{
    TRY(shutdown, fd, SHUT_RD);
}

static void call_shutdown_writing(int fd)
{
    TRY(shutdown, fd, SHUT_WR);
}

static void call_shutdown_both(int fd)
{
    TRY(shutdown, fd, SHUT_RDWR);
}

static void call_shutdown_unknown(int fd)
{
    TRY(shutdown, fd, 7);
}

static void call_getsockname(int fd)
{
    struct sockaddr_storage address;
    socklen_t len = sizeof address;

    if (TRY(getsockname, fd, (struct sockaddr *)&address, &len) == 0)
        note_address((struct sockaddr *)&address, len);
}

static void call_getpeername(int fd)
{
    struct sockaddr_storage address;
    socklen_t len = sizeof address;

    if (TRY(getpeername, fd, (struct sockaddr *)&address, &len) == 0)
        note_address((struct sockaddr *)&address, len);
}

static void get_option(int fd, int level, int name)
{
    int value = -1;
    socklen_t len = sizeof value;

    if (TRY(getsockopt, fd, level, name, &value, &len) == 0)
        note(" value=%d", value);
}

static void call_getsockopt_error(int fd)
{
    get_option(fd, SOL_SOCKET, SO_ERROR);
}

static void call_getsockopt_type(int fd)
{
    get_option(fd, SOL_SOCKET, SO_TYPE);
}

static void call_getsockopt_acceptconn(int fd)
{
    get_option(fd, SOL_SOCKET, SO_ACCEPTCONN);
}

static void call_setsockopt(int fd)
{
    int on = 1;

    TRY(setsockopt, fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    get_option(fd, IPPROTO_TCP, TCP_NODELAY);
}

static void call_ioctl_fionread(int fd)
{
    int count = -1;

    if (TRY(ioctl, fd, FIONREAD, &count) == 0)
        note(" count=%d", count);
}

static void call_ioctl_unknown(int fd)
{
    int value = 0;

    TRY(ioctl, fd, 0x12345678, &value);
}

static void call_fcntl_getfl(int fd)
{
    int flags = CALL(fcntl, fd, F_GETFL, 0);

    if (flags < 0)
        note(" F_GETFL=-%s", strerrorname_np(errno));
    else
        note(" F_GETFL=%x", (unsigned)flags & (O_ACCMODE | O_NONBLOCK));
}

static void call_fcntl_setfl(int fd)
{
    TRY(fcntl, fd, F_SETFL, O_NONBLOCK);
    call_fcntl_getfl(fd);
}

static void call_fcntl_getfd(int fd)
{
    TRY(fcntl, fd, F_GETFD, 0);
}

static void call_fcntl_unknown(int fd)
{
    TRY(fcntl, fd, 12345, 0);
}

static void call_poll(int fd)
{
    try_poll(fd);
}

static void call_epoll_add(int fd)
{
    int epoll = epoll_new();

    epoll_add(epoll, fd, EV(IN) | EV(OUT) | EV(RDHUP), 7);
    try_events(epoll);
    epoll_add(epoll, fd, EV(IN), 7);
    epoll_mod(epoll, fd, EV(IN), 8);
    try_events(epoll);
    epoll_del(epoll, fd);
    epoll_del(epoll, fd);
}

static void call_epoll_ctl_of_it(int fd)
{
    int other = tcp_socket(&me);

    epoll_add(fd, other, EV(IN), 1);
    epoll_mod(fd, other, EV(IN), 1);
    epoll_del(fd, other);
}

static void call_epoll_wait(int fd)
{
    try_events_within(fd, 0);
}

static void call_close(int fd)
{
    TRY(close, fd);
    TRY(close, fd);
    TRY(read, fd, buffer, 1);
}

static const struct probe {
    const char *name;
    void (*call)(int);
} probes[] = {
    {"bind", call_bind},
    {"listen", call_listen},
    {"connect", call_connect},
    {"accept", call_accept},
    {"accept4_with_unknown_flags", call_accept4_with_unknown_flags},
    {"read", call_read},
    {"read_of_nothing", call_read_of_nothing},
    {"readv", call_readv},
    {"recv", call_recv},
    {"recv_peek", call_recv_peek},
    {"recv_of_nothing", call_recv_of_nothing},
    {"recvfrom", call_recvfrom},
    {"recvmsg", call_recvmsg},
    {"write", call_write},
    {"write_of_nothing", call_write_of_nothing},
    {"writev", call_writev},
    {"send", call_send},
    {"sendto", call_sendto},
    {"sendmsg", call_sendmsg},
    {"shutdown_reading", call_shutdown_reading},
    {"shutdown_writing", call_shutdown_writing},
    {"shutdown_both", call_shutdown_both},
    {"shutdown_unknown", call_shutdown_unknown},
    {"getsockname", call_getsockname},
    {"getpeername", call_getpeername},
    {"getsockopt_error", call_getsockopt_error},
    {"getsockopt_type", call_getsockopt_type},
    {"getsockopt_acceptconn", call_getsockopt_acceptconn},
    {"setsockopt", call_setsockopt},
    {"ioctl_fionread", call_ioctl_fionread},
    {"ioctl_unknown", call_ioctl_unknown},
    {"fcntl_getfl", call_fcntl_getfl},
    {"fcntl_setfl", call_fcntl_setfl},
    {"fcntl_getfd", call_fcntl_getfd},
    {"fcntl_unknown", call_fcntl_unknown},
    {"poll", call_poll},
    {"epoll_add", call_epoll_add},
    {"epoll_ctl_of_it", call_epoll_ctl_of_it},
    {"epoll_wait", call_epoll_wait},
    {"close", call_close},
};

/* Makes the call again unless the first one closed the descriptor, then notes the state. */
static void meet(const void *first, const void *second)
{
    const struct kind *kind = first;
    const struct probe *probe = second;
    int fd = kind->make();

    probe->call(fd);
    if (probe->call == call_close)
        return;
    settle();
    probe->call(fd);
    settle();
    note(" then");
    try_poll(fd);
}

#define KINDS (sizeof kinds / sizeof *kinds)
#define PROBES (sizeof probes / sizeof *probes)

__attribute__((constructor)) static void add_all(void)
{
    static char names[KINDS][PROBES][80];

    for (size_t i = 0; i < KINDS; i++)
        for (size_t j = 0; j < PROBES; j++) {
            snprintf(names[i][j], sizeof names[i][j], "on_%s_%s", kinds[i].name, probes[j].name);
            add_case(names[i][j], meet, &kinds[i], &probes[j]);
        }
}
