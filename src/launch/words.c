/* SPDX-License-Identifier: BSD-3-Clause */
/* Parses lists, maps, signals and templates in the values of options. */
#include "launch/words.h"
#include "base/process.h"
#include "base/settings/config.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Reads a number without a sign at *text, and moves *text to the byte after it. */
static bool words_number(const char **text, int most, int *value_p)
{
    char *end;
    long value;

    if (**text < '0' || **text > '9')
        return false;
    value = strtol(*text, &end, 10);
    *text = end;
    *value_p = (int)value;
    return value <= most;
}

int disti_run_streams(const char *text, int local_rank)
{
    const char *at = text;
    int key, value, found = 0;

    if (!text)
        return 0;
    if (words_number(&at, 3, &value) && !*at)
        return value;
    for (;; text++) {
        if (!words_number(&text, INT_MAX - 1, &key) || *text++ != ':' ||
            !words_number(&text, 3, &value) || (*text && *text != ','))
            return -1;
        if (key == local_rank)
            found = value;
        if (!*text)
            return found;
    }
}

int disti_run_is_listed(const char *text, int local_rank)
{
    int value, found = 0;

    for (; text; text++) {
        if (!words_number(&text, INT_MAX - 1, &value) || (*text && *text != ','))
            return -1;
        found |= value == local_rank;
        if (!*text)
            return found;
    }
    return 1;
}

bool disti_run_nodes(const char *text, int *min_p, int *max_p)
{
    if (!words_number(&text, INT_MAX - 1, min_p) || *min_p < 1)
        return false;
    *max_p = *min_p;
    if (!*text)
        return true;
    return *text++ == ':' && words_number(&text, INT_MAX - 1, max_p) && !*text && *max_p >= *min_p;
}

bool disti_run_endpoint(const char *text, char host[256], int *port_p)
{
    const bool bracket = *text == '[';
    const size_t length = strcspn(text + bracket, bracket ? "]" : ":");
    const char *rest = text + bracket + length + bracket;

    if (length == 0 || length > 255 || (bracket && text[1 + length] != ']'))
        return false;
    snprintf(host, 256, "%.*s", (int)length, text + bracket);
    if (!*rest)
        return true;
    return *rest++ == ':' && words_number(&rest, 65535, port_p) && !*rest;
}

void disti_run_signal_name(int signal_number, char text[16])
{
    const char *name = disti_signal_name(signal_number);

    if (name)
        snprintf(text, 16, "SIG%.11s", name);
    else
        snprintf(text, 16, "SIG%d", signal_number);
}

const char *disti_run_signals(const char *text, sigset_t *set_p)
{
    static char item[32];

    sigemptyset(set_p);
    for (int i = 0; disti_list_item(text, ',', i, item, sizeof(item)); i++) {
        const char *name = strncmp(item, "SIG", 3) == 0 ? item + 3 : item;
        int number = SIGRTMAX;

        while (number > 0 &&
               (!disti_signal_name(number) || strcmp(name, disti_signal_name(number)) != 0))
            number--;
        if (number == 0 || number == SIGKILL || number == SIGSTOP || number == SIGCHLD ||
            number == SIGTSTP || number == SIGCONT)
            return item;
        sigaddset(set_p, number);
    }
    return NULL;
}

void disti_run_rank_name(int rank, char text[16])
{
    if (rank < 0)
        snprintf(text, 16, "scheduler");
    else
        snprintf(text, 16, "%d", rank);
}

void disti_run_worker_name(int rank, char text[32])
{
    if (rank < 0)
        snprintf(text, 32, "the scheduler");
    else
        snprintf(text, 32, "rank %d", rank);
}

void disti_run_prefix(const char *pattern, const struct disti_run_names *names, char *text,
                      size_t size)
{
    static const char *const known[] = {"${role_name}", "${hostname}", "${rank}", "${local_rank}"};
    char rank[16], local_rank[16];
    const char *const texts[] = {names->role, names->host, rank, local_rank};
    size_t used = 0;
    int i;

    disti_run_rank_name(names->rank, rank);
    disti_run_rank_name(names->local_rank, local_rank);
    while (*pattern && used + 1 < size) {
        for (i = 0; i < 4 && strncmp(pattern, known[i], strlen(known[i])) != 0; i++)
            continue;
        if (i < 4) {
            used += (size_t)snprintf(text + used, size - used, "%s", texts[i]);
            pattern += strlen(known[i]);
        } else {
            text[used++] = *pattern++;
        }
    }
    text[used < size ? used : size - 1] = '\0';
}

void disti_run_list_add(struct disti_run_list *list, const char *format, ...)
{
    char **words =
        list->failed ? NULL : realloc(list->words, ((size_t)list->count + 2) * sizeof(*words));
    va_list arguments;

    list->failed = !words;
    if (!words)
        return;
    list->words = words;
    va_start(arguments, format);
    if (vasprintf(&words[list->count], format, arguments) < 0)
        list->failed = true;
    else
        list->count++;
    va_end(arguments);
    words[list->count] = NULL;
}

void disti_run_list_free(struct disti_run_list *list)
{
    for (int i = 0; i < list->count; i++)
        free(list->words[i]);
    free(list->words);
}
