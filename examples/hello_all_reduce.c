/* SPDX-License-Identifier: BSD-3-Clause */
/* The smallest complete program: computes the sum of the ranks' numbers on all ranks. */
#include <dist/dist.h>
#include <stdio.h>

int main(void)
{
    dist_group *group = NULL;
    float x = 0;
    dist_status status = dist_init_process_group(NULL, &group);

    if (status == DIST_OK) {
        x = (float)dist_get_rank(group);
        status = dist_all_reduce(group, &x, &x, 1, DIST_FLOAT32, DIST_SUM);
    }
    if (status == DIST_OK)
        printf("rank %d of %d: sum %g\n", dist_get_rank(group), dist_get_world_size(group), x);
    else
        fprintf(stderr, "%s\n", dist_last_error());
    return dist_destroy_process_group(group) != DIST_OK || status != DIST_OK;
}
