/*
 * The command line, the threads, and the figures.
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

void fail(const struct worker *worker, const char *what)
{
    int error = errno;

    printf("FAILED: thread %d: %s (%s)\n", worker->number, what, strerror(error));
    fflush(stdout);
    _exit(1);
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
           && usage->rest_blocks.used == 0;
}

void must_be_at_rest(struct worker *worker, unsigned int descriptors, unsigned int sockets)
{
    struct mtcp_epoll_event events[EVENTS_MAX];
    struct mtcp_usage usage;
    long until_ms = now_ms() + REST_MS;

    for (;;) {
        if (mtcp_getusage(worker->mctx, &usage) < 0)
            fail(worker, "mtcp_getusage");
        if (is_at_rest(&usage, descriptors, sockets))
            return;
        if (now_ms() > until_ms)
            break;
        if (mtcp_epoll_wait(worker->mctx, worker->epoll, events, EVENTS_MAX, TICK_MS) < 0 && errno != EINTR)
            fail(worker, "mtcp_epoll_wait");
    }
    printf("thread %d holds: descriptors %u sockets %u half_open %u time_wait %u small_chunks %u large_chunks %u segment_records %u range_blocks %u rest_blocks %u\n",
           worker->number, usage.descriptors.used, usage.sockets.used, usage.half_open.used, usage.time_wait.used, usage.small_chunks.used,
           usage.large_chunks.used, usage.segment_records.used, usage.range_blocks.used, usage.rest_blocks.used);
    errno = 0;
    fail(worker, "a pool is not full at the end");
}

static void tell(const struct worker *workers, int threads)
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
    static struct worker workers[THREADS_MAX];
    const char *config = NULL;
    int option, threads = 8, running;
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
        tell(workers, threads);
        while (running > 0 && pthread_tryjoin_np(workers[running - 1].thread, NULL) == 0)
            running--;
    }
    printf("done: ");
    tell(workers, threads);
    mtcp_destroy();
    return 0;
}
