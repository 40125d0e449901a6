/*
 * The starting states of cases: sockets in various states, and notes about them.
 */
#include <stdarg.h>

#include <arpa/inet.h>

#include "suite.h"

#define AWAIT_MS 2000
#define EVENTS_MAX 64

long now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000L + now.tv_nsec / 1000000;
}

/* Lets both ends run for a moment. A stack that its callers turn takes a turn. */
static void pump(void)
{
    CALL(poll, NULL, 0, 0);
    usleep(100);
}

void pass_ms(int ms)
{
    long end = now_ms() + ms;

    do
        pump();
    while (now_ms() < end);
}

void settle(void)
{
    const char *ms = getenv("SETTLE_MS");

    pass_ms(ms ? atoi(ms) : 2);
}

bool await(struct side *side, int fd, short events)
{
    struct pollfd entry = {fd, events, 0};
    long end = now_ms() + AWAIT_MS;

    do {
        if (ON(side, poll, &entry, 1, 0) > 0)
            return true;
        pump();
    } while (now_ms() < end);
    note(" (waited in vain)");
    return false;
}

struct sockaddr_in address_of(struct side *side, int port)
{
    struct sockaddr_in address;

    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_port = htons((uint16_t)port);
    address.sin_addr.s_addr = inet_addr(side->ip);
    return address;
}

static struct sockaddr_in6 address6_of(struct side *side, int port)
{
    struct sockaddr_in6 address;

    memset(&address, 0, sizeof address);
    address.sin6_family = AF_INET6;
    address.sin6_port = htons((uint16_t)port);
    inet_pton(AF_INET6, side->ip6, &address.sin6_addr);
    return address;
}

void set_blocking(struct side *side, int fd, bool blocks)
{
    int flags = ON(side, fcntl, fd, F_GETFL, 0);

    flags = blocks ? flags & ~O_NONBLOCK : flags | O_NONBLOCK;
    ON(side, fcntl, fd, F_SETFL, flags);
}

static int must(const char *what, int value)
{
    if (value < 0)
        note(" (%s: %s)", what, strerrorname_np(errno));
    return value;
}

static int new_socket(struct side *side, int family)
{
    int fd = keep(side, must("socket", ON(side, socket, family, SOCK_STREAM, 0)));

    set_blocking(side, fd, false);
    return fd;
}

int tcp_socket(struct side *side)
{
    return new_socket(side, AF_INET);
}

int tcp_socket6(struct side *side)
{
    return new_socket(side, AF_INET6);
}

static void bind_and_listen(struct side *side, int fd, int backlog, struct sockaddr *at, socklen_t len)
{
    must("bind", ON(side, bind, fd, at, len));
    must("listen", ON(side, listen, fd, backlog));
    must("getsockname", ON(side, getsockname, fd, at, &len));
}

int tcp_listener(struct side *side, int backlog, struct sockaddr_in *at)
{
    int fd = tcp_socket(side);

    *at = address_of(side, 0);
    bind_and_listen(side, fd, backlog, (struct sockaddr *)at, sizeof *at);
    return fd;
}

int tcp_listener6(struct side *side, int backlog, struct sockaddr_in6 *at)
{
    int fd = tcp_socket6(side);

    *at = address6_of(side, 0);
    bind_and_listen(side, fd, backlog, (struct sockaddr *)at, sizeof *at);
    return fd;
}

/* Connects `from` to the listener of `to`; returns the accepted socket in `there`. */
static int join(struct side *from, struct side *to, int family, const struct sockaddr *at, socklen_t len, int listener, int *there)
{
    int fd = new_socket(from, family);

    if (ON(from, connect, fd, at, len) < 0 && errno != EINPROGRESS)
        note(" (connect: %s)", strerrorname_np(errno));
    await(to, listener, POLLIN);
    *there = keep(to, must("accept", ON(to, accept, listener, NULL, NULL)));
    set_blocking(to, *there, false);
    await(from, fd, POLLOUT);
    return fd;
}

struct pair connected(void)
{
    struct sockaddr_in at;
    int listener = tcp_listener(&peer, 8, &at);
    struct pair pair;

    pair.fd = join(&me, &peer, AF_INET, (struct sockaddr *)&at, sizeof at, listener, &pair.peer);
    return pair;
}

struct pair connected6(void)
{
    struct sockaddr_in6 at;
    int listener = tcp_listener6(&peer, 8, &at);
    struct pair pair;

    pair.fd = join(&me, &peer, AF_INET6, (struct sockaddr *)&at, sizeof at, listener, &pair.peer);
    return pair;
}

struct pair accepted(int *listener)
{
    struct sockaddr_in at;
    int mine = tcp_listener(&me, 8, &at);
    struct pair pair;

    pair.peer = join(&peer, &me, AF_INET, (struct sockaddr *)&at, sizeof at, mine, &pair.fd);
    if (listener)
        *listener = mine;
    return pair;
}

static void aide_listens(void *argument)
{
    struct sockaddr_in *at = (struct sockaddr_in *)argument;

    tcp_listener(&aide, 8, at);
}

struct sockaddr_in listening_aide(void)
{
    struct sockaddr_in at;

    aide_do(aide_listens, &at);
    return at;
}

struct meeting {
    struct sockaddr_in at;
    int listener, accepted;
};

static void meeting_listens(void *argument)
{
    struct meeting *meeting = (struct meeting *)argument;

    meeting->listener = tcp_listener(&aide, 8, &meeting->at);
}

static void meeting_accepts(void *argument)
{
    struct meeting *meeting = (struct meeting *)argument;
    long end = now_ms() + AWAIT_MS;

    do {
        meeting->accepted = AIDE(accept4, meeting->listener, NULL, NULL, SOCK_NONBLOCK);
        usleep(100);
    } while (meeting->accepted < 0 && now_ms() < end);
    keep(&aide, meeting->accepted);
}

struct pair with_aide(void)
{
    struct meeting meeting;
    int fd = tcp_socket(&me);

    aide_do(meeting_listens, &meeting);
    CALL(connect, fd, (struct sockaddr *)&meeting.at, sizeof meeting.at);
    await(&me, fd, POLLOUT);
    aide_do(meeting_accepts, &meeting);
    set_blocking(&me, fd, true);
    return (struct pair){fd, meeting.accepted};
}

struct sockaddr_in silent_peer(void)
{
    struct sockaddr_in at;
    int filler;

    tcp_listener(&peer, 0, &at);
    /* A queue with a backlog of 0 has room for one connection, which is never accepted. */
    filler = tcp_socket(&me);
    CALL(connect, filler, (struct sockaddr *)&at, sizeof at);
    await(&me, filler, POLLOUT);
    settle();
    return at;
}

struct sockaddr_in closed_port(void)
{
    struct sockaddr_in at = address_of(&peer, 0);
    socklen_t len = sizeof at;
    int fd = tcp_socket(&peer);

    must("bind", PEER(bind, fd, (struct sockaddr *)&at, len));
    must("getsockname", PEER(getsockname, fd, (struct sockaddr *)&at, &len));
    return at;
}

int connecting(void)
{
    struct sockaddr_in at = silent_peer();
    int fd = tcp_socket(&me);

    if (CALL(connect, fd, (struct sockaddr *)&at, sizeof at) == 0 || errno != EINPROGRESS)
        note(" (not connecting)");
    settle();
    return fd;
}

int refused(void)
{
    struct sockaddr_in at = closed_port();
    int fd = tcp_socket(&me);

    /* The kernel's loopback answers within the call, but connect does not look for the answer. */
    if (CALL(connect, fd, (struct sockaddr *)&at, sizeof at) == 0 || errno != EINPROGRESS)
        note(" (%s at once)", strerrorname_np(errno));
    await(&me, fd, POLLOUT);
    return fd;
}

void reset_by(struct side *side, int fd)
{
    struct linger linger = {1, 0};

    must("SO_LINGER", ON(side, setsockopt, fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger));
    ON(side, close, fd);
    settle();
}

long fill(struct side *side, int fd)
{
    static char bytes[65536];
    long total = 0;
    ssize_t sent;

    /* A full buffer may have room after the first bytes were sent, so fill until it stays full. */
    for (int rounds = 0; rounds < 3; rounds++) {
        while ((sent = ON(side, write, fd, bytes, sizeof bytes)) > 0)
            total += sent;
        settle();
    }
    return total;
}

long drain(struct side *side, int fd)
{
    static char bytes[65536];
    long total = 0;
    ssize_t got;

    for (int rounds = 0; rounds < 3; rounds++) {
        while ((got = ON(side, read, fd, bytes, sizeof bytes)) > 0) {
            total += got;
            pump();
        }
        settle();
    }
    return total;
}

void try_so_error(int fd)
{
    int error = -1;
    socklen_t len = sizeof error;

    if (CALL(getsockopt, fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0)
        note(" SO_ERROR=-%s", strerrorname_np(errno));
    else
        note(" SO_ERROR:%s", error ? strerrorname_np(error) : "0");
}

/* epoll and poll have the same bits, with the same names and values. */
static void note_mask(uint32_t mask)
{
    static const struct {
        uint32_t bit;
        const char *name;
    } names[] = {
        {EPOLLIN, "IN"},     {EPOLLPRI, "PRI"},       {EPOLLOUT, "OUT"},       {EPOLLRDNORM, "RDNORM"}, {EPOLLRDBAND, "RDBAND"},
        {EPOLLWRNORM, "WRNORM"}, {EPOLLWRBAND, "WRBAND"}, {EPOLLMSG, "MSG"},     {EPOLLERR, "ERR"},       {EPOLLHUP, "HUP"},
        {EPOLLRDHUP, "RDHUP"}, {POLLNVAL, "NVAL"},
    };
    const char *between = "";

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (mask & names[i].bit) {
            note("%s%s", between, names[i].name);
            between = "|";
        }
}

void try_poll(int fd)
{
    struct pollfd entry = {fd, POLLIN | POLLOUT | POLLPRI | POLLRDHUP | POLLRDNORM | POLLWRNORM, 0};

    TRY(poll, &entry, 1, 0);
    note("(");
    note_mask((uint16_t)entry.revents);
    note(")");
}

static const char *whose(const char *ip)
{
    if (strcmp(ip, me.ip) == 0 || strcmp(ip, me.ip6) == 0)
        return "me";
    if (strcmp(ip, peer.ip) == 0 || strcmp(ip, peer.ip6) == 0)
        return "peer";
    return strcmp(ip, "0.0.0.0") == 0 || strcmp(ip, "::") == 0 ? "any" : ip;
}

void note_address(const struct sockaddr *address, socklen_t len)
{
    char ip[INET6_ADDRSTRLEN] = "?";
    uint16_t port = 0;

    if (address->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)address;

        inet_ntop(AF_INET, &in->sin_addr, ip, sizeof ip);
        port = in->sin_port;
    } else if (address->sa_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)address;

        inet_ntop(AF_INET6, &in6->sin6_addr, ip, sizeof ip);
        port = in6->sin6_port;
    }
    note(" family%d:%s:%s/%u", address->sa_family, whose(ip), port ? "port" : "0", (unsigned)len);
}

int epoll_new(void)
{
    return keep(&me, must("epoll_create1", CALL(epoll_create1, 0)));
}

static long epoll_change(const char *name, int epoll, int op, int fd, uint32_t events, uint64_t data)
{
    event_t event;

    memset(&event, 0, sizeof event);
    event.events = events;
    event.data.u64 = data;
    return said(name, (errno = 0, (long)CALL(epoll_ctl, epoll, op, fd, &event)));
}

long epoll_add(int epoll, int fd, uint32_t events, uint64_t data)
{
    return epoll_change("add", epoll, EPOLL_CTL_ADD, fd, events, data);
}

long epoll_mod(int epoll, int fd, uint32_t events, uint64_t data)
{
    return epoll_change("mod", epoll, EPOLL_CTL_MOD, fd, events, data);
}

long epoll_del(int epoll, int fd)
{
    return epoll_change("del", epoll, EPOLL_CTL_DEL, fd, 0, 0);
}

static int by_data(const void *a, const void *b)
{
    uint64_t left = DATA_OF(*(const event_t *)a), right = DATA_OF(*(const event_t *)b);

    return left < right ? -1 : left > right;
}

void try_events_max(int epoll, int max, int timeout_ms)
{
    event_t events[EVENTS_MAX];
    int count;

    errno = 0;
    count = CALL(epoll_wait, epoll, events, max, timeout_ms);
    if (count < 0) {
        note(" wait=-%s", strerrorname_np(errno));
        return;
    }
    qsort(events, (size_t)count, sizeof *events, by_data);
    note(" [");
    for (int i = 0; i < count; i++) {
        note("%s%llu:", i ? " " : "", (unsigned long long)DATA_OF(events[i]));
        note_mask(events[i].events);
    }
    note("]");
}

void try_events_within(int epoll, int timeout_ms)
{
    try_events_max(epoll, EVENTS_MAX, timeout_ms);
}

void try_events(int epoll)
{
    settle();
    try_events_within(epoll, 0);
}
