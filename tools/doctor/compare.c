/* SPDX-License-Identifier: BSD-3-Clause */
/* The reports of a job: what all ranks have, and what only some have. */
#include "doctor.h"

#include <string.h>

/* Seconds by which clocks may differ: ranks look at them one after the other. */
#define COMPARE_CLOCKS 2.0

static bool compare_same(const struct doctor_finding *a, const struct doctor_finding *b)
{
    return strcmp(a->check, b->check) == 0 && a->level == b->level &&
           strcmp(a->text, b->text) == 0 && strcmp(a->mend, b->mend) == 0;
}

static bool compare_has(const struct doctor_report *report, const struct doctor_finding *finding)
{
    for (int i = 0; i < report->count; i++) {
        if (compare_same(&report->findings[i], finding))
            return true;
    }
    return false;
}

/* The ranks of the host that have it: all, some (1), none (0). */
enum { COMPARE_NONE, COMPARE_SOME, COMPARE_ALL };
static int compare_host(const struct doctor_report *reports, int ranks, const char *host,
                        const struct doctor_finding *finding)
{
    int with = 0, all = 0;

    for (int rank = 0; rank < ranks; rank++) {
        if (strcmp(reports[rank].host, host) != 0)
            continue;
        all++;
        with += compare_has(&reports[rank], finding);
    }
    return with == all ? COMPARE_ALL : with ? COMPARE_SOME : COMPARE_NONE;
}

/* Is the rank the first of its host? */
static bool compare_leads(const struct doctor_report *reports, int rank)
{
    for (int other = 0; other < rank; other++) {
        if (strcmp(reports[other].host, reports[rank].host) == 0)
            return false;
    }
    return true;
}

/* "node0, node1", with the ranks of a host if not all of them have it; "" if every rank has. */
static void compare_where(const struct doctor_report *reports, int ranks,
                          const struct doctor_finding *finding, char *where, size_t size)
{
    size_t used = 0;
    int with = 0;

    where[0] = '\0';
    for (int rank = 0; rank < ranks; rank++)
        with += compare_has(&reports[rank], finding);
    for (int rank = 0; rank < ranks && with < ranks && used < size; rank++) {
        const char *comma = used ? ", " : "";
        const int of_host = compare_host(reports, ranks, reports[rank].host, finding);

        if (of_host == COMPARE_ALL && compare_leads(reports, rank))
            used += (size_t)snprintf(where + used, size - used, "%s%s", comma, reports[rank].host);
        else if (of_host == COMPARE_SOME && compare_has(&reports[rank], finding))
            used += (size_t)snprintf(where + used, size - used, "%srank %d on %s", comma, rank,
                                     reports[rank].host);
    }
}

/* Has no rank before this one that finding, nor this one before it? */
static bool compare_is_first(const struct doctor_report *reports, int rank, int i)
{
    const struct doctor_finding *finding = &reports[rank].findings[i];

    for (int other = 0; other < rank; other++) {
        if (compare_has(&reports[other], finding))
            return false;
    }
    return true;
}

/* All findings of one check, each once. Counts faults, and differences that matter. */
static void compare_check(const struct doctor_report *reports, int ranks, const char *check,
                          FILE *to, int *faults, int *differences)
{
    bool differs = false;
    char where[256];

    for (int rank = 0; rank < ranks; rank++) {
        for (int i = 0; i < reports[rank].count; i++) {
            const struct doctor_finding *finding = &reports[rank].findings[i];

            if (strcmp(finding->check, check) != 0 || !compare_is_first(reports, rank, i))
                continue;
            compare_where(reports, ranks, finding, where, sizeof(where));
            doctor_print_finding(finding, where, to);
            *faults += finding->level == DOCTOR_FAULT;
            differs = differs || (*where && !finding->own);
        }
    }
    *differences += differs;
}

static bool compare_knows(const struct doctor_report *reports, int rank, int i)
{
    const char *check = reports[rank].findings[i].check;

    for (int other = 0; other <= rank; other++) {
        const int count = other < rank ? reports[other].count : i;

        for (int j = 0; j < count; j++) {
            if (strcmp(reports[other].findings[j].check, check) == 0)
                return true;
        }
    }
    return false;
}

static int compare_clocks(const struct doctor_report *reports, int ranks, FILE *to)
{
    static struct doctor_report said; /* too large for a small stack */
    int early = 0, late = 0;

    for (int rank = 1; rank < ranks; rank++) {
        early = reports[rank].clock < reports[early].clock ? rank : early;
        late = reports[rank].clock > reports[late].clock ? rank : late;
    }
    if (reports[late].clock - reports[early].clock <= COMPARE_CLOCKS)
        return 0;
    doctor_fault(&said, "time", "the clock of %s is %.1f s ahead of that of %s", reports[late].host,
                 reports[late].clock - reports[early].clock, reports[early].host);
    doctor_mend(&said, "timedatectl set-ntp true");
    doctor_print_finding(&said.findings[0], "", to);
    return 1;
}

int doctor_compare(const struct doctor_report *reports, int ranks, FILE *to)
{
    int faults = 0, differences = 0, hosts = 0;

    for (int rank = 0; rank < ranks; rank++)
        hosts += compare_leads(reports, rank);
    fprintf(to, "%d ranks on %d host%s\n", ranks, hosts, hosts == 1 ? "" : "s");
    for (int rank = 0; rank < ranks; rank++) {
        for (int i = 0; i < reports[rank].count; i++) {
            if (!compare_knows(reports, rank, i))
                compare_check(reports, ranks, reports[rank].findings[i].check, to, &faults,
                              &differences);
        }
    }
    faults += compare_clocks(reports, ranks, to);
    fprintf(to, "\n%d fault%s, %d difference%s\n", faults, faults == 1 ? "" : "s", differences,
            differences == 1 ? "" : "s");
    return faults;
}
