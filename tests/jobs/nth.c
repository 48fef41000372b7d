/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * nth KIND VICTIM FIRST STEP: a world of two ranks joins, sums, and leaves, repeatedly. In world i
 * the (FIRST + i * STEP)-th call of that KIND fails in rank VICTIM, until it makes fewer calls than
 * that. KIND: "malloc", the allocator has no memory; "system", a system call fails with a possible
 * error.
 *
 * Exit 0: each time both ranks ended by themselves, with success or an error with a text, before
 * the deadline, with right sums and no descriptor left open.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <dist/dist.h>
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TIMEOUT_S 10
#define LIMIT_S 30 /* a rank that has not ended by then is considered hanging */
#define FRAMES 12

/* Exit codes of a rank besides 0. */
enum nth_end { NTH_ERROR = 3, NTH_TIMEOUT, NTH_LEFT, NTH_WRONG, NTH_SILENT };

/* Data that the ranks report to the parent, in shared memory. */
static struct nth_note {
    atomic_bool struck;
    const char *call;
    void *frames[FRAMES];
    int frame_count;
    char text[2][300]; /* each rank's error */
} * note;

/* The call that decrements it to 0 fails; none fails if it is 0 or negative. */
static atomic_int countdown;
static bool fails_malloc;

static bool due(const char *call)
{
    if (atomic_load(&countdown) <= 0 || atomic_fetch_sub(&countdown, 1) != 1)
        return false;
    note->call = call;
    note->frame_count = backtrace(note->frames, FRAMES);
    atomic_store(&note->struck, true);
    return true;
}

/* ---- memory ---- */

#pragma GCC visibility push(default)
#ifndef __SANITIZE_ADDRESS__
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);
void *__libc_memalign(size_t align, size_t bytes);

static bool no_memory(const char *call)
{
    if (!fails_malloc || !due(call))
        return false;
    errno = ENOMEM;
    return true;
}

void *malloc(size_t bytes)
{
    return no_memory("malloc") ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    return no_memory("calloc") ? NULL : __libc_calloc(count, bytes);
}

void *realloc(void *memory, size_t bytes)
{
    return no_memory("realloc") ? NULL : __libc_realloc(memory, bytes);
}

void *aligned_alloc(size_t align, size_t bytes)
{
    return no_memory("aligned_alloc") ? NULL : __libc_memalign(align, bytes);
}

int posix_memalign(void **memory_p, size_t align, size_t bytes)
{
    if (no_memory("posix_memalign"))
        return ENOMEM;
    *memory_p = __libc_memalign(align, bytes);
    return *memory_p ? 0 : ENOMEM;
}
#endif

/* ---- system calls ---- */

#define NTH_CALL(type, name, parameters, arguments, failure, number)                               \
    type name parameters                                                                           \
    {                                                                                              \
        static type(*_Atomic real) parameters;                                                     \
                                                                                                   \
        if (!fails_malloc && due(#name)) {                                                         \
            errno = number;                                                                        \
            return failure;                                                                        \
        }                                                                                          \
        if (!real)                                                                                 \
            real = dlsym(RTLD_NEXT, #name);                                                        \
        return real arguments;                                                                     \
    }

NTH_CALL(int, socket, (int a, int b, int c), (a, b, c), -1, EMFILE)
NTH_CALL(int, accept4, (int a, struct sockaddr *b, socklen_t *c, int d), (a, b, c, d), -1, EMFILE)
NTH_CALL(int, epoll_create1, (int a), (a), -1, EMFILE)
NTH_CALL(int, eventfd, (unsigned a, int b), (a, b), -1, EMFILE)
NTH_CALL(int, timerfd_create, (int a, int b), (a, b), -1, EMFILE)
NTH_CALL(int, memfd_create, (const char *a, unsigned b), (a, b), -1, EMFILE)
NTH_CALL(int, pipe2, (int a[2], int b), (a, b), -1, EMFILE)
NTH_CALL(int, dup, (int a), (a), -1, EMFILE)
NTH_CALL(int, bind, (int a, const struct sockaddr *b, socklen_t c), (a, b, c), -1, ENOMEM)
NTH_CALL(int, listen, (int a, int b), (a, b), -1, ENOBUFS)
NTH_CALL(int, connect, (int a, const struct sockaddr *b, socklen_t c), (a, b, c), -1, ENOBUFS)
NTH_CALL(int, getsockname, (int a, struct sockaddr *b, socklen_t *c), (a, b, c), -1, ENOBUFS)
NTH_CALL(int, setsockopt, (int a, int b, int c, const void *d, socklen_t e), (a, b, c, d, e), -1,
         ENOBUFS)
NTH_CALL(int, epoll_ctl, (int a, int b, int c, struct epoll_event *d), (a, b, c, d), -1, ENOSPC)
NTH_CALL(int, ftruncate, (int a, off_t b), (a, b), -1, ENOSPC)
NTH_CALL(int, fallocate, (int a, int b, off_t c, off_t d), (a, b, c, d), -1, ENOSPC)
NTH_CALL(void *, mmap, (void *a, size_t b, int c, int d, int e, off_t f), (a, b, c, d, e, f),
         MAP_FAILED, ENOMEM)
NTH_CALL(int, mprotect, (void *a, size_t b, int c), (a, b, c), -1, ENOMEM)
NTH_CALL(ssize_t, getrandom, (void *a, size_t b, unsigned c), (a, b, c), -1, ENOSYS)
NTH_CALL(ssize_t, send, (int a, const void *b, size_t c, int d), (a, b, c, d), -1, ENOBUFS)
NTH_CALL(ssize_t, sendmsg, (int a, const struct msghdr *b, int c), (a, b, c), -1, ENOBUFS)
NTH_CALL(ssize_t, recv, (int a, void *b, size_t c, int d), (a, b, c, d), -1, ENOMEM)
NTH_CALL(ssize_t, recvmsg, (int a, struct msghdr *b, int c), (a, b, c), -1, ENOMEM)
NTH_CALL(ssize_t, read, (int a, void *b, size_t c), (a, b, c), -1, EIO)
NTH_CALL(ssize_t, pread, (int a, void *b, size_t c, off_t d), (a, b, c, d), -1, EIO)
NTH_CALL(ssize_t, write, (int a, const void *b, size_t c), (a, b, c), -1, EIO)

int pthread_create(pthread_t *a, const pthread_attr_t *b, void *(*c)(void *), void *d)
{
    static int (*_Atomic real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

    if (!fails_malloc && due("pthread_create"))
        return EAGAIN;
    if (!real)
        real = dlsym(RTLD_NEXT, "pthread_create");
    return real(a, b, c, d);
}

int open(const char *path, int flags, ...)
{
    static int (*_Atomic real)(const char *, int, ...);
    va_list more;
    int mode;

    va_start(more, flags);
    mode = va_arg(more, int);
    va_end(more);
    if (!fails_malloc && due("open")) {
        errno = EMFILE;
        return -1;
    }
    if (!real)
        real = dlsym(RTLD_NEXT, "open");
    return real(path, flags, mode);
}
#pragma GCC visibility pop

/* ---- a rank ---- */

/* Counts open descriptors except those that a process keeps for all its groups (see churn.c): an
 * eventfd and the memory of dist_alloc. last: the name of one of them. */
static int open_ones(char last[64])
{
    DIR *folder = opendir("/proc/self/fd");
    const struct dirent *entry;
    int count = 0;

    while (folder && (entry = readdir(folder))) {
        char link[64] = "";
        ssize_t length = readlinkat(dirfd(folder), entry->d_name, link, sizeof(link) - 1);

        if (length <= 0 || strcmp(link, "anon_inode:[eventfd]") == 0 ||
            strncmp(link, "/memfd:libdist", 14) == 0)
            continue;
        count++;
        memcpy(last, link, sizeof(link));
    }
    if (folder)
        closedir(folder);
    return count;
}

static dist_status sum(dist_group *world, size_t count)
{
    static int32_t data[1 << 16];
    dist_status status;

    for (size_t i = 0; i < count; i++)
        data[i] = (int32_t)i;
    status = dist_all_reduce(world, data, data, count, DIST_INT32, DIST_SUM);
    for (size_t i = 0; i < count && status == DIST_OK; i++) {
        if (data[i] != 2 * (int32_t)i)
            _exit(NTH_WRONG);
    }
    return status;
}

static _Noreturn void rank_main(int rank, int port, int number)
{
    char last[64] = "";
    int before = open_ones(last);
    dist_group *world = NULL;
    dist_status status, end = DIST_OK;
    char text[16];

    snprintf(text, sizeof(text), "%d", rank);
    setenv("RANK", text, 1);
    setenv("LOCAL_RANK", text, 1);
    snprintf(text, sizeof(text), "%d", port);
    setenv("MASTER_PORT", text, 1);
    atomic_store(&countdown, number);
    status = dist_init_process_group(NULL, &world);
    if (status == DIST_OK)
        status = sum(world, 2);
    if (status == DIST_OK)
        status = sum(world, 1 << 16);
    if (status != DIST_OK)
        snprintf(note->text[rank], sizeof(note->text[rank]), "%s", dist_last_error());
    if (world)
        end = dist_destroy_process_group(world);
    atomic_store(&countdown, 0);
    if (status == DIST_OK && end != DIST_OK) {
        status = end;
        snprintf(note->text[rank], sizeof(note->text[rank]), "%s", dist_last_error());
    }
    if (open_ones(last) > before) {
        snprintf(note->text[rank], sizeof(note->text[rank]), "%s", last);
        _exit(NTH_LEFT);
    }
    if (status != DIST_OK && !note->text[rank][0])
        _exit(NTH_SILENT);
    /* A rank that fails before it reaches the store cannot notify the other rank, which reports a
     * missing rank. */
    if (status == DIST_ERR_TIMEOUT && !strstr(note->text[rank], "for all ranks to join"))
        _exit(NTH_TIMEOUT);
    _exit(status == DIST_OK ? 0 : NTH_ERROR);
}

/* ---- main ---- */

static int free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) ||
        getsockname(fd, (struct sockaddr *)&address, &size))
        exit(99);
    close(fd);
    return ntohs(address.sin_port);
}

/* Waits for the rank; kills it if it hangs. */
static int wait_for_rank(pid_t pid)
{
    const struct timespec nap = {0, 2000000};
    int status;

    for (int i = 0; i < LIMIT_S * 500; i++) {
        if (waitpid(pid, &status, WNOHANG) == pid)
            return status;
        nanosleep(&nap, NULL);
    }
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    return -1;
}

static const char *end_text(int status)
{
    static const char *const texts[] = {
        [NTH_ERROR] = NULL,
        [NTH_TIMEOUT] = "was not notified: its timeout ended it",
        [NTH_LEFT] = "left descriptors open",
        [NTH_WRONG] = "got a wrong sum",
        [NTH_SILENT] = "got an error without a text",
    };

    if (status == -1)
        return "hangs";
    if (WIFSIGNALED(status))
        return "crashed";
    return WEXITSTATUS(status) <= NTH_SILENT ? texts[WEXITSTATUS(status)]
                                             : "ended in an unexpected way";
}

static void print_frames(void)
{
    for (int i = 0; i < note->frame_count; i++) {
        Dl_info where;

        if (dladdr(note->frames[i], &where))
            printf("    %s+%#lx %s\n", where.dli_fname,
                   (unsigned long)((char *)note->frames[i] - (char *)where.dli_fbase),
                   where.dli_sname ? where.dli_sname : "");
    }
}

/* Returns true if both ranks ended as they should. */
static bool try_one(int victim, int number)
{
    int port = free_port();
    pid_t pids[2];
    bool good = true;

    memset(note, 0, sizeof(*note));
    for (int r = 0; r < 2; r++) {
        pids[r] = fork();
        if (pids[r] == 0)
            rank_main(r, port, r == victim ? number : 0);
    }
    for (int r = 0; r < 2; r++) {
        int status = wait_for_rank(pids[r]);
        const char *wrong = end_text(status);

        if (!wrong)
            continue;
        good = false;
        printf("number %d, %s: rank %d %s (status %d): %s\n", number, note->call ? note->call : "-",
               r, wrong, status, note->text[r]);
    }
    if (!good)
        print_frames();
    fflush(stdout);
    return good;
}

int main(int argc, char **argv)
{
    int victim, number, step, tried = 0, bad = 0;
    void *frames[FRAMES];

    if (argc != 5)
        return 2;
    fails_malloc = strcmp(argv[1], "malloc") == 0;
    victim = atoi(argv[2]);
    number = atoi(argv[3]);
    step = atoi(argv[4]);
    setenv("WORLD_SIZE", "2", 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    backtrace(frames, FRAMES); /* loads the libraries it needs */
    note = mmap(NULL, sizeof(*note), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (note == MAP_FAILED)
        return 99;
    do {
        bad += !try_one(victim, number);
        number += step;
        tried++;
    } while (atomic_load(&note->struck));
    printf("%s: %d worlds, %d of them not well\n", argv[1], tried, bad);
    return bad > 0;
}
