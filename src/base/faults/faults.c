/* SPDX-License-Identifier: BSD-3-Clause */
/* Which faults are due to this process; it does those that need no message. */
#include "base/faults/faults.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/settings/env.h"

#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

/* One of each in a process: a fault kills all of it anyway. Written while a group is made. */
static struct {
    struct disti_faults set;
    int rank;
    _Atomic int64_t operation; /* the last one that began; -1: none has */
    _Atomic int64_t step;      /* messages since then */
    _Atomic uint64_t asked;    /* for the probabilities */
    const void *_Atomic flipped;
} faults = {.rank = -1, .operation = -1};

dist_status disti_faults_read(void)
{
    const char *text = disti_env("DIST_FAULT");
    struct disti_faults set = {0};
    dist_status status = text ? disti_faults_parse(text, &set) : DIST_OK;

    if (status == DIST_OK)
        faults.set = set;
    return status;
}

bool disti_faults_are_set(void)
{
    return faults.set.count > 0;
}

bool disti_faults_need_messages(void)
{
    for (int i = 0; i < faults.set.count; i++) {
        if (faults.set.all[i].step != DISTI_FAULT_NO_STEP)
            return true;
    }
    return false;
}

void disti_faults_rank(int rank)
{
    faults.rank = rank;
}

int disti_faults_own_rank(void)
{
    return faults.rank;
}

/* From 0 to 1, the same at each run of a program that makes its calls in the same order. */
static double faults_chance(const struct disti_fault *fault)
{
    uint64_t asked = atomic_fetch_add(&faults.asked, 1);
    uint64_t hash = disti_hash_call(disti_hash_call(fault->seed, (uint64_t)faults.rank), asked);

    return (double)(disti_hash_call(hash, asked) >> 11) * 0x1p-53;
}

/* ANY is any number, but not that there is none. */
static bool faults_fits(int64_t wanted, int64_t number)
{
    return wanted == number || (wanted == DISTI_FAULT_ANY && number >= 0);
}

static bool faults_is_due(const struct disti_fault *fault, enum disti_fault_place place,
                          int64_t operation, int64_t step)
{
    return fault->place == place && faults_fits(fault->rank, faults.rank) &&
           faults_fits(fault->operation, operation) && faults_fits(fault->step, step) &&
           (fault->p >= 1 || faults_chance(fault) < fault->p);
}

/* What concerns the whole process. False: it is for the message. */
static bool faults_do(const struct disti_fault *fault)
{
    if (fault->kind >= DISTI_FAULT_MESSAGES)
        return false;
    switch (fault->kind) {
    case DISTI_FAULT_KILL:
        kill(getpid(), SIGKILL);
        break;
    case DISTI_FAULT_STOP:
        raise(SIGSTOP);
        break;
    default:
        disti_sleep_ns(fault->time_ns);
    }
    return true;
}

/* Does what is due; returns the first that is for the message. */
static const struct disti_fault *faults_all(enum disti_fault_place place, int64_t operation,
                                            int64_t step)
{
    for (int i = 0; i < faults.set.count; i++) {
        const struct disti_fault *fault = &faults.set.all[i];

        if (faults_is_due(fault, place, operation, step) && !faults_do(fault))
            return fault;
    }
    return NULL;
}

void disti_faults_at(enum disti_fault_place place)
{
    faults_all(place, 0, DISTI_FAULT_NO_STEP);
}

void disti_faults_at_operation(uint64_t operation)
{
    atomic_store(&faults.operation, (int64_t)operation);
    atomic_store(&faults.step, 0);
    faults_all(DISTI_FAULT_OPERATION, (int64_t)operation, DISTI_FAULT_NO_STEP);
}

const struct disti_fault *disti_faults_at_message(void)
{
    return faults_all(DISTI_FAULT_OPERATION, atomic_load(&faults.operation),
                      atomic_fetch_add(&faults.step, 1));
}

void disti_faults_flip(const void *copy)
{
    atomic_store(&faults.flipped, copy);
}

bool disti_faults_is_flipped(const void *data)
{
    return data && data == atomic_load_explicit(&faults.flipped, memory_order_relaxed);
}
