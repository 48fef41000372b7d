/* SPDX-License-Identifier: BSD-3-Clause */
/* Reading SLURM_STEP_TASKS_PER_NODE and SLURM_STEP_NODELIST; a port for a step. */
#include "rendezvous/launchers/slurm.h"

#include <string.h>

/* A decimal number of at most 9 digits; moves *text_p behind it. -1: there is none. */
static int slurm_number(const char **text_p)
{
    const char *c = *text_p;
    int value = 0, digits = 0;

    for (; *c >= '0' && *c <= '9'; c++, digits++) {
        if (digits == 9)
            return -1;
        value = value * 10 + (*c - '0');
    }
    *text_p = c;
    return digits ? value : -1;
}

int disti_slurm_tasks(const char *text, int node)
{
    for (;;) {
        int tasks = slurm_number(&text), nodes = 1;

        if (tasks < 0)
            return -1;
        if (strncmp(text, "(x", 2) == 0) {
            text += 2;
            nodes = slurm_number(&text);
            if (nodes < 1 || *text++ != ')')
                return -1;
        }
        if (*text && *text != ',')
            return -1;
        if (node < nodes)
            return tasks;
        node -= nodes;
        if (*text++ != ',')
            return -1;
    }
}

bool disti_slurm_first_host(const char *text, char *host, size_t size)
{
    size_t at = 0;

    /* In "n[01-03,7]-ib,m5" the bracket stands for its first item, "01". */
    for (; *text && *text != ','; text++) {
        if (*text == '[') {
            const char *item = text + 1;
            size_t length = strcspn(item, "-,]");
            const char *end = strchr(item, ']');

            if (!end || length == 0 || length != strspn(item, "0123456789") || length >= size - at)
                return false;
            memcpy(host + at, item, length);
            at += length;
            text = end;
        } else {
            if (*text == ']' || at + 1 >= size)
                return false;
            host[at++] = *text;
        }
    }
    host[at] = 0;
    return at > 0;
}

int disti_slurm_port(const char *job)
{
    unsigned hash = 5381;

    for (; *job; job++)
        hash = hash * 33 + (unsigned char)*job;
    return 20000 + (int)(hash % 9500);
}
