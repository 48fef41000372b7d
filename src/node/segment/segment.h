/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of this process that other processes of the machine can map. */
#ifndef DISTI_NODE_SEGMENT_SEGMENT_H
#define DISTI_NODE_SEGMENT_SEGMENT_H

#include <dist/dist.h>

/*
 * A segment is a sealed memfd that its owner has mapped. It has no name in the file system: a
 * process of the same user maps it through /proc/PID/fd/FD, once, and keeps the mapping.
 *
 *     owner                                  peer
 *     |--- segment 7 (fd 12) ---|            disti_segment_map(pid, {fd 12, key}, ...)
 *     |   block  block    block |  ------->  |--- its own mapping -----|
 *
 * Memory comes as blocks of few large segments, the arenas, so that the number of descriptors and
 * mappings does not grow with the number of blocks (arena.h).
 *
 * Pages are made at first touch. Without memory that ends as with malloc: the kernel kills; but
 * where it is set to grant no more than there is (vm.overcommit_memory=2) they are made by alloc.
 *
 * A forked child owns no segment. Where its parent's were it has a view of its own: what it writes
 * is its own, what the parent writes it sees until it writes to that page itself.
 *
 * The segments of a process are one table for all its groups, guarded by a lock of its own; every
 * function may be called by any thread. A key is never used twice on a machine, so that a
 * descriptor that meanwhile is another file's is recognised.
 */

/* What a peer needs to map it. All zero: no segment. */
struct disti_segment_name {
    uint64_t key;   /* random; stands in the seal page of the memory too */
    uint64_t bytes; /* that can be used */
    int32_t fd;     /* the owner's descriptor */
    int32_t pid;
};

/* Where a range of memory lies in a segment. */
struct disti_segment_location {
    uint64_t offset; /* of its first byte */
    struct disti_segment_name name;
};

/*
 * For the program: at least `bytes` bytes, zeroed, aligned to a page (from 2 MiB on to 2 MiB, with
 * huge pages where the machine gives them), pages made at first touch. Where no shared memory can
 * be made it is ordinary memory, which disti_segment_find does not find. ERR_NO_MEMORY.
 */
dist_status disti_segment_alloc(size_t bytes, void **memory_p);

/*
 * For the library: the same, but shared for certain, out of arenas of its own; and where it lies. A
 * peer maps location_p->name once for all pieces in it. ERR_NO_MEMORY.
 */
dist_status disti_segment_alloc_shared(size_t bytes, void **memory_p,
                                       struct disti_segment_location *location_p);

/*
 * Gives back what alloc or piece gave, at once. Peers may keep their mappings of it: these
 * read zeros and never fault, but may show what comes there next. ERR_INVALID_ARGUMENT: it is from
 * none of them. NULL: nothing.
 */
dist_status disti_segment_free(void *memory);

/*
 * Nothing is allocated any more where memory is now: for when a peer has failed that may still be
 * writing to memory which the program now frees.
 */
void disti_segment_retire(void);

/*
 * Makes memory that the caller owns like that of disti_segment_alloc, in place: the address and the
 * contents stay, its whole pages become shared ones; or stay, where no shared memory can be made.
 * It must be private anonymous memory, and no other thread may write there during the call. What
 * the pages were besides is lost: locked in memory, advised, pinned for a device.
 * ERR_INVALID_ARGUMENT says what is wrong; ERR_NO_MEMORY. Unregister, to be called before the
 * memory is unmapped, makes it private again, contents kept.
 *
 * What lies before the first whole page or behind the last stays where it is, for other data are
 * beside it. Its place in the block is in the twin: the block as this process has it mapped in one
 * piece, as peers have.
 *
 *     memory        ..bbb|bbbbbbbbbb|bbbbbbbbbb|bb....
 *                    end      shared pages      end     load copies the ends to the twin,
 *     twin          ..bbb|bbbbbbbbbb|bbbbbbbbbb|bb....  store those of the twin back
 */
dist_status disti_segment_register(void *memory, size_t bytes);
dist_status disti_segment_unregister(void *memory);

/*
 * For a range that disti_segment_find has found. twin: where all of it is seen together, in
 * the twin if something lies in an end, else at memory. load, for what peers are to read, copies
 * the ends there as well; store, for what they have written, copies them back.
 */
void *disti_segment_twin(void *memory, size_t bytes);
void *disti_segment_load(void *memory, size_t bytes);
void disti_segment_store(void *memory, size_t bytes);

/* Does [memory, memory + bytes) lie in one block? Then writes where. Takes some ten nanoseconds. */
bool disti_segment_find(const void *memory, size_t bytes,
                        struct disti_segment_location *location_p);

/* How many mappings that nobody holds are kept: those that were released last. */
#define DISTI_SEGMENT_KEEP 64

/*
 * This process's mapping of a peer's segment, made if need be; the owner's own is found too. It is
 * held until disti_segment_unmap has been called once for each call of this. Fails if the peer is
 * gone or the segment is, if the process may not see the peer's descriptors (another user, a
 * container, not dumpable), or without memory.
 */
dist_status disti_segment_map(const struct disti_segment_name *name, void **memory_p);

/* The status that disti_segment_map would return for another process's segment, but for memory. */
dist_status disti_segment_can_map(const struct disti_segment_name *name);

/* Releases it. Does nothing for a key of this process's own, or 0. */
void disti_segment_unmap(uint64_t key);

/*
 * Whether a child that this process forks has those bytes of a mapping that is held too: as they
 * are, not as a view of its own. At first it has not. Does nothing for memory of this process.
 */
void disti_segment_inherit(const struct disti_segment_location *location, size_t bytes,
                           bool inherited);

/* Unmaps what nobody holds, except the `keep` mappings that were released last. */
void disti_segment_trim(size_t keep);

#endif
