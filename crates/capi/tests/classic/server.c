/*
 * The server's worker, in the style of mTCP's web servers: level-triggered, without a time limit,
 * one state for each descriptor.
 */
#include "classic.h"

#define SOCKETS_MAX 700
#define SLOW_BYTES 1000

struct state {
    char asked; /* 0: nothing yet */
    size_t count;
};

static void finish(mctx_t mctx, int epoll, int sockid)
{
    MUST(mtcp_epoll_ctl(mctx, epoll, MTCP_EPOLL_CTL_DEL, sockid, NULL) == 0);
    MUST(mtcp_close(mctx, sockid) == 0);
    MUST(mtcp_close(mctx, sockid) == -1 && errno == EBADF);
}

static void accept_all(mctx_t mctx, int epoll, int listener, struct state *states)
{
    int sockid;

    while ((sockid = mtcp_accept(mctx, listener, NULL, NULL)) >= 0) {
        MUST(sockid < SOCKETS_MAX);
        memset(&states[sockid], 0, sizeof states[sockid]);
        MUST(mtcp_setsock_nonblock(mctx, sockid) == 0);
        /* Bytes that arrived before are reported, too. */
        watch(mctx, epoll, MTCP_EPOLL_CTL_ADD, sockid, MTCP_EPOLLIN);
    }
    MUST(errno == EAGAIN);
}

/* Sends as much as there is room for. */
static void send_much(mctx_t mctx, int epoll, int sockid, struct state *state)
{
    static __thread char bytes[MUCH_BYTES];
    bool was_full = false;

    if (bytes[1] == 0)
        for (size_t i = 0; i < MUCH_BYTES; i++)
            bytes[i] = much_at(i);
    while (state->count < MUCH_BYTES) {
        ssize_t sent = mtcp_write(mctx, sockid, bytes + state->count, MUCH_BYTES - state->count);

        if (sent < 0) {
            MUST(errno == EAGAIN);
            was_full = true;
            break;
        }
        MUST(sent > 0);
        state->count += (size_t)sent;
    }
    if (state->count < MUCH_BYTES) {
        MUST(was_full);
        watch(mctx, epoll, MTCP_EPOLL_CTL_MOD, sockid, MTCP_EPOLLIN | MTCP_EPOLLOUT);
    } else
        finish(mctx, epoll, sockid);
}

static void echo(mctx_t mctx, int epoll, int sockid, const char *bytes, ssize_t count)
{
    if (count == 0) {
        finish(mctx, epoll, sockid);
        return;
    }
    /* There is always room for a few bytes. */
    MUST(mtcp_write(mctx, sockid, bytes, (size_t)count) == count);
}

static void read_slowly(mctx_t mctx, int epoll, int sockid, struct state *state, ssize_t count)
{
    struct timespec pause = {0, 100000};
    uint64_t answer = state->count += (size_t)count;

    nanosleep(&pause, NULL);
    if (count > 0)
        return;
    MUST(mtcp_write(mctx, sockid, (char *)&answer, sizeof answer) == sizeof answer);
    finish(mctx, epoll, sockid);
}

static void on_readable(mctx_t mctx, int epoll, int sockid, struct state *state)
{
    char bytes[SLOW_BYTES];
    size_t room = state->asked == 0 ? 1 : sizeof bytes;
    ssize_t count = mtcp_read(mctx, sockid, bytes, room);

    /* Bytes are reported only if they exist, and read only once. */
    MUST(count >= 0);
    if (state->asked == ECHO)
        echo(mctx, epoll, sockid, bytes, count);
    else if (state->asked == SLOW)
        read_slowly(mctx, epoll, sockid, state, count);
    else if (count == 0)
        finish(mctx, epoll, sockid);
    else {
        MUST(state->asked == 0);
        state->asked = bytes[0];
        if (state->asked == MUCH)
            send_much(mctx, epoll, sockid, state);
        if (state->asked == RESET)
            MUST(mtcp_abort(mctx, sockid) == 0);
    }
}

static void on_event(mctx_t mctx, int epoll, const struct mtcp_epoll_event *event, struct state *states)
{
    int sockid = event->data.sockid;

    if (event->events & MTCP_EPOLLERR) {
        MUST(error_of(mctx, sockid) != 0);
        finish(mctx, epoll, sockid);
    } else if (event->events & MTCP_EPOLLIN)
        on_readable(mctx, epoll, sockid, &states[sockid]);
    else if (event->events & MTCP_EPOLLOUT)
        send_much(mctx, epoll, sockid, &states[sockid]);
    else
        MUST(false);
}

void *serve(void *argument)
{
    int core = *(int *)argument, epoll, listener;
    struct mtcp_epoll_event *events = (struct mtcp_epoll_event *)calloc(EVENTS_MAX, sizeof *events);
    struct state *states = (struct state *)calloc(SOCKETS_MAX, sizeof *states);
    struct sockaddr_in at;
    mctx_t mctx = begin(core, &epoll);

    MUST(events && states);
    listener = mtcp_socket(mctx, AF_INET, SOCK_STREAM, 0);
    MUST(listener >= 0 && mtcp_setsock_nonblock(mctx, listener) == 0);
    memset(&at, 0, sizeof at);
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = INADDR_ANY;
    at.sin_port = htons(PORT);
    MUST(mtcp_bind(mctx, listener, (struct sockaddr *)&at, sizeof at) == 0);
    MUST(mtcp_listen(mctx, listener, 4096) == 0);
    watch(mctx, epoll, MTCP_EPOLL_CTL_ADD, listener, MTCP_EPOLLIN);
    printf("ready\n");
    fflush(stdout);
    while (!is_done) {
        int count = mtcp_epoll_wait(mctx, epoll, events, EVENTS_MAX, -1);
        bool has_connections = false;

        if (count < 0) {
            MUST(errno == EINTR);
            continue;
        }
        MUST(count > 0);
        for (int i = 0; i < count; i++)
            if (events[i].data.sockid == listener)
                has_connections = true;
            else
                on_event(mctx, epoll, &events[i], states);
        if (has_connections)
            accept_all(mctx, epoll, listener, states);
    }
    mtcp_destroy_context(mctx);
    free(states);
    free(events);
    return NULL;
}
