/* SPDX-License-Identifier: BSD-3-Clause */
/* dist_info doctor: checks of the machine, and their findings. */
#ifndef TOOLS_DOCTOR_DOCTOR_H
#define TOOLS_DOCTOR_DOCTOR_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define DOCTOR_FINDINGS 40

enum doctor_level {
    DOCTOR_OK,
    DOCTOR_NOTE, /* harmless, at least on this machine */
    DOCTOR_FAULT /* jobs fail, or are slower than necessary */
};

/* The result of one check. Fixed size, since ranks exchange it as bytes. */
struct doctor_finding {
    char check[24];
    int level;
    int host_specific; /* true: expected to differ between machines */
    char text[240];    /* description */
    char fix[320];     /* the command that fixes it; "": there is none */
    char other[240];   /* advice if `fix` is empty or cannot be used; "": none */
};

/* All findings of a rank. */
struct doctor_report {
    int ranks; /* ranks to run on this machine; 0: unknown */
    int rank;  /* rank in the job; 0 without a job */
    char host[HOST_NAME_MAX + 1];
    double clock; /* seconds since 1970 */
    int count;
    int full; /* true: the last finding was dropped, so calls that describe its fix do nothing */
    struct doctor_finding findings[DOCTOR_FINDINGS];
};

/* Runs the command; argv[0] is "doctor". Returns the exit code. */
int doctor_main(int argc, char **argv);

/*
 * doctor_ok, doctor_note and doctor_fault add a finding: the name of the check, then a format.
 * doctor_fix and doctor_other set the `fix` and `other` members of the last finding. Findings
 * beyond DOCTOR_FINDINGS are dropped.
 */
#define doctor_ok(report, ...) doctor_add(report, DOCTOR_OK, __VA_ARGS__)
#define doctor_note(report, ...) doctor_add(report, DOCTOR_NOTE, __VA_ARGS__)
#define doctor_fault(report, ...) doctor_add(report, DOCTOR_FAULT, __VA_ARGS__)
#define doctor_fix(report, ...) doctor_set_fix(report, false, __VA_ARGS__)
#define doctor_other(report, ...) doctor_set_fix(report, true, __VA_ARGS__)
void doctor_add(struct doctor_report *report, enum doctor_level level, const char *check,
                const char *format, ...) __attribute__((format(printf, 4, 5)));
void doctor_set_fix(struct doctor_report *report, bool other, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Marks the last finding as expected to differ between machines. */
void doctor_host_specific(struct doctor_report *report);

/* Reads the first line of a file, without the newline. Returns false if it cannot be read. */
bool doctor_read(const char *path, char *text, size_t size);

/* True if a file matches the glob pattern. Copies the path of the first match unless path is NULL.
 */
bool doctor_exists(const char *pattern, char *path, size_t size);

/* Checks that add their findings to the report: launchers and settings, the network, TLS. */
void doctor_launch(struct doctor_report *report);
void doctor_network(struct doctor_report *report);
void doctor_tls(struct doctor_report *report);

/* Prints one machine's report as JSON or text. Returns the number of faults. */
int doctor_print(const struct doctor_report *report, bool json, FILE *to);

/* Compares the reports of `ranks` ranks and prints each finding once. Returns the number of
 * faults. */
int doctor_compare(const struct doctor_report *reports, int ranks, FILE *to);

#endif
