/*
 * See files.h.
 */
#include "files.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Descriptors that a walk uses at most. */
#define WALK_FDS 16
#define PATH_LEN_MAX 4096

/* nftw passes no argument to its function. */
static struct files *loading;
static size_t prefix_len;

static void give_up(const char *path)
{
    perror(path);
    exit(1);
}

static const char *type_of(const char *path)
{
    static const char *const types[][2] = {
        {".html", "text/html"}, {".css", "text/css"}, {".js", "text/javascript"}, {".txt", "text/plain"}, {".png", "image/png"}, {".jpg", "image/jpeg"},
    };
    const char *dot = strrchr(path, '.');

    for (size_t i = 0; dot && i < sizeof types / sizeof *types; i++)
        if (strcmp(dot, types[i][0]) == 0)
            return types[i][1];
    return "application/octet-stream";
}

static int load_one(const char *path, const struct stat *status, int kind, struct FTW *place)
{
    struct file file;
    FILE *stream;

    (void)place;
    if (kind != FTW_F)
        return 0;
    file.path = strdup(path + prefix_len);
    file.length = (size_t)status->st_size;
    file.bytes = (char *)malloc(file.length + 1);
    file.type = type_of(path);
    stream = fopen(path, "rb");
    if (!file.path || !file.bytes || !stream || fread(file.bytes, 1, file.length, stream) != file.length)
        give_up(path);
    fclose(stream);
    loading->list = (struct file *)realloc(loading->list, (loading->count + 1) * sizeof file);
    if (!loading->list)
        give_up(path);
    loading->list[loading->count++] = file;
    return 0;
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct file *)a)->path, ((const struct file *)b)->path);
}

void files_load(struct files *files, const char *directory)
{
    files->list = NULL;
    files->count = 0;
    loading = files;
    prefix_len = strlen(directory);
    while (prefix_len > 0 && directory[prefix_len - 1] == '/')
        prefix_len--;
    if (nftw(directory, load_one, WALK_FDS, FTW_PHYS) != 0)
        give_up(directory);
    if (files->count > 0)
        qsort(files->list, files->count, sizeof *files->list, by_path);
}

const struct file *files_find(const struct files *files, const char *path)
{
    char index[PATH_LEN_MAX];
    struct file key;
    size_t len = strlen(path);

    if (files->count == 0)
        return NULL;
    memset(&key, 0, sizeof key);
    snprintf(index, sizeof index, "%s%s", path, len > 0 && path[len - 1] == '/' ? "index.html" : "");
    key.path = index;
    return (const struct file *)bsearch(&key, files->list, files->count, sizeof key, by_path);
}

void files_free(struct files *files)
{
    for (size_t i = 0; i < files->count; i++) {
        free(files->list[i].path);
        free(files->list[i].bytes);
    }
    free(files->list);
}
