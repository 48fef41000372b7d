/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies the workers' output: a thread merges streams, whole lines at a time. */
#include "launch/output.h"
#include "base/log.h"
#include "base/process.h"
#include "base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

#define OUTPUT_READ 65536         /* bytes per read: the capacity of a pipe */
#define OUTPUT_LINE (1u << 20)    /* longer lines are written in pieces */
#define OUTPUT_WRITE (256u << 10) /* bytes per write */

/* A source, and its incomplete last line. */
struct output_source {
    struct disti_run_source source;
    size_t prefix_bytes;
    char *line;
    size_t used, capacity;
    bool ended;
};

struct disti_run_output {
    int to_fd, done_fd, epoll_fd;
    struct output_source *sources;
    int count, left;
    const struct output_source *open; /* the source whose incomplete line was written last; NULL:
                                       * none */
    bool broken;                      /* the stream has no reader any more */
    bool lost;                        /* some output could not be written, because a disk is full,
                                       * for example */
    char *out;
    size_t out_used;
    pthread_t thread;
};

/* stdout and stderr may be the same file: serializes their writes, so that lines do not mix. */
static pthread_mutex_t output_lock = PTHREAD_MUTEX_INITIALIZER;

/*
 * Writes all bytes; waits if another process has made the descriptor non-blocking. False: see
 * errno.
 */
static bool output_write_all(int fd, const char *bytes, size_t count)
{
    struct pollfd space = {.fd = fd, .events = POLLOUT};

    while (count > 0) {
        const ssize_t written = write(fd, bytes, count);

        if (written < 0 && errno == EAGAIN)
            poll(&space, 1, -1);
        else if (written < 0 && errno != EINTR)
            return false;
        if (written > 0) {
            bytes += written;
            count -= (size_t)written;
        }
    }
    return true;
}

/*
 * Writes to the stream. Without a reader (EPIPE) all further output is dropped silently. A full
 * disk is reported once: the job is worth more than its output, and space may become free.
 */
static void output_send(struct disti_run_output *output, const char *bytes, size_t count)
{
    if (output->broken || output_write_all(output->to_fd, bytes, count))
        return;
    if (errno == EPIPE) {
        output->broken = true;
        return;
    }
    if (!output->lost && output->to_fd == STDOUT_FILENO)
        fprintf(stderr,
                "distrun: cannot write the workers' output: %s: the workers continue, but this "
                "output is lost\n",
                strerror(errno));
    output->lost = true;
}

static void output_flush(struct disti_run_output *output)
{
    struct stat out, err;
    const bool shared = output->out_used > 0 && fstat(STDOUT_FILENO, &out) == 0 &&
                        fstat(STDERR_FILENO, &err) == 0 && out.st_dev == err.st_dev &&
                        out.st_ino == err.st_ino;

    if (shared)
        pthread_mutex_lock(&output_lock);
    output_send(output, output->out, output->out_used);
    if (shared)
        pthread_mutex_unlock(&output_lock);
    output->out_used = 0;
}

static void output_put(struct disti_run_output *output, const char *bytes, size_t count)
{
    if (output->out_used + count > OUTPUT_WRITE)
        output_flush(output);
    if (count > OUTPUT_WRITE) {
        output_send(output, bytes, count);
        return;
    }
    memcpy(output->out + output->out_used, bytes, count);
    output->out_used += count;
}

/* Writes all complete lines; with `all` the incomplete last line too. */
static void output_lines(struct disti_run_output *output, struct output_source *from, bool all)
{
    size_t at = 0;

    while (at < from->used) {
        const char *end = memchr(from->line + at, '\n', from->used - at);
        const size_t count = end ? (size_t)(end - from->line) + 1 - at : from->used - at;

        if (!end && !all && count < OUTPUT_LINE)
            break;
        /* A line or a piece of it. An incomplete line of another source is ended first. */
        if (output->out_used + count + from->prefix_bytes + 1 > OUTPUT_WRITE)
            output_flush(output); /* here, so that a line is not split between two writes */
        if (output->open && output->open != from)
            output_put(output, "\n", 1);
        if (output->open != from)
            output_put(output, from->source.prefix, from->prefix_bytes);
        output_put(output, from->line + at, count);
        at += count;
        output->open = end ? NULL : from;
    }
    memmove(from->line, from->line + at, from->used - at);
    from->used -= at;
}

static void output_close(struct disti_run_output *output, struct output_source *from)
{
    close(from->source.fd);
    if (from->source.log_fd >= 0)
        close(from->source.log_fd);
    from->ended = true;
    output->left--;
}

static bool output_grow(struct output_source *from)
{
    const size_t capacity = from->capacity ? 2 * from->capacity : 2 * OUTPUT_READ;
    char *line = realloc(from->line, capacity);

    if (line) {
        from->line = line;
        from->capacity = capacity;
    }
    return line != NULL;
}

static void output_read(struct disti_run_output *output, struct output_source *from)
{
    char *to;
    ssize_t got;

    /* Out of memory for a longer line: writes the incomplete one. */
    if (from->capacity - from->used < OUTPUT_READ && !output_grow(from))
        output_lines(output, from, true);
    to = from->line + from->used;
    got = read(from->source.fd, to, from->capacity - from->used);
    if (got < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (got > 0) {
        if (from->source.log_fd >= 0 && !output_write_all(from->source.log_fd, to, (size_t)got)) {
            disti_warn("cannot write a log file, so it is incomplete: %s", strerror(errno));
            close(from->source.log_fd);
            from->source.log_fd = -1;
        }
        from->used += (size_t)got;
    }
    if (from->source.shown)
        output_lines(output, from, got <= 0);
    else
        from->used = 0;
    if (got <= 0 || (output->broken && from->source.log_fd < 0))
        output_close(output, from);
}

static void *output_main(void *arg)
{
    struct disti_run_output *output = arg;
    const uint64_t one = 1;

    while (output->left > 0) {
        struct epoll_event events[64];
        const int count = epoll_wait(output->epoll_fd, events, 64, -1);

        for (int i = 0; i < count; i++) {
            if (!((struct output_source *)events[i].data.ptr)->ended)
                output_read(output, events[i].data.ptr);
        }
        output_flush(output);
        /*
         * Closes the pipes of workers whose output nobody receives: SIGPIPE ends such a worker when
         * it writes.
         */
        for (int i = 0; i < output->count && output->broken; i++) {
            if (!output->sources[i].ended && output->sources[i].source.log_fd < 0)
                output_close(output, &output->sources[i]);
        }
    }
    if (output->open && output->open->prefix_bytes)
        output_put(output, "\n", 1);
    output_flush(output);
    (void)!write(output->done_fd, &one, sizeof(one));
    return NULL;
}

static void output_free(struct disti_run_output *output)
{
    for (int i = 0; i < output->count; i++) {
        if (!output->sources[i].ended)
            output_close(output, &output->sources[i]);
        free(output->sources[i].line);
    }
    if (output->epoll_fd >= 0)
        close(output->epoll_fd);
    free(output->sources);
    free(output->out);
    free(output);
}

dist_status disti_run_output_start(int to_fd, const struct disti_run_source *sources, int count,
                                   int done_fd, struct disti_run_output **output_p)
{
    struct disti_run_output *output = calloc(1, sizeof(*output));
    struct output_source *made = calloc((size_t)count + 1, sizeof(*made));
    char *out = malloc(OUTPUT_WRITE);
    bool has_memory = output && made && out, watched = true;

    for (int i = 0; i < count && has_memory; i++) {
        made[i].source = sources[i];
        made[i].prefix_bytes = strlen(sources[i].prefix);
        has_memory = output_grow(&made[i]);
    }
    if (!has_memory) {
        for (int i = 0; i < count; i++) {
            close(sources[i].fd);
            if (sources[i].log_fd >= 0)
                close(sources[i].log_fd);
            if (made)
                free(made[i].line);
        }
        free(output);
        free(made);
        free(out);
        return disti_fail(DIST_ERR_NO_MEMORY,
                          "no memory for the output of %d workers: free some, or start fewer",
                          count);
    }
    *output = (struct disti_run_output){.to_fd = to_fd,
                                        .done_fd = done_fd,
                                        .sources = made,
                                        .count = count,
                                        .left = count,
                                        .out = out};
    errno = 0;
    output->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    for (int i = 0; i < count && watched; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &output->sources[i]};

        watched = epoll_ctl(output->epoll_fd, EPOLL_CTL_ADD, sources[i].fd, &event) == 0;
    }
    if (!watched || (errno = disti_thread_create(&output->thread, output_main, output)) != 0) {
        output_free(output);
        if (errno == EMFILE || errno == ENFILE)
            return disti_fail_errno(DIST_ERR_SYSTEM,
                                    "cannot read the output of %d workers: raise the limit on open "
                                    "files (ulimit -n)",
                                    count);
        return disti_process_limit_fail("start the thread that reads the output of %d workers",
                                        count);
    }
    *output_p = output;
    return DIST_OK;
}

dist_status disti_run_outputs_start(struct disti_run_source *const sources[2], const int counts[2],
                                    int done_fd, struct disti_run_output *outputs[2],
                                    int *started_p)
{
    dist_status status = DIST_OK;

    for (int s = 0; s < 2; s++) {
        const dist_status one = disti_run_output_start(s == 0 ? STDOUT_FILENO : STDERR_FILENO,
                                                       sources[s], counts[s], done_fd, &outputs[s]);

        if (one == DIST_OK)
            (*started_p)++;
        else
            status = one;
    }
    return status;
}

bool disti_run_output_end(struct disti_run_output *output)
{
    bool lost;

    if (!output)
        return true;
    pthread_join(output->thread, NULL);
    lost = output->lost;
    output_free(output);
    return !lost;
}
