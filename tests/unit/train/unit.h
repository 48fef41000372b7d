/* SPDX-License-Identifier: BSD-3-Clause */
/* Helpers for the tests of train_mnist: cmocka, files in a directory of the test, errors. */
#ifndef TRAIN_TESTS_UNIT_H
#define TRAIN_TESTS_UNIT_H

/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "train/failure.h"

/* Fails the test unless the last error contains this text. */
static inline void unit_failed_with(const char *part)
{
    if (!strstr(failure_text(), part))
        fail_msg("'%s' is not in '%s'", part, failure_text());
}

/* Group setup for cmocka: changes to a new directory. The teardown removes it. */
static inline int unit_enter_folder(void **state)
{
    static char folder[] = "/tmp/train-test-XXXXXX";

    *state = NULL;
    return mkdtemp(folder) && chdir(folder) == 0 ? 0 : -1;
}

static inline int unit_leave_folder(void **state)
{
    char here[256], command[300];

    (void)state;
    if (!getcwd(here, sizeof(here)) || chdir("/") < 0)
        return -1;
    snprintf(command, sizeof(command), "rm -rf '%s'", here);
    return system(command);
}

/* Returns the number of files that match a pattern. */
static inline size_t unit_count(const char *pattern)
{
    glob_t found = {0};
    const size_t count = glob(pattern, 0, NULL, &found) == 0 ? found.gl_pathc : 0;

    globfree(&found);
    return count;
}

static inline void unit_write(const char *path, const void *bytes, size_t size)
{
    FILE *file = fopen(path, "wb");

    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

/* Returns the file's bytes; the caller frees them. */
static inline uint8_t *unit_read(const char *path, size_t *size_p)
{
    const size_t room = 1 << 24;
    FILE *file = fopen(path, "rb");
    uint8_t *bytes = malloc(room);

    assert_non_null(file);
    assert_non_null(bytes);
    *size_p = fread(bytes, 1, room, file);
    assert_true(*size_p < room);
    fclose(file);
    return bytes;
}

#endif
