/* SPDX-License-Identifier: BSD-3-Clause */
/* Reading the name of this machine. */
#include "base/host_name.h"

#include <string.h>
#include <unistd.h>

void disti_host_name(char text[DISTI_HOST_SIZE])
{
    memset(text, 0, DISTI_HOST_SIZE);
    if (gethostname(text, DISTI_HOST_SIZE - 1) != 0 || !text[0])
        memcpy(text, "?", 2);
    for (char *c = text; *c; c++) {
        if (*c <= ' ' || *c > '~' || *c == '/')
            *c = '?';
    }
}

void disti_host_short(char text[DISTI_HOST_SIZE])
{
    disti_host_name(text);
    text[strcspn(text, ".")] = '\0';
}
