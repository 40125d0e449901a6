/*
 * The stress test: a server that sends back what it gets, and clients that check every byte and
 * leave in every way there is.
 *
 *   stress serve -f CONFIG [-t THREADS]
 *   stress load -f CONFIG [-t THREADS] [-c CONNECTIONS] [-s SECONDS] ADDRESS
 *
 * Each thread has its context. CONNECTIONS is the number that each thread keeps open. Both print a
 * line of figures once a second, and the last one when they end; a lost byte, a wrong byte or a
 * connection that makes no progress ends the program with status 1.
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
/* How many times slower than usual this is, by sanitizers within the library. */
#ifndef SLOWNESS
#define SLOWNESS 1
#endif
/* A connection that neither sends nor receives for that long has stalled. */
#define STALL_MS (60000 * SLOWNESS)
/* How long a context may take to be rid of connections that have ended. */
#define REST_MS (60000 * SLOWNESS)
/* Counters that a thread keeps, at most. */
#define COUNTERS_MAX 256
/* How often the counters of all threads are printed. */
#define COUNTERS_S 20
/* How long an end of a connection may wait for progress before the server tells of it. */
#define LATE_MS (30000 * SLOWNESS)
/* How long a loop waits at most, to look at the clock. */
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
    struct counts counts; /* read by the main thread while it changes: figures for people */
    struct mtcp_counter counters[COUNTERS_MAX]; /* as they last stood, likewise */
    int counters_len;
    long noted_ms;
};

extern int connections;    /* of each thread */
extern int seconds;        /* of the load */
extern struct sockaddr_in server;
extern volatile sig_atomic_t is_over;

void *serve(void *worker);
void *load(void *worker);

/* Says what went wrong, and ends the program. */
void fail(const struct worker *worker, const char *what);
long now_ms(void);
/* A context and an epoll for the calling thread. */
void open_worker(struct worker *worker);
void watch(struct worker *worker, int op, int sockid, uint32_t events, void *what);
/* Keeps the context's counters where the main thread finds them; once a second, however often it
 * is called. */
void note_counters(struct worker *worker);
/* What a connection's two ends know of it: printed where it makes no progress. */
void tell_connection(const struct worker *worker, int sockid, const char *what);
/* Waits until all pools are full again, but for that many descriptors and sockets that are still
 * open. */
void must_be_at_rest(struct worker *worker, unsigned int descriptors, unsigned int sockets);

#endif
