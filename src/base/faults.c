/* SPDX-License-Identifier: BSD-3-Clause */
/* Fault injection: parses DIST_FAULT and triggers faults. */
#include "base/faults.h"
#include "base/ascii.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/settings/config.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the grammar, see faults.h ---- */

#define PARSE_ITEM 128
#define PARSE_SECOND_NS INT64_C(1000000000)
#define PARSE_TIME_NS (PARSE_SECOND_NS / 10)
#define PARSE_TIME_LONGEST_S 86400
#define PARSE_KINDS "kill, stop, stall, slow, drop, delay, truncate, flip and reset"

static dist_status parse_bad(const char *item, const char *part, const char *what)
{
    return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                      "DIST_FAULT: in '%s', '%s' is %s; a fault is KIND:RANK@OPERATION[/STEP]"
                      "[:time=50ms][:p=0.01][:seed=1], see dist-env(7)",
                      item, part, what);
}

/* Parses an integer of at most 18 digits; "*" is ANY. */
static bool parse_number(const char *text, int64_t *value_p)
{
    size_t digits = strspn(text, "0123456789");

    if (strcmp(text, "*") == 0) {
        *value_p = DISTI_FAULT_ANY;
        return true;
    }
    if (!digits || text[digits] || digits > 18)
        return false;
    *value_p = strtoll(text, NULL, 10);
    return true;
}

static dist_status parse_parameter(const char *item, const char *text, struct disti_fault *fault)
{
    int64_t seed, each;
    char *end;

    if (strncmp(text, "time=", 5) == 0) {
        long value;

        text += 5;
        errno = 0;
        value = strtol(text, &end, 10);
        each = strcmp(end, "s") == 0 ? PARSE_SECOND_NS : PARSE_SECOND_NS / 1000;
        if (!strspn(text, "0123456789") || errno || (strcmp(end, "s") && strcmp(end, "ms")) ||
            value > PARSE_TIME_LONGEST_S * (PARSE_SECOND_NS / each))
            return parse_bad(item, text,
                             "not a time of at most one day: give one such as 50ms or 2s");
        fault->time_ns = value * each;
        return DIST_OK;
    }
    if (strncmp(text, "p=", 2) == 0) {
        fault->p = disti_ascii_real(text + 2, &end);
        if (!text[2] || *end || !(fault->p >= 0 && fault->p <= 1))
            return parse_bad(item, text, "no probability: give one from 0 to 1");
        return DIST_OK;
    }
    if (strncmp(text, "seed=", 5) != 0)
        return parse_bad(item, text, "no parameter: use time=, p= or seed=");
    if (!parse_number(text + 5, &seed) || seed < 0)
        return parse_bad(item, text, "no seed: give a whole number");
    fault->seed = (uint64_t)seed;
    return DIST_OK;
}

/* KIND : RANK@WHERE : PARAMETER : ... */
static dist_status parse_fault(const char *item, struct disti_fault *fault)
{
    static const char *const names[] = {
#define PARSE_NAME(name, text) text,
        DISTI_FAULT_MAP(PARSE_NAME)
#undef PARSE_NAME
    };
    static const char *const places[] = {"", "join", "open", "close"};
    char part[PARSE_ITEM], *where, *step;
    dist_status status = DIST_OK;
    int64_t rank;
    int kind = 0;

    *fault = (struct disti_fault){.step = DISTI_FAULT_NO_STEP, .time_ns = PARSE_TIME_NS, .p = 1};
    if (!disti_list_item(item, ':', 0, part, sizeof(part)))
        return parse_bad(item, item, "no fault");
    while (kind < DISTI_FAULT_NONE && strcmp(part, names[kind]) != 0)
        kind++;
    if (kind == DISTI_FAULT_NONE)
        return parse_bad(item, part, "no kind of fault: the kinds are " PARSE_KINDS);
    fault->kind = (enum disti_fault_kind)kind;
    if (!disti_list_item(item, ':', 1, part, sizeof(part)) || !(where = strchr(part, '@')))
        return parse_bad(item, item, "without RANK@OPERATION");
    *where++ = '\0';
    if (!parse_number(part, &rank) || rank > INT32_MAX)
        return parse_bad(item, part, "no rank: give a number, or *");
    fault->rank = (int)rank;
    step = strchr(where, '/');
    if (step)
        *step++ = '\0';
    if (step && !parse_number(step, &fault->step))
        return parse_bad(item, step, "no step: give the number of a message, or *");
    for (int place = DISTI_FAULT_JOIN; place <= DISTI_FAULT_CLOSE; place++)
        if (strcmp(where, places[place]) == 0)
            fault->place = (enum disti_fault_place)place;
    if (fault->place != DISTI_FAULT_OPERATION && (step || fault->kind >= DISTI_FAULT_MESSAGES))
        return parse_bad(item, where, "no operation, and only operations have messages");
    if (fault->place == DISTI_FAULT_OPERATION && !parse_number(where, &fault->operation))
        return parse_bad(item, where,
                         "no operation: give its number, *, or one of join, open and close");
    if (!step && fault->kind >= DISTI_FAULT_MESSAGES)
        fault->step = DISTI_FAULT_ANY;
    for (int i = 2; status == DIST_OK && disti_list_item(item, ':', i, part, sizeof(part)); i++)
        status = parse_parameter(item, part, fault);
    return status;
}

dist_status disti_faults_parse(const char *text, struct disti_faults *faults_p)
{
    struct disti_faults faults = {0};
    const char *next = text;
    char item[PARSE_ITEM];

    while (next) {
        size_t length = strcspn(next, ",");
        dist_status status;

        if (length >= sizeof(item) || faults.count == DISTI_FAULTS_MAX)
            return disti_fail(
                DIST_ERR_INVALID_ARGUMENT,
                "DIST_FAULT has more than %d faults, or one of more than %d characters: "
                "give fewer or shorter ones",
                DISTI_FAULTS_MAX, PARSE_ITEM - 1);
        memcpy(item, next, length);
        item[length] = '\0';
        status = parse_fault(item, &faults.all[faults.count++]);
        if (status != DIST_OK)
            return status;
        next = next[length] ? next + length + 1 : NULL;
    }
    *faults_p = faults;
    return DIST_OK;
}

/* ---- faults that are due in this process ---- */

/*
 * State of the process, shared by all groups, since faults affect the whole process. Written while
 * a group is created.
 */
static struct {
    struct disti_faults set;
    int rank;
    _Atomic int64_t operation; /* the last operation that has begun; -1: none */
    _Atomic int64_t step;      /* messages sent since that operation began */
    _Atomic uint64_t draws;    /* number of random decisions so far */
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

/* ANY matches any number, but not NO_STEP. */
static bool faults_fits(int64_t wanted, int64_t number)
{
    return wanted == number || (wanted == DISTI_FAULT_ANY && number >= 0);
}

/*
 * Triggers the faults that are due here. Process faults are triggered at once; returns the first
 * message fault, or NULL.
 */
static const struct disti_fault *faults_all(enum disti_fault_place place, int64_t operation,
                                            int64_t step)
{
    for (int i = 0; i < faults.set.count; i++) {
        const struct disti_fault *fault = &faults.set.all[i];

        if (fault->place != place || !faults_fits(fault->rank, faults.rank) ||
            !faults_fits(fault->operation, operation) || !faults_fits(fault->step, step))
            continue;
        if (fault->p < 1) {
            /*
             * Decide by a number from 0 to 1 that is the same in each run of a program that makes
             * its calls in the same order.
             */
            uint64_t draw = atomic_fetch_add(&faults.draws, 1);
            uint64_t hash =
                disti_hash_call(disti_hash_call(fault->seed, (uint64_t)faults.rank), draw);

            if ((double)(disti_hash_call(hash, draw) >> 11) * 0x1p-53 >= fault->p)
                continue;
        }
        if (fault->kind >= DISTI_FAULT_MESSAGES)
            return fault;
        if (fault->kind == DISTI_FAULT_KILL)
            kill(getpid(), SIGKILL);
        else if (fault->kind == DISTI_FAULT_STOP)
            raise(SIGSTOP);
        else
            disti_sleep_ns(fault->time_ns);
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
