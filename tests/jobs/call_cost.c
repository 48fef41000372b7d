/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * call_cost CALLS: rank 0 makes that many short all-reduces, some time after the other, which never
 * sleeps meanwhile. Rank 0 runs under callgrind, which counts what a call costs that finds all that
 * it needs.
 */
#include <dist/dist.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define LATE_NS (300 * 1000)

/* Ahead of rank 0, and looks for it all the time. */
static dist_status wait_awake(dist_group *group, const float *in, float *out)
{
    dist_work *work;
    bool done = false;
    dist_status status = dist_all_reduce_async(group, in, out, 2, DIST_FLOAT32, DIST_SUM, &work);

    if (status != DIST_OK)
        return status;
    while (!done && status == DIST_OK)
        status = dist_test(work, &done);
    return dist_wait(work);
}

int main(int argc, char **argv)
{
    const struct timespec late = {.tv_nsec = LATE_NS};
    const float in[2] = {1, 2};
    float out[2] = {0, 0};
    dist_group *group;
    int calls = argc > 1 ? atoi(argv[1]) : 1, failed;
    dist_status status = dist_init_process_group(NULL, &group);

    for (int i = 0; i < calls && status == DIST_OK; i++) {
        if (dist_get_rank(group) != 0) {
            status = wait_awake(group, in, out);
            continue;
        }
        nanosleep(&late, NULL);
        status = dist_all_reduce(group, in, out, 2, DIST_FLOAT32, DIST_SUM);
    }
    failed = status != DIST_OK || out[0] != 2 || out[1] != 4;
    if (failed)
        fprintf(stderr, "call_cost: %g %g: %s\n", out[0], out[1], dist_last_error());
    return failed || dist_destroy_process_group(group) != DIST_OK;
}
