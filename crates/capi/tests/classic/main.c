/*
 * Settings, threads and signals, and parts that both ends share.
 */
#include "classic.h"

volatile sig_atomic_t is_done;

static void stop(int signum)
{
    (void)signum;
    is_done = 1;
}

mctx_t begin(int core, int *epoll)
{
    mctx_t mctx;

    MUST(mtcp_core_affinitize(core) == 0);
    mctx = mtcp_create_context(core);
    MUST(mctx != NULL);
    /* Some programs do this before mtcp_create_context, some after it, some both times. */
    MUST(mtcp_core_affinitize(core) == 0);
    *epoll = mtcp_epoll_create(mctx, EVENTS_MAX);
    MUST(*epoll >= 0);
    return mctx;
}

void watch(mctx_t mctx, int epoll, int op, int sockid, uint32_t events)
{
    struct mtcp_epoll_event event;

    memset(&event, 0, sizeof event);
    event.events = events;
    event.data.sockid = sockid;
    MUST(mtcp_epoll_ctl(mctx, epoll, op, sockid, &event) == 0);
}

char much_at(size_t place)
{
    return (char)(place * 7 + place / 251);
}

int error_of(mctx_t mctx, int sockid)
{
    int error = -1;
    socklen_t len = sizeof error;

    MUST(mtcp_getsockopt(mctx, sockid, SOL_SOCKET, SO_ERROR, (void *)&error, &len) == 0 && len == sizeof error);
    return error;
}

/* The number of cores is set before reading the file, which does not contain it. The file's values
 * are returned afterwards and may be changed. */
static void configure(const char *file)
{
    struct mtcp_conf conf;

    MUST(mtcp_getconf(&conf) == 0);
    conf.num_cores = CORES;
    MUST(mtcp_setconf(&conf) == 0);
    MUST(mtcp_init(file) == 0);
    /* Some programs call mtcp_init for each of their configurations; the last one holds. */
    MUST(mtcp_init(file) == 0);
    MUST(mtcp_getconf(&conf) == 0);
    MUST(conf.num_cores == CORES);
    MUST(conf.rcvbuf_size == BUFFER_BYTES && conf.sndbuf_size == BUFFER_BYTES);
    MUST(conf.max_num_buffers == 1000 && conf.tcp_timeout == 30 && conf.tcp_timewait == 0);
    MUST(conf.max_concurrency == 1000);
    conf.max_concurrency = 700;
    conf.max_num_buffers = 700;
    MUST(mtcp_setconf(&conf) == 0);
    MUST(mtcp_getconf(&conf) == 0 && conf.max_concurrency == 700 && conf.max_num_buffers == 700);
}

int main(int argc, char **argv)
{
    static int cores[CORES];
    pthread_t threads[CORES];
    struct mtcp_conf conf;

    MUST(argc == 3);
    configure(argv[2]);
    MUST(mtcp_register_signal(SIGINT, stop) != SIG_ERR);
    if (strcmp(argv[1], "load") == 0) {
        load();
        mtcp_destroy();
        return 0;
    }
    for (int i = 0; i < CORES; i++) {
        cores[i] = i;
        MUST(pthread_create(&threads[i], NULL, serve, &cores[i]) == 0);
    }
    for (int i = 0; i < CORES; i++)
        MUST(pthread_join(threads[i], NULL) == 0);
    MUST(mtcp_getconf(&conf) == 0 && conf.num_cores == CORES);
    MUST(mtcp_init(argv[2]) == -1 && errno == EALREADY);
    mtcp_destroy();
    printf("done\n");
    return 0;
}
