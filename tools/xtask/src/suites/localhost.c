// Calls of one process on its own connections over localhost that Python cannot make: handlers on
// signal stacks, threads that are cancelled, and programs that are started by each of libc's
// functions. The argument names a test. The status is 0 if the calls act as on Linux.

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

// Ends the test with the line that failed.
#define CHECK(holds)                                                                              \
    do {                                                                                          \
        if (!(holds)) {                                                                           \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #holds, strerror(errno));              \
            _exit(1);                                                                             \
        }                                                                                         \
    } while (0)

static const int WAIT_MS = 3000;
static int near_end, far_end, other_near, other_far;

static int listener(struct sockaddr_in *at) {
    socklen_t len = sizeof *at;
    int server = socket(AF_INET, SOCK_STREAM, 0);
    *at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    CHECK(bind(server, (void *)at, len) == 0 && listen(server, 8) == 0);
    CHECK(getsockname(server, (void *)at, &len) == 0);
    return server;
}

// A connection of this process to itself.
static void pair(int *near, int *far) {
    struct sockaddr_in at;
    int server = listener(&at);
    *near = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(*near, (void *)&at, sizeof at) == 0);
    *far = accept(server, NULL, NULL);
    CHECK(*far >= 0 && close(server) == 0);
}

static void rest_ms(int ms) {
    poll(NULL, 0, ms);
}

// True if the peer closes the connection within the time.
static int ends(int fd) {
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    char byte;
    return poll(&entry, 1, WAIT_MS) == 1 && read(fd, &byte, 1) == 0;
}

// --- Handlers of signals.

static void read_other(int signal) {
    char byte;
    (void)signal;
    CHECK(read(other_far, &byte, 1) == 1);
}

static void *read_far(void *got) {
    return (void *)read(far_end, got, 8);
}

static void *read_far_with_a_signal_stack(void *at) {
    stack_t stack = {.ss_sp = at, .ss_size = 1 << 18};
    CHECK(sigaltstack(&stack, NULL) == 0);
    char got[8];
    long count = read(far_end, got, sizeof got);
    return (void *)count;
}

// A handler on a stack above its thread's waits, too. Then the descriptor that the thread waits
// for is closed.
static void handler_above_the_stack(void) {
    pair(&near_end, &far_end);
    pair(&other_near, &other_far);
    size_t half = 1 << 18;
    char *low = mmap(NULL, 2 * half, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct sigaction action = {.sa_handler = read_other, .sa_flags = SA_ONSTACK | SA_RESTART};
    CHECK(low != MAP_FAILED && sigaction(SIGUSR1, &action, NULL) == 0);
    pthread_attr_t attributes;
    pthread_t thread;
    void *said;
    CHECK(pthread_attr_init(&attributes) == 0);
    CHECK(pthread_attr_setstack(&attributes, low, half) == 0);
    CHECK(pthread_create(&thread, &attributes, read_far_with_a_signal_stack, low + half) == 0);
    rest_ms(100);
    CHECK(pthread_kill(thread, SIGUSR1) == 0);
    rest_ms(100);
    CHECK(write(other_near, "x", 1) == 1);
    rest_ms(100);
    CHECK(close(far_end) == 0);
    rest_ms(50);
    CHECK(write(near_end, "on", 2) == 2);
    CHECK(pthread_join(thread, &said) == 0);
    CHECK((long)said == 2);
}

static void leave(int signal) {
    (void)signal;
    pthread_exit(NULL);
}

// --- Threads that end in a wait.

static void *accept_far(void *unused) {
    (void)unused;
    return (void *)(long)accept(far_end, NULL, NULL);
}

static void *poll_far(void *unused) {
    (void)unused;
    struct pollfd entry = {.fd = far_end, .events = POLLIN};
    return (void *)(long)poll(&entry, 1, -1);
}

static void *write_far(void *unused) {
    static char bytes[1 << 24];
    (void)unused;
    return (void *)write(far_end, bytes, sizeof bytes);
}

static void *epoll_far(void *unused) {
    (void)unused;
    struct epoll_event event = {.events = EPOLLIN};
    int waits = epoll_create1(0);
    CHECK(epoll_ctl(waits, EPOLL_CTL_ADD, far_end, &event) == 0);
    return (void *)(long)epoll_wait(waits, &event, 1, -1);
}

// A thread that is cancelled while it waits leaves nothing: the socket closes, and others go on.
static void cancelled(void *(*waits)(void *)) {
    static char got[8];
    pair(&near_end, &far_end);
    pair(&other_near, &other_far);
    pthread_t thread;
    void *said;
    CHECK(pthread_create(&thread, NULL, waits, got) == 0);
    rest_ms(100);
    CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &said) == 0);
    CHECK(said == PTHREAD_CANCELED);
    CHECK(close(far_end) == 0);
    if (waits != write_far)
        CHECK(ends(near_end));
    CHECK(write(other_near, "x", 1) == 1 && read(other_far, got, 8) == 1);
}

static void cancelled_in_a_read(void) {
    cancelled(read_far);
}

static void cancelled_in_a_write(void) {
    cancelled(write_far);
}

static void cancelled_in_a_poll(void) {
    cancelled(poll_far);
}

static void cancelled_in_an_epoll_wait(void) {
    cancelled(epoll_far);
}

static void cancelled_in_an_accept(void) {
    struct sockaddr_in at;
    far_end = listener(&at);
    pthread_t thread;
    void *said;
    CHECK(pthread_create(&thread, NULL, accept_far, NULL) == 0);
    rest_ms(100);
    CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &said) == 0);
    CHECK(said == PTHREAD_CANCELED && close(far_end) == 0);
    // The port is free again.
    far_end = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(bind(far_end, (void *)&at, sizeof at) == 0 && listen(far_end, 8) == 0);
}

static void ended_by_a_handler_in_a_read(void) {
    static char got[8];
    pair(&near_end, &far_end);
    struct sigaction action = {.sa_handler = leave};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, read_far, got) == 0);
    rest_ms(100);
    CHECK(pthread_kill(thread, SIGUSR1) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(close(far_end) == 0 && ends(near_end));
}

// --- A handler that makes calls while its program forks.

static void look(int signal) {
    char byte;
    int kept = errno;
    (void)signal;
    recv(far_end, &byte, 1, MSG_DONTWAIT);
    errno = kept;
}

static void handler_during_fork(void) {
    pair(&near_end, &far_end);
    struct sigaction action = {.sa_handler = look, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    struct itimerval every = {.it_interval.tv_usec = 100, .it_value.tv_usec = 100};
    CHECK(setitimer(ITIMER_REAL, &every, NULL) == 0);
    for (int count = 0; count < 200; count++) {
        pid_t child = fork();
        if (child == 0)
            _exit(0);
        CHECK(child > 0 && waitpid(child, NULL, 0) == child);
    }
    struct itimerval never = {.it_value.tv_usec = 0};
    CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
    // The handler's calls have not broken the connection.
    char byte;
    CHECK(write(near_end, "x", 1) == 1 && read(far_end, &byte, 1) == 1);
}

// --- A program with a `sigaction` of its own before libc's, as Erlang's virtual machine has it.

static int calls_of_sigaction;

int sigaction(int signal, const struct sigaction *restrict new, struct sigaction *restrict old) {
    static int (*next)(int, const struct sigaction *, struct sigaction *);
    if (next == NULL)
        next = dlsym(RTLD_NEXT, "__sigaction");
    CHECK(++calls_of_sigaction < 1000);
    return next(signal, new, old);
}

static volatile sig_atomic_t handled;

static void handle(int signal) {
    handled = signal;
}

static void sigaction_of_the_program_s_own(void) {
    struct sigaction action = {.sa_handler = handle};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0 && calls_of_sigaction == 1);
    CHECK(raise(SIGUSR1) == 0 && handled == SIGUSR1);
}

// --- Programs that get a connection.

static char *self;
static char number[12];

// The other program: what a read of the descriptor says.
static int uses(int fd) {
    char got[8];
    long count = read(fd, got, 4);
    return count == 4 ? 0 : count < 0 && errno == EBADF ? 2 : 1;
}

// The other program has a connection that works, or is refused with `EBADF`.
static void check_user(int status) {
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 2);
}

static void connection_to_pass(void) {
    pair(&near_end, &far_end);
    CHECK(write(near_end, "come", 4) == 4);
    snprintf(number, sizeof number, "%d", far_end);
}

static void by_execl(void) {
    execl(self, self, "uses", number, "1", "2", "3", "4", NULL);
}

static void by_execle(void) {
    execle(self, self, "uses", number, "1", "2", "3", "4", NULL, environ);
}

static void by_execlp(void) {
    execlp(self, self, "uses", number, NULL);
}

static void by_fexecve(void) {
    char *words[] = {self, "uses", number, NULL};
    fexecve(open(self, O_RDONLY | O_CLOEXEC), words, environ);
}

static void by_execveat(void) {
    char *words[] = {self, "uses", number, NULL};
    execveat(AT_FDCWD, self, words, environ, 0);
}

static void by_execveat_by_number(void) {
    char *words[] = {self, "uses", number, NULL};
    syscall(SYS_execveat, AT_FDCWD, self, words, environ, 0);
}

static void passes(void (*exec)(void)) {
    connection_to_pass();
    pid_t child = fork();
    if (child == 0) {
        exec();
        _exit(1);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    check_user(status);
    CHECK(write(near_end, "come", 4) == 4);
    child = vfork();
    if (child == 0) {
        exec();
        _exit(1);
    }
    CHECK(waitpid(child, &status, 0) == child);
    check_user(status);
}

static void connection_passed_by_execl(void) {
    passes(by_execl);
}

static void connection_passed_by_execle(void) {
    passes(by_execle);
}

static void connection_passed_by_execlp(void) {
    passes(by_execlp);
}

static void connection_passed_by_fexecve(void) {
    passes(by_fexecve);
}

static void connection_passed_by_execveat(void) {
    passes(by_execveat);
}

static void connection_passed_by_execveat_by_number(void) {
    passes(by_execveat_by_number);
}

// A child by the system call alone: no `fork` handler of a library runs.
static pid_t clone_child(void) {
    pid_t child = syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    CHECK(child >= 0);
    return child;
}

static void clone_child_uses_a_copy_of_a_connection(void) {
    int status;
    connection_to_pass();
    pid_t child = clone_child();
    if (child == 0)
        _exit(dup2(far_end, 0) == 0 && close(far_end) == 0 ? uses(0) : 1);
    CHECK(waitpid(child, &status, 0) == child);
    check_user(status);
}

// A file gets the number of a connection that was closed, or that it replaces.
static void clone_child_opens_a_file_in_place_of_a_connection(void) {
    connection_to_pass();
    for (int way = 0; way < 3; way++) {
        pid_t child = clone_child();
        if (child == 0) {
            char magic[4];
            int file = open(self, O_RDONLY);
            if (way == 0)
                CHECK(close(far_end) == 0);
            if (way == 1)
                CHECK(close_range(far_end, far_end, 0) == 0);
            if (way == 2)
                CHECK(dup2(file, far_end) == far_end);
            else
                CHECK(open(self, O_RDONLY) == far_end);
            CHECK(read(far_end, magic, 4) == 4 && memcmp(magic, "\177ELF", 4) == 0);
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
}

static void failed_execl_tells_its_error(void) {
    CHECK(execl("/nowhere", "a", "b", "c", "d", "e", "f", "g", "h", NULL) == -1);
    CHECK(errno == ENOENT);
    CHECK(execle("/nowhere", "a", "b", "c", "d", "e", "f", "g", "h", NULL, environ) == -1);
    CHECK(errno == ENOENT);
    CHECK(execlp("nowhere-at-all", "a", NULL) == -1 && errno == ENOENT);
}

static void line_that_uses(char *line, size_t room) {
    snprintf(line, room, "exec %s uses %s", self, number);
}

static void connection_passed_by_system(void) {
    char line[300];
    connection_to_pass();
    line_that_uses(line, sizeof line);
    check_user(system(line));
}

static void connection_passed_by_popen(void) {
    char line[300];
    connection_to_pass();
    line_that_uses(line, sizeof line);
    FILE *other = popen(line, "r");
    CHECK(other != NULL);
    check_user(pclose(other));
}

// --- Daemons, whose first stderr is a pipe that somebody reads to its end.

enum { BY_DUP2, BY_CLOSE, BY_CLOSE_RANGE, BY_DAEMON, WAYS };

// Goes on without the stderr that it was started with.
static int becomes_daemon(int way) {
    int null = open("/dev/null", O_RDWR);
    CHECK(fcntl(null, F_GETFD) >= 0);
    if (way == BY_DUP2)
        CHECK(dup2(null, 2) == 2);
    else if (way == BY_CLOSE)
        CHECK(close(2) == 0);
    else if (way == BY_CLOSE_RANGE)
        CHECK(close_range(0, ~0U, 0) == 0);
    else
        CHECK(daemon(0, 0) == 0);
    rest_ms(2 * WAIT_MS);
    return 0;
}

static void stderr_of_a_daemon_ends(void) {
    for (int way = 0; way < WAYS; way++) {
        char word[8];
        int ends[2];
        CHECK(pipe2(ends, O_CLOEXEC) == 0);
        snprintf(word, sizeof word, "%d", way);
        pid_t child = fork();
        if (child == 0) {
            CHECK(dup2(ends[1], 2) == 2);
            execl(self, self, "becomes-daemon", word, NULL);
            _exit(1);
        }
        CHECK(close(ends[1]) == 0);
        struct pollfd end = {.fd = ends[0]};
        CHECK(poll(&end, 1, WAIT_MS) == 1 && end.revents == POLLHUP);
        CHECK(close(ends[0]) == 0 && kill(child, SIGKILL) == 0);
        CHECK(waitpid(child, NULL, 0) == child);
    }
}

// --- Streams of libc's on a connection.

static void streams_after_dup2(void) {
    char got[32] = "";
    pair(&near_end, &far_end);
    int kept[] = {dup(0), dup(1)};
    CHECK(printf("before ") > 0);
    CHECK(dup2(far_end, 0) == 0 && dup2(far_end, 1) == 1 && close(far_end) == 0);
    CHECK(printf("by %s\n", "printf") > 0 && fflush(stdout) == 0);
    CHECK(recv(near_end, got, sizeof "before by printf\n" - 1, MSG_WAITALL) > 0);
    CHECK(strcmp(got, "before by printf\n") == 0);
    CHECK(write(near_end, "a line\n", 7) == 7);
    CHECK(fgets(got, sizeof got, stdin) != NULL && strcmp(got, "a line\n") == 0);
    CHECK(fileno(stdin) == 0 && fileno(stdout) == 1);
    CHECK(dup2(kept[0], 0) == 0 && dup2(kept[1], 1) == 1);
    CHECK(ends(near_end));
    CHECK(printf("the program's own\n") > 0 && fflush(stdout) == 0);
}

// --- Bytes that are nowhere.

static void null_data_on_a_full_connection(void) {
    static char bytes[1 << 16];
    static char *volatile nowhere = NULL;
    pair(&near_end, &far_end);
    CHECK(fcntl(near_end, F_SETFL, O_NONBLOCK) == 0);
    while (write(near_end, bytes, sizeof bytes) > 0)
        ;
    CHECK(errno == EAGAIN);
    CHECK(write(near_end, nowhere, 10) == -1 && errno == EAGAIN);
    CHECK(write(far_end, nowhere, 10) == -1 && errno == EFAULT);
}

// --- A thread that opens descriptors while another one makes the first connection.

static volatile int is_over;

// Numbers from 800 on are the library's while a stack opens, unless they are of files with names:
// the page of differences says so.
static void *opens_and_closes(void *unused) {
    int held[32];
    while (!is_over) {
        for (int at = 0; at < 32; at++)
            held[at] = at % 2 ? eventfd(0, EFD_CLOEXEC) : open("/etc/passwd", O_RDONLY | O_CLOEXEC);
        for (int at = 0; at < 32; at++)
            CHECK(close(held[at]) == 0 || (at % 2 && held[at] >= 800));
    }
    return unused;
}

static void descriptors_opened_beside_the_first_connection(void) {
    pthread_t threads[2];
    for (int at = 0; at < 2; at++)
        CHECK(pthread_create(&threads[at], NULL, opens_and_closes, NULL) == 0);
    pair(&near_end, &far_end);
    rest_ms(50);
    is_over = 1;
    for (int at = 0; at < 2; at++)
        CHECK(pthread_join(threads[at], NULL) == 0);
}

static const struct {
    const char *name;
    void (*run)(void);
} TESTS[] = {
    {"handler-above-the-stack", handler_above_the_stack},
    {"cancelled-in-a-read", cancelled_in_a_read},
    {"cancelled-in-a-write", cancelled_in_a_write},
    {"cancelled-in-a-poll", cancelled_in_a_poll},
    {"cancelled-in-an-epoll-wait", cancelled_in_an_epoll_wait},
    {"cancelled-in-an-accept", cancelled_in_an_accept},
    {"ended-by-a-handler-in-a-read", ended_by_a_handler_in_a_read},
    {"handler-during-fork", handler_during_fork},
    {"sigaction-of-the-program-s-own", sigaction_of_the_program_s_own},
    {"connection-passed-by-execl", connection_passed_by_execl},
    {"connection-passed-by-execle", connection_passed_by_execle},
    {"connection-passed-by-execlp", connection_passed_by_execlp},
    {"connection-passed-by-fexecve", connection_passed_by_fexecve},
    {"connection-passed-by-execveat", connection_passed_by_execveat},
    {"connection-passed-by-execveat-by-number", connection_passed_by_execveat_by_number},
    {"clone-child-uses-a-copy-of-a-connection", clone_child_uses_a_copy_of_a_connection},
    {"clone-child-opens-a-file-in-place-of-a-connection",
     clone_child_opens_a_file_in_place_of_a_connection},
    {"failed-execl-tells-its-error", failed_execl_tells_its_error},
    {"connection-passed-by-system", connection_passed_by_system},
    {"connection-passed-by-popen", connection_passed_by_popen},
    {"stderr-of-a-daemon-ends", stderr_of_a_daemon_ends},
    {"streams-after-dup2", streams_after_dup2},
    {"null-data-on-a-full-connection", null_data_on_a_full_connection},
    {"descriptors-opened-beside-the-first-connection",
     descriptors_opened_beside_the_first_connection},
};

int main(int count, char **words) {
    static char path[256];
    if (count >= 3 && strcmp(words[1], "uses") == 0)
        return uses(atoi(words[2]));
    if (count >= 3 && strcmp(words[1], "becomes-daemon") == 0)
        return becomes_daemon(atoi(words[2]));
    CHECK(count == 2 && readlink("/proc/self/exe", path, sizeof path - 1) > 0);
    self = path;
    for (size_t at = 0; at < sizeof TESTS / sizeof *TESTS; at++)
        if (strcmp(words[1], TESTS[at].name) == 0) {
            TESTS[at].run();
            return 0;
        }
    fprintf(stderr, "no such test: %s\n", words[1]);
    return 1;
}
