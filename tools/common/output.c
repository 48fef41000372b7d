/* SPDX-License-Identifier: BSD-3-Clause */
/* Standard output and files, and what keeps them from being written. */
#include "output.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "draft.h"

static int output_error;     /* errno of the first flush of standard output that failed */
static bool output_reported; /* by output_exit */

void output_begin(struct output *output)
{
    *output = (struct output){NULL, NULL, 0};
    output->to = open_memstream(&output->bytes, &output->size);
}

static int output_write(const char *path, const char *bytes, size_t size)
{
    char *draft;
    const int fd = draft_open(path, &draft);
    int result = -1;

    if (fd >= 0 && draft_write(fd, bytes, size) == 0 && draft_finish(draft, fd) == 0)
        result = close(fd);
    else if (fd >= 0)
        draft_discard(draft, fd);
    free(draft);
    return result;
}

int output_end(struct output *output, const char *path)
{
    const bool lost = !path || !output->to || ferror(output->to);
    int result = -1;

    if ((output->to && fclose(output->to) != 0) || lost)
        errno = ENOMEM;
    else
        result = output_write(path, output->bytes, output->size);
    free(output->bytes);
    return result;
}

void output_flush(void)
{
    if (fflush(stdout) != 0 && output_error == 0)
        output_error = errno;
}

void output_print(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    output_flush();
}

/* True if standard output is a pipe whose reader has closed it. */
static bool output_is_unread(void)
{
    struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};

    return poll(&out, 1, 0) == 1 && out.revents & POLLERR;
}

const char *output_failure(void)
{
    output_flush();
    /* stdio's own writes leave no errno. */
    if (ferror(stdout) && !output_error && output_is_unread())
        output_error = EPIPE;
    if (!output_error && !ferror(stdout))
        return NULL;
    return output_error ? strerror(output_error) : "an earlier write failed";
}

int output_exit(const char *program, int code)
{
    const char *failure = output_failure();

    if (failure && !output_reported && output_error != EPIPE)
        fprintf(stderr, "%s: cannot write to standard output: %s\n", program, failure);
    output_reported = failure != NULL;
    return code == 0 && failure ? 1 : code;
}
