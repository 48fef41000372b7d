/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by programs that misuse the library, in the way that an argument names, and check errors.
 */
#include "faults.h"

#include <stdio.h>
#include <string.h>

#include "scarce.h"

dist_group *fault_group;
int fault_rank;
int fault_count;

void fault_expect(const char *what, dist_status got, dist_status wanted, const char *text)
{
    if (got == wanted && (!text || strstr(dist_last_error(), text)))
        return;
    fprintf(stderr, "rank %d: %s: %s instead of %s with \"%s\": %s\n", fault_rank, what,
            dist_status_string(got), dist_status_string(wanted), text ? text : "",
            dist_last_error());
    fault_count++;
}

/* Calls create once in a new group; allocation `number` of rank 1 fails. */
static void fault_scarce_turn(dist_status (*create)(void), void (*end)(void), int number)
{
    dist_group *const world = fault_group;
    dist_status status;

    fault_expect("dup", dist_dup_group(world, NULL, &fault_group), DIST_OK, NULL);
    if (fault_rank == 1)
        scarce_from(number);
    status = create();
    if (fault_rank == 1 && !scarce_end()) {
        fprintf(stderr, "there is no allocation %d\n", number);
        fault_count++;
    }
    fault_expect(fault_rank == 1 ? "create without memory" : "create", status,
                 fault_rank == 1 ? DIST_ERR_NO_MEMORY : DIST_ERR_ABORTED,
                 fault_rank == 1 ? NULL : "rank 1 (host ");
    end();
    dist_destroy_process_group(fault_group);
    fault_group = world;
}

void fault_scarce(dist_status (*create)(void), void (*end)(void), int most)
{
    for (int number = 1; number <= most; number++)
        fault_scarce_turn(create, end, number);
}

int fault_main(int argc, char **argv, const struct fault_case *cases, void (*end)(void))
{
    const struct fault_case *it = cases;

    while (argc == 2 && it->name && strcmp(it->name, argv[1]) != 0)
        it++;
    if (argc != 2 || !it->name || dist_init_process_group(NULL, &fault_group) != DIST_OK)
        return 2;
    fault_rank = dist_get_rank(fault_group);
    it->run();
    end();
    if (strncmp(it->name, "killed", 6) != 0)
        fault_expect("the group", dist_barrier(fault_group), DIST_OK, NULL);
    dist_destroy_process_group(fault_group);
    return fault_count > 0;
}
