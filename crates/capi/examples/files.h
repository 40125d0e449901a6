/*
 * The web server's document cache: all files of a directory in memory, found by their path. It
 * does not use the network.
 */
#ifndef EXAMPLES_FILES_H
#define EXAMPLES_FILES_H

#include <stddef.h>

struct file {
    char *path; /* path as in a URL, with a leading slash */
    char *bytes;
    size_t length;
    const char *type;
};

struct files {
    struct file *list; /* sorted by path */
    size_t count;
};

/* Reads all regular files below the directory. An unreadable file ends the program. */
void files_load(struct files *files, const char *directory);
/* The file at a path, or NULL. A path that ends with a slash means its index.html. */
const struct file *files_find(const struct files *files, const char *path);
void files_free(struct files *files);

#endif
