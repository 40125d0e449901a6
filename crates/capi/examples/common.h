/*
 * Parts that the examples share: errors, options, and the end by Ctrl-C.
 */
#ifndef EXAMPLES_COMMON_H
#define EXAMPLES_COMMON_H

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mtcp_api.h>

/* Threads, and so contexts, that an example starts at most. */
#define THREADS_MAX 64

/* Prints the failed step and its error, and ends the program. */
static inline void die(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

/* A number within limits; otherwise ends the program. */
static inline long number(const char *option, const char *text, long least, long most)
{
    char *end;
    long value = strtol(text, &end, 10);

    if (*text == '\0' || *end != '\0' || value < least || value > most) {
        fprintf(stderr, "%s %s: not a number from %ld to %ld\n", option, text, least, most);
        exit(2);
    }
    return value;
}

/* Set by Ctrl-C. Loops check it when a waiting call returns EINTR. */
static volatile sig_atomic_t is_over;

static inline void end_soon(int signum)
{
    (void)signum;
    is_over = 1;
}

/* Unlike signal(2), mtcp_register_signal also wakes threads that wait in a context. */
static inline void end_on_signals(void)
{
    mtcp_register_signal(SIGINT, end_soon);
    mtcp_register_signal(SIGTERM, end_soon);
    signal(SIGPIPE, SIG_IGN);
}

/* Reads the configuration and returns the number of stacks that the program shall run: as many as
 * asked for, or as in the file. */
static inline int start(const char *config, int threads)
{
    struct mtcp_conf conf;

    if (mtcp_init(config) < 0)
        exit(1);
    mtcp_getconf(&conf);
    if (threads > 0) {
        conf.num_cores = threads;
        if (mtcp_setconf(&conf) < 0)
            die("mtcp_setconf");
    }
    if (conf.num_cores > THREADS_MAX) {
        fprintf(stderr, "num_cores = %d: at most %d\n", conf.num_cores, THREADS_MAX);
        exit(1);
    }
    return conf.num_cores;
}

#endif
