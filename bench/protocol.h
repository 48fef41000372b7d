/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The protocol between dist_bench and the processes that it measures.
 *
 * A contestant is one library with its settings (gloo on memory of dist_alloc, Open MPI, ...): a
 * job with one process per rank. All contestants are started together. dist_bench then runs them in
 * many short rounds, one after the other, so that other load on the machine affects all of them
 * equally. While another contestant runs, a process blocks in read() and uses no CPU time; waiting
 * inside an MPI would spin.
 *
 * A process connects to the Unix stream socket that DIST_BENCH_SOCKET names, and sends
 *
 *     hello LIBRARY RANK RANKS TEXT\n          TEXT: the library and its version
 *
 * Each line that it receives then has one answer:
 *
 *     run COLLECTIVE BYTES DTYPE OP ROOT IN_PLACE WARMUP SAMPLES BATCH CHECK
 *         [WINDOW [BUFFERS [APART]]]\n
 *         -> took NS NS ... NS\n                  SAMPLES numbers
 *         -> unsupported REASON\n
 *         -> wrong REASON\n                       the result is incorrect
 *         -> failed REASON\n                      the library reported an error
 *     quit\n                                      no answer: the process exits, as it does at the
 *                                                 end of the stream
 *
 * COLLECTIVE, DTYPE and OP are the library's names (all_reduce, float32, sum). WARMUP calls, not
 * timed, come first. A sample consists of BATCH calls between two readings of the clock; its value
 * is the time divided by BATCH, in nanoseconds with a fraction. A barrier precedes each sample and
 * is not timed. CHECK 1: fresh data are used and the whole result is compared, before and after the
 * samples. APART 1 (ignored for messages): a barrier precedes each call of the batch, except for
 * COLLECTIVE barrier, and the sample is the sum of the times of the calls, divided by BATCH.
 *
 * BYTES is the size in busbw formulas, always a multiple of the number of blocks:
 *
 *     all_reduce, reduce, broadcast        the vector
 *     all_reduce_coalesced                 8 buffers; if the number of elements is not a multiple
 *                                          of 8, the first buffers have one element more
 *     all_gather                           all blocks that a rank receives
 *     reduce_scatter, all_to_all           all blocks that a rank sends
 *     gather, scatter                      all blocks that the root receives or sends
 *     barrier                              0
 *
 * A block thus has BYTES / RANKS bytes. The v-forms use equal blocks too, one after the other. ROOT
 * and IN_PLACE are 0 for operations that do not use them. In place is defined as in dist.h.
 *
 * bw, bibw and latency measure messages of BYTES between ranks 0 and 1; the other ranks take part
 * in the barriers and answer zeros. dist_bench divides latency by 2 and computes bandwidths. A call
 * is
 *
 *     latency    a message from 0 to 1, and one back
 *     bw         WINDOW messages from 0 to 1, all started before the first wait, then a message of
 *                one byte back
 *     bibw       WINDOW messages in both directions at once
 *
 * The calls of a batch use several sets of buffers in rotation, so that caches do not improve the
 * result: BENCH_SETS_BYTES in total, but at least BENCH_SETS_MIN and at most BENCH_SETS_MAX sets.
 * If BUFFERS is given, there are BUFFERS sets, each allocated separately and, with CHECK, each
 * checked. A process keeps only the buffers of its last run, so a run of barrier makes it free its
 * memory.
 */
#ifndef BENCH_PROTOCOL_H
#define BENCH_PROTOCOL_H

#define BENCH_SOCKET "DIST_BENCH_SOCKET"

#define BENCH_WINDOW 64
#define BENCH_COALESCED 8
#define BENCH_SETS_BYTES ((size_t)64 << 20)
#define BENCH_SETS_MIN 3
#define BENCH_SETS_MAX 1024

#endif
