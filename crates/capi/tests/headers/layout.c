/*
 * The published types have the published sizes, places and values. Compiled, never run.
 */
#include <assert.h>
#include <stddef.h>

#include <mtcp_epoll.h>

#ifndef __cplusplus
#define static_assert _Static_assert
#endif

/* `struct mtcp_conf`: seven ints in this order. */
static_assert(sizeof(struct mtcp_conf) == 7 * sizeof(int), "mtcp_conf");
static_assert(offsetof(struct mtcp_conf, num_cores) == 0 * sizeof(int), "num_cores");
static_assert(offsetof(struct mtcp_conf, max_concurrency) == 1 * sizeof(int), "max_concurrency");
static_assert(offsetof(struct mtcp_conf, max_num_buffers) == 2 * sizeof(int), "max_num_buffers");
static_assert(offsetof(struct mtcp_conf, rcvbuf_size) == 3 * sizeof(int), "rcvbuf_size");
static_assert(offsetof(struct mtcp_conf, sndbuf_size) == 4 * sizeof(int), "sndbuf_size");
static_assert(offsetof(struct mtcp_conf, tcp_timewait) == 5 * sizeof(int), "tcp_timewait");
static_assert(offsetof(struct mtcp_conf, tcp_timeout) == 6 * sizeof(int), "tcp_timeout");

/* An event is not packed. */
static_assert(sizeof(mtcp_epoll_data_t) == 8, "mtcp_epoll_data_t");
static_assert(sizeof(struct mtcp_epoll_event) == 16, "mtcp_epoll_event");
static_assert(offsetof(struct mtcp_epoll_event, events) == 0, "events");
static_assert(offsetof(struct mtcp_epoll_event, data) == 8, "data");
static_assert(sizeof(((struct mtcp_epoll_event *)0)->events) == 4, "events");
static_assert(sizeof(((struct mtcp_epoll_event *)0)->data.sockid) == sizeof(int), "sockid");
static_assert(sizeof(((struct mtcp_epoll_event *)0)->data.u32) == 4, "u32");
static_assert(sizeof(((struct mtcp_epoll_event *)0)->data.u64) == 8, "u64");
static_assert(sizeof(((struct mtcp_epoll_event *)0)->data.ptr) == sizeof(void *), "ptr");

static_assert(sizeof(mctx_t) == sizeof(void *), "mctx_t");

static_assert(MTCP_SOCK_UNUSED == 0 && MTCP_SOCK_STREAM == 1 && MTCP_SOCK_PROXY == 2, "socket_type");
static_assert(MTCP_SOCK_LISTENER == 3 && MTCP_SOCK_EPOLL == 4 && MTCP_SOCK_PIPE == 5, "socket_type");

static_assert(MTCP_EPOLL_CTL_ADD == 1 && MTCP_EPOLL_CTL_DEL == 2 && MTCP_EPOLL_CTL_MOD == 3, "mtcp_epoll_op");

static_assert(MTCP_EPOLLNONE == 0 && MTCP_EPOLLIN == 1 && MTCP_EPOLLPRI == 2 && MTCP_EPOLLOUT == 4, "mtcp_event_type");
static_assert(MTCP_EPOLLERR == 8 && MTCP_EPOLLHUP == 0x10 && MTCP_EPOLLRDHUP == 0x2000, "mtcp_event_type");
static_assert(MTCP_EPOLLRDNORM == 0x40 && MTCP_EPOLLRDBAND == 0x80, "mtcp_event_type");
static_assert(MTCP_EPOLLWRNORM == 0x100 && MTCP_EPOLLWRBAND == 0x200 && MTCP_EPOLLMSG == 0x400, "mtcp_event_type");
static_assert((uint32_t)MTCP_EPOLLONESHOT == 1u << 30 && (uint32_t)MTCP_EPOLLET == 1u << 31, "mtcp_event_type");

static_assert(INPORT_ANY == 0 && sizeof(INPORT_ANY) == 2, "INPORT_ANY");

/* Each call with the types that programs hand it. */
int use_all(mctx_t mctx, struct mtcp_conf *conf, struct sockaddr *addr, socklen_t *len, struct iovec *iov, char *buf, struct mtcp_epoll_event *event);

int use_all(mctx_t mctx, struct mtcp_conf *conf, struct sockaddr *addr, socklen_t *len, struct iovec *iov, char *buf, struct mtcp_epoll_event *event)
{
    int (*connect_it)(mctx_t, int, const struct sockaddr *, socklen_t) = mtcp_connect;
    ssize_t (*write_it)(mctx_t, int, const char *, size_t) = mtcp_write;
    int ends[2];

    UNUSED(connect_it);
    UNUSED(write_it);
    return mtcp_getconf(conf) + mtcp_setconf(conf) + mtcp_pipe(mctx, ends) + mtcp_accept(mctx, 1, addr, len) + mtcp_readv(mctx, 1, iov, 1)
           + (int)mtcp_read(mctx, 1, buf, 1) + mtcp_epoll_wait(mctx, 1, event, 1, -1) + mtcp_fcntl(mctx, 1, 3) + mtcp_fcntl(mctx, 1, 4, 0)
           + mtcp_init_rss(mctx, INADDR_ANY, 1, INADDR_ANY, 0) + (EventToString(MTCP_EPOLLIN) != NULL);
}
