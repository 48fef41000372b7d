/* SPDX-License-Identifier: BSD-3-Clause */
/* What dist_info explain has found out, for people and for programs. */
#include "explain.h"

#include "common/json.h"

#include <stdio.h>
#include <string.h>

/* ---- for people ---- */

/* Three digits that count: "12.3 us". */
static void print_time(double seconds, const char *before)
{
    double value = seconds * 1e6;
    const char *unit = "us";
    char text[32];

    if (value >= 1e6) {
        value /= 1e6;
        unit = "s";
    } else if (value >= 1e3) {
        value /= 1e3;
        unit = "ms";
    }
    snprintf(text, sizeof(text), "%s%.*f %s", before,
             value < 10    ? 2
             : value < 100 ? 1
                           : 0,
             value, unit);
    printf(" %10s", text);
}

static void print_prediction(const struct dist_candidate *candidate)
{
    if (candidate->seconds >= 0)
        print_time(candidate->seconds, "");
    else if (candidate->least > 0)
        print_time(candidate->least, "> ");
    else
        printf(" %10s", "-");
}

static void print_measured(double seconds)
{
    if (seconds >= 0)
        print_time(seconds, "");
    else
        printf(" %10s", "-");
}

static void print_row(const struct explain_report *report, int row)
{
    const struct dist_candidate *candidate = &report->candidates[row];

    printf("%c %-20s", candidate->chosen ? '*' : ' ', candidate->algorithm);
    if (candidate->segments)
        printf(" %8d", candidate->segments);
    else
        printf(" %8s", "-");
    print_prediction(candidate);
    if (report->run)
        print_measured(report->measured[row]);
    printf("  %s%s\n", candidate->summary, candidate->rules ? " (the rules' choice)" : "");
}

static void print_table(const struct explain_report *report)
{
    const struct dist_explanation *explanation = &report->explanation;

    printf("%s, blocks of %zu bytes, %d rank%s on %d machine%s\n\n",
           dist_collective_string(report->question.collective), report->question.bytes,
           explanation->ranks, explanation->ranks == 1 ? "" : "s", explanation->nodes,
           explanation->nodes == 1 ? "" : "s");
    printf("  %-20s %8s %10s", "algorithm", "segments", "predicted");
    if (report->run)
        printf(" %10s", "measured");
    printf("\n");
    for (int i = 0; i < report->count; i++)
        print_row(report, i);
    if (report->free >= 0) {
        printf("  %-20s %8s %*s", "(nothing forced)", "", 10, "");
        print_measured(report->free);
        printf("\n");
    }
    for (int i = 0; i < report->count; i++) {
        if (report->candidates[i].chosen)
            printf("\nChosen: %s, since %s.\n", report->candidates[i].algorithm,
                   explanation->reason);
    }
    printf("Costs: %s.\n", explanation->costs);
}

/* ---- for programs ---- */

static void print_csv(const struct explain_report *report)
{
    printf("collective,bytes,ranks,nodes,algorithm,segments,predicted_s,measured_s,chosen,rules\n");
    for (int i = 0; i < report->count; i++) {
        const struct dist_candidate *candidate = &report->candidates[i];
        char predicted[32] = "", measured[32] = "";

        if (candidate->seconds >= 0)
            snprintf(predicted, sizeof(predicted), "%.9f", candidate->seconds);
        if (report->measured[i] >= 0)
            snprintf(measured, sizeof(measured), "%.9f", report->measured[i]);
        printf("%s,%zu,%d,%d,%s,%d,%s,%s,%s,%s\n",
               dist_collective_string(report->question.collective), report->question.bytes,
               report->explanation.ranks, report->explanation.nodes, candidate->algorithm,
               candidate->segments, predicted, measured, candidate->chosen ? "yes" : "no",
               candidate->rules ? "yes" : "no");
    }
}

static void print_seconds(const char *name, double seconds)
{
    if (seconds >= 0)
        printf(", \"%s\": %.9f", name, seconds);
    else
        printf(", \"%s\": null", name);
}

static void print_json(const struct explain_report *report)
{
    const struct dist_explanation *explanation = &report->explanation;

    printf("{");
    json_member("collective", dist_collective_string(report->question.collective), true, stdout);
    printf(", \"bytes\": %zu, \"ranks\": %d, \"nodes\": %d", report->question.bytes,
           explanation->ranks, explanation->nodes);
    json_member("reason", explanation->reason, false, stdout);
    json_member("costs", explanation->costs, false, stdout);
    print_seconds("unforced_s", report->free);
    printf(", \"candidates\": [");
    for (int i = 0; i < report->count; i++) {
        const struct dist_candidate *candidate = &report->candidates[i];

        printf("%s\n  {", i ? "," : "");
        json_member("algorithm", candidate->algorithm, true, stdout);
        printf(", \"segments\": %d", candidate->segments);
        print_seconds("predicted_s", candidate->seconds);
        print_seconds("least_s", candidate->least);
        print_seconds("measured_s", report->measured[i]);
        printf(", \"chosen\": %s, \"rules\": %s}", candidate->chosen ? "true" : "false",
               candidate->rules ? "true" : "false");
    }
    printf("\n]}\n");
}

void explain_print(const struct explain_report *report)
{
    if (report->format == EXPLAIN_CSV)
        print_csv(report);
    else if (report->format == EXPLAIN_JSON)
        print_json(report);
    else
        print_table(report);
}
