/* SPDX-License-Identifier: BSD-3-Clause */
/* IDX files: complete files are read, and damaged files are rejected with file and byte. */
#ifdef HAVE_CONFIG_H
#include <config.h>
#endif

#include "unit.h"

#include "train/dataset.h"

#ifdef HAVE_ZLIB
#include <zlib.h>
#endif

enum { IMAGE = DIGITS_SIDE * DIGITS_SIDE };
enum { HEADER = 16, COUNT = 3, PIXELS = COUNT * IMAGE, SIZE = HEADER + PIXELS };

/* Makes an IDX file of three images with increasing bytes. */
static void images_make(uint8_t bytes[SIZE])
{
    static const uint8_t header[HEADER] = {0, 0, 8, 3, 0, 0, 0, COUNT, 0, 0, 0, 28, 0, 0, 0, 28};

    memcpy(bytes, header, HEADER);
    for (int i = 0; i < PIXELS; i++)
        bytes[HEADER + i] = (uint8_t)(i * 7);
}

static void test_plain_files_are_read(void **state)
{
    uint8_t bytes[SIZE];
    struct idx idx;

    (void)state;
    images_make(bytes);
    unit_write("plain", bytes, SIZE);
    assert_int_equal(idx_read("plain", 3, &idx), 0);
    assert_int_equal(idx.sizes[0], COUNT);
    assert_int_equal(idx.count, PIXELS);
    assert_memory_equal(idx.bytes, bytes + HEADER, PIXELS);
    free(idx.bytes);
}

static void test_truncated_files_are_rejected(void **state)
{
    uint8_t bytes[SIZE];
    struct idx idx;
    char where[32];

    (void)state;
    images_make(bytes);
    for (int size = 0; size < SIZE; size++) {
        unit_write("short", bytes, (size_t)size);
        assert_int_equal(idx_read("short", 3, &idx), -1);
        snprintf(where, sizeof(where), "short: byte %d: ", size);
        unit_failed_with(where);
        unit_failed_with("expected");
    }
}

static void test_trailing_bytes_are_rejected(void **state)
{
    uint8_t bytes[SIZE + 1];
    struct idx idx;

    (void)state;
    images_make(bytes);
    bytes[SIZE] = 1;
    unit_write("long", bytes, SIZE + 1);
    assert_int_equal(idx_read("long", 3, &idx), -1);
    unit_failed_with("long: byte 2368: more data");
}

static void test_corrupt_headers_are_rejected(void **state)
{
    static const struct {
        int at;
        uint8_t value;
        const char *text;
    } cases[] = {
        {0, 1, "bad: byte 0: 0x0100"},
        {1, 9, "bad: byte 0: 0x0009"},
        {2, 0x0D, "bad: byte 2: element type 0x0d"},
        {3, 1, "bad: byte 3: 1 dimensions, expected 3"},
        {3, 255, "bad: byte 3: 255 dimensions, expected 3"},
        {4, 0xFF, "bad: byte 2368: "},
        {7, 0, "bad: byte 4: size 0"},
        {8, 0xFF, "bad: byte 2368: "},
        {15, 27, "bad: byte 2284: more data"},
    };
    uint8_t bytes[SIZE];
    struct idx idx;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        images_make(bytes);
        bytes[cases[i].at] = cases[i].value;
        unit_write("bad", bytes, SIZE);
        assert_int_equal(idx_read("bad", 3, &idx), -1);
        unit_failed_with(cases[i].text);
    }
}

/* Sizes whose product does not fit in 64 bits. */
static void test_overflowing_sizes_are_rejected(void **state)
{
    uint8_t bytes[SIZE];
    struct idx idx;

    (void)state;
    images_make(bytes);
    memset(bytes + 4, 0xFF, 12);
    unit_write("huge", bytes, SIZE);
    assert_int_equal(idx_read("huge", 3, &idx), -1);
    unit_failed_with("huge: byte 12: size 4294967295");
}

#ifdef HAVE_ZLIB
static size_t file_size(const char *path)
{
    FILE *file = fopen(path, "rb");
    long size;

    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    size = ftell(file);
    fclose(file);
    return (size_t)size;
}

static void compressed_write(const char *path, const uint8_t *bytes, size_t size)
{
    gzFile file = gzopen(path, "wb9");

    assert_non_null(file);
    assert_int_equal(gzwrite(file, bytes, (unsigned)size), size);
    assert_int_equal(gzclose(file), Z_OK);
}

static size_t file_load(const char *path, uint8_t *bytes, size_t most)
{
    FILE *file = fopen(path, "rb");
    size_t size;

    assert_non_null(file);
    size = fread(bytes, 1, most, file);
    fclose(file);
    return size;
}

static void test_compressed_files_are_read(void **state)
{
    uint8_t bytes[SIZE];
    struct idx idx;

    (void)state;
    images_make(bytes);
    compressed_write("good.gz", bytes, SIZE);
    assert_true(file_size("good.gz") < SIZE);
    assert_int_equal(idx_read("good.gz", 3, &idx), 0);
    assert_memory_equal(idx.bytes, bytes + HEADER, PIXELS);
    free(idx.bytes);
}

static void test_truncated_compressed_files_are_rejected(void **state)
{
    uint8_t bytes[SIZE], packed[SIZE];
    struct idx idx;
    size_t size;

    (void)state;
    images_make(bytes);
    compressed_write("good.gz", bytes, SIZE);
    size = file_load("good.gz", packed, sizeof(packed));
    for (size_t cut = 0; cut < size; cut++) {
        unit_write("short.gz", packed, cut);
        assert_int_equal(idx_read("short.gz", 3, &idx), -1);
        unit_failed_with("short.gz: byte ");
    }
}

/* A changed bit in the checksum or the data is detected, whatever the resulting bytes. */
static void test_damaged_compressed_files_are_rejected(void **state)
{
    uint8_t bytes[SIZE], packed[SIZE];
    struct idx idx;
    size_t size;

    (void)state;
    images_make(bytes);
    compressed_write("good.gz", bytes, SIZE);
    size = file_load("good.gz", packed, sizeof(packed));
    for (size_t at = 10; at < size; at++) {
        packed[at] ^= 4;
        unit_write("bad.gz", packed, size);
        assert_int_equal(idx_read("bad.gz", 3, &idx), -1);
        unit_failed_with("bad.gz: byte ");
        packed[at] ^= 4;
    }
}

/* Compressed files with impossible sizes are rejected before memory is allocated. */
static void test_impossible_compressed_sizes_are_rejected(void **state)
{
    uint8_t bytes[SIZE];
    struct idx idx;

    (void)state;
    images_make(bytes);
    bytes[4] = 0x7F;
    compressed_write("lie.gz", bytes, SIZE);
    assert_int_equal(idx_read("lie.gz", 3, &idx), -1);
    unit_failed_with("the file ends here or earlier");
}
#endif

static void labels_write(const char *path, int count, uint8_t last)
{
    uint8_t bytes[8 + 16] = {0, 0, 8, 1, 0, 0, 0, (uint8_t)count};

    bytes[8 + count - 1] = last;
    unit_write(path, bytes, 8 + (size_t)count);
}

static void test_a_data_set_is_read(void **state)
{
    uint8_t bytes[SIZE], image[IMAGE];
    struct dataset dataset;

    (void)state;
    images_make(bytes);
    unit_write("train-images.idx3-ubyte", bytes, SIZE);
    labels_write("train-labels-idx1-ubyte", COUNT, 9);
    assert_int_equal(dataset_read(&dataset_mnist, ".", true, &dataset), 0);
    assert_int_equal(dataset.count, COUNT);
    assert_int_equal(dataset_get(&dataset, 2, image), 9);
    assert_memory_equal(image, bytes + HEADER + 2 * IMAGE, IMAGE);
    dataset_destroy(&dataset);
}

static void test_inconsistent_data_sets_are_rejected(void **state)
{
    uint8_t bytes[SIZE];
    struct dataset dataset;

    (void)state;
    images_make(bytes);
    unit_write("train-images.idx3-ubyte", bytes, SIZE);
    labels_write("train-labels-idx1-ubyte", COUNT, 10);
    assert_int_equal(dataset_read(&dataset_mnist, ".", true, &dataset), -1);
    unit_failed_with("train-labels-idx1-ubyte: byte 10: label 10");
    labels_write("train-labels-idx1-ubyte", COUNT + 1, 1);
    assert_int_equal(dataset_read(&dataset_mnist, ".", true, &dataset), -1);
    unit_failed_with("4 labels, expected 3");
    assert_int_equal(dataset_read(&dataset_mnist, ".", false, &dataset), -1);
    unit_failed_with("no file t10k-images-idx3-ubyte");
    assert_int_equal(dataset_read(&dataset_mnist, "nowhere", true, &dataset), -1);
    unit_failed_with("--data nowhere: No such file");
    assert_int_equal(dataset_read(&dataset_mnist, "train-images.idx3-ubyte", true, &dataset), -1);
    unit_failed_with("not a directory");
}

static void test_images_of_another_size_are_rejected(void **state)
{
    uint8_t bytes[16 + 2 * 14 * 56] = {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 14, 0, 0, 0, 56};
    struct dataset dataset;

    (void)state;
    unit_write("train-images.idx3-ubyte", bytes, sizeof(bytes));
    assert_int_equal(dataset_read(&dataset_mnist, ".", true, &dataset), -1);
    unit_failed_with("byte 8: images of 14 x 56, expected 28 x 28");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain_files_are_read),
        cmocka_unit_test(test_truncated_files_are_rejected),
        cmocka_unit_test(test_trailing_bytes_are_rejected),
        cmocka_unit_test(test_corrupt_headers_are_rejected),
        cmocka_unit_test(test_overflowing_sizes_are_rejected),
#ifdef HAVE_ZLIB
        cmocka_unit_test(test_compressed_files_are_read),
        cmocka_unit_test(test_truncated_compressed_files_are_rejected),
        cmocka_unit_test(test_damaged_compressed_files_are_rejected),
        cmocka_unit_test(test_impossible_compressed_sizes_are_rejected),
#endif
        cmocka_unit_test(test_a_data_set_is_read),
        cmocka_unit_test(test_inconsistent_data_sets_are_rejected),
        cmocka_unit_test(test_images_of_another_size_are_rejected),
    };

    return cmocka_run_group_tests(tests, unit_enter_folder, unit_leave_folder);
}
