/* SPDX-License-Identifier: BSD-3-Clause */
/* Files that are written while training goes on. */
#include "writer.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "folder.h"
#include "train/failure.h"

struct writer {
    char path[FOLDER_PATH];
    struct image image;
    int keep;
    pthread_t thread;
    bool begun;        /* there is a thread to be joined */
    int result;        /* of it */
    char reason[1024]; /* where that is -1 */
};

/* Either the handler sees that nobody is busy, or who was busy sees that there was a signal. */
static atomic_bool writer_busy, writer_ended;

static void writer_end_process(void)
{
    signal(SIGTERM, SIG_DFL);
    kill(getpid(), SIGTERM);
}

static void writer_on_end(int number)
{
    (void)number;
    atomic_store(&writer_ended, true);
    if (!atomic_load(&writer_busy))
        writer_end_process();
}

static void writer_take_signal(void)
{
    const struct sigaction ours = {.sa_handler = writer_on_end, .sa_flags = SA_RESTART};
    struct sigaction before;

    if (sigaction(SIGTERM, NULL, &before) == 0 && before.sa_handler == SIG_DFL)
        sigaction(SIGTERM, &ours, NULL);
}

int writer_create(struct writer **writer_p)
{
    struct writer *writer = calloc(1, sizeof(*writer));

    if (!writer)
        return failure("out of memory for a writer");
    writer_take_signal();
    *writer_p = writer;
    return 0;
}

static void *writer_run(void *arg)
{
    struct writer *writer = arg;

    writer->result = image_write(writer->path, &writer->image);
    if (writer->result < 0)
        snprintf(writer->reason, sizeof(writer->reason), "%s", failure_text());
    else if (writer->keep > 0)
        folder_prune(writer->path, writer->keep);
    image_free(&writer->image);
    atomic_store(&writer_busy, false);
    if (atomic_load(&writer_ended))
        writer_end_process();
    return NULL;
}

int writer_wait(struct writer *writer)
{
    if (!writer->begun)
        return 0;
    pthread_join(writer->thread, NULL);
    writer->begun = false;
    return writer->result < 0 ? failure("%s", writer->reason) : 0;
}

/* Where no thread can be made, the caller writes. */
static void writer_begin(struct writer *writer)
{
    atomic_store(&writer_busy, true);
    writer->begun = pthread_create(&writer->thread, NULL, writer_run, writer) == 0;
    if (!writer->begun)
        writer_run(writer);
}

int writer_start(struct writer *writer, const char *path, struct image *image, int keep)
{
    if (writer_wait(writer) < 0) {
        image_free(image);
        return -1;
    }
    snprintf(writer->path, sizeof(writer->path), "%s", path);
    writer->image = *image;
    image->data = NULL;
    writer->keep = keep;
    writer_begin(writer);
    return writer->begun || writer->result == 0 ? 0 : failure("%s", writer->reason);
}

int writer_destroy(struct writer *writer)
{
    const int result = writer ? writer_wait(writer) : 0;

    free(writer);
    return result;
}
