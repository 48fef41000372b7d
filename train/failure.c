/* SPDX-License-Identifier: BSD-3-Clause */
/* Error messages. */
#include "failure.h"

#include <stdarg.h>
#include <stdio.h>

#include <dist/dist.h>

static _Thread_local char failure_message[1024];

int failure(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(failure_message, sizeof(failure_message), format, args);
    va_end(args);
    return -1;
}

int failure_dist(const char *what)
{
    return failure("%s: %s", what, dist_last_error());
}

const char *failure_text(void)
{
    return failure_message;
}
