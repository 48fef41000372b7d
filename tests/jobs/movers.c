/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * movers ERROR WHO: collectives that only copy, in ordinary memory, of many sizes, with every root,
 * in place and not, repeated until all copy methods have been tried. After a third of the calls the
 * kernel refuses rank WHO (-1: all, -2: none) to copy between processes, with errno ERROR. Exit 0
 * if all is right.
 */
#include "refuse.h"

#include <dist/dist.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define CALLS 60
#define SIZES 3
#define FEW_CALLS 4
#define MAX_BLOCK ((size_t)300 << 10)

static int rank, ranks;
static dist_group *group;
static int copies; /* copies requested from the kernel */

/* Replaces the C library's function for this program and the library. */
__attribute__((visibility("default"))) ssize_t
process_vm_readv(pid_t pid, const struct iovec *here, unsigned long here_count,
                 const struct iovec *there, unsigned long there_count, unsigned long flags)
{
    copies++;
    return syscall(SYS_process_vm_readv, pid, here, here_count, there, there_count, flags);
}

static void fail(const char *what, size_t bytes)
{
    fprintf(stderr, "rank %d: %s of %zu bytes: %s\n", rank, what, bytes, dist_last_error());
    exit(1);
}

static unsigned char expected(int from, int to, int call, size_t i)
{
    return (unsigned char)(from * 7 + to * 13 + call * 31 + (int)(i % 251));
}

static void fill(unsigned char *block, int from, int to, int call, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        block[i] = expected(from, to, call, i);
}

static void check(const char *what, const unsigned char *block, int from, int to, int call,
                  size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (block[i] != expected(from, to, call, i))
            fail(what, bytes);
    }
}

static void call_broadcast(unsigned char *in, unsigned char *out, int call, size_t bytes)
{
    int root = call % ranks;

    (void)out;
    fill(in, root, rank == root ? 0 : 1, call, bytes);
    if (dist_broadcast(group, in, bytes, DIST_UINT8, root) != DIST_OK)
        fail("broadcast", bytes);
    check("broadcast", in, root, 0, call, bytes);
}

static void call_gather(unsigned char *in, unsigned char *out, int call, size_t bytes)
{
    int root = call % ranks;
    unsigned char *own = rank == root && call % 2 ? out + (size_t)rank * bytes : in;

    fill(own, rank, 0, call, bytes);
    if (dist_gather(group, own, out, bytes, DIST_UINT8, root) != DIST_OK)
        fail("gather", bytes);
    for (int r = 0; rank == root && r < ranks; r++)
        check("gather", out + (size_t)r * bytes, r, 0, call, bytes);
}

static void call_scatter(unsigned char *in, unsigned char *out, int call, size_t bytes)
{
    int root = call % ranks;

    for (int r = 0; rank == root && r < ranks; r++)
        fill(in + (size_t)r * bytes, root, r, call, bytes);
    if (dist_scatter(group, in, out, bytes, DIST_UINT8, root) != DIST_OK)
        fail("scatter", bytes);
    check("scatter", out, root, rank, call, bytes);
}

static void call_all_gather(unsigned char *in, unsigned char *out, int call, size_t bytes)
{
    unsigned char *own = call % 2 ? out + (size_t)rank * bytes : in;

    fill(own, rank, 0, call, bytes);
    if (dist_all_gather(group, own, out, bytes, DIST_UINT8) != DIST_OK)
        fail("all_gather", bytes);
    for (int r = 0; r < ranks; r++)
        check("all_gather", out + (size_t)r * bytes, r, 0, call, bytes);
}

static void call_all_to_all(unsigned char *in, unsigned char *out, int call, size_t bytes)
{
    for (int r = 0; r < ranks; r++)
        fill(in + (size_t)r * bytes, rank, r, call, bytes);
    if (dist_all_to_all(group, in, out, bytes, DIST_UINT8) != DIST_OK)
        fail("all_to_all", bytes);
    for (int r = 0; r < ranks; r++)
        check("all_to_all", out + (size_t)r * bytes, r, rank, call, bytes);
}

typedef void (*copy_call)(unsigned char *in, unsigned char *out, int call, size_t bytes);

/* Calls with memory that begins and ends at any address and is new in every call. */
static void call_in_new_memory(copy_call function, int call, size_t bytes)
{
    size_t most = (size_t)ranks * bytes, before = (size_t)(call * 37 % 4096);
    unsigned char *in = malloc(most + before), *out = malloc(most + before);

    if (!in || !out)
        fail("no memory for a call", bytes);
    function(in + before, out + before / 2, call, bytes);
    free(in);
    free(out);
}

/* A program that makes only a few calls must copy by CMA, if the kernel permits it, and not wait
 * for pages of a bounce buffer. */
static void few_calls(void)
{
    for (int call = 0; call < FEW_CALLS; call++) {
        int before = copies;

        call_in_new_memory(call_all_to_all, call, MAX_BLOCK);
        if (copies == before && call == 0)
            return;
        if (copies == before)
            fail("not copied by CMA: one of a few calls", MAX_BLOCK);
    }
}

int main(int argc, char **argv)
{
    static const copy_call calls[] = {call_broadcast, call_gather, call_scatter, call_all_gather,
                                      call_all_to_all};
    int kinds = (int)(sizeof(calls) / sizeof(calls[0]));
    int who = argc > 2 ? atoi(argv[2]) : -2;

    if (argc < 3)
        return 2;
    if (dist_init_process_group(NULL, &group) != DIST_OK)
        fail("init", 0);
    rank = dist_get_rank(group);
    ranks = dist_get_world_size(group);
    few_calls();
    for (int call = 0; call < CALLS * kinds; call++) {
        size_t bytes = MAX_BLOCK >> 2 * (call / kinds % SIZES);

        if (call == CALLS * kinds / 3 && (who == -1 || who == rank) &&
            !refuse_copies(atoi(argv[1])))
            fail("no filter: the kernel has no seccomp; call", 0);
        call_in_new_memory(calls[call % kinds], call, bytes - (size_t)(call % 5));
    }
    if (dist_destroy_process_group(group) != DIST_OK)
        fail("destroy", 0);
    return 0;
}
