/* SPDX-License-Identifier: BSD-3-Clause */
/* Tests of the contract of a transport: every transport passes the same battery. */
#ifndef TESTS_TRANSPORT_BATTERY_H
#define TESTS_TRANSPORT_BATTERY_H

#include <dist/transport.h>

#define TRANSPORT_BATTERY_RANKS_MAX 16

/* A member that is 0 has the default that its comment names. */
struct transport_battery_options {
    int ranks;    /* ranks of a case for any number of them; default: 4 */
    bool threads; /* the ranks are threads of this process, for ThreadSanitizer; false: forked
                     processes */
    const size_t *boundaries; /* sizes at which the transport changes its method, ended by 0: the
                                 battery tries each, one less and one more; default: none */
    size_t largest;           /* bytes of the largest message; default: 64 MiB */
    const char *bind_host;    /* default: "127.0.0.1" */
    const uint8_t *secret;    /* the job's secret; default: none */
    size_t secret_bytes;
    size_t kept;      /* a rank buffers at most this for a sender that is ahead; default: 96 MiB */
    void *context;    /* passed as config.context; default: NULL */
    const char *only; /* name of the only case to run; default: all cases */
    int loss_ms;      /* time in which survivors detect a killed rank; default: 10000 */
    bool connected_first; /* the killed rank has exchanged messages with all ranks before */
    bool brief; /* 3 ranks, and fewer repetitions: for a variant of a transport that has passed the
                   whole battery; ignored if CHECK_LONG is set */
};

/*
 * Runs every case, each with new ranks, new states and a time limit, and with this process as the
 * parent; writes a line for each case to stderr. Blocks. Call it while this process has no other
 * threads. Returns the number of cases that failed.
 *
 * The cases:
 *
 *   reach, ping_pong, all_pairs, zero_bytes, sizes
 *   storm            random sizes and order
 *   reversed         many tags, received in reverse order
 *   ordered          one tag
 *   early            messages that arrive before their receives
 *   reduce           sinks that reduce
 *   any_source, any_source_fair
 *                    messages found by probe_tag
 *   ahead, ahead_both
 *                    senders far ahead; the memory for their messages stays below `kept`
 *   mismatch
 *   cancel_sends, cancel_receives, cancel_halfway, cancel_one_side, cancel_silent
 *                    if the transport has cancel: the messages of one group are canceled, its
 *                    memory is used for something else, and another group continues; or a peer
 *                    makes no calls
 *   killed           a rank is killed during a transfer; processes only
 *   leave            closing while connecting; messages of a rank that has left
 *   sleep            arm, poll, wake
 *   reopen           all file descriptors are closed
 */
int transport_battery_run(const struct dist_transport *transport,
                          const struct transport_battery_options *options);

#endif
