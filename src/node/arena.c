/* SPDX-License-Identifier: BSD-3-Clause */
/* The files that segments are made of, the arenas that divide them into blocks, and the table of
 * segments. */
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

/* The files that segments are made of: made, sealed, named, and opened by other processes. */

#define FILE_SEALS (F_SEAL_SHRINK | F_SEAL_GROW)
#define FILE_OWN DISTI_PROCESS_OWN "/fd"
/* MLOCK_ONFAULT, which headers of old C libraries lack. */
#define FILE_LOCK_ON_FAULT 1

size_t disti_segment_page(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

static dist_status file_create_failed(void)
{
    if (errno == EMFILE || errno == ENFILE)
        return disti_fail(DIST_ERR_NO_MEMORY,
                          "no descriptor is left for shared memory, which takes one a segment: "
                          "raise `ulimit -n`, or allocate fewer and larger buffers");
    return disti_fail_call("memfd_create", "cannot make shared memory");
}

static dist_status file_no_memory(size_t bytes)
{
    uint64_t most;

    if (!disti_file_may_have(bytes, &most))
        return disti_fail(DIST_ERR_NO_MEMORY,
                          "%zu KiB of shared memory exceed the limit on the size of files, %llu "
                          "KiB: raise it (ulimit -f)",
                          bytes >> 10, (unsigned long long)most >> 10);
    return disti_fail(DIST_ERR_NO_MEMORY,
                      "no room for %zu KiB of shared memory: free memory, or "
                      "raise the container's limit",
                      bytes >> 10);
}

/* More than the machine has? Memory of a file is not held to what the kernel grants else. */
static bool file_too_large(size_t bytes)
{
    struct sysinfo info;
    uint64_t units;

    if (bytes > SIZE_MAX / 4)
        return true;
    if (sysinfo(&info) < 0)
        return false;
    units = (uint64_t)info.totalram + info.totalswap;
    return bytes / (info.mem_unit ? info.mem_unit : 1) > units;
}

/*
 * Where the kernel grants no more memory than there is (vm.overcommit_memory=2) a page that cannot
 * be had is a SIGBUS at first touch; so there pages are made at once. Everywhere else a machine or
 * a container without memory is found at first touch, as with malloc.
 */
static bool file_reads_reserve(void)
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
        must = file_reads_reserve();
        atomic_store(&known, must);
    }
    return must;
}

static bool file_reserve_pages(int fd, size_t offset, size_t bytes)
{
    return !file_must_reserve() || disti_file_reserve(fd, offset, bytes) == 0;
}

/*
 * Where the kernel grants no more memory than there is: makes those pages, so that no touch of them
 * fails. ERR_NO_MEMORY.
 */
static dist_status segment_file_reserve(const struct disti_segment_name *name, size_t offset,
                                        size_t bytes)
{
    return file_reserve_pages(name->fd, offset, bytes) ? DIST_OK : file_no_memory(bytes);
}

/* A key that is not 0. */
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

/* By a mapping of that one page: what write() makes here may be a huge page. */
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
        return file_create_failed();
    if (disti_file_truncate(name.fd, bytes + page) != 0 ||
        !file_reserve_pages(name.fd, bytes, page))
        status = file_no_memory(bytes + page);
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

/* Frees those pages, whoever has them mapped; whoever reads there next reads zeros. */
static void segment_file_punch(const struct disti_segment_name *name, size_t offset, size_t bytes)
{
    (void)!fallocate(name->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset,
                     (off_t)bytes);
}

void disti_segment_file_drop(const struct disti_segment_name *name)
{
    segment_file_punch(name, 0, name->bytes + disti_segment_page());
    close(name->fd);
}

static dist_status file_gone(const struct disti_segment_name *name)
{
    return disti_fail(DIST_ERR_SYSTEM,
                      "process %d has no descriptor %d: it has ended, has freed the memory, or is "
                      "in another PID namespace",
                      name->pid, name->fd);
}

static dist_status file_stranger(const struct disti_segment_name *name)
{
    return disti_fail(DIST_ERR_SYSTEM,
                      "descriptor %d of process %d is not the memory that it offered: that process "
                      "has freed the memory, or is in another PID namespace",
                      name->fd, name->pid);
}

static dist_status file_open_failed(const struct disti_segment_name *name)
{
    if (errno == ENOENT && access(FILE_OWN, F_OK) != 0)
        return disti_fail(DIST_ERR_SYSTEM,
                          "cannot open the memory of other processes, since there is no /proc: "
                          "mount it (mount -t proc proc /proc)"); /* as in a chroot */
    if (errno == ENOENT || errno == ESRCH)
        return file_gone(name);
    if (errno == EMFILE || errno == ENFILE)
        return file_create_failed();
    return disti_fail_errno(DIST_ERR_SYSTEM,
                            "cannot open the memory of process %d: both must run as the same user "
                            "and be dumpable, in one PID namespace with /proc mounted",
                            name->pid);
}

/* Does the file look like a segment of that name? Its key is not seen yet. */
static bool file_looks(int fd, const struct disti_segment_name *name)
{
    size_t page = disti_segment_page(), total;
    struct stat info;

    return name->bytes % page == 0 && disti_add(name->bytes, page, &total) &&
           fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && (uint64_t)info.st_size == total;
}

static bool file_is(int fd, const struct disti_segment_name *name)
{
    int seals = fcntl(fd, F_GET_SEALS);
    uint64_t key = 0;

    return seals >= 0 && (seals & FILE_SEALS) == FILE_SEALS && file_looks(fd, name) &&
           pread(fd, &key, sizeof(key), (off_t)name->bytes) == (ssize_t)sizeof(key) && key != 0 &&
           key == name->key;
}

/* A descriptor that has become another file's meanwhile is looked at before it is really opened:
 * to open a device or a FIFO can have effects. */
dist_status disti_segment_file_open(const struct disti_segment_name *name, int *fd_p)
{
    dist_status status = DIST_OK;
    char path[DISTI_PROCESS_PATH];
    int fd, place;

    disti_process_path(name->pid, name->fd, path);
    place = open(path, O_PATH | O_CLOEXEC);
    if (place < 0)
        return file_open_failed(name);
    if (!file_looks(place, name)) {
        close(place);
        return file_stranger(name);
    }
    snprintf(path, sizeof(path), FILE_OWN "/%d", place);
    fd = open(path, O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        status = file_open_failed(name);
    else if (!file_is(fd, name))
        status = file_stranger(name);
    close(place);
    if (status == DIST_OK)
        *fd_p = fd;
    else if (fd >= 0)
        close(fd);
    return status;
}

/* An address for `bytes` bytes at a multiple of `align`, free at the moment; MAP_FAILED. */
static void *file_place(size_t bytes, size_t align)
{
    char *space =
        mmap(NULL, bytes + align, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (space == MAP_FAILED)
        return space;
    munmap(space, bytes + align);
    return space + (-(uintptr_t)space & (align - 1));
}

/* True if the kernel makes all pages of a new mapping at once: after mlockall(MCL_FUTURE). */
static bool file_populates(void)
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
 * Maps the file without making pages, as most of an arena is never used. If the kernel would make
 * them, the mapping is inaccessible at first, then set to lock each page at its first use.
 */
static void *file_map_unused(void *place, int fd, size_t offset, size_t bytes)
{
    const bool populates = file_populates();
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
 * The address is a hint: if another thread has mapped something there since, the segment gets
 * another address, which may not suit huge pages. MAP_FIXED would need the address space reserved,
 * and if it fails, nobody can tell whether the reservation is still there.
 */
static void *file_map_huge(int fd, size_t offset, size_t bytes)
{
    void *place = file_place(bytes, SEGMENT_HUGE), *memory;

    memory = file_map_unused(place == MAP_FAILED ? NULL : place, fd, offset, bytes);
    if (memory != MAP_FAILED)
        madvise(memory, bytes, MADV_HUGEPAGE); /* a wish: kernels without huge pages say EINVAL */
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

/* A buddy system in a tree of bytes. */

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

/* How many orders of blocks are free in a node of that order: 0, none; n, those below n. */
static unsigned buddy_holds(const struct buddy *buddy, size_t node, unsigned order)
{
    return order + 1 - buddy->lacks[node];
}

/* What the ancestors of a node of that order lack, after a change in it. */
static void buddy_mend(struct buddy *buddy, size_t node, unsigned order)
{
    for (node /= 2, order++; node > 0; node /= 2, order++) {
        unsigned left = buddy_holds(buddy, 2 * node, order - 1);
        unsigned right = buddy_holds(buddy, 2 * node + 1, order - 1);
        unsigned most = left > right ? left : right;

        if (left == order && right == order)
            most = order + 1;
        buddy->lacks[node] = (uint8_t)(order + 1 - most);
    }
}

/* The half in which a block of that order leaves the larger ones whole. */
static size_t buddy_half(const struct buddy *buddy, size_t node, unsigned half_order,
                         unsigned order)
{
    unsigned left = buddy_holds(buddy, 2 * node, half_order);
    unsigned right = buddy_holds(buddy, 2 * node + 1, half_order);

    return 2 * node + (left <= order || (right > order && right < left));
}

bool disti_buddy_take(struct buddy *buddy, unsigned order, size_t *unit_p)
{
    size_t node = 1;
    unsigned at = buddy->levels;

    if (order > at || buddy_holds(buddy, 1, at) <= order)
        return false;
    for (; at > order; at--)
        node = buddy_half(buddy, node, at - 1, order);
    buddy->lacks[node] = (uint8_t)(order + 1);
    buddy_mend(buddy, node, order);
    *unit_p = (node << order) - ((size_t)1 << buddy->levels);
    return true;
}

/* Up from the unit all is 0, to a node that is taken, or one of which another part is. */
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

void disti_buddy_give(struct buddy *buddy, size_t first, unsigned order)
{
    size_t node = (((size_t)1 << buddy->levels) + first) >> order;

    buddy->lacks[node] = 0;
    buddy_mend(buddy, node, order);
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

/* Arenas: segments that are divided into blocks. */

/* The first of each pool: address space, and no memory until it is used. */
static const size_t arena_first[ARENA_POOLS] = {
    [ARENA_PROGRAM] = (size_t)256 << 20,
    [ARENA_LIBRARY] = (size_t)32 << 20,
};

struct arena {
    struct arena *next;
    enum arena_pool pool;
    char *memory;
    struct disti_segment_name name;
    struct buddy buddy; /* of pages */
    size_t blocks;      /* that are taken */
    size_t dumped;      /* bytes from the beginning that a core dump has */
    bool retired;       /* no block is taken from it any more */
};

static pthread_mutex_t arena_growth = PTHREAD_MUTEX_INITIALIZER; /* before the table's lock */
static struct arena *arenas[ARENA_POOLS];                        /* by the table's lock */

char *disti_arena_memory(const struct arena_block *block)
{
    return block->arena->memory + block->offset;
}

const struct disti_segment_name *disti_arena_name(const struct arena_block *block)
{
    return &block->arena->name;
}

/* ---- arenas that come and go ---- */

static void arena_free(struct arena *arena)
{
    if (!arena)
        return;
    if (arena->memory)
        munmap(arena->memory, arena->name.bytes);
    if (arena->name.key)
        disti_segment_file_drop(&arena->name);
    disti_buddy_close(&arena->buddy);
    free(arena);
}

/* A core dump would make pages of all that nobody has touched. */
static dist_status arena_open(struct arena *arena, unsigned levels)
{
    size_t bytes = disti_segment_page() << levels;
    void *memory = NULL;
    dist_status status;

    if (!disti_buddy_open(&arena->buddy, levels))
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for an arena of %zu KiB", bytes >> 10);
    status = disti_segment_file_make(bytes, &arena->name);
    if (status == DIST_OK)
        status = disti_segment_file_map(arena->name.fd, 0, bytes, &memory);
    arena->memory = memory;
    if (status == DIST_OK)
        madvise(memory, bytes, MADV_DONTDUMP);
    return status;
}

/* With the lock held. */
static dist_status arena_add(struct arena *arena)
{
    struct segment segment = {.memory = arena->memory,
                              .bytes = arena->name.bytes,
                              .name = arena->name,
                              .arena = arena,
                              .kind = SEGMENT_ARENA};
    struct arena **entry = &arenas[arena->pool];
    dist_status status = disti_segment_table_room();

    if (status != DIST_OK)
        return status;
    disti_segment_table_add(&segment);
    while (*entry)
        entry = &(*entry)->next;
    *entry = arena;
    return DIST_OK;
}

/* With the lock held: out of pool and table. */
static void arena_remove(struct arena *arena)
{
    struct arena **entry = &arenas[arena->pool];

    while (*entry != arena)
        entry = &(*entry)->next;
    *entry = arena->next;
    disti_segment_table_remove(arena->memory);
}

static dist_status arena_make(enum arena_pool pool, unsigned levels)
{
    struct arena *arena = calloc(1, sizeof(*arena));
    dist_status status;

    if (!arena)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for an arena");
    arena->pool = pool;
    status = arena_open(arena, levels);
    if (status == DIST_OK) {
        disti_segment_lock();
        status = arena_add(arena);
        disti_segment_unlock();
    }
    if (status != DIST_OK)
        arena_free(arena);
    return status;
}

/* With the lock held: all of a pool's bytes that blocks may be taken from. */
static size_t arena_bytes(enum arena_pool pool)
{
    size_t bytes = 0;

    for (const struct arena *arena = arenas[pool]; arena; arena = arena->next)
        bytes += arena->retired ? 0 : arena->name.bytes;
    return bytes;
}

/* As large as all before it; if that cannot be had, as large as must be. */
static dist_status arena_grow(enum arena_pool pool, unsigned order)
{
    const struct disti_log *log = disti_log_current();
    size_t bytes;
    unsigned levels;
    dist_status status;

    disti_segment_lock();
    bytes = arena_bytes(pool);
    disti_segment_unlock();
    bytes = bytes > arena_first[pool] ? bytes : arena_first[pool];
    levels = disti_buddy_order(bytes / disti_segment_page());
    disti_log_use(NULL); /* it is no error: there is other memory */
    status = arena_make(pool, levels > order ? levels : order);
    if (status != DIST_OK && levels > order)
        status = arena_make(pool, order);
    disti_log_use(log);
    return status;
}

/* ---- blocks ---- */

static void arena_show_to_dump(struct arena *arena, size_t end)
{
    if (end <= arena->dumped)
        return;
    arena->dumped = end;
    madvise(arena->memory, end, MADV_DODUMP);
}

/* With the lock held. */
static bool arena_take_some(enum arena_pool pool, unsigned order, struct arena_block *block_p)
{
    size_t unit = 0, page = disti_segment_page();
    struct arena *arena = arenas[pool];

    while (arena && (arena->retired || !disti_buddy_take(&arena->buddy, order, &unit)))
        arena = arena->next;
    if (!arena)
        return false;
    arena->blocks++;
    arena_show_to_dump(arena, (unit + ((size_t)1 << order)) * page);
    *block_p = (struct arena_block){.arena = arena, .offset = unit * page};
    return true;
}

static bool arena_try(enum arena_pool pool, unsigned order, struct arena_block *block_p)
{
    bool taken;

    disti_segment_lock();
    taken = arena_take_some(pool, order, block_p);
    disti_segment_unlock();
    return taken;
}

/* Several threads that need an arena get one. */
static bool arena_take_or_grow(enum arena_pool pool, unsigned order, struct arena_block *block_p)
{
    bool taken = arena_try(pool, order, block_p);

    if (taken)
        return true;
    pthread_mutex_lock(&arena_growth);
    taken = arena_try(pool, order, block_p) ||
            (arena_grow(pool, order) == DIST_OK && arena_try(pool, order, block_p));
    pthread_mutex_unlock(&arena_growth);
    return taken;
}

dist_status disti_arena_take(enum arena_pool pool, size_t bytes, struct arena_block *block_p,
                             bool *shared_p)
{
    size_t page = disti_segment_page();
    unsigned order = disti_buddy_order(bytes / page + (bytes % page > 0));
    struct arena_block block;
    dist_status status = file_too_large(bytes) ? file_no_memory(bytes) : DIST_OK;

    if (status != DIST_OK)
        return status;
    *shared_p = arena_take_or_grow(pool, order, &block);
    if (!*shared_p)
        return DIST_OK;
    status = segment_file_reserve(&block.arena->name, block.offset, bytes);
    if (status == DIST_OK)
        *block_p = block;
    else
        disti_arena_give(&block);
    return status;
}

bool disti_arena_find(struct arena *arena, const void *memory, struct arena_block *block_p,
                      size_t *bytes_p)
{
    size_t page = disti_segment_page(), first;
    size_t unit = (size_t)((uintptr_t)memory - (uintptr_t)arena->memory) / page;
    unsigned order;

    if (!disti_buddy_find(&arena->buddy, unit, &first, &order))
        return false;
    *block_p = (struct arena_block){.arena = arena, .offset = first * page};
    *bytes_p = page << order;
    return true;
}

/* One empty arena stays, for the next that allocates. */
static bool arena_is_spare(const struct arena *arena)
{
    const struct arena *other = arenas[arena->pool];

    while (other && (other == arena || other->blocks > 0 || other->retired))
        other = other->next;
    return arena->blocks == 0 && (arena->retired || other);
}

/*
 * Who keeps pages registered with a network card watches for madvise, as for munmap; of a hole in
 * the file it would not hear. Locked pages refuse it.
 */
static void arena_punch(const struct arena_block *block, size_t bytes)
{
    if (madvise(disti_arena_memory(block), bytes, MADV_REMOVE) < 0)
        segment_file_punch(&block->arena->name, block->offset, bytes);
}

void disti_arena_give(const struct arena_block *block)
{
    struct arena *arena = block->arena;
    size_t page = disti_segment_page(), bytes = page;
    struct arena_block found;
    bool spare;

    disti_segment_lock();
    disti_arena_find(arena, disti_arena_memory(block), &found, &bytes);
    disti_segment_unlock();
    arena_punch(block, bytes);
    disti_segment_lock();
    disti_buddy_give(&arena->buddy, block->offset / page, disti_buddy_order(bytes / page));
    arena->blocks--;
    spare = arena_is_spare(arena);
    if (spare)
        arena_remove(arena);
    disti_segment_unlock();
    if (spare)
        arena_free(arena);
}

/* With the lock held. An arena to be freed, which is in the pool no more; NULL: there is none. */
static struct arena *arena_retire(void)
{
    struct arena *empty = NULL;

    for (struct arena *arena = arenas[ARENA_PROGRAM]; arena; arena = arena->next) {
        arena->retired = true;
        if (arena->blocks == 0)
            empty = arena;
    }
    if (empty)
        arena_remove(empty);
    return empty;
}

void disti_segment_retire(void)
{
    struct arena *empty;

    do {
        disti_segment_lock();
        empty = arena_retire();
        disti_segment_unlock();
        arena_free(empty);
    } while (empty);
}

/* ---- a fork: none is being made; in the child its view of all blocks, and no arena ---- */

static void arena_view(void *arg, size_t unit, size_t units)
{
    const struct arena *arena = arg;
    size_t page = disti_segment_page();

    disti_pages_map(arena->memory + unit * page, units * page, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_FIXED, arena->name.fd, (off_t)(unit * page));
}

/* Of what is in no block there is no view: it may be large, and is charged as if it were used. */
static void arenas_forked(void)
{
    for (int pool = 0; pool < ARENA_POOLS; pool++) {
        while (arenas[pool]) {
            struct arena *arena = arenas[pool];

            arenas[pool] = arena->next;
            disti_pages_map(arena->memory, arena->name.bytes, PROT_NONE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
            disti_buddy_each(&arena->buddy, arena_view, arena);
            close(arena->name.fd);
            disti_buddy_close(&arena->buddy);
            free(arena);
        }
    }
    pthread_mutex_unlock(&arena_growth);
}

/* The table of what this process shares, by address; and its end in a forked child. */

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static struct segment *table; /* by address */
static size_t table_room;
static atomic_size_t table_count;
static int32_t table_pid; /* set once, and in a forked child */

static size_t table_length(void)
{
    return atomic_load_explicit(&table_count, memory_order_relaxed);
}

static void table_set_length(size_t length)
{
    atomic_store_explicit(&table_count, length, memory_order_relaxed);
}

/* How many segments begin at or before an address. */
static size_t table_upto(const void *memory)
{
    size_t low = 0, high = table_length();

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if ((uintptr_t)table[middle].memory <= (uintptr_t)memory)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

size_t disti_segment_table_length(void)
{
    return table_length();
}

void disti_segment_lock(void)
{
    pthread_mutex_lock(&table_lock);
}

void disti_segment_unlock(void)
{
    pthread_mutex_unlock(&table_lock);
}

dist_status disti_segment_table_room(void)
{
    size_t room = table_room ? 2 * table_room : 16;
    struct segment *larger;

    if (table_length() < table_room)
        return DIST_OK;
    larger = realloc(table, room * sizeof(*table));
    if (!larger)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for a table of %zu segments", room);
    table = larger;
    table_room = room;
    return DIST_OK;
}

void disti_segment_table_add(const struct segment *segment)
{
    size_t at = table_upto(segment->memory), length = table_length();

    memmove(&table[at + 1], &table[at], (length - at) * sizeof(*table));
    table[at] = *segment;
    table_set_length(length + 1);
}

static dist_status table_not_there(const void *memory, bool registered)
{
    return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                      "%p does not begin %s memory of this process: it was %s before, never "
                      "obtained, or obtained by the parent before fork",
                      memory, registered ? "registered" : "allocated",
                      registered ? "unregistered" : "freed");
}

static dist_status table_other_way(const void *memory, bool registered)
{
    return disti_fail(DIST_ERR_INVALID_ARGUMENT, "%p was %s: give it to %s", memory,
                      registered ? "allocated by dist_alloc" : "registered by dist_register",
                      registered ? "dist_free" : "dist_unregister");
}

const struct segment *disti_segment_table_find(const void *memory)
{
    size_t after = table_upto(memory);
    const struct segment *segment = after ? &table[after - 1] : NULL;

    return segment && (uintptr_t)memory - (uintptr_t)segment->memory < segment->bytes ? segment
                                                                                      : NULL;
}

/* bytes is not 0, and does not wrap. */
bool disti_segment_table_overlaps(const void *memory, size_t bytes)
{
    const char *last = (const char *)memory + bytes - 1;
    size_t upto;
    bool overlaps;

    disti_segment_lock();
    upto = table_upto(last);
    overlaps = upto > 0 &&
               (uintptr_t)table[upto - 1].memory + table[upto - 1].bytes - 1 >= (uintptr_t)memory;
    disti_segment_unlock();
    return overlaps;
}

/* What begins there, of an arena the block. False: nothing. */
static bool table_begins(const void *memory, struct segment *segment_p)
{
    const struct segment *segment = disti_segment_table_find(memory);
    struct arena_block block;

    if (!segment)
        return false;
    *segment_p = *segment;
    if (segment->kind == SEGMENT_ARENA) {
        if (!disti_arena_find(segment->arena, memory, &block, &segment_p->bytes))
            return false;
        segment_p->offset = block.offset;
        segment_p->memory = disti_arena_memory(&block);
    }
    return segment_p->memory == memory;
}

dist_status disti_segment_table_get(const void *memory, bool registered, struct segment *segment_p)
{
    struct segment segment;

    if (!table_begins(memory, &segment))
        return table_not_there(memory, registered);
    if ((segment.kind == SEGMENT_REGISTERED) != registered)
        return table_other_way(memory, registered);
    *segment_p = segment;
    return DIST_OK;
}

void disti_segment_table_remove(const void *memory)
{
    size_t after = table_upto(memory), length = table_length();

    memmove(&table[after - 1], &table[after], (length - after) * sizeof(*table));
    table_set_length(length - 1);
}

dist_status disti_segment_table_take(const void *memory, bool registered, struct segment *segment_p)
{
    dist_status status = disti_segment_table_get(memory, registered, segment_p);

    if (status == DIST_OK && segment_p->kind != SEGMENT_ARENA)
        disti_segment_table_remove(memory);
    return status;
}

void disti_segment_log_private(size_t bytes)
{
    disti_info("%zu KiB of memory are used like ordinary memory: %s", bytes >> 10,
               dist_last_error());
}

void *disti_segment_table_find_key(uint64_t key)
{
    void *memory = NULL;

    disti_segment_lock();
    for (size_t i = 0; !memory && i < table_length(); i++) {
        if (table[i].name.key == key && table[i].kind != SEGMENT_REGISTERED)
            memory = table[i].memory;
    }
    disti_segment_unlock();
    return memory;
}

/* ---- a forked child ---- */

/*
 * The child gets a view of its own: its writes are its own, as with memory that is not shared; what
 * the parent writes it sees until it writes to that page itself. It owns no segment.
 */
static void table_forked(void)
{
    for (size_t i = 0; i < table_length(); i++) {
        const struct segment *segment = &table[i];
        struct segment_pages pages = disti_segment_pages(segment);

        if (segment->kind == SEGMENT_REGISTERED && segment->arena)
            disti_pages_map(pages.memory, pages.bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_FIXED, segment->name.fd, (off_t)pages.offset);
    }
    table_set_length(0);
    table_pid = (int32_t)getpid();
    disti_segment_peers_forked();
    disti_segment_unlock();
    arenas_forked();
}

static void table_before_fork(void)
{
    pthread_mutex_lock(&arena_growth);
    disti_segment_lock();
    disti_segment_peers_lock();
}

static void table_after_fork(void)
{
    disti_segment_peers_unlock();
    disti_segment_unlock();
    pthread_mutex_unlock(&arena_growth);
}

static void table_begin_once(void)
{
    table_pid = (int32_t)getpid();
    pthread_atfork(table_before_fork, table_after_fork, table_forked);
}

int32_t disti_segment_begin(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, table_begin_once);
    return table_pid;
}
