/* SPDX-License-Identifier: BSD-3-Clause */
/* What a word of a command line may become, from the table, for a shell that completes it. */
#include "args.h"

#include <string.h>

/* What has been typed. An option's '=' is a word of its own, as bash cuts them. */
struct completion {
    const struct args *args;
    const char *partial; /* the word that the cursor is in */
    const char *option;  /* the one whose value that word is; NULL: none's */
};

static void complete_candidate(const struct completion *completion, const char *prefix,
                               const char *word, size_t length)
{
    const char *partial = completion->partial;
    size_t begin = strlen(prefix), typed = strlen(partial);

    if (typed > begin + length || strncmp(partial, prefix, typed < begin ? typed : begin) != 0 ||
        (typed > begin && strncmp(partial + begin, word, typed - begin) != 0))
        return;
    printf("%s%.*s\n", prefix, (int)length, word);
}

/* Each item of "a|b|c", or of another separator. */
static void complete_list(const struct completion *completion, const char *prefix, const char *list,
                          char separator)
{
    while (*list) {
        const size_t length = (size_t)(strchrnul(list, separator) - list);

        complete_candidate(completion, prefix, list, length);
        list += length + (list[length] == separator);
    }
}

/* Does the row have that name, with dashes or underscores? */
static bool complete_has_name(const struct args_row *row, const char *name)
{
    const size_t length = strlen(name);

    for (const char *at = row->names; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        size_t i = 0;

        while (i < length && (at[i] == name[i] || (at[i] == '-' && name[i] == '_')))
            i++;
        if (i == length && (at[i] == ',' || at[i] == '\0'))
            return true;
    }
    return false;
}

/* Is the row that option: "--name", "-n", "-n" with a value in the same word, or "-np"? */
static bool complete_is(const struct args_row *row, const char *option)
{
    if (row->kind == ARGS_GROUP || row->kind == ARGS_WORDS)
        return false;
    if (option[1] == '-')
        return complete_has_name(row, option + 2);
    return row->letter == option[1] || complete_has_name(row, option + 1);
}

static const struct args_row *complete_row(const struct args *args, const char *option)
{
    if (option[0] != '-' || !option[1])
        return NULL;
    for (int i = 0; i < args->count; i++) {
        if (complete_is(&args->rows[i], option))
            return &args->rows[i];
    }
    return NULL;
}

/* Is the next word, behind '=' if equals, the value of that one? */
static bool complete_takes_value(const struct args *args, const char *option, bool equals)
{
    const struct args_row *row = complete_row(args, option);

    if (!row || row->kind == ARGS_FLAG || row->kind == ARGS_ACTION)
        return false;
    if (row->kind == ARGS_SWITCH)
        return equals;
    return option[1] == '-' || !option[2] || complete_has_name(row, option + 1);
}

/* Is the last word behind the one that names a program to be run? */
static bool complete_is_behind(const struct args *args, int count, char *const *words)
{
    for (int w = 0; args->stops && w < count - 1; w++) {
        const bool equals = strcmp(words[w + 1], "=") == 0;

        if (words[w][0] != '-' || strcmp(words[w], "--") == 0)
            return true;
        if (equals || complete_takes_value(args, words[w], false))
            w += 1 + equals;
    }
    return false;
}

/* Finds out whose value the last word is. */
static struct completion complete_begin(const struct args *args, int count, char *const *words)
{
    struct completion completion = {args, count > 0 ? words[count - 1] : "", NULL};
    bool equals = strcmp(completion.partial, "=") == 0;
    int option = count - 2;

    if (equals)
        completion.partial = "";
    else if (count > 2 && strcmp(words[count - 2], "=") == 0)
        equals = true, option--;
    if (option >= 0 && complete_takes_value(args, words[option], equals))
        completion.option = words[option];
    return completion;
}

void args_complete(const struct args *args, int count, char *const *words)
{
    struct completion completion = complete_begin(args, count, words);

    if (complete_is_behind(args, count, words))
        return;
    if (completion.option) {
        const struct args_row *row = complete_row(args, completion.option);

        if (row->kind == ARGS_CHOICE || row->kind == ARGS_SWITCH)
            complete_list(&completion, "", row->kind == ARGS_SWITCH ? "0|1" : row->argument, '|');
        return;
    }
    for (int i = 0; i < args->count; i++) {
        const struct args_row *row = &args->rows[i];

        if (row->kind == ARGS_WORDS && completion.partial[0] != '-')
            complete_list(&completion, "", row->argument, '|');
        else if (row->kind != ARGS_GROUP && row->kind != ARGS_WORDS && completion.partial[0] == '-')
            complete_list(&completion, "--", row->names, ',');
    }
}
