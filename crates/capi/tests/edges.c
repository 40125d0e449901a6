/*
 * Edge cases of calls in mTCP programs: any port, unused addresses, nothing to accept, a listener
 * or a context that closes while others use it.
 *
 *   edges CONFIG     io = loopback, contexts from 10.9.0.1 on
 */
#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <mtcp_api.h>
#include <mtcp_epoll.h>

#include "common/must.h"

#define PORT 80
#define PEERS 10
#define THREADS 8
#define ROUNDS 20
#define CONCURRENCY 300

/* Two contexts of this thread: one listens at 10.9.0.1, the other connects. */
static mctx_t server, client;
static int listener;

static long now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000L + now.tv_nsec / 1000000;
}

static struct sockaddr_in address(const char *ip, int port)
{
    struct sockaddr_in at;

    memset(&at, 0, sizeof at);
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = inet_addr(ip);
    at.sin_port = htons((uint16_t)port);
    return at;
}

static int new_socket(mctx_t mctx)
{
    int sockid = mtcp_socket(mctx, AF_INET, SOCK_STREAM, 0);

    MUST(sockid > 0);
    return sockid;
}

static void listen_again(void)
{
    struct sockaddr_in at = address("0.0.0.0", PORT);
    int on = 1;

    listener = new_socket(server);
    MUST(mtcp_setsockopt(server, listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0);
    MUST(mtcp_setsock_nonblock(server, listener) == 0);
    MUST(mtcp_bind(server, listener, (struct sockaddr *)&at, sizeof at) == 0);
    MUST(mtcp_listen(server, listener, 100) == 0);
}

/* Waits for an event of a socket while both stacks run. */
static int told(mctx_t mctx, int sockid, short events)
{
    struct pollfd one = {sockid, events, 0};
    long until_ms = now_ms() + 40000;

    while (mtcp_poll(mctx, &one, 1, 10) == 0)
        MUST(now_ms() < until_ms);
    return one.revents;
}

static int connected(int sockid)
{
    struct sockaddr_in to = address("10.9.0.1", PORT);

    MUST(mtcp_connect(client, sockid, (struct sockaddr *)&to, sizeof to) == 0);
    return sockid;
}

static int accepted(void)
{
    int sockid;

    MUST(told(server, listener, POLLIN) == POLLIN);
    sockid = mtcp_accept(server, listener, NULL, NULL);
    MUST(sockid > 0);
    return sockid;
}

static struct sockaddr_in own_address(int sockid)
{
    struct sockaddr_in own;
    socklen_t len = sizeof own;

    MUST(mtcp_getsockname(client, sockid, (struct sockaddr *)&own, &len) == 0 && len == sizeof own);
    return own;
}

/* Checks that a connection is open by sending a byte. */
static void meet(int sockid)
{
    char byte = 0;
    int other = (connected(sockid), accepted());

    MUST(mtcp_write(client, sockid, "x", 1) == 1);
    MUST(mtcp_read(server, other, &byte, 1) == 1 && byte == 'x');
    MUST(mtcp_close(client, sockid) == 0);
    MUST(mtcp_read(server, other, &byte, 1) == 0);
    MUST(mtcp_close(server, other) == 0);
}

/* Reads bytes in the receive buffer, on a connection that is otherwise read as usual. */
static void lent_bytes_are_read_without_a_copy(void)
{
    const void *bytes = NULL;
    char rest[8];
    int sockid = new_socket(client), other = (connected(sockid), accepted());

    MUST(mtcp_setsock_nonblock(server, other) == 0);
    MUST(mtcp_lend(server, other, &bytes) == -1 && errno == EAGAIN && bytes == NULL);
    MUST(mtcp_write(client, sockid, "lent bytes", 10) == 10);
    MUST(told(server, other, POLLIN) == POLLIN);
    MUST(mtcp_lend(server, other, NULL) == -1 && errno == EFAULT);
    MUST(mtcp_lend(server, other, &bytes) == 10 && memcmp(bytes, "lent bytes", 10) == 0);
    MUST(mtcp_consume(server, other, 11) == -1 && errno == EINVAL);
    MUST(mtcp_consume(server, other, 5) == 0);
    MUST(mtcp_read(server, other, rest, sizeof rest) == 5 && memcmp(rest, "bytes", 5) == 0);
    MUST(mtcp_close(client, sockid) == 0);
    MUST(told(server, other, POLLIN) & POLLIN);
    MUST(mtcp_lend(server, other, &bytes) == 0);
    MUST(mtcp_close(server, other) == 0);
    MUST(mtcp_lend(server, other, &bytes) == -1 && errno == EBADF);
}

static void any_port_is_a_port(void)
{
    struct sockaddr_in any = address("0.0.0.0", 0);
    int sockid = new_socket(client);

    any.sin_port = INPORT_ANY;
    MUST(mtcp_bind(client, sockid, (struct sockaddr *)&any, sizeof any) == 0);
    MUST(own_address(sockid).sin_port != 0);
    meet(sockid);
}

/* Without mtcp_init_rss, with an unspecified destination, and with a full one. */
static void addresses_are_had_without_a_pool(void)
{
    in_addr_t own = inet_addr("10.9.0.2");
    int sockid;

    meet(new_socket(client));
    MUST(mtcp_init_rss(client, INADDR_ANY, 1, 0, 0) == 0);
    meet(new_socket(client));
    MUST(mtcp_init_rss(client, own, 1, INADDR_ANY, htons(PORT)) == 0);
    meet(new_socket(client));
    MUST(mtcp_init_rss(client, own, 1, inet_addr("10.9.0.1"), htons(PORT)) == 0);
    /* A bound socket keeps its address. */
    sockid = new_socket(client);
    connected(sockid);
    MUST(own_address(sockid).sin_addr.s_addr == own && own_address(sockid).sin_port != 0);
    MUST(mtcp_close(client, sockid) == 0);
    MUST(mtcp_close(server, accepted()) == 0);
}

static void nothing_to_accept_is_eagain(void)
{
    MUST(mtcp_accept(server, listener, NULL, NULL) == -1 && errno == EAGAIN);
    MUST(mtcp_accept4(server, listener, NULL, NULL, SOCK_NONBLOCK) == -1 && errno == EAGAIN);
}

static void waits_are_as_long_as_they_are_asked_to_be(void)
{
    struct mtcp_epoll_event event = {MTCP_EPOLLIN, {NULL}};
    int epoll = mtcp_epoll_create(server, 10);
    long began_ms;

    MUST(epoll > 0 && mtcp_epoll_ctl(server, epoll, MTCP_EPOLL_CTL_ADD, listener, &event) == 0);
    began_ms = now_ms();
    /* With a sleep of 5 ms each, these calls would take 50 seconds. */
    for (int i = 0; i < 10000; i++)
        MUST(mtcp_epoll_wait(server, epoll, &event, 1, 0) == 0);
    MUST(now_ms() - began_ms < 40000);
    began_ms = now_ms();
    MUST(mtcp_epoll_wait(server, epoll, &event, 1, 60) == 0);
    MUST(now_ms() - began_ms >= 59 && now_ms() - began_ms < 40000);
    MUST(mtcp_close(server, epoll) == 0);
}

/* Connections that were not accepted are reset, later ones are refused, accepted ones stay. */
static void listener_goes_and_connections_stay(void)
{
    int kept = connected(new_socket(client)), other = accepted(), waiting = connected(new_socket(client)), late = new_socket(client), error = 0;
    struct sockaddr_in to = address("10.9.0.1", PORT);
    socklen_t len = sizeof error;
    char byte;

    MUST(told(server, listener, POLLIN) == POLLIN);
    MUST(mtcp_close(server, listener) == 0);
    MUST(told(client, waiting, POLLIN) & POLLERR);
    MUST(mtcp_read(client, waiting, &byte, 1) == -1 && errno == ECONNRESET);
    MUST(mtcp_setsock_nonblock(client, late) == 0);
    MUST(mtcp_connect(client, late, (struct sockaddr *)&to, sizeof to) == -1 && errno == EINPROGRESS);
    MUST(told(client, late, POLLOUT) & POLLERR);
    MUST(mtcp_getsockopt(client, late, SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error == ECONNREFUSED);
    MUST(mtcp_write(server, other, "y", 1) == 1 && mtcp_read(client, kept, &byte, 1) == 1 && byte == 'y');
    MUST(mtcp_close(client, waiting) == 0 && mtcp_close(client, late) == 0 && mtcp_close(client, kept) == 0 && mtcp_close(server, other) == 0);
    listen_again();
    meet(new_socket(client));
}

/* A context that is destroyed resets its connections, and its number is free again. */
static void context_goes_with_its_sockets(void)
{
    int sockids[PEERS];

    for (int i = 0; i < PEERS; i++) {
        sockids[i] = connected(new_socket(client));
        MUST(mtcp_write(client, sockids[i], "unread", 6) == 6);
        /* The last connections stay in the queue. */
        if (i < PEERS / 2)
            accepted();
    }
    /* Let handshakes complete: without the context there would be no answer to a half-open one. */
    MUST(mtcp_poll(server, NULL, 0, 100) == 0);
    mtcp_destroy_context(server);
    for (int i = 0; i < PEERS; i++) {
        char byte;
        ssize_t count;

        MUST(told(client, sockids[i], POLLIN) & POLLIN);
        count = mtcp_read(client, sockids[i], &byte, 1);
        MUST(count == 0 || (count == -1 && errno == ECONNRESET));
        MUST(mtcp_close(client, sockids[i]) == 0);
    }
    MUST(mtcp_socket(server, AF_INET, SOCK_STREAM, 0) == -1 && errno == EINVAL);
    server = mtcp_create_context(0);
    MUST(server != NULL);
    listen_again();
    meet(new_socket(client));
}

static int is_child;

#ifdef __cplusplus
extern "C"
#endif
/* Turns the leak sanitizer off in children, where it would miss memory of the parent's threads. */
int __lsan_is_turned_off(void)
{
    return is_child;
}

/* A child of fork does not have the parent's contexts, and its end does not close them. It can make
 * contexts of its own. */
static void child_leaves_contexts_to_its_parent(void)
{
    int mine = connected(new_socket(client)), other = accepted(), status = 0;
    char byte = 0;
    pid_t child = fork();

    MUST(child >= 0);
    if (child == 0) {
        mctx_t own;

        is_child = 1;
        MUST(mtcp_write(client, mine, "c", 1) == -1 && errno == EINVAL);
        MUST(mtcp_close(server, other) == -1 && errno == EINVAL);
        mtcp_destroy_context(client);
        own = mtcp_create_context(1);
        MUST(own != NULL && new_socket(own) == 1 && mtcp_poll(own, NULL, 0, 20) == 0);
        exit(7);
    }
    MUST(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    MUST(mtcp_write(client, mine, "x", 1) == 1 && mtcp_read(server, other, &byte, 1) == 1 && byte == 'x');
    MUST(mtcp_write(server, other, "y", 1) == 1 && mtcp_read(client, mine, &byte, 1) == 1 && byte == 'y');
    MUST(mtcp_close(client, mine) == 0 && mtcp_close(server, other) == 0);
    meet(new_socket(client));
}

/* There are max_concurrency descriptors. The lowest comes first, but 0 last: some programs take 0
 * for "none", and have arrays of that length. */
static void descriptors_are_as_many_as_was_asked_for(void)
{
    mctx_t mctx = mtcp_create_context(2);

    MUST(mctx != NULL);
    for (int i = 1; i < CONCURRENCY; i++)
        MUST(mtcp_socket(mctx, AF_INET, SOCK_STREAM, 0) == i);
    MUST(mtcp_epoll_create(mctx, 1) == 0);
    MUST(mtcp_socket(mctx, AF_INET, SOCK_STREAM, 0) == -1 && errno == EMFILE);
    MUST(mtcp_close(mctx, 0) == 0 && mtcp_close(mctx, 7) == 0);
    MUST(mtcp_socket(mctx, AF_INET, SOCK_STREAM, 0) == 7 && mtcp_socket(mctx, AF_INET, SOCK_STREAM, 0) == 0);
    mtcp_destroy_context(mctx);
}

static void on_signal(int signum)
{
    (void)signum;
}

/* A signal interrupts a current wait, or the next wait of existing contexts, but not of later
 * ones. */
static void signal_is_not_left_to_the_next_context(void)
{
    mctx_t mctx = mtcp_create_context(2);

    MUST(mctx != NULL && mtcp_register_signal(SIGUSR1, on_signal) != SIG_ERR);
    MUST(mtcp_poll(mctx, NULL, 0, 20) == 0 && raise(SIGUSR1) == 0);
    MUST(mtcp_poll(mctx, NULL, 0, 20) == -1 && errno == EINTR);
    MUST(mtcp_poll(mctx, NULL, 0, 20) == 0 && raise(SIGUSR1) == 0);
    mtcp_destroy_context(mctx);
    mctx = mtcp_create_context(2);
    MUST(mctx != NULL && mtcp_poll(mctx, NULL, 0, 20) == 0);
    mtcp_destroy_context(mctx);
}

/* stat_print: at most one line per second and context, about counters that moved. edges.rs reads
 * it. */
static void statistics_are_printed(void)
{
    MUST(mtcp_poll(client, NULL, 0, 1100) == 0);
    meet(new_socket(client));
    MUST(mtcp_poll(client, NULL, 0, 1100) == 0);
    MUST(mtcp_poll(client, NULL, 0, 0) == 0);
}

static pthread_barrier_t together;

static void *come_and_go(void *number)
{
    for (int round = 0; round < ROUNDS; round++) {
        mctx_t mctx;
        int sockid;

        pthread_barrier_wait(&together);
        mctx = mtcp_create_context((int)(intptr_t)number);
        MUST(mctx != NULL);
        sockid = new_socket(mctx);
        if (round % 2 == 0)
            MUST(mtcp_close(mctx, sockid) == 0);
        mtcp_destroy_context(mctx);
    }
    return NULL;
}

static void threads_make_contexts_at_once(void)
{
    pthread_t threads[THREADS];

    MUST(pthread_barrier_init(&together, NULL, THREADS) == 0);
    for (int i = 0; i < THREADS; i++)
        MUST(pthread_create(&threads[i], NULL, come_and_go, (void *)(intptr_t)i) == 0);
    for (int i = 0; i < THREADS; i++)
        MUST(pthread_join(threads[i], NULL) == 0);
    pthread_barrier_destroy(&together);
}

int main(int argc, char **argv)
{
    struct mtcp_conf conf;

    MUST(argc > 1);
    /* More cores than the machine has, set before reading the file, which does not contain the
     * number. */
    MUST(mtcp_getconf(&conf) == 0);
    conf.num_cores = THREADS;
    MUST(mtcp_setconf(&conf) == 0 && mtcp_init(argv[1]) == 0 && mtcp_getconf(&conf) == 0 && conf.num_cores == THREADS);
    /* Values set after reading the file override it. */
    conf.max_concurrency = CONCURRENCY;
    MUST(mtcp_setconf(&conf) == 0);
    threads_make_contexts_at_once();
    descriptors_are_as_many_as_was_asked_for();
    signal_is_not_left_to_the_next_context();
    server = mtcp_create_context(0);
    client = mtcp_create_context(1);
    MUST(server != NULL && client != NULL);
    listen_again();
    lent_bytes_are_read_without_a_copy();
    any_port_is_a_port();
    addresses_are_had_without_a_pool();
    nothing_to_accept_is_eagain();
    waits_are_as_long_as_they_are_asked_to_be();
    listener_goes_and_connections_stay();
    context_goes_with_its_sockets();
    child_leaves_contexts_to_its_parent();
    statistics_are_printed();
    mtcp_destroy_context(client);
    mtcp_destroy_context(server);
    mtcp_destroy();
    return 0;
}
