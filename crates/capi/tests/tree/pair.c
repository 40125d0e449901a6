/*
 * Two threads with small stacks that talk within one process. It uses common names for macros,
 * functions and tags, which must not clash with our headers. Built by the Makefile beside it, in a
 * tree that tree.rs lays out.
 */
#define TRUE (1)
#define FALSE (0)
#define ERROR (-1)
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#define FREE(x)
#define GET 1

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <mtcp_api.h>
#include <mtcp_epoll.h>
#include "cpu.h"

#define ROUNDS 3

struct mtcp_pool { int unlike; };
struct thread_context { mctx_t mctx; int core; };

extern int asked_for_cpus, asked_for_core;
static int is_listening;

/* Calls that mTCP did not have. */
int mtcp_shutdown(struct thread_context *ctx)
{
    return ctx->core == ERROR;
}

static int mtcp_send(struct thread_context *ctx, int sockid, const char *text)
{
    return (int)mtcp_write(ctx->mctx, sockid, text, strlen(text));
}

static void die(const char *what)
{
    perror(what);
    exit(EXIT_FAILURE);
}

static int at_port(struct thread_context *ctx, struct sockaddr_in *at, const char *address)
{
    int sockid = mtcp_socket(ctx->mctx, AF_INET, SOCK_STREAM, 0);

    if (unlikely(sockid < 0))
        die("mtcp_socket");
    memset(at, 0, sizeof *at);
    at->sin_family = AF_INET;
    at->sin_port = htons(80);
    at->sin_addr.s_addr = inet_addr(address);
    return sockid;
}

static void *serve(void *arg)
{
    struct thread_context ctx = {mtcp_create_context(0), 0};
    struct sockaddr_in at;
    int listener, round;

    UNUSED(arg);
    CoreAffinitize(0);
    listener = at_port(&ctx, &at, "0.0.0.0");
    if (mtcp_bind(ctx.mctx, listener, (struct sockaddr *)&at, sizeof at) < 0 || mtcp_listen(ctx.mctx, listener, 128) < 0)
        die("mtcp_listen");
    __sync_fetch_and_add(&is_listening, TRUE);
    for (round = 0; round < ROUNDS; round++) {
        int sockid = mtcp_accept(ctx.mctx, listener, NULL, NULL);
        char bytes[256];
        ssize_t len;

        while ((len = mtcp_read(ctx.mctx, sockid, bytes, MIN(sizeof bytes, 100))) > 0)
            mtcp_write(ctx.mctx, sockid, bytes, (size_t)len);
        mtcp_close(ctx.mctx, sockid);
    }
    mtcp_destroy_context(ctx.mctx);
    return NULL;
}

static void *ask(void *arg)
{
    struct thread_context ctx = {mtcp_create_context(1), 1};
    int round;

    UNUSED(arg);
    for (round = 0; round < ROUNDS; round++) {
        struct sockaddr_in at;
        int sockid = at_port(&ctx, &at, "10.9.0.1");
        char bytes[8];

        if (mtcp_connect(ctx.mctx, sockid, (struct sockaddr *)&at, sizeof at) < 0)
            die("mtcp_connect");
        if (mtcp_send(&ctx, sockid, "hello") != 5 || mtcp_read(ctx.mctx, sockid, bytes, sizeof bytes) != 5)
            die("an echo");
        mtcp_close(ctx.mctx, sockid);
    }
    if (mtcp_shutdown(&ctx) != FALSE)
        die("a function of the program's own");
    mtcp_destroy_context(ctx.mctx);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[2];
    pthread_attr_t small;
    struct mtcp_conf conf;

    /* Before the command line is read. */
    mtcp_getconf(&conf);
    conf.num_cores = MAX(GetNumCPUs(), 2);
    mtcp_setconf(&conf);
    if (argc < 2 || mtcp_init(argv[1]) < 0)
        return EXIT_FAILURE;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 * 1024);
    if (pthread_create(&threads[0], &small, serve, NULL) != 0)
        die("pthread_create");
    while (!likely(__sync_fetch_and_add(&is_listening, 0)))
        usleep(1000);
    if (pthread_create(&threads[1], &small, ask, NULL) != 0)
        die("pthread_create");
    pthread_join(threads[1], NULL);
    pthread_join(threads[0], NULL);
    mtcp_destroy();
    if (asked_for_cpus != 1 || asked_for_core != 1)
        die("functions of the library's took the place of the program's");
    printf("done\n");
    return EXIT_SUCCESS;
}
