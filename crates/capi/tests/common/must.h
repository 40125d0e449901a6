/* Ends a test program if a condition does not hold, and prints the condition. */
#ifndef MUST_H
#define MUST_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MUST(what)                                                                                   \
    do {                                                                                             \
        if (!(what)) {                                                                               \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #what, strerror(errno));         \
            exit(1);                                                                                 \
        }                                                                                            \
    } while (0)

#endif
