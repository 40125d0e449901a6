/*
 * What programs for mTCP rely on, in the way in which they are written: settings before and after
 * mtcp_init, a main thread that only waits, a worker for each core with its context, its listener
 * and its epoll, signals, and the edge of each call. classic.rs runs both ends.
 *
 *   classic serve CONFIG
 *   classic load CONFIG
 */
#ifndef CLASSIC_H
#define CLASSIC_H

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <mtcp_api.h>
#include <mtcp_epoll.h>

#include "../common/must.h"

/* As many events as programs for mTCP have room for. */
#define EVENTS_MAX 30000
#define CORES 2
#define PORT 80
#define SERVER "10.81.0.1"
/* The client's addresses, of which mtcp_init_rss is told. */
#define CLIENT "10.81.0.2"
#define CLIENTS 3
/* What the file of classic.rs says. */
#define BUFFER_BYTES 8192

/* What the first byte of a connection asks of the server. */
#define ECHO 'e'  /* send back what comes */
#define MUCH 'm'  /* send MUCH_BYTES, then end */
#define SLOW 's'  /* read slowly, and answer with the number of bytes when the end comes */
#define RESET 'r' /* reset */
#define MUCH_BYTES 3000000

extern volatile sig_atomic_t is_done;

void *serve(void *core);
void load(void);

/* A context and an epoll of the calling thread. */
mctx_t begin(int core, int *epoll);
void watch(mctx_t mctx, int epoll, int op, int sockid, uint32_t events);
/* The byte at a place of MUCH. */
char much_at(size_t place);
/* The error that SO_ERROR tells. */
int error_of(mctx_t mctx, int sockid);

#endif
