/* SPDX-License-Identifier: BSD-3-Clause */
/* Checkpoints: saving and loading, PyTorch's layout, and rejection of damaged files. */
#include "unit.h"

#include "config.h"

#include <sys/stat.h>

#include "train/checkpoint.h"
#include "train/dataset.h"
#include "train/file.h"

static struct model *make_model(const char *arch)
{
    struct model *model;

    assert_int_equal(model_create(arch, dataset_mnist.shape, 1, NULL, &model), 0);
    model_init(model, 3);
    return model;
}

static void check_round_trip(const char *arch)
{
    struct model *saved = make_model(arch), *loaded;
    struct training_state rest = {.epoch = -1};

    assert_int_equal(model_create(arch, dataset_mnist.shape, 1, NULL, &loaded), 0);
    assert_int_equal(checkpoint_save("model", saved, 7), 0);
    assert_int_equal(checkpoint_load("model", loaded, &rest), 0);
    assert_int_equal(rest.epoch, 7);
    assert_memory_equal(saved->weights, loaded->weights, saved->parameters * sizeof(float));
    assert_int_equal(unit_count("model.tmp-*"), 0);
    model_destroy(saved);
    model_destroy(loaded);
}

static void test_saved_parameters_are_loaded(void **state)
{
    (void)state;
    check_round_trip("cnn");
    check_round_trip("mlp");
}

/* Returns one float of a saved file, by tensor and index. */
static float saved_float(const char *name, size_t index)
{
    struct image image;
    float value;

    assert_int_equal(image_read("model", &image), 0);
    assert_non_null(image_data(&image, name));
    value = image_data(&image, name)[index];
    image_free(&image);
    return value;
}

/* Convolutions are stored as out x in x height x width; the inputs of dense layers are in the order
 * channel, row, column. */
static void test_the_layout_is_PyTorchs(void **state)
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

/* Loads these bytes, which must fail with this text and change nothing. */
static void check_rejected(const uint8_t *bytes, size_t size, const char *text)
{
    struct model *model = make_model("mlp"), *before = make_model("mlp");
    struct training_state rest = {.epoch = -1};

    unit_write("bad", bytes, size);
    assert_true(checkpoint_load("bad", model, &rest) < 0);
    unit_failed_with(text);
    assert_int_equal(rest.epoch, -1);
    assert_memory_equal(model->weights, before->weights, model->parameters * sizeof(float));
    model_destroy(model);
    model_destroy(before);
}

static uint8_t *save_mlp(size_t *size_p)
{
    struct model *model = make_model("mlp");
    uint8_t *bytes;

    assert_int_equal(checkpoint_save("model", model, 1), 0);
    bytes = unit_read("model", size_p);
    model_destroy(model);
    return bytes;
}

static void test_truncated_files_are_rejected(void **state)
{
    size_t size;
    uint8_t *bytes = save_mlp(&size);
    uint64_t length;

    (void)state;
    memcpy(&length, bytes, 8);
    for (size_t cut = 0; cut < 8 + length; cut++)
        check_rejected(bytes, cut, "bad: byte ");
    for (size_t cut = 8 + length; cut < size; cut += 10007)
        check_rejected(bytes, cut, "expected ");
    check_rejected(bytes, size - 1, "expected ");
    bytes = realloc(bytes, size + 1);
    assert_non_null(bytes);
    bytes[size] = 0;
    check_rejected(bytes, size + 1, "expected ");
    free(bytes);
}

/* Removes the checksums, as in a file of a program that writes none. */
static void remove_checksums(uint8_t *bytes, size_t size)
{
    uint8_t *at;

    while ((at = memmem(bytes, size, "\"crc32", 6)))
        memcpy(at, "\"other", 6);
}

/* Replaces text in the header by text of the same length, and expects that loading fails. */
static void check_edited(const char *from, const char *to, const char *refusal)
{
    size_t size;
    uint8_t *bytes = save_mlp(&size);
    uint8_t *at;

    remove_checksums(bytes, size);
    at = memmem(bytes, size, from, strlen(from));

    assert_non_null(at);
    assert_int_equal(strlen(from), strlen(to));
    memcpy(at, to, strlen(to));
    check_rejected(bytes, size, refusal);
    free(bytes);
}

static void test_corrupt_headers_are_rejected(void **state)
{
    (void)state;
    check_edited("F32", "F16", "dtype F32");
    check_edited("\"fc1.bias", "\"fc9.bias", "no tensor fc1.bias");
    check_edited("\"fc1.bias", "\"fc2.bias", "duplicate object key near '\"fc2.bias\"'");
    check_edited("[256,784]", "[784,256]", "the shape of tensor fc1.weight differs");
    check_edited("[256,784]", "[256,785]", "bytes according to its shape");
    check_edited("[256,784]", "[256.784]", "fc1.weight in the header: expected a shape");
    check_edited("[0,802816]", "[4,802820]", "without gap or overlap");
    check_edited("[0,802816]", "[0,802812]", "bytes according to its shape");
    check_edited("{\"dtype\"", "{\"dtypo\"",
                 "fc1.weight in the header: Object item not found: dtype");
    check_edited("\"epoch\":\"1\"", "\"epoch\":\"x\"", "expected a number from 0 to 1000000");
    check_edited("{\"__", "[\"__",
                 "bad: byte 23: invalid JSON in the header: ']' expected near ':'");
    check_edited("[256,784]", "\"256,784\"", "expected a shape");
    check_edited("[0,802816]", "[-1,80281]", "expected data_offsets of 0 and more");
}

static void test_an_impossible_header_length_is_rejected(void **state)
{
    size_t size;
    uint8_t *bytes = save_mlp(&size);

    (void)state;
    memset(bytes, 0xFF, 8);
    check_rejected(bytes, size, "bad: byte 0: a header of 18446744073709551615 bytes");
    free(bytes);
}

static void test_another_architecture_is_rejected(void **state)
{
    struct model *cnn = make_model("cnn"), *mlp = make_model("mlp");
    struct training_state rest = {.epoch = 0};

    (void)state;
    assert_int_equal(checkpoint_save("model", cnn, 1), 0);
    assert_int_equal(checkpoint_load("model", mlp, &rest), IMAGE_OTHER);
    unit_failed_with("use the --arch");
    model_destroy(cnn);
    model_destroy(mlp);
}

/* A failed save leaves the old file and no part of a new one. */
static void test_a_failed_save_keeps_the_old_file(void **state)
{
    struct model *model = make_model("mlp");

    (void)state;
    assert_int_equal(checkpoint_save("nowhere/model", model, 1), -1);
    unit_failed_with("nowhere/model: cannot create");
    assert_int_equal(mkdir("folder", 0700), 0);
    assert_int_equal(mkdir("folder/x", 0700), 0); /* cannot be replaced by a rename */
    assert_int_equal(checkpoint_save("folder", model, 1), -1);
    unit_failed_with("folder: cannot write");
    assert_int_equal(unit_count("folder.tmp-*"), 0);
    assert_int_equal(access("folder/x", F_OK), 0);
    model_destroy(model);
}

static struct training_state make_rest(const char *optimizer, float *state, size_t count)
{
    return (struct training_state){.epoch = 2,
                                   .samples = 640,
                                   .step = 99,
                                   .seed = 5,
                                   .data = 0xFFFFFFFF,
                                   .tests = 2,
                                   .idle = 1,
                                   .best = 0.1,
                                   .optimizer = optimizer,
                                   .state = state,
                                   .count = count};
}

static void save_all(const struct model *model, const struct training_state *rest)
{
    struct image image;

    assert_int_equal(checkpoint_image("all", model, rest, &image), 0);
    assert_int_equal(image_write("all", &image), 0);
    image_free(&image);
}

static void test_a_whole_training_is_saved_and_loaded(void **state)
{
    struct model *saved = make_model("mlp"), *loaded;
    float first[3] = {1, -2, 0.5F}, second[3] = {0};
    struct training_state rest = make_rest("sgd", first, 3);

    (void)state;
    assert_int_equal(model_create("mlp", dataset_mnist.shape, 1, NULL, &loaded), 0);
    save_all(saved, &rest);
    rest = (struct training_state){
        .optimizer = "sgd", .state = second, .count = 3, .seed = 5, .data = 0xFFFFFFFF};
    assert_int_equal(checkpoint_load("all", loaded, &rest), 1);
    assert_int_equal(rest.epoch, 2);
    assert_int_equal(rest.samples, 640);
    assert_int_equal(rest.step, 99);
    assert_int_equal(rest.tests, 2);
    assert_int_equal(rest.idle, 1);
    assert_true(rest.best == 0.1);
    assert_memory_equal(first, second, sizeof(first));
    assert_memory_equal(saved->weights, loaded->weights, saved->parameters * sizeof(float));
    /* Loading only its parameters works too. */
    rest = (struct training_state){.state = NULL};
    assert_int_equal(checkpoint_load("all", loaded, &rest), 0);
    assert_int_equal(rest.epoch, 2);
    model_destroy(saved);
    model_destroy(loaded);
}

static void check_other(struct model *model, struct training_state rest, const char *text)
{
    assert_int_equal(checkpoint_load("all", model, &rest), IMAGE_OTHER);
    unit_failed_with(text);
}

static void test_another_training_is_rejected(void **state)
{
    struct model *model = make_model("mlp");
    float values[4] = {0};
    struct training_state rest = make_rest("sgd", values, 3);

    (void)state;
    save_all(model, &rest);
    check_other(model, make_rest("adadelta", values, 3), "no tensor optimizer.adadelta");
    check_other(model, make_rest("sgd", values, 4), "the size of tensor");
    rest.seed = 6;
    check_other(model, rest, "written with --seed 5, not 6");
    rest.seed = 5;
    rest.data = 1;
    check_other(model, rest, "use the same --data");
    assert_int_equal(checkpoint_save("model", model, 1), 0);
    assert_int_equal(checkpoint_load("model", model, &rest), 0);
    model_destroy(model);
}

/* Writes a small file, so that every byte can be tested. */
static void write_small(struct image *image)
{
    const uint64_t shape[] = {2, 3};

    *image = (struct image){.data = NULL};
    image_add(image, "first", 2, shape);
    image_add(image, "second", 1, shape);
    image->tensors.notes[image->tensors.note_count++] = (struct tensors_note){"step", "12"};
    assert_int_equal(image_allocate("small", image), 0);
    for (int i = 0; i < 8; i++)
        image->data[i] = (float)i / 3;
    assert_int_equal(image_write("small", image), 0);
    image_free(image);
}

static void check_damaged(const uint8_t *bytes, size_t size, size_t at)
{
    struct image image;

    unit_write("bad", bytes, size);
    if (image_read("bad", &image) != IMAGE_DAMAGED)
        fail_msg("byte %zu: nothing was noticed", at);
    unit_failed_with("bad: ");
    assert_null(image.data);
}

/* Every bit of a file is changed, and the file is cut at every length. */
static void test_every_changed_bit_is_detected(void **state)
{
    const int step = getenv("CHECK_LONG") ? 1 : 3;
    struct image image;
    uint8_t *bytes;
    size_t size;

    (void)state;
    write_small(&image);
    bytes = unit_read("small", &size);
    for (size_t at = 0; at < size; at++) {
        for (int bit = (int)(at % (size_t)step); bit < 8; bit += step) {
            bytes[at] ^= (uint8_t)(1 << bit);
            check_damaged(bytes, size, at);
            bytes[at] ^= (uint8_t)(1 << bit);
        }
        check_damaged(bytes, at, at);
    }
    bytes[size - 1] ^= 1;
    check_damaged(bytes, size, size - 1);
    unit_failed_with("bad: tensor second is damaged");
    free(bytes);
}

static void test_files_without_checksums_are_accepted(void **state)
{
    struct image image;
    uint8_t *bytes;
    size_t size;
    int note = 0;

    (void)state;
    write_small(&image);
    bytes = unit_read("small", &size);
    remove_checksums(bytes, size);
    bytes[size - 1] ^= 1;
    unit_write("foreign", bytes, size);
    assert_int_equal(image_read("foreign", &image), 0);
    while (note < image.tensors.note_count && strcmp(image.tensors.notes[note].key, "step") != 0)
        note++;
    assert_true(note < image.tensors.note_count);
    assert_string_equal(image.tensors.notes[note].text, "12");
    image_free(&image);
    free(bytes);
}

/* The usual CRC-32. */
static void test_checksums_are_CRC_32(void **state)
{
    char sum[TENSORS_SUM + 1];

    (void)state;
    tensors_sum("123456789", 9, sum);
    assert_string_equal(sum, "cbf43926");
}

int main(void)
{
#ifndef HAVE_JANSSON
    puts("this program was built without jansson, which reads checkpoints");
    return 77;
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_saved_parameters_are_loaded),
        cmocka_unit_test(test_the_layout_is_PyTorchs),
        cmocka_unit_test(test_truncated_files_are_rejected),
        cmocka_unit_test(test_corrupt_headers_are_rejected),
        cmocka_unit_test(test_an_impossible_header_length_is_rejected),
        cmocka_unit_test(test_another_architecture_is_rejected),
        cmocka_unit_test(test_a_failed_save_keeps_the_old_file),
        cmocka_unit_test(test_a_whole_training_is_saved_and_loaded),
        cmocka_unit_test(test_another_training_is_rejected),
        cmocka_unit_test(test_every_changed_bit_is_detected),
        cmocka_unit_test(test_files_without_checksums_are_accepted),
        cmocka_unit_test(test_checksums_are_CRC_32),
    };

    return cmocka_run_group_tests(tests, unit_enter_folder, unit_leave_folder);
}
