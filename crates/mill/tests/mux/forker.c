/*
 * A process that has a context, and its child that makes one of its own. Both answer to one
 * connection: the parent at port 8080, the child at port 8081.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <mtcp_api.h>

static void must(int good, const char *what)
{
    if (!good) {
        perror(what);
        exit(1);
    }
}

static int listen_at(mctx_t mctx, int port)
{
    struct sockaddr_in at;
    int listener = mtcp_socket(mctx, AF_INET, SOCK_STREAM, 0);

    must(listener >= 0, "mtcp_socket");
    memset(&at, 0, sizeof at);
    at.sin_family = AF_INET;
    at.sin_port = htons((uint16_t)port);
    must(mtcp_bind(mctx, listener, (struct sockaddr *)&at, sizeof at) == 0, "mtcp_bind");
    must(mtcp_listen(mctx, listener, 8) == 0, "mtcp_listen");
    return listener;
}

static void answer(mctx_t mctx, int listener, const char *words)
{
    char request[4096];
    int sockid = mtcp_accept(mctx, listener, NULL, NULL);

    must(sockid >= 0, "mtcp_accept");
    must(mtcp_read(mctx, sockid, request, sizeof request) > 0, "mtcp_read");
    must(mtcp_write(mctx, sockid, words, strlen(words)) == (ssize_t)strlen(words), "mtcp_write");
    mtcp_close(mctx, sockid);
    mtcp_close(mctx, listener);
    mtcp_destroy_context(mctx);
    mtcp_destroy();
}

int main(int argc, char **argv)
{
    int listener, status;
    mctx_t mctx;
    pid_t child;

    must(argc == 2 && mtcp_init(argv[1]) == 0, "mtcp_init");
    mctx = mtcp_create_context(0);
    must(mctx != NULL, "mtcp_create_context");
    listener = listen_at(mctx, 8080);
    child = fork();
    must(child >= 0, "fork");
    if (child == 0) {
        mctx = mtcp_create_context(0);
        must(mctx != NULL, "mtcp_create_context of the child");
        listener = listen_at(mctx, 8081);
        puts("ready");
        fflush(stdout);
        answer(mctx, listener, "child");
        return 0;
    }
    answer(mctx, listener, "parent");
    must(waitpid(child, &status, 0) == child, "waitpid");
    return status != 0;
}
