/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A training that continues after the loss of ranks:
 *
 *     distrun -n 4 --on-failure continue ./elastic
 *     DIST_FAULT=kill:0@50 distrun -n 4 --on-failure continue ./elastic     kills rank 0 at call 50
 *
 * docs/shrinking.md describes how to start it with other launchers, and which failures it survives
 * there.
 */
#include <dist/dist.h>
#include <stdio.h>
#include <unistd.h>

#define STEPS 100

/*
 * State that must be equal on all ranks: a model with one weight, and the progress of the training.
 */
struct state {
    float step, weight;
};

/* Makes a step of gradient descent on the mean over the ranks of (weight - rank)^2. */
static dist_status train(dist_group *group, int rank, struct state *state)
{
    float gradient = 2 * (state->weight - (float)rank);
    dist_status status = dist_all_reduce(group, &gradient, &gradient, 1, DIST_FLOAT32, DIST_AVG);

    if (status == DIST_OK)
        *state = (struct state){state->step + 1, state->weight - 0.05f * gradient};
    return status;
}

int main(void)
{
    dist_group *world = NULL, *group, *left = NULL;
    struct state state = {0, 0};
    dist_status status = dist_init_process_group(NULL, &world);

    group = world;
    while (status == DIST_OK && state.step < STEPS) {
        status = train(group, dist_get_rank(world), &state);
        while (status == DIST_ERR_PEER_LOST || status == DIST_ERR_ABORTED) {
            /*
             * Some of the remaining ranks may have completed the step and others not, so all use
             * the state of rank 0 of the new group.
             */
            status = dist_shrink(group, NULL, &left);
            if (status == DIST_OK && group != world)
                dist_destroy_process_group(group);
            if (status == DIST_OK)
                status = dist_broadcast(group = left, &state, 2, DIST_FLOAT32, 0);
        }
        usleep(10000); /* simulates the time of a real step */
    }
    if (status == DIST_OK)
        printf("rank %d: %d ranks are left, weight %.2f\n", dist_get_rank(world),
               dist_get_world_size(group), state.weight);
    else
        fprintf(stderr, "%s\n", dist_last_error());
    dist_destroy_process_group(world);
    return status != DIST_OK;
}
