/* SPDX-License-Identifier: BSD-3-Clause */
/* Unit tests of the buffers that go to other ranks. */
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

static void test_kinds(void **state)
{
    dist_group *group = alone();
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

/* Without descriptors there is no memory to share. */
static void test_falls_back(void **state)
{
    dist_group *group = alone();
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

static void test_model_is_shared(void **state)
{
    dist_group *group = alone();
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
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_falls_back),
        cmocka_unit_test(test_model_is_shared),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
