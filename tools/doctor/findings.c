/* SPDX-License-Identifier: BSD-3-Clause */
/* Collecting, printing and comparing findings, and reading the machine's files. */
#include "doctor.h"
#include "tools/common/text.h"

#include <glob.h>
#include <limits.h>
#include <stdarg.h>
#include <string.h>

void doctor_add(struct doctor_report *report, enum doctor_level level, const char *check,
                const char *format, ...)
{
    struct doctor_finding *finding = &report->findings[report->count];
    va_list arguments;

    report->full = report->count == DOCTOR_FINDINGS;
    if (report->full)
        return;
    memset(finding, 0, sizeof(*finding));
    snprintf(finding->check, sizeof(finding->check), "%s", check);
    finding->level = (int)level;
    va_start(arguments, format);
    vsnprintf(finding->text, sizeof(finding->text), format, arguments);
    va_end(arguments);
    report->count++;
}

void doctor_set_fix(struct doctor_report *report, bool other, const char *format, ...)
{
    struct doctor_finding *last = &report->findings[report->count - 1];
    va_list arguments;

    if (report->full)
        return;
    va_start(arguments, format);
    vsnprintf(other ? last->other : last->fix, other ? sizeof(last->other) : sizeof(last->fix),
              format, arguments);
    va_end(arguments);
}

void doctor_host_specific(struct doctor_report *report)
{
    if (!report->full)
        report->findings[report->count - 1].host_specific = 1;
}

/* ---- files ---- */

bool doctor_read(const char *path, char *text, size_t size)
{
    FILE *file = fopen(path, "re");
    bool read = file && fgets(text, (int)size, file);

    if (file)
        fclose(file);
    if (read)
        text[strcspn(text, "\n")] = '\0';
    return read;
}

bool doctor_exists(const char *pattern, char *path, size_t size)
{
    glob_t found;
    bool exists = glob(pattern, GLOB_NOSORT, NULL, &found) == 0 && found.gl_pathc > 0;

    if (exists && path)
        snprintf(path, size, "%s", found.gl_pathv[0]);
    globfree(&found);
    return exists;
}

/* Printing a report as text or JSON. */

static const char *const print_levels[] = {"ok", "note", "FAULT"};

/* Prints a finding. `where` lists the hosts or ranks that have it; "": all ranks have it. */
static void doctor_print_finding(const struct doctor_finding *finding, const char *where, FILE *to)
{
    fprintf(to, "%-6s %-14s %s%s%s%s\n", print_levels[finding->level], finding->check,
            *where ? "[" : "", where, *where ? "] " : "", finding->text);
    if (*finding->fix)
        fprintf(to, "    $ %s\n", finding->fix);
    if (*finding->other)
        fprintf(to, "    %s%s\n", *finding->fix ? "or: " : "", finding->other);
}

int doctor_print(const struct doctor_report *report, bool json, FILE *to)
{
    int faults = 0;

    if (json)
        fprintf(to, "[");
    for (int i = 0; i < report->count; i++) {
        faults += report->findings[i].level == DOCTOR_FAULT;
        if (json) {
            static const char *const levels[] = {"ok", "note", "fault"};

            fprintf(to, "%s\n  {", i == 0 ? "" : ",");
            json_member("check", report->findings[i].check, true, to);
            json_member("level", levels[report->findings[i].level], false, to);
            json_member("text", report->findings[i].text, false, to);
            json_member("fix", report->findings[i].fix, false, to);
            json_member("other", report->findings[i].other, false, to);
            fprintf(to, "}");
        } else {
            doctor_print_finding(&report->findings[i], "", to);
        }
    }
    if (json)
        fprintf(to, "\n]\n");
    else
        fprintf(to, "\n%d fault%s%s\n", faults, faults == 1 ? "" : "s",
                faults ? "; a line with $ is a command that fixes one" : "");
    return faults;
}

/* Comparing the reports of a job's ranks. */

/* Seconds by which clocks may differ, since ranks do not read them at exactly the same time. */
#define COMPARE_CLOCKS 2.0

/* True if the report contains the finding. */
static bool compare_has(const struct doctor_report *report, const struct doctor_finding *finding)
{
    for (int i = 0; i < report->count; i++) {
        if (strcmp(report->findings[i].check, finding->check) == 0 &&
            report->findings[i].level == finding->level &&
            strcmp(report->findings[i].text, finding->text) == 0 &&
            strcmp(report->findings[i].fix, finding->fix) == 0)
            return true;
    }
    return false;
}

/* Returns whether all, some or none of the host's ranks have the finding. */
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

/* True if the rank is the lowest one of its host. */
static bool compare_leads(const struct doctor_report *reports, int rank)
{
    for (int other = 0; other < rank; other++) {
        if (strcmp(reports[other].host, reports[rank].host) == 0)
            return false;
    }
    return true;
}

/* True if no lower rank has the i-th finding of this rank. */
static bool compare_is_first(const struct doctor_report *reports, int rank, int i)
{
    const struct doctor_finding *finding = &reports[rank].findings[i];

    for (int other = 0; other < rank; other++) {
        if (compare_has(&reports[other], finding))
            return false;
    }
    return true;
}

/* Prints all findings of one check, each once. Adds to *faults, and to *differences if the ranks
 * differ where they should not. */
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
            /* "node0, node1", or "rank 2 on node1" if only some ranks of a host have the finding;
             * "" if all ranks have it. */
            const size_t size = sizeof(where);
            size_t used = 0;
            int with = 0;

            where[0] = '\0';
            for (int other = 0; other < ranks; other++)
                with += compare_has(&reports[other], finding);
            for (int other = 0; other < ranks && with < ranks && used < size; other++) {
                const char *comma = used ? ", " : "";
                const int of_host = compare_host(reports, ranks, reports[other].host, finding);

                if (of_host == COMPARE_ALL && compare_leads(reports, other))
                    used += (size_t)snprintf(where + used, size - used, "%s%s", comma,
                                             reports[other].host);
                else if (of_host == COMPARE_SOME && compare_has(&reports[other], finding))
                    used += (size_t)snprintf(where + used, size - used, "%srank %d on %s", comma,
                                             other, reports[other].host);
            }
            doctor_print_finding(finding, where, to);
            *faults += finding->level == DOCTOR_FAULT;
            differs = differs || (*where && !finding->host_specific);
        }
    }
    *differences += differs;
}

/* True if a finding of a lower rank, or an earlier one of this rank, is from the same check. */
static bool compare_is_done(const struct doctor_report *reports, int rank, int i)
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

/* Prints a fault and returns 1 if clocks differ too much; otherwise returns 0. */
static int compare_clocks(const struct doctor_report *reports, int ranks, FILE *to)
{
    static struct doctor_report result; /* too large for a small stack */
    int early = 0, late = 0;

    for (int rank = 1; rank < ranks; rank++) {
        early = reports[rank].clock < reports[early].clock ? rank : early;
        late = reports[rank].clock > reports[late].clock ? rank : late;
    }
    if (reports[late].clock - reports[early].clock <= COMPARE_CLOCKS)
        return 0;
    doctor_fault(&result, "time", "the clock of %s is %.1f s ahead of that of %s",
                 reports[late].host, reports[late].clock - reports[early].clock,
                 reports[early].host);
    doctor_fix(&result, "timedatectl set-ntp true");
    doctor_print_finding(&result.findings[0], "", to);
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
            if (!compare_is_done(reports, rank, i))
                compare_check(reports, ranks, reports[rank].findings[i].check, to, &faults,
                              &differences);
        }
    }
    faults += compare_clocks(reports, ranks, to);
    fprintf(to, "\n%d fault%s, %d difference%s\n", faults, faults == 1 ? "" : "s", differences,
            differences == 1 ? "" : "s");
    return faults;
}
