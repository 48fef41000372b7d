/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * unreadable BACKEND RANK before|after: the other ranks cannot open that rank's memory, from before
 * it joins, or from the first calls on. unreadable BACKEND RANK pages: the data are in pages that
 * the kernel does not copy from, such as those of a device.
 *
 * unreadable BACKEND RANK unmapped: rank 0 sends and rank 1 receives at addresses where no memory
 * is mapped. Exit 0: both get an error that says so.
 *
 * Exit 0 otherwise: every collective and every message has the right result, in the world and in a
 * group made later.
 */
#include <dist/dist.h>
#include <errno.h>
#include <linux/capability.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define RANKS 3
#define COUNT ((size_t)100000) /* floats per block */
#define BYTES (COUNT * sizeof(float))

/* Marked pages have the same address in all ranks. */
#define MARKED ((char *)0x600000000000)
#define MARKED_BYTES ((size_t)4 << 20)

static bool marked(const void *memory)
{
    return (const char *)memory >= MARKED && (const char *)memory < MARKED + MARKED_BYTES;
}

/* Replace the C library's functions: marked pages are refused as the kernel refuses device pages.
 */
#define REPLACES __attribute__((visibility("default")))

REPLACES ssize_t process_vm_readv(pid_t pid, const struct iovec *here, unsigned long here_count,
                                  const struct iovec *there, unsigned long there_count,
                                  unsigned long flags)
{
    if (marked(there->iov_base)) {
        errno = EFAULT;
        return -1;
    }
    return syscall(SYS_process_vm_readv, pid, here, here_count, there, there_count, flags);
}

REPLACES ssize_t process_vm_writev(pid_t pid, const struct iovec *here, unsigned long here_count,
                                   const struct iovec *there, unsigned long there_count,
                                   unsigned long flags)
{
    if (pid != getpid() && marked(there->iov_base)) {
        errno = EFAULT;
        return -1;
    }
    return syscall(SYS_process_vm_writev, pid, here, here_count, there, there_count, flags);
}

REPLACES ssize_t send(int fd, const void *data, size_t bytes, int flags)
{
    if (flags & MSG_ZEROCOPY && marked(data)) {
        errno = EFAULT;
        return -1;
    }
    return sendto(fd, data, bytes, flags, NULL, 0);
}

/* Returns pages that the kernel does not copy from: the buffer of a perf event, which contains
 * zeros. NULL: the kernel does not permit perf events. */
#define EVENT_BYTES ((size_t)2 << 20)
static const float *event_pages(void)
{
    struct perf_event_attr event = {.type = PERF_TYPE_SOFTWARE,
                                    .size = sizeof(event),
                                    .config = PERF_COUNT_SW_DUMMY,
                                    .disabled = 1};
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    int fd = (int)syscall(SYS_perf_event_open, &event, 0, -1, -1, 0);
    char *memory = MAP_FAILED;

    if (fd >= 0) /* a power of two of pages, and one more */
        memory = mmap(NULL, page + EVENT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return memory == MAP_FAILED ? NULL : (const float *)(memory + page);
}

static void forbid_access(void)
{
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
}

/* Drops CAP_SYS_PTRACE, with which every process is readable. */
static void drop_rights(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3] = {{0}};

    if (syscall(SYS_capget, &header, sets) == 0) {
        sets[0].effective &= ~(1u << CAP_SYS_PTRACE);
        sets[0].permitted &= ~(1u << CAP_SYS_PTRACE);
        sets[0].inheritable &= ~(1u << CAP_SYS_PTRACE);
        syscall(SYS_capset, &header, sets);
    }
}

static int rank;

static void check(bool right, const char *what)
{
    if (right)
        return;
    fprintf(stderr, "rank %d: %s: wrong (%s)\n", rank, what, dist_last_error());
    exit(1);
}

static bool holds(const float *data, size_t count, float value)
{
    for (size_t i = 0; i < count; i++) {
        if (data[i] != value)
            return false;
    }
    return true;
}

/* out has RANKS blocks. Block b of a rank's `in` is rank * scale. */
static void exchange(dist_group *group, const float *in, float *out, float scale)
{
    float all = 0;
    int next = (rank + 1) % RANKS, before = (rank + RANKS - 1) % RANKS;
    dist_work *sent;

    for (int r = 0; r < RANKS; r++)
        all += (float)r * scale;
    check(dist_all_reduce(group, in, out, COUNT, DIST_FLOAT32, DIST_SUM) == DIST_OK &&
              holds(out, COUNT, all),
          "all_reduce");
    check(dist_all_gather(group, in, out, COUNT, DIST_FLOAT32) == DIST_OK &&
              holds(out + 2 * COUNT, COUNT, 2 * scale),
          "all_gather");
    check(dist_all_to_all(group, in, out, COUNT, DIST_FLOAT32) == DIST_OK &&
              holds(out + COUNT, COUNT, scale),
          "all_to_all");
    check(dist_reduce(group, in, out, COUNT, DIST_FLOAT32, DIST_SUM, 1) == DIST_OK &&
              (rank != 1 || holds(out, COUNT, all)),
          "reduce");
    check(dist_reduce_scatter(group, in, out, COUNT, DIST_FLOAT32, DIST_SUM) == DIST_OK &&
              holds(out, COUNT, all),
          "reduce_scatter");
    check(dist_gather(group, in, out, COUNT, DIST_FLOAT32, 2) == DIST_OK &&
              (rank != 2 || holds(out + COUNT, COUNT, scale)),
          "gather");
    check(dist_scatter(group, in, out, COUNT, DIST_FLOAT32, 2) == DIST_OK &&
              holds(out, COUNT, 2 * scale),
          "scatter");
    check(dist_broadcast(group, rank == 1 ? (void *)in : out, COUNT, DIST_FLOAT32, 1) == DIST_OK &&
              (rank == 1 || holds(out, COUNT, scale)),
          "broadcast");
    check(dist_isend(group, in, RANKS * COUNT, DIST_FLOAT32, next, 7, &sent) == DIST_OK &&
              dist_recv(group, out, RANKS * COUNT, DIST_FLOAT32, before, 7, NULL) == DIST_OK &&
              dist_wait(sent) == DIST_OK && holds(out, RANKS * COUNT, (float)before * scale),
          "send and receive");
}

/* Sends a long message from or to an address at which nothing is mapped. */
static int send_unmapped(dist_group *world, float *good)
{
    void *gone = mmap(NULL, RANKS * BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    dist_status status = DIST_OK;
    const char *text;

    munmap(gone, RANKS * BYTES);
    if (rank == 0) {
        check(dist_send(world, good, RANKS * COUNT, DIST_FLOAT32, 1, 1) == DIST_OK, "send");
        status = dist_send(world, gone, RANKS * COUNT, DIST_FLOAT32, 2, 2);
    } else if (rank == 1) {
        status = dist_recv(world, gone, RANKS * COUNT, DIST_FLOAT32, 0, 1, NULL);
    } else {
        return dist_recv(world, good, RANKS * COUNT, DIST_FLOAT32, 0, 2, NULL) == DIST_OK;
    }
    text = dist_last_error();
    check(status == DIST_ERR_INVALID_ARGUMENT && strstr(text, "Pass a valid buffer"), "unmapped");
    return 0;
}

int main(int argc, char **argv)
{
    struct dist_options options = DIST_OPTIONS_INIT;
    dist_group *world, *later;
    float *ordinary = malloc(RANKS * BYTES), *results = malloc(RANKS * BYTES);
    float *in = ordinary, *out = results, one = 1, sum = 0;
    int code;
    const float *event = event_pages();
    bool chosen = argc == 4 && atoi(getenv("RANK")) == atoi(argv[2]);

    if (argc != 4 || !in || !out)
        return 2;
    drop_rights();
    if (chosen && strcmp(argv[3], "before") == 0)
        forbid_access();
    if (strcmp(argv[3], "pages") == 0)
        in = mmap(MARKED, MARKED_BYTES, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    code = 77; /* AddressSanitizer maps its own memory there */
    if ((void *)in == MAP_FAILED)
        goto out;
    if (marked(in))
        out = in + RANKS * COUNT;
    options.backend = argv[1];
    options.timeout_ms = 20000;
    code = 1;
    if (dist_init_process_group(&options, &world) != DIST_OK)
        goto out;
    rank = atoi(getenv("RANK"));
    for (size_t i = 0; i < RANKS * COUNT; i++)
        in[i] = (float)rank;
    check(dist_all_reduce(world, &one, &sum, 1, DIST_FLOAT32, DIST_SUM) == DIST_OK && sum == RANKS,
          "a short call");
    if (strcmp(argv[3], "unmapped") == 0) {
        code = send_unmapped(world, in);
        goto out;
    }
    if (chosen && strcmp(argv[3], "after") == 0)
        forbid_access();
    for (int i = 0; i < 2; i++)
        exchange(world, in, out, 1);
    check(dist_new_group(world, (int[]){0, 1, 2}, RANKS, NULL, &later) == DIST_OK, "new group");
    exchange(later, in, out, 1);
    if (strcmp(argv[3], "pages") == 0 && event)
        exchange(world, event, out, 0);
    code = dist_destroy_process_group(world) != DIST_OK;
out:
    free(ordinary);
    free(results);
    return code;
}
