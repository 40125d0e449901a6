/*
 * A program that includes a header of mTCP's sources and links the archive by its name. Built by
 * the Makefile beside it, in a tree that tree.rs lays out.
 */
#include <stdio.h>
#include <stdlib.h>

#include <mtcp_api.h>
#include <eventpoll.h>

int main(int argc, char **argv)
{
    struct mtcp_epoll_event event;
    mctx_t mctx;
    int epoll;

    if (argc < 2 || mtcp_init(argv[1]) < 0)
        return EXIT_FAILURE;
    mctx = mtcp_create_context(0);
    if (!mctx)
        return EXIT_FAILURE;
    epoll = mtcp_epoll_create(mctx, 16);
    if (epoll < 0 || mtcp_epoll_wait(mctx, epoll, &event, 1, 0) != 0)
        return EXIT_FAILURE;
    mtcp_destroy_context(mctx);
    mtcp_destroy();
    puts("done");
    return 0;
}
