/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads JSON into a tree. */
#ifndef BENCH_JSON_H
#define BENCH_JSON_H

#include <stddef.h>

enum json_type {
    JSON_NULL,
    JSON_FALSE,
    JSON_TRUE,
    JSON_NUMBER,
    JSON_TEXT,
    JSON_ARRAY,
    JSON_OBJECT
};

struct json {
    enum json_type type;
    double number;
    char *text; /* of a text */
    char *name; /* as a member of an object, else NULL */
    struct json *child, *next;
};

/* A whole text of length bytes. NULL: it is no JSON; *at_p says where. Free with json_free. */
struct json *json_parse(const char *text, size_t length, size_t *at_p);
void json_free(struct json *json); /* NULL is accepted */

/* The member of an object; NULL: there is none, or it is no object. */
const struct json *json_get(const struct json *object, const char *name);

/* Its text or number; otherwise what is given. json may be NULL. */
const char *json_text_of(const struct json *json, const char *otherwise);
double json_number_of(const struct json *json, double otherwise);

#endif
