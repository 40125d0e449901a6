/*
 * The command line, the threads, and the results.
 */
#include "stress.h"

int connections = 100;
int seconds = 10;
struct sockaddr_in server;
volatile sig_atomic_t is_over;

static void end_soon(int signum)
{
    (void)signum;
    is_over = 1;
}

static struct worker workers[THREADS_MAX];

/* Prints the sum of all threads' counters that are not zero, for the search for errors. All threads
 * have the same counters. */
static void tell_counters(void)
{
    const struct worker *first = &workers[0];

    printf("counters:");
    for (int at = 0; at < first->counters_len; at++) {
        unsigned long long sum = 0;

        for (int i = 0; i < THREADS_MAX; i++)
            if (at < workers[i].counters_len)
                sum += workers[i].counters[at].value;
        if (sum > 0)
            printf(" %s %llu", first->counters[at].name, sum);
    }
    printf("\n");
    fflush(stdout);
}

void fail(const struct worker *worker, const char *what)
{
    int error = errno;

    tell_counters();
    printf("FAILED: thread %d: %s (%s)\n", worker->number, what, strerror(error));
    fflush(stdout);
    _exit(1);
}

void note_counters(struct worker *worker)
{
    if (now_ms() - worker->noted_ms < 1000)
        return;
    worker->noted_ms = now_ms();
    worker->counters_len = mtcp_getcounters(worker->mctx, worker->counters, COUNTERS_MAX);
    if (worker->counters_len < 0 || worker->counters_len > COUNTERS_MAX)
        fail(worker, "mtcp_getcounters");
}

void tell_connection(const struct worker *worker, int sockid, const char *what)
{
    struct sockaddr_in own, peer;
    socklen_t own_len = sizeof own, peer_len = sizeof peer, len = sizeof(struct tcp_info);
    struct tcp_info info;

    memset(&info, 0, sizeof info);
    memset(&own, 0, sizeof own);
    memset(&peer, 0, sizeof peer);
    mtcp_getsockname(worker->mctx, sockid, (struct sockaddr *)&own, &own_len);
    mtcp_getpeername(worker->mctx, sockid, (struct sockaddr *)&peer, &peer_len);
    mtcp_getsockopt(worker->mctx, sockid, IPPROTO_TCP, TCP_INFO, &info, &len);
    printf("%s: thread %d ports %u %u: state %u retransmits %u backoff %u probes %u rto %u rtt %u unacked %u lost %u retrans %u total_retrans %u cwnd %u notsent %u "
           "last_sent %u last_received %u last_ack %u acked %llu received %llu\n",
           what, worker->number, ntohs(own.sin_port), ntohs(peer.sin_port), info.tcpi_state, info.tcpi_retransmits, info.tcpi_backoff, info.tcpi_probes, info.tcpi_rto,
           info.tcpi_rtt, info.tcpi_unacked, info.tcpi_lost, info.tcpi_retrans, info.tcpi_total_retrans, info.tcpi_snd_cwnd, info.tcpi_notsent_bytes,
           info.tcpi_last_data_sent, info.tcpi_last_data_recv, info.tcpi_last_ack_recv, (unsigned long long)info.tcpi_bytes_acked,
           (unsigned long long)info.tcpi_bytes_received);
}

long now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000L + now.tv_nsec / 1000000;
}

void open_worker(struct worker *worker)
{
    mtcp_core_affinitize(worker->number);
    worker->mctx = mtcp_create_context(worker->number);
    if (!worker->mctx)
        fail(worker, "mtcp_create_context");
    worker->epoll = mtcp_epoll_create(worker->mctx, EVENTS_MAX);
    if (worker->epoll < 0)
        fail(worker, "mtcp_epoll_create");
}

void watch(struct worker *worker, int op, int sockid, uint32_t events, void *what)
{
    struct mtcp_epoll_event event;

    event.events = events;
    event.data.ptr = what;
    if (mtcp_epoll_ctl(worker->mctx, worker->epoll, op, sockid, &event) < 0)
        fail(worker, "mtcp_epoll_ctl");
}

static bool is_at_rest(const struct mtcp_usage *usage, unsigned int descriptors, unsigned int sockets)
{
    return usage->descriptors.used == descriptors && usage->sockets.used == sockets && usage->half_open.used == 0 && usage->time_wait.used == 0
           && usage->small_chunks.used == 0 && usage->large_chunks.used == 0 && usage->segment_records.used == 0 && usage->range_blocks.used == 0
           && usage->packed_blocks.used == 0;
}

void must_be_at_rest(struct worker *worker, unsigned int descriptors, unsigned int sockets)
{
    struct mtcp_epoll_event events[EVENTS_MAX];
    struct mtcp_usage usage;
    long until_ms = now_ms() + REST_MS;

    for (;;) {
        if (mtcp_getusage(worker->mctx, &usage) < 0)
            fail(worker, "mtcp_getusage");
        note_counters(worker);
        if (is_at_rest(&usage, descriptors, sockets))
            return;
        if (now_ms() > until_ms)
            break;
        if (mtcp_epoll_wait(worker->mctx, worker->epoll, events, EVENTS_MAX, TICK_MS) < 0 && errno != EINTR)
            fail(worker, "mtcp_epoll_wait");
    }
    printf("thread %d holds: descriptors %u sockets %u half_open %u time_wait %u small_chunks %u large_chunks %u segment_records %u range_blocks %u packed_blocks %u\n",
           worker->number, usage.descriptors.used, usage.sockets.used, usage.half_open.used, usage.time_wait.used, usage.small_chunks.used,
           usage.large_chunks.used, usage.segment_records.used, usage.range_blocks.used, usage.packed_blocks.used);
    errno = 0;
    fail(worker, "a pool is not full at the end");
}

static void tell(int threads)
{
    struct counts sum;

    memset(&sum, 0, sizeof sum);
    for (int i = 0; i < threads; i++) {
        sum.opened += workers[i].counts.opened;
        sum.ended += workers[i].counts.ended;
        sum.reset += workers[i].counts.reset;
        sum.open += workers[i].counts.open;
        sum.bytes += workers[i].counts.bytes;
    }
    printf("opened %ld ended %ld reset %ld open %ld bytes %lld\n", sum.opened, sum.ended, sum.reset, sum.open, sum.bytes);
    fflush(stdout);
}

static int usage(void)
{
    fprintf(stderr, "usage: stress serve -f CONFIG [-t THREADS]\n       stress load -f CONFIG [-t THREADS] [-c CONNECTIONS] [-s SECONDS] ADDRESS\n");
    return 2;
}

int main(int argc, char **argv)
{
    const char *config = NULL;
    int option, threads = 8, running, round = 0;
    void *(*work)(void *) = argc > 1 && strcmp(argv[1], "load") == 0 ? load : serve;

    optind = 2;
    while ((option = getopt(argc, argv, "f:t:c:s:")) != -1) {
        if (option == 'f')
            config = optarg;
        else if (option == 't')
            threads = atoi(optarg);
        else if (option == 'c')
            connections = atoi(optarg);
        else if (option == 's')
            seconds = atoi(optarg);
        else
            return usage();
    }
    server.sin_family = AF_INET;
    server.sin_port = htons(PORT);
    if (work == load && (optind >= argc || inet_pton(AF_INET, argv[optind], &server.sin_addr) != 1))
        return usage();
    if (threads < 1 || threads > THREADS_MAX || mtcp_init(config) < 0)
        return usage();
    mtcp_register_signal(SIGTERM, end_soon);
    signal(SIGPIPE, SIG_IGN);
    for (int i = 0; i < threads; i++) {
        workers[i].number = i;
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
            fail(&workers[i], "pthread_create");
    }
    running = threads;
    while (running > 0) {
        struct timespec second = {1, 0};

        nanosleep(&second, NULL);
        tell(threads);
        if (++round % COUNTERS_S == 0)
            tell_counters();
        while (running > 0 && pthread_tryjoin_np(workers[running - 1].thread, NULL) == 0)
            running--;
    }
    tell_counters();
    printf("done: ");
    tell(threads);
    mtcp_destroy();
    return 0;
}
