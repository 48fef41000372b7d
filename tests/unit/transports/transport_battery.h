/* SPDX-License-Identifier: BSD-3-Clause */
/* The contract of a transport as tests: every transport passes the same battery. */
#ifndef TESTS_TRANSPORT_BATTERY_H
#define TESTS_TRANSPORT_BATTERY_H

#include <dist/transport.h>

#define TRANSPORT_BATTERY_RANKS_MAX 16

/* Zeroed members take the default that stands behind them. */
struct transport_battery_options {
    int ranks;                /* ranks of a case that takes any number of them; 4 */
    bool threads;             /* the ranks are threads of this process, for ThreadSanitizer;
                                 false: forked processes */
    const size_t *boundaries; /* sizes where the transport changes its way, ended by 0: the
                                 battery tries each, one less and one more; none */
    size_t largest;           /* bytes of the largest message; 64 MiB */
    const char *bind_host;    /* "127.0.0.1" */
    const uint8_t *secret;    /* the job's secret; none */
    size_t secret_bytes;
    size_t kept;      /* bytes that a rank keeps for one that is ahead; 96 MiB */
    void *context;    /* handed on as config.context; NULL */
    const char *only; /* run the case of this name alone; all of them */
    int loss_ms;      /* survivors of a killed rank know it within; 10000 */
    bool acquainted;  /* the rank that is killed has talked to all others before */
    bool brief;       /* 3 ranks, and less where a case has much of one thing: for a way of a
                         transport that differs little from one that has had all; not in the
                         long form */
};

/*
 * Runs every case with ranks of its own, each with a state of its own, a time limit and
 * this process as the parent; writes a line a case to stderr. Blocks. Call it while this
 * process has no other threads. Returns the number of cases that failed.
 *
 * The cases: reach, ping_pong, all_pairs, reversed (many tags and channels, received in
 * reversed order), ordered (one tag), zero_bytes, sizes, early, storm, reduce, any_source and
 * any_source_fair (messages found by probe_tag), ahead and
 * ahead_both (senders far ahead; what is kept for them stays below `kept`),  mismatch,
 * cancel_sends, cancel_receives, cancel_halfway, cancel_one_side and cancel_silent (of a transport
 * that has cancel: one group is forgotten, its memory is used for something else, another goes on,
 * or a peer makes no calls), killed
 * (a rank is SIGKILLed in a transfer; processes only), leave (half-open close, last words
 * of a rank that left), sleep (arm, poll, woken), reopen (no file descriptor is lost).
 */
int transport_battery_run(const struct dist_transport *transport,
                          const struct transport_battery_options *options);

#endif
