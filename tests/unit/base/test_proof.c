/* SPDX-License-Identifier: BSD-3-Clause */
/* Secrets in files, the user's cookie, and the data that a proof depends on. */
#include "tests/unit/base/unit.h"

#include "base/auth.h"

#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[] = "/tmp/test_proof.XXXXXX";
static char why[DISTI_SECRET_WHY];

static const char *in_folder(const char *name)
{
    static char path[256];

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

static const char *put_file(const char *name, const char *text, mode_t mode)
{
    const char *path = in_folder(name);
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
    assert_int_equal(chmod(path, mode), 0);
    return path;
}

static void expect_refused(const char *path, const char *word)
{
    struct disti_secret secret;

    assert_false(disti_secret_read(path, &secret, why));
    assert_non_null(strstr(why, word));
    assert_int_equal(secret.length, 0);
}

static void test_bad_secret_files_are_refused(void **state)
{
    struct disti_secret secret;
    char longest[260];

    (void)state;
    assert_true(disti_secret_read(put_file("good", "0123456789abcdef\n", 0600), &secret, why));
    assert_int_equal(secret.length, 16);
    assert_string_equal(secret.path, in_folder("good"));
    expect_refused(put_file("open", "0123456789abcdef\n", 0640), "chmod 600");
    expect_refused(put_file("short", "0123456789abcde\n", 0600), "too short");
    memset(longest, 'x', sizeof(longest));
    longest[257] = 0;
    expect_refused(put_file("long", longest, 0600), "too long");
    expect_refused(in_folder("nowhere"), "cannot be read");
    expect_refused(folder, "is not a file");
}

/* A file of root that is readable by a group of this process, as in Kubernetes. */
static void test_a_file_of_root_may_be_readable_by_a_group(void **state)
{
    const gid_t group = 54321;
    struct disti_secret secret;
    const char *path;

    (void)state;
    if (geteuid() != 0 || setgroups(1, &group) != 0)
        skip();
    path = put_file("group", "0123456789abcdef\n", 0440);
    assert_int_equal(chown(path, 0, group), 0);
    assert_true(disti_secret_read(path, &secret, why));
    assert_int_equal(chmod(path, 0460), 0);
    expect_refused(path, "chmod 600");
    assert_int_equal(chmod(path, 0444), 0);
    expect_refused(path, "chmod 600");
    assert_int_equal(chmod(path, 0440), 0);
    assert_int_equal(chown(path, 0, group + 1), 0);
    expect_refused(path, "chmod 600");
}

/* The FIFO has no writer: reading it must not block. */
static void test_a_FIFO_is_refused(void **state)
{
    const char *path = in_folder("pipe");

    (void)state;
    assert_int_equal(mkfifo(path, 0600), 0);
    expect_refused(path, "too short");
}

static void remove_cookie(void)
{
    unlink(in_folder("libdist/cookie"));
    rmdir(in_folder("libdist"));
}

/* All processes that create the cookie at the same time get the same one, and no temporary file
 * remains. */
static void test_processes_create_one_cookie(void **state)
{
    enum { PROCESSES = 16 };
    unsigned char bytes[PROCESSES][DISTI_SECRET_MOST];
    struct stat file;
    int ends[2], how;

    (void)state;
    setenv("XDG_CONFIG_HOME", folder, 1);
    assert_int_equal(pipe(ends), 0);
    for (int p = 0; p < PROCESSES; p++) {
        if (fork() == 0) {
            struct disti_secret secret;

            if (!disti_secret_cookie(&secret, why))
                _exit(1);
            _exit(write(ends[1], secret.bytes, DISTI_SECRET_MOST) != DISTI_SECRET_MOST);
        }
    }
    for (int p = 0; p < PROCESSES; p++) {
        wait(&how);
        assert_int_equal(how, 0);
        assert_int_equal(read(ends[0], bytes[p], DISTI_SECRET_MOST), DISTI_SECRET_MOST);
        assert_memory_equal(bytes[p], bytes[0], DISTI_SECRET_MOST);
    }
    close(ends[0]);
    close(ends[1]);
    assert_int_equal(stat(in_folder("libdist/cookie"), &file), 0);
    assert_int_equal(file.st_mode & 0777, 0600);
    remove_cookie(); /* fails below if a temporary file remains */
    assert_int_not_equal(access(in_folder("libdist"), F_OK), 0);
}

static void test_bad_cookies_are_refused(void **state)
{
    struct disti_secret secret;

    (void)state;
    setenv("XDG_CONFIG_HOME", folder, 1);
    assert_true(disti_secret_cookie(&secret, why));
    assert_int_equal(chmod(in_folder("libdist/cookie"), 0644), 0);
    assert_false(disti_secret_cookie(&secret, why));
    assert_non_null(strstr(why, "chmod 600"));
    unlink(in_folder("libdist/cookie"));
    assert_int_equal(symlink("/dev/null", in_folder("libdist/cookie")), 0);
    assert_false(disti_secret_cookie(&secret, why));
    assert_non_null(strstr(why, "not a regular file"));
    assert_string_equal(secret.path, in_folder("libdist/cookie"));
    remove_cookie();
    unsetenv("XDG_CONFIG_HOME");
    unsetenv("HOME");
    assert_false(disti_secret_cookie(&secret, why));
    assert_non_null(strstr(why, "HOME"));
    assert_string_equal(secret.path, "");
    assert_int_equal(secret.length, 0);
}

static bool proves(const struct disti_secret *secret, const char *role,
                   const struct disti_hmac_piece *pieces, const unsigned char *proof)
{
    unsigned char right[DISTI_HMAC_BYTES];

    disti_prove(secret, role, pieces, 2, right);
    return disti_hmac_same(right, proof);
}

/* A change of any bit that is proved, of the role or of the secret makes the proof invalid. */
static void test_proofs_depend_on_all_data_role_and_secret(void **state)
{
    struct disti_secret secret = {0}, other = {0}, none = {0};
    unsigned char proved[64] = {1, 2, 3}, proof[DISTI_HMAC_BYTES];
    const struct disti_hmac_piece pieces[] = {{proved, 32}, {proved + 32, 32}};

    (void)state;
    disti_secret_set_token(&secret, "0123456789abcdef");
    disti_secret_set_token(&other, "0123456789abcdeF");
    disti_prove(&secret, "caller", pieces, 2, proof);
    assert_true(proves(&secret, "caller", pieces, proof));
    assert_false(proves(&secret, "called", pieces, proof));
    assert_false(proves(&other, "caller", pieces, proof));
    assert_false(proves(&none, "caller", pieces, proof));
    for (size_t i = 0; i < 8 * sizeof(proved); i++) {
        proved[i / 8] ^= (unsigned char)(1 << i % 8);
        assert_false(proves(&secret, "caller", pieces, proof));
        proved[i / 8] ^= (unsigned char)(1 << i % 8);
    }
    assert_true(proves(&secret, "caller", pieces, proof));
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    static const char *const names[] = {"group", "pipe", "good", "open", "short", "long"};

    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        unlink(in_folder(names[i]));
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_secret_files_are_refused),
        cmocka_unit_test(test_a_file_of_root_may_be_readable_by_a_group),
        cmocka_unit_test(test_a_FIFO_is_refused),
        cmocka_unit_test(test_processes_create_one_cookie),
        cmocka_unit_test(test_bad_cookies_are_refused),
        cmocka_unit_test(test_proofs_depend_on_all_data_role_and_secret),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
