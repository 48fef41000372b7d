/* SPDX-License-Identifier: BSD-3-Clause */
/* Buffers of floats that ranks exchange, in shared memory if possible. */
#include "../core/alone.h"
#include "unit.h"

#include <stdlib.h>
#include <sys/resource.h>

#include "train/dataset.h"
#include "train/model.h"

static void check(struct buffer *buffer, size_t count, bool shared)
{
    assert_true(buffer->shared == shared);
    assert_int_equal((uintptr_t)buffer->floats % 64, 0);
    for (size_t i = 0; i < count; i++) {
        assert_true(buffer->floats[i] == 0.0F);
        buffer->floats[i] = 1.0F;
    }
    buffer_destroy(buffer);
    assert_null(buffer->floats);
    buffer_destroy(buffer);
}

static void test_buffers_of_a_group_are_shared(void **state)
{
    dist_group *group = single_rank_world();
    struct buffer buffer = {.floats = NULL};

    (void)state;
    assert_int_equal(buffer_create(NULL, 1001, &buffer), 0);
    check(&buffer, 1001, false);
    assert_int_equal(buffer_create(group, 1001, &buffer), 0);
    check(&buffer, 1001, true);
    assert_int_equal(buffer_create(group, 1001, &buffer), 0);
    assert_int_equal(dist_destroy_process_group(group), DIST_OK);
    check(&buffer, 1001, true);
}

/* Without descriptors, no shared memory can be allocated. */
static void test_buffers_fall_back_to_private_memory(void **state)
{
    dist_group *group = single_rank_world();
    struct buffer buffer = {.floats = NULL};
    struct rlimit limit, none;

    (void)state;
    getrlimit(RLIMIT_NOFILE, &limit);
    none = limit;
    none.rlim_cur = 0;
    setrlimit(RLIMIT_NOFILE, &none);
    assert_int_equal(buffer_create(group, 1001, &buffer), 0);
    setrlimit(RLIMIT_NOFILE, &limit);
    check(&buffer, 1001, false);
    assert_int_equal(dist_destroy_process_group(group), DIST_OK);
}

static void test_a_models_buffers_are_shared(void **state)
{
    dist_group *group = single_rank_world();
    struct model *model = NULL;

    (void)state;
    assert_int_equal(model_create("mlp", dataset_mnist.shape, 1, group, &model), 0);
    assert_true(model->weights_buffer.shared && model->gradients_buffer.shared);
    assert_ptr_equal(model->weights, model->weights_buffer.floats);
    assert_ptr_equal(model->layers[0].dweight, model->gradients);
    model_destroy(model);
    assert_int_equal(dist_destroy_process_group(group), DIST_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_buffers_of_a_group_are_shared),
        cmocka_unit_test(test_buffers_fall_back_to_private_memory),
        cmocka_unit_test(test_a_models_buffers_are_shared),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
