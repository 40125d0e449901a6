/*
 * The document cache of the web server: all files of a directory in memory, found by their path.
 * Nothing of networks here.
 */
#ifndef EXAMPLES_FILES_H
#define EXAMPLES_FILES_H

#include <stddef.h>

struct file {
    char *path; /* as in a URL: begins with a slash */
    char *bytes;
    size_t length;
    const char *type;
};

struct files {
    struct file *list; /* in the order of their paths */
    size_t count;
};

/* Reads all regular files below the directory. What cannot be read ends the program. */
void files_load(struct files *files, const char *directory);
/* NULL: there is none. A path that ends with a slash means the index.html there. */
const struct file *files_find(const struct files *files, const char *path);
void files_free(struct files *files);

#endif
