/*
 * The control plane, call by call: calls before mtcp_init, refused arguments, the owner of a
 * context, and the end of everything.
 *
 * control [CONFIG]     without CONFIG: mtcp_init(NULL)
 */
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <mtcp_api.h>
#include <mtcp_epoll.h>

#include "common/must.h"

#define REFUSED(call, why) MUST((call) == -1 && errno == (why))

/* The library defines these without a declaration, like mTCP's. */
#ifdef __cplusplus
extern "C" {
#endif
int GetNumCPUs(void);
int CoreAffinitize(int cpu);
#ifdef __cplusplus
}
#endif

static const char *config;
static mctx_t shared;

static int new_socket(mctx_t mctx)
{
    return mtcp_socket(mctx, AF_INET, SOCK_STREAM, 0);
}

static void cpus_are_counted_round(void)
{
    MUST(GetNumCPUs() == sysconf(_SC_NPROCESSORS_ONLN));
    MUST(mtcp_core_affinitize(0) == 0 && mtcp_core_affinitize(999) == 0 && mtcp_core_affinitize(INT_MAX) == 0);
    MUST(CoreAffinitize(0) == 0);
    REFUSED(mtcp_core_affinitize(-1), EINVAL);
}

static void settings_come_before(void)
{
    struct mtcp_conf conf, other;

    MUST(mtcp_create_context(0) == NULL && errno == EINVAL);
    REFUSED(mtcp_getconf(NULL), EFAULT);
    REFUSED(mtcp_setconf(NULL), EFAULT);
    MUST(mtcp_getconf(&conf) == 0);
    MUST(conf.num_cores >= 1 && conf.max_concurrency > 0 && conf.max_num_buffers > 0 && conf.rcvbuf_size > 0 && conf.sndbuf_size > 0);
    other = conf;
    other.num_cores = 100000;
    REFUSED(mtcp_setconf(&other), EINVAL);
    other = conf;
    other.max_concurrency = INT_MAX;
    REFUSED(mtcp_setconf(&other), EINVAL);
    /* More cores than the machine has; fields that are not positive stay unchanged. */
    memset(&other, 0, sizeof other);
    other.num_cores = 5;
    MUST(mtcp_setconf(&other) == 0 && mtcp_getconf(&other) == 0);
    MUST(other.num_cores == 5 && other.max_concurrency == conf.max_concurrency && other.rcvbuf_size == conf.rcvbuf_size);
}

static void configurations_are_read(void)
{
    REFUSED(mtcp_init("/nowhere/at-all.conf"), EINVAL);
    REFUSED(mtcp_init("/"), EINVAL);
    MUST(mtcp_create_context(0) == NULL && errno == EINVAL);
    MUST(mtcp_init(config) == 0);
    MUST(mtcp_init(config) == 0);
}

static void *use_of_another(void *unused)
{
    (void)unused;
    REFUSED(new_socket(shared), EPERM);
    mtcp_destroy_context(shared);
    return NULL;
}

static void *first_use(void *mctx)
{
    int sockid = new_socket((mctx_t)mctx);

    MUST(sockid > 0 && mtcp_close((mctx_t)mctx, sockid) == 0);
    return NULL;
}

static void run_thread(void *(*run)(void *), void *argument)
{
    pthread_t thread;

    MUST(pthread_create(&thread, NULL, run, argument) == 0 && pthread_join(thread, NULL) == 0);
}

static void contexts_belong_to_threads(void)
{
    struct mtcp_conf conf;
    mctx_t other;

    MUST(mtcp_create_context(-1) == NULL && errno == EINVAL);
    MUST(mtcp_create_context(5) == NULL && errno == EINVAL);
    shared = mtcp_create_context(0);
    MUST(shared != NULL);
    MUST(mtcp_create_context(0) == NULL && errno == EEXIST);
    REFUSED(new_socket(NULL), EINVAL);
    REFUSED(new_socket((mctx_t)(uintptr_t)0x1234567), EINVAL);
    MUST(new_socket(shared) == 1);
    run_thread(use_of_another, NULL);
    MUST(new_socket(shared) == 2);
    /* A context without a caller yet belongs to the first thread that uses it, and ends with it. */
    other = mtcp_create_context(4);
    MUST(other != NULL);
    run_thread(first_use, other);
    REFUSED(new_socket(other), EINVAL);
    /* Settings can no longer change. */
    MUST(mtcp_getconf(&conf) == 0 && mtcp_setconf(&conf) == 0);
    conf.max_concurrency++;
    REFUSED(mtcp_setconf(&conf), EBUSY);
    REFUSED(mtcp_init(config), EALREADY);
}

static void some_calls_have_few_uses(void)
{
    int epoll = mtcp_epoll_create(shared, 1), ends[2];

    REFUSED(mtcp_epoll_create(shared, 0), EINVAL);
    REFUSED(mtcp_abort(shared, 1), ENOTCONN);
    REFUSED(mtcp_abort(shared, epoll), ENOTSOCK);
    REFUSED(mtcp_abort(shared, 99), EBADF);
    REFUSED(mtcp_kernel_fd(shared, 1), EINVAL);
    REFUSED(mtcp_kernel_fd(shared, 99), EBADF);
    REFUSED(mtcp_attach_fd(shared, 9999), EBADF);
    REFUSED(mtcp_setsock_nonblock(shared, 99), EBADF);
    REFUSED(mtcp_getusage(shared, NULL), EFAULT);
    MUST(mtcp_pipe(shared, ends) == 0 && mtcp_kernel_fd(shared, ends[0]) > 2);
    MUST(mtcp_init_rss(shared, INADDR_ANY, 1, 0, 0) == 0);
    REFUSED(mtcp_init_rss(shared, INADDR_ANY, 0, 0, 0), EINVAL);
    REFUSED(mtcp_init_rss(shared, htonl(0x01020304), 1, 0, 0), EADDRNOTAVAIL);
    MUST(strcmp(EventToString(MTCP_EPOLLNONE), "NONE") == 0);
}

static void one(int signum)
{
    (void)signum;
}

static void two(int signum)
{
    (void)signum;
}

/* Each counter has its own name, which fits. Sent frames are counted. */
static void counters_are_told(void)
{
    struct mtcp_counter some[3], all[300];
    int count = mtcp_getcounters(shared, NULL, 0);

    MUST(count > 100 && count < 300);
    REFUSED(mtcp_getcounters(shared, NULL, 1), EFAULT);
    REFUSED(mtcp_getcounters(shared, some, -1), EINVAL);
    REFUSED(mtcp_getcounters(NULL, some, 3), EINVAL);
    memset(some, 0x55, sizeof some);
    MUST(mtcp_getcounters(shared, some, 2) == count && some[2].value == 0x5555555555555555);
    MUST(mtcp_getcounters(shared, all, 300) == count && strcmp(all[0].name, some[0].name) == 0);
    MUST(strcmp(all[0].name, "turns") == 0 && all[0].value >= some[0].value && some[0].value > 0);
    for (int i = 0; i < count; i++) {
        MUST(strlen(all[i].name) > 0 && strlen(all[i].name) < sizeof all[i].name - 1);
        for (int other = 0; other < i; other++)
            MUST(strcmp(all[i].name, all[other].name) != 0);
    }
}

static void signals_have_one_handler(void)
{
    MUST(mtcp_register_signal(SIGUSR1, one) == SIG_DFL);
    MUST(mtcp_register_signal(SIGUSR1, two) == one);
    MUST(mtcp_register_signal(SIGUSR1, SIG_IGN) == two);
    MUST(raise(SIGUSR1) == 0);
    MUST(mtcp_register_signal(SIGUSR1, SIG_DFL) == SIG_IGN);
    MUST(mtcp_register_signal(SIGKILL, one) == SIG_ERR && errno == EINVAL);
    MUST(mtcp_register_signal(1000, one) == SIG_ERR && errno == EINVAL);
    MUST(mtcp_register_signal(-1, one) == SIG_ERR && errno == EINVAL);
}

static void contexts_outlive_the_configuration(void)
{
    mtcp_destroy();
    mtcp_destroy();
    MUST(new_socket(shared) > 0);
    MUST(mtcp_create_context(1) == NULL && errno == EINVAL);
    mtcp_destroy_context(shared);
    mtcp_destroy_context(shared);
    mtcp_destroy_context(NULL);
    REFUSED(new_socket(shared), EINVAL);
    MUST(mtcp_init(config) == 0);
    shared = mtcp_create_context(0);
    MUST(shared != NULL);
    mtcp_destroy_context(shared);
    mtcp_destroy();
}

int main(int argc, char **argv)
{
    config = argc > 1 ? argv[1] : NULL;
    cpus_are_counted_round();
    settings_come_before();
    signals_have_one_handler();
    configurations_are_read();
    contexts_belong_to_threads();
    some_calls_have_few_uses();
    counters_are_told();
    contexts_outlive_the_configuration();
    return 0;
}
