/* SPDX-License-Identifier: BSD-3-Clause */
/* The memory that two ranks share: what lies where, and how it is made and mapped. */
#ifndef DISTI_TRANSPORTS_SHM_MEMORY_H
#define DISTI_TRANSPORTS_SHM_MEMORY_H

#include <dist/transport.h>

#include <stdalign.h>
#include <stdatomic.h>

/*
 * A pair of ranks shares one memfd, made by the side that called the other (side 0):
 *
 *      | side 0 | side 1 | FIFO that side 0 fills | FIFO that side 1 fills |
 *
 * Nobody may shrink or grow it (seals), and its pages exist before it is used, so that
 * no access can end in SIGBUS.
 */
#define SHM_LINE 64
#define SHM_APART                                                                                  \
    128 /* CPUs fetch lines in pairs: what different ranks write lies this far apart */
#define SHM_FIFO_MIN ((size_t)16 << 10)
#define SHM_FIFO_MAX ((size_t)256 << 10)
#define SHM_LENT_MAX 64

enum shm_verdict { SHM_CMA_UNKNOWN, SHM_CMA_WORKS, SHM_CMA_REFUSED };

/* What one side writes and the other reads (asleep: both write). */
struct shm_side {
    alignas(SHM_APART) _Atomic uint64_t consumed; /* bytes given back of the other's FIFO */
    alignas(SHM_APART) _Atomic uint32_t asleep;   /* sleeps, or is about to: ring its doorbell */
    _Atomic uint32_t verdict;                     /* can this side read the other's memory? */
    _Atomic uint32_t closed;                      /* this side has closed: what it lent is gone */
    _Atomic uint64_t taken_back; /* bit i: what this side has lent as i is not to be used */
    _Atomic uint64_t returned;   /* of the other's credit, in all */
    /* Of what the other lent: acknowledgement n stands at n % SHM_LENT_MAX as lap << 8 | id. */
    alignas(SHM_APART) _Atomic uint64_t acks[SHM_LENT_MAX];
};

struct shm_pair {
    struct shm_side side[2];
    alignas(SHM_APART) unsigned char fifos[];
};

/* The bytes of a pair's memory; fifo_bytes is a power of two. */
static inline size_t disti_shm_pair_bytes(size_t fifo_bytes)
{
    return sizeof(struct shm_pair) + 2 * fifo_bytes;
}

bool disti_shm_fifo_bytes_valid(uint64_t fifo_bytes);

/*
 * Makes a pair's memory: *fd_p and *pair_p are the caller's. ERR_NO_MEMORY if the
 * machine has not that much, ERR_SYSTEM; IN_PROGRESS, and nothing is reported, if there is no file
 * descriptor now.
 */
dist_status disti_shm_memory_make(size_t fifo_bytes, int *fd_p, struct shm_pair **pair_p);

/* Maps what a peer made. fd stays the caller's. Refuses what could still shrink. */
dist_status disti_shm_memory_map(int fd, size_t fifo_bytes, struct shm_pair **pair_p);

/* NULL is accepted. */
void disti_shm_memory_unmap(struct shm_pair *pair, size_t fifo_bytes);

#endif
