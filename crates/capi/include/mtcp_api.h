/*
 * libmtcp: the socket calls of Millstream for C, by the names that mTCP gave them.
 *
 * Every call takes a context (one stack, made by mtcp_create_context on the thread that will use
 * it) and, where there is one, a socket descriptor of that context. Descriptors are small numbers,
 * the lowest free first, below the context's max_concurrency; each context counts its own, and they
 * are no descriptors of the kernel. Calls return -1 and set errno as the kernel's calls of the same
 * name do. A context that another thread made answers EPERM, one that is gone EINVAL.
 *
 * The first half of this file is the API as mTCP published it; the second half goes beyond it in
 * the same style, unless MTCP_PUBLISHED_ONLY is defined, for programs that have names like these of
 * their own. Manual pages: mtcp(7), and one in section 3 for each call.
 */
#ifndef MTCP_API_H
#define MTCP_API_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/socket.h>
#include <netinet/in.h>
#include <sys/uio.h>

#ifndef UNUSED
#define UNUSED(x) (void)x
#endif

/* "Any port": the stack chooses a local port whose answers arrive at the context's own queue. */
#ifndef INPORT_ANY
#define INPORT_ANY (uint16_t)0
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* What a descriptor is. */
enum socket_type {
    MTCP_SOCK_UNUSED,
    MTCP_SOCK_STREAM,
    MTCP_SOCK_PROXY,
    MTCP_SOCK_LISTENER,
    MTCP_SOCK_EPOLL,
    MTCP_SOCK_PIPE
};

/* Settings that a program may read and change: before mtcp_init as defaults of its file, after it
 * over what the file said, until the first context is made. */
struct mtcp_conf {
    int num_cores;       /* contexts that may be made */
    int max_concurrency; /* descriptors, and connections, of each context */

    int max_num_buffers; /* socket buffers of each context */
    int rcvbuf_size;     /* receive buffer of a socket, in bytes */
    int sndbuf_size;     /* send buffer of a socket, in bytes */

    int tcp_timewait; /* TIME_WAIT, in seconds */
    int tcp_timeout;  /* how long a connection may be idle, in seconds; not positive: for ever */
};

typedef struct mtcp_context *mctx_t;

/* Reads the configuration: mTCP's grammar, or TOML from a file whose name ends in .toml. NULL: the
 * file that the environment's MILLSTREAM_CONFIG names, else the defaults. -1 after a line on
 * standard error that names file, line and cause. */
int mtcp_init(const char *config_file);

/* Ends what mtcp_init began. Contexts that are still there stay usable until their owners
 * destroy them. */
void mtcp_destroy(void);

int mtcp_getconf(struct mtcp_conf *conf);
int mtcp_setconf(const struct mtcp_conf *conf);

/* Binds the calling thread to a CPU: cpu modulo those online. */
int mtcp_core_affinitize(int cpu);

/* A context for the calling thread, with the stack number cpu of mtcp_conf.num_cores; it need not
 * be a CPU's number. NULL with errno EINVAL (no such number, no mtcp_init), EEXIST (taken already),
 * or why the wire cannot be opened. */
mctx_t mtcp_create_context(int cpu);

/* Closes what the context holds, and the context. */
void mtcp_destroy_context(mctx_t mctx);

typedef void (*mtcp_sighandler_t)(int);

/* As signal(2); in addition, calls that wait in any context return -1 with EINTR once the
 * handler has run. */
mtcp_sighandler_t mtcp_register_signal(int signum, mtcp_sighandler_t handler);

/* A pipe within the context: pipeid[0] to read, pipeid[1] to write. */
int mtcp_pipe(mctx_t mctx, int pipeid[2]);

int mtcp_getsockopt(mctx_t mctx, int sockid, int level, int optname, void *optval, socklen_t *optlen);
int mtcp_setsockopt(mctx_t mctx, int sockid, int level, int optname, const void *optval, socklen_t optlen);

int mtcp_setsock_nonblock(mctx_t mctx, int sockid);

/* FIONREAD, FIONBIO, SIOCINQ, SIOCOUTQ, SIOCOUTQNSD. */
int mtcp_socket_ioctl(mctx_t mctx, int sockid, int request, void *argp);

/* domain: AF_INET or AF_INET6; type: SOCK_STREAM, with SOCK_NONBLOCK if wanted. */
int mtcp_socket(mctx_t mctx, int domain, int type, int protocol);
int mtcp_bind(mctx_t mctx, int sockid, const struct sockaddr *addr, socklen_t addrlen);
int mtcp_listen(mctx_t mctx, int sockid, int backlog);
int mtcp_accept(mctx_t mctx, int sockid, struct sockaddr *addr, socklen_t *addrlen);

/* Connections that this context opens from now on use num_addr local addresses from saddr_base on
 * in turn (INADDR_ANY: ours), and local ports whose answers arrive at the context's own queue.
 * Addresses and port in network byte order. EADDRNOTAVAIL: one of the addresses is not ours;
 * connections leave from our own then. */
int mtcp_init_rss(mctx_t mctx, in_addr_t saddr_base, int num_addr, in_addr_t daddr, in_addr_t dport);

int mtcp_connect(mctx_t mctx, int sockid, const struct sockaddr *addr, socklen_t addrlen);
int mtcp_close(mctx_t mctx, int sockid);

/* Closes a socket and resets its connection. */
int mtcp_abort(mctx_t mctx, int sockid);

int mtcp_getsockname(mctx_t mctx, int sockid, struct sockaddr *addr, socklen_t *addrlen);
int mtcp_getpeername(mctx_t mctx, int sockid, struct sockaddr *addr, socklen_t *addrlen);

ssize_t mtcp_read(mctx_t mctx, int sockid, char *buf, size_t len);
ssize_t mtcp_recv(mctx_t mctx, int sockid, char *buf, size_t len, int flags);
int mtcp_readv(mctx_t mctx, int sockid, const struct iovec *iov, int numIOV);
ssize_t mtcp_write(mctx_t mctx, int sockid, const char *buf, size_t len);
int mtcp_writev(mctx_t mctx, int sockid, const struct iovec *iov, int numIOV);

#ifndef MTCP_PUBLISHED_ONLY

/*
 * Beyond mTCP.
 */

struct pollfd;

ssize_t mtcp_send(mctx_t mctx, int sockid, const void *buf, size_t len, int flags);
ssize_t mtcp_sendto(mctx_t mctx, int sockid, const void *buf, size_t len, int flags,
                    const struct sockaddr *addr, socklen_t addrlen);
ssize_t mtcp_recvfrom(mctx_t mctx, int sockid, void *buf, size_t len, int flags,
                      struct sockaddr *addr, socklen_t *addrlen);
ssize_t mtcp_sendmsg(mctx_t mctx, int sockid, const struct msghdr *msg, int flags);
ssize_t mtcp_recvmsg(mctx_t mctx, int sockid, struct msghdr *msg, int flags);

/* Received bytes without a copy: *bytes leads to the next ones where they lie, up to 4 KiB, and the
 * value is how many; 0 at the end of the stream. They stay until they are consumed or read, or the
 * socket is closed. Waits as mtcp_read does. EOPNOTSUPP while urgent data waits: use mtcp_recv. */
ssize_t mtcp_lend(mctx_t mctx, int sockid, const void **bytes);

/* Takes the first len of the lent bytes out of the stream. EINVAL: there are fewer. */
int mtcp_consume(mctx_t mctx, int sockid, size_t len);

/* how: SHUT_RD, SHUT_WR, SHUT_RDWR. */
int mtcp_shutdown(mctx_t mctx, int sockid, int how);

/* flags: SOCK_NONBLOCK; SOCK_CLOEXEC changes nothing. */
int mtcp_accept4(mctx_t mctx, int sockid, struct sockaddr *addr, socklen_t *addrlen, int flags);

/* As poll(2), with descriptors of the context; include <poll.h>. */
int mtcp_poll(mctx_t mctx, struct pollfd *fds, unsigned long nfds, int timeout_ms);

/* F_GETFL and F_SETFL (O_NONBLOCK), F_GETFD and F_SETFD. */
int mtcp_fcntl(mctx_t mctx, int sockid, int cmd, ...);

/* As eventfd(2). Read and written by mtcp_read and mtcp_write; other threads write to its
 * mtcp_kernel_fd. */
int mtcp_eventfd(mctx_t mctx, unsigned int initval, int flags);

/* A descriptor of the context for one of the kernel's (a UDP or UNIX socket, a timerfd, a pipe …),
 * so that mtcp_epoll_ctl, mtcp_poll and the calls above take it, but mtcp_bind, mtcp_listen and
 * mtcp_connect. mtcp_close of it leaves the kernel's open. EPERM: it cannot be polled. */
int mtcp_attach_fd(mctx_t mctx, int fd);

/* The kernel's descriptor behind one of mtcp_attach_fd, mtcp_eventfd or mtcp_pipe. EINVAL: there
 * is none. */
int mtcp_kernel_fd(mctx_t mctx, int sockid);

/* A table or a pool: what is in use, and of how many. */
struct mtcp_pool {
    unsigned int used;
    unsigned int total;
};

/* How full the tables and pools of a context are. At each limit there is an answer:
 * mtcp_getusage(3). */
struct mtcp_usage {
    struct mtcp_pool descriptors;     /* numbers of the context */
    struct mtcp_pool sockets;         /* connections and listeners, also closed ones that are not over */
    struct mtcp_pool half_open;       /* handshakes in progress */
    struct mtcp_pool time_wait;       /* connections in TIME_WAIT */
    struct mtcp_pool small_chunks;    /* memory of socket buffers, 256 bytes each */
    struct mtcp_pool large_chunks;    /* 4 KiB each */
    struct mtcp_pool segment_records; /* of segments in flight */
    struct mtcp_pool range_blocks;    /* of ranges that arrived out of order */
    struct mtcp_pool packed_blocks;   /* that quiet sockets are packed in */
};

int mtcp_getusage(mctx_t mctx, struct mtcp_usage *usage);

/* Something that a context's stack counts: frames, retransmissions, drops, limits that were
 * reached. */
struct mtcp_counter {
    char name[40];
    uint64_t value; /* since the context was made */
};

/* Tells at most max counters of a context, always in the same order; how many there are. */
int mtcp_getcounters(mctx_t mctx, struct mtcp_counter *counters, int max);

#endif /* MTCP_PUBLISHED_ONLY */

#ifdef __cplusplus
}
#endif

#endif /* MTCP_API_H */
