/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The protocol between dist_bench and the processes that it measures.
 *
 * A library is one library with its settings (gloo on memory of dist_alloc, Open MPI, ...): a
 * job of as many processes as there are ranks. All libraries are started at once; then dist_bench
 * has them run in turns, many short turns each, so that whatever else the machine does falls on all
 * alike. A process that has no turn blocks in read() and costs nothing: an MPI's own waiting would
 * spin.
 *
 * A process connects to the Unix stream socket that DIST_BENCH_SOCKET names and says
 *
 *     hello LIBRARY RANK RANKS TEXT\n          TEXT: the library and its version
 *
 * From then on each line that it gets has one answer:
 *
 *     run COLLECTIVE BYTES DTYPE OP ROOT IN_PLACE WARMUP SAMPLES BATCH CHECK [WINDOW [BUFFERS
 * [APART]]]\n
 *         -> took NS NS ... NS\n                  SAMPLES numbers
 *         -> unsupported REASON\n
 *         -> wrong REASON\n                       the result is not what it should be
 *         -> failed REASON\n                      the library reported an error
 *     quit\n                                      no answer: the process ends; so does it at the
 *                                                 end of the stream
 *
 * A sample is BATCH calls between two readings of the clock, divided by BATCH, in nanoseconds with
 * a fraction; before each sample there is a barrier that is not timed. WARMUP calls, not timed,
 * come first. CHECK 1: fresh data go in and the whole result is compared, before and after the
 * samples. APART 1, but not of messages: there is such a barrier before each call of the batch (but
 * not of barrier), and the sample is the sum of the calls' own times, divided by BATCH. COLLECTIVE,
 * DTYPE and OP are the library's names (all_reduce, float32, sum).
 *
 * BYTES is what busbw formulas call the size, always a whole number of blocks: the vector of
 * all_reduce, all_reduce_coalesced (8 buffers, those at the front one element longer where it does
 * not divide), reduce, broadcast; all blocks of all_gather (what a rank gets), reduce_scatter (what
 * it gives), gather, scatter (what root gets or gives) and all_to_all (what it gives), so a block
 * is BYTES / RANKS. The v-forms have the same equal blocks, one after the other. A barrier has 0.
 * ROOT and IN_PLACE are there, 0, where they mean nothing. In place is what dist.h says.
 *
 * bw, bibw and latency measure ranks 0 and 1 over messages of BYTES; the others take part in the
 * barriers and answer zeros. A call of latency is a message there and one back; of bw, BENCH_WINDOW
 * messages from 0 to 1, all started before any is waited for, and a message of one byte back; of
 * bibw, BENCH_WINDOW messages both ways at once. dist_bench halves and divides.
 *
 * The buffers of the calls in a batch are several sets in turn, so that caches don't flatter:
 * BENCH_SETS_BYTES together, but three sets at least and BENCH_SETS_MAX at most; or BUFFERS sets,
 * if that is there, each allocated by itself and, with CHECK, each checked. A process keeps
 * the buffers of its last run only, so a run of barrier makes it give its memory back.
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
