/*
 * The two sets of names: libc's and libmtcp's. Only this header knows which one the tested side
 * uses; the peers always use libc's.
 */
#ifndef NAMES_H
#define NAMES_H

#ifdef ON_KERNEL

#define MINE(name, ...) name(__VA_ARGS__)
#define REGISTER_SIGNAL signal
#define EV(name) EPOLL##name
typedef struct epoll_event event_t;

#else

#include <mtcp_api.h>
#include <mtcp_epoll.h>

/* The context of the thread that runs the cases. */
extern mctx_t mctx;

#define MINE(name, ...) mtcp_##name(mctx, __VA_ARGS__)
#define REGISTER_SIGNAL mtcp_register_signal
#define EV(name) ((uint32_t)MTCP_EPOLL##name)
#define mtcp_ioctl mtcp_socket_ioctl
typedef struct mtcp_epoll_event event_t;

#endif

#define DATA_OF(event) ((event).data.u64)

#endif
