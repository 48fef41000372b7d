/* SPDX-License-Identifier: BSD-3-Clause */
/* One line of stderr, written again and again. */
#include "progress.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

static atomic_bool progress_shown;

void progress_show(const char *format, ...)
{
    char text[79];
    va_list arguments;

    if (!isatty(STDERR_FILENO))
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
