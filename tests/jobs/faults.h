/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by programs that misuse the library, in the way that an argument names, and check errors.
 */
#ifndef TESTS_JOBS_FAULTS_H
#define TESTS_JOBS_FAULTS_H

#include <dist/dist.h>

extern dist_group *fault_group;
extern int fault_rank;

/* The number of failed expectations. */
extern int fault_count;

struct fault_case {
    const char *name; /* begins with "killed" if a rank is killed */
    void (*run)(void);
};

/* Expects `got` to be `wanted` and the last error to contain `text`, unless that is NULL. */
void fault_expect(const char *what, dist_status got, dist_status wanted, const char *text);

/*
 * Calls create with a series of groups as fault_group: rank 1's first allocation there fails, then
 * its second, up to number `most`. However create ends, no rank may wait for another one until the
 * timeout. `end` destroys what create has made.
 */
void fault_scarce(dist_status (*create)(void), void (*end)(void), int most);

/*
 * The main function: runs the case that the arguments name (the list ends with an entry without a
 * name), then `end`, and checks that the group still works unless a rank was killed. Returns the
 * exit code.
 */
int fault_main(int argc, char **argv, const struct fault_case *cases, void (*end)(void));

#endif
