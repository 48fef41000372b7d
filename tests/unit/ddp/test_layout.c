/* SPDX-License-Identifier: BSD-3-Clause */
/* The places of gradients and their assignment to buckets, as a hook sees them. */
#include "steps.h"

#include <time.h>

#include <stdlib.h>

enum { COUNT = 5, BUCKETS_MAX = 8, PIECES_MAX = 8 };

static const size_t counts[COUNT] = {1000, 30, 2048, 7, 512};

/* The buckets of the last step. */
struct seen {
    int count;
    struct {
        int index, piece_count;
        size_t count, pieces[PIECES_MAX];
        void *first;
    } buckets[BUCKETS_MAX];
};

static dist_status record_bucket(void *arg, dist_group *group, const struct dist_ddp_bucket *bucket,
                                 int stage, dist_work **work_p)
{
    struct seen *seen = arg;
    size_t count = 0;

    (void)group, (void)work_p;
    assert_int_equal(stage, 0);
    assert_true(seen->count < BUCKETS_MAX && bucket->piece_count <= PIECES_MAX);
    assert_int_equal(bucket->dtype, DIST_FLOAT32);
    seen->buckets[seen->count].index = bucket->index;
    seen->buckets[seen->count].piece_count = bucket->piece_count;
    seen->buckets[seen->count].count = bucket->count;
    seen->buckets[seen->count].first = bucket->pieces[0];
    for (int i = 0; i < bucket->piece_count; i++)
        count += seen->buckets[seen->count].pieces[i] = bucket->counts[i];
    assert_int_equal(count, bucket->count);
    assert_int_equal(seen->count++, bucket->index);
    return DIST_OK;
}

static struct seen seen;

/* gradients NULL: memory of the library. */
static dist_status make(dist_group *group, float *const *gradients, size_t first_bytes,
                        size_t bytes, dist_ddp **ddp_p)
{
    struct dist_ddp_options options = DIST_DDP_OPTIONS_INIT;
    struct dist_ddp_parameter parameters[COUNT];

    for (int i = 0; i < COUNT; i++)
        parameters[i] = (struct dist_ddp_parameter){.count = counts[i],
                                                    .gradient = gradients ? gradients[i] : NULL};
    options.first_bucket_bytes = first_bytes;
    options.bucket_bytes = bytes;
    options.hook = record_bucket;
    options.hook_arg = &seen;
    return dist_ddp_create(group, parameters, COUNT, &options, ddp_p);
}

static void make_step(dist_ddp *ddp, int first, int last)
{
    seen = (struct seen){0};
    step(ddp, first, last);
}

/* With several buckets, some gradients can be reduced while others are still computed. */
static void a_model_has_many_buckets(void **state)
{
    dist_group *group = single_rank_world();
    struct dist_ddp_parameter parameters[32];
    struct dist_ddp_stats stats = {.size = sizeof(stats)};
    dist_ddp *ddp = NULL;

    (void)state;
    for (int i = 0; i < 32; i++)
        parameters[i] = (struct dist_ddp_parameter){.count = (1 << 20) / sizeof(float)};
    assert_int_equal(dist_ddp_create(group, parameters, 32, NULL, &ddp), DIST_OK);
    assert_int_equal(dist_ddp_get_stats(ddp, &stats), DIST_OK);
    assert_int_equal(stats.buckets, 1 + 16); /* 1 MiB, then 2 MiB each; the last one 1 MiB */
    assert_int_equal(dist_ddp_destroy(ddp), DIST_OK);
    assert_int_equal(dist_destroy_process_group(group), DIST_OK);
}

/* In the library's memory, each bucket is one piece, and each gradient begins on a cache line. */
static void buckets_have_the_requested_size(void **state)
{
    dist_group *group = single_rank_world();
    dist_ddp *ddp = NULL;
    struct dist_ddp_stats stats = {.size = sizeof(stats)};

    (void)state;
    assert_int_equal(make(group, NULL, 2048, 8192, &ddp), DIST_OK);
    make_step(ddp, COUNT - 1, 0);
    assert_int_equal(seen.count, 3);
    assert_int_equal(seen.buckets[0].count, 512);       /* reaches 2048 bytes */
    assert_int_equal(seen.buckets[1].count, 16 + 2048); /* reaches 8192 bytes */
    assert_int_equal(seen.buckets[2].count, 32 + 1008); /* the remaining gradients */
    for (int i = 0; i < 3; i++)
        assert_int_equal(seen.buckets[i].piece_count, 1);
    assert_ptr_equal(seen.buckets[0].first, dist_ddp_gradient(ddp, 4));
    assert_ptr_equal(seen.buckets[1].first, dist_ddp_gradient(ddp, 3));
    assert_ptr_equal(seen.buckets[2].first, dist_ddp_gradient(ddp, 1));
    for (int i = 0; i < COUNT; i++)
        assert_int_equal((uintptr_t)dist_ddp_gradient(ddp, i) % 64, 0);
    assert_int_equal(dist_ddp_get_stats(ddp, &stats), DIST_OK);
    assert_int_equal(stats.buckets, 3);
    assert_int_equal(stats.steps, 1);
    assert_int_equal(stats.bytes, (1000 + 30 + 2048 + 7 + 512) * sizeof(float));
    assert_int_equal(dist_ddp_destroy(ddp), DIST_OK);
    assert_int_equal(dist_destroy_process_group(group), DIST_OK);
}

/* Checks that the buckets began one after the other and ended within the step, and their bytes. */
static void check_times(dist_ddp *ddp, int64_t before, int64_t after)
{
    struct dist_ddp_bucket_times times = {.size = sizeof(times)};
    int64_t last = before;

    for (int i = 0; i < 3; i++) {
        assert_int_equal(dist_ddp_get_bucket_times(ddp, i, &times), DIST_OK);
        assert_true(times.began_ns >= last && times.ended_ns >= times.began_ns);
        assert_true(times.ended_ns <= after);
        assert_int_equal(times.bytes, i == 0 ? 2048 : i == 1 ? (7 + 2048) * 4 : (1000 + 30) * 4);
        last = times.began_ns;
    }
}

static int64_t now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static void times_of_buckets_are_recorded(void **state)
{
    dist_group *group = single_rank_world();
    dist_ddp *ddp = NULL;
    struct dist_ddp_bucket_times times = {.size = sizeof(times)};
    int64_t before;

    (void)state;
    assert_int_equal(make(group, NULL, 2048, 8192, &ddp), DIST_OK);
    assert_int_equal(dist_ddp_get_bucket_times(ddp, 0, &times), DIST_OK);
    assert_int_equal(times.began_ns, 0);
    make_step(ddp, COUNT - 1, 0);
    before = now();
    make_step(ddp, COUNT - 1, 0);
    check_times(ddp, before, now());
    assert_int_equal(dist_ddp_get_bucket_times(ddp, 3, &times), DIST_ERR_INVALID_ARGUMENT);
    assert_int_equal(dist_ddp_get_bucket_times(ddp, -1, &times), DIST_ERR_INVALID_ARGUMENT);
    times.size = 0;
    assert_int_equal(dist_ddp_get_bucket_times(ddp, 0, &times), DIST_ERR_INVALID_ARGUMENT);
    assert_int_equal(dist_ddp_destroy(ddp), DIST_OK);
    assert_int_equal(dist_destroy_process_group(group), DIST_OK);
}

/* With 1 byte, each gradient has its own bucket; with the maximum, one bucket has all gradients. */
static void any_bucket_size_is_accepted(void **state)
{
    dist_group *group = single_rank_world();
    dist_ddp *ddp = NULL;

    (void)state;
    assert_int_equal(make(group, NULL, 1, 1, &ddp), DIST_OK);
    make_step(ddp, COUNT - 1, 0);
    assert_int_equal(seen.count, COUNT);
    assert_int_equal(dist_ddp_destroy(ddp), DIST_OK);
    assert_int_equal(make(group, NULL, SIZE_MAX, SIZE_MAX, &ddp), DIST_OK);
    make_step(ddp, COUNT - 1, 0);
    assert_int_equal(seen.count, 1);
    assert_int_equal(seen.buckets[0].piece_count, 1);
    assert_int_equal(dist_ddp_destroy(ddp), DIST_OK);
    assert_int_equal(dist_destroy_process_group(group), DIST_OK);
}

/* If gradients are ready in the reverse order, the buckets follow that order from the second step
 * on, and are still one piece each. */
static void buckets_follow_the_order_of_the_first_step(void **state)
{
    dist_group *group = single_rank_world();
    dist_ddp *ddp = NULL;

    (void)state;
    assert_int_equal(make(group, NULL, 4000, 8192, &ddp), DIST_OK);
    make_step(ddp, 0, COUNT - 1);
    assert_ptr_equal(seen.buckets[0].first, dist_ddp_gradient(ddp, 4));
    for (int again = 0; again < 2; again++) {
        make_step(ddp, again ? COUNT - 1 : 0, again ? 0 : COUNT - 1); /* decided only once */
        assert_int_equal(seen.count, 3);
        assert_int_equal(seen.buckets[0].count, 1008);
        assert_ptr_equal(seen.buckets[0].first, dist_ddp_gradient(ddp, 0));
        assert_int_equal(seen.buckets[1].count, 32 + 2048);
        assert_int_equal(seen.buckets[1].piece_count, 1);
        assert_ptr_equal(seen.buckets[1].first, dist_ddp_gradient(ddp, 2));
        assert_int_equal(seen.buckets[2].count, 16 + 512);
    }
    assert_int_equal(dist_ddp_destroy(ddp), DIST_OK);
    assert_int_equal(dist_destroy_process_group(group), DIST_OK);
}

/* A flat array of all gradients in the order of the forward pass, as in some trainers: each bucket
 * is one piece. */
static void buckets_of_a_flat_array_are_one_piece(void **state)
{
    float *flat = calloc(1000 + 30 + 2048 + 7 + 512, sizeof(float)), *gradients[COUNT];
    dist_group *group = single_rank_world();
    dist_ddp *ddp = NULL;

    (void)state;
    assert_non_null(flat);
    gradients[0] = flat;
    for (int i = 1; i < COUNT; i++)
        gradients[i] = gradients[i - 1] + counts[i - 1];
    assert_int_equal(make(group, gradients, 2048, 8192, &ddp), DIST_OK);
    make_step(ddp, COUNT - 1, 0);
    assert_int_equal(seen.count, 3);
    for (int i = 0; i < 3; i++)
        assert_int_equal(seen.buckets[i].piece_count, 1);
    assert_ptr_equal(seen.buckets[1].first, gradients[2]);
    assert_int_equal(seen.buckets[1].count, 2048 + 7);
    assert_int_equal(seen.buckets[2].count, 1000 + 30);
    assert_int_equal(dist_ddp_destroy(ddp), DIST_OK);
    assert_int_equal(dist_destroy_process_group(group), DIST_OK);
    free(flat);
}

/* Separate arrays are one piece each, of the given length. */
static void separate_arrays_are_separate_pieces(void **state)
{
    float *gradients[COUNT];
    dist_group *group = single_rank_world();
    dist_ddp *ddp = NULL;

    (void)state;
    for (int i = 0; i < COUNT; i++) {
        gradients[i] = calloc(counts[i] + 4, sizeof(float));
        assert_non_null(gradients[i]);
    }
    assert_int_equal(make(group, gradients, SIZE_MAX, 1, &ddp), DIST_OK);
    make_step(ddp, COUNT - 1, 0);
    assert_int_equal(seen.count, 1);
    assert_int_equal(seen.buckets[0].piece_count, COUNT);
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(seen.buckets[0].pieces[i], counts[COUNT - 1 - i]);
    assert_int_equal(dist_ddp_destroy(ddp), DIST_OK);
    assert_int_equal(dist_destroy_process_group(group), DIST_OK);
    for (int i = 0; i < COUNT; i++)
        free(gradients[i]);
}

/* A tied weight that is listed twice would be averaged twice, so overlapping gradients are
 * rejected. */
static void overlapping_gradients_are_rejected(void **state)
{
    float memory[5000],
        *gradients[COUNT] = {memory, memory + 1000, memory + 1029, memory + 4000, memory + 4100};
    dist_group *group = single_rank_world();
    dist_ddp *ddp = NULL;

    (void)state;
    refused(make(group, gradients, 0, 0, &ddp), "parameter 1 and parameter 2");
    gradients[2] = memory + 1030;
    gradients[4] = memory;
    refused(make(group, gradients, 0, 0, &ddp), "shar");
    gradients[4] = (float *)(void *)((char *)memory + 4100 * sizeof(float) + 2);
    refused(make(group, gradients, 0, 0, &ddp), "aligned");
    gradients[4] = memory + 4100;
    assert_int_equal(make(group, gradients, 0, 0, &ddp), DIST_OK);
    assert_int_equal(dist_ddp_destroy(ddp), DIST_OK);
    assert_int_equal(dist_destroy_process_group(group), DIST_OK);
}

static void impossible_sizes_are_rejected(void **state)
{
    static const size_t sizes[] = {SIZE_MAX, SIZE_MAX / 4, SIZE_MAX / 4 - 7, SIZE_MAX / 8 + 1};
    dist_group *group = single_rank_world();
    float memory[2];
    dist_ddp *ddp = NULL;

    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        for (int given = 0; given < 2; given++) {
            struct dist_ddp_parameter parameters[] = {
                {.count = sizes[i], .gradient = given ? memory : NULL}, {.count = sizes[i]}};

            refused(dist_ddp_create(group, parameters, 2, NULL, &ddp),
                    "dist_ddp_create: parameter 0: count is ");
            assert_null(ddp);
        }
    assert_int_equal(dist_destroy_process_group(group), DIST_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_has_many_buckets),
        cmocka_unit_test(buckets_have_the_requested_size),
        cmocka_unit_test(times_of_buckets_are_recorded),
        cmocka_unit_test(any_bucket_size_is_accepted),
        cmocka_unit_test(buckets_follow_the_order_of_the_first_step),
        cmocka_unit_test(buckets_of_a_flat_array_are_one_piece),
        cmocka_unit_test(separate_arrays_are_separate_pieces),
        cmocka_unit_test(overlapping_gradients_are_rejected),
        cmocka_unit_test(impossible_sizes_are_rejected),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
