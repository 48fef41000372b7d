/* SPDX-License-Identifier: BSD-3-Clause */
/* How many workers a node has: a number, its CPUs, or its GPUs. */
#include "base/settings/config.h"
#include "launch/options/options.h"
#include "topology/discover.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

enum { COUNTS_MAX = 65536 };

/* "0,2": two. */
static int counts_listed(const char *list)
{
    char item[64];
    int count = 0;

    while (disti_list_item(list, ',', count, item, sizeof(item)))
        count++;
    return count;
}

/* One folder a GPU. */
static int counts_folders(const char *path)
{
    DIR *folder = opendir(path);
    const struct dirent *entry;
    int count = 0;

    while (folder && (entry = readdir(folder)))
        count += entry->d_name[0] != '.';
    if (folder)
        closedir(folder);
    return count;
}

/* Those that the workers would see. */
static int counts_gpus(void)
{
    const char *visible = disti_env_raw("CUDA_VISIBLE_DEVICES");

    return visible ? counts_listed(visible) : counts_folders("/proc/driver/nvidia/gpus");
}

int disti_run_worker_count(const char *text, char *why, int size)
{
    const bool automatic = strcmp(text, "auto") == 0;
    const int gpus = automatic || strcmp(text, "gpu") == 0 ? counts_gpus() : 0;
    int count;

    if (gpus > 0)
        return gpus;
    if (automatic || strcmp(text, "cpu") == 0)
        return disti_usable_cpus();
    if (strcmp(text, "gpu") == 0)
        snprintf(why, (size_t)size, "no GPU is visible here: give a number, or cpu");
    else if (strcmp(text, "xpu") == 0)
        snprintf(why, (size_t)size, "distrun does not count XPUs: give their number");
    else if (disti_parse_int("--nproc-per-node", text, 1, COUNTS_MAX, &count) == DIST_OK)
        return count;
    else
        snprintf(why, (size_t)size, "'%.60s' is neither a number, 1 to %d, nor auto, cpu or gpu",
                 text, COUNTS_MAX);
    return 0;
}
