/*
 * The clients. Each connection sends a stream determined by its seed, checks that it returns, and
 * ends: in order, by closing with bytes under way, by a reset, or silently when the process is
 * killed. The next connection then begins in its place. Edge-triggered.
 */
#include "stress.h"

#define PIECE_MAX 3000
#define STREAM_MAX 40000

enum ending { IN_ORDER, AT_ONCE, BY_RESET };

struct client {
    int sockid; /* -1: none */
    uint64_t seed;
    enum ending ending;
    bool is_connected, was_shut;
    size_t length; /* length of the stream; for endings that cut it, the place */
    size_t sent, received;
    long progress_ms;
};

struct crowd {
    struct worker *worker;
    struct client *clients;
    uint64_t state;
    bool is_last_round; /* all connections end in order, and no new one begins */
};

static uint64_t draw(struct crowd *crowd)
{
    crowd->state ^= crowd->state << 13;
    crowd->state ^= crowd->state >> 7;
    crowd->state ^= crowd->state << 17;
    return crowd->state;
}

/* The byte of a stream at an offset. */
static char byte_at(uint64_t seed, size_t offset)
{
    return (char)((seed + offset) * 0x9e3779b97f4a7c15ull >> 56);
}

static void begin(struct crowd *crowd, struct client *client)
{
    struct worker *worker = crowd->worker;
    uint64_t dice = draw(crowd);

    memset(client, 0, sizeof *client);
    client->seed = draw(crowd);
    client->ending = crowd->is_last_round || dice % 4 < 2 ? IN_ORDER : dice % 4 == 2 ? AT_ONCE : BY_RESET;
    client->length = 1 + (size_t)(draw(crowd) % STREAM_MAX);
    client->progress_ms = now_ms();
    client->sockid = mtcp_socket(worker->mctx, AF_INET, SOCK_STREAM, 0);
    if (client->sockid < 0)
        fail(worker, "mtcp_socket");
    mtcp_setsock_nonblock(worker->mctx, client->sockid);
    if (mtcp_connect(worker->mctx, client->sockid, (struct sockaddr *)&server, sizeof server) < 0 && errno != EINPROGRESS)
        fail(worker, "mtcp_connect");
    watch(worker, MTCP_EPOLL_CTL_ADD, client->sockid, MTCP_EPOLLIN | MTCP_EPOLLOUT | MTCP_EPOLLET, client);
    worker->counts.opened++;
    worker->counts.open++;
}

static void finish(struct crowd *crowd, struct client *client)
{
    struct worker *worker = crowd->worker;

    if (client->ending == BY_RESET) {
        mtcp_abort(worker->mctx, client->sockid);
        worker->counts.reset++;
    } else {
        mtcp_close(worker->mctx, client->sockid);
        worker->counts.ended++;
    }
    worker->counts.open--;
    client->sockid = -1;
}

/* Sends as much as there is room for. True: bytes were sent. */
static bool send_some(struct worker *worker, struct client *client)
{
    char piece[PIECE_MAX];
    bool did = false;

    while (client->sent < client->length) {
        size_t len = client->length - client->sent < PIECE_MAX ? client->length - client->sent : PIECE_MAX;
        ssize_t count;

        for (size_t i = 0; i < len; i++)
            piece[i] = byte_at(client->seed, client->sent + i);
        count = mtcp_write(worker->mctx, client->sockid, piece, len);
        if (count < 0 && errno == EAGAIN)
            return did;
        if (count < 0)
            fail(worker, "mtcp_write");
        client->sent += (size_t)count;
        did = true;
    }
    if (client->ending == IN_ORDER && !client->was_shut) {
        if (mtcp_shutdown(worker->mctx, client->sockid, SHUT_WR) < 0)
            fail(worker, "mtcp_shutdown");
        client->was_shut = true;
    }
    return did;
}

/* Reads and checks the available bytes. False: the end has come. */
static bool receive_some(struct worker *worker, struct client *client, bool *did)
{
    char bytes[8192];

    for (;;) {
        ssize_t count = mtcp_read(worker->mctx, client->sockid, bytes, sizeof bytes);

        if (count < 0 && errno == EAGAIN)
            return true;
        if (count < 0)
            fail(worker, "mtcp_read");
        if (count == 0)
            return false;
        for (ssize_t i = 0; i < count; i++)
            if (bytes[i] != byte_at(client->seed, client->received + (size_t)i))
                fail(worker, "a wrong byte");
        client->received += (size_t)count;
        worker->counts.bytes += count;
        *did = true;
    }
}

/* Advances a connection. False: it is over. */
static bool go_on(struct crowd *crowd, struct client *client)
{
    struct worker *worker = crowd->worker;
    bool did = send_some(worker, client);

    if (!receive_some(worker, client, &did)) {
        if (!client->was_shut || client->received != client->length)
            fail(worker, "the end came too early");
        return false;
    }
    if (client->received > client->length)
        fail(worker, "more came back than was sent");
    if (did)
        client->progress_ms = now_ms();
    /* Connections that do not end in order leave in the middle. */
    return client->ending == IN_ORDER || client->received < client->length / 2;
}

static void on_event(struct crowd *crowd, struct client *client, uint32_t events)
{
    struct worker *worker = crowd->worker;

    if (client->sockid < 0)
        return;
    if (events & MTCP_EPOLLERR) {
        socklen_t len = sizeof errno;

        printf("connected %d, sent %zu and received %zu of %zu, progress %ld ms ago\n", client->is_connected, client->sent, client->received, client->length, now_ms() - client->progress_ms);
        tell_connection(worker, client->sockid, "client");
        mtcp_getsockopt(worker->mctx, client->sockid, SOL_SOCKET, SO_ERROR, &errno, &len);
        fail(worker, client->is_connected ? "a connection broke" : "a connection was not made");
    }
    if (!client->is_connected && !(events & MTCP_EPOLLOUT))
        return;
    client->is_connected = true;
    if (go_on(crowd, client))
        return;
    finish(crowd, client);
    if (!crowd->is_last_round)
        begin(crowd, client);
}

static void look_for_stalls(struct crowd *crowd)
{
    long now = now_ms();

    for (int i = 0; i < connections; i++) {
        const struct client *client = &crowd->clients[i];

        if (client->sockid >= 0 && now - client->progress_ms > STALL_MS) {
            printf("connected %d, sent %zu and received %zu of %zu\n", client->is_connected, client->sent, client->received, client->length);
            tell_connection(crowd->worker, client->sockid, "client");
            fail(crowd->worker, "a connection stalls");
        }
    }
}

/* Runs until the time is over or, in the last round, until no connection is open. */
static void run(struct crowd *crowd, long until_ms)
{
    struct worker *worker = crowd->worker;
    struct mtcp_epoll_event events[EVENTS_MAX];
    long looked_ms = now_ms();

    while (crowd->is_last_round ? worker->counts.open > 0 : now_ms() < until_ms && !is_over) {
        int count = mtcp_epoll_wait(worker->mctx, worker->epoll, events, EVENTS_MAX, TICK_MS);

        if (count < 0 && errno != EINTR)
            fail(worker, "mtcp_epoll_wait");
        note_counters(worker);
        for (int i = 0; i < count; i++)
            on_event(crowd, (struct client *)events[i].data.ptr, events[i].events);
        if (now_ms() - looked_ms > TICK_MS) {
            look_for_stalls(crowd);
            looked_ms = now_ms();
        }
    }
}

void *load(void *argument)
{
    struct worker *worker = (struct worker *)argument;
    struct crowd crowd = {worker, (struct client *)calloc((size_t)connections, sizeof(struct client)), 0x9e3779b97f4a7c15ull + (uint64_t)worker->number, false};
    long until_ms = now_ms() + seconds * 1000L;

    if (!crowd.clients)
        fail(worker, "calloc");
    open_worker(worker);
    mtcp_init_rss(worker->mctx, INADDR_ANY, 1, server.sin_addr.s_addr, server.sin_port);
    for (int i = 0; i < connections; i++)
        begin(&crowd, &crowd.clients[i]);
    run(&crowd, until_ms);
    /* Open connections end, and then the full number is opened once more at the same time: leaked
     * resources would be missing now. */
    crowd.is_last_round = true;
    run(&crowd, 0);
    for (int i = 0; i < connections; i++)
        begin(&crowd, &crowd.clients[i]);
    run(&crowd, 0);
    /* The epoll remains. */
    must_be_at_rest(worker, 1, 0);
    mtcp_destroy_context(worker->mctx);
    free(crowd.clients);
    return NULL;
}
