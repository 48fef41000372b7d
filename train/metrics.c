/* SPDX-License-Identifier: BSD-3-Clause */
/* --metrics and --tensorboard. */
#include "metrics.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "failure.h"

/* ---- CRC-32C, a bit at a time: records are a hundred bytes ---- */

uint32_t crc32c(const void *bytes, size_t size)
{
    const uint8_t *at = bytes;
    uint32_t crc = 0xffffffff;

    while (size-- > 0) {
        crc ^= *at++;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
    }
    return ~crc;
}

uint32_t crc32c_masked(const void *bytes, size_t size)
{
    const uint32_t crc = crc32c(bytes, size);

    return (crc >> 15 | crc << 17) + 0xa282ead8;
}

/*
 * TensorBoard's file: records of
 *
 *     length (8 bytes) | checksum of it (4) | an event (length) | checksum of it (4)
 *
 * little-endian. An event is a protobuf message: fields of a key, number << 3 | kind, and a value.
 *
 *     Event       1 wall_time (double)  2 step (int64)  3 file_version (string)
 *                 5 summary: Summary    7 session_log: SessionLog
 *     Summary     1 value: Value, repeated
 *     Value       1 tag (string)        2 simple_value (float)
 *     SessionLog  1 status (enum; START is 1)
 */

enum { EVENTS_SCALARS = 16, EVENTS_TAG = 64 };

/* Room for the largest event: a tag with its number, so many times, and some bytes more. */
enum { EVENTS_BYTES = EVENTS_SCALARS * (EVENTS_TAG + 16) + 64 };

/* Kinds of values. */
enum { KIND_VARINT = 0, KIND_64 = 1, KIND_BYTES = 2, KIND_32 = 5 };

struct message {
    uint8_t bytes[EVENTS_BYTES];
    size_t size;
};

static void message_varint(struct message *message, uint64_t value)
{
    for (; value > 127; value >>= 7)
        message->bytes[message->size++] = (uint8_t)(value | 128);
    message->bytes[message->size++] = (uint8_t)value;
}

static void message_key(struct message *message, int field, int kind)
{
    message_varint(message, (uint64_t)(field << 3 | kind));
}

static void message_little(struct message *message, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        message->bytes[message->size++] = (uint8_t)(value >> 8 * i);
}

static void message_double(struct message *message, int field, double value)
{
    uint64_t bits;

    memcpy(&bits, &value, sizeof(bits));
    message_key(message, field, KIND_64);
    message_little(message, bits, 8);
}

static void message_float(struct message *message, int field, float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    message_key(message, field, KIND_32);
    message_little(message, bits, 4);
}

static void message_int(struct message *message, int field, int64_t value)
{
    message_key(message, field, KIND_VARINT);
    message_varint(message, (uint64_t)value);
}

static void message_bytes(struct message *message, int field, const void *bytes, size_t size)
{
    message_key(message, field, KIND_BYTES);
    message_varint(message, size);
    memcpy(message->bytes + message->size, bytes, size);
    message->size += size;
}

/* Every event begins with when it was. */
static void message_begin(struct message *message, int64_t step)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    message->size = 0;
    message_double(message, 1, (double)now.tv_sec + 1e-9 * (double)now.tv_nsec);
    message_int(message, 2, step);
}

/* A record, in one write. */
static int events_write(struct events *events, const struct message *event)
{
    struct message frame = {.size = 0};
    int result;

    message_little(&frame, event->size, 8);
    message_little(&frame, crc32c_masked(frame.bytes, 8), 4);
    result = fwrite(frame.bytes, 1, frame.size, events->file) == frame.size &&
             fwrite(event->bytes, 1, event->size, events->file) == event->size;
    frame.size = 0;
    message_little(&frame, crc32c_masked(event->bytes, event->size), 4);
    result = result && fwrite(frame.bytes, 1, frame.size, events->file) == frame.size &&
             fflush(events->file) == 0;
    return result ? 0 : failure("%s", strerror(errno));
}

static int events_begin(struct events *events, int64_t step, int resumed)
{
    static const char version[] = "brain.Event:2";
    struct message event, session = {.size = 0};

    message_begin(&event, 0);
    message_bytes(&event, 3, version, sizeof(version) - 1);
    if (events_write(events, &event) < 0)
        return -1;
    if (!resumed)
        return 0;
    message_int(&session, 1, 1);
    message_begin(&event, step + 1);
    message_bytes(&event, 7, session.bytes, session.size);
    return events_write(events, &event);
}

int events_open(const char *folder, int64_t step, int resumed, struct events *events)
{
    char path[PATH_MAX], host[HOST_NAME_MAX + 1] = "";

    if (mkdir(folder, 0777) < 0 && errno != EEXIST)
        return failure("%s", strerror(errno));
    gethostname(host, sizeof(host));
    if (snprintf(path, sizeof(path), "%s/events.out.tfevents.%lld.%s.%ld", folder,
                 (long long)time(NULL), host, (long)getpid()) >= (int)sizeof(path))
        return failure("%s", strerror(ENAMETOOLONG));
    events->file = fopen(path, "wxe");
    if (!events->file)
        return failure("%s", strerror(errno));
    return events_begin(events, step, resumed);
}

int events_scalars(struct events *events, int64_t step, const struct events_scalar *scalars,
                   int count)
{
    struct message event, summary = {.size = 0}, value;

    for (int i = 0; i < count && i < EVENTS_SCALARS; i++) {
        value.size = 0;
        message_bytes(&value, 1, scalars[i].tag, strnlen(scalars[i].tag, EVENTS_TAG));
        message_float(&value, 2, (float)scalars[i].value);
        message_bytes(&summary, 1, value.bytes, value.size);
    }
    message_begin(&event, step);
    message_bytes(&event, 5, summary.bytes, summary.size);
    return events_write(events, &event);
}

int events_close(struct events *events)
{
    FILE *file = events->file;

    events->file = NULL;
    return !file || fclose(file) == 0 ? 0 : failure("%s", strerror(errno));
}

/* ---- --metrics: lines of JSON, in one write each ---- */

static int metrics_flush(const struct metrics *metrics)
{
    return fflush(metrics->file) == 0 ? 0 : failure("%s", strerror(errno));
}

/* JSON has no number for what is not finite. */
static void metrics_number(const struct metrics *metrics, const char *name, double value)
{
    if (isfinite(value))
        fprintf(metrics->file, ", \"%s\": %.9g", name, value);
    else
        fprintf(metrics->file, ", \"%s\": null", name);
}

static void metrics_begin(const struct metrics *metrics, const char *event, int64_t step,
                          int64_t epoch)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    fprintf(metrics->file,
            "{\"event\": \"%s\", \"time\": %.6f, \"step\": %" PRId64 ", \"epoch\": %" PRId64, event,
            (double)now.tv_sec + 1e-9 * (double)now.tv_nsec, step, epoch);
}

static int metrics_end(const struct metrics *metrics)
{
    fputs("}\n", metrics->file);
    return metrics_flush(metrics);
}

/* Whether the last byte of the file is that of a whole line. */
static bool metrics_is_whole(FILE *file)
{
    return fseek(file, -1, SEEK_END) < 0 || getc(file) == '\n';
}

static int metrics_start(struct metrics *metrics, const struct records_setup *setup)
{
    metrics_begin(metrics, setup->resumed ? "resume" : "start", setup->step, 0);
    fprintf(metrics->file, ", \"world_size\": %d", setup->world);
    return metrics_end(metrics);
}

int metrics_open(const char *path, const struct records_setup *setup, struct metrics *metrics)
{
    metrics->file = fopen(path, setup->resumed ? "a+e" : "we");
    if (!metrics->file)
        return failure("%s", strerror(errno));
    if (setup->resumed && !metrics_is_whole(metrics->file)) {
        fseek(metrics->file, 0, SEEK_END);
        fputc('\n', metrics->file);
    }
    return metrics_start(metrics, setup);
}

int metrics_step(struct metrics *metrics, const struct record_step *step, double loss, int steps)
{
    metrics_begin(metrics, "step", step->step, step->epoch);
    fprintf(metrics->file, ", \"steps\": %d, \"samples\": %" PRId64, steps, step->samples);
    metrics_number(metrics, "loss", loss);
    metrics_number(metrics, "lr", step->lr);
    metrics_number(metrics, "samples_per_s", (double)step->samples / step->seconds);
    metrics_number(metrics, "step_s", step->seconds / steps);
    for (int i = 0; i < RECORD_IN_STEP; i++) {
        char name[32];

        snprintf(name, sizeof(name), "%s_s", record_part_name((enum record_part)i));
        metrics_number(metrics, name, step->parts[i] / steps);
    }
    return metrics_end(metrics);
}

int metrics_test(struct metrics *metrics, const struct record_test *test)
{
    metrics_begin(metrics, "test", test->step, test->epoch);
    metrics_number(metrics, "loss", test->loss);
    metrics_number(metrics, "accuracy", (double)test->correct / (double)test->count);
    fprintf(metrics->file, ", \"correct\": %" PRId64 ", \"count\": %" PRId64, test->correct,
            test->count);
    return metrics_end(metrics);
}

int metrics_close(struct metrics *metrics)
{
    FILE *file = metrics->file;

    metrics->file = NULL;
    return !file || fclose(file) == 0 ? 0 : failure("%s", strerror(errno));
}
