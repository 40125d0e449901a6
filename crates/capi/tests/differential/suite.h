/*
 * The vocabulary of cases.
 *
 * A case is a conversation of calls between `me`, the tested side, and a peer, which is the
 * kernel. With -DON_KERNEL, CALL(read, fd, buf, n) is read(2); without, it is mtcp_read() on my
 * context. TRY makes the call and adds its result to the case's line: `read=5`, `read=-EAGAIN`. A
 * Rust test runs both programs and compares the lines (main.rs).
 *
 * Compiled with -D_GNU_SOURCE. Descriptors opened through the helpers are closed at the end of a
 * case.
 */
#ifndef SUITE_H
#define SUITE_H

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "names.h"

/* A side of the conversations, with its addresses. */
struct side {
    const char *ip;
    const char *ip6;
};

/* The tested side, a peer whose calls the same thread makes, and an aide with a thread for what
 * shall happen while the tested side waits (aide_do, later). */
extern struct side me, peer, aide;

/* A call of the tested side, or of another one. */
#define CALL(name, ...) MINE(name, __VA_ARGS__)
#define PEER(name, ...) name(__VA_ARGS__)
#define AIDE(name, ...) name(__VA_ARGS__)
/* A call of a given side. */
#define ON(side, name, ...) ((side) == &me ? MINE(name, __VA_ARGS__) : name(__VA_ARGS__))

/* A call whose result is added to the line. */
#define TRY(name, ...) said(#name, (errno = 0, (long)CALL(name, __VA_ARGS__)))
#define TRY_PEER(name, ...) said("peer-" #name, (errno = 0, (long)PEER(name, __VA_ARGS__)))

/* Adds `name=value`, or `name=-ERRNO` if it is negative. Returns the value. */
long said(const char *name, long value);
/* Adds literal text. */
void note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A case. Its name is the state, then the event. */
typedef void (*case_fn)(const void *, const void *);
void add_case(const char *name, case_fn run, const void *first, const void *second);
#define CASE(name)                                                                                                              \
    static void name(const void *, const void *);                                                                               \
    __attribute__((constructor)) static void add_##name(void) { add_case(#name, name, NULL, NULL); }                            \
    static void name(const void *first __attribute__((unused)), const void *second __attribute__((unused)))

/* Waits until all actions have taken effect at both ends. */
void settle(void);
/* Lets the time pass, with both ends running. */
void pass_ms(int ms);
/* Waits up to a second until the descriptor is ready for one of the events; returns whether it
 * is. */
bool await(struct side *side, int fd, short events);
/* Runs a function on the aide's thread and waits for it. */
void aide_do(void (*run)(void *), void *argument);
/* Runs a function on the aide's thread after a delay, without waiting; the end of the case waits.
 * Only one can be pending. */
void later(int ms, void (*run)(void *), void *argument);
/* Waits until the aide has nothing to do. */
void aide_join(void);
long now_ms(void);

/* Connected sockets, none of which blocks: mine connected, the peer's accepted. */
struct pair {
    int fd;
    int peer;
};
struct pair connected(void);
/* A pair over IPv6. */
struct pair connected6(void);
/* A pair whose `fd` was accepted. Unless NULL, `listener` returns the listener, which stays
 * open. */
struct pair accepted(int *listener);

/* My blocking connected socket, and the aide's non-blocking one. */
struct pair with_aide(void);
/* The address of a listener of the aide. */
struct sockaddr_in listening_aide(void);

/* Registers a descriptor to be closed at the end of the case. */
int keep(struct side *side, int fd);
/* close(2) for cases: the end of the case will not close the number again, which may be in use. */
int close_now(int fd);
#define close(fd) close_now(fd)
/* A non-blocking TCP socket. */
int tcp_socket(struct side *side);
int tcp_socket6(struct side *side);
/* A TCP socket bound to a port of the stack's choice and listening; returns its address. */
int tcp_listener(struct side *side, int backlog, struct sockaddr_in *at);
int tcp_listener6(struct side *side, int backlog, struct sockaddr_in6 *at);
/* A peer that neither answers nor refuses: a listener with a full queue. */
struct sockaddr_in silent_peer(void);
/* A port of the peer without a listener. */
struct sockaddr_in closed_port(void);
struct sockaddr_in address_of(struct side *side, int port);
/* Makes the descriptor blocking or non-blocking. */
void set_blocking(struct side *side, int fd, bool blocks);
/* My connecting socket, which gets no answer. */
int connecting(void);
/* My socket after a refused connection, with its error still pending. */
int refused(void);
/* Ends a connection with a reset. */
void reset_by(struct side *side, int fd);
/* Writes until it would block; returns the number of bytes. */
long fill(struct side *side, int fd);
/* Reads until it would block or the end comes; returns the number of bytes. */
long drain(struct side *side, int fd);
/* Adds the error that SO_ERROR returns. */
void try_so_error(int fd);
/* Adds all events that poll reports now. */
void try_poll(int fd);
/* Adds an address. Parts that differ between runs are replaced by words: `2:me:port`. */
void note_address(const struct sockaddr *address, socklen_t len);

/* An epoll of mine. */
int epoll_new(void);
/* Adds a descriptor with events and data. */
long epoll_add(int epoll, int fd, uint32_t events, uint64_t data);
long epoll_mod(int epoll, int fd, uint32_t events, uint64_t data);
long epoll_del(int epoll, int fd);
/* Adds the events that epoll_wait reports at once, sorted by data: `[1:IN 7:OUT|HUP]`. */
void try_events(int epoll);
/* Adds events, after waiting up to the timeout. */
void try_events_within(int epoll, int timeout_ms);
/* Adds up to `max` events. */
void try_events_max(int epoll, int max, int timeout_ms);

#endif
