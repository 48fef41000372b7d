/* SPDX-License-Identifier: BSD-3-Clause */
/* How many descriptors this process has open, and a constant: for comparing. */
#ifndef DISTI_TESTS_JOBS_DESCRIPTORS_H
#define DISTI_TESTS_JOBS_DESCRIPTORS_H

#include <dirent.h>
#include <stddef.h>

static inline int descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;

    while (folder && readdir(folder))
        count++;
    if (folder)
        closedir(folder);
    return count;
}

#endif
