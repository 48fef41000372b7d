/* SPDX-License-Identifier: BSD-3-Clause */
/* dist_info doctor: what it looks at, and what it has found. */
#ifndef TOOLS_DOCTOR_DOCTOR_H
#define TOOLS_DOCTOR_DOCTOR_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define DOCTOR_FINDINGS 40

enum doctor_level {
    DOCTOR_OK,
    DOCTOR_NOTE, /* no harm, or none here */
    DOCTOR_FAULT /* jobs fail, or are slower than they need be */
};

/* The answer of one check. Fixed size: ranks exchange it as bytes. */
struct doctor_finding {
    char check[24];
    int level;
    int own;         /* nothing is wrong if it differs from machine to machine */
    char text[240];  /* what there is */
    char mend[320];  /* the command that mends it; "": none does */
    char other[240]; /* what mends it where that command cannot; "": nothing */
};

/* All of a rank's. */
struct doctor_report {
    int ranks; /* those that the machine is to run; 0: not known */
    int rank;  /* among those of the job; 0 without one */
    char host[HOST_NAME_MAX + 1];
    double clock; /* seconds since 1970 */
    int count;
    int full; /* the last finding found no room, nor does what mends it */
    struct doctor_finding findings[DOCTOR_FINDINGS];
};

/* argv[0] is "doctor". Returns the exit code. */
int doctor_main(int argc, char **argv);

/*
 * Add a finding of that check, which a format says; doctor_mend and doctor_other say of the last
 * one what mends it. Of findings beyond the room nothing is kept.
 */
#define doctor_ok(report, ...) doctor_add(report, DOCTOR_OK, __VA_ARGS__)
#define doctor_note(report, ...) doctor_add(report, DOCTOR_NOTE, __VA_ARGS__)
#define doctor_fault(report, ...) doctor_add(report, DOCTOR_FAULT, __VA_ARGS__)
#define doctor_mend(report, ...) doctor_fix(report, false, __VA_ARGS__)
#define doctor_other(report, ...) doctor_fix(report, true, __VA_ARGS__)
void doctor_add(struct doctor_report *report, enum doctor_level level, const char *check,
                const char *format, ...) __attribute__((format(printf, 4, 5)));
void doctor_fix(struct doctor_report *report, bool other, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void doctor_own(struct doctor_report *report);

/* The first line of a file, without its end. False: it cannot be read. */
bool doctor_read(const char *path, char *text, size_t size);

/* Is there a file of that pattern, as glob has them? Copies the first one's path if path is given.
 */
bool doctor_exists(const char *pattern, char *path, size_t size);

/* Parts of that: launchers, settings; the network; TLS; limits; memory; CPUs, clocks; GPUs. */
void doctor_launch(struct doctor_report *report);
void doctor_network(struct doctor_report *report);
void doctor_tls(struct doctor_report *report);

/* Print one machine's report; return how many faults it has. */
int doctor_print(const struct doctor_report *report, bool json, FILE *to);

/* Compares the reports of `ranks` ranks and prints them; returns how many faults there are. */
int doctor_compare(const struct doctor_report *reports, int ranks, FILE *to);

#endif
