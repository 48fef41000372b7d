/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reads and writes safetensors files and model parameters in them; manages directories of such
 * files; writes files in a separate thread.
 */
#include <config.h>

#include "checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef HAVE_JANSSON
#include <jansson.h>
#endif
#ifdef HAVE_ZLIB
#include <zlib.h>
#endif

#include "failure.h"
#include "file.h"
#include "tools/common/output.h"

/* ---- the header: tensors and notes ---- */

/* Returns the tensor of that name, or NULL. */
static const struct tensor *tensors_find(const struct tensors *tensors, const char *name)
{
    for (int i = 0; i < tensors->count; i++) {
        if (strcmp(tensors->tensors[i].name, name) == 0)
            return &tensors->tensors[i];
    }
    return NULL;
}

/* Returns the value of the note with that key, or NULL. */
static const char *tensors_note(const struct tensors *tensors, const char *key)
{
    for (int i = 0; i < tensors->note_count; i++) {
        if (strcmp(tensors->notes[i].key, key) == 0)
            return tensors->notes[i].text;
    }
    return NULL;
}

/* Appends a note. The caller adds at most TENSORS_NOTES; longer values are truncated. */
__attribute__((format(printf, 3, 4))) static void
tensors_add_note(struct tensors *tensors, const char *key, const char *format, ...)
{
    struct tensors_note *note = &tensors->notes[tensors->note_count++];
    va_list args;

    snprintf(note->key, sizeof(note->key), "%s", key);
    va_start(args, format);
    vsnprintf(note->text, sizeof(note->text), format, args);
    va_end(args);
}

/* ---- the JSON of the header ---- */

#ifdef HAVE_JANSSON

/* Reports an invalid value of the named key. Returns -1. */
static int value_wrong(const char *path, const char *name, const char *what)
{
    return failure("%s: %s in the header: %s", path, name, what);
}

static int tensor_read(const char *path, const char *name, json_t *value, struct tensors *tensors)
{
    static const char wrong_shape[] = "expected a shape of at most 4 whole numbers";
    static const char counter[] = ".num_batches_tracked";
    const size_t length = strlen(name), ending = strlen(counter);
    struct tensor *tensor = &tensors->tensors[tensors->count];
    json_int_t begin, end;
    json_error_t error;
    const char *dtype;
    json_t *shape, *number;
    size_t i;

    if (tensors->count == TENSORS_MOST)
        return value_wrong(path, name, "expected at most 256 tensors");
    if (length >= sizeof(tensor->name))
        return value_wrong(path, name, "expected a shorter name");
    if (json_unpack_ex(value, &error, JSON_STRICT, "{s:s, s:o, s:[I, I]}", "dtype", &dtype, "shape",
                       &shape, "data_offsets", &begin, &end) < 0)
        return value_wrong(path, name, error.text);
    if (strcmp(dtype, "F32") == 0)
        tensor->width = sizeof(float);
    else if (strcmp(dtype, "I64") == 0 && length > ending &&
             strcmp(name + length - ending, counter) == 0)
        tensor->width = sizeof(int64_t);
    else
        return value_wrong(path, name, "expected dtype F32");
    if (!json_is_array(shape) || json_array_size(shape) > TENSORS_DIMENSIONS)
        return value_wrong(path, name, wrong_shape);
    json_array_foreach(shape, i, number)
    {
        if (!json_is_integer(number) || json_integer_value(number) < 0)
            return value_wrong(path, name, wrong_shape);
        tensor->shape[tensor->dimensions++] = (uint64_t)json_integer_value(number);
    }
    if (begin < 0 || end < 0)
        return value_wrong(path, name, "expected data_offsets of 0 and more");
    strcpy(tensor->name, name);
    tensor->begin = (uint64_t)begin;
    tensor->end = (uint64_t)end;
    tensors->count++;
    return 0;
}

/* Accepts lower-case digits only, so that a bit flip that changes the case is detected. */
static int sum_read(const char *path, const char *key, const char *text, char *sum)
{
    if (strlen(text) != TENSORS_SUM || text[strspn(text, "0123456789abcdef")])
        return value_wrong(path, key, "expected eight hexadecimal digits");
    strcpy(sum, text);
    return 0;
}

/*
 * Stores a checksum or a note of the metadata. Notes of other programs that are too long or too
 * many are ignored.
 */
static int note_read(const char *path, const char *key, const char *text, struct tensors *tensors)
{
    static const char prefix[] = "crc32.";
    const size_t length = strlen(prefix);
    const struct tensor *tensor = NULL;

    if (strcmp(key, "crc32") == 0)
        return sum_read(path, key, text, tensors->sum);
    if (strncmp(key, prefix, length) == 0) {
        tensor = tensors_find(tensors, key + length);
        if (!tensor)
            return value_wrong(path, key, "no such tensor");
        return sum_read(path, key, text, tensors->tensors[tensor - tensors->tensors].sum);
    }
    if (tensors->note_count < TENSORS_NOTES && strlen(key) < sizeof(tensors->notes[0].key) &&
        strlen(text) < sizeof(tensors->notes[0].text))
        tensors_add_note(tensors, key, "%s", text);
    return 0;
}

/*
 * Parses the header without checking the layout of the data: names, dtypes (float32 required),
 * shapes, offsets, checksums and notes. On error the message names the file, and the byte at which
 * the JSON is invalid or the tensor that is wrong.
 */
static int header_parse(const char *path, const char *text, size_t length, struct tensors *tensors)
{
    static const char metadata[] = "__metadata__";
    json_error_t error;
    json_t *header = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error), *value = NULL;
    json_t *text_value;
    const char *name;
    int result = 0;

    if (!header)
        return failure("%s: byte %d: invalid JSON in the header: %s", path,
                       TENSORS_PREFIX + error.position - 1, error.text);
    if (!json_is_object(header))
        result = failure("%s: byte %d: expected an object", path, TENSORS_PREFIX);
    json_object_foreach(header, name, value)
    {
        if (result == 0 && strcmp(name, metadata) != 0)
            result = tensor_read(path, name, value, tensors);
    }
    value =
        json_object_get(header, metadata); /* after the tensors, because its keys refer to them */
    if (result == 0 && value && !json_is_object(value))
        result = value_wrong(path, metadata, "expected an object");
    json_object_foreach(value, name, text_value)
    {
        if (result == 0 && json_is_string(text_value))
            result = note_read(path, name, json_string_value(text_value), tensors);
    }
    json_decref(header);
    return result;
}

#else

static int header_parse(const char *path, const char *text, size_t length, struct tensors *tensors)
{
    (void)text, (void)length, (void)tensors;
    return failure("%s: cannot read it: this program was built without jansson", path);
}

#endif

#ifndef HAVE_ZLIB
/* Used without zlib: computes the same checksum as zlib's function of this name, more slowly. */
static unsigned long crc32_z(unsigned long crc, const unsigned char *bytes, size_t size)
{
    uint32_t table[256], sum = ~(uint32_t)crc;

    for (uint32_t i = 0; i < 256; i++) {
        table[i] = i;
        for (int bit = 0; bit < 8; bit++)
            table[i] = table[i] >> 1 ^ (table[i] & 1 ? UINT32_C(0xEDB88320) : 0);
    }
    for (size_t i = 0; i < size; i++)
        sum = sum >> 8 ^ table[(sum ^ bytes[i]) & 0xFF];
    return ~sum;
}
#endif

void tensors_sum(const void *bytes, size_t size, char sum[TENSORS_SUM + 1])
{
    snprintf(sum, TENSORS_SUM + 1, "%08" PRIx32, (uint32_t)crc32_z(0, bytes, size));
}

/* The header contains its own checksum; zeros take its place while it is computed. */
#define HEADER_SUM "\"crc32\":\""
#define HEADER_ZEROS "00000000"

/* Checks the header against its checksum. A file without any checksum is accepted. */
static int header_check(const char *path, const char *text, size_t length,
                        const struct tensors *tensors)
{
    const char *at = memmem(text, length, HEADER_SUM, strlen(HEADER_SUM));
    char sum[TENSORS_SUM + 1];
    bool has = tensors->sum[0];
    char *copy;

    for (int i = 0; i < tensors->count; i++)
        has = has || tensors->tensors[i].sum[0];
    if (!has)
        return 0;
    copy = at && (size_t)(text + length - at) >= strlen(HEADER_SUM HEADER_ZEROS) ? malloc(length)
                                                                                 : NULL;
    if (!copy)
        return failure("%s: the header is damaged: its checksum is not where it should be", path);
    memcpy(copy, text, length);
    memcpy(copy + (at - text) + strlen(HEADER_SUM), HEADER_ZEROS, TENSORS_SUM);
    tensors_sum(copy, length, sum);
    free(copy);
    if (strcmp(sum, tensors->sum) == 0)
        return 0;
    return failure("%s: the header is damaged: its checksum is %s, expected %s", path, sum,
                   tensors->sum);
}

/* Writes the length prefix and the padded header to a new buffer; the caller frees *text_p. */
static int header_print(const struct tensors *tensors, char **text_p, size_t *size_p)
{
    FILE *to = open_memstream(text_p, size_p);
    char sum[TENSORS_SUM + 1];
    uint64_t length = 0;

    if (!to)
        return -1;
    fwrite(&length, TENSORS_PREFIX, 1, to);
    fputs("{\"__metadata__\":{\"format\":\"pt\"," HEADER_SUM HEADER_ZEROS "\"", to);
    for (int i = 0; i < tensors->note_count; i++)
        fprintf(to, ",\"%s\":\"%s\"", tensors->notes[i].key, tensors->notes[i].text);
    for (int i = 0; i < tensors->count; i++)
        fprintf(to, ",\"crc32.%s\":\"%s\"", tensors->tensors[i].name, tensors->tensors[i].sum);
    fputs("}", to);
    for (int i = 0; i < tensors->count; i++) {
        const struct tensor *tensor = &tensors->tensors[i];

        fprintf(to, ",\"%s\":{\"dtype\":\"F32\",\"shape\":[", tensor->name);
        for (int j = 0; j < tensor->dimensions; j++)
            fprintf(to, "%s%" PRIu64, j ? "," : "", tensor->shape[j]);
        fprintf(to, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", tensor->begin, tensor->end);
    }
    fputs("}", to);
    while (ftell(to) % 8 != 0)
        fputc(' ', to);
    if (fclose(to) != 0)
        return -1;
    length = *size_p - TENSORS_PREFIX;
    memcpy(*text_p, &length, TENSORS_PREFIX);
    tensors_sum(*text_p + TENSORS_PREFIX, length, sum);
    memcpy(memmem(*text_p, *size_p, HEADER_SUM, strlen(HEADER_SUM)) + strlen(HEADER_SUM), sum,
           TENSORS_SUM);
    return 0;
}

static int tensors_check(const char *path, const struct tensors *tensors, uint64_t data_size)
{
    uint64_t at = 0;

    for (int i = 0; i < tensors->count; i++) {
        const struct tensor *tensor = &tensors->tensors[i];
        uint64_t bytes = (uint64_t)tensor->width;

        for (int j = 0; j < tensor->dimensions; j++) {
            if (__builtin_mul_overflow(bytes, tensor->shape[j], &bytes))
                return failure("%s: tensor %s: its shape is too large", path, tensor->name);
        }
        if (tensor->end < tensor->begin || tensor->end - tensor->begin != bytes)
            return failure("%s: tensor %s: data from %" PRIu64 " to %" PRIu64 ", expected %" PRIu64
                           " bytes according to its shape",
                           path, tensor->name, tensor->begin, tensor->end, bytes);
    }
    for (int i = 0; i < tensors->count; i++) {
        const struct tensor *tensor = tensors->tensors, *end = tensor + tensors->count;

        /* Finds the tensor that begins at byte `at`; the header may list tensors in any order. */
        while (tensor < end && (tensor->begin != at || tensor->end <= at))
            tensor++;
        if (tensor == end)
            return failure("%s: no tensor begins at byte %" PRIu64 " of the data, expected tensors "
                           "without gap or overlap",
                           path, at);
        at = tensor->end;
    }
    if (at != data_size)
        return failure("%s: %" PRIu64 " bytes of data, expected %" PRIu64
                       " according to the header: the file is truncated or too long",
                       path, data_size, at);
    return 0;
}

/* ---- a file in memory ---- */

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the data of a safetensors file is little-endian and is copied without conversion"
#endif

struct tensor *image_add(struct image *image, const char *name, int dimensions,
                         const uint64_t *shape)
{
    struct tensors *tensors = &image->tensors;
    struct tensor *tensor = &tensors->tensors[tensors->count];
    uint64_t elements = 1;

    *tensor = (struct tensor){.dimensions = dimensions};
    snprintf(tensor->name, sizeof(tensor->name), "%s", name);
    for (int i = 0; i < dimensions; i++)
        elements *= tensor->shape[i] = shape[i];
    tensor->begin = tensors->count > 0 ? tensor[-1].end : 0;
    tensor->end = tensor->begin + elements * sizeof(float);
    tensors->count++;
    return tensor;
}

static size_t image_bytes(const struct image *image)
{
    const int count = image->tensors.count;

    return count > 0 ? image->tensors.tensors[count - 1].end : 0;
}

int image_allocate(const char *path, struct image *image)
{
    image->data = malloc(image_bytes(image));
    return image->data ? 0 : failure("%s: out of memory", path);
}

float *image_data(const struct image *image, const char *name)
{
    const struct tensor *tensor = tensors_find(&image->tensors, name);

    return tensor ? image->data + tensor->begin / sizeof(float) : NULL;
}

int image_write(const char *path, struct image *image)
{
    size_t size = 0;
    char *head = NULL;
    int result;

    for (int i = 0; i < image->tensors.count; i++) {
        struct tensor *tensor = &image->tensors.tensors[i];

        tensors_sum((char *)image->data + tensor->begin, tensor->end - tensor->begin, tensor->sum);
    }
    result = header_print(&image->tensors, &head, &size) < 0
                 ? failure("%s: no memory for the header", path)
                 : file_replace(path, head, size, image->data, image_bytes(image));
    free(head);
    return result;
}

static int file_is_foreign(const struct stat *status)
{
    return status->st_uid != geteuid() && status->st_uid != 0;
}

/* Reads a regular file that this user or root owns; the caller frees *bytes_p. */
static int file_read(const char *path, uint8_t **bytes_p, size_t *size_p)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    const int refused = errno;
    uint8_t *bytes = NULL;
    size_t done = 0;
    struct stat status, link;
    int result = -1;

    if (lstat(path, &link) == 0 && S_ISLNK(link.st_mode) && file_is_foreign(&link)) {
        failure("%s: symbolic link owned by user %u: use the path of the file itself", path,
                (unsigned)link.st_uid);
    } else if (fd < 0 || fstat(fd, &status) < 0) {
        failure("%s: %s", path, strerror(fd < 0 ? refused : errno));
    } else if (!S_ISREG(status.st_mode)) {
        failure("%s: not a regular file", path);
    } else if (file_is_foreign(&status)) {
        failure("%s: owned by user %u: copy the file if you trust it", path,
                (unsigned)status.st_uid);
    } else if (!(bytes = malloc((size_t)status.st_size + 1))) {
        failure("%s: out of memory for %lld bytes", path, (long long)status.st_size);
    } else {
        result = 0;
    }
    while (result == 0 && done < (size_t)status.st_size) {
        const ssize_t got = read(fd, bytes + done, (size_t)status.st_size - done);

        if (got == 0)
            result = failure("%s: byte %zu: the file became shorter while it was read", path, done);
        else if (got < 0 && errno != EINTR)
            result = failure("%s: byte %zu: %s", path, done, strerror(errno));
        done += got > 0 ? (size_t)got : 0;
    }
    if (fd >= 0)
        close(fd);
    if (result < 0) {
        free(bytes);
        return -1;
    }
    *bytes_p = bytes;
    *size_p = (size_t)status.st_size;
    return 0;
}

/* Parses and checks the header. The data begin at offset *data_p. */
static int image_parse(const char *path, const uint8_t *bytes, size_t size, struct tensors *tensors,
                       size_t *data_p)
{
    const char *text = (const char *)bytes + TENSORS_PREFIX;
    uint64_t length;

    if (size < TENSORS_PREFIX)
        return failure(
            "%s: byte %zu: the file ends here, expected %d bytes with the header's length", path,
            size, TENSORS_PREFIX);
    memcpy(&length, bytes, TENSORS_PREFIX);
    if (length > TENSORS_HEADER_MOST)
        return failure("%s: byte 0: a header of %" PRIu64 " bytes, expected at most %d: not a "
                       "safetensors file of this program",
                       path, length, TENSORS_HEADER_MOST);
    if (length > size - TENSORS_PREFIX)
        return failure("%s: byte %zu: the file ends here, expected a header of %" PRIu64 " bytes",
                       path, size, length);
    *data_p = TENSORS_PREFIX + (size_t)length;
    *tensors = (struct tensors){.count = 0};
    if (header_parse(path, text, length, tensors) < 0 ||
        header_check(path, text, length, tensors) < 0)
        return -1;
    return tensors_check(path, tensors, size - *data_p);
}

int image_read(const char *path, struct image *image)
{
    char sum[TENSORS_SUM + 1];
    uint8_t *bytes = NULL;
    size_t size = 0, begin = 0;
    int result;

    image->data = NULL;
    if (file_read(path, &bytes, &size) < 0)
        return IMAGE_OTHER;
    result = image_parse(path, bytes, size, &image->tensors, &begin);
    /* Verify the checksums of the data, for tensors that have one. */
    for (int i = 0; result == 0 && i < image->tensors.count; i++) {
        const struct tensor *tensor = &image->tensors.tensors[i];

        tensors_sum(bytes + begin + tensor->begin, tensor->end - tensor->begin, sum);
        if (tensor->sum[0] && strcmp(sum, tensor->sum) != 0)
            result = failure("%s: tensor %s is damaged: its checksum is %s, expected %s", path,
                             tensor->name, sum, tensor->sum);
    }
    if (result < 0) {
        free(bytes);
        return IMAGE_DAMAGED;
    }
    /* The header's length may misalign the data, so move them to the front. */
    memmove(bytes, bytes + begin, size - begin);
    image->data = (float *)(void *)bytes;
    return 0;
}

/* ---- a model, or a whole training state, in a file ---- */

#define CHECKPOINT_MOST INT64_C(9007199254740992) /* 2^53: exact in a double */

#define CHECKPOINT_OPTIMIZER "optimizer."

/* Adds the model's tensors to a new image, in the order of the layers. */
static void checkpoint_list(const struct model *model, struct image *image)
{
    static const char *const parts[] = {"weight", "bias", "running_mean", "running_var"};

    *image = (struct image){.data = NULL};
    for (int i = 0; i < model->count; i++) {
        const struct layer *layer = &model->layers[i];
        const uint64_t channels = (uint64_t)layer->out.channels, inputs = (uint64_t)layer->inputs;
        const uint64_t kernel = (uint64_t)layer->kernel;
        const uint64_t conv[] = {channels, inputs, kernel, kernel};
        const uint64_t dense[] = {channels, (uint64_t)layer->spatial * inputs};
        const bool has_buffers = layer_buffer_size(layer) > 0;

        for (int part = 0; layer->name && part < (has_buffers ? 4 : 2); part++) {
            char name[TENSORS_NAME];

            snprintf(name, sizeof(name), "%s.%s", layer->name, parts[part]);
            if (part == 0 && kernel > 0)
                image_add(image, name, 4, conv);
            else if (part == 0 && !has_buffers)
                image_add(image, name, 2, dense);
            else if (part != 1 || layer_bias_size(layer) > 0)
                image_add(image, name, 1, &channels);
        }
    }
}

/* Adds the optimizer's tensor, which follows the model's tensors. Returns its name. */
static const char *checkpoint_list_optimizer(const struct training_state *training,
                                             struct image *image)
{
    const uint64_t shape[] = {training->count};
    char name[TENSORS_NAME];

    snprintf(name, sizeof(name), CHECKPOINT_OPTIMIZER "%s", training->optimizer);
    return image_add(image, name, 1, shape)->name;
}

/*
 * Transposes between the model's layout, [spatial][input][output], and the file's,
 * [output][input][spatial]. `spatial` runs over a convolution's window, or over the pixels that a
 * dense layer sees.
 */
static void checkpoint_copy_weight(const struct layer *layer, bool save, float *file)
{
    const int spatial = layer->spatial, inputs = layer->inputs, outputs = layer->out.channels;

    for (int s = 0; s < spatial; s++) {
        for (int i = 0; i < inputs; i++) {
            for (int o = 0; o < outputs; o++) {
                float *ours = &layer->weight[((size_t)s * inputs + i) * outputs + o];
                float *theirs = &file[((size_t)o * inputs + i) * spatial + s];

                if (save)
                    *theirs = *ours;
                else
                    *ours = *theirs;
            }
        }
    }
}

/* Copies the parameters from the model to the image's data (save) or back. */
static void checkpoint_copy(const struct model *model, bool save, const struct image *image)
{
    char name[TENSORS_NAME];

    for (int i = 0; i < model->count; i++) {
        const struct layer *layer = &model->layers[i];
        const size_t buffer = layer_buffer_size(layer);
        /* Arrays that have the same order in the model and in the file. */
        const struct {
            const char *part;
            float *ours;
            size_t count;
        } rows[] = {{"bias", layer->bias, layer_bias_size(layer)},
                    {"running_mean", layer->mean, buffer},
                    {"running_var", layer->variance, buffer}};

        if (!layer->name)
            continue;
        snprintf(name, sizeof(name), "%s.weight", layer->name);
        checkpoint_copy_weight(layer, save, image_data(image, name));
        for (int j = 0; j < 3; j++) {
            float *theirs;

            snprintf(name, sizeof(name), "%s.%s", layer->name, rows[j].part);
            theirs = image_data(image, name);
            if (rows[j].count > 0)
                memcpy(save ? theirs : rows[j].ours, save ? rows[j].ours : theirs,
                       rows[j].count * sizeof(float));
        }
    }
}

/* The numbers of a training state that are stored as notes; -1: missing. */
#define AT(member) offsetof(struct training_state, member)
static const struct {
    const char *key;
    size_t at;
    int64_t most;
} checkpoint_numbers[] = {
    {"epoch", AT(epoch), 1000000},       {"samples", AT(samples), CHECKPOINT_MOST},
    {"step", AT(step), CHECKPOINT_MOST}, {"seed", AT(seed), CHECKPOINT_MOST},
    {"data", AT(data), UINT32_MAX},      {"tests", AT(tests), CHECKPOINT_MOST},
    {"idle", AT(idle), CHECKPOINT_MOST},
};
#define CHECKPOINT_NUMBERS (sizeof(checkpoint_numbers) / sizeof(checkpoint_numbers[0]))

static int64_t *checkpoint_number(struct training_state *training, size_t i)
{
    return (int64_t *)(void *)((char *)training + checkpoint_numbers[i].at);
}

/* Reads the numbers from the notes; leaves `optimizer`, `state` and `count` unchanged. */
static int checkpoint_read_notes(const char *path, const struct tensors *tensors,
                                 struct training_state *training)
{
    const char *best = tensors_note(tensors, "best");

    for (size_t i = 0; i < CHECKPOINT_NUMBERS; i++) {
        const char *text = tensors_note(tensors, checkpoint_numbers[i].key);
        int64_t *number = checkpoint_number(training, i);

        *number = text && *text ? atoll(text) : -1;
        if (text && (!*text || strlen(text) > 16 || text[strspn(text, "0123456789")] ||
                     *number > checkpoint_numbers[i].most))
            return failure("%s: the header has \"%s\":\"%s\", expected a number from 0 to %" PRId64,
                           path, checkpoint_numbers[i].key, text, checkpoint_numbers[i].most);
    }
    training->best = best ? strtod(best, NULL) : 0.0;
    return 0;
}

int checkpoint_image(const char *path, const struct model *model,
                     const struct training_state *training, struct image *image)
{
    struct training_state numbers = *training;
    const char *name;

    checkpoint_list(model, image);
    name = checkpoint_list_optimizer(training, image);
    /* Skip numbers that are unknown because the loaded file did not contain them. */
    for (size_t i = 0; i < CHECKPOINT_NUMBERS; i++) {
        const int64_t number = *checkpoint_number(&numbers, i);

        if (number >= 0)
            tensors_add_note(&image->tensors, checkpoint_numbers[i].key, "%" PRId64, number);
    }
    tensors_add_note(&image->tensors, "best", "%.17g", training->best);
    if (image_allocate(path, image) < 0)
        return -1;
    checkpoint_copy(model, true, image);
    memcpy(image_data(image, name), training->state, training->count * sizeof(float));
    return 0;
}

int checkpoint_save(const char *path, const struct model *model, int64_t epoch)
{
    static struct image image; /* static because it is too large for a small stack; only one thread
                                  saves and loads */
    int result;

    checkpoint_list(model, &image);
    tensors_add_note(&image.tensors, "epoch", "%" PRId64, epoch);
    if (image_allocate(path, &image) < 0)
        return -1;
    checkpoint_copy(model, true, &image);
    result = image_write(path, &image);
    image_free(&image);
    return result;
}

/* Checks the whole file against the model, then copies it into the model and *training. */
static int checkpoint_restore(const char *path, const struct image *file, struct model *model,
                              struct training_state *training)
{
    struct training_state read = *training;
    bool has_state = false; /* the file contains an optimizer's state, and the caller wants it */
    const struct tensor *expect, *tensor;
    static struct image expected; /* static as in checkpoint_save */
    const struct tensors *tensors = &file->tensors;

    checkpoint_list(model, &expected);
    for (int i = 0; i < expected.tensors.count; i++) {
        expect = &expected.tensors.tensors[i];
        tensor = tensors_find(tensors, expect->name);
        if (!tensor)
            return failure("%s: no tensor %s in the file: use the --arch that it was written with",
                           path, expect->name);
        if (tensor->width != sizeof(float) || tensor->dimensions != expect->dimensions ||
            memcmp(tensor->shape, expect->shape,
                   (size_t)expect->dimensions * sizeof(*expect->shape)))
            return failure("%s: the shape of tensor %s differs from the model: use the --arch that "
                           "the file was "
                           "written with",
                           path, expect->name);
    }
    for (int i = 0; i < tensors->count; i++) {
        const char *name = tensors->tensors[i].name;
        const bool is_optimizer =
            strncmp(name, CHECKPOINT_OPTIMIZER, strlen(CHECKPOINT_OPTIMIZER)) == 0;

        if (!tensors_find(&expected.tensors, name) && tensors->tensors[i].width == sizeof(float) &&
            !is_optimizer)
            return failure(
                "%s: unexpected tensor %s: use the --arch that the file was written with", path,
                name);
        has_state = has_state || (training->state && is_optimizer);
    }
    if (checkpoint_read_notes(path, tensors, &read) < 0)
        return -1;
    if (has_state) {
        checkpoint_list_optimizer(training, &expected);
        expect = &expected.tensors.tensors[expected.tensors.count - 1];
        tensor = tensors_find(tensors, expect->name);
        if (!tensor)
            return failure(
                "%s: no tensor %s in the file: use the --optimizer that it was written with", path,
                expect->name);
        if (tensor->width != sizeof(float) || tensor->dimensions != 1 ||
            tensor->shape[0] != expect->shape[0])
            return failure(
                "%s: the size of tensor %s differs from the model: use the --arch that the file "
                "was written with",
                path, expect->name);
        if (read.epoch < 0 || read.samples < 0 || read.step < 0)
            return failure("%s: the header lacks the epoch, samples or step of the training", path);
        if (read.seed >= 0 && read.seed != training->seed)
            return failure("%s: written with --seed %" PRId64 ", not %" PRId64, path, read.seed,
                           training->seed);
        if (read.data >= 0 && read.data != training->data)
            return failure("%s: written with other training samples: use the same --data", path);
        memcpy(training->state, image_data(file, expect->name), training->count * sizeof(float));
    }
    checkpoint_copy(model, false, file);
    *training = read;
    return has_state;
}

int checkpoint_load(const char *path, struct model *model, struct training_state *training)
{
    static struct image file; /* static as in checkpoint_save */
    int result = image_read(path, &file);

    if (result < 0)
        return result;
    result = checkpoint_restore(path, &file, model, training);
    image_free(&file);
    return result;
}

/* ---- directories ---- */

#define FOLDER_PREFIX "step-"
#define FOLDER_ENDING ".safetensors"

bool folder_is(const char *path)
{
    const size_t length = strlen(path);
    struct stat status;

    return (length > 0 && path[length - 1] == '/') ||
           (stat(path, &status) == 0 && S_ISDIR(status.st_mode));
}

int folder_make(const char *path)
{
    return mkdir(path, 0777) == 0 || errno == EEXIST ? 0 : failure("%s: %s", path, strerror(errno));
}

int folder_name(const char *folder, int64_t step, char path[FOLDER_PATH])
{
    const size_t length = strlen(folder);
    const char *slash = length > 0 && folder[length - 1] == '/' ? "" : "/";
    const int size = snprintf(path, FOLDER_PATH, "%s%s" FOLDER_PREFIX "%012" PRId64 FOLDER_ENDING,
                              folder, slash, step);

    return size < FOLDER_PATH ? 0 : failure("%s: the path is too long", folder);
}

/* Returns the step in a file name, or -1 if the name is not a checkpoint's. */
static int64_t folder_step(const char *name)
{
    const size_t prefix = strlen(FOLDER_PREFIX);
    char *end;
    int64_t step;

    if (strncmp(name, FOLDER_PREFIX, prefix) != 0 || name[prefix] < '0' || name[prefix] > '9')
        return -1;
    step = strtoll(name + prefix, &end, 10);
    return strcmp(end, FOLDER_ENDING) == 0 ? step : -1;
}

int64_t folder_newest(const char *folder, int64_t below)
{
    DIR *list = opendir(folder);
    const struct dirent *entry;
    int64_t newest = -1;

    if (!list) {
        failure("%s: %s", folder, strerror(errno));
        return -2;
    }
    while ((entry = readdir(list))) {
        const int64_t step = folder_step(entry->d_name);

        if (step > newest && step < below)
            newest = step;
    }
    closedir(list);
    return newest;
}

/*
 * Removes the checkpoints up to the step of path, except the `keep` newest, and drafts that killed
 * writers left in the same directory.
 */
static void folder_prune(const char *path, int keep)
{
    const char *slash = strrchr(path, '/');
    char folder[FOLDER_PATH], old[FOLDER_PATH], base[NAME_MAX + 1];
    const struct dirent *entry;
    int64_t step;
    DIR *list;

    snprintf(folder, sizeof(folder), "%.*s", (int)(slash + 1 - path), path);
    list = opendir(folder);
    while (list && (entry = readdir(list))) {
        snprintf(base, sizeof(base), "%.*s", (int)draft_base(entry->d_name), entry->d_name);
        if (folder_step(base) >= 0)
            draft_remove_dead(list, entry->d_name);
    }
    if (list)
        closedir(list);
    step = folder_step(slash + 1) + 1;
    for (int kept = 0; (step = folder_newest(folder, step)) >= 0; kept++) {
        if (kept >= keep && folder_name(folder, step, old) == 0)
            unlink(old);
    }
}

/* ---- files written while training continues ---- */

struct writer {
    char path[FOLDER_PATH];
    struct image image;
    int keep;
    pthread_t thread;
    bool begun;        /* the thread exists and has not been joined */
    int result;        /* result of the thread */
    char reason[1024]; /* the error message if result is -1 */
};

/*
 * Sequential consistency ensures that either the SIGTERM handler reads writer_busy as false, or the
 * writer reads writer_ended as true after it has finished. One of them ends the process.
 */
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

int writer_create(struct writer **writer_p)
{
    const struct sigaction ours = {.sa_handler = writer_on_end, .sa_flags = SA_RESTART};
    struct writer *writer = calloc(1, sizeof(*writer));
    struct sigaction before;

    if (!writer)
        return failure("out of memory for a writer");
    if (sigaction(SIGTERM, NULL, &before) == 0 && before.sa_handler == SIG_DFL)
        sigaction(SIGTERM, &ours, NULL);
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
    atomic_store(&writer_busy, true);
    writer->begun = pthread_create(&writer->thread, NULL, writer_run, writer) == 0;
    if (writer->begun)
        return 0;
    /* No thread could be created: write in the caller's thread. */
    writer_run(writer);
    return writer->result == 0 ? 0 : failure("%s", writer->reason);
}

int writer_destroy(struct writer *writer)
{
    const int result = writer ? writer_wait(writer) : 0;

    free(writer);
    return result;
}
