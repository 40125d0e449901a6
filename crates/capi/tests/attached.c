/*
 * Kernel sockets in a context: addresses, control messages, options, listeners. Nothing raises
 * SIGPIPE.
 *
 *   attached CONFIG
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <mtcp_api.h>
#include <mtcp_epoll.h>

#include "common/must.h"

static mctx_t mctx;

#define REFUSED(call, why) MUST((call) == -1 && errno == (why))

/* Attaches a descriptor and closes the program's own. */
static int attached(int fd)
{
    int sockid = mtcp_attach_fd(mctx, fd);

    MUST(sockid > 0);
    close(fd);
    return sockid;
}

static int udp(struct sockaddr_in *at)
{
    socklen_t len = sizeof *at;
    int fd = socket(AF_INET, SOCK_DGRAM, 0), sockid;

    memset(at, 0, sizeof *at);
    at->sin_family = AF_INET;
    at->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    MUST(bind(fd, (struct sockaddr *)at, sizeof *at) == 0);
    sockid = attached(fd);
    MUST(mtcp_getsockname(mctx, sockid, (struct sockaddr *)at, &len) == 0 && len == sizeof *at && at->sin_port != 0);
    return sockid;
}

struct later {
    int fd;
    struct sockaddr_in to;
};

static void *send_later(void *argument)
{
    struct later *later = (struct later *)argument;
    struct timespec pause = {0, 20000000};

    nanosleep(&pause, NULL);
    MUST(sendto(later->fd, "late", 4, 0, (struct sockaddr *)&later->to, sizeof later->to) == 4);
    return NULL;
}

static void datagrams_have_addresses(void)
{
    struct sockaddr_in here, there, from;
    socklen_t len = sizeof from;
    char bytes[100];
    int a = udp(&here), b = udp(&there), type = 0, room = 100000;
    struct later later;
    pthread_t thread;

    MUST(mtcp_sendto(mctx, a, "hello", 5, 0, (struct sockaddr *)&there, sizeof there) == 5);
    MUST(mtcp_recvfrom(mctx, b, bytes, sizeof bytes, 0, (struct sockaddr *)&from, &len) == 5 && memcmp(bytes, "hello", 5) == 0);
    MUST(len == sizeof from && from.sin_port == here.sin_port && from.sin_addr.s_addr == here.sin_addr.s_addr);
    REFUSED(mtcp_recvfrom(mctx, b, bytes, sizeof bytes, MSG_DONTWAIT, (struct sockaddr *)&from, &len), EAGAIN);
    /* This call waits asleep. */
    later.fd = socket(AF_INET, SOCK_DGRAM, 0);
    later.to = there;
    MUST(pthread_create(&thread, NULL, send_later, &later) == 0);
    len = sizeof from;
    MUST(mtcp_recvfrom(mctx, b, bytes, sizeof bytes, 0, (struct sockaddr *)&from, &len) == 4 && memcmp(bytes, "late", 4) == 0);
    pthread_join(thread, NULL);
    close(later.fd);
    len = sizeof type;
    MUST(mtcp_getsockopt(mctx, a, SOL_SOCKET, SO_TYPE, &type, &len) == 0 && type == SOCK_DGRAM);
    MUST(mtcp_setsockopt(mctx, a, SOL_SOCKET, SO_RCVBUF, &room, sizeof room) == 0);
    len = sizeof room;
    MUST(mtcp_getsockopt(mctx, a, SOL_SOCKET, SO_RCVBUF, &room, &len) == 0 && room == 200000);
    len = sizeof from;
    REFUSED(mtcp_getpeername(mctx, a, (struct sockaddr *)&from, &len), ENOTCONN);
    MUST(mtcp_close(mctx, a) == 0 && mtcp_close(mctx, b) == 0);
}

/* Passes a descriptor in a control message. */
static void descriptors_are_passed_on(void)
{
    char control[CMSG_SPACE(sizeof(int))], byte = 'x';
    struct iovec piece = {&byte, 1};
    struct cmsghdr *head;
    struct msghdr message;
    int pair[2], ends[2], passed;

    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 && pipe(ends) == 0);
    pair[0] = attached(pair[0]);
    pair[1] = attached(pair[1]);
    memset(&message, 0, sizeof message);
    memset(control, 0, sizeof control);
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(head), &ends[1], sizeof(int));
    MUST(mtcp_sendmsg(mctx, pair[0], &message, 0) == 1);
    memset(control, 0, sizeof control);
    message.msg_controllen = sizeof control;
    byte = 0;
    MUST(mtcp_recvmsg(mctx, pair[1], &message, 0) == 1 && byte == 'x');
    head = CMSG_FIRSTHDR(&message);
    MUST(head && head->cmsg_type == SCM_RIGHTS);
    memcpy(&passed, CMSG_DATA(head), sizeof(int));
    MUST(write(passed, "y", 1) == 1 && read(ends[0], &byte, 1) == 1 && byte == 'y');
    message.msg_controllen = sizeof control;
    REFUSED(mtcp_recvmsg(mctx, pair[1], &message, MSG_DONTWAIT), EAGAIN);
    MUST(mtcp_shutdown(mctx, pair[0], SHUT_WR) == 0);
    MUST(mtcp_recvmsg(mctx, pair[1], &message, 0) == 0);
    close(passed);
    close(ends[0]);
    close(ends[1]);
    mtcp_close(mctx, pair[0]);
    mtcp_close(mctx, pair[1]);
}

static void listeners_accept_into_the_context(void)
{
    struct sockaddr_un at, from;
    socklen_t len;
    struct mtcp_epoll_event event;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0), client, listener, sockid, epoll = mtcp_epoll_create1(mctx, 0);
    char bytes[10];

    memset(&at, 0, sizeof at);
    at.sun_family = AF_UNIX;
    snprintf(at.sun_path + 1, sizeof at.sun_path - 1, "attached-%d", (int)getpid());
    MUST(bind(fd, (struct sockaddr *)&at, sizeof at) == 0 && listen(fd, 5) == 0);
    listener = attached(fd);
    event.events = MTCP_EPOLLIN;
    event.data.sockid = listener;
    MUST(mtcp_epoll_ctl(mctx, epoll, MTCP_EPOLL_CTL_ADD, listener, &event) == 0);
    REFUSED(mtcp_accept(mctx, listener, NULL, NULL), EAGAIN);
    client = socket(AF_UNIX, SOCK_STREAM, 0);
    MUST(connect(client, (struct sockaddr *)&at, sizeof at) == 0);
    MUST(mtcp_epoll_wait(mctx, epoll, &event, 1, -1) == 1 && event.data.sockid == listener);
    REFUSED(mtcp_accept4(mctx, listener, NULL, NULL, 0x77), EINVAL);
    len = sizeof from;
    sockid = mtcp_accept4(mctx, listener, (struct sockaddr *)&from, &len, SOCK_NONBLOCK);
    MUST(sockid > 0 && from.sun_family == AF_UNIX);
    REFUSED(mtcp_accept(mctx, listener, NULL, NULL), EAGAIN);
    REFUSED(mtcp_read(mctx, sockid, bytes, sizeof bytes), EAGAIN);
    MUST(write(client, "abc", 3) == 3);
    event.data.sockid = sockid;
    MUST(mtcp_epoll_ctl(mctx, epoll, MTCP_EPOLL_CTL_ADD, sockid, &event) == 0);
    MUST(mtcp_epoll_wait(mctx, epoll, &event, 1, -1) == 1 && event.data.sockid == sockid);
    MUST(mtcp_read(mctx, sockid, bytes, sizeof bytes) == 3);
    close(client);
    MUST(mtcp_close(mctx, sockid) == 0 && mtcp_close(mctx, listener) == 0 && mtcp_close(mctx, epoll) == 0);
}

/* A SIGPIPE would end the program. */
static void nothing_raises_a_signal(void)
{
    struct iovec pieces[2] = {{(void *)"a", 1}, {(void *)"b", 1}};
    struct msghdr message;
    int pair[2], ends[2], fds[2];

    memset(&message, 0, sizeof message);
    message.msg_iov = pieces;
    message.msg_iovlen = 2;
    MUST(mtcp_pipe(mctx, ends) == 0 && mtcp_close(mctx, ends[0]) == 0);
    REFUSED(mtcp_write(mctx, ends[1], "x", 1), EPIPE);
    REFUSED(mtcp_writev(mctx, ends[1], pieces, 2), EPIPE);
    REFUSED(mtcp_send(mctx, ends[1], "x", 1, 0), ENOTSOCK);
    REFUSED(mtcp_sendto(mctx, ends[1], "x", 1, 0, (struct sockaddr *)fds, sizeof fds), ENOTSOCK);
    REFUSED(mtcp_shutdown(mctx, ends[1], SHUT_WR), ENOTSOCK);
    MUST(mtcp_close(mctx, ends[1]) == 0);
    /* A blocking pipe of the program. */
    MUST(pipe(fds) == 0);
    close(fds[0]);
    ends[1] = attached(fds[1]);
    REFUSED(mtcp_write(mctx, ends[1], "x", 1), EPIPE);
    MUST(mtcp_close(mctx, ends[1]) == 0);
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    close(pair[0]);
    pair[1] = attached(pair[1]);
    REFUSED(mtcp_write(mctx, pair[1], "x", 1), EPIPE);
    REFUSED(mtcp_writev(mctx, pair[1], pieces, 2), EPIPE);
    REFUSED(mtcp_send(mctx, pair[1], "x", 1, 0), EPIPE);
    REFUSED(mtcp_sendmsg(mctx, pair[1], &message, 0), EPIPE);
    MUST(mtcp_close(mctx, pair[1]) == 0);
}

int main(int argc, char **argv)
{
    MUST(argc == 2 && mtcp_init(argv[1]) == 0);
    mctx = mtcp_create_context(0);
    MUST(mctx != NULL);
    datagrams_have_addresses();
    descriptors_are_passed_on();
    listeners_accept_into_the_context();
    nothing_raises_a_signal();
    mtcp_destroy_context(mctx);
    mtcp_destroy();
    return 0;
}
