/* SPDX-License-Identifier: BSD-3-Clause */
/* Checkpoints: round trip, PyTorch's layout, and no damaged file accepted. */
#include "unit.h"

#include "config.h"

#include <sys/stat.h>

#include "train/files/checkpoint.h"
#include "train/files/file.h"
#include "train/files/tensors.h"

static struct model *make_model(const char *arch)
{
    struct model *model;

    assert_int_equal(model_create(arch, 1, NULL, &model), 0);
    model_init(model, 3);
    return model;
}

static void check_round_trip(const char *arch)
{
    struct model *saved = make_model(arch), *loaded;
    int64_t epoch = -1;

    assert_int_equal(model_create(arch, 1, NULL, &loaded), 0);
    assert_int_equal(checkpoint_save("model", saved, 7), 0);
    assert_int_equal(checkpoint_load("model", loaded, &epoch), 0);
    assert_int_equal(epoch, 7);
    assert_memory_equal(saved->weights, loaded->weights, saved->parameters * sizeof(float));
    assert_int_equal(access("model.tmp", F_OK), -1);
    model_destroy(saved);
    model_destroy(loaded);
}

static void test_round_trip(void **state)
{
    (void)state;
    check_round_trip("cnn");
    check_round_trip("mlp");
}

/* One float of a saved file, by tensor and index. */
static float saved_float(const char *name, size_t index)
{
    struct tensors tensors;
    uint64_t length;
    uint8_t *bytes;
    size_t size;
    float value;

    assert_int_equal(file_read("model", &bytes, &size), 0);
    memcpy(&length, bytes, 8);
    assert_int_equal(length % 8, 0);
    assert_int_equal(tensors_read("model", (char *)bytes + 8, length, size - 8 - length, &tensors),
                     0);
    assert_non_null(tensors_find(&tensors, name));
    memcpy(&value, bytes + 8 + length + tensors_find(&tensors, name)->begin + 4 * index, 4);
    free(bytes);
    return value;
}

/* Convolutions are out x in x height x width; dense layers see channel, row, column. */
static void test_layout(void **state)
{
    struct model *model = make_model("cnn");
    const struct layer *conv2 = &model->layers[1], *fc1 = &model->layers[4];
    const int o = 5, i = 7, y = 2, x = 1;

    (void)state;
    assert_int_equal(checkpoint_save("model", model, 1), 0);
    assert_true(saved_float("conv2.weight", ((o * 32 + i) * 3 + y) * 3 + x) ==
                conv2->weight[((y * 3 + x) * 32 + i) * 64 + o]);
    assert_true(saved_float("fc1.weight", o * 9216 + (i * 12 + y) * 12 + x) ==
                fc1->weight[((y * 12 + x) * 64 + i) * 128 + o]);
    assert_true(saved_float("fc1.bias", o) == fc1->bias[o]);
    model_destroy(model);
}

/* Loads bytes, which must be refused with this text and change nothing. */
static void check_refused(const uint8_t *bytes, size_t size, const char *text)
{
    struct model *model = make_model("mlp"), *before = make_model("mlp");
    int64_t epoch = -1;

    unit_write("bad", bytes, size);
    assert_int_equal(checkpoint_load("bad", model, &epoch), -1);
    unit_failed_with(text);
    assert_int_equal(epoch, -1);
    assert_memory_equal(model->weights, before->weights, model->parameters * sizeof(float));
    model_destroy(model);
    model_destroy(before);
}

static uint8_t *save_mlp(size_t *size_p)
{
    struct model *model = make_model("mlp");
    uint8_t *bytes;

    assert_int_equal(checkpoint_save("model", model, 1), 0);
    assert_int_equal(file_read("model", &bytes, size_p), 0);
    model_destroy(model);
    return bytes;
}

static void test_truncations(void **state)
{
    size_t size;
    uint8_t *bytes = save_mlp(&size);
    uint64_t length;

    (void)state;
    memcpy(&length, bytes, 8);
    for (size_t cut = 0; cut < 8 + length; cut++)
        check_refused(bytes, cut, "bad: byte ");
    for (size_t cut = 8 + length; cut < size; cut += 10007)
        check_refused(bytes, cut, "expected ");
    check_refused(bytes, size - 1, "expected ");
    bytes = realloc(bytes, size + 1);
    assert_non_null(bytes);
    bytes[size] = 0;
    check_refused(bytes, size + 1, "expected ");
    free(bytes);
}

/* Replaces text in the header by text of the same length. */
static void check_edited(const char *from, const char *to, const char *refusal)
{
    size_t size;
    uint8_t *bytes = save_mlp(&size);
    uint8_t *at = memmem(bytes, size, from, strlen(from));

    assert_non_null(at);
    assert_int_equal(strlen(from), strlen(to));
    memcpy(at, to, strlen(to));
    check_refused(bytes, size, refusal);
    free(bytes);
}

static void test_corrupt_headers(void **state)
{
    (void)state;
    check_edited("F32", "F16", "dtype F32");
    check_edited("fc1.bias", "fc9.bias", "there is no tensor fc1.bias");
    check_edited("fc1.bias", "fc2.bias", "duplicate object key near '\"fc2.bias\"'");
    check_edited("[256,784]", "[784,256]", "another shape");
    check_edited("[256,784]", "[256,785]", "which its shape calls for");
    check_edited("[256,784]", "[256.784]", "fc1.weight in the header: expected a shape");
    check_edited("[0,802816]", "[4,802820]", "without gap or overlap");
    check_edited("[0,802816]", "[0,802812]", "which its shape calls for");
    check_edited("{\"dtype\"", "{\"dtypo\"",
                 "fc1.weight in the header: Object item not found: dtype");
    check_edited("\"epoch\":\"1\"", "\"epoch\":\"x\"", "an epoch from 0 to 1000000");
    check_edited("{\"__", "[\"__", "bad: byte 23: no JSON in the header: ']' expected near ':'");
    check_edited("[256,784]", "\"256,784\"", "expected a shape");
    check_edited("[0,802816]", "[-1,80281]", "expected data_offsets of 0 and more");
}

static void test_absurd_length(void **state)
{
    size_t size;
    uint8_t *bytes = save_mlp(&size);

    (void)state;
    memset(bytes, 0xFF, 8);
    check_refused(bytes, size, "bad: byte 0: a header of 18446744073709551615 bytes");
    free(bytes);
}

static void test_other_arch(void **state)
{
    struct model *cnn = make_model("cnn"), *mlp = make_model("mlp");
    int64_t epoch;

    (void)state;
    assert_int_equal(checkpoint_save("model", cnn, 1), 0);
    assert_int_equal(checkpoint_load("model", mlp, &epoch), -1);
    unit_failed_with("another --arch");
    model_destroy(cnn);
    model_destroy(mlp);
}

/* A save that fails leaves the old file and no half of a new one. */
static void test_failed_save(void **state)
{
    struct model *model = make_model("mlp");

    (void)state;
    assert_int_equal(checkpoint_save("nowhere/model", model, 1), -1);
    unit_failed_with("nowhere/model.tmp: cannot create");
    assert_int_equal(mkdir("folder", 0700), 0);
    assert_int_equal(mkdir("folder/x", 0700), 0); /* cannot be renamed over */
    assert_int_equal(checkpoint_save("folder", model, 1), -1);
    unit_failed_with("folder: cannot write");
    assert_int_equal(access("folder.tmp", F_OK), -1);
    assert_int_equal(access("folder/x", F_OK), 0);
    model_destroy(model);
}

static struct checkpoint_rest make_rest(const char *optimizer, float *state, size_t count)
{
    return (struct checkpoint_rest){.epoch = 2,
                                    .samples = 640,
                                    .step = 99,
                                    .optimizer = optimizer,
                                    .state = state,
                                    .count = count};
}

static void test_whole_training(void **state)
{
    struct model *saved = make_model("mlp"), *loaded;
    float first[3] = {1, -2, 0.5F}, second[3] = {0};
    struct checkpoint_rest rest = make_rest("sgd", first, 3);
    int64_t epoch;

    (void)state;
    assert_int_equal(model_create("mlp", 1, NULL, &loaded), 0);
    assert_int_equal(checkpoint_save_all("all", saved, &rest), 0);
    rest = (struct checkpoint_rest){.optimizer = "sgd", .state = second, .count = 3};
    assert_int_equal(checkpoint_load_all("all", loaded, &rest), 0);
    assert_int_equal(rest.epoch, 2);
    assert_int_equal(rest.samples, 640);
    assert_int_equal(rest.step, 99);
    assert_memory_equal(first, second, sizeof(first));
    assert_memory_equal(saved->weights, loaded->weights, saved->parameters * sizeof(float));
    /* Its parameters alone are fine too. */
    assert_int_equal(checkpoint_load("all", loaded, &epoch), 0);
    assert_int_equal(epoch, 2);
    model_destroy(saved);
    model_destroy(loaded);
}

static void test_not_that_training(void **state)
{
    struct model *model = make_model("mlp");
    float values[4] = {0};
    struct checkpoint_rest rest = make_rest("sgd", values, 3);

    (void)state;
    assert_int_equal(checkpoint_save_all("all", model, &rest), 0);
    rest.optimizer = "adadelta";
    assert_int_equal(checkpoint_load_all("all", model, &rest), -1);
    unit_failed_with("no tensor optimizer.adadelta");
    rest = make_rest("sgd", values, 4);
    assert_int_equal(checkpoint_load_all("all", model, &rest), -1);
    unit_failed_with("another size");
    assert_int_equal(checkpoint_save("model", model, 1), 0);
    assert_int_equal(checkpoint_load_all("model", model, &rest), -1);
    unit_failed_with("no tensor optimizer.sgd");
    model_destroy(model);
}

int main(void)
{
#ifndef HAVE_JANSSON
    puts("this program was built without jansson, which reads checkpoints");
    return 77;
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),        cmocka_unit_test(test_layout),
        cmocka_unit_test(test_truncations),       cmocka_unit_test(test_corrupt_headers),
        cmocka_unit_test(test_absurd_length),     cmocka_unit_test(test_other_arch),
        cmocka_unit_test(test_failed_save),       cmocka_unit_test(test_whole_training),
        cmocka_unit_test(test_not_that_training),
    };

    return cmocka_run_group_tests(tests, unit_enter_folder, unit_leave_folder);
}
