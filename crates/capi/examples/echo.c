/*
 * echo: the smallest server: one context, one connection at a time, blocking calls.
 *
 *   echo [-f CONFIG] [-p PORT]
 *
 * Programs written for sockets need to learn little. accept, read and write sleep while there is
 * nothing to do, and return the same values as in libc. Only the context is new, the first
 * argument of every call.
 */
#include <unistd.h>

#include "common.h"

static void serve(mctx_t mctx, int sockid)
{
    char bytes[8192];
    ssize_t count;

    while ((count = mtcp_read(mctx, sockid, bytes, sizeof bytes)) > 0) {
        /* A blocking socket takes all bytes, or fails. */
        if (mtcp_write(mctx, sockid, bytes, (size_t)count) < count)
            break;
    }
    mtcp_close(mctx, sockid);
}

static int listen_at(mctx_t mctx, int port)
{
    struct sockaddr_in at;
    int listener = mtcp_socket(mctx, AF_INET, SOCK_STREAM, 0);

    if (listener < 0)
        die("mtcp_socket");
    memset(&at, 0, sizeof at);
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_ANY);
    at.sin_port = htons((uint16_t)port);
    if (mtcp_bind(mctx, listener, (struct sockaddr *)&at, sizeof at) < 0)
        die("mtcp_bind");
    if (mtcp_listen(mctx, listener, 64) < 0)
        die("mtcp_listen");
    return listener;
}

int main(int argc, char **argv)
{
    const char *config = NULL;
    int option, listener, port = 7;
    mctx_t mctx;

    while ((option = getopt(argc, argv, "f:p:")) != -1) {
        if (option == 'f')
            config = optarg;
        else if (option == 'p')
            port = (int)number("-p", optarg, 1, 65535);
        else
            return 2;
    }
    start(config, 1);
    end_on_signals();
    mctx = mtcp_create_context(0);
    if (!mctx)
        die("mtcp_create_context");
    listener = listen_at(mctx, port);
    printf("echo: ready at port %d\n", port);
    fflush(stdout);

    while (!is_over) {
        int sockid = mtcp_accept(mctx, listener, NULL, NULL);

        if (sockid >= 0)
            serve(mctx, sockid);
        else if (errno != EINTR && errno != ECONNABORTED)
            die("mtcp_accept");
    }
    mtcp_destroy_context(mctx);
    mtcp_destroy();
    return 0;
}
