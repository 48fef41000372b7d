/* SPDX-License-Identifier: BSD-3-Clause */
/* Who takes part in a comparison. */
#include "libraries.h"

#include "peer.h"
#include "spec.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIBRARIES_PEER "peer:"

static char libraries_failure[512];

struct libraries_maker {
    const struct options *options;
    size_t largest;
    struct libraries libraries;
    bool asked;
};

static int libraries_wrong(const char *format, ...) __attribute__((format(printf, 1, 2)));
static int libraries_wrong(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(libraries_failure, sizeof(libraries_failure), format, arguments);
    va_end(arguments);
    return -1;
}

/* ---- commands ---- */

static void library_word(struct library *one, const char *word)
{
    if (one->word_count < LIBRARY_WORDS_MAX)
        one->words[one->word_count++] = strdup(word);
}

static void library_number(struct library *one, const char *option, unsigned long long number)
{
    char text[32];

    snprintf(text, sizeof(text), "%llu", number);
    library_word(one, option);
    library_word(one, text);
}

/* The command that starts an MPI's ranks, at its blanks. */
static void library_mpirun(const struct libraries_maker *making, struct library *one)
{
    const char *command = making->options->mpirun;
    char *copy;

    if (!command)
        command = *BENCH_OPENMPI_RUN ? BENCH_OPENMPI_RUN : BENCH_MPICH_RUN;
    copy = strdup(*command ? command : "mpirun");
    for (char *word = copy ? strtok(copy, " ") : NULL; word; word = strtok(NULL, " "))
        library_word(one, word);
    free(copy);
    library_number(one, "-np", (unsigned long long)making->options->ranks);
}

/* dist_bench itself, as a worker. */
static void library_libdist(const struct libraries_maker *making, struct library *one,
                            const struct spec *spec)
{
    char self[4096];
    ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);

    self[length > 0 ? length : 0] = '\0';
    if (spec->launched)
        library_mpirun(making, one);
    library_word(one, self);
    library_word(one, "--worker");
    library_word(one, one->name);
    if (!spec->launched)
        library_number(one, "-n", (unsigned long long)making->options->ranks);
    library_number(one, "-e", making->largest);
    one->limit = spec->limit;
}

/* ---- the list ---- */

static struct library *libraries_add(struct libraries_maker *making, const char *name)
{
    struct libraries *libraries = &making->libraries;
    struct library *more =
        realloc(libraries->entries, ((size_t)libraries->count + 1) * sizeof(*more));

    if (!more)
        return NULL;
    libraries->entries = more;
    more += libraries->count;
    *more = (struct library){.name = strdup(name), .asked = making->asked};
    libraries->count += more->name != NULL;
    return more->name ? more : NULL;
}

static bool libraries_is_libdist(const char *name)
{
    static const char *const backends[] = {"gloo", "mpi", "mpi-native", "self", "auto", "limit"};

    for (size_t i = 0; i < sizeof(backends) / sizeof(backends[0]); i++) {
        if (strcmp(backends[i], name) == 0)
            return true;
    }
    return false;
}

/* A peer that has the name of a backend of ours is told from it. */
static int libraries_add_peer(void *arg, const char *name)
{
    struct libraries_maker *making = arg;
    char shown[256], text[256];
    char *path = peer_find(name);
    bool usable = path && peer_probe(path, text, sizeof(text));
    struct library *one;

    if (!path && making->asked)
        return libraries_wrong("there is no driver of a library '%s': DIST_BENCH_PEERS names the "
                               "folder with yours",
                               name);
    snprintf(shown, sizeof(shown), "%s%s", libraries_is_libdist(name) ? LIBRARIES_PEER : "", name);
    one = path && (usable || making->asked) ? libraries_add(making, shown) : NULL;
    if (!one && path)
        fprintf(stderr, "dist_bench: %s is left out: %s\n", name, text);
    if (one && !usable)
        one->reason = strdup(text);
    if (one && usable) {
        char ranks[16];

        snprintf(ranks, sizeof(ranks), "%d", (int)making->options->ranks);
        library_word(one, path);
        library_word(one, ranks);
    }
    free(path);
    return 0;
}

static int libraries_add_libdist(struct libraries_maker *making, const char *text)
{
    const char *failure;
    struct library *one;
    struct spec spec;

    if (spec_read(text, &spec, &failure) != 0)
        return libraries_wrong("--compare: %s", failure);
    one = libraries_add(making, text);
    if (one)
        library_libdist(making, one, &spec);
    spec_free(&spec);
    return one ? 0 : libraries_wrong("no memory");
}

static bool libraries_has(const struct libraries *libraries, const char *name)
{
    for (int i = 0; i < libraries->count; i++) {
        if (strcmp(libraries->entries[i].name, name) == 0)
            return true;
    }
    return false;
}

/* A word of --compare or --peer. */
static int libraries_add_named(struct libraries_maker *making, const char *name, bool peer)
{
    char *path = NULL;
    int failed = 0;

    if (strncmp(name, LIBRARIES_PEER, strlen(LIBRARIES_PEER)) == 0) {
        name += strlen(LIBRARIES_PEER);
        peer = true;
    }
    if (!peer && !libraries_is_libdist(name))
        path = peer_find(name);
    if (!libraries_has(&making->libraries, name) || peer)
        failed =
            peer || path ? libraries_add_peer(making, name) : libraries_add_libdist(making, name);
    free(path);
    return failed;
}

static int libraries_add_list(struct libraries_maker *making, const char *list, bool peers)
{
    char *copy = strdup(list ? list : ""), *rest = copy, *name;
    int failed = copy ? 0 : -1;

    making->asked = true;
    while (!failed && (name = strsep(&rest, ","))) {
        if (*name)
            failed = libraries_add_named(making, name, peers);
    }
    making->asked = false;
    free(copy);
    return failed;
}

static int libraries_add_unasked(void *arg, const char *name)
{
    struct libraries_maker *making = arg;
    char shown[256];

    snprintf(shown, sizeof(shown), LIBRARIES_PEER "%s", name);
    if (libraries_has(&making->libraries, libraries_is_libdist(name) ? shown : name))
        return 0;
    return libraries_add_peer(making, name);
}

int libraries_make(const struct options *options, size_t largest, struct libraries *libraries_p,
                   const char **failure_p)
{
    struct libraries_maker making = {.options = options, .largest = largest};
    int failed;

    *failure_p = libraries_failure;
    failed = libraries_add_list(&making, options->compare ? options->compare : "gloo", false);
    if (!failed)
        failed = libraries_add_list(&making, options->peer, true);
    if (!failed && options->peers)
        failed = peer_each(libraries_add_unasked, &making);
    if (!failed && options->limit)
        failed = libraries_add_list(&making, "limit", false);
    if (!failed && making.libraries.count > 0) {
        *libraries_p = making.libraries;
        return 0;
    }
    if (!failed)
        libraries_wrong("--compare names nobody: give a list such as gloo,gloo/dist,mpi");
    libraries_free(&making.libraries);
    return -1;
}

void libraries_free(struct libraries *libraries)
{
    for (int i = 0; i < libraries->count; i++) {
        for (int w = 0; w < libraries->entries[i].word_count; w++)
            free(libraries->entries[i].words[w]);
        free(libraries->entries[i].name);
        free(libraries->entries[i].reason);
    }
    free(libraries->entries);
    *libraries = (struct libraries){0};
}
