/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared memory of this process: allocated, found by address, freed. */
#include "node/segment.h"
#include "base/checked.h"
#include "base/descriptor.h"
#include "base/file.h"
#include "base/log.h"
#include "base/process.h"
#include "node/node.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/queue.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <unistd.h>

/* Whole pages, at least one. */
static dist_status segment_round(size_t bytes, size_t *bytes_p)
{
    size_t page = disti_segment_page();

    if (!disti_add(bytes ? bytes : 1, page - 1, bytes_p))
        return disti_fail(DIST_ERR_NO_MEMORY,
                          "%zu bytes of shared memory are more than can exist: ask for less",
                          bytes);
    *bytes_p -= *bytes_p % page;
    return DIST_OK;
}

static dist_status segment_add(const struct segment *segment)
{
    dist_status status;

    disti_segment_lock();
    status = disti_segment_table_room();
    if (status == DIST_OK)
        disti_segment_table_add(segment);
    disti_segment_unlock();
    return status;
}

/* ---- blocks of arenas ---- */

static dist_status segment_alloc_private(size_t bytes, void **memory_p)
{
    struct segment segment = {.kind = SEGMENT_PRIVATE, .bytes = bytes};
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    dist_status status;

    if (memory == MAP_FAILED)
        return disti_fail(DIST_ERR_NO_MEMORY, "no room for %zu KiB of memory: free some",
                          bytes >> 10);
    disti_segment_log_private(bytes);
    segment.memory = memory;
    status = segment_add(&segment);
    if (status == DIST_OK)
        *memory_p = memory;
    else
        munmap(memory, bytes);
    return status;
}

/* A block of whole pages out of the pool. *shared_p: see disti_arena_take. */
static dist_status segment_take(enum arena_pool pool, size_t *bytes, struct arena_block *block_p,
                                bool *shared_p)
{
    dist_status status;

    disti_segment_begin();
    status = segment_round(*bytes, bytes);
    return status == DIST_OK ? disti_arena_take(pool, *bytes, block_p, shared_p) : status;
}

dist_status disti_segment_alloc(size_t bytes, void **memory_p)
{
    struct arena_block block;
    bool shared;
    dist_status status = segment_take(ARENA_PROGRAM, &bytes, &block, &shared);

    if (status == DIST_OK && !shared)
        return segment_alloc_private(bytes, memory_p);
    if (status == DIST_OK)
        *memory_p = disti_arena_memory(&block);
    return status;
}

dist_status disti_segment_alloc_shared(size_t bytes, void **memory_p,
                                       struct disti_segment_location *location_p)
{
    struct arena_block block;
    bool shared;
    dist_status status = segment_take(ARENA_LIBRARY, &bytes, &block, &shared);

    if (status != DIST_OK)
        return status;
    if (!shared)
        return disti_fail(DIST_ERR_NO_MEMORY, "no shared memory can be made: raise `ulimit -n`, "
                                              "or allow memfd_create in the sandbox");
    *location_p =
        (struct disti_segment_location){.name = *disti_arena_name(&block), .offset = block.offset};
    *memory_p = disti_arena_memory(&block);
    return DIST_OK;
}

/* It is in the table no more, but for an arena, whose block it was. */
static void segment_end(const struct segment *segment)
{
    if (segment->kind == SEGMENT_ARENA)
        disti_arena_give(&(struct arena_block){.arena = segment->arena, .offset = segment->offset});
    else
        munmap(segment->memory, segment->bytes);
}

dist_status disti_segment_free(void *memory)
{
    struct segment segment;
    dist_status status;

    if (!memory)
        return DIST_OK;
    disti_segment_lock();
    status = disti_segment_table_take(memory, false, &segment);
    disti_segment_unlock();
    if (status == DIST_OK)
        segment_end(&segment);
    return status;
}

/* ---- what lies where ---- */

/* With the lock held. */
static bool segment_holds(const void *memory, size_t bytes,
                          struct disti_segment_location *location_p)
{
    const struct segment *segment = disti_segment_table_find(memory);
    struct arena_block block = {.offset = 0};
    size_t offset, end;

    if (!segment || segment->name.key == 0)
        return false;
    offset = (size_t)((uintptr_t)memory - (uintptr_t)segment->memory);
    end = segment->bytes;
    if (segment->kind == SEGMENT_ARENA) {
        if (!disti_arena_find(segment->arena, memory, &block, &end))
            return false;
        end += block.offset;
    }
    if (!disti_inside(offset, bytes, end))
        return false;
    *location_p =
        (struct disti_segment_location){.name = segment->name, .offset = segment->offset + offset};
    return true;
}

bool disti_segment_find(const void *memory, size_t bytes, struct disti_segment_location *location_p)
{
    bool found;

    if (disti_segment_table_length() == 0)
        return false;
    disti_segment_lock();
    found = segment_holds(memory, bytes, location_p);
    disti_segment_unlock();
    return found;
}

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

dist_status disti_segment_file_reserve(const struct disti_segment_name *name, size_t offset,
                                       size_t bytes)
{
    return file_reserve_pages(name->fd, offset, bytes) ? DIST_OK : file_no_memory(bytes);
}

static bool file_size(int fd, size_t bytes, size_t seal_bytes)
{
    return disti_file_truncate(fd, bytes + seal_bytes) == 0 &&
           file_reserve_pages(fd, bytes, seal_bytes);
}

dist_status disti_segment_file_check(size_t bytes)
{
    return file_too_large(bytes) ? file_no_memory(bytes) : DIST_OK;
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
    if (!file_size(name.fd, bytes, page))
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

void disti_segment_file_punch(const struct disti_segment_name *name, size_t offset, size_t bytes)
{
    (void)!fallocate(name->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset,
                     (off_t)bytes);
}

void disti_segment_file_drop(const struct disti_segment_name *name)
{
    disti_segment_file_punch(name, 0, name->bytes + disti_segment_page());
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

/* As in a chroot that has none. */
static dist_status file_no_proc(void)
{
    return disti_fail(DIST_ERR_SYSTEM,
                      "cannot open the memory of other processes, since there is no /proc: mount "
                      "it (mount -t proc proc /proc)");
}

static dist_status file_open_failed(const struct disti_segment_name *name)
{
    if (errno == ENOENT && access(FILE_OWN, F_OK) != 0)
        return file_no_proc();
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

/* This process's mappings of other processes' segments, held or kept for the next time. */

/* Keys are random, so their lowest bits choose a chain. */
#define PEER_CHAINS 256

struct peer {
    struct peer *next;       /* of its chain */
    TAILQ_ENTRY(peer) entry; /* in peer_idle, while nobody holds it */
    unsigned holders;
    uint64_t key;
    size_t bytes;
    void *memory;
};

static pthread_mutex_t peer_lock = PTHREAD_MUTEX_INITIALIZER;
static struct peer *peer_chains[PEER_CHAINS];
/* That nobody holds, the one released last first. */
static TAILQ_HEAD(peer_queue, peer) peer_idle = TAILQ_HEAD_INITIALIZER(peer_idle);
static size_t peer_idle_count;

static struct peer **peer_entry(uint64_t key)
{
    struct peer **entry = &peer_chains[key % PEER_CHAINS];

    while (*entry && (*entry)->key != key)
        entry = &(*entry)->next;
    return entry;
}

static void peer_reuse(struct peer *peer)
{
    TAILQ_REMOVE(&peer_idle, peer, entry);
    peer_idle_count--;
}

static void peer_drop(struct peer *peer)
{
    *peer_entry(peer->key) = peer->next;
    peer_reuse(peer);
    munmap(peer->memory, peer->bytes);
    free(peer);
}

/* A forked child has no part in them: there they do not exist. Nor has a core dump, which would
 * make pages of all that the owner has not touched. */
static dist_status peer_map(const struct disti_segment_name *name, struct peer *peer)
{
    dist_status status;
    int fd;

    status = disti_segment_file_open(name, &fd);
    if (status != DIST_OK)
        return status;
    peer->key = name->key;
    peer->bytes = name->bytes;
    status = disti_segment_file_map(fd, 0, peer->bytes, &peer->memory);
    if (status == DIST_OK) {
        madvise(peer->memory, peer->bytes, MADV_DONTFORK);
        madvise(peer->memory, peer->bytes, MADV_DONTDUMP);
    }
    close(fd);
    return status;
}

/* With the lock held. */
static dist_status peer_new(const struct disti_segment_name *name, struct peer **peer_p)
{
    struct peer *peer = calloc(1, sizeof(*peer));
    dist_status status =
        peer ? peer_map(name, peer) : disti_fail(DIST_ERR_NO_MEMORY, "no memory for a mapping");

    if (status != DIST_OK) {
        free(peer);
        return status;
    }
    *peer_entry(peer->key) = peer;
    *peer_p = peer;
    return DIST_OK;
}

static dist_status peer_find(const struct disti_segment_name *name, void **memory_p)
{
    struct peer *peer;
    dist_status status = DIST_OK;

    pthread_mutex_lock(&peer_lock);
    peer = *peer_entry(name->key);
    if (!peer) {
        status = peer_new(name, &peer);
    } else if (peer->bytes != name->bytes) {
        status = disti_fail(DIST_ERR_SYSTEM,
                            "process %d offered the same memory once with %zu bytes and once with "
                            "%zu",
                            name->pid, peer->bytes, (size_t)name->bytes);
    } else if (peer->holders == 0) {
        peer_reuse(peer);
    }
    if (status == DIST_OK) {
        peer->holders++;
        *memory_p = peer->memory;
    }
    pthread_mutex_unlock(&peer_lock);
    return status;
}

/*
 * The owner's own is found at the owner's address: so ranks that are threads of one process share
 * one mapping, which is what ThreadSanitizer needs to see what they do to each other.
 */
dist_status disti_segment_map(const struct disti_segment_name *name, void **memory_p)
{
    int32_t pid = disti_segment_begin();
    void *memory;

    if (name->key == 0 || name->bytes == 0)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "no segment is named");
    if (name->pid != pid)
        return peer_find(name, memory_p);
    memory = disti_segment_table_find_key(name->key);
    if (!memory)
        return disti_fail(DIST_ERR_SYSTEM,
                          "this process, which is number %d too, does not have the offered memory: "
                          "it has been freed, or its owner is in another PID namespace",
                          pid);
    *memory_p = memory;
    return DIST_OK;
}

dist_status disti_segment_can_map(const struct disti_segment_name *name)
{
    bool mapped;
    dist_status status;
    int fd;

    if (name->pid == disti_segment_begin())
        return DIST_OK;
    pthread_mutex_lock(&peer_lock);
    mapped = *peer_entry(name->key);
    pthread_mutex_unlock(&peer_lock);
    if (mapped)
        return DIST_OK;
    status = disti_segment_file_open(name, &fd);
    if (status == DIST_OK)
        close(fd);
    return status;
}

void disti_segment_inherit(const struct disti_segment_location *location, size_t bytes,
                           bool inherited)
{
    const struct peer *peer;

    pthread_mutex_lock(&peer_lock);
    peer = *peer_entry(location->name.key);
    if (peer)
        madvise((char *)peer->memory + location->offset, bytes,
                inherited ? MADV_DOFORK : MADV_DONTFORK);
    pthread_mutex_unlock(&peer_lock);
}

void disti_segment_peers_lock(void)
{
    pthread_mutex_lock(&peer_lock);
}

void disti_segment_peers_unlock(void)
{
    pthread_mutex_unlock(&peer_lock);
}

void disti_segment_peers_forked(void)
{
    for (int i = 0; i < PEER_CHAINS; i++) {
        while (peer_chains[i]) {
            struct peer *peer = peer_chains[i];

            peer_chains[i] = peer->next;
            free(peer);
        }
    }
    TAILQ_INIT(&peer_idle);
    peer_idle_count = 0;
    disti_segment_peers_unlock();
}

static void peer_trim(size_t keep)
{
    while (peer_idle_count > keep)
        peer_drop(TAILQ_LAST(&peer_idle, peer_queue));
}

void disti_segment_unmap(uint64_t key)
{
    struct peer *peer;

    pthread_mutex_lock(&peer_lock);
    peer = *peer_entry(key);
    if (peer && peer->holders > 0 && --peer->holders == 0) {
        TAILQ_INSERT_HEAD(&peer_idle, peer, entry);
        peer_idle_count++;
        peer_trim(DISTI_SEGMENT_KEEP);
    }
    pthread_mutex_unlock(&peer_lock);
}

void disti_segment_trim(size_t keep)
{
    pthread_mutex_lock(&peer_lock);
    peer_trim(keep);
    pthread_mutex_unlock(&peer_lock);
}

/* Registered memory that does not begin and end with pages: what becomes of its ends. */

struct segment_pages disti_segment_pages(const struct segment *segment)
{
    size_t page = disti_segment_page(), before = -(uintptr_t)segment->memory % page;
    size_t after = ((uintptr_t)segment->memory + segment->bytes) % page;

    if (segment->bytes < before + after)
        return (struct segment_pages){.memory = segment->memory, .offset = segment->offset};
    return (struct segment_pages){.memory = segment->memory + before,
                                  .bytes = segment->bytes - before - after,
                                  .offset = segment->offset + before};
}

/* A range's bytes before and behind the shared pages. */
struct ends {
    char *memory, *twin;
    size_t bytes, head, tail;
};

/* Of `bytes` bytes at `from` those that lie before `to`. */
static size_t ends_before(const char *from, const char *to, size_t bytes)
{
    size_t there = to > from ? (size_t)(to - from) : 0;

    return there < bytes ? there : bytes;
}

static struct ends ends_of(const struct segment *segment, char *memory, size_t bytes)
{
    struct segment_pages pages = disti_segment_pages(segment);
    struct ends ends = {.memory = memory, .bytes = bytes};
    struct arena_block block = {segment->arena,
                                segment->offset + (size_t)(memory - segment->memory)};

    ends.head = ends_before(memory, pages.memory, bytes);
    ends.tail = bytes - ends_before(memory, pages.memory + pages.bytes, bytes);
    ends.twin = ends.head || ends.tail ? disti_arena_memory(&block) : memory;
    return ends;
}

static struct ends ends_find(void *memory, size_t bytes)
{
    struct ends ends = {.memory = memory, .twin = memory, .bytes = bytes};
    const struct segment *segment;

    disti_segment_lock();
    segment = disti_segment_table_find(memory);
    if (segment && segment->kind == SEGMENT_REGISTERED && segment->arena)
        ends = ends_of(segment, memory, bytes);
    disti_segment_unlock();
    return ends;
}

static void ends_copy(const struct ends *ends, char *to, const char *from)
{
    size_t behind = ends->bytes - ends->tail;

    if (ends->head)
        memcpy(to, from, ends->head);
    if (ends->tail)
        memcpy(to + behind, from + behind, ends->tail);
}

void *disti_segment_twin(void *memory, size_t bytes)
{
    return ends_find(memory, bytes).twin;
}

void *disti_segment_load(void *memory, size_t bytes)
{
    struct ends ends = ends_find(memory, bytes);

    ends_copy(&ends, ends.twin, ends.memory);
    return ends.twin;
}

void disti_segment_store(void *memory, size_t bytes)
{
    struct ends ends = ends_find(memory, bytes);

    ends_copy(&ends, ends.memory, ends.twin);
}
