/* SPDX-License-Identifier: BSD-3-Clause */
/* Names of files that each process has of its own. */
#include "base/file.h"
#include "base/host_name.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

void disti_file_rank(int rank, char *text, size_t size)
{
    if (rank < 0)
        snprintf(text, size, "-");
    else
        snprintf(text, size, "%d", rank);
}

/* What stands for one letter behind a '%'. */
static void file_name_item(char letter, int rank, char item[DISTI_HOST_SIZE])
{
    if (letter == 'h')
        disti_host_short(item);
    else if (letter == 'p')
        snprintf(item, DISTI_HOST_SIZE, "%ld", (long)getpid());
    else if (letter == 'r')
        disti_file_rank(rank, item, DISTI_HOST_SIZE);
    else
        snprintf(item, DISTI_HOST_SIZE, "%%");
}

void disti_file_name(const char *pattern, int rank, char *name, size_t size)
{
    size_t used = 0;

    for (const char *from = pattern; *from && used + 1 < size; from++) {
        char item[DISTI_HOST_SIZE] = {*from, '\0'};

        if (*from == '%' && from[1] && strchr("hpr%", from[1]))
            file_name_item(*++from, rank, item);
        used += (size_t)snprintf(name + used, size - used, "%s", item);
    }
    name[used < size ? used : size - 1] = '\0';
}
