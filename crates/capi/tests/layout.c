/*
 * Sizes, offsets and values that compiled programs rely on, in C and in C++. Compiled with all
 * warnings as errors; run by layout.rs.
 */
#include <mtcp_epoll.h>

#include <stdio.h>
#include <string.h>

#ifdef __cplusplus
#define MUST(what) static_assert(what, #what)
#include <cstddef>
#else
#include <stddef.h>
#define MUST(what) _Static_assert(what, #what)
#endif

MUST(sizeof(struct mtcp_conf) == 7 * sizeof(int));
MUST(offsetof(struct mtcp_conf, num_cores) == 0);
MUST(offsetof(struct mtcp_conf, max_concurrency) == 4);
MUST(offsetof(struct mtcp_conf, max_num_buffers) == 8);
MUST(offsetof(struct mtcp_conf, rcvbuf_size) == 12);
MUST(offsetof(struct mtcp_conf, sndbuf_size) == 16);
MUST(offsetof(struct mtcp_conf, tcp_timewait) == 20);
MUST(offsetof(struct mtcp_conf, tcp_timeout) == 24);

MUST(sizeof(mctx_t) == sizeof(void *));
MUST(sizeof(mtcp_epoll_data_t) == 8);
MUST(sizeof(struct mtcp_epoll_event) == 16);
MUST(offsetof(struct mtcp_epoll_event, events) == 0);
MUST(offsetof(struct mtcp_epoll_event, data) == 8);

MUST(sizeof(struct mtcp_pool) == 8 && sizeof(struct mtcp_usage) == 9 * sizeof(struct mtcp_pool));
MUST(offsetof(struct mtcp_usage, sockets) == 8 && offsetof(struct mtcp_usage, packed_blocks) == 64);
MUST(sizeof(struct mtcp_counter) == 48 && offsetof(struct mtcp_counter, value) == 40);

MUST(MTCP_SOCK_UNUSED == 0 && MTCP_SOCK_STREAM == 1 && MTCP_SOCK_PROXY == 2);
MUST(MTCP_SOCK_LISTENER == 3 && MTCP_SOCK_EPOLL == 4 && MTCP_SOCK_PIPE == 5);
MUST(sizeof(enum socket_type) == sizeof(int));

MUST(MTCP_EPOLL_CTL_ADD == 1 && MTCP_EPOLL_CTL_DEL == 2 && MTCP_EPOLL_CTL_MOD == 3);
MUST(MTCP_EPOLLNONE == 0 && MTCP_EPOLLIN == 0x1 && MTCP_EPOLLPRI == 0x2 && MTCP_EPOLLOUT == 0x4);
MUST(MTCP_EPOLLERR == 0x8 && MTCP_EPOLLHUP == 0x10 && MTCP_EPOLLRDNORM == 0x40 && MTCP_EPOLLRDBAND == 0x80);
MUST(MTCP_EPOLLWRNORM == 0x100 && MTCP_EPOLLWRBAND == 0x200 && MTCP_EPOLLMSG == 0x400 && MTCP_EPOLLRDHUP == 0x2000);
MUST(MTCP_EPOLLONESHOT == 1 << 30);
MUST((uint32_t)MTCP_EPOLLET == (uint32_t)1 << 31);

MUST(INPORT_ANY == 0);
MUST(sizeof(INPORT_ANY) == 2);

/* The types of the calls in mTCP's published API. */
int (*init)(const char *) = mtcp_init;
mctx_t (*create_context)(int) = mtcp_create_context;
int (*socket_of)(mctx_t, int, int, int) = mtcp_socket;
int (*accept_of)(mctx_t, int, struct sockaddr *, socklen_t *) = mtcp_accept;
int (*init_rss)(mctx_t, in_addr_t, int, in_addr_t, in_addr_t) = mtcp_init_rss;
ssize_t (*read_of)(mctx_t, int, char *, size_t) = mtcp_read;
ssize_t (*write_of)(mctx_t, int, const char *, size_t) = mtcp_write;
int (*writev_of)(mctx_t, int, const struct iovec *, int) = mtcp_writev;
int (*wait_of)(mctx_t, int, struct mtcp_epoll_event *, int, int) = mtcp_epoll_wait;
mtcp_sighandler_t (*signal_of)(int, mtcp_sighandler_t) = mtcp_register_signal;

static void unused(int x) { UNUSED(x); }

int main(void)
{
    struct mtcp_conf conf;
    memset(&conf, 0xff, sizeof conf);
    if (mtcp_getconf(&conf) != 0 || conf.num_cores < 1 || conf.max_concurrency != 10000)
        return 1;
    conf.num_cores = 3;
    conf.max_concurrency = 500;
    if (mtcp_setconf(&conf) != 0 || mtcp_getconf(&conf) != 0 || conf.num_cores != 3 || conf.max_concurrency != 500)
        return 2;
    if (strcmp(EventToString(MTCP_EPOLLIN), "IN") != 0)
        return 3;
    unused(0);
    return 0;
}
