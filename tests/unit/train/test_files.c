/* SPDX-License-Identifier: BSD-3-Clause */
/* Files that are written in the background, and directories of them. */
#include "unit.h"

#include "config.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "tools/common/output.h"
#include "train/checkpoint.h"
#include "train/file.h"

/* Makes an image of `count` floats with this value. */
static struct image make_image(uint64_t count, float value)
{
    struct image image = {.data = NULL};

    image_add(&image, "values", 1, &count);
    assert_int_equal(image_allocate("an image", &image), 0);
    for (uint64_t i = 0; i < count; i++)
        image.data[i] = value;
    return image;
}

static float first_value(const char *path)
{
    struct image image;
    float value;

    assert_int_equal(image_read(path, &image), 0);
    value = image.data[0];
    image_free(&image);
    return value;
}

static void write_step(struct writer *writer, const char *folder, int64_t step, int keep)
{
    struct image image = make_image(10, (float)step);
    char path[FOLDER_PATH];

    assert_int_equal(folder_name(folder, step, path), 0);
    assert_int_equal(writer_start(writer, path, &image, keep), 0);
    assert_null(image.data);
}

static void test_a_directory_keeps_the_newest_files(void **state)
{
    struct writer *writer;
    char *draft;
    int alive;

    (void)state;
    assert_true(folder_is("kept/"));
    assert_false(folder_is("kept"));
    assert_int_equal(folder_make("kept/"), 0);
    assert_int_equal(folder_make("kept/"), 0);
    assert_true(folder_is("kept"));
    assert_int_equal(folder_newest("kept", INT64_MAX), -1);
    assert_int_equal(folder_newest("nothing", INT64_MAX), -2);
    unit_failed_with("nothing: No such file");
    assert_int_equal(writer_create(&writer), 0);
    unit_write("kept/step-7.safetensors.tmp-0a1b2c3d", "", 0);
    alive = draft_open("kept/step-8.safetensors", &draft);
    assert_true(alive >= 0);
    unit_write("kept/other", "", 0);
    unit_write("kept/step-.safetensors", "", 0);
    write_step(writer, "kept/", 99, 2);
    write_step(writer, "kept", 5, 2);
    write_step(writer, "kept", 120, 2);
    write_step(writer, "kept", 1000000, 2);
    assert_int_equal(writer_destroy(writer), 0);
    assert_int_equal(folder_newest("kept", INT64_MAX), 1000000);
    assert_int_equal(folder_newest("kept", 1000000), 120);
    assert_int_equal(folder_newest("kept", 120), -1);
    assert_int_equal(access("kept/step-7.safetensors.tmp-0a1b2c3d", F_OK), -1);
    assert_int_equal(access(draft, F_OK), 0);
    close(alive);
    free(draft);
    assert_int_equal(access("kept/other", F_OK), 0);
    assert_true(first_value("kept/step-000000000120.safetensors") == 120.0F);
}

/* Two processes write to one path: each has its own draft, and the draft of an ended process is
 * removed. */
static void test_two_writers_have_their_own_drafts(void **state)
{
    char *first, *second;
    const int one = draft_open("shared", &first), two = draft_open("shared", &second);

    (void)state;
    assert_true(one >= 0 && two >= 0);
    assert_string_not_equal(first, second);
    assert_int_equal(file_can_replace("shared"), 0);
    assert_int_equal(file_replace("shared", "mine", 4, "", 0), 0);
    assert_int_equal(unit_count("shared.tmp-*"), 2);
    assert_int_equal(draft_finish(first, one), 0);
    close(one);
    close(two);
    assert_int_equal(file_can_replace("shared"), 0);
    assert_int_equal(unit_count("shared.tmp-*"), 0);
    assert_int_equal(access("shared", F_OK), 0);
    free(first);
    free(second);
}

/* On a full disk the old file is kept, and the next call returns the error, once. */
static void test_a_full_disk_keeps_the_old_file(void **state)
{
    struct image image = make_image(10, 1);
    struct rlimit limit, low;
    struct writer *writer;

    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(writer_create(&writer), 0);
    assert_int_equal(writer_start(writer, "full", &image, 0), 0);
    assert_int_equal(writer_wait(writer), 0);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    low = limit;
    low.rlim_cur = 4096;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    image = make_image(10000, 2);
    assert_int_equal(writer_start(writer, "full", &image, 0), 0);
    image = make_image(10, 3);
    assert_int_equal(writer_start(writer, "full", &image, 0), -1);
    unit_failed_with("full: cannot write: File too large");
    assert_null(image.data);
    assert_int_equal(writer_wait(writer), 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_true(first_value("full") == 1.0F);
    assert_int_equal(unit_count("full.tmp-*"), 0);
    assert_int_equal(writer_destroy(writer), 0);
}

/* Writes a file in the background and gets SIGTERM while it is written or afterwards. */
static void write_and_end(int round)
{
    struct image image = make_image(1 << 20, (float)round);
    struct writer *writer;

    if (writer_create(&writer) < 0 || writer_start(writer, "ended", &image, 0) < 0)
        _exit(1);
    usleep((useconds_t)round * 300);
    raise(SIGTERM);
    pause();
    _exit(2);
}

/* SIGTERM ends the process, but not in the middle of a file. */
static void test_SIGTERM_does_not_interrupt_a_write(void **state)
{
    (void)state;
    for (int round = 0; round < 10; round++) {
        const pid_t child = fork();
        int status;

        if (child == 0)
            write_and_end(round);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
        assert_true(first_value("ended") == (float)round);
        assert_int_equal(unit_count("ended.tmp-*"), 0);
    }
}

int main(void)
{
#ifndef HAVE_JANSSON
    puts("this program was built without jansson, which reads checkpoints");
    return 77;
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_directory_keeps_the_newest_files),
        cmocka_unit_test(test_two_writers_have_their_own_drafts),
        cmocka_unit_test(test_a_full_disk_keeps_the_old_file),
        cmocka_unit_test(test_SIGTERM_does_not_interrupt_a_write),
    };

    return cmocka_run_group_tests(tests, unit_enter_folder, unit_leave_folder);
}
