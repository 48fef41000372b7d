/* SPDX-License-Identifier: BSD-3-Clause */
/* Where dumps go: a file, on a file system that may not answer. */
#include "base/clock.h"
#include "base/file.h"
#include "base/thread.h"
#include "core/flight/flight.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define SAVE_MS 500

/* Empties a file that was there, and refuses that of another user, who may have laid it for us.
 * Returns an errno. */
static int save_empty(int fd)
{
    struct stat status;

    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode))
        return 0;
    if (status.st_uid != geteuid())
        return EPERM;
    return ftruncate(fd, 0) != 0 ? errno : 0;
}

static int save_write(int fd, const struct disti_flight_text *text)
{
    for (size_t from = 0; from < text->used;) {
        ssize_t written = disti_file_write(fd, text->bytes + from, text->used - from);

        if (written > 0)
            from += (size_t)written;
        else if (errno != EINTR)
            return errno ? errno : EIO;
    }
    return text->cut ? ENOMEM : 0;
}

/* A FIFO that nobody reads is an error, and no wait. */
#define SAVE_FLAGS (O_WRONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY)

/*
 * A file that is new is ours, whoever its owner is: shares and mounts that map users show another.
 * Returns an errno.
 */
static int save_open(const char *path, int *fd_p)
{
    *fd_p = open(path, SAVE_FLAGS | O_CREAT | O_EXCL, 0644);
    if (*fd_p >= 0 || errno != EEXIST)
        return *fd_p < 0 ? errno : 0;
    *fd_p = open(path, SAVE_FLAGS);
    return *fd_p < 0 ? errno : save_empty(*fd_p);
}

int disti_flight_save(const char *path, struct disti_flight_text *text)
{
    int fd, error = save_open(path, &fd);

    if (!error)
        error = save_write(fd, text);
    if (fd >= 0 && close(fd) != 0 && !error)
        error = errno;
    disti_flight_text_free(text);
    return error;
}

/* ---- by a thread ---- */

/* What the thread writes, and who waits for it: the last of them frees it. */
struct save {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool done, left;
    int error;
    struct disti_flight_text text;
    char path[DISTI_FLIGHT_PATH];
};

static void save_free(struct save *save)
{
    pthread_cond_destroy(&save->changed);
    pthread_mutex_destroy(&save->lock);
    free(save);
}

static struct save *save_new(const char *path, const struct disti_flight_text *text)
{
    struct save *save = calloc(1, sizeof(*save));
    pthread_condattr_t clock;

    if (!save)
        return NULL;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_mutex_init(&save->lock, NULL);
    pthread_cond_init(&save->changed, &clock);
    pthread_condattr_destroy(&clock);
    save->text = *text;
    snprintf(save->path, sizeof(save->path), "%s", path);
    return save;
}

static void *save_run(void *arg)
{
    struct save *save = arg;
    const int error = disti_flight_save(save->path, &save->text);
    bool left;

    pthread_mutex_lock(&save->lock);
    save->error = error;
    save->done = true;
    left = save->left;
    pthread_cond_signal(&save->changed);
    pthread_mutex_unlock(&save->lock);
    if (left)
        save_free(save);
    return NULL;
}

static bool save_start(struct save *save)
{
    pthread_t thread;

    return disti_thread_create(&thread, save_run, save) == 0 && pthread_detach(thread) == 0;
}

static int save_wait(struct save *save)
{
    const struct timespec end = disti_clock_timespec(disti_deadline_ms(SAVE_MS));
    int error = 0;
    bool done;

    pthread_mutex_lock(&save->lock);
    while (!save->done && error == 0)
        error = pthread_cond_timedwait(&save->changed, &save->lock, &end);
    done = save->done;
    save->left = true;
    error = done ? save->error : ETIMEDOUT;
    pthread_mutex_unlock(&save->lock);
    if (done)
        save_free(save);
    return error;
}

int disti_flight_save_soon(const char *path, struct disti_flight_text *text)
{
    struct save *save = save_new(path, text);

    if (save && save_start(save)) {
        *text = (struct disti_flight_text){0};
        return save_wait(save);
    }
    if (save)
        save_free(save);
    return disti_flight_save(path, text);
}
