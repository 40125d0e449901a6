/*
 * libmtcp: Millstream's socket calls for C, under mTCP's names.
 *
 * Every call takes a context, which is one stack, made by mtcp_create_context on the thread that
 * will use it. Most calls also take a socket descriptor of that context. Descriptors are small
 * numbers below the context's max_concurrency, the lowest free one first. Each context has its
 * own, and they are not kernel descriptors. Calls return -1 and set errno as the kernel's calls of
 * the same name do. With another thread's context they fail with EPERM, with a destroyed one with
 * EINVAL.
 *
 * The first half of this file is the API that mTCP published. The second half adds calls in the
 * same style. Programs with names of their own that clash define MTCP_PUBLISHED_ONLY to omit it.
 * Manual pages: mtcp(7), and one in section 3 for each call.
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

/* Any port: the stack chooses a local port whose answers arrive at the context's own queue. */
#ifndef INPORT_ANY
#define INPORT_ANY (uint16_t)0
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The kind of a descriptor. */
enum socket_type {
    MTCP_SOCK_UNUSED,
    MTCP_SOCK_STREAM,
    MTCP_SOCK_PROXY,
    MTCP_SOCK_LISTENER,
    MTCP_SOCK_EPOLL,
    MTCP_SOCK_PIPE
};

/* Settings that a program may read and change. Set before mtcp_init they are defaults for its file,
 * set after it they override the file. They can change until the first context is made. */
struct mtcp_conf {
    int num_cores;       /* number of contexts */
    int max_concurrency; /* descriptors, and connections, of each context */

    int max_num_buffers; /* socket buffers of each context */
    int rcvbuf_size;     /* receive buffer of a socket, in bytes */
    int sndbuf_size;     /* send buffer of a socket, in bytes */

    int tcp_timewait; /* TIME_WAIT, in seconds */
    int tcp_timeout;  /* longest idle time of a connection, in seconds; not positive: no limit */
};

typedef struct mtcp_context *mctx_t;

/* Reads the configuration: mTCP's grammar, or TOML from a file whose name ends in .toml. NULL means
 * the file in the environment variable MILLSTREAM_CONFIG, or the defaults. On an error prints a
 * line with file, line and cause to standard error, and returns -1. */
int mtcp_init(const char *config_file);

/* Ends what mtcp_init began. Existing contexts stay usable until their owners destroy them. */
void mtcp_destroy(void);

int mtcp_getconf(struct mtcp_conf *conf);
int mtcp_setconf(const struct mtcp_conf *conf);

/* Binds the calling thread to an online CPU: number cpu modulo their count. */
int mtcp_core_affinitize(int cpu);

/* Makes a context for the calling thread. cpu is the number of its stack, below
 * mtcp_conf.num_cores; it need not be a CPU's number. Returns NULL with errno EINVAL (no such
 * number, or no mtcp_init), EEXIST (number in use), or the error of a wire that does not open. */
mctx_t mtcp_create_context(int cpu);

/* Closes all sockets of the context, and the context. */
void mtcp_destroy_context(mctx_t mctx);

typedef void (*mtcp_sighandler_t)(int);

/* As signal(2). In addition, once the handler has run, waiting calls in all contexts return -1 with
 * EINTR. */
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

/* From now on, connections of this context use num_addr local addresses from saddr_base on in turn
 * (INADDR_ANY: the context's own), and local ports whose answers arrive at the context's own queue.
 * Addresses and port are in network byte order. EADDRNOTAVAIL: an address is not ours; connections
 * then leave from our own address. */
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

/* Received bytes without a copy: sets *bytes to the next bytes in the receive buffer and returns
 * their number, up to 4 KiB; 0 at the end of the stream. The bytes stay until they are consumed or
 * read, or the socket is closed. Waits as mtcp_read does. EOPNOTSUPP while urgent data waits: use
 * mtcp_recv then. */
ssize_t mtcp_lend(mctx_t mctx, int sockid, const void **bytes);

/* Takes the first len of the lent bytes out of the stream. EINVAL if there are fewer. */
int mtcp_consume(mctx_t mctx, int sockid, size_t len);

/* how: SHUT_RD, SHUT_WR, SHUT_RDWR. */
int mtcp_shutdown(mctx_t mctx, int sockid, int how);

/* flags: SOCK_NONBLOCK; SOCK_CLOEXEC has no effect. */
int mtcp_accept4(mctx_t mctx, int sockid, struct sockaddr *addr, socklen_t *addrlen, int flags);

/* As poll(2), with descriptors of the context; include <poll.h>. */
int mtcp_poll(mctx_t mctx, struct pollfd *fds, unsigned long nfds, int timeout_ms);

/* F_GETFL and F_SETFL (O_NONBLOCK), F_GETFD and F_SETFD. */
int mtcp_fcntl(mctx_t mctx, int sockid, int cmd, ...);

/* As eventfd(2). mtcp_read and mtcp_write read and write it; other threads write to its
 * mtcp_kernel_fd. */
int mtcp_eventfd(mctx_t mctx, unsigned int initval, int flags);

/* Makes a descriptor of the context for a kernel descriptor (a UDP or UNIX socket, a timerfd, a
 * pipe, ...). mtcp_epoll_ctl, mtcp_poll and the calls above then accept it, except mtcp_bind,
 * mtcp_listen and mtcp_connect. mtcp_close leaves the kernel descriptor open. EPERM: it cannot be
 * polled. */
int mtcp_attach_fd(mctx_t mctx, int fd);

/* The kernel descriptor behind a descriptor of mtcp_attach_fd, mtcp_eventfd or mtcp_pipe. EINVAL if
 * there is none. */
int mtcp_kernel_fd(mctx_t mctx, int sockid);

/* A table or a pool: entries in use, and entries in all. */
struct mtcp_pool {
    unsigned int used;
    unsigned int total;
};

/* The use of a context's tables and pools. mtcp_getusage(3) says what happens when one is full. */
struct mtcp_usage {
    struct mtcp_pool descriptors;     /* numbers of the context */
    struct mtcp_pool sockets;         /* connections and listeners, until their end */
    struct mtcp_pool half_open;       /* handshakes in progress */
    struct mtcp_pool time_wait;       /* connections in TIME_WAIT */
    struct mtcp_pool small_chunks;    /* chunks of socket buffers, 256 bytes each */
    struct mtcp_pool large_chunks;    /* chunks of socket buffers, 4 KiB each */
    struct mtcp_pool segment_records; /* records of segments in flight */
    struct mtcp_pool range_blocks;    /* blocks of byte ranges that arrived out of order */
    struct mtcp_pool packed_blocks;   /* blocks that hold packed state of quiet sockets */
};

int mtcp_getusage(mctx_t mctx, struct mtcp_usage *usage);

/* A counter of a context's stack: frames, retransmissions, drops, limits that were reached. */
struct mtcp_counter {
    char name[40];
    uint64_t value; /* counted since the context was made */
};

/* Writes up to max counters of a context, always in the same order. Returns their total number. */
int mtcp_getcounters(mctx_t mctx, struct mtcp_counter *counters, int max);

#endif /* MTCP_PUBLISHED_ONLY */

#ifdef __cplusplus
}
#endif

#endif /* MTCP_API_H */
