/*
 * Plays the cases and prints a line for each.
 *
 *   suite [CASE...]     all cases, or those named
 *   suite --list
 *
 * SETTLE_MS is the time that an effect may take to reach the other end. If a case hangs, its line
 * says so and the program ends with exit status 3. Lines are flushed case by case, so a missing
 * line shows a crash.
 */
#include <stdarg.h>

#include "suite.h"

#define CASES_MAX 2000
#define LINE_MAX_BYTES 4096
#define KEPT_MAX 256
#define HANG_S 10

struct test {
    const char *name;
    case_fn run;
    const void *first, *second;
};

static struct test cases[CASES_MAX];
static int cases_count;

static char line[LINE_MAX_BYTES];
static size_t line_len;

static struct {
    struct side *side;
    int fd;
} kept[KEPT_MAX];
static int kept_count;
/* The aide closes descriptors, too. */
static pthread_mutex_t kept_lock = PTHREAD_MUTEX_INITIALIZER;

void open_sides(void);
void close_sides(void);

void add_case(const char *name, case_fn run, const void *first, const void *second)
{
    if (cases_count == CASES_MAX)
        abort();
    cases[cases_count++] = (struct test){name, run, first, second};
}

void note(const char *format, ...)
{
    va_list arguments;
    size_t room = sizeof line - line_len;
    int len;

    va_start(arguments, format);
    len = vsnprintf(line + line_len, room, format, arguments);
    va_end(arguments);
    if (len > 0)
        line_len += (size_t)len < room ? (size_t)len : room - 1;
}

long said(const char *name, long value)
{
    int error = errno;

    if (value == -1)
        note(" %s=-%s", name, strerrorname_np(error) ? strerrorname_np(error) : "?");
    else
        note(" %s=%ld", name, value);
    return value;
}

int keep(struct side *side, int fd)
{
    if (fd < 0)
        return fd;
    pthread_mutex_lock(&kept_lock);
    if (kept_count == KEPT_MAX)
        abort();
    kept[kept_count].side = side;
    kept[kept_count++].fd = fd;
    pthread_mutex_unlock(&kept_lock);
    return fd;
}

/* True for sides whose descriptors are the kernel's. */
static bool is_kernels(const struct side *side)
{
#ifdef ON_KERNEL
    (void)side;
    return true;
#else
    return side != &me;
#endif
}

int close_now(int fd)
{
    pthread_mutex_lock(&kept_lock);
    for (int i = 0; i < kept_count; i++)
        if (kept[i].fd == fd && is_kernels(kept[i].side))
            kept[i].fd = -1;
    pthread_mutex_unlock(&kept_lock);
    return (close)(fd);
}

static void clean(void)
{
    aide_join();
    while (kept_count > 0) {
        kept_count--;
        if (kept[kept_count].fd >= 0)
            ON(kept[kept_count].side, close, kept[kept_count].fd);
    }
}

static void hang(int signal)
{
    static const char said_so[] = " HANGS\n";

    (void)signal;
    if (write(STDOUT_FILENO, line, line_len) < 0 || write(STDOUT_FILENO, said_so, sizeof said_so - 1) < 0)
        _exit(4);
    _exit(3);
}

static void play(const struct test *test)
{
    line_len = 0;
    note("%s:", test->name);
    alarm(HANG_S);
    test->run(test->first, test->second);
    clean();
    alarm(0);
    puts(line);
    fflush(stdout);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct test *)a)->name, ((const struct test *)b)->name);
}

static bool is_chosen(const char *name, int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(name, argv[i]) == 0)
            return true;
    return argc < 2;
}

int main(int argc, char **argv)
{
    struct sigaction action;

    qsort(cases, (size_t)cases_count, sizeof *cases, by_name);
    if (argc > 1 && strcmp(argv[1], "--list") == 0) {
        for (int i = 0; i < cases_count; i++)
            puts(cases[i].name);
        return 0;
    }
    memset(&action, 0, sizeof action);
    action.sa_handler = hang;
    sigaction(SIGALRM, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
    open_sides();
    for (int i = 0; i < cases_count; i++)
        if (is_chosen(cases[i].name, argc, argv))
            play(&cases[i]);
    close_sides();
    return 0;
}
