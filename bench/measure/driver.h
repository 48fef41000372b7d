/* SPDX-License-Identifier: BSD-3-Clause */
/* What is measured: something that can run an order's calls, seen from one rank. */
#ifndef BENCH_DRIVER_H
#define BENCH_DRIVER_H

#include "order.h"

struct buffers;

struct driver {
    int rank, ranks;
    bool one_piece;      /* it has memory for one piece only */
    bool block_in_front; /* in place, a reduce-scatter leaves its block where the buffer begins */
    /* Each returns OK, or a status that error() has the text of. */
    dist_status (*barrier)(struct driver *driver);
    dist_status (*call)(struct driver *driver, const struct order *order, const void *in,
                        void *out);
    /*
     * Memory for buffers, called by all ranks with the same number of bytes; NULL, both: ordinary
     * memory. prepare, if it is there, is called before the calls of an order, and forget before
     * the buffers that it was called with are freed; by all ranks.
     */
    dist_status (*alloc)(struct driver *driver, size_t bytes, void **memory_p);
    void (*free)(struct driver *driver, void *memory, size_t bytes);
    dist_status (*prepare)(struct driver *driver, const struct order *order,
                           const struct buffers *buffers);
    void (*forget)(struct driver *driver);
    const char *(*error)(struct driver *driver);
    /*
     * Of memory that the host cannot touch; else NULL, all three. put and get copy to it and from
     * it; they and synchronize wait until the calls have ended.
     */
    dist_status (*put)(struct driver *driver, void *to, const void *from, size_t bytes);
    dist_status (*get)(struct driver *driver, void *to, const void *from, size_t bytes);
    dist_status (*synchronize)(struct driver *driver);
};

/*
 * libdist itself. memory: "malloc", "registered", "dist" or "cuda". The group stays the caller's.
 * On success *driver_p is to be given to libdist_free, before the group is destroyed. NULL is
 * accepted there.
 */
dist_status libdist_new(dist_group *group, const char *memory, struct driver **driver_p);
void libdist_free(struct driver *driver);

/* The words after a backend's slash and of --mem. */
bool libdist_has_memory(const char *name);

/*
 * The bound of this machine: a bare loop over memory that all ranks have mapped. limit_map makes
 * that memory, before the ranks are started; each rank then calls limit_new.
 */
struct limit_map;
struct limit_map *limit_map_new(int ranks, size_t largest); /* NULL: errno says why */
void limit_map_free(struct limit_map *map);
dist_status limit_new(struct limit_map *map, int rank, struct driver **driver_p);
void limit_free(struct driver *driver);

#endif
