/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reads inputs. Texts are copied to blocks of their size, so that reads beyond their end are
 * detected.
 */
#include "tests/fuzz/fuzz.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

uint8_t fuzz_byte(struct fuzz_input *input)
{
    struct fuzz_input one = fuzz_take(input, 1);

    return one.left ? *one.at : 0;
}

struct fuzz_input fuzz_take(struct fuzz_input *input, size_t bytes)
{
    struct fuzz_input taken = {input->at, bytes < input->left ? bytes : input->left};

    input->at += taken.left;
    input->left -= taken.left;
    return taken;
}

/* Copies up to a zero byte. */
static char *input_copy(struct fuzz_input part)
{
    char *text = strndup((const char *)part.at, part.left);

    FUZZ_MUST(text);
    return text;
}

char *fuzz_line(struct fuzz_input *input)
{
    const uint8_t *end = input->left ? memchr(input->at, '\n', input->left) : NULL;
    struct fuzz_input line = fuzz_take(input, end ? (size_t)(end - input->at) : input->left);

    fuzz_byte(input);
    return input_copy(line);
}

char *fuzz_text(struct fuzz_input *input)
{
    return input_copy(fuzz_take(input, input->left));
}

const char *fuzz_file(struct fuzz_input *input)
{
    static char path[32];
    static int fd = -1;

    if (fd < 0)
        fd = memfd_create("fuzz", MFD_CLOEXEC);
    /*
     * Only this user may write to the file: a module that other users can change would be refused.
     */
    FUZZ_MUST(fd >= 0 && ftruncate(fd, 0) == 0 && fchmod(fd, 0600) == 0);
    FUZZ_MUST(pwrite(fd, input->at, input->left, 0) == (ssize_t)input->left);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return path;
}

static char input_folder[] = "/tmp/dist-fuzz-XXXXXX";

static void input_folder_remove(void)
{
    char path[sizeof(input_folder) + NAME_MAX + 1];
    const struct dirent *entry;
    DIR *folder = opendir(input_folder);

    while (folder && (entry = readdir(folder))) {
        snprintf(path, sizeof(path), "%s/%s", input_folder, entry->d_name);
        unlink(path);
    }
    if (folder)
        closedir(folder);
    rmdir(input_folder);
}

const char *fuzz_folder(void)
{
    static bool made;

    if (!made)
        FUZZ_MUST(mkdtemp(input_folder) && atexit(input_folder_remove) == 0);
    made = true;
    return input_folder;
}
