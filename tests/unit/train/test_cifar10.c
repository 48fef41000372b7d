/* SPDX-License-Identifier: BSD-3-Clause */
/* CIFAR-10: files are read, and damaged files are rejected with file and byte; drawn pictures and
 * crops. */
#include "unit.h"

#include <math.h>
#include <sys/stat.h>

#include "train/dataset.h"

enum { PIXELS = PICTURES_SIDE * PICTURES_SIDE, IMAGE = 3 * PIXELS, RECORD = 1 + IMAGE, COUNT = 2 };

static uint8_t records[COUNT * RECORD];

/* Fills the records with bytes that identify colour and pixel. */
static void records_make(uint8_t first_label)
{
    for (int r = 0; r < COUNT; r++) {
        records[r * RECORD] = (uint8_t)(first_label + r);
        for (int i = 0; i < IMAGE; i++)
            records[r * RECORD + 1 + i] = (uint8_t)(i / PIXELS * 80 + i % PIXELS % 79 + r);
    }
}

static void write_all(const char *folder)
{
    char path[256];

    for (int i = 1; i <= 5; i++) {
        records_make((uint8_t)i);
        snprintf(path, sizeof(path), "%s/data_batch_%d.bin", folder, i);
        unit_write(path, records, sizeof(records));
    }
    records_make(8);
    snprintf(path, sizeof(path), "%s/test_batch.bin", folder);
    unit_write(path, records, sizeof(records));
}

static void check_whole(const char *folder)
{
    struct dataset dataset;
    uint8_t image[IMAGE];

    assert_int_equal(dataset_read(&dataset_cifar10, folder, true, &dataset), 0);
    assert_int_equal(dataset.count, 5 * COUNT);
    for (int i = 0; i < 5 * COUNT; i++)
        assert_int_equal(dataset_get(&dataset, (size_t)i, image), 1 + i / COUNT + i % COUNT);
    for (int i = 0; i < IMAGE; i++) /* number 9 is the second of its file */
        assert_int_equal(image[i], i % 3 * 80 + i / 3 % 79 + 1);
    dataset_destroy(&dataset);
    assert_int_equal(dataset_read(&dataset_cifar10, folder, false, &dataset), 0);
    assert_int_equal(dataset.count, COUNT);
    dataset_destroy(&dataset);
}

static void test_complete_files_are_read(void **state)
{
    (void)state;
    write_all(".");
    check_whole(".");
    assert_int_equal(mkdir("up", 0777), 0);
    assert_int_equal(mkdir("up/cifar-10-batches-bin", 0777), 0);
    write_all("up/cifar-10-batches-bin");
    check_whole("up");
}

static void check_rejected(bool train, const char *file, const char *text)
{
    struct dataset dataset;

    assert_int_equal(dataset_read(&dataset_cifar10, ".", train, &dataset), -1);
    unit_failed_with(file);
    unit_failed_with(text);
}

static void test_damaged_files_are_rejected(void **state)
{
    struct dataset dataset;

    (void)state;
    write_all(".");
    unit_write("data_batch_4.bin", records, RECORD + 1);
    check_rejected(true, "./data_batch_4.bin",
                   "byte 3074: the file ends here, expected 3072 bytes");
    unit_write("data_batch_4.bin", records, 0);
    check_rejected(true, "./data_batch_4.bin", "byte 0: the file ends here, expected 3073 bytes");
    records_make(9);
    unit_write("data_batch_4.bin", records, sizeof(records));
    check_rejected(true, "./data_batch_4.bin", "byte 3073: label 10, expected 0 to 9");
    assert_int_equal(remove("data_batch_4.bin"), 0);
    check_rejected(true, "./data_batch_4.bin", "No such file");
    unit_write("test_batch.bin", records, RECORD - 1);
    check_rejected(false, "./test_batch.bin", "byte 3072: the file ends here, expected 1 bytes");
    assert_int_equal(remove("test_batch.bin"), 0);
    check_rejected(false, "--data .", "no test_batch.bin");
    assert_int_equal(dataset_read(&dataset_cifar10, "nowhere", true, &dataset), -1);
    unit_failed_with("nowhere");
}

/* The same arguments give the same picture; all classes occur, and pictures differ. */
static void test_drawn_pictures_are_reproducible(void **state)
{
    uint8_t first[IMAGE], again[IMAGE];
    int seen[10] = {0};

    (void)state;
    for (size_t i = 0; i < 500; i++) {
        const uint8_t label = dataset_cifar10.draw(3, true, i, first);

        assert_in_range(label, 0, 9);
        seen[label]++;
        assert_int_equal(dataset_cifar10.draw(3, true, i, again), label);
        assert_memory_equal(first, again, IMAGE);
    }
    for (int i = 0; i < 10; i++)
        assert_in_range(seen[i], 20, 90);
    dataset_cifar10.draw(3, false, 499, again);
    assert_memory_not_equal(first, again, IMAGE);
    dataset_cifar10.draw(4, true, 499, again);
    assert_memory_not_equal(first, again, IMAGE);
}

/* True if the image is `from`, moved by `right` and `down` and mirrored if `mirror`, on black. */
static bool is_moved(const uint8_t *image, const uint8_t *from, int right, int down, bool mirror)
{
    for (int i = 0; i < IMAGE; i++) {
        const int x = i / 3 % PICTURES_SIDE, y = i / 3 / PICTURES_SIDE + down;
        const int at = (mirror ? PICTURES_SIDE - 1 - x : x) + right;
        const bool inside = at >= 0 && at < PICTURES_SIDE && y >= 0 && y < PICTURES_SIDE;

        if (image[i] != (inside ? from[(y * PICTURES_SIDE + at) * 3 + i % 3] : 0))
            return false;
    }
    return true;
}

static void test_crops_are_moved_and_mirrored(void **state)
{
    uint8_t from[IMAGE], image[IMAGE];
    int moves = 0, mirrored = 0;

    (void)state;
    dataset_cifar10.draw(1, true, 1, from);
    for (uint64_t key = 1; key <= 100; key++) {
        int found = 0;

        memcpy(image, from, IMAGE);
        dataset_cifar10.augment(key * 977, image);
        for (int i = 0; i < 2 * 81; i++) {
            if (!is_moved(image, from, i / 2 % 9 - 4, i / 18 - 4, i % 2))
                continue;
            found++;
            mirrored += i % 2;
            moves |= 1 << (i / 18);
        }
        assert_int_equal(found, 1);
    }
    assert_int_equal(moves, 0x1ff);
    assert_in_range(mirrored, 30, 70);
}

/* Each channel is normalized by its own mean and deviation. */
static void test_channels_are_normalized(void **state)
{
    struct dataset dataset;
    struct batch batch;
    uint8_t image[IMAGE];

    (void)state;
    dataset_draw(&dataset_cifar10, 100, true, 1, &dataset);
    assert_int_equal(batch_create(&dataset_cifar10, 2, &batch), 0);
    batch_add(&batch, &dataset, 7, 0, 0);
    batch_add(&batch, &dataset, 8, 1, 0);
    assert_int_equal(batch.labels[1], dataset_get(&dataset, 8, image));
    for (int i = 0; i < IMAGE; i++) {
        const double mean = dataset_cifar10.mean[i % 3];
        const double deviation = dataset_cifar10.deviation[i % 3];

        assert_float_equal(batch.images[IMAGE + i], (image[i] / 255.0 - mean) / deviation, 1e-5);
    }
    batch_destroy(&batch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_complete_files_are_read),
        cmocka_unit_test(test_damaged_files_are_rejected),
        cmocka_unit_test(test_drawn_pictures_are_reproducible),
        cmocka_unit_test(test_crops_are_moved_and_mirrored),
        cmocka_unit_test(test_channels_are_normalized),
    };

    return cmocka_run_group_tests(tests, unit_enter_folder, unit_leave_folder);
}
