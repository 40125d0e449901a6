/*
 * The ends with their addresses, and the aide's thread.
 */
#include "suite.h"

struct side me, peer, aide;

void open_sides(void);
void close_sides(void);

/* The aide's next task; `run` is NULL when it is done. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    void (*run)(void *);
    void *argument;
    int ms;
} task = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, NULL, NULL, 0};

static void *be_aide(void *unused)
{
    pthread_mutex_lock(&task.lock);
    for (;;) {
        while (!task.run)
            pthread_cond_wait(&task.changed, &task.lock);
        pthread_mutex_unlock(&task.lock);
        if (task.ms)
            usleep((useconds_t)task.ms * 1000);
        task.run(task.argument);
        pthread_mutex_lock(&task.lock);
        task.run = NULL;
        pthread_cond_broadcast(&task.changed);
    }
    return unused;
}

void aide_join(void)
{
    pthread_mutex_lock(&task.lock);
    while (task.run)
        pthread_cond_wait(&task.changed, &task.lock);
    pthread_mutex_unlock(&task.lock);
}

void later(int ms, void (*run)(void *), void *argument)
{
    aide_join();
    pthread_mutex_lock(&task.lock);
    task.ms = ms;
    task.argument = argument;
    task.run = run;
    pthread_cond_broadcast(&task.changed);
    pthread_mutex_unlock(&task.lock);
}

void aide_do(void (*run)(void *), void *argument)
{
    later(0, run, argument);
    aide_join();
}

static void start_aide(void)
{
    pthread_t thread;
    sigset_t all, before;

    /* Only the main thread takes signals. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(&thread, NULL, be_aide, NULL))
        abort();
    pthread_detach(thread);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static const char *setting(const char *name)
{
    const char *value = getenv(name);

    if (!value) {
        fprintf(stderr, "%s is not set\n", name);
        exit(2);
    }
    return value;
}

#ifdef ON_KERNEL

static void open_mine(void)
{
}

void close_sides(void)
{
}

#else

mctx_t mctx;

static void open_mine(void)
{
    if (mtcp_init(setting("CONFIG")) < 0 || !(mctx = mtcp_create_context(0))) {
        perror("libmtcp");
        exit(2);
    }
}

void close_sides(void)
{
    mtcp_destroy_context(mctx);
    mtcp_destroy();
}

#endif

void open_sides(void)
{
    me = (struct side){setting("MY_IP"), setting("MY_IP6")};
    peer = (struct side){setting("PEER_IP"), setting("PEER_IP6")};
    aide = peer;
    open_mine();
    start_aide();
}
