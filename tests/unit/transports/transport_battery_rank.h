/* SPDX-License-Identifier: BSD-3-Clause */
/* One rank of the battery: what its cases are written with. */
#ifndef TESTS_TRANSPORT_BATTERY_RANK_H
#define TESTS_TRANSPORT_BATTERY_RANK_H

#include "transport_battery.h"

#include <stdatomic.h>
#include <sys/types.h>

/* Memory that all ranks see, threads or processes: the addresses and a barrier. */
struct battery_shared {
    struct battery_address {
        unsigned char blob[DIST_ADDRESS_MAX];
        size_t bytes;
    } address[TRANSPORT_BATTERY_RANKS_MAX];
    atomic_int arrived[TRANSPORT_BATTERY_RANKS_MAX]; /* at how many meetings */
    atomic_int failures;
    _Atomic int64_t noted_ns; /* a case's: when the thing happened */
};

struct battery_rank {
    const struct dist_transport *transport;
    const struct transport_battery_options *options;
    struct battery_shared *shared;
    struct dist_transport_config config;
    void *state;
    int rank, ranks;
    int gone;      /* this rank comes to no meeting any more; -1: none */
    bool sleeps;   /* waits with arm and poll, 2 s at a time */
    int overslept; /* so often nothing woke it in that time */
};

struct battery_case {
    const char *name;
    bool (*run)(struct battery_rank *rank); /* with an open state, or without */
    int ranks;                              /* 0: as many as the options say */
    bool opened;                            /* the runner opens and closes the state */
    bool processes;                         /* not with threads */
    int killed;                             /* so many ranks end by SIGKILL, from rank 0 on */
};

/* All cases, ended by one without a name. */
extern const struct battery_case battery_data_cases[], battery_ahead_cases[],
    battery_reduce_cases[], battery_probe_cases[], battery_cancel_cases[], battery_fault_cases[];

/* False, after saying so, if ok is false. */
bool battery_expect(struct battery_rank *rank, bool ok, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Opens, exchanges addresses, connects to all others. */
bool battery_open(struct battery_rank *rank);
void battery_close(struct battery_rank *rank);

/* Waits until all ranks are here, moving messages meanwhile. */
bool battery_meet(struct battery_rank *rank);
/* Moves messages for so long. */
void battery_linger(struct battery_rank *rank, int ms);
/* Is less enough where there is much of one thing? */
bool battery_brief(const struct battery_rank *rank);

/* Fill a request and start it. The fingerprint is made from the tag. */
void battery_send(struct battery_rank *rank, struct dist_request *request, int peer, uint64_t tag,
                  const void *data, size_t bytes);
void battery_recv(struct battery_rank *rank, struct dist_request *request, int peer, uint64_t tag,
                  void *dst, size_t bytes);
/* The same into any sink. */
void battery_recv_sink(struct battery_rank *rank, struct dist_request *request, int peer,
                       uint64_t tag, const struct dist_sink *sink);

/* Until all have ended, however. False: not in time. */
bool battery_wait(struct battery_rank *rank, struct dist_request *requests, int count);
/* Until all have ended, and well. */
bool battery_wait_ok(struct battery_rank *rank, struct dist_request *requests, int count);

/* Bytes that tell where they belong: for message `seed` from `from` to `to`. */
void battery_fill(void *data, size_t bytes, int from, int to, uint64_t seed);
bool battery_check(struct battery_rank *rank, const void *data, size_t bytes, int from, int to,
                   uint64_t seed);

/* Memory with `bytes` bytes, never NULL; ends the process if there is none. */
void *battery_alloc(size_t bytes);

/* A number that looks random and depends on the arguments alone. */
uint64_t battery_mix(uint64_t a, uint64_t b);

size_t battery_largest(const struct battery_rank *rank);

#endif
