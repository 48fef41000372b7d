/* SPDX-License-Identifier: BSD-3-Clause */
/* Replaces libFuzzer: runs each input of the given files and folders once. */
#include <dirent.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_inputs;

static void replay_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    uint8_t *data = NULL;
    size_t size = 0;

    if (!file || fseek(file, 0, SEEK_END) != 0) {
        perror(path);
        exit(1);
    }
    size = (size_t)ftell(file);
    rewind(file);
    /* The block has exactly the size of the input, so that reads beyond its end are detected. */
    data = malloc(size ? size : 1);
    if (!data || fread(data, 1, size, file) != size)
        exit(1);
    fclose(file);
    printf("%s\n", path);
    fflush(stdout);
    LLVMFuzzerTestOneInput(data, size);
    replay_inputs++;
    free(data);
}

static void replay_folder(const char *path)
{
    char file[PATH_MAX];
    const struct dirent *entry;
    DIR *folder = opendir(path);

    if (!folder) {
        replay_file(path);
        return;
    }
    while ((entry = readdir(folder))) {
        snprintf(file, sizeof(file), "%s/%s", path, entry->d_name);
        if (entry->d_name[0] != '.')
            replay_file(file);
    }
    closedir(folder);
}

int main(int argc, char **argv)
{
    LLVMFuzzerInitialize(&argc, &argv);
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] != '-')
            replay_folder(argv[i]);
    }
    return replay_inputs > 0 ? 0 : 1;
}
