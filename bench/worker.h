/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The conversation between dist_bench and the processes that it measures.
 *
 * A contestant is one library with its settings (gloo on memory of dist_alloc, Open MPI, ...): a
 * job of as many processes as there are ranks. All contestants are started at once; then dist_bench
 * has them run in turns, many short turns each, so that whatever else the machine does falls on all
 * alike. A process that has no turn blocks in read() and costs nothing: an MPI's own waiting would
 * spin.
 *
 * A process connects to the Unix stream socket that DIST_BENCH_SOCKET names and says
 *
 *     hello CONTESTANT RANK RANKS TEXT\n          TEXT: the library and its version
 *
 * From then on each line that it gets has one answer:
 *
 *     run COLLECTIVE BYTES DTYPE OP ROOT IN_PLACE WARMUP SAMPLES BATCH CHECK\n
 *         -> took NS NS ... NS\n                  SAMPLES numbers
 *         -> unsupported REASON\n
 *         -> wrong REASON\n                       the result is not what it should be
 *         -> failed REASON\n                      the library reported an error
 *     quit\n
 *
 * A sample is BATCH calls between two readings of the clock, divided by BATCH, in nanoseconds with
 * a fraction; before each sample there is a barrier that is not timed. CHECK 1: fresh data go in
 * and the whole result is compared, before and after the samples. COLLECTIVE and DTYPE are the
 * library's names (all_reduce, float32); bw, bibw and latency measure ranks 0 and 1, over messages.
 * BYTES is what busbw formulas call the size. The buffers of the calls in a batch are several sets
 * in turn, 64 MiB together or three sets at least if they are longer, so that caches don't flatter.
 */
#ifndef BENCH_WORKER_H
#define BENCH_WORKER_H

#define BENCH_SOCKET "DIST_BENCH_SOCKET"

#endif
