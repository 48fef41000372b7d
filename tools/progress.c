/* SPDX-License-Identifier: BSD-3-Clause */
#include "progress.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define PROGRESS_EVERY_NS 50000000

static atomic_bool progress_shown;
static atomic_llong progress_last; /* ns */

static bool progress_due(void)
{
    struct timespec now;
    long long at;

    if (!isatty(STDERR_FILENO))
        return false;
    clock_gettime(CLOCK_MONOTONIC, &now);
    at = (long long)now.tv_sec * 1000000000 + now.tv_nsec;
    if (at - atomic_load(&progress_last) < PROGRESS_EVERY_NS)
        return false;
    atomic_store(&progress_last, at);
    return true;
}

void progress_show(const char *format, ...)
{
    char text[79];
    va_list arguments;

    if (!progress_due())
        return;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    atomic_store(&progress_shown, true);
    fprintf(stderr, "\r\033[K%s", text);
    fflush(stderr);
}

void progress_clear(void)
{
    if (!atomic_exchange(&progress_shown, false))
        return;
    fprintf(stderr, "\r\033[K");
    fflush(stderr);
}
