/* SPDX-License-Identifier: BSD-3-Clause */
/* The files that a training writes, read back by other code than that which wrote them. */
#include "unit.h"

#include <dirent.h>
#include <math.h>

#include "train/options.h"
#include "train/records.h"

/* Returns the file's text; the caller frees it. */
static char *read_text(const char *path, size_t *size_p)
{
    FILE *file = fopen(path, "rb");
    char *text = calloc(1, 1 << 20);

    assert_non_null(file);
    assert_non_null(text);
    *size_p = fread(text, 1, (1 << 20) - 1, file);
    fclose(file);
    return text;
}

/* ---- checksums ---- */

/* The values of RFC 3720, B.4, and the usual check value of CRC catalogues. */
static void test_CRC_32C_matches_known_values(void **state)
{
    uint8_t bytes[32] = {0};

    (void)state;
    assert_int_equal(crc32c("123456789", 9), 0xe3069283);
    assert_int_equal(crc32c(bytes, 32), 0x8a9136aa);
    memset(bytes, 0xff, 32);
    assert_int_equal(crc32c(bytes, 32), 0x62a8ab43);
    assert_int_equal(crc32c(bytes, 0), 0);
}

/* ---- TensorBoard's file ---- */

/* A record, found by its lengths. Its checksums are computed bit by bit, in the other direction. */
struct record {
    const uint8_t *bytes;
    size_t size;
};

static uint32_t reflected(uint32_t value, int bits)
{
    uint32_t turned = 0;

    for (int i = 0; i < bits; i++)
        turned |= (value >> i & 1) << (bits - 1 - i);
    return turned;
}

static uint32_t checksum(const uint8_t *bytes, size_t size)
{
    uint32_t crc = 0xffffffff;

    for (size_t i = 0; i < size; i++) {
        crc ^= reflected(bytes[i], 8) << 24;
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 0x80000000 ? crc << 1 ^ 0x1edc6f41 : crc << 1;
    }
    crc = ~reflected(crc, 32);
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

static uint64_t little(const uint8_t *bytes, int count)
{
    uint64_t value = 0;

    while (count-- > 0)
        value = value << 8 | bytes[count];
    return value;
}

static int read_records(const uint8_t *bytes, size_t size, struct record *records, int most)
{
    int count = 0;

    for (size_t at = 0; at < size;) {
        const size_t length = (size_t)little(bytes + at, 8);

        assert_true(at + 16 + length <= size);
        assert_int_equal(little(bytes + at + 8, 4), checksum(bytes + at, 8));
        assert_int_equal(little(bytes + at + 12 + length, 4), checksum(bytes + at + 12, length));
        assert_true(count < most);
        records[count++] = (struct record){bytes + at + 12, length};
        at += 16 + length;
    }
    return count;
}

/* The next field of a protobuf message: its number, with its value or its bytes. */
struct field {
    int number;
    uint64_t value;
    const uint8_t *bytes;
};

static uint64_t varint(const uint8_t **at_p)
{
    uint64_t value = 0;
    int shift = 0;

    for (; **at_p & 128; (*at_p)++, shift += 7)
        value |= (uint64_t)(**at_p & 127) << shift;
    value |= (uint64_t)(**at_p) << shift;
    (*at_p)++;
    return value;
}

static struct field next_field(const uint8_t **at_p)
{
    const uint64_t key = varint(at_p);
    struct field field = {.number = (int)(key >> 3)};

    switch (key & 7) {
    case 0:
        field.value = varint(at_p);
        break;
    case 1:
        field.value = little(*at_p, 8);
        *at_p += 8;
        break;
    case 2:
        field.value = varint(at_p);
        field.bytes = *at_p;
        *at_p += field.value;
        break;
    case 5:
        field.value = little(*at_p, 4);
        *at_p += 4;
        break;
    default:
        fail_msg("field %d has kind %d", field.number, (int)(key & 7));
    }
    return field;
}

/* Finds the only events file in the directory "logs". */
static void find_event_file(char *path, size_t size)
{
    DIR *folder = opendir("logs");
    struct dirent *entry;
    int found = 0;

    assert_non_null(folder);
    while ((entry = readdir(folder)))
        if (strncmp(entry->d_name, "events.out.tfevents.", 20) == 0) {
            snprintf(path, size, "logs/%s", entry->d_name);
            found++;
        }
    closedir(folder);
    assert_int_equal(found, 1);
}

static void check_scalar(const struct field *value, const char *tag, float number)
{
    const uint8_t *at = value->bytes;
    const struct field name = next_field(&at), simple = next_field(&at);
    const uint32_t bits = (uint32_t)simple.value;
    float got;

    memcpy(&got, &bits, sizeof(got));
    assert_int_equal(name.number, 1);
    assert_int_equal(name.value, strlen(tag));
    assert_memory_equal(name.bytes, tag, strlen(tag));
    assert_int_equal(simple.number, 2);
    assert_true(got == number || (isnan(got) && isnan(number)));
    assert_ptr_equal(at, value->bytes + value->value);
}

static void test_TensorBoard_events_are_written(void **state)
{
    const struct options options = {.tensorboard = "logs", .record_interval = 1};
    const struct records_setup setup = {
        .options = &options, .step = 299, .resumed = true, .world = 1};
    const struct record_step step = {
        .step = 300, .epoch = 1, .samples = 1, .lr = NAN, .seconds = 1};
    const double loss = 0.5;
    struct records *to;
    struct record records[4];
    struct field field;
    const uint8_t *at;
    char path[300], *text;
    size_t size;

    (void)state;
    assert_int_equal(records_open(&setup, &to), 0);
    assert_int_equal(records_step(to, &step), 0);
    records_losses(to, &loss, 1);
    assert_int_equal(records_close(to, NULL, 0), 0);
    find_event_file(path, sizeof(path));
    text = read_text(path, &size);
    assert_int_equal(read_records((uint8_t *)text, size, records, 4), 3);

    at = records[0].bytes;
    assert_int_equal(next_field(&at).number, 1); /* wall time */
    assert_int_equal(next_field(&at).number, 2);
    field = next_field(&at);
    assert_int_equal(field.number, 3);
    assert_memory_equal(field.bytes, "brain.Event:2", 13);

    at = records[1].bytes; /* resumed after step 299 */
    next_field(&at);
    assert_int_equal(next_field(&at).value, 300);
    assert_int_equal(next_field(&at).number, 7);

    at = records[2].bytes;
    next_field(&at);
    assert_int_equal(next_field(&at).value, 300);
    field = next_field(&at);
    assert_int_equal(field.number, 5);
    at = field.bytes;
    field = next_field(&at);
    check_scalar(&field, "loss/train", 0.5F);
    field = next_field(&at);
    check_scalar(&field, "lr", NAN);
    free(text);
}

static void test_a_bad_TensorBoard_directory_is_an_error(void **state)
{
    struct options options = {.tensorboard = "plain"};
    const struct records_setup setup = {.options = &options, .world = 1};
    struct records *records;

    (void)state;
    unit_write("plain", "x", 1);
    assert_int_equal(records_open(&setup, &records), -1);
    unit_failed_with("Not a directory");
    options.tensorboard = "no/where";
    assert_int_equal(records_open(&setup, &records), -1);
    unit_failed_with("No such file");
}

/* ---- lines of JSON ---- */

/* Writes two steps, which become one line, and a test. */
static void write_metrics(bool resumed, int64_t first)
{
    const struct options options = {.metrics = "metrics.jsonl", .record_interval = 2};
    const struct records_setup setup = {
        .options = &options, .resumed = resumed, .step = first - 1, .world = 2};
    const struct record_test test = {
        .step = first + 1, .epoch = 1, .loss = 2, .correct = 3, .count = 4};
    const double losses[2] = {NAN, 1};
    struct records *records;

    assert_int_equal(records_open(&setup, &records), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(records_step(records, &(struct record_step){.step = first + i,
                                                                     .epoch = 1,
                                                                     .samples = 32,
                                                                     .seconds = .25}),
                         0);
    records_losses(records, losses, 2);
    assert_int_equal(records_test(records, &test), 0);
    assert_int_equal(records_close(records, NULL, 0), 0);
}

static int count_of(const char *text, const char *part)
{
    int count = 0;

    for (; (text = strstr(text, part)); text++)
        count++;
    return count;
}

/* A line that was cut when the job was killed does not damage the next one. */
static void test_metrics_are_lines_of_JSON(void **state)
{
    char *text;
    size_t size;
    FILE *file;

    (void)state;
    write_metrics(false, 1);
    file = fopen("metrics.jsonl", "a");
    fputs("{\"event\": \"st", file);
    fclose(file);
    write_metrics(true, 3);
    text = read_text("metrics.jsonl", &size);
    assert_int_equal(count_of(text, "\n"), 7);
    assert_int_equal(count_of(text, "\n{\"event\": \"resume\""), 1);
    assert_int_equal(count_of(text, "\"loss\": null"), 2);
    assert_int_equal(count_of(text, "\"samples_per_s\": 128,"), 2);
    assert_int_equal(count_of(text, "\"step_s\": 0.25,"), 2); /* of one of the two steps */
    assert_int_equal(count_of(text, "\"accuracy\": 0.75,"), 2);
    assert_null(strstr(text, "nan"));
    free(text);
    write_metrics(false, 1);
    text = read_text("metrics.jsonl", &size);
    assert_int_equal(count_of(text, "\n"), 3);
    free(text);
}

static void test_a_full_disk_is_reported(void **state)
{
    const struct options options = {.metrics = "/dev/full"};
    const struct records_setup setup = {.options = &options, .world = 1};
    struct records *records;

    (void)state;
    if (access("/dev/full", W_OK) != 0)
        skip();
    assert_int_equal(records_open(&setup, &records), -1);
    unit_failed_with("No space left");
}

/* ---- clocks and the timeline ---- */

/* Compares rank 0's clock with one that is `apart` ahead. A call takes 1 s, and the ranks enter it
 * at different times. */
static struct clock_offset compare(double apart, double late)
{
    double enter0[2] = {10, 20}, leave0[2] = {12, 21.5}, enter[2], leave[2];

    for (int i = 0; i < 2; i++) {
        enter[i] = enter0[i] + late + apart;
        leave[i] = leave0[i] + apart;
    }
    return clock_bound(enter0, leave0, enter, leave, 2);
}

static void test_clock_offsets_are_bounded(void **state)
{
    struct clock_offset offset = compare(100, 0.5), last;

    (void)state;
    assert_true(fabs(offset.offset - 100) <= offset.error);
    assert_true(offset.error <= 1.5);
    offset = compare(0, 0.5);
    assert_true(offset.offset == 0);
    offset = (struct clock_offset){.at = 0, .offset = 100};
    last = (struct clock_offset){.at = 1000, .offset = 101};
    assert_true(fabs(clock_aligned(&offset, &last, 100) - 0) < 1e-6);
    assert_true(fabs(clock_aligned(&offset, &last, 600.5) - 500) < 0.01);
    assert_true(fabs(clock_aligned(&offset, &last, 1101) - 1000) < 0.01);
}

/* More spans than fit: the last ones are kept, and the file says how many are missing. */
static void test_a_trace_keeps_the_last_spans(void **state)
{
    const struct options options = {.trace = "trace.json"};
    const struct records_setup setup = {.options = &options, .world = 1};
    struct records *records;
    size_t size;
    char *text;

    (void)state;
    assert_int_equal(records_open(&setup, &records), 0);
    for (int i = 0; i < TRACE_SPANS + 10; i++)
        records_span(records, i % 2 ? RECORD_BUCKET : RECORD_FORWARD, i, 3, i, i + 0.5);
    assert_int_equal(records_close(records, NULL, 0), 0);
    assert_int_equal(unit_count("trace.json.tmp-*"), 0);
    text = read_text("trace.json", &size);
    assert_non_null(strstr(text, "\"name\": \"10 earlier spans were not kept\""));
    assert_non_null(strstr(text, "\"tid\": 0, \"ts\": 0.000, \"dur\": 500000.000"));
    assert_non_null(strstr(text, "{\"name\": \"bucket 3\"}"));
    free(text);
}

/* The text of a small file, and the name of a rank. (The job's test parses such files as JSON.) */
static void test_the_text_of_a_trace(void **state)
{
    const struct trace_track track = {.rank = 0, .host = "a\"b", .count = 0};
    const struct options options = {.trace = "small.json"};
    const struct records_setup setup = {.options = &options, .world = 1};
    struct records *records;
    char *text = NULL;
    size_t size;
    FILE *to = open_memstream(&text, &size);

    (void)state;
    trace_track(&track, NULL, 0, to);
    fclose(to);
    assert_non_null(strstr(text, "rank 0 on a\\\"b"));
    free(text);
    assert_int_equal(records_open(&setup, &records), 0);
    assert_int_equal(records_close(records, NULL, 0), 0);
    text = read_text("small.json", &size);
    assert_non_null(strstr(text, "\"clock_error_us\": 0.000"));
    assert_non_null(strstr(text, "}\n]}\n"));
    free(text);
}

/* Runs as one of two ranks that record no span: the file has the error bound of their clocks. */
static int trace_clocks(int rank, void *arg)
{
    const struct options options = {.trace = "clocks.json"};
    const struct records_setup setup = {
        .options = &options, .program = "test", .rank = rank, .world = 2};
    struct dist_options join = DIST_OPTIONS_INIT;
    struct records *records;
    dist_group *group;

    (void)arg;
    return dist_init_process_group(&join, &group) < 0 || records_open(&setup, &records) < 0 ||
           records_start(records, group) < 0 || records_close(records, NULL, 0) < 0 ||
           dist_destroy_process_group(group) < 0;
}

/* The error is at most the duration of a round trip: some microseconds, which would be 0.000 in
 * seconds. */
static void test_the_clock_error_is_in_microseconds(void **state)
{
    const double began = comm_now();
    const char *at;
    size_t size;
    int code = -1;
    char *text;

    (void)state;
    assert_int_equal(dist_spawn(2, trace_clocks, NULL, &code), 0);
    assert_int_equal(code, 0);
    text = read_text("clocks.json", &size);
    at = strstr(text, "\"clock_error_us\": ");
    assert_non_null(at);
    assert_true(atof(at + strlen("\"clock_error_us\": ")) > 0);
    assert_true(atof(at + strlen("\"clock_error_us\": ")) < 1e6 * (comm_now() - began));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_CRC_32C_matches_known_values),
        cmocka_unit_test(test_TensorBoard_events_are_written),
        cmocka_unit_test(test_a_bad_TensorBoard_directory_is_an_error),
        cmocka_unit_test(test_metrics_are_lines_of_JSON),
        cmocka_unit_test(test_a_full_disk_is_reported),
        cmocka_unit_test(test_clock_offsets_are_bounded),
        cmocka_unit_test(test_a_trace_keeps_the_last_spans),
        cmocka_unit_test(test_the_text_of_a_trace),
        cmocka_unit_test(test_the_clock_error_is_in_microseconds),
    };

    return cmocka_run_group_tests_name("train/records", tests, unit_enter_folder,
                                       unit_leave_folder);
}
