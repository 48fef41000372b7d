/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls every public function that returns a status with one wrong argument at a time: NULL for
 * each pointer, extreme values for each number. Each call must be refused without a crash, and the
 * group must work afterwards. All ranks make the same calls.
 */
#include <dist/backend.h>
#include <dist/ddp.h>
#include <dist/sampler.h>
#include <dist/zero.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ARGS_MAX = 12, RANKS_MAX = 4, COUNT = 8 };

/* An argument; its kind selects the member. */
struct value {
    void *p;
    size_t n;
    int i;
};

/* A function and the kinds of its arguments. Arguments of a kind in lower case are never wrong. */
struct row {
    const char *name, *kinds;
    dist_status (*call)(const struct value *v);
};

#define ROW(name, kinds)                                                                           \
    {                                                                                              \
#name, kinds, call_##name                                                                  \
    }
#define CALL(name, ...)                                                                            \
    static dist_status call_##name(const struct value *v)                                          \
    {                                                                                              \
        return name(__VA_ARGS__);                                                                  \
    }
#define DTYPE(value) ((dist_dtype)(value).i)
#define OP(value) ((dist_op)(value).i)

static dist_group *group, *destroyed;
static int ranks, rank, faults, calls;
static float memory[RANKS_MAX * COUNT], other[RANKS_MAX * COUNT];
static size_t ones[RANKS_MAX], many[RANKS_MAX], offsets[RANKS_MAX];
static int all[RANKS_MAX + 1];

/* ---- collectives ---- */

CALL(dist_all_reduce, v[0].p, v[1].p, v[2].p, v[3].n, DTYPE(v[4]), OP(v[5]))
CALL(dist_all_reduce_async, v[0].p, v[1].p, v[2].p, v[3].n, DTYPE(v[4]), OP(v[5]), v[6].p)
CALL(dist_all_reduce_init, v[0].p, v[1].p, v[2].p, v[3].n, DTYPE(v[4]), OP(v[5]), v[6].p)
CALL(dist_all_reduce_coalesced, v[0].p, v[1].p, v[2].p, v[3].i, DTYPE(v[4]), OP(v[5]))
CALL(dist_all_reduce_coalesced_async, v[0].p, v[1].p, v[2].p, v[3].i, DTYPE(v[4]), OP(v[5]), v[6].p)
CALL(dist_reduce, v[0].p, v[1].p, v[2].p, v[3].n, DTYPE(v[4]), OP(v[5]), v[6].i)
CALL(dist_reduce_async, v[0].p, v[1].p, v[2].p, v[3].n, DTYPE(v[4]), OP(v[5]), v[6].i, v[7].p)
CALL(dist_broadcast, v[0].p, v[1].p, v[2].n, DTYPE(v[3]), v[4].i)
CALL(dist_broadcast_async, v[0].p, v[1].p, v[2].n, DTYPE(v[3]), v[4].i, v[5].p)
CALL(dist_barrier, v[0].p)
CALL(dist_barrier_async, v[0].p, v[1].p)
CALL(dist_monitored_barrier, v[0].p, v[1].i)
CALL(dist_all_gather, v[0].p, v[1].p, v[2].p, v[3].n, DTYPE(v[4]))
CALL(dist_all_gather_async, v[0].p, v[1].p, v[2].p, v[3].n, DTYPE(v[4]), v[5].p)
CALL(dist_all_gather_v, v[0].p, v[1].p, v[2].p, v[3].p, v[4].p, DTYPE(v[5]))
CALL(dist_all_gather_v_async, v[0].p, v[1].p, v[2].p, v[3].p, v[4].p, DTYPE(v[5]), v[6].p)
CALL(dist_reduce_scatter, v[0].p, v[1].p, v[2].p, v[3].n, DTYPE(v[4]), OP(v[5]))
CALL(dist_reduce_scatter_async, v[0].p, v[1].p, v[2].p, v[3].n, DTYPE(v[4]), OP(v[5]), v[6].p)
CALL(dist_reduce_scatter_v, v[0].p, v[1].p, v[2].p, v[3].p, DTYPE(v[4]), OP(v[5]))
CALL(dist_reduce_scatter_v_async, v[0].p, v[1].p, v[2].p, v[3].p, DTYPE(v[4]), OP(v[5]), v[6].p)
CALL(dist_gather, v[0].p, v[1].p, v[2].p, v[3].n, DTYPE(v[4]), v[5].i)
CALL(dist_gather_async, v[0].p, v[1].p, v[2].p, v[3].n, DTYPE(v[4]), v[5].i, v[6].p)
CALL(dist_gather_v, v[0].p, v[1].p, v[2].n, v[3].p, v[4].p, v[5].p, DTYPE(v[6]), v[7].i)
CALL(dist_gather_v_async, v[0].p, v[1].p, v[2].n, v[3].p, v[4].p, v[5].p, DTYPE(v[6]), v[7].i,
     v[8].p)
CALL(dist_scatter, v[0].p, v[1].p, v[2].p, v[3].n, DTYPE(v[4]), v[5].i)
CALL(dist_scatter_async, v[0].p, v[1].p, v[2].p, v[3].n, DTYPE(v[4]), v[5].i, v[6].p)
CALL(dist_scatter_v, v[0].p, v[1].p, v[2].p, v[3].p, v[4].p, v[5].n, DTYPE(v[6]), v[7].i)
CALL(dist_scatter_v_async, v[0].p, v[1].p, v[2].p, v[3].p, v[4].p, v[5].n, DTYPE(v[6]), v[7].i,
     v[8].p)
CALL(dist_all_to_all, v[0].p, v[1].p, v[2].p, v[3].n, DTYPE(v[4]))
CALL(dist_all_to_all_async, v[0].p, v[1].p, v[2].p, v[3].n, DTYPE(v[4]), v[5].p)
CALL(dist_all_to_all_v, v[0].p, v[1].p, v[2].p, v[3].p, v[4].p, v[5].p, v[6].p, DTYPE(v[7]))
CALL(dist_all_to_all_v_async, v[0].p, v[1].p, v[2].p, v[3].p, v[4].p, v[5].p, v[6].p, DTYPE(v[7]),
     v[8].p)
CALL(dist_send, v[0].p, v[1].p, v[2].n, DTYPE(v[3]), v[4].i, v[5].i)
CALL(dist_recv, v[0].p, v[1].p, v[2].n, DTYPE(v[3]), v[4].i, v[5].i, v[6].p)
CALL(dist_isend, v[0].p, v[1].p, v[2].n, DTYPE(v[3]), v[4].i, v[5].i, v[6].p)
CALL(dist_irecv, v[0].p, v[1].p, v[2].n, DTYPE(v[3]), v[4].i, v[5].i, v[6].p, v[7].p)

/* ---- requests, groups, memory ---- */

CALL(dist_wait, v[0].p)
CALL(dist_wait_for, v[0].p, v[1].i)
CALL(dist_test, v[0].p, v[1].p)
CALL(dist_on_complete, v[0].p, NULL, NULL)
CALL(dist_start, v[0].p)
CALL(dist_op_create_premul_sum, 1.0, v[0].p)
CALL(dist_op_create, NULL, NULL, v[0].p)
CALL(dist_op_free, OP(v[0]))
CALL(dist_new_group, v[0].p, v[1].p, v[2].i, v[3].p, v[4].p)
CALL(dist_split_group, v[0].p, v[1].i, v[2].i, v[3].p, v[4].p)
CALL(dist_dup_group, v[0].p, v[1].p, v[2].p)
CALL(dist_shrink, v[0].p, v[1].p, v[2].p)
CALL(dist_decline_dup_group, v[0].p, (dist_status)v[1].i)
CALL(dist_abort, v[0].p)
CALL(dist_set_stream, v[0].p, v[1].p)
CALL(dist_set_timeout, v[0].p, v[1].i)
CALL(dist_alloc, v[0].p, v[1].n, v[2].p)
CALL(dist_free, NULL, v[0].p)
CALL(dist_shared_alloc, v[0].p, v[1].n, v[2].p)
CALL(dist_shared_free, v[0].p)
CALL(dist_register, v[0].p, v[1].p, v[2].n)
CALL(dist_unregister, v[0].p, v[1].p)
CALL(dist_get_place, v[0].p, v[1].i, v[2].p)
CALL(dist_spawn, v[0].i, NULL, NULL, v[1].p)
CALL(dist_init_process_group, NULL, v[0].p)
CALL(dist_backend_lacks, v[0].p, v[1].p)
CALL(dist_explain, v[0].p, v[1].p, v[2].i, v[3].p)

/* ---- training ---- */

CALL(dist_ddp_create, v[0].p, v[1].p, v[2].i, v[3].p, v[4].p)
CALL(dist_ddp_destroy, v[0].p)
CALL(dist_ddp_ready, v[0].p, v[1].i)
CALL(dist_ddp_finish, v[0].p)
CALL(dist_ddp_set_sync, v[0].p, true)
CALL(dist_ddp_zero_gradients, v[0].p)
CALL(dist_ddp_clip, v[0].p, 1.0, NULL)
CALL(dist_ddp_sync_buffers, v[0].p)
CALL(dist_ddp_join, v[0].p, NULL, NULL)
CALL(dist_ddp_set_stream, v[0].p, NULL)
CALL(dist_ddp_get_stats, v[0].p, v[1].p)
CALL(dist_ddp_get_bucket_times, v[0].p, v[1].i, v[2].p)
CALL(dist_zero_create, v[0].p, v[1].p, v[2].i, v[3].p, v[4].p)
CALL(dist_zero_destroy, v[0].p)
CALL(dist_zero_ready, v[0].p, v[1].i)
CALL(dist_zero_finish, v[0].p)
CALL(dist_zero_clear_gradients, v[0].p)
CALL(dist_zero_sync_values, v[0].p)
CALL(dist_zero_gather_state, v[0].p, v[1].i, 0, v[2].p, v[3].i)
CALL(dist_zero_scatter_state, v[0].p, v[1].i, 0, v[2].p, v[3].i)
CALL(dist_zero_set_steps, v[0].p, 1)
CALL(dist_zero_get_stats, v[0].p, v[1].p)
CALL(dist_sampler_create, v[0].p, v[1].p, v[2].p)
CALL(dist_sampler_restore, v[0].p, v[1].p)

/*
 * G group      B buffer    N count    D dtype    O op        R root or peer   T tag
 * P result     W request   L counts   F offsets  M time      K index from 0   C count from 1
 * Q options    X memory that the library did not allocate    S a ddp, zero or sampler
 */
static const struct row rows[] = {
    ROW(dist_all_reduce, "GBBNDO"),
    ROW(dist_all_reduce_async, "GBBNDOP"),
    ROW(dist_all_reduce_init, "GBBNDOP"),
    ROW(dist_all_reduce_coalesced, "GPLKDO"),
    ROW(dist_all_reduce_coalesced_async, "GPLKDOP"),
    ROW(dist_reduce, "GBbNDOR"),
    ROW(dist_reduce_async, "GBbNDORP"),
    ROW(dist_broadcast, "GBNDR"),
    ROW(dist_broadcast_async, "GBNDRP"),
    ROW(dist_barrier, "G"),
    ROW(dist_barrier_async, "GP"),
    ROW(dist_monitored_barrier, "GM"),
    ROW(dist_all_gather, "GBBND"),
    ROW(dist_all_gather_async, "GBBNDP"),
    ROW(dist_all_gather_v, "GBBLFD"),
    ROW(dist_all_gather_v_async, "GBBLFDP"),
    ROW(dist_reduce_scatter, "GBBNDO"),
    ROW(dist_reduce_scatter_async, "GBBNDOP"),
    ROW(dist_reduce_scatter_v, "GBBLDO"),
    ROW(dist_reduce_scatter_v_async, "GBBLDOP"),
    ROW(dist_gather, "GBbNDR"),
    ROW(dist_gather_async, "GBbNDRP"),
    ROW(dist_gather_v, "GBNblfDR"),
    ROW(dist_gather_v_async, "GBNblfDRP"),
    ROW(dist_scatter, "GbBNDR"),
    ROW(dist_scatter_async, "GbBNDRP"),
    ROW(dist_scatter_v, "GblfBNDR"),
    ROW(dist_scatter_v_async, "GblfBNDRP"),
    ROW(dist_all_to_all, "GBANd"),
    ROW(dist_all_to_all_async, "GBANDP"),
    ROW(dist_all_to_all_v, "GBLFALFD"),
    ROW(dist_all_to_all_v_async, "GBLFALFDP"),
    ROW(dist_send, "GBNDRT"),
    ROW(dist_recv, "GBNDRTp"),
    ROW(dist_isend, "GBNDRTP"),
    ROW(dist_irecv, "GBNDRTpP"),
    ROW(dist_wait, "W"),
    ROW(dist_wait_for, "WM"),
    ROW(dist_test, "WP"),
    ROW(dist_on_complete, "W"),
    ROW(dist_start, "W"),
    ROW(dist_op_create_premul_sum, "P"),
    ROW(dist_op_create, "P"),
    ROW(dist_op_free, "O"),
    ROW(dist_new_group, "GICQP"),
    ROW(dist_split_group, "GKkQP"),
    ROW(dist_dup_group, "GQP"),
    ROW(dist_shrink, "GQP"),
    ROW(dist_decline_dup_group, "GZ"),
    ROW(dist_abort, "G"),
    ROW(dist_set_stream, "Gp"),
    ROW(dist_set_timeout, "GM"),
    ROW(dist_alloc, "gNP"),
    ROW(dist_free, "X"),
    ROW(dist_shared_alloc, "GNP"),
    ROW(dist_shared_free, "X"),
    ROW(dist_register, "GBN"),
    ROW(dist_unregister, "gX"),
    ROW(dist_get_place, "GRP"),
    ROW(dist_spawn, "CP"),
    ROW(dist_init_process_group, "P"),
    ROW(dist_backend_lacks, "PP"),
    ROW(dist_explain, "PPKP"),
    ROW(dist_ddp_create, "GPCQP"),
    ROW(dist_ddp_destroy, "s"),
    ROW(dist_ddp_ready, "SK"),
    ROW(dist_ddp_finish, "S"),
    ROW(dist_ddp_set_sync, "S"),
    ROW(dist_ddp_zero_gradients, "S"),
    ROW(dist_ddp_clip, "S"),
    ROW(dist_ddp_sync_buffers, "S"),
    ROW(dist_ddp_join, "S"),
    ROW(dist_ddp_set_stream, "S"),
    ROW(dist_ddp_get_stats, "SP"),
    ROW(dist_ddp_get_bucket_times, "SKP"),
    ROW(dist_zero_create, "GPCQP"),
    ROW(dist_zero_destroy, "s"),
    ROW(dist_zero_ready, "SK"),
    ROW(dist_zero_finish, "S"),
    ROW(dist_zero_clear_gradients, "S"),
    ROW(dist_zero_sync_values, "S"),
    ROW(dist_zero_gather_state, "SKPR"),
    ROW(dist_zero_scatter_state, "SKPR"),
    ROW(dist_zero_set_steps, "S"),
    ROW(dist_zero_get_stats, "SP"),
    ROW(dist_sampler_create, "gPP"),
    ROW(dist_sampler_restore, "SP"),
};

/* ---- good values ---- */

static void *buffers[] = {memory};

static struct value good(char kind)
{
    switch (kind) {
    case 'G':
    case 'g':
        return (struct value){.p = group};
    case 'B':
    case 'b':
        return (struct value){.p = memory};
    case 'A':
        return (struct value){.p = other};
    case 'N':
        return (struct value){.n = 1};
    case 'D':
    case 'd':
        return (struct value){.i = DIST_UINT8};
    case 'L':
    case 'l':
        return (struct value){.p = ones};
    case 'F':
    case 'f':
        return (struct value){.p = offsets};
    case 'C':
        return (struct value){.i = 1};
    case 'I':
        return (struct value){.p = all};
    case 'P':
    case 'p':
        return (struct value){.p = buffers};
    default:
        return (struct value){0};
    }
}

/* ---- wrong values ---- */

/* Stores wrong value k of that kind in *value. Returns false if there are fewer. */
static bool wrong(char kind, int k, struct value *value)
{
    static const size_t sizes[] = {SIZE_MAX, SIZE_MAX - 1, SIZE_MAX / 2, SIZE_MAX / 16};
    static const int numbers[] = {-1, -2, INT_MIN, INT_MIN + 1};
    static const struct dist_group_options empty = {.size = 0}, large = {.size = SIZE_MAX};
    void *const pointers[] = {NULL, (void *)UINTPTR_MAX}, *const handles[] = {NULL, destroyed};
    const int from = kind == 'R' ? 1 : 0; /* -1 is any source, or no peer */

    switch (kind) {
    case 'G':
        value->p = handles[k % 2];
        return k < 2;
    case 'B':
    case 'A':
        value->p = pointers[k % 2];
        return k < 2;
    case 'N':
        value->n = sizes[k % 4];
        return k < 4;
    case 'D':
    case 'O':
        value->i = k == 4 ? 99 : numbers[k % 4];
        return k < 5;
    case 'R':
        value->i = k == 3 ? INT_MAX : numbers[(k + from) % 4];
        return k < 4;
    case 'T':
    case 'M':
    case 'K':
        value->i = numbers[k % 4];
        return k < 4;
    case 'C':
        value->i = k == 4 ? 0 : numbers[k % 4];
        return k < 5;
    case 'L':
        value->p = k == 0 ? NULL : many;
        return k < 2;
    case 'F':
        value->p = many;
        return k < 1;
    case 'Q':
        value->p = (void *)(uintptr_t)(k == 0 ? &empty : &large);
        return k < 2;
    case 'X':
        value->p = memory;
        return k < 1;
    case 'Z':
        value->i = k;
        return k < 2;
    case 'P':
    case 'W':
    case 'I':
    case 'S':
        value->p = NULL;
        return k < 1;
    default:
        return false;
    }
}

/* Functions of requests get invalid handles only: a number that belongs to no request is refused.
 */
static void try_row(const struct row *row)
{
    struct value values[ARGS_MAX], bad[ARGS_MAX];

    for (int i = 0; row->kinds[i]; i++)
        values[i] = good(row->kinds[i]);
    for (int i = 0; row->kinds[i]; i++) {
        for (int k = 0;; k++) {
            dist_status status;

            memcpy(bad, values, sizeof(bad));
            if (!wrong(row->kinds[i], k, &bad[i]))
                break;
            /* -1 is the valid split color DIST_NO_COLOR; a NULL list of 0 buffers is valid */
            if (row->call == call_dist_split_group && i == 1 && k == 0)
                continue;
            if (strstr(row->name, "coalesced") && i != 3)
                bad[3].i = 1;
            if (strstr(row->name, "coalesced") && bad[2].p == many)
                bad[2].p = &many[ranks - 1];
            calls++;
            status = row->call(bad);
            if (status < 0 && dist_last_error()[0])
                continue;
            fprintf(stderr, "rank %d: %s: argument %d, wrong value %d: %s, '%s'\n", rank, row->name,
                    i, k, dist_status_string(status), dist_last_error());
            faults++;
        }
    }
}

/* Functions that return no status. */
static void try_texts(dist_group *none)
{
    dist_dtype_string((dist_dtype)INT_MIN);
    dist_op_string((dist_op)INT_MIN);
    dist_status_string((dist_status)INT_MIN);
    dist_collective_string((dist_collective)INT_MIN);
    dist_dtype_size((dist_dtype)INT_MIN);
    dist_collective_reduces((dist_collective)INT_MIN);
    faults += dist_get_rank(none) != -1 || dist_get_world_size(none) != -1 ||
              dist_get_local_rank(none) != -1 || dist_get_backend(none)[0] ||
              dist_get_global_rank(none, INT_MIN) != -1 || dist_get_group_rank(none, INT_MAX) != -1;
    faults += dist_ddp_gradient(NULL, INT_MIN) || dist_ddp_is_used(NULL, INT_MAX) ||
              dist_ddp_active(NULL) || dist_zero_values(NULL, 0) || dist_zero_gradient(NULL, -1) ||
              dist_zero_get_steps(NULL);
    dist_list_variables(NULL, SIZE_MAX);
    dist_list_module_folders(NULL, SIZE_MAX);
    dist_list_names(NULL, SIZE_MAX);
}

int main(void)
{
    struct dist_options options = DIST_OPTIONS_INIT;
    float one = 1, sum = 0;

    options.timeout_ms = 20 * 1000;
    if (dist_init_process_group(&options, &group) != DIST_OK ||
        dist_dup_group(group, NULL, &destroyed) != DIST_OK ||
        dist_destroy_process_group(destroyed) != DIST_OK) {
        fprintf(stderr, "%s\n", dist_last_error());
        return 1;
    }
    rank = dist_get_rank(group);
    ranks = dist_get_world_size(group);
    for (int r = 0; r < RANKS_MAX; r++) {
        all[r] = r;
        ones[r] = 1;
        offsets[r] = (size_t)r;
        many[r] = r == ranks - 1 ? SIZE_MAX / 2 : 1;
    }
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        try_row(&rows[i]);
    try_texts(NULL);
    try_texts(destroyed);
    if (dist_all_reduce(group, &one, &sum, 1, DIST_FLOAT32, DIST_SUM) != DIST_OK ||
        sum != (float)ranks) {
        fprintf(stderr, "rank %d: afterwards: %s\n", rank, dist_last_error());
        faults++;
    }
    if (dist_destroy_process_group(group) != DIST_OK)
        faults++;
    if (rank == 0)
        printf("any arguments: %d calls, %d faults\n", calls, faults);
    return faults ? 1 : 0;
}
