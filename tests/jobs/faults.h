/* SPDX-License-Identifier: BSD-3-Clause */
/* Programs that do one wrong thing, named on the command line, and see what comes of it. */
#ifndef TESTS_JOBS_FAULTS_H
#define TESTS_JOBS_FAULTS_H

#include <dist/dist.h>

extern dist_group *fault_group;
extern int fault_rank;

/* What was not as it should be. */
extern int fault_count;

struct fault_case {
    const char *name; /* of one in which a rank is killed: killed... */
    void (*run)(void);
};

/* `got` is to be `wanted`, and the last error to have that text; NULL: any. */
void fault_expect(const char *what, dist_status got, dist_status wanted, const char *text);

/*
 * Calls create with groups that come one after the other as fault_group: rank 1 has no memory for
 * its first allocation there, then for its second, up to number `most`. However that ends, no rank
 * waits for another in vain. `end` undoes it, on whatever create has left.
 */
void fault_scarce(dist_status (*create)(void), void (*end)(void), int most);

/*
 * The whole program: runs the case that the arguments name, ended by one without a name; then
 * `end`; and sees that the group can still be used, where no rank was killed. Returns its exit
 * code.
 */
int fault_main(int argc, char **argv, const struct fault_case *cases, void (*end)(void));

#endif
