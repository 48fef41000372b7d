/* SPDX-License-Identifier: BSD-3-Clause */
/* What the doctor says, for people and for programs. */
#include "../common/json.h"
#include "doctor.h"

static const char *const print_levels[] = {"ok", "note", "FAULT"};

void doctor_print_finding(const struct doctor_finding *finding, const char *where, FILE *to)
{
    fprintf(to, "%-6s %-14s %s%s%s%s\n", print_levels[finding->level], finding->check,
            *where ? "[" : "", where, *where ? "] " : "", finding->text);
    if (*finding->mend)
        fprintf(to, "    $ %s\n", finding->mend);
    if (*finding->other)
        fprintf(to, "    %s%s\n", *finding->mend ? "or: " : "", finding->other);
}

static void print_object(const struct doctor_finding *finding, bool first, FILE *to)
{
    static const char *const levels[] = {"ok", "note", "fault"};

    fprintf(to, "%s\n  {", first ? "" : ",");
    json_member("check", finding->check, true, to);
    json_member("level", levels[finding->level], false, to);
    json_member("text", finding->text, false, to);
    json_member("mend", finding->mend, false, to);
    json_member("other", finding->other, false, to);
    fprintf(to, "}");
}

int doctor_print(const struct doctor_report *report, bool json, FILE *to)
{
    int faults = 0;

    if (json)
        fprintf(to, "[");
    for (int i = 0; i < report->count; i++) {
        faults += report->findings[i].level == DOCTOR_FAULT;
        if (json)
            print_object(&report->findings[i], i == 0, to);
        else
            doctor_print_finding(&report->findings[i], "", to);
    }
    if (json)
        fprintf(to, "\n]\n");
    else
        fprintf(to, "\n%d fault%s%s\n", faults, faults == 1 ? "" : "s",
                faults ? "; a line with $ is a command that mends one" : "");
    return faults;
}
