/* SPDX-License-Identifier: BSD-3-Clause */
/* The JSON of a safetensors header: just the grammar that such a header can have. */
#include "tensors_json.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "failure.h"

/*
 *   header   = "{" [ member { "," member } ] "}"
 *   member   = string ":" ( tensor | metadata )
 *   tensor   = "{" "dtype": string, "shape": numbers, "data_offsets": numbers "}", in any order
 *   metadata = "{" [ string ":" string { "," string ":" string } ] "}"
 *   numbers  = "[" [ number { "," number } ] "]"
 */
struct json {
    const char *path, *text;
    size_t length, at;
};

static int json_fail(const struct json *json, const char *expected)
{
    return failure("%s: byte %zu: expected %s in the header", json->path, TENSORS_PREFIX + json->at,
                   expected);
}

/* The next character that is not space; '\0' at the end. */
static char json_peek(struct json *json)
{
    while (json->at < json->length && strchr(" \t\r\n", json->text[json->at]) &&
           json->text[json->at] != '\0')
        json->at++;
    return json->at < json->length ? json->text[json->at] : '\0';
}

static bool json_accept(struct json *json, char c)
{
    if (json_peek(json) != c || json->at == json->length)
        return false;
    json->at++;
    return true;
}

static int json_expect(struct json *json, char c)
{
    const char expected[] = {'\'', c, '\'', '\0'};

    return json_accept(json, c) ? 0 : json_fail(json, expected);
}

/* Copies a string of less than size bytes; escapes are left as they stand. */
static int json_string(struct json *json, char *to, size_t size)
{
    size_t length = 0;

    if (json_expect(json, '"') < 0)
        return -1;
    for (; json->at < json->length && json->text[json->at] != '"'; json->at++) {
        const bool escape = json->text[json->at] == '\\' && json->at + 1 < json->length;

        if (length + 2 >= size)
            return json_fail(json, "a shorter string");
        to[length++] = json->text[json->at];
        if (escape)
            to[length++] = json->text[++json->at];
    }
    to[length] = '\0';
    return json_expect(json, '"');
}

static int json_number(struct json *json, uint64_t *to)
{
    uint64_t value = 0;
    bool any = false;

    for (char c = json_peek(json); c >= '0' && c <= '9' && json->at < json->length;
         c = json->at < json->length ? json->text[json->at] : '\0') {
        if (__builtin_mul_overflow(value, UINT64_C(10), &value) ||
            __builtin_add_overflow(value, (uint64_t)(c - '0'), &value))
            return json_fail(json, "a number below 2^64");
        any = true;
        json->at++;
    }
    *to = value;
    return any ? 0 : json_fail(json, "a whole number");
}

/* At most `most` numbers. */
static int json_numbers(struct json *json, int most, uint64_t *to, int *count_p)
{
    int count = 0;

    if (json_expect(json, '[') < 0)
        return -1;
    while (!json_accept(json, ']')) {
        if (count > 0 && json_expect(json, ',') < 0)
            return -1;
        if (count == most)
            return json_fail(json, "fewer numbers");
        if (json_number(json, &to[count++]) < 0)
            return -1;
    }
    *count_p = count;
    return 0;
}

static int json_dtype(struct json *json)
{
    char dtype[16];

    if (json_string(json, dtype, sizeof(dtype)) < 0)
        return -1;
    return strcmp(dtype, "F32") == 0 ? 0 : json_fail(json, "dtype F32");
}

static int json_tensor(struct json *json, struct tensor *tensor)
{
    enum { DTYPE = 1, SHAPE = 2, PLACE = 4 };
    uint64_t place[2] = {0, 0};
    unsigned seen = 0;
    char key[32];

    while (!json_accept(json, '}')) {
        int count = 2, result;

        if ((seen && json_expect(json, ',') < 0) || json_string(json, key, sizeof(key)) < 0 ||
            json_expect(json, ':') < 0)
            return -1;
        if (strcmp(key, "dtype") == 0) {
            seen |= DTYPE;
            result = json_dtype(json);
        } else if (strcmp(key, "shape") == 0) {
            seen |= SHAPE;
            result = json_numbers(json, TENSORS_DIMENSIONS, tensor->shape, &tensor->dimensions);
        } else if (strcmp(key, "data_offsets") == 0) {
            seen |= PLACE;
            result = json_numbers(json, 2, place, &count);
        } else {
            result = json_fail(json, "dtype, shape or data_offsets");
        }
        if (result < 0 || (count != 2 && json_fail(json, "two offsets") < 0))
            return -1;
    }
    tensor->begin = place[0];
    tensor->end = place[1];
    return seen == (DTYPE | SHAPE | PLACE) ? 0 : json_fail(json, "dtype, shape and data_offsets");
}

static int json_metadata(struct json *json, struct tensors *tensors)
{
    char key[64], value[4096];

    for (bool first = true; !json_accept(json, '}'); first = false) {
        if ((!first && json_expect(json, ',') < 0) || json_string(json, key, sizeof(key)) < 0 ||
            json_expect(json, ':') < 0 || json_string(json, value, sizeof(value)) < 0)
            return -1;
        if (strcmp(key, "epoch") == 0) {
            struct json number = {json->path, value, strlen(value), 0};
            uint64_t epoch;

            if (json_number(&number, &epoch) < 0 || number.at != number.length || epoch > 1000000)
                return json_fail(json, "an epoch from 0 to 1000000");
            tensors->epoch = (int64_t)epoch;
        }
    }
    return 0;
}

static int json_member(struct json *json, struct tensors *tensors)
{
    char name[TENSORS_NAME];
    struct tensor *tensor;

    if (json_string(json, name, sizeof(name)) < 0 || json_expect(json, ':') < 0 ||
        json_expect(json, '{') < 0)
        return -1;
    if (strcmp(name, "__metadata__") == 0)
        return json_metadata(json, tensors);
    if (tensors->count == TENSORS_MOST)
        return json_fail(json, "fewer tensors");
    if (tensors_find(tensors, name))
        return json_fail(json, "each tensor once");
    tensor = &tensors->tensors[tensors->count++];
    memcpy(tensor->name, name, sizeof(name));
    return json_tensor(json, tensor);
}

int tensors_parse(const char *path, const char *text, size_t length, struct tensors *tensors)
{
    struct json json = {path, text, length, 0};

    if (json_expect(&json, '{') < 0)
        return -1;
    for (bool first = true; !json_accept(&json, '}'); first = false) {
        if ((!first && json_expect(&json, ',') < 0) || json_member(&json, tensors) < 0)
            return -1;
    }
    json_peek(&json);
    return json.at == length ? 0 : json_fail(&json, "nothing after the last '}'");
}
