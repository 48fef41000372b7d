/* SPDX-License-Identifier: BSD-3-Clause */
/* The libraries of a comparison, and the commands that start them. */
#include "bench/jobs.h"
#include "bench/measure.h"
#include "bench/protocol.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* A configuration of libdist on the command line. */

static char spec_failure[256];

static int spec_cut(struct spec *spec, char *text)
{
    char *plus = strchr(text, '+'), *slash;

    if (plus) {
        *plus = '\0';
        for (char *one = strtok(plus + 1, "+"); one; one = strtok(NULL, "+")) {
            if (!strchr(one, '=') || *one == '=' ||
                spec->variable_count == SPEC_VARIABLES_MAX - 1) {
                snprintf(spec_failure, sizeof(spec_failure),
                         "'%s': expected VARIABLE=VALUE after +, at most %d times", one,
                         SPEC_VARIABLES_MAX - 1);
                return -1;
            }
            spec->variables[spec->variable_count++] = one;
        }
    }
    slash = strchr(text, '/');
    spec->memory = slash ? slash + 1 : "malloc";
    if (slash)
        *slash = '\0';
    spec->backend = text;
    if (strcmp(text, "mpi-native") == 0) {
        spec->backend = "mpi";
        spec->variables[spec->variable_count++] = "DIST_MPI_COLL=native";
    }
    spec->launched = strcmp(spec->backend, "mpi") == 0;
    spec->limit = strcmp(text, "limit") == 0;
    if (*text && libdist_has_memory(spec->memory))
        return 0;
    snprintf(spec_failure, sizeof(spec_failure),
             "expected BACKEND[/malloc|/registered|/dist][+VARIABLE=VALUE], not '%s/%s'", text,
             spec->memory);
    return -1;
}

int spec_read(const char *text, struct spec *spec_p, const char **failure_p)
{
    struct spec spec = {.text = strdup(text)};

    *failure_p = spec_failure;
    if (!spec.text || spec_cut(&spec, spec.text) != 0) {
        free(spec.text);
        return -1;
    }
    *spec_p = spec;
    return 0;
}

void spec_free(struct spec *spec)
{
    free(spec->text);
    *spec = (struct spec){0};
}

int spec_apply(const struct spec *spec)
{
    for (int i = 0; i < spec->variable_count; i++) {
        char *variable = strdup(spec->variables[i]), *value;

        if (!variable)
            return -1;
        value = strchr(variable, '=');
        *value++ = '\0';
        setenv(variable, value, 1);
        free(variable);
    }
    return 0;
}

/* Peers: drivers of other libraries. Finds them and checks whether they can be used. */

#define PEER_FOLDERS 3
#define PEER_PROBE_NS 30e9 /* long enough for an MPI to start */

/* ---- directories ---- */

/* Writes the path of the i-th directory. -1: it does not exist. */
static int peer_folder(int i, char *folder, size_t size)
{
    const char *own = secure_getenv("DIST_BENCH_PEERS");

    if (i == 0)
        return own && *own && snprintf(folder, size, "%s", own) < (int)size ? 0 : -1;
    if (i == 1) {
        /* bench/peers next to this program, which libtool may have put into .libs. */
        char self[4096];
        ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
        char *slash;

        if (length <= 0)
            return -1;
        self[length] = '\0';
        slash = strrchr(self, '/');
        *slash = '\0';
        slash = strrchr(self, '/');
        if (slash && strcmp(slash, "/.libs") == 0)
            *slash = '\0';
        return snprintf(folder, size, "%s/bench/peers", self) < (int)size ? 0 : -1;
    }
    return snprintf(folder, size, "%s/dist/peers", BENCH_LIBEXECDIR) < (int)size ? 0 : -1;
}

/* Returns the path of the named driver, which the caller frees; NULL: not found. */
static char *peer_find(const char *name)
{
    char folder[4096], *path = NULL;

    for (int i = 0; !strchr(name, '/') && i < PEER_FOLDERS; i++) {
        if (peer_folder(i, folder, sizeof(folder)) != 0 ||
            asprintf(&path, "%s/%s", folder, name) < 0)
            continue;
        struct stat what;
        if (stat(path, &what) == 0 && S_ISREG(what.st_mode) && access(path, X_OK) == 0)
            return path;
        free(path);
    }
    return NULL;
}

/* Excludes names with a dot, which are not drivers, and the two programs that create drivers. */
static int peer_chosen(const struct dirent *entry)
{
    return !strchr(entry->d_name, '.') && strcmp(entry->d_name, "setup") != 0 &&
           strcmp(entry->d_name, "write-peer") != 0;
}

/* ---- probing ---- */

/* Returns the exit code; -1: killed by a signal or by the timeout. */
static int peer_wait(pid_t pid)
{
    double until = measure_now() + PEER_PROBE_NS;
    int how = -1;

    while (waitpid(pid, &how, WNOHANG) == 0) {
        if (measure_now() > until) {
            kill(-pid, SIGKILL);
            waitpid(pid, &how, 0);
            return -1;
        }
        poll(NULL, 0, 10);
    }
    return WIFEXITED(how) ? WEXITSTATUS(how) : -1;
}

/*
 * Runs PATH --probe. Returns true if the peer can be used; text (size bytes) is the library and its
 * version, or the reason. Blocks for at most PEER_PROBE_NS.
 */
static bool peer_probe(const char *path, char *text, int size)
{
    FILE *out = tmpfile();
    pid_t pid;
    int code = -1;

    snprintf(text, (size_t)size, "the probe could not be started");
    if (!out)
        return false;
    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        setpgid(0, 0);
        dup2(open("/dev/null", O_RDONLY), 0);
        dup2(fileno(out), 1);
        dup2(fileno(out), 2);
        job_oversubscribe();
        execl(path, path, "--probe", (char *)NULL);
        _exit(127);
    }
    if (pid > 0) {
        setpgid(pid, pid);
        code = peer_wait(pid);
    }
    rewind(out);
    if (fgets(text, size, out))
        text[strcspn(text, "\n")] = '\0';
    else if (code != 0)
        snprintf(text, (size_t)size, "its probe exited with code %d and printed nothing", code);
    fclose(out);
    return code == 0;
}

/* The list of libraries of a comparison. */

#define LIBRARIES_PEER "peer:"

static char libraries_failure[512];

struct libraries_maker {
    const struct options *options;
    size_t largest;
    struct libraries libraries;
    bool is_named;
};

__attribute__((format(printf, 1, 2))) static int libraries_wrong(const char *format, ...)
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

/* Appends a word and a number. */
static void library_number(struct library *one, const char *word, unsigned long long number)
{
    char text[32];

    snprintf(text, sizeof(text), "%llu", number);
    library_word(one, word);
    library_word(one, text);
}

/* ---- the list ---- */

static struct library *libraries_add(struct libraries_maker *maker, const char *name)
{
    struct libraries *libraries = &maker->libraries;
    struct library *more =
        realloc(libraries->entries, ((size_t)libraries->count + 1) * sizeof(*more));

    if (!more)
        return NULL;
    libraries->entries = more;
    more += libraries->count;
    *more = (struct library){.name = strdup(name), .is_named = maker->is_named};
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

/* A peer with the same name as a backend of libdist gets the prefix "peer:". */
static int libraries_add_peer(struct libraries_maker *maker, const char *name)
{
    char shown[256], text[256];
    char *path = peer_find(name);
    bool usable = path && peer_probe(path, text, sizeof(text));
    struct library *one;

    if (!path && maker->is_named)
        return libraries_wrong("no peer '%s': set DIST_BENCH_PEERS to the directory of your "
                               "peers",
                               name);
    snprintf(shown, sizeof(shown), "%s%s", libraries_is_libdist(name) ? LIBRARIES_PEER : "", name);
    one = path && (usable || maker->is_named) ? libraries_add(maker, shown) : NULL;
    if (!one && path)
        fprintf(stderr, "dist_bench: %s is excluded: %s\n", name, text);
    if (one && !usable)
        one->reason = strdup(text);
    if (one && usable)
        library_number(one, path, (unsigned long long)maker->options->ranks);
    free(path);
    return 0;
}

static int libraries_add_libdist(struct libraries_maker *maker, const char *text)
{
    const char *failure;
    struct library *one;
    struct spec spec;

    if (spec_read(text, &spec, &failure) != 0)
        return libraries_wrong("--compare: %s", failure);
    one = libraries_add(maker, text);
    if (one) {
        /* Run this program as a worker. */
        char self[4096];
        ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);

        self[length > 0 ? length : 0] = '\0';
        if (spec.launched) {
            /* Split the command that starts an MPI's ranks at blanks. */
            const char *command = maker->options->mpirun;
            char *copy;

            if (!command)
                command = *BENCH_OPENMPI_RUN ? BENCH_OPENMPI_RUN : BENCH_MPICH_RUN;
            copy = strdup(*command ? command : "mpirun");
            for (char *word = copy ? strtok(copy, " ") : NULL; word; word = strtok(NULL, " "))
                library_word(one, word);
            free(copy);
            library_number(one, "-np", (unsigned long long)maker->options->ranks);
        }
        library_word(one, self);
        library_word(one, "--worker");
        library_word(one, one->name);
        if (!spec.launched)
            library_number(one, "-n", (unsigned long long)maker->options->ranks);
        library_number(one, "-e", maker->largest);
        one->limit = spec.limit;
    }
    spec_free(&spec);
    return one ? 0 : libraries_wrong("out of memory");
}

static bool libraries_has(const struct libraries *libraries, const char *name)
{
    for (int i = 0; i < libraries->count; i++) {
        if (strcmp(libraries->entries[i].name, name) == 0)
            return true;
    }
    return false;
}

static int libraries_add_list(struct libraries_maker *maker, const char *list, bool peers)
{
    char *copy = strdup(list ? list : ""), *rest = copy, *name;
    int failed = copy ? 0 : -1;

    maker->is_named = true;
    while (!failed && (name = strsep(&rest, ","))) {
        if (*name) {
            /* Add one name of --compare or --peer. */
            bool peer = peers;
            char *path = NULL;

            if (strncmp(name, LIBRARIES_PEER, strlen(LIBRARIES_PEER)) == 0) {
                name += strlen(LIBRARIES_PEER);
                peer = true;
            }
            if (!peer && !libraries_is_libdist(name))
                path = peer_find(name);
            if (!libraries_has(&maker->libraries, name) || peer)
                failed = peer || path ? libraries_add_peer(maker, name)
                                      : libraries_add_libdist(maker, name);
            free(path);
        }
    }
    maker->is_named = false;
    free(copy);
    return failed;
}

/*
 * Adds all peers, by name. Earlier directories take precedence over peers of the same name in later
 * ones.
 */
static int libraries_add_all_peers(struct libraries_maker *maker)
{
    char folder[4096], path[8192], shown[300];
    int failed = 0;

    for (int i = 0; i < PEER_FOLDERS; i++) {
        struct dirent **names = NULL;
        int count = -1;

        if (peer_folder(i, folder, sizeof(folder)) == 0)
            count = scandir(folder, &names, peer_chosen, alphasort);
        for (int n = 0; n < count; n++) {
            const char *name = names[n]->d_name;
            char *found = peer_find(name);

            snprintf(path, sizeof(path), "%s/%s", folder, name);
            snprintf(shown, sizeof(shown), LIBRARIES_PEER "%s", name);
            if (!failed && found && strcmp(found, path) == 0 &&
                !libraries_has(&maker->libraries, libraries_is_libdist(name) ? shown : name))
                failed = libraries_add_peer(maker, name);
            free(found);
            free(names[n]);
        }
        free(names);
    }
    return failed;
}

int libraries_make(const struct options *options, size_t largest, struct libraries *libraries_p,
                   const char **failure_p)
{
    struct libraries_maker maker = {.options = options, .largest = largest};
    int failed;

    *failure_p = libraries_failure;
    failed = libraries_add_list(&maker, options->compare ? options->compare : "gloo", false);
    if (!failed)
        failed = libraries_add_list(&maker, options->peer, true);
    if (!failed && options->peers)
        failed = libraries_add_all_peers(&maker);
    if (!failed && options->limit)
        failed = libraries_add_list(&maker, "limit", false);
    if (!failed && maker.libraries.count > 0) {
        *libraries_p = maker.libraries;
        return 0;
    }
    if (!failed)
        libraries_wrong("--compare: empty list, expected one such as gloo,gloo/dist,mpi");
    libraries_free(&maker.libraries);
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
