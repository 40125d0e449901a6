/*
 * The features that mTCP programs rely on, used in their style: settings before and after
 * mtcp_init, a main thread that only waits, and for each core a worker with context, listener and
 * epoll. Also signals, and the edge cases of each call. classic.rs runs both ends.
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

/* As many events as mTCP programs have room for. */
#define EVENTS_MAX 30000
#define CORES 2
#define PORT 80
#define SERVER "10.81.0.1"
/* The client's addresses, passed to mtcp_init_rss. */
#define CLIENT "10.81.0.2"
#define CLIENTS 3
/* As in the file of classic.rs. */
#define BUFFER_BYTES 8192

/* The request in the first byte of a connection. */
#define ECHO 'e'  /* send back what arrives */
#define MUCH 'm'  /* send MUCH_BYTES, then end */
#define SLOW 's'  /* read slowly, and answer with the number of bytes when the end comes */
#define RESET 'r' /* reset */
#define MUCH_BYTES 3000000

extern volatile sig_atomic_t is_done;

void *serve(void *core);
void load(void);

/* Makes a context and an epoll for the calling thread. */
mctx_t begin(int core, int *epoll);
void watch(mctx_t mctx, int epoll, int op, int sockid, uint32_t events);
/* The byte of MUCH at a position. */
char much_at(size_t place);
/* The error that SO_ERROR returns. */
int error_of(mctx_t mctx, int sockid);

#endif
