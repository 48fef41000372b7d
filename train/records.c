/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Writes the records of a training: --metrics, --tensorboard, --trace, and the measurements for
 * --report.
 */
#include "records.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "failure.h"
#include "file.h"
#include "options.h"
#include "page.h"
#include "tools/common/output.h"
#include "tools/common/text.h"
#include "tools/topology/topology.h"

/* Names of the parts in the files, in lower case. */
static const char *const record_part_names[RECORD_PARTS] = {
    [RECORD_DATA] = "data", [RECORD_FORWARD] = "forward", [RECORD_BACKWARD] = "backward",
    [RECORD_WAIT] = "wait", [RECORD_UPDATE] = "update",   [RECORD_BUCKET] = "bucket",
    [RECORD_TEST] = "test",
};

/* Returns seconds since 1970. */
static double wall_time(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* ---- --tensorboard ---- */

/*
 * TensorBoard's file consists of records
 *
 *     length (8 bytes) | checksum of length (4) | an event (length) | checksum of the event (4)
 *
 * in little-endian byte order, which this program assumes of the host. An event is a protobuf
 * message: fields of a key, number << 3 | kind, and a value.
 *
 *     Event       1 wall_time (double)  2 step (int64)  3 file_version (string)
 *                 5 summary: Summary    7 session_log: SessionLog
 *     Summary     1 value: Value, repeated
 *     Value       1 tag (string)        2 simple_value (float)
 *     SessionLog  1 status (enum; START is 1)
 */

enum { EVENTS_SCALARS = 16, EVENTS_TAG = 64 };

/* Size of the largest record: EVENTS_SCALARS tags with their values, and the other fields. */
enum { EVENTS_BYTES = EVENTS_SCALARS * (EVENTS_TAG + 16) + 64 };

/* Wire types of protobuf. */
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

/* Appends a field: a number of 4 or 8 bytes, or a sequence of bytes. */
static void message_field(struct message *message, int field, int kind, const void *value,
                          size_t size)
{
    message_varint(message, (uint64_t)(field << 3 | kind));
    if (kind == KIND_BYTES)
        message_varint(message, size);
    memcpy(message->bytes + message->size, value, size);
    message->size += size;
}

static void message_int(struct message *message, int field, int64_t value)
{
    message_varint(message, (uint64_t)(field << 3 | KIND_VARINT));
    message_varint(message, (uint64_t)value);
}

/* Begins an event with its time and step. */
static void message_begin(struct message *message, int64_t step)
{
    const double seconds = wall_time();

    message->size = 0;
    message_field(message, 1, KIND_64, &seconds, sizeof(seconds));
    message_int(message, 2, step);
}

/* Processes one bit at a time, which is sufficient for records of about 100 bytes. */
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

/*
 * Appends TensorBoard's masked CRC: rotated and offset, because records may contain checksums
 * themselves.
 */
static void message_checksum(struct message *message, const struct message *of)
{
    uint32_t crc = crc32c(of->bytes, of->size);

    crc = (crc >> 15 | crc << 17) + 0xa282ead8;
    memcpy(message->bytes + message->size, &crc, sizeof(crc));
    message->size += sizeof(crc);
}

/* Writes a record with a single write. */
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

/*
 * Creates the directory, if necessary, and in it a new file events.out.tfevents.TIME.HOST.PID. If
 * `resumed`, makes TensorBoard discard the events after `step` in the directory's earlier files.
 */
static int events_open(const char *folder, int64_t step, int resumed, FILE **file_p)
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
    message_field(&event, 3, KIND_BYTES, version, sizeof(version) - 1);
    if (events_write(*file_p, &event) < 0)
        return -1;
    if (!resumed)
        return 0;
    message_int(&session, 1, 1);
    message_begin(&event, step + 1);
    message_field(&event, 7, KIND_BYTES, session.bytes, session.size);
    return events_write(*file_p, &event);
}

struct events_scalar {
    const char *tag;
    double value;
};

/* Writes the values of one step as one record, and flushes it. At most 16 values. */
static int events_scalars(FILE *file, int64_t step, const struct events_scalar *scalars, int count)
{
    struct message event, summary = {.size = 0}, value;

    for (int i = 0; i < count && i < EVENTS_SCALARS; i++) {
        const float number = (float)scalars[i].value;

        value.size = 0;
        message_field(&value, 1, KIND_BYTES, scalars[i].tag, strnlen(scalars[i].tag, EVENTS_TAG));
        message_field(&value, 2, KIND_32, &number, sizeof(number));
        message_field(&summary, 1, KIND_BYTES, value.bytes, value.size);
    }
    message_begin(&event, step);
    message_field(&event, 5, KIND_BYTES, summary.bytes, summary.size);
    return events_write(file, &event);
}

/* ---- --metrics: lines of JSON, one write each ---- */

/* Writes a number. Infinity and NaN become null, because JSON cannot represent them. */
static void metrics_number(FILE *file, const char *name, double value)
{
    if (isfinite(value))
        fprintf(file, ", \"%s\": %.9g", name, value);
    else
        fprintf(file, ", \"%s\": null", name);
}

static void metrics_begin(FILE *file, const char *event, int64_t step, int64_t epoch)
{
    fprintf(file, "{\"event\": \"%s\", \"time\": %.6f, \"step\": %" PRId64 ", \"epoch\": %" PRId64,
            event, wall_time(), step, epoch);
}

static int metrics_end(FILE *file)
{
    fputs("}\n", file);
    return fflush(file) == 0 ? 0 : failure("%s", strerror(errno));
}

/* If setup->resumed, appends to the file, after completing its last line if that was cut off. */
static int metrics_open(const char *path, const struct records_setup *setup, FILE **file_p)
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

/*
 * Writes a line for `steps` steps. *step describes the last step, but its times and samples are the
 * sums over all these steps. loss is the mean over the steps.
 */
static int metrics_step(FILE *file, const struct record_step *step, double loss, int steps)
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

static int metrics_test(FILE *file, const struct record_test *test)
{
    metrics_begin(file, "test", test->step, test->epoch);
    metrics_number(file, "loss", test->loss);
    metrics_number(file, "accuracy", (double)test->correct / (double)test->count);
    fprintf(file, ", \"correct\": %" PRId64 ", \"count\": %" PRId64, test->correct, test->count);
    return metrics_end(file);
}

/* Closes a metrics or events file. */
static int metrics_close(FILE **file_p)
{
    FILE *file = *file_p;

    *file_p = NULL;
    return !file || fclose(file) == 0 ? 0 : failure("%s", strerror(errno));
}

/* ---- comparison of the ranks' clocks ---- */

enum { CLOCK_ROUNDS = 24 };

/* The times at which a rank entered and left each round. */
struct clock_times {
    double enter[CLOCK_ROUNDS], leave[CLOCK_ROUNDS];
};

struct clock_offset clock_bound(const double *enter0, const double *leave0, const double *enter,
                                const double *leave, int rounds)
{
    struct clock_offset offset = {.at = leave0[rounds - 1]};
    double least = -INFINITY, most = INFINITY;

    for (int i = 0; i < rounds; i++) {
        least = fmax(least, enter[i] - leave0[i]);
        most = fmin(most, leave[i] - enter0[i]);
    }
    /* Ranks on one machine share a clock; then an offset of 0 is within the bounds. */
    offset.offset = least <= 0 && most >= 0 ? 0 : (least + most) / 2;
    offset.error = fmax(most - offset.offset, offset.offset - least);
    return offset;
}

/*
 * Collective; blocks. Writes an offset per rank to offsets on rank 0; does not access offsets on
 * the other ranks.
 */
static dist_status clock_compare(dist_group *group, struct clock_offset *offsets)
{
    const int world = dist_get_world_size(group);
    struct clock_times own, *all = calloc((size_t)world, sizeof(*all));
    dist_status status = all ? DIST_OK : DIST_ERR_NO_MEMORY;

    /* The gathered values of these rounds are not used. */
    for (int i = 0; i < CLOCK_ROUNDS && status == DIST_OK; i++) {
        own.enter[i] = comm_now();
        status = dist_all_gather(group, own.enter + i, all, 1, DIST_FLOAT64);
        own.leave[i] = comm_now();
    }
    if (status == DIST_OK)
        status = dist_all_gather(group, &own, all, sizeof(own) / sizeof(double), DIST_FLOAT64);
    if (status == DIST_OK && dist_get_rank(group) == 0) {
        for (int rank = 0; rank < world; rank++)
            offsets[rank] = clock_bound(all[0].enter, all[0].leave, all[rank].enter,
                                        all[rank].leave, CLOCK_ROUNDS);
        offsets[0].error = 0;
    }
    free(all);
    return status;
}

double clock_aligned(const struct clock_offset *first, const struct clock_offset *last, double time)
{
    const double span = last->at - first->at;
    double part = span > 0 ? (time - first->offset - first->at) / span : 0;

    part = part < 0 ? 0 : part > 1 ? 1 : part;
    return time - (first->offset + part * (last->offset - first->offset));
}

/* ---- --trace: spans of a rank, and the file ---- */

/* The rows of a rank in the timeline: one for the parts of a step, and one for each bucket. */
enum { TRACE_ROW_STEPS = 0, TRACE_ROW_BUCKETS = 1 };

struct trace {
    struct trace_span *spans; /* a ring of TRACE_SPANS spans; NULL: no trace */
    int64_t count;            /* spans ever added; the last is at (count - 1) % TRACE_SPANS */
    struct clock_offset *first,
        *last; /* rank 0: offsets of all ranks at the start and at the end */
};

/* Names a process (row -1) or one of its rows. */
static void trace_name(int rank, int row, const char *name, FILE *to)
{
    fprintf(to, "{\"ph\": \"M\", \"pid\": %d, \"tid\": %d, \"name\": \"%s\", \"args\": {\"name\": ",
            rank, row < 0 ? 0 : row, row < 0 ? "process_name" : "thread_name");
    json_quoted(name, to);
    fputs("}},\n", to);
}

void trace_track(const struct trace_track *track, const struct trace_span *spans, double origin,
                 FILE *to)
{
    char name[128];
    int buckets = 0;

    for (int64_t i = 0; i < track->count; i++)
        if (spans[i].part == RECORD_BUCKET && spans[i].number >= buckets)
            buckets = spans[i].number + 1;
    if (track->rank > 0)
        fputs(",\n", to);
    snprintf(name, sizeof(name), "rank %d on %s", track->rank, track->host);
    trace_name(track->rank, -1, name, to);
    trace_name(track->rank, TRACE_ROW_STEPS, "steps", to);
    for (int i = 0; i < buckets; i++) {
        snprintf(name, sizeof(name), "bucket %d", i);
        trace_name(track->rank, TRACE_ROW_BUCKETS + i, name, to);
    }
    /* Viewers sort processes by this number. */
    fprintf(to,
            "{\"ph\": \"M\", \"pid\": %d, \"tid\": 0, \"name\": \"process_sort_index\", \"args\": "
            "{\"sort_index\": %d}}",
            track->rank, track->rank);
    if (track->lost > 0)
        fprintf(
            to,
            ",\n{\"ph\": \"i\", \"s\": \"p\", \"pid\": %d, \"tid\": %d, \"ts\": %.3f, \"name\": "
            "\"%" PRId64 " earlier spans were not kept\"}",
            track->rank, TRACE_ROW_STEPS,
            (clock_aligned(&track->first, &track->last, track->earliest) - origin) * 1e6,
            track->lost);
    for (int64_t i = 0; i < track->count; i++) {
        const struct trace_span *span = &spans[i];
        const double began = clock_aligned(&track->first, &track->last, span->began);
        const double ended = clock_aligned(&track->first, &track->last, span->ended);
        const char *part =
            span->part >= 0 && span->part < RECORD_PARTS ? record_part_names[span->part] : "?";
        const bool bucket = span->part == RECORD_BUCKET;

        fprintf(to, ",\n{\"ph\": \"X\", \"pid\": %d, \"tid\": %d, \"ts\": %.3f, \"dur\": %.3f, ",
                track->rank, bucket ? TRACE_ROW_BUCKETS + span->number : TRACE_ROW_STEPS,
                (began - origin) * 1e6, ended > began ? (ended - began) * 1e6 : 0.0);
        fprintf(to, "\"name\": \"%s\", \"cat\": \"%s\", \"args\": {\"step\": %" PRId64 "}}", part,
                bucket ? "communication" : "step", span->step);
    }
}

/* ---- collection of all ranks' spans in one file ---- */

enum { TRACE_TAG = 1 };

/*
 * Rank 0: receives and writes the spans of one rank after the other, to limit memory. `tracks` must
 * be complete.
 */
static dist_status trace_put(const struct trace *trace, dist_group *group,
                             struct trace_track *tracks, int world, struct trace_span *spans,
                             FILE *to)
{
    dist_status status = DIST_OK;
    double error = 0, origin = INFINITY;

    /* The origin of the timeline is the earliest time of all ranks on rank 0's clock. */
    for (int rank = 0; rank < world; rank++) {
        struct trace_track *track = &tracks[rank];

        track->first = trace->first[rank];
        track->last = trace->last[rank];
        error = fmax(error, fmax(track->first.error, track->last.error));
        if (track->count)
            origin = fmin(origin, clock_aligned(&track->first, &track->last, track->earliest));
    }
    origin = isfinite(origin) ? origin : 0;
    fprintf(to,
            "{\"displayTimeUnit\": \"ms\", \"otherData\": {\"clock_error_us\": %.3f},\n"
            "\"traceEvents\": [\n",
            error * 1e6);
    trace_track(&tracks[0], spans, origin, to);
    for (int rank = 1; rank < world && status == DIST_OK; rank++) {
        status = dist_recv(group, spans, (size_t)tracks[rank].count * sizeof(*spans), DIST_UINT8,
                           rank, TRACE_TAG, NULL);
        if (status == DIST_OK)
            trace_track(&tracks[rank], spans, origin, to);
    }
    fputs("\n]}\n", to);
    return status;
}

/*
 * Sends all ranks' spans to rank 0, which writes them to a draft and renames it. Collective with a
 * group; if group is NULL, the file contains only this rank's spans. *status_p receives the status
 * of the collectives. -1: the file could not be written.
 */
static int trace_write(const struct trace *trace, const char *path, dist_group *group,
                       dist_status *status_p)
{
    const int world = group ? dist_get_world_size(group) : 1;
    struct trace_track own = {.rank = group ? dist_get_rank(group) : 0};
    struct trace_track *tracks = calloc((size_t)world, sizeof(*tracks));
    struct trace_span *spans =
        calloc(TRACE_SPANS, sizeof(*spans)); /* rank 0: also those received from other ranks */
    char *draft = NULL;
    FILE *to = NULL;
    int result = 0, fd;

    gethostname(own.host, sizeof(own.host));
    /* Copy the spans in the order in which they ended. */
    own.count = trace->count < TRACE_SPANS ? trace->count : TRACE_SPANS;
    own.lost = trace->count - own.count;
    own.earliest = own.count ? INFINITY : 0;
    for (int64_t i = 0; spans && i < own.count; i++) {
        spans[i] = trace->spans[(own.lost + i) % TRACE_SPANS];
        own.earliest = fmin(own.earliest, spans[i].began);
    }
    *status_p = tracks && spans ? DIST_OK : DIST_ERR_NO_MEMORY;
    if (*status_p == DIST_OK && group)
        *status_p = dist_gather(group, &own, tracks, sizeof(own), DIST_UINT8, 0);
    else if (*status_p == DIST_OK)
        tracks[0] = own;
    if (*status_p == DIST_OK && own.rank != 0) {
        *status_p =
            dist_send(group, spans, (size_t)own.count * sizeof(*spans), DIST_UINT8, 0, TRACE_TAG);
    } else if (*status_p == DIST_OK) {
        /* Write a draft in the same directory, and rename it at the end. */
        fd = draft_open(path, &draft);
        to = fd >= 0 ? fdopen(fd, "w") : NULL;
        result = to ? 0 : failure("%s", strerror(errno));
        /*
         * The other ranks send in any case, so their spans must be received even if the file cannot
         * be written.
         */
        if (!to)
            to = fopen("/dev/null", "we");
        *status_p = to ? trace_put(trace, group, tracks, world, spans, to) : DIST_ERR_SYSTEM;
        /* Rename the draft only if everything was written. */
        errno = 0;
        if (result == 0 && *status_p == DIST_OK &&
            (fflush(to) != 0 || ferror(to) || draft_finish(draft, fileno(to)) < 0))
            result = failure("%s", errno ? strerror(errno) : "a write failed");
        if (draft && (result < 0 || *status_p != DIST_OK))
            unlink(draft);
        if (to)
            fclose(to);
        free(draft);
    }
    free(tracks);
    free(spans);
    return result;
}

/* ---- time and waiting of the ranks ---- */

/* Divides the waits since the last comparison into communication and waiting for other ranks. */
static dist_status balance_compare(struct balance *balance, dist_group *group)
{
    dist_status status;

    if (balance->pending == 0)
        return DIST_OK;
    status = dist_all_reduce(group, balance->waits, balance->least, (size_t)balance->pending,
                             DIST_FLOAT32, DIST_MIN);
    for (int i = 0; i < balance->pending && status == DIST_OK; i++) {
        balance->own.seconds[BALANCE_COMMUNICATION] += balance->least[i];
        balance->own.seconds[BALANCE_WAITING] += balance->waits[i] - balance->least[i];
    }
    balance->pending = 0;
    return status;
}

/* ---- the records ---- */

struct records {
    struct records_setup setup;
    dist_group *group; /* NULL until records_start */
    FILE *metrics, *events;
    struct trace trace;
    struct record_step
        pending[RECORDS_AHEAD]; /* ring of steps that have no losses yet, beginning at `first` */
    int64_t first, steps;       /* counted from the start of this run */
    struct record_step sum;     /* sum of the steps since the last line */
    double losses;              /* sum of their losses */
    int summed;
    struct page *page; /* NULL: no report. All ranks have one for the balance; rank 0 writes it */
    bool page_lost;    /* the page could not be written, which has been reported */
    const char *lost;  /* option of an incomplete file; NULL: all are complete */
};

/* Sets the message of an error at the start, which ends the job. Returns -1. */
static int records_refuse(const char *option, const char *path)
{
    char why[512];

    snprintf(why, sizeof(why), "%s", failure_text());
    return failure("%s %s: %s", option, path, why);
}

/*
 * Ends the record after an error and reports it. The training continues, because it is worth more
 * than its records.
 */
static void records_lose(struct records *records, const char *option, const char *path, FILE **file)
{
    records->lost = option;
    fprintf(stderr, "%s: warning: %s %s: %s. Training continues without it\n",
            records->setup.program, option, path, failure_text());
    if (file)
        metrics_close(file);
}

static int records_collective(dist_status status)
{
    return status == DIST_OK ? 0 : failure_dist("collecting the records of the ranks");
}

static void records_write_page(struct records *records)
{
    if (records->setup.rank != 0 || records->page_lost ||
        page_write(records->page, records->setup.options->report) == 0)
        return;
    records_lose(records, "--report", records->setup.options->report, NULL);
    records->page_lost = true;
}

static int records_open_files(struct records *records)
{
    const struct records_setup *setup = &records->setup;
    const struct options *options = setup->options;
    const bool first = setup->rank == 0;

    if (options->metrics && first && metrics_open(options->metrics, setup, &records->metrics) < 0)
        return records_refuse("--metrics", options->metrics);
    if (options->tensorboard && first &&
        events_open(options->tensorboard, setup->step, setup->resumed, &records->events) < 0)
        return records_refuse("--tensorboard", options->tensorboard);
    if (options->report) {
        struct page *page = records->page = calloc(1, sizeof(*page));
        struct balance_rank *ranks = calloc((size_t)setup->world, sizeof(*ranks));

        if (!page || !ranks) {
            free(ranks);
            return failure("--report %s: out of memory", options->report);
        }
        page->setup = setup;
        page->balance.world = setup->world;
        page->balance.ranks = ranks;
        if (first && page_write(page, options->report) < 0)
            return records_refuse("--report", options->report);
    }
    if (options->trace) {
        struct trace *trace = &records->trace;

        trace->spans = calloc(TRACE_SPANS, sizeof(*trace->spans));
        trace->first = calloc((size_t)setup->world, sizeof(*trace->first));
        trace->last = calloc((size_t)setup->world, sizeof(*trace->last));
        if (!trace->spans || !trace->first || !trace->last)
            return failure("--trace %s: out of memory", options->trace);
        /* Check now whether the file can be written at the end. */
        if (first && file_can_replace(options->trace) < 0)
            return records_refuse("--trace", options->trace);
    }
    return 0;
}

static void records_free(struct records *records)
{
    metrics_close(&records->metrics);
    metrics_close(&records->events);
    free(records->trace.spans);
    free(records->trace.first);
    free(records->trace.last);
    if (records->page) {
        free(records->page->balance.ranks);
        free(records->page->topology);
        free(records->page);
    }
    free(records);
}

int records_open(const struct records_setup *setup, struct records **records_p)
{
    struct records *records = calloc(1, sizeof(*records));

    if (!records)
        return failure("out of memory for the records");
    records->setup = *setup;
    if (records_open_files(records) < 0) {
        records_free(records);
        return -1;
    }
    *records_p = records;
    return 0;
}

int records_start(struct records *records, dist_group *group)
{
    struct topology topology;
    dist_status status = DIST_OK;
    char *text = NULL;
    size_t size;
    FILE *to = NULL;

    if (!records)
        return 0;
    records->group = group;
    if (records->page) {
        records->page->group = group;
        status = topology_gather_group(group, &topology);
        /* Rank 0 draws the picture of `dist_info topology`. */
        if (status == DIST_OK && records->setup.rank == 0)
            to = open_memstream(&text, &size);
        if (to)
            topology_draw(&topology, to);
        if (to && fclose(to) == 0)
            records->page->topology = text;
        else
            free(text);
        free(topology.machine);
        free(topology.rank);
    }
    if (status == DIST_OK && records->trace.spans)
        status = clock_compare(group, records->trace.first);
    return records_collective(status);
}

void records_span(struct records *records, enum record_part part, int64_t step, int number,
                  double began, double ended)
{
    const struct trace_span span = {began, ended, step, part, number};

    if (records && records->trace.spans)
        records->trace.spans[records->trace.count++ % TRACE_SPANS] = span;
}

int records_step(struct records *records, const struct record_step *step)
{
    static const enum balance_part parts[RECORD_IN_STEP] = {
        [RECORD_DATA] = BALANCE_DATA,         [RECORD_FORWARD] = BALANCE_FORWARD,
        [RECORD_BACKWARD] = BALANCE_BACKWARD, [RECORD_WAIT] = BALANCE_PARTS,
        [RECORD_UPDATE] = BALANCE_UPDATE,
    };
    double other = step->seconds;
    struct balance *balance;

    records->pending[records->steps++ % RECORDS_AHEAD] = *step;
    if (!records->page)
        return 0;
    balance = &records->page->balance;
    for (int i = 0; i < RECORD_IN_STEP; i++) {
        other -= step->parts[i];
        if (parts[i] != BALANCE_PARTS)
            balance->own.seconds[parts[i]] += step->parts[i];
    }
    balance->own.seconds[BALANCE_OTHER] += other > 0 ? other : 0;
    balance->own.steps++;
    balance->waits[balance->pending++] = (float)step->parts[RECORD_WAIT];
    return balance->pending == BALANCE_STEPS
               ? records_collective(balance_compare(balance, records->group))
               : 0;
}

/* Writes the steps since the last line as one line. */
static void records_line(struct records *records)
{
    const struct options *options = records->setup.options;
    const struct record_step *sum = &records->sum;
    double loss;

    if (records->summed == 0)
        return;
    loss = records->losses / records->summed;
    if (records->metrics && metrics_step(records->metrics, sum, loss, records->summed) < 0)
        records_lose(records, "--metrics", options->metrics, &records->metrics);
    if (records->events) {
        const struct events_scalar scalars[] = {
            {"loss/train", loss},
            {"lr", sum->lr},
            {"samples_per_s", (double)sum->samples / sum->seconds},
        };

        if (events_scalars(records->events, sum->step, scalars, 3) < 0)
            records_lose(records, "--tensorboard", options->tensorboard, &records->events);
    }
    records->sum = (struct record_step){.step = 0};
    records->losses = 0;
    records->summed = 0;
}

void records_losses(struct records *records, const double *losses, int count)
{
    for (int i = 0; records && i < count && records->first < records->steps; i++) {
        const struct record_step *step = &records->pending[records->first++ % RECORDS_AHEAD];
        struct record_step *sum = &records->sum;

        if (records->page)
            page_add_step(records->page, step, losses[i]);
        if (!records->metrics && !records->events)
            continue;
        sum->step = step->step;
        sum->epoch = step->epoch;
        sum->lr = step->lr;
        sum->samples += step->samples;
        sum->seconds += step->seconds;
        for (int part = 0; part < RECORD_IN_STEP; part++)
            sum->parts[part] += step->parts[part];
        records->losses += losses[i];
        records->summed++;
        if (step->step % records->setup.options->record_interval == 0)
            records_line(records);
    }
}

int records_test(struct records *records, const struct record_test *test)
{
    const struct events_scalar scalars[] = {
        {"loss/test", test->loss},
        {"accuracy", (double)test->correct / (double)test->count},
    };
    struct balance *balance;
    dist_status status;

    if (!records)
        return 0;
    records_line(records);
    if (records->metrics && metrics_test(records->metrics, test) < 0)
        records_lose(records, "--metrics", records->setup.options->metrics, &records->metrics);
    if (records->events && events_scalars(records->events, test->step, scalars, 2) < 0)
        records_lose(records, "--tensorboard", records->setup.options->tensorboard,
                     &records->events);
    if (!records->page)
        return 0;
    page_add_test(records->page, test);
    records->page->share = test->share;
    balance = &records->page->balance;
    status = balance_compare(balance, records->group);
    if (status == DIST_OK)
        status = dist_all_gather(records->group, &balance->own, balance->ranks,
                                 sizeof(balance->own) / sizeof(double), DIST_FLOAT64);
    if (records_collective(status) < 0)
        return -1;
    records_write_page(records);
    return 0;
}

/* Checks the result of closing, because some file systems report a full disk only then. */
int records_close(struct records *records, const char *failed, double share)
{
    dist_group *group = records && !failed ? records->group : NULL;
    dist_status status = DIST_OK;
    int result = 0;

    if (!records)
        return 0;
    records_line(records);
    if (records->trace.spans) {
        if (group)
            status = clock_compare(group, records->trace.last);
        if (status == DIST_OK && (group || records->setup.rank == 0))
            result = trace_write(&records->trace, records->setup.options->trace, group, &status);
        if (status != DIST_OK)
            result = failure_dist("gathering the spans of the ranks");
        if (result < 0 && records->setup.rank == 0)
            records_lose(records, "--trace", records->setup.options->trace, NULL);
    }
    if (records->page) {
        records->page->ended = true;
        records->page->failed = failed;
        if (!failed)
            records->page->share = share;
        records_write_page(records);
    }
    if (metrics_close(&records->metrics) < 0)
        records_lose(records, "--metrics", records->setup.options->metrics, NULL);
    if (metrics_close(&records->events) < 0)
        records_lose(records, "--tensorboard", records->setup.options->tensorboard, NULL);
    result = 0;
    if (records->lost)
        result = failure("%s: the file is incomplete: see the warning above", records->lost);
    records_free(records);
    return result;
}
