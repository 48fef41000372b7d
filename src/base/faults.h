/* SPDX-License-Identifier: BSD-3-Clause */
/* Faults on purpose: what DIST_FAULT asks for, and whether it is due. */
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
 *   STEP       = number of a message that the rank sends from then on | *
 *   PARAMETER  = time=NUMBER{ms|s} | p=0..1 | seed=NUMBER
 *
 * Numbers begin with 0, as those in error texts. Those behind MESSAGES break messages.
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

/* Where: an operation, or one of these. */
enum disti_fault_place {
    DISTI_FAULT_OPERATION,
    DISTI_FAULT_JOIN,  /* the rank has come to the store, and no other rank knows it */
    DISTI_FAULT_OPEN,  /* the ranks know each other, and are about to open the backend */
    DISTI_FAULT_CLOSE, /* dist_destroy_process_group of the world */
};

#define DISTI_FAULT_ANY (-1)
#define DISTI_FAULT_NO_STEP (-2)

struct disti_fault {
    enum disti_fault_kind kind;
    int rank; /* or ANY */
    enum disti_fault_place place;
    int64_t operation; /* or ANY */
    int64_t step;      /* or ANY; NO_STEP: as the operation begins */
    int64_t time_ns;
    double p; /* how likely, each time */
    uint64_t seed;
};

#define DISTI_FAULTS_MAX 16
struct disti_faults {
    int count;
    struct disti_fault all[DISTI_FAULTS_MAX];
};

/* ERR_INVALID_ARGUMENT names the part that is wrong, and what it may be. */
dist_status disti_faults_parse(const char *text, struct disti_faults *faults_p);

/* ---- what this process is to suffer, see faults.c ---- */

/* Reads DIST_FAULT. Errors: as above. */
dist_status disti_faults_read(void);

/* Is it set? And to break messages, or at one of them? The answer is the same on all ranks. */
bool disti_faults_are_set(void);
bool disti_faults_need_messages(void);

/* This process is that rank of its world. */
void disti_faults_rank(int rank);
int disti_faults_own_rank(void);

/* It has come to that place, or to that operation of the world group: does what is due there. */
void disti_faults_at(enum disti_fault_place place);
void disti_faults_at_operation(uint64_t operation);

/* It is about to send a message: does what is due to the process, and returns what is to be done
 * with the message; NULL: it is to be sent. Valid until DIST_FAULT is read again. */
const struct disti_fault *disti_faults_at_message(void);

/* A copy of a message is about to be sent with a bit changed, as a wire would change it: a checksum
 * must not be that of the copy. */
void disti_faults_flip(const void *copy);
bool disti_faults_is_flipped(const void *data);

#endif
