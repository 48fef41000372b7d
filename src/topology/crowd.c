/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks that share CPUs, and whether there are enough for them. */
#include "topology/discover.h"

#include <string.h>

static bool crowd_meets(const uint64_t *a, const uint64_t *b)
{
    for (int w = 0; w < DISTI_CPU_WORDS; w++) {
        if (a[w] & b[w])
            return true;
    }
    return false;
}

/* Adds b to a. True: a grew. */
static bool crowd_join(uint64_t *a, const uint64_t *b)
{
    bool grew = false;

    for (int w = 0; w < DISTI_CPU_WORDS; w++) {
        grew = grew || (b[w] & ~a[w]);
        a[w] |= b[w];
    }
    return grew;
}

static int crowd_count(const uint64_t *cpus)
{
    int count = 0;

    for (int w = 0; w < DISTI_CPU_WORDS; w++)
        count += __builtin_popcountll(cpus[w]);
    return count;
}

/* The quota is of the group of processes, that is of all ranks on the machine. */
static int crowd_on_machine(const struct disti_locality *localities, int ranks, int rank)
{
    int count = 0;

    for (int r = 0; r < ranks; r++)
        count += localities[r].machine == localities[rank].machine;
    return count;
}

bool disti_crowded(const struct disti_locality *localities, int ranks, int rank)
{
    const struct disti_locality *mine = &localities[rank];
    uint64_t cpus[DISTI_CPU_WORDS];
    int sharers = 0;
    bool grew;

    if (mine->quota_cpus > 0 && crowd_on_machine(localities, ranks, rank) > mine->quota_cpus)
        return true;
    memcpy(cpus, mine->cpus, sizeof(cpus));
    if (crowd_count(cpus) == 0) /* unknown */
        return crowd_on_machine(localities, ranks, rank) > mine->usable_cpus;
    do {
        grew = false;
        sharers = 0;
        for (int r = 0; r < ranks; r++) {
            if (localities[r].kernel != mine->kernel || !crowd_meets(cpus, localities[r].cpus))
                continue;
            sharers++;
            grew = crowd_join(cpus, localities[r].cpus) || grew;
        }
    } while (grew);
    return sharers > crowd_count(cpus);
}

int disti_shared_cpus(const struct disti_locality *localities, int ranks)
{
    uint64_t cpus[DISTI_CPU_WORDS];
    bool machines = false;

    memcpy(cpus, localities[0].cpus, sizeof(cpus));
    for (int r = 1; r < ranks; r++) {
        if (localities[r].kernel != localities[0].kernel)
            return 0;
        machines = machines || localities[r].machine != localities[0].machine;
        crowd_join(cpus, localities[r].cpus);
    }
    return machines ? crowd_count(cpus) : 0;
}
