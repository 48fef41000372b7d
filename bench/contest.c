/* SPDX-License-Identifier: BSD-3-Clause */
/* Who takes part in a comparison. */
#include "contest.h"

#include "peer.h"
#include "spec.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CONTEST_PEER "peer:"

static char contest_failure[512];

struct contest_making {
    const struct options *options;
    size_t largest;
    struct contest contest;
    bool asked;
};

static int contest_wrong(const char *format, ...) __attribute__((format(printf, 1, 2)));
static int contest_wrong(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(contest_failure, sizeof(contest_failure), format, arguments);
    va_end(arguments);
    return -1;
}

/* ---- commands ---- */

static void contest_word(struct contestant *one, const char *word)
{
    if (one->word_count < CONTEST_WORDS_MAX)
        one->words[one->word_count++] = strdup(word);
}

static void contest_number(struct contestant *one, const char *option, unsigned long long number)
{
    char text[32];

    snprintf(text, sizeof(text), "%llu", number);
    contest_word(one, option);
    contest_word(one, text);
}

/* The command that starts an MPI's ranks, at its blanks. */
static void contest_mpirun(const struct contest_making *making, struct contestant *one)
{
    const char *command = making->options->mpirun;
    char *copy;

    if (!command)
        command = *BENCH_OPENMPI_RUN ? BENCH_OPENMPI_RUN : BENCH_MPICH_RUN;
    copy = strdup(*command ? command : "mpirun");
    for (char *word = copy ? strtok(copy, " ") : NULL; word; word = strtok(NULL, " "))
        contest_word(one, word);
    free(copy);
    contest_number(one, "-np", (unsigned long long)making->options->ranks);
}

/* dist_bench itself, as a worker. */
static void contest_ours(const struct contest_making *making, struct contestant *one,
                         const struct spec *spec)
{
    char self[4096];
    ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);

    self[length > 0 ? length : 0] = '\0';
    if (spec->launched)
        contest_mpirun(making, one);
    contest_word(one, self);
    contest_word(one, "--worker");
    contest_word(one, one->name);
    if (!spec->launched)
        contest_number(one, "-n", (unsigned long long)making->options->ranks);
    contest_number(one, "-e", making->largest);
    one->limit = spec->limit;
}

/* ---- the list ---- */

static struct contestant *contest_add(struct contest_making *making, const char *name)
{
    struct contest *contest = &making->contest;
    struct contestant *more =
        realloc(contest->contestants, ((size_t)contest->count + 1) * sizeof(*more));

    if (!more)
        return NULL;
    contest->contestants = more;
    more += contest->count;
    *more = (struct contestant){.name = strdup(name), .asked = making->asked};
    contest->count += more->name != NULL;
    return more->name ? more : NULL;
}

static bool contest_is_ours(const char *name)
{
    static const char *const backends[] = {"gloo", "mpi", "mpi-native", "self", "auto", "limit"};

    for (size_t i = 0; i < sizeof(backends) / sizeof(backends[0]); i++) {
        if (strcmp(backends[i], name) == 0)
            return true;
    }
    return false;
}

/* A peer that has the name of a backend of ours is told from it. */
static int contest_add_peer(void *arg, const char *name)
{
    struct contest_making *making = arg;
    char shown[256], text[256];
    char *path = peer_find(name);
    bool usable = path && peer_probe(path, text, sizeof(text));
    struct contestant *one;

    if (!path && making->asked)
        return contest_wrong("there is no driver of a library '%s': DIST_BENCH_PEERS names the "
                             "folder with yours",
                             name);
    snprintf(shown, sizeof(shown), "%s%s", contest_is_ours(name) ? CONTEST_PEER : "", name);
    one = path && (usable || making->asked) ? contest_add(making, shown) : NULL;
    if (!one && path)
        fprintf(stderr, "dist_bench: %s is left out: %s\n", name, text);
    if (one && !usable)
        one->reason = strdup(text);
    if (one && usable) {
        char ranks[16];

        snprintf(ranks, sizeof(ranks), "%d", (int)making->options->ranks);
        contest_word(one, path);
        contest_word(one, ranks);
    }
    free(path);
    return 0;
}

static int contest_add_ours(struct contest_making *making, const char *text)
{
    const char *failure;
    struct contestant *one;
    struct spec spec;

    if (spec_read(text, &spec, &failure) != 0)
        return contest_wrong("--compare: %s", failure);
    one = contest_add(making, text);
    if (one)
        contest_ours(making, one, &spec);
    spec_free(&spec);
    return one ? 0 : contest_wrong("no memory");
}

static bool contest_has(const struct contest *contest, const char *name)
{
    for (int i = 0; i < contest->count; i++) {
        if (strcmp(contest->contestants[i].name, name) == 0)
            return true;
    }
    return false;
}

/* A word of --compare or --peer. */
static int contest_add_named(struct contest_making *making, const char *name, bool peer)
{
    char *path = NULL;
    int failed = 0;

    if (strncmp(name, CONTEST_PEER, strlen(CONTEST_PEER)) == 0) {
        name += strlen(CONTEST_PEER);
        peer = true;
    }
    if (!peer && !contest_is_ours(name))
        path = peer_find(name);
    if (!contest_has(&making->contest, name) || peer)
        failed = peer || path ? contest_add_peer(making, name) : contest_add_ours(making, name);
    free(path);
    return failed;
}

static int contest_add_list(struct contest_making *making, const char *list, bool peers)
{
    char *copy = strdup(list ? list : ""), *rest = copy, *name;
    int failed = copy ? 0 : -1;

    making->asked = true;
    while (!failed && (name = strsep(&rest, ","))) {
        if (*name)
            failed = contest_add_named(making, name, peers);
    }
    making->asked = false;
    free(copy);
    return failed;
}

static int contest_add_unasked(void *arg, const char *name)
{
    struct contest_making *making = arg;
    char shown[256];

    snprintf(shown, sizeof(shown), CONTEST_PEER "%s", name);
    if (contest_has(&making->contest, contest_is_ours(name) ? shown : name))
        return 0;
    return contest_add_peer(making, name);
}

int contest_make(const struct options *options, size_t largest, struct contest *contest_p,
                 const char **failure_p)
{
    struct contest_making making = {.options = options, .largest = largest};
    int failed;

    *failure_p = contest_failure;
    failed = contest_add_list(&making, options->compare ? options->compare : "gloo", false);
    if (!failed)
        failed = contest_add_list(&making, options->peer, true);
    if (!failed && options->peers)
        failed = peer_each(contest_add_unasked, &making);
    if (!failed && options->limit)
        failed = contest_add_list(&making, "limit", false);
    if (!failed && making.contest.count > 0) {
        *contest_p = making.contest;
        return 0;
    }
    if (!failed)
        contest_wrong("--compare is empty: give a list such as gloo,gloo/dist,mpi");
    contest_free(&making.contest);
    return -1;
}

void contest_free(struct contest *contest)
{
    for (int i = 0; i < contest->count; i++) {
        for (int w = 0; w < contest->contestants[i].word_count; w++)
            free(contest->contestants[i].words[w]);
        free(contest->contestants[i].name);
        free(contest->contestants[i].reason);
    }
    free(contest->contestants);
    *contest = (struct contest){0};
}
