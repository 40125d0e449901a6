/*
 * Parts that these programs share: command lines, results, time. They are written like mTCP
 * programs, each in a style of its own, and do not know that their libmtcp is Millstream's.
 * ports.rs says how they are built and run.
 */
#ifndef PORTS_H
#define PORTS_H

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define MAX_CPUS 16
#ifndef TRUE
#define TRUE (1)
#endif
#ifndef FALSE
#define FALSE (0)
#endif

/* The byte of a document at an offset. The document's name is its length. */
static inline char document_byte(size_t at)
{
    return (char)('a' + at * 31 / 7 % 26);
}

static inline long now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

#endif
