/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads JSON into a tree, by recursive descent. */
#include "json.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define JSON_DEPTH_MAX 64

struct json_input {
    const char *text;
    size_t length, at;
    int depth;
};

static struct json *json_value(struct json_input *input);

static int json_peek(struct json_input *input)
{
    while (input->at < input->length && strchr(" \t\r\n", input->text[input->at]) &&
           input->text[input->at])
        input->at++;
    return input->at < input->length ? input->text[input->at] : -1;
}

static bool json_take(struct json_input *input, int wanted)
{
    if (json_peek(input) != wanted)
        return false;
    input->at++;
    return true;
}

/* What follows a backslash: at most 3 bytes of UTF-8. Surrogates come as they are. */
static int json_escape(struct json_input *input, char *to)
{
    static const char codes[] = "\"\\/bfnrt", plain[] = "\"\\/\b\f\n\r\t";
    char digits[5] = "";
    const char *code;
    unsigned long point;

    if (input->at >= input->length)
        return -1;
    code = strchr(codes, input->text[input->at++]);
    if (code && *code) {
        *to = plain[code - codes];
        return 1;
    }
    if (input->text[input->at - 1] != 'u' || input->length - input->at < 4)
        return -1;
    memcpy(digits, input->text + input->at, 4);
    if (strspn(digits, "0123456789abcdefABCDEF") != 4)
        return -1;
    input->at += 4;
    point = strtoul(digits, NULL, 16);
    if (point < 0x80) {
        *to = (char)point;
        return 1;
    }
    if (point < 0x800) {
        to[0] = (char)(0xc0 | point >> 6);
        to[1] = (char)(0x80 | (point & 0x3f));
        return 2;
    }
    to[0] = (char)(0xe0 | point >> 12);
    to[1] = (char)(0x80 | (point >> 6 & 0x3f));
    to[2] = (char)(0x80 | (point & 0x3f));
    return 3;
}

static char *json_string(struct json_input *input)
{
    char *text, *to;
    bool good = true;

    if (!json_take(input, '"'))
        return NULL;
    text = to = malloc(input->length - input->at + 1); /* escapes only get shorter */
    while (text && good && input->at < input->length && input->text[input->at] != '"') {
        char byte = input->text[input->at++];
        int written = 1;

        if (byte == '\\')
            written = json_escape(input, to);
        else
            *to = byte;
        good = written > 0;
        to += good ? written : 0;
    }
    if (!text || !good || input->at >= input->length || input->text[input->at] != '"') {
        free(text);
        return NULL;
    }
    input->at++;
    *to = '\0';
    return text;
}

/* The values up to `end`, with their names if it is an object's. */
static bool json_members(struct json_input *input, struct json *json, int end)
{
    struct json **link = &json->child;

    if (json_take(input, end))
        return true;
    do {
        char *name = end == '}' ? json_string(input) : NULL;

        if ((end == '}' && (!name || !json_take(input, ':'))) || !(*link = json_value(input))) {
            free(name);
            return false;
        }
        (*link)->name = name;
        link = &(*link)->next;
    } while (json_take(input, ','));
    return json_take(input, end);
}

static bool json_word(struct json_input *input, const char *word)
{
    size_t length = strlen(word);

    if (input->length - input->at < length || memcmp(input->text + input->at, word, length) != 0)
        return false;
    input->at += length;
    return true;
}

static bool json_number(struct json_input *input, double *number_p)
{
    char digits[64];
    size_t length = 0;
    char *end;

    while (length + 1 < sizeof(digits) && input->at + length < input->length &&
           strchr("+-.0123456789eE", input->text[input->at + length]) &&
           input->text[input->at + length])
        length++;
    memcpy(digits, input->text + input->at, length);
    digits[length] = '\0';
    *number_p = strtod(digits, &end);
    input->at += length;
    return length && !*end;
}

static bool json_fill(struct json_input *input, struct json *json)
{
    switch (json_peek(input)) {
    case '{':
    case '[':
        json->type = input->text[input->at] == '{' ? JSON_OBJECT : JSON_ARRAY;
        return json_members(input, json, input->text[input->at++] == '{' ? '}' : ']');
    case '"':
        json->type = JSON_TEXT;
        return (json->text = json_string(input)) != NULL;
    case 'n':
        json->type = JSON_NULL;
        return json_word(input, "null");
    case 't':
        json->type = JSON_TRUE;
        return json_word(input, "true");
    case 'f':
        json->type = JSON_FALSE;
        return json_word(input, "false");
    default:
        json->type = JSON_NUMBER;
        return json_number(input, &json->number);
    }
}

static struct json *json_value(struct json_input *input)
{
    struct json *json = input->depth < JSON_DEPTH_MAX ? calloc(1, sizeof(*json)) : NULL;
    bool good;

    if (!json)
        return NULL;
    input->depth++;
    good = json_fill(input, json);
    input->depth--;
    if (good)
        return json;
    json_free(json);
    return NULL;
}

struct json *json_parse(const char *text, size_t length, size_t *at_p)
{
    struct json_input input = {.text = text, .length = length};
    struct json *json = json_value(&input);

    *at_p = input.at;
    if (json && json_peek(&input) == -1)
        return json;
    json_free(json);
    return NULL;
}

void json_free(struct json *json)
{
    while (json) {
        struct json *next = json->next;

        json_free(json->child);
        free(json->text);
        free(json->name);
        free(json);
        json = next;
    }
}

const struct json *json_get(const struct json *object, const char *name)
{
    const struct json *member = object && object->type == JSON_OBJECT ? object->child : NULL;

    while (member && strcmp(member->name, name) != 0)
        member = member->next;
    return member;
}

const char *json_text_of(const struct json *json, const char *otherwise)
{
    return json && json->type == JSON_TEXT ? json->text : otherwise;
}

double json_number_of(const struct json *json, double otherwise)
{
    return json && json->type == JSON_NUMBER ? json->number : otherwise;
}
