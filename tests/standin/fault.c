/* SPDX-License-Identifier: BSD-3-Clause */
/* Planted faults: STANDIN_FAULT=KIND[@RANK[:NUMBER]],... */
#include "standin.h"

#include <stdlib.h>
#include <string.h>

/*
 * RANK is the rank in the communicator, or, for KIND memory, the ordinal of the device; by default
 * all. NUMBER is the number of a launch of the communicator, counted from 0 (a group is one
 * launch), unless stated otherwise.
 */
static const char *const fault_names[FAULT_COUNT] = {
    [FAULT_VERSION] = "version",       /* NCCL reports version NUMBER, 2803 by default */
    [FAULT_INIT] = "init",             /* the communicator cannot be made */
    [FAULT_INIT_HANG] = "init-hang",   /* its creation never ends */
    [FAULT_ASYNC] = "async",           /* an error occurs in the middle of this launch */
    [FAULT_HANG] = "hang",             /* this launch never ends */
    [FAULT_ENQUEUE] = "enqueue",       /* this launch is refused immediately */
    [FAULT_ABORT_SLOW] = "abort-slow", /* an abort takes NUMBER milliseconds */
    [FAULT_MEMORY] = "memory",         /* a device has memory for NUMBER allocations */
};

/* True if the specification ("async@1:5") selects this fault on this rank. */
static bool fault_matches(const char *order, size_t length, enum standin_fault fault, int rank,
                          long *number_p)
{
    const char *name = fault_names[fault], *end = order + length;
    size_t name_length = strlen(name);
    char *after;

    if (length < name_length || strncmp(order, name, name_length) != 0)
        return false;
    order += name_length;
    if (order < end && *order != '@' && *order != ':')
        return false;
    if (order < end && *order == '@') {
        if (strtol(order + 1, &after, 10) != rank)
            return false;
        order = after;
    }
    if (number_p)
        *number_p = order < end && *order == ':' ? strtol(order + 1, NULL, 10) : 0;
    return true;
}

bool standin_fault(enum standin_fault fault, int rank, long *number_p)
{
    const char *orders = getenv("STANDIN_FAULT");

    while (orders && *orders) {
        size_t length = strcspn(orders, ",");

        if (fault_matches(orders, length, fault, rank, number_p))
            return true;
        orders += length + (orders[length] == ',');
    }
    return false;
}
