/*
 * What a case is written with.
 *
 * A case is a conversation of calls between me, who am under test, and a peer, who is the kernel.
 * Built with -DON_KERNEL, CALL(read, fd, buf, n) is read(2); built without, it is mtcp_read() on my
 * context. TRY makes the call and puts what it returned into the case's line: `read=5`,
 * `read=-EAGAIN`. A Rust test plays both programs and compares the lines (main.rs).
 *
 * Compiled with -D_GNU_SOURCE. A case leaves nothing behind: what is opened through the helpers is
 * closed when it ends.
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

/* One end of the conversations: its addresses. */
struct side {
    const char *ip;
    const char *ip6;
};

/* I; a peer whose calls the same thread makes; and an aide, who has a thread for what shall
 * happen while I wait (aide_do, later). */
extern struct side me, peer, aide;

/* The call, mine or another's. */
#define CALL(name, ...) MINE(name, __VA_ARGS__)
#define PEER(name, ...) name(__VA_ARGS__)
#define AIDE(name, ...) name(__VA_ARGS__)
/* The call of whoever it is. */
#define ON(side, name, ...) ((side) == &me ? MINE(name, __VA_ARGS__) : name(__VA_ARGS__))

/* The call, and its outcome into the line. */
#define TRY(name, ...) said(#name, (errno = 0, (long)CALL(name, __VA_ARGS__)))
#define TRY_PEER(name, ...) said("peer-" #name, (errno = 0, (long)PEER(name, __VA_ARGS__)))

/* Adds `name=value`, or `name=-ERRNO` if it is negative. Returns the value. */
long said(const char *name, long value);
/* Adds text as it is. */
void note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A case. Its name is the state, then the event. */
typedef void (*case_fn)(const void *, const void *);
void add_case(const char *name, case_fn run, const void *first, const void *second);
#define CASE(name)                                                                                                              \
    static void name(const void *, const void *);                                                                               \
    __attribute__((constructor)) static void add_##name(void) { add_case(#name, name, NULL, NULL); }                            \
    static void name(const void *first __attribute__((unused)), const void *second __attribute__((unused)))

/* Lets what was done take effect at both ends. */
void settle(void);
/* Lets that many milliseconds pass, with both ends at work. */
void pass_ms(int ms);
/* Waits, a second at most, until the descriptor is ready for one of the events; whether it is. */
bool await(struct side *side, int fd, short events);
/* Runs it on the aide's thread, and waits for it. */
void aide_do(void (*run)(void *), void *argument);
/* The same after so many milliseconds, without waiting; the case's end does. One at a time. */
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
/* The same over IPv6. */
struct pair connected6(void);
/* The other way round: mine accepted. `listener`, if not NULL, is left open and told. */
struct pair accepted(int *listener);

/* My connected socket, which blocks, and the aide's, which does not. */
struct pair with_aide(void);
/* The address of a listener of the aide's. */
struct sockaddr_in listening_aide(void);

/* Closes at the case's end. */
int keep(struct side *side, int fd);
/* As close(2); what is closed so is not closed again at the case's end, when its number may be
 * somebody else's. */
int close_now(int fd);
#define close(fd) close_now(fd)
/* A non-blocking TCP socket. */
int tcp_socket(struct side *side);
int tcp_socket6(struct side *side);
/* The same, bound to a port of the stack's choice and listening; the address is told. */
int tcp_listener(struct side *side, int backlog, struct sockaddr_in *at);
int tcp_listener6(struct side *side, int backlog, struct sockaddr_in6 *at);
/* A peer that neither answers nor refuses: a listener with a full queue. */
struct sockaddr_in silent_peer(void);
/* A port of the peer's at which nobody listens. */
struct sockaddr_in closed_port(void);
struct sockaddr_in address_of(struct side *side, int port);
/* Makes the descriptor block, or not. */
void set_blocking(struct side *side, int fd, bool blocks);
/* My connecting socket that nobody answers. */
int connecting(void);
/* My socket after its connection was refused, with the error still to be taken. */
int refused(void);
/* Ends a connection with a reset. */
void reset_by(struct side *side, int fd);
/* Writes until it would block; the bytes. */
long fill(struct side *side, int fd);
/* Reads until it would block or ends; the bytes. */
long drain(struct side *side, int fd);
/* Adds the error that SO_ERROR tells. */
void try_so_error(int fd);
/* Adds what poll says of the descriptor, asked for everything, now. */
void try_poll(int fd);
/* Adds an address with what differs from run to run told as words: `2:me:port`. */
void note_address(const struct sockaddr *address, socklen_t len);

/* An epoll of mine. */
int epoll_new(void);
/* Adds a descriptor with events and data. */
long epoll_add(int epoll, int fd, uint32_t events, uint64_t data);
long epoll_mod(int epoll, int fd, uint32_t events, uint64_t data);
long epoll_del(int epoll, int fd);
/* Adds what epoll_wait tells without waiting: `[1:IN 7:OUT|HUP]`, in the order of data. */
void try_events(int epoll);
/* The same, and waits for that long. */
void try_events_within(int epoll, int timeout_ms);
/* The same, for so many events at most. */
void try_events_max(int epoll, int max, int timeout_ms);

#endif
