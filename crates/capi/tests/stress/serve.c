/*
 * The server: sends back what it gets. Level-triggered.
 */
#include "stress.h"

#define BACKLOG 4096
#define ROOM 4096

struct echo {
    struct echo *next, *before;
    long progress_ms;
    int sockid;
    bool has_ended, is_full;
    size_t len, sent;
    char bytes[ROOM];
};

/* The connections of a worker, linked in a ring. */
struct echoes {
    struct echo head;
    long looked_ms;
};

/* Reports the first connections that have waited for long, a few at a time. */
static void look_for_the_late(struct worker *worker, struct echoes *echoes)
{
    const struct echo *echo;
    long now = now_ms();
    int count = 0;

    if (now - echoes->looked_ms < LATE_MS)
        return;
    echoes->looked_ms = now;
    for (echo = echoes->head.next; echo != &echoes->head && count < 3; echo = echo->next)
        if (now - echo->progress_ms > LATE_MS) {
            printf("late by %ld ms: full %d, to write %zu; ", now - echo->progress_ms, echo->is_full, echo->len - echo->sent);
            tell_connection(worker, echo->sockid, "server");
            count++;
        }
}

static void finish(struct worker *worker, struct echo *echo, bool is_orderly)
{
    echo->next->before = echo->before;
    echo->before->next = echo->next;
    mtcp_close(worker->mctx, echo->sockid);
    free(echo);
    worker->counts.open--;
    if (is_orderly)
        worker->counts.ended++;
    else
        worker->counts.reset++;
}

/* Moves bytes until there are none, or no room. False: the connection is gone. */
static bool move(struct worker *worker, struct echo *echo)
{
    for (;;) {
        ssize_t count;

        while (echo->sent < echo->len) {
            count = mtcp_write(worker->mctx, echo->sockid, echo->bytes + echo->sent, echo->len - echo->sent);
            if (count < 0) {
                echo->is_full = errno == EAGAIN;
                return echo->is_full;
            }
            echo->sent += (size_t)count;
            worker->counts.bytes += count;
        }
        echo->is_full = false;
        count = mtcp_read(worker->mctx, echo->sockid, echo->bytes, ROOM);
        if (count < 0)
            return errno == EAGAIN;
        echo->len = (size_t)count;
        echo->sent = 0;
        echo->has_ended = count == 0;
        if (echo->has_ended)
            return true;
    }
}

static void on_event(struct worker *worker, struct echo *echo)
{
    bool was_full = echo->is_full;

    echo->progress_ms = now_ms();
    if (!move(worker, echo) || echo->has_ended)
        finish(worker, echo, echo->has_ended);
    else if (was_full != echo->is_full)
        watch(worker, MTCP_EPOLL_CTL_MOD, echo->sockid, echo->is_full ? MTCP_EPOLLOUT : MTCP_EPOLLIN, echo);
}

static void accept_all(struct worker *worker, int listener, struct echoes *echoes)
{
    int sockid;

    while ((sockid = mtcp_accept4(worker->mctx, listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
        struct echo *echo = (struct echo *)malloc(sizeof *echo);

        if (!echo)
            fail(worker, "malloc");
        echo->sockid = sockid;
        echo->has_ended = echo->is_full = false;
        echo->len = echo->sent = 0;
        echo->progress_ms = now_ms();
        echo->next = &echoes->head;
        echo->before = echoes->head.before;
        echo->before->next = echo;
        echoes->head.before = echo;
        watch(worker, MTCP_EPOLL_CTL_ADD, sockid, MTCP_EPOLLIN, echo);
        worker->counts.open++;
        worker->counts.opened++;
    }
    if (errno != EAGAIN && errno != EMFILE && errno != ENFILE && errno != ECONNABORTED)
        fail(worker, "mtcp_accept4");
}

void *serve(void *argument)
{
    struct worker *worker = (struct worker *)argument;
    struct mtcp_epoll_event events[EVENTS_MAX];
    struct sockaddr_in at;
    struct echoes echoes;
    int listener;

    echoes.head.next = echoes.head.before = &echoes.head;
    echoes.looked_ms = now_ms();
    open_worker(worker);
    listener = mtcp_socket(worker->mctx, AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    memset(&at, 0, sizeof at);
    at.sin_family = AF_INET;
    at.sin_port = htons(PORT);
    if (mtcp_bind(worker->mctx, listener, (struct sockaddr *)&at, sizeof at) < 0 || mtcp_listen(worker->mctx, listener, BACKLOG) < 0)
        fail(worker, "mtcp_listen");
    watch(worker, MTCP_EPOLL_CTL_ADD, listener, MTCP_EPOLLIN, NULL);
    while (!is_over) {
        int count = mtcp_epoll_wait(worker->mctx, worker->epoll, events, EVENTS_MAX, -1);

        if (count < 0 && errno != EINTR)
            fail(worker, "mtcp_epoll_wait");
        note_counters(worker);
        look_for_the_late(worker, &echoes);
        for (int i = 0; i < count; i++)
            if (events[i].data.ptr)
                on_event(worker, (struct echo *)events[i].data.ptr);
            else
                accept_all(worker, listener, &echoes);
    }
    /* The epoll and the listener remain. The test has made sure that nothing else is open. */
    must_be_at_rest(worker, 2, 1);
    mtcp_destroy_context(worker->mctx);
    return NULL;
}
