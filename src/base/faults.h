/* SPDX-License-Identifier: BSD-3-Clause */
/* Fault injection with DIST_FAULT. */
#ifndef DISTI_BASE_FAULTS_H
#define DISTI_BASE_FAULTS_H

#include <dist/dist.h>
#include <stdbool.h>
#include <stdint.h>

/*
 *   DIST_FAULT = FAULT[,FAULT]...
 *   FAULT      = KIND:RANK@WHERE[/STEP][:PARAMETER=VALUE]...
 *   RANK       = number | *
 *   WHERE      = join | open | close | number of an operation of the world group | *
 *   STEP       = number of a message that the rank sends after the operation has begun | *
 *   PARAMETER  = time=NUMBER{ms|s} | p=0..1 | seed=NUMBER
 *
 * Numbers start at 0, as in error texts. The kinds from DROP on affect messages.
 */
#define DISTI_FAULT_MAP(X)                                                                         \
    X(KILL, "kill")                                                                                \
    X(STOP, "stop")                                                                                \
    X(STALL, "stall")                                                                              \
    X(SLOW, "slow")                                                                                \
    X(DROP, "drop")                                                                                \
    X(DELAY, "delay")                                                                              \
    X(TRUNCATE, "truncate")                                                                        \
    X(FLIP, "flip")                                                                                \
    X(RESET, "reset")

enum disti_fault_kind {
#define DISTI_FAULT_ENUM(name, text) DISTI_FAULT_##name,
    DISTI_FAULT_MAP(DISTI_FAULT_ENUM)
#undef DISTI_FAULT_ENUM
        DISTI_FAULT_NONE
};
#define DISTI_FAULT_MESSAGES DISTI_FAULT_DROP

/* Where a fault occurs: in an operation, or at one of these places. */
enum disti_fault_place {
    DISTI_FAULT_OPERATION,
    DISTI_FAULT_JOIN, /* the rank has connected to the store; no other rank has its addresses yet */
    DISTI_FAULT_OPEN, /* the ranks have exchanged addresses and are about to open the backend */
    DISTI_FAULT_CLOSE, /* dist_destroy_process_group of the world */
};

#define DISTI_FAULT_ANY (-1)
#define DISTI_FAULT_NO_STEP (-2)

struct disti_fault {
    enum disti_fault_kind kind;
    int rank; /* or ANY */
    enum disti_fault_place place;
    int64_t operation; /* or ANY */
    int64_t step;      /* or ANY; NO_STEP: at the start of the operation */
    int64_t time_ns;
    double p; /* probability, each time */
    uint64_t seed;
};

#define DISTI_FAULTS_MAX 16
struct disti_faults {
    int count;
    struct disti_fault all[DISTI_FAULTS_MAX];
};

/* Parses DIST_FAULT's syntax. ERR_INVALID_ARGUMENT names the invalid part and the valid values. */
dist_status disti_faults_parse(const char *text, struct disti_faults *faults_p);

/* ---- the faults of this process, see faults.c ---- */

/* Reads DIST_FAULT. Errors as disti_faults_parse. */
dist_status disti_faults_read(void);

/*
 * The first returns true if DIST_FAULT is set, the second if it has faults that affect or count
 * messages. The result is equal on all ranks.
 */
bool disti_faults_are_set(void);
bool disti_faults_need_messages(void);

/* Sets and returns the rank of this process in its world. */
void disti_faults_rank(int rank);
int disti_faults_own_rank(void);

/*
 * Call when this process has reached a place, or an operation of the world group: triggers the
 * faults that are due.
 */
void disti_faults_at(enum disti_fault_place place);
void disti_faults_at_operation(uint64_t operation);

/*
 * Call before sending a message: triggers process faults that are due, and returns the fault to
 * apply to the message, or NULL. Valid until DIST_FAULT is read again.
 */
const struct disti_fault *disti_faults_at_message(void);

/*
 * disti_faults_flip registers a copy of a message in which one bit is changed, to simulate damage
 * in transit. It must be sent with the checksum of the original message. disti_faults_is_flipped
 * returns true for the copy that was registered last.
 */
void disti_faults_flip(const void *copy);
bool disti_faults_is_flipped(const void *data);

#endif
