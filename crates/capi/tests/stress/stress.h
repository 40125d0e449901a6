/*
 * The stress test: a server that echoes, and clients that check every byte and end in all possible
 * ways.
 *
 *   stress serve -f CONFIG [-t THREADS]
 *   stress load -f CONFIG [-t THREADS] [-c CONNECTIONS] [-s SECONDS] ADDRESS
 *
 * Each thread has its context and keeps CONNECTIONS open. Both programs print a line of results
 * once a second, and a last one at the end. A lost byte, a wrong byte or a connection without
 * progress ends the program with status 1.
 */
#ifndef STRESS_H
#define STRESS_H

#include <arpa/inet.h>
#include <errno.h>
#include <linux/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <mtcp_epoll.h>

#define THREADS_MAX 64
#define EVENTS_MAX 512
#define PORT 9
/* Factor by which sanitizers within the library slow the test down. */
#ifndef SLOWNESS
#define SLOWNESS 1
#endif
/* Time without sending or receiving after which a connection counts as stalled. */
#define STALL_MS (60000 * SLOWNESS)
/* Time that a context may take to free ended connections. */
#define REST_MS (60000 * SLOWNESS)
/* Largest number of counters per thread. */
#define COUNTERS_MAX 256
/* Interval at which the counters of all threads are printed. */
#define COUNTERS_S 20
/* Time without progress after which the server reports a connection. */
#define LATE_MS (30000 * SLOWNESS)
/* Longest wait of a loop, so that it looks at the clock. */
#define TICK_MS 200

struct counts {
    long opened, ended, reset, open;
    long long bytes;
};

struct worker {
    pthread_t thread;
    int number;
    mctx_t mctx;
    int epoll;
    struct counts counts; /* read by the main thread while it changes, for display only */
    struct mtcp_counter counters[COUNTERS_MAX]; /* last values; also read while they change */
    int counters_len;
    long noted_ms;
};

extern int connections;    /* of each thread */
extern int seconds;        /* of the load */
extern struct sockaddr_in server;
extern volatile sig_atomic_t is_over;

void *serve(void *worker);
void *load(void *worker);

/* Prints an error and ends the program. */
void fail(const struct worker *worker, const char *what);
long now_ms(void);
/* Makes a context and an epoll for the calling thread. */
void open_worker(struct worker *worker);
void watch(struct worker *worker, int op, int sockid, uint32_t events, void *what);
/* Copies the context's counters for the main thread, at most once a second. */
void note_counters(struct worker *worker);
/* Prints the state of a connection's end that makes no progress. */
void tell_connection(const struct worker *worker, int sockid, const char *what);
/* Waits until all pools are full again, except for the given numbers of open descriptors and
 * sockets. */
void must_be_at_rest(struct worker *worker, unsigned int descriptors, unsigned int sockets);

#endif
