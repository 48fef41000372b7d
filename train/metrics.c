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

/* ---- --tensorboard ---- */

/*
 * TensorBoard's file: records of
 *
 *     length (8 bytes) | checksum of it (4) | an event (length) | checksum of it (4)
 *
 * little-endian, as this program is. An event is a protobuf message: fields of a key, number << 3 |
 * kind, and a value.
 *
 *     Event       1 wall_time (double)  2 step (int64)  3 file_version (string)
 *                 5 summary: Summary    7 session_log: SessionLog
 *     Summary     1 value: Value, repeated
 *     Value       1 tag (string)        2 simple_value (float)
 *     SessionLog  1 status (enum; START is 1)
 */

enum { EVENTS_SCALARS = 16, EVENTS_TAG = 64 };

/* Room for the largest record: a tag with its number, so many times, and some bytes more. */
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

/* A number of 4 or 8 bytes. */
static void message_fixed(struct message *message, int field, const void *value, size_t size)
{
    message_key(message, field, size == 8 ? KIND_64 : KIND_32);
    memcpy(message->bytes + message->size, value, size);
    message->size += size;
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
    double seconds;

    clock_gettime(CLOCK_REALTIME, &now);
    seconds = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    message->size = 0;
    message_fixed(message, 1, &seconds, sizeof(seconds));
    message_int(message, 2, step);
}

/* CRC-32C, a bit at a time: records are a hundred bytes. */
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

/* The checksum turned and shifted, so that a record may hold checksums itself. */
static void message_checksum(struct message *message, const struct message *of)
{
    uint32_t crc = crc32c(of->bytes, of->size);

    crc = (crc >> 15 | crc << 17) + 0xa282ead8;
    memcpy(message->bytes + message->size, &crc, sizeof(crc));
    message->size += sizeof(crc);
}

/* A record, in one write. */
static int events_write(FILE *file, const struct message *event)
{
    const uint64_t size = event->size;
    struct message record = {.size = sizeof(size)};

    memcpy(record.bytes, &size, sizeof(size));
    message_checksum(&record, &record);
    memcpy(record.bytes + record.size, event->bytes, event->size);
    record.size += event->size;
    message_checksum(&record, event);
    return fwrite(record.bytes, 1, record.size, file) == record.size && fflush(file) == 0
               ? 0
               : failure("%s", strerror(errno));
}

int events_open(const char *folder, int64_t step, int resumed, FILE **file_p)
{
    static const char version[] = "brain.Event:2";
    char path[PATH_MAX], host[HOST_NAME_MAX + 1] = "";
    struct message event, session = {.size = 0};

    if (mkdir(folder, 0777) < 0 && errno != EEXIST)
        return failure("%s", strerror(errno));
    gethostname(host, sizeof(host));
    if (snprintf(path, sizeof(path), "%s/events.out.tfevents.%lld.%s.%ld", folder,
                 (long long)time(NULL), host, (long)getpid()) >= (int)sizeof(path))
        return failure("%s", strerror(ENAMETOOLONG));
    *file_p = fopen(path, "wxe");
    if (!*file_p)
        return failure("%s", strerror(errno));
    message_begin(&event, 0);
    message_bytes(&event, 3, version, sizeof(version) - 1);
    if (events_write(*file_p, &event) < 0)
        return -1;
    if (!resumed)
        return 0;
    message_int(&session, 1, 1);
    message_begin(&event, step + 1);
    message_bytes(&event, 7, session.bytes, session.size);
    return events_write(*file_p, &event);
}

int events_scalars(FILE *file, int64_t step, const struct events_scalar *scalars, int count)
{
    struct message event, summary = {.size = 0}, value;

    for (int i = 0; i < count && i < EVENTS_SCALARS; i++) {
        const float number = (float)scalars[i].value;

        value.size = 0;
        message_bytes(&value, 1, scalars[i].tag, strnlen(scalars[i].tag, EVENTS_TAG));
        message_fixed(&value, 2, &number, sizeof(number));
        message_bytes(&summary, 1, value.bytes, value.size);
    }
    message_begin(&event, step);
    message_bytes(&event, 5, summary.bytes, summary.size);
    return events_write(file, &event);
}

/* ---- --metrics: lines of JSON, in one write each ---- */

/* JSON has no number for what is not finite. */
static void metrics_number(FILE *file, const char *name, double value)
{
    if (isfinite(value))
        fprintf(file, ", \"%s\": %.9g", name, value);
    else
        fprintf(file, ", \"%s\": null", name);
}

static void metrics_begin(FILE *file, const char *event, int64_t step, int64_t epoch)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    fprintf(file, "{\"event\": \"%s\", \"time\": %.6f, \"step\": %" PRId64 ", \"epoch\": %" PRId64,
            event, (double)now.tv_sec + 1e-9 * (double)now.tv_nsec, step, epoch);
}

static int metrics_end(FILE *file)
{
    fputs("}\n", file);
    return fflush(file) == 0 ? 0 : failure("%s", strerror(errno));
}

int metrics_open(const char *path, const struct records_setup *setup, FILE **file_p)
{
    FILE *file = fopen(path, setup->resumed ? "a+e" : "we");

    *file_p = file;
    if (!file)
        return failure("%s", strerror(errno));
    if (setup->resumed && fseek(file, -1, SEEK_END) == 0 && getc(file) != '\n') {
        fseek(file, 0, SEEK_END);
        fputc('\n', file);
    }
    metrics_begin(file, setup->resumed ? "resume" : "start", setup->step, 0);
    fprintf(file, ", \"world_size\": %d", setup->world);
    return metrics_end(file);
}

int metrics_step(FILE *file, const struct record_step *step, double loss, int steps)
{
    metrics_begin(file, "step", step->step, step->epoch);
    fprintf(file, ", \"steps\": %d, \"samples\": %" PRId64, steps, step->samples);
    metrics_number(file, "loss", loss);
    metrics_number(file, "lr", step->lr);
    metrics_number(file, "samples_per_s", (double)step->samples / step->seconds);
    metrics_number(file, "step_s", step->seconds / steps);
    for (int i = 0; i < RECORD_IN_STEP; i++) {
        char name[32];

        snprintf(name, sizeof(name), "%s_s", record_part_names[i]);
        metrics_number(file, name, step->parts[i] / steps);
    }
    return metrics_end(file);
}

int metrics_test(FILE *file, const struct record_test *test)
{
    metrics_begin(file, "test", test->step, test->epoch);
    metrics_number(file, "loss", test->loss);
    metrics_number(file, "accuracy", (double)test->correct / (double)test->count);
    fprintf(file, ", \"correct\": %" PRId64 ", \"count\": %" PRId64, test->correct, test->count);
    return metrics_end(file);
}

int metrics_close(FILE **file_p)
{
    FILE *file = *file_p;

    *file_p = NULL;
    return !file || fclose(file) == 0 ? 0 : failure("%s", strerror(errno));
}
