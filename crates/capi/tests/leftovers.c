/*
 * After mtcp_destroy nothing that grows may remain. The library is started and ended many times,
 * each time with contexts, active connections and connections that are left open. Descriptors,
 * threads, mappings and memory are counted each time.
 *
 *   leftovers CONFIG
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <mtcp_api.h>
#include <mtcp_epoll.h>

#include "common/must.h"

#define ROUNDS 12
/* Rounds after which everything that is made once exists. */
#define WARM_ROUNDS 3
#define CLIENTS 40
#define EVENTS_MAX 64
#define PORT 4000
/* The address of the loopback's first context; the second has the next one. */
#define SERVER "10.77.0.1"
#define PATIENCE_MS 3000

/* Allocated bytes of all threads, which a sanitizer knows. */
__attribute__((weak)) size_t __sanitizer_get_current_allocated_bytes(void);

static const char *config;
static pthread_barrier_t both_are_there, both_are_done;

static void on_signal(int signum)
{
    (void)signum;
}

static void watch(mctx_t mctx, int epoll, int op, int sockid, uint32_t events)
{
    struct mtcp_epoll_event event;

    event.events = events;
    event.data.sockid = sockid;
    MUST(mtcp_epoll_ctl(mctx, epoll, op, sockid, &event) == 0);
}

static void *serve(void *unused)
{
    struct mtcp_epoll_event events[EVENTS_MAX];
    struct sockaddr_in at;
    mctx_t mctx = mtcp_create_context(0);
    int listener, epoll, ends[2], asked = 0;
    char bytes[100];

    (void)unused;
    MUST(mctx);
    epoll = mtcp_epoll_create(mctx, EVENTS_MAX);
    MUST(mtcp_epoll_create1(mctx, 0) > 0 && mtcp_pipe(mctx, ends) == 0 && mtcp_eventfd(mctx, 0, 0) > 0);
    listener = mtcp_socket(mctx, AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    memset(&at, 0, sizeof at);
    at.sin_family = AF_INET;
    at.sin_port = htons(PORT);
    MUST(mtcp_bind(mctx, listener, (struct sockaddr *)&at, sizeof at) == 0 && mtcp_listen(mctx, listener, 100) == 0);
    watch(mctx, epoll, MTCP_EPOLL_CTL_ADD, listener, MTCP_EPOLLIN);
    pthread_barrier_wait(&both_are_there);
    while (asked < CLIENTS) {
        int count = mtcp_epoll_wait(mctx, epoll, events, EVENTS_MAX, -1), sockid;

        for (int i = 0; i < count; i++) {
            if (events[i].data.sockid == listener) {
                while ((sockid = mtcp_accept4(mctx, listener, NULL, NULL, SOCK_NONBLOCK)) > 0)
                    watch(mctx, epoll, MTCP_EPOLL_CTL_ADD, sockid, MTCP_EPOLLIN);
                continue;
            }
            MUST(mtcp_read(mctx, events[i].data.sockid, bytes, sizeof bytes) == 5);
            MUST(mtcp_write(mctx, events[i].data.sockid, "world", 5) == 5);
            /* The other connections stay open until the context ends. */
            if (++asked % 2 == 0)
                MUST(mtcp_close(mctx, events[i].data.sockid) == 0);
        }
    }
    /* The client still needs its answers, which the stack sends while we wait. */
    for (int i = 0; i < 20; i++)
        mtcp_epoll_wait(mctx, epoll, events, EVENTS_MAX, 5);
    pthread_barrier_wait(&both_are_done);
    mtcp_destroy_context(mctx);
    return NULL;
}

static void *call(void *unused)
{
    struct mtcp_epoll_event events[EVENTS_MAX];
    struct sockaddr_in at;
    mctx_t mctx = mtcp_create_context(1);
    int epoll, answered = 0;
    char bytes[100];

    (void)unused;
    MUST(mctx);
    epoll = mtcp_epoll_create(mctx, EVENTS_MAX);
    memset(&at, 0, sizeof at);
    at.sin_family = AF_INET;
    at.sin_port = htons(PORT);
    at.sin_addr.s_addr = inet_addr(SERVER);
    pthread_barrier_wait(&both_are_there);
    MUST(mtcp_init_rss(mctx, INADDR_ANY, 1, at.sin_addr.s_addr, at.sin_port) == 0);
    for (int i = 0; i < CLIENTS; i++) {
        int sockid = mtcp_socket(mctx, AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);

        MUST(sockid > 0 && (mtcp_connect(mctx, sockid, (struct sockaddr *)&at, sizeof at) == 0 || errno == EINPROGRESS));
        watch(mctx, epoll, MTCP_EPOLL_CTL_ADD, sockid, MTCP_EPOLLOUT);
    }
    while (answered < CLIENTS) {
        int count = mtcp_epoll_wait(mctx, epoll, events, EVENTS_MAX, -1);

        for (int i = 0; i < count; i++) {
            MUST(!(events[i].events & MTCP_EPOLLERR));
            if (events[i].events & MTCP_EPOLLOUT) {
                MUST(mtcp_write(mctx, events[i].data.sockid, "hello", 5) == 5);
                watch(mctx, epoll, MTCP_EPOLL_CTL_MOD, events[i].data.sockid, MTCP_EPOLLIN);
            } else {
                MUST(mtcp_read(mctx, events[i].data.sockid, bytes, sizeof bytes) == 5);
                watch(mctx, epoll, MTCP_EPOLL_CTL_DEL, events[i].data.sockid, 0);
                answered++;
            }
        }
    }
    pthread_barrier_wait(&both_are_done);
    mtcp_destroy_context(mctx);
    return NULL;
}

static int entries(const char *directory)
{
    DIR *stream = opendir(directory);
    int count = 0;

    MUST(stream);
    while (readdir(stream))
        count++;
    closedir(stream);
    return count;
}

static int lines(const char *file)
{
    FILE *stream = fopen(file, "r");
    int count = 0, byte;

    MUST(stream);
    while ((byte = fgetc(stream)) != EOF)
        count += byte == '\n';
    fclose(stream);
    return count;
}

struct held {
    int fds, threads, mappings;
    size_t bytes;
};

static struct held held(void)
{
    struct held held;

    held.fds = entries("/proc/self/fd");
    held.threads = entries("/proc/self/task");
    held.mappings = lines("/proc/self/maps");
    held.bytes = __sanitizer_get_current_allocated_bytes ? __sanitizer_get_current_allocated_bytes() : 0;
    return held;
}

/* Permits a little growth: the C library and the sanitizer have caches and records. */
static int is_no_more(const struct held *now, const struct held *before)
{
    return now->fds <= before->fds && now->threads <= before->threads && now->mappings <= before->mappings + 8 && now->bytes <= before->bytes + 512;
}

static void play(void)
{
    pthread_t threads[2];

    MUST(mtcp_init(config) == 0);
    MUST(mtcp_register_signal(SIGUSR1, on_signal) != SIG_ERR);
    MUST(pthread_create(&threads[0], NULL, serve, NULL) == 0 && pthread_create(&threads[1], NULL, call, NULL) == 0);
    MUST(pthread_join(threads[0], NULL) == 0 && pthread_join(threads[1], NULL) == 0);
    mtcp_destroy();
}

int main(int argc, char **argv)
{
    struct held before, now;
    struct timespec pause = {0, 10000000};

    MUST(argc == 2);
    config = argv[1];
    pthread_barrier_init(&both_are_there, NULL, 2);
    pthread_barrier_init(&both_are_done, NULL, 2);
    for (int i = 0; i < WARM_ROUNDS; i++)
        play();
    nanosleep(&pause, NULL);
    before = held();
    for (int i = WARM_ROUNDS; i < ROUNDS; i++) {
        play();
        now = held();
        for (int waited_ms = 0; !is_no_more(&now, &before) && waited_ms < PATIENCE_MS; waited_ms += 10) {
            nanosleep(&pause, NULL);
            now = held();
        }
        if (!is_no_more(&now, &before)) {
            fprintf(stderr, "round %d: fds %d threads %d mappings %d bytes %zu; before: %d %d %d %zu\n", i, now.fds, now.threads, now.mappings, now.bytes, before.fds,
                    before.threads, before.mappings, before.bytes);
            return 1;
        }
    }
    printf("fds %d threads %d mappings %d bytes %zu; before: %d %d %d %zu\n", now.fds, now.threads, now.mappings, now.bytes, before.fds, before.threads, before.mappings,
           before.bytes);
    return 0;
}
