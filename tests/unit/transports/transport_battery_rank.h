/* SPDX-License-Identifier: BSD-3-Clause */
/* A rank of the battery, and the functions that the cases use. */
#ifndef TESTS_TRANSPORT_BATTERY_RANK_H
#define TESTS_TRANSPORT_BATTERY_RANK_H

#include "transport_battery.h"

#include <stdatomic.h>
#include <sys/types.h>

/* Memory that all ranks share, threads or processes: addresses and a barrier. */
struct battery_shared {
    struct battery_address {
        unsigned char blob[DIST_ADDRESS_MAX];
        size_t bytes;
    } address[TRANSPORT_BATTERY_RANKS_MAX];
    atomic_int arrived[TRANSPORT_BATTERY_RANKS_MAX]; /* number of barriers each rank has reached */
    atomic_int failures;
    _Atomic int64_t noted_ns; /* time of an event, for use by a case */
};

struct battery_rank {
    const struct dist_transport *transport;
    const struct transport_battery_options *options;
    struct battery_shared *shared;
    struct dist_transport_config config;
    void *state;
    int rank, ranks;
    int lost;      /* a rank that takes part in no further barrier; -1: none */
    bool sleeps;   /* waits with arm and poll, up to 2 s at a time */
    int overslept; /* how many times it was not woken within 2 s */
};

struct battery_case {
    const char *name;
    bool (*run)(struct battery_rank *rank); /* if `opened`, the state is open */
    int ranks;                              /* 0: as in the options */
    bool opened;                            /* the runner opens and closes the state */
    bool processes;                         /* skipped if the ranks are threads */
    int killed;                             /* ranks that must end by SIGKILL, from rank 0 on */
};

/* All cases; the last of each array has no name. */
extern const struct battery_case battery_data_cases[], battery_ahead_cases[],
    battery_reduce_cases[], battery_probe_cases[], battery_cancel_cases[], battery_fault_cases[];

/* Returns ok; if that is false, prints the message and counts a failure. */
bool battery_expect(struct battery_rank *rank, bool ok, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Opens a state, exchanges addresses and connects to all ranks. */
bool battery_open(struct battery_rank *rank);
void battery_close(struct battery_rank *rank);

/* A barrier of all ranks; makes progress meanwhile. False: a rank failed, or timeout. */
bool battery_meet(struct battery_rank *rank);
/* Makes progress for `ms`. */
void battery_progress_ms(struct battery_rank *rank, int ms);
/* True if a case should repeat less. */
bool battery_brief(const struct battery_rank *rank);

/* Initialize a request and post it. The fingerprint is derived from the tag. */
void battery_send(struct battery_rank *rank, struct dist_request *request, int peer, uint64_t tag,
                  const void *data, size_t bytes);
void battery_recv(struct battery_rank *rank, struct dist_request *request, int peer, uint64_t tag,
                  void *dst, size_t bytes);
/* Like battery_recv, with any sink. */
void battery_recv_sink(struct battery_rank *rank, struct dist_request *request, int peer,
                       uint64_t tag, const struct dist_sink *sink);

/* Waits until all requests have ended, with any status. False: timeout. */
bool battery_wait(struct battery_rank *rank, struct dist_request *requests, int count);
/* Waits until all requests have ended and checks that they succeeded. */
bool battery_wait_ok(struct battery_rank *rank, struct dist_request *requests, int count);

/* Fill and check data that are specific to message `seed` from rank `from` to rank `to`. */
void battery_fill(void *data, size_t bytes, int from, int to, uint64_t seed);
bool battery_check(struct battery_rank *rank, const void *data, size_t bytes, int from, int to,
                   uint64_t seed);

/* Allocates zeroed memory, never NULL; aborts if there is none. */
void *battery_alloc(size_t bytes);

/* A hash of the arguments. */
uint64_t battery_mix(uint64_t a, uint64_t b);

size_t battery_largest(const struct battery_rank *rank);

#endif
