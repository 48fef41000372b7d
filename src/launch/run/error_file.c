/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reads what torch's record() writes:
 *
 *     {"message": {"message": TEXT, "extraInfo": {"py_callstack": TEXT, "timestamp": TEXT}}}
 *
 * or {"message": TEXT}. It comes from a worker, so it may be anything.
 */
#include "launch/run/error_file.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ERROR_FILE_MOST = 1 << 20 }; /* bytes that are read */

/* ---- JSON, of which a value is its first byte ---- */

static const char *json_behind_blanks(const char *at)
{
    return at + strspn(at, " \t\r\n");
}

/* NULL: the string has no end. */
static const char *json_behind_string(const char *at)
{
    for (at++; *at != '"'; at++) {
        if (*at == '\\' && at[1])
            at++;
        else if (!*at)
            return NULL;
    }
    return at + 1;
}

/* NULL: the value has no end. */
static const char *json_behind(const char *at)
{
    int depth = 0;

    do {
        at = json_behind_blanks(at);
        depth += (*at == '{' || *at == '[') - (*at == '}' || *at == ']');
        if (*at == '"')
            at = json_behind_string(at);
        else if (*at && strchr("{}[],:", *at))
            at++;
        else
            at = *at ? at + strcspn(at, ",:{}[]\" \t\r\n") : NULL;
    } while (at && depth > 0);
    return at;
}

/* The value of that name in an object; NULL: there is none, or it is no object. */
static const char *json_member(const char *at, const char *name)
{
    const size_t length = strlen(name);

    at = at ? json_behind_blanks(at) : "";
    at = *at == '{' ? json_behind_blanks(at + 1) : "";
    while (*at == '"') {
        const char *end = json_behind_string(at);
        const char *value = end ? json_behind_blanks(end) : "";

        if (*value != ':')
            return NULL;
        value = json_behind_blanks(value + 1);
        if ((size_t)(end - at) == length + 2 && strncmp(at + 1, name, length) == 0)
            return value;
        at = json_behind(value);
        at = at ? json_behind_blanks(at) : "";
        at = *at == ',' ? json_behind_blanks(at + 1) : "";
    }
    return NULL;
}

/* ---- its strings ---- */

static void error_put_code(unsigned code, FILE *to)
{
    if (code < 0x80) {
        fputc((int)code, to);
    } else if (code < 0x800) {
        fprintf(to, "%c%c", 0xc0 | code >> 6, 0x80 | (code & 0x3f));
    } else if (code < 0x10000) {
        fprintf(to, "%c%c%c", 0xe0 | code >> 12, 0x80 | (code >> 6 & 0x3f), 0x80 | (code & 0x3f));
    } else {
        fprintf(to, "%c%c%c%c", 0xf0 | code >> 18, 0x80 | (code >> 12 & 0x3f),
                0x80 | (code >> 6 & 0x3f), 0x80 | (code & 0x3f));
    }
}

/* The four digits behind \u; 0: there are none. */
static unsigned error_digits(const char *at)
{
    unsigned code = 0;

    return at[0] == '\\' && at[1] == 'u' && strspn(at + 2, "0123456789abcdefABCDEF") >= 4 &&
                   sscanf(at + 2, "%4x", &code) == 1
               ? code
               : 0;
}

/* What stands behind a backslash; returns where it ends. */
static const char *error_escape(const char *at, unsigned *code_p)
{
    static const char letters[] = "nrtbf", meant[] = "\n\r\t\b\f";
    const char *letter = strchr(letters, at[1]);
    unsigned second;

    *code_p = error_digits(at);
    if (*code_p) {
        second = *code_p >> 10 == 0x36 ? error_digits(at + 6) : 0;
        if (second >> 10 != 0x37)
            return at + 6;
        *code_p = 0x10000 + ((*code_p & 0x3ff) << 10) + (second & 0x3ff);
        return at + 12;
    }
    *code_p = letter ? (unsigned char)meant[letter - letters] : (unsigned char)at[1];
    return at + 2;
}

/* Does it move no cursor, here or on a terminal with controls of 8 bits? A byte from 0x80 on is a
 * part of a character. */
static bool error_is_shown(unsigned code, bool byte)
{
    return code == '\t' || (code >= ' ' && code < 0x7f) || (code > 0x7f && byte) || code >= 0xa0;
}

/* What stands at `at`, and *code_p: a character that is escaped, or a control of two bytes, or else
 * a byte. Returns what is behind it. */
static const char *error_next(const char *at, unsigned *code_p, bool *byte_p)
{
    const unsigned char first = (unsigned char)at[0], second = (unsigned char)at[1];
    const bool control = first == 0xc2 && second >= 0x80 && second < 0xa0;

    *byte_p = first != '\\' && !control;
    *code_p = control ? second : first;
    if (first == '\\')
        return error_escape(at, code_p);
    return at + 1 + control;
}

/* A string as it is to be shown: its lines indented, without the last line's end, and nothing that
 * moves a terminal's cursor. */
static void error_put_string(const char *at, FILE *to)
{
    int lines = 0;

    for (at++; *at != '"';) {
        unsigned code;
        bool byte;

        at = error_next(at, &code, &byte);
        if (code == '\n') {
            lines++;
            continue;
        }
        for (; lines > 0; lines--)
            fputs("\n  ", to);
        if (!error_is_shown(code, byte))
            continue;
        if (byte)
            fputc((int)code, to);
        else
            error_put_code(code, to);
    }
}

/* ---- the file ---- */

/* NULL: there is nothing. A pipe in the file's place keeps nobody waiting. */
static char *error_read(const char *path)
{
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    char *text = calloc(1, ERROR_FILE_MOST + 1);
    size_t bytes = 0;
    ssize_t got = fd >= 0 && text ? 1 : 0;

    while (got > 0 && bytes < ERROR_FILE_MOST) {
        got = read(fd, text + bytes, ERROR_FILE_MOST - bytes);
        bytes += got > 0 ? (size_t)got : 0;
    }
    if (fd >= 0)
        close(fd);
    if (bytes > 0)
        return text;
    free(text);
    return NULL;
}

/* The string to be shown; NULL: there is none. */
static const char *error_find(const char *text)
{
    const char *message = json_member(text, "message");
    const char *shown = json_member(json_member(message, "extraInfo"), "py_callstack");

    if (!shown)
        shown = json_member(message, "message");
    if (!shown)
        shown = message;
    return shown && shown[0] == '"' && shown[1] != '"' && json_behind_string(shown) ? shown : NULL;
}

char *disti_run_error_text(const char *path)
{
    char *text = error_read(path), *made = NULL;
    const char *string = text ? error_find(text) : NULL;
    size_t bytes = 0;
    FILE *to = string ? open_memstream(&made, &bytes) : NULL;

    if (to) {
        error_put_string(string, to);
        if (fclose(to) != 0) {
            free(made);
            made = NULL;
        }
    }
    free(text);
    return made;
}
