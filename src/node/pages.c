/* SPDX-License-Identifier: BSD-3-Clause */
/* The files of segments, and the buddy allocator of their pages. */
#include "base/checked.h"
#include "base/descriptor.h"
#include "base/file.h"
#include "base/log.h"
#include "base/process.h"
#include "node/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <unistd.h>

/* Seals of a segment's file: it can neither shrink nor grow. */
#define FILE_SEALS (F_SEAL_SHRINK | F_SEAL_GROW)
#define FILE_OWN DISTI_PROCESS_OWN "/fd"
/* Value of MLOCK_ONFAULT, which the headers of old C libraries lack. */
#define FILE_LOCK_ON_FAULT 1

size_t disti_segment_page(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

static dist_status file_fail_create(void)
{
    if (errno == EMFILE || errno == ENFILE)
        return disti_fail(
            DIST_ERR_NO_MEMORY,
            "no file descriptor is left for shared memory, which needs one per segment: "
            "raise `ulimit -n`, or allocate fewer and larger buffers");
    return disti_fail_call("memfd_create", "cannot make shared memory");
}

static dist_status file_fail_memory(size_t bytes)
{
    uint64_t most;

    if (!disti_file_may_have(bytes, &most))
        return disti_fail(DIST_ERR_NO_MEMORY,
                          "%zu KiB of shared memory exceed the limit on the size of files, %llu "
                          "KiB: raise it (ulimit -f)",
                          bytes >> 10, (unsigned long long)most >> 10);
    return disti_fail(DIST_ERR_NO_MEMORY,
                      "cannot allocate %zu KiB of shared memory: free memory, or "
                      "raise the container's limit",
                      bytes >> 10);
}

/* The kernel's overcommit checks do not limit the size of a file, so this function does. */
dist_status disti_segment_file_check(size_t bytes)
{
    struct sysinfo info;

    if (bytes <= SIZE_MAX / 4 &&
        (sysinfo(&info) < 0 ||
         bytes / (info.mem_unit ? info.mem_unit : 1) <= (uint64_t)info.totalram + info.totalswap))
        return DIST_OK;
    return file_fail_memory(bytes);
}

/*
 * With vm.overcommit_memory=2, touching a page that cannot be allocated raises SIGBUS, so all pages
 * are created at once. With other settings, the kernel kills the process at first touch if memory
 * is exhausted, as with malloc.
 */
static bool file_read_must_reserve(void)
{
    char text = '0';
    int fd = open("/proc/sys/vm/overcommit_memory", O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return false;
    if (read(fd, &text, 1) != 1)
        text = '0';
    close(fd);
    return text == '2';
}

static bool file_must_reserve(void)
{
    static atomic_int known = -1;
    int must = atomic_load(&known);

    if (must < 0) {
        must = file_read_must_reserve();
        atomic_store(&known, must);
    }
    return must;
}

/* Creates the pages of the range if vm.overcommit_memory is 2. */
static bool file_reserve_pages(int fd, size_t offset, size_t bytes)
{
    return !file_must_reserve() || disti_file_reserve(fd, offset, bytes) == 0;
}

dist_status disti_segment_file_reserve(const struct disti_segment_name *name, size_t offset,
                                       size_t bytes)
{
    return file_reserve_pages(name->fd, offset, bytes) ? DIST_OK : file_fail_memory(bytes);
}

/* Creates a random key that is not 0. */
static bool file_make_key(uint64_t *key_p)
{
    uint64_t key = 0;

    while (key == 0) {
        if (getrandom(&key, sizeof(key), 0) != (ssize_t)sizeof(key) && errno != EINTR)
            return false;
    }
    *key_p = key;
    return true;
}

/* Writes the key through a mapping of the seal page only: write() could create a huge page. */
static bool file_write_key(int fd, size_t bytes, uint64_t key)
{
    size_t page = disti_segment_page();
    uint64_t *seal = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)bytes);

    if (seal == MAP_FAILED)
        return false;
    *seal = key;
    munmap(seal, page);
    return true;
}

dist_status disti_segment_file_make(size_t bytes, struct disti_segment_name *name_p)
{
    size_t page = disti_segment_page();
    struct disti_segment_name name = {.bytes = bytes, .pid = (int32_t)getpid()};
    dist_status status = DIST_OK;

    name.fd = disti_file_memory();
    if (name.fd < 0)
        return file_fail_create();
    if (disti_file_truncate(name.fd, bytes + page) != 0 ||
        !file_reserve_pages(name.fd, bytes, page))
        status = file_fail_memory(bytes + page);
    else if (fcntl(name.fd, F_ADD_SEALS, FILE_SEALS) < 0 || !file_make_key(&name.key) ||
             !file_write_key(name.fd, bytes, name.key))
        status =
            disti_fail_errno(DIST_ERR_SYSTEM, "cannot seal %zu KiB of shared memory", bytes >> 10);
    if (status == DIST_OK)
        *name_p = name;
    else
        close(name.fd);
    return status;
}

void disti_segment_file_drop(const struct disti_segment_name *name)
{
    (void)!fallocate(name->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                     (off_t)(name->bytes + disti_segment_page()));
    close(name->fd);
}

static dist_status file_fail_mismatch(const struct disti_segment_name *name)
{
    return disti_fail(DIST_ERR_SYSTEM,
                      "descriptor %d of process %d is not the memory that it offered: that process "
                      "has freed the memory, or is in another PID namespace",
                      name->fd, name->pid);
}

static dist_status file_fail_open(const struct disti_segment_name *name)
{
    if (errno == ENOENT && access(FILE_OWN, F_OK) != 0)
        return disti_fail(DIST_ERR_SYSTEM,
                          "cannot open the memory of other processes, since there is no /proc: "
                          "mount it (mount -t proc proc /proc)"); /* for example in a chroot */
    if (errno == ENOENT || errno == ESRCH) {
        return disti_fail(
            DIST_ERR_SYSTEM,
            "process %d has no descriptor %d: it has exited, has freed the memory, or is "
            "in another PID namespace",
            name->pid, name->fd);
    }
    if (errno == EMFILE || errno == ENFILE)
        return file_fail_create();
    return disti_fail_errno(DIST_ERR_SYSTEM,
                            "cannot open the memory of process %d: both must run as the same user "
                            "and be dumpable, in one PID namespace with /proc mounted",
                            name->pid);
}

/*
 * Returns true if the file's type and size are those of the named segment. Does not check the key.
 */
static bool file_has_shape(int fd, const struct disti_segment_name *name)
{
    size_t page = disti_segment_page(), total;
    struct stat info;

    return name->bytes % page == 0 && disti_add(name->bytes, page, &total) &&
           fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && (uint64_t)info.st_size == total;
}

static bool file_matches(int fd, const struct disti_segment_name *name)
{
    int seals = fcntl(fd, F_GET_SEALS);
    uint64_t key = 0;

    return seals >= 0 && (seals & FILE_SEALS) == FILE_SEALS && file_has_shape(fd, name) &&
           pread(fd, &key, sizeof(key), (off_t)name->bytes) == (ssize_t)sizeof(key) && key != 0 &&
           key == name->key;
}

/*
 * The descriptor number may have been reused for another file. So the file is checked through
 * O_PATH before it is opened, because opening a device or a FIFO can have side effects.
 */
dist_status disti_segment_file_open(const struct disti_segment_name *name, int *fd_p)
{
    dist_status status = DIST_OK;
    char path[DISTI_PROCESS_PATH];
    int fd, place;

    disti_process_path(name->pid, name->fd, path);
    place = open(path, O_PATH | O_CLOEXEC);
    if (place < 0)
        return file_fail_open(name);
    if (!file_has_shape(place, name)) {
        close(place);
        return file_fail_mismatch(name);
    }
    snprintf(path, sizeof(path), FILE_OWN "/%d", place);
    fd = open(path, O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        status = file_fail_open(name);
    else if (!file_matches(fd, name))
        status = file_fail_mismatch(name);
    close(place);
    if (status == DIST_OK)
        *fd_p = fd;
    else if (fd >= 0)
        close(fd);
    return status;
}

/*
 * Returns an address at a multiple of `align` with `bytes` unmapped bytes, or MAP_FAILED. Another
 * thread may map memory there before the caller does.
 */
static void *file_place(size_t bytes, size_t align)
{
    char *space =
        mmap(NULL, bytes + align, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (space == MAP_FAILED)
        return space;
    munmap(space, bytes + align);
    return space + (-(uintptr_t)space & (align - 1));
}

/* Returns true if the kernel populates new mappings at once, as after mlockall(MCL_FUTURE). */
static bool file_mappings_populate(void)
{
    unsigned char resident = 0;
    void *page = mmap(NULL, disti_segment_page(), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (page == MAP_FAILED)
        return false;
    (void)mincore(page, disti_segment_page(), &resident);
    munmap(page, disti_segment_page());
    return resident & 1;
}

/*
 * Maps the file without creating pages, because most pages of an arena are never used. If the
 * kernel populates new mappings, the mapping is inaccessible at first and then set to lock each
 * page at its first use.
 */
static void *file_map_unused(void *place, int fd, size_t offset, size_t bytes)
{
    const bool populates = file_mappings_populate();
    const int access = PROT_READ | PROT_WRITE;
    void *memory =
        mmap(place, bytes, populates ? PROT_NONE : access, MAP_SHARED, fd, (off_t)offset);

    if (memory == MAP_FAILED || !populates)
        return memory;
    if (syscall(SYS_mlock2, memory, bytes, (long)FILE_LOCK_ON_FAULT) < 0)
        munlock(memory, bytes); /* Linux before 4.4 */
    if (mprotect(memory, bytes, access) < 0) {
        munmap(memory, bytes);
        return MAP_FAILED;
    }
    return memory;
}

/*
 * The address from file_place is only a hint. If another thread has mapped memory there in the
 * meantime, the segment gets another address, which may not be aligned for huge pages. MAP_FIXED
 * would require a reservation of the address space; after a failure it would be unknown whether the
 * reservation still exists.
 */
static void *file_map_huge(int fd, size_t offset, size_t bytes)
{
    void *place = file_place(bytes, SEGMENT_HUGE), *memory;

    memory = file_map_unused(place == MAP_FAILED ? NULL : place, fd, offset, bytes);
    if (memory != MAP_FAILED)
        madvise(memory, bytes,
                MADV_HUGEPAGE); /* may fail: a kernel without huge pages returns EINVAL */
    return memory;
}

dist_status disti_segment_file_map(int fd, size_t offset, size_t bytes, void **memory_p)
{
    void *memory = bytes >= SEGMENT_HUGE ? file_map_huge(fd, offset, bytes)
                                         : file_map_unused(NULL, fd, offset, bytes);

    if (memory == MAP_FAILED && errno == EAGAIN)
        return disti_file_locked_too_much(bytes);
    if (memory == MAP_FAILED)
        return disti_fail_errno(DIST_ERR_NO_MEMORY,
                                "cannot map %zu KiB of shared memory: free memory, or raise "
                                "vm.max_map_count if very many segments are in use",
                                bytes >> 10);
    *memory_p = memory;
    return DIST_OK;
}

/* The buddy allocator. */

bool disti_buddy_open(struct buddy *buddy, unsigned levels)
{
    buddy->levels = levels;
    buddy->lacks = levels <= BUDDY_LEVELS_MAX ? calloc((size_t)2 << levels, 1) : NULL;
    return buddy->lacks != NULL;
}

void disti_buddy_close(struct buddy *buddy)
{
    free(buddy->lacks);
    buddy->lacks = NULL;
}

unsigned disti_buddy_order(size_t units)
{
    unsigned order = 0;

    while (order <= BUDDY_LEVELS_MAX && (size_t)1 << order < units)
        order++;
    return order;
}

/* Returns 1 + the order of the largest free block in a tree node; 0 if nothing is free. */
static unsigned buddy_free_orders(const struct buddy *buddy, size_t node, unsigned order)
{
    return order + 1 - buddy->lacks[node];
}

/* Updates the `lacks` of a tree node's ancestors after the node has changed. */
static void buddy_update_parents(struct buddy *buddy, size_t node, unsigned order)
{
    for (node /= 2, order++; node > 0; node /= 2, order++) {
        unsigned left = buddy_free_orders(buddy, 2 * node, order - 1);
        unsigned right = buddy_free_orders(buddy, 2 * node + 1, order - 1);
        unsigned most = left > right ? left : right;

        if (left == order && right == order)
            most = order + 1;
        buddy->lacks[node] = (uint8_t)(order + 1 - most);
    }
}

bool disti_buddy_alloc(struct buddy *buddy, unsigned order, size_t *unit_p)
{
    size_t node = 1;
    unsigned at = buddy->levels;

    if (order > at || buddy_free_orders(buddy, 1, at) <= order)
        return false;
    for (; at > order; at--) {
        /*
         * Chooses the half with the smaller block among those whose block is large enough.
         */
        unsigned left = buddy_free_orders(buddy, 2 * node, at - 1);
        unsigned right = buddy_free_orders(buddy, 2 * node + 1, at - 1);

        node = 2 * node + (left <= order || (right > order && right < left));
    }
    buddy->lacks[node] = (uint8_t)(order + 1);
    buddy_update_parents(buddy, node, order);
    *unit_p = (node << order) - ((size_t)1 << buddy->levels);
    return true;
}

/*
 * From the unit upwards, `lacks` is 0 in all nodes up to the first node in which it is not: that
 * node is either the allocated block of the unit, or a node in which another part is allocated.
 */
bool disti_buddy_find(const struct buddy *buddy, size_t unit, size_t *first_p, unsigned *order_p)
{
    size_t node = ((size_t)1 << buddy->levels) + unit;
    unsigned order = 0;
    bool taken;

    while (node > 0 && buddy->lacks[node] == 0) {
        node /= 2;
        order++;
    }
    taken = node > 0 && buddy->lacks[node] == order + 1;
    order -= !taken;
    *first_p = unit >> order << order;
    *order_p = order;
    return taken;
}

void disti_buddy_free(struct buddy *buddy, size_t first, unsigned order)
{
    size_t node = (((size_t)1 << buddy->levels) + first) >> order;

    buddy->lacks[node] = 0;
    buddy_update_parents(buddy, node, order);
}

void disti_buddy_each(const struct buddy *buddy,
                      void (*visit)(void *arg, size_t unit, size_t units), void *arg)
{
    size_t units = (size_t)1 << buddy->levels, begin = 0, first;
    unsigned order;

    for (size_t unit = 0; unit < units; unit += (size_t)1 << order) {
        if (disti_buddy_find(buddy, unit, &first, &order))
            continue;
        if (unit > begin)
            visit(arg, begin, unit - begin);
        begin = unit + ((size_t)1 << order);
    }
    if (units > begin)
        visit(arg, begin, units - begin);
}
