/* SPDX-License-Identifier: BSD-3-Clause */
/* dist_info: prints the version and the available modules, and runs the diagnostic commands. */
#include "tools/common/args.h"
#include "tools/common/launched.h"
#include "tools/common/output.h"
#include "tools/common/text.h"
#include "tools/doctor/doctor.h"
#include "tools/explain.h"
#include "tools/flight.h"
#include "tools/memory.h"
#include "tools/selftest/selftest.h"
#include "tools/topology/topology.h"

#include <dist/backend.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A parsed line "backend NAME yes|no TEXT" or "transport ..." of dist_probe_name. */
struct modules_line {
    bool backend; /* false: a transport */
    bool usable;
    bool lost; /* loading or probing the module crashed or hung */
    char name[64];
    char text[1100];
};

/* Modules in the order of dist_list_names. The caller frees `lines`. */
struct modules_list {
    struct modules_line *lines;
    int count;
};

/* Parsing the output of dist_probe_name. */

/* Room for the text of one name: up to two lines (backend and transport), each with a reason. */
#define MODULES_TEXT 2400

/* Appends a line to the list. Returns false if out of memory. */
static bool modules_add(struct modules_list *list, const char *text)
{
    struct modules_line line = {.text = ""}, *lines;
    char kind[16], runs[8];
    int at = 0;

    if (sscanf(text, "%15s %63s %7s %n", kind, line.name, runs, &at) < 3)
        return true; /* the continuation of a module's multi-line reason */
    line.backend = strcmp(kind, "transport") != 0;
    line.lost = strcmp(kind, "lost") == 0;
    line.usable = strcmp(runs, "yes") == 0;
    snprintf(line.text, sizeof(line.text), "%s", text + at);
    lines = realloc(list->lines, (size_t)(list->count + 1) * sizeof(*lines));
    if (!lines)
        return false;
    list->lines = lines;
    list->lines[list->count++] = line;
    return true;
}

static bool modules_probe_one(const char *name, struct modules_list *list)
{
    char text[MODULES_TEXT], *rest;
    bool added = true;

    dist_probe_name(name, text, sizeof(text));
    for (char *line = strtok_r(text, "\n", &rest); line && added;
         line = strtok_r(NULL, "\n", &rest))
        added = modules_add(list, line);
    return added;
}

/*
 * Probes every module and lists the results. Modules are probed in child processes: one that
 * crashes or hangs for some seconds is listed as lost and does not affect this process. Blocks
 * until all are probed. Returns false if out of memory.
 */
static bool modules_probe_all(struct modules_list *list_p)
{
    size_t size = dist_list_names(NULL, 0) + 1;
    char *names = malloc(size), *rest;
    bool asked = names != NULL;

    *list_p = (struct modules_list){0};
    if (names)
        dist_list_names(names, size);
    for (char *name = names ? strtok_r(names, "\n", &rest) : NULL; name && asked;
         name = strtok_r(NULL, "\n", &rest))
        asked = modules_probe_one(name, list_p);
    free(names);
    return asked;
}

/* dist_info tune: measures the cost of messages thoroughly and stores it in the cache. */

/* Log callback that prints only the lines about measured costs. */
static void tune_log(void *arg, dist_log_level level, const char *line)
{
    const char *text = strstr(line, "tuning: ");

    (void)level;
    (void)arg;
    progress_clear();
    if (text)
        printf("%s\n", text + strlen("tuning: "));
}

/* Runs one rank. Initializing the group performs the measurement. Returns the exit code. */
static int tune_rank(int rank, void *arg)
{
    struct dist_options options = DIST_OPTIONS_INIT;
    dist_group *group = NULL;
    dist_status status;
    int ranks = 0;

    (void)arg;
    options.log = tune_log;
    if (rank == 0)
        progress_show("measuring the cost of messages, which takes some seconds");
    status = dist_init_process_group(&options, &group);
    progress_clear();
    if (status == DIST_OK) {
        ranks = dist_get_world_size(group);
        status = dist_destroy_process_group(group);
    }
    if (status != DIST_OK)
        fprintf(stderr, "dist_info: %s\n", dist_last_error());
    else if (ranks == 1)
        fprintf(stderr, "dist_info: tune needs two ranks or more: give --ranks, or start dist_info "
                        "with your job's launcher\n");
    return output_exit("dist_info", status == DIST_OK && ranks > 1 ? 0 : 1);
}

static int tune_main(int argc, char **argv)
{
    struct words {
        int64_t ranks;
        int action;
    } words = {0};
    static const struct args_row rows[] = {
        {"ranks", 0, ARGS_INT, offsetof(struct words, ranks), 1, EXPLAIN_RANKS_MAX, "N",
         "start N ranks on this machine (default: run as a rank of the launcher's job)"},
        ARGS_HELP_ROWS(struct words, 0),
    };
    static const struct args args = {
        .rows = rows,
        .count = sizeof(rows) / sizeof(rows[0]),
        .program = "dist_info tune",
        .usage = "[--ranks N]",
        .about = "Measures the cost of messages and stores it for later jobs.\n"};
    int rest, code = args_begin(&args, argc, argv, &words, 0, &rest);

    if (code >= 0)
        return code;
    code = 0;
    setenv("DIST_TUNING", "measure", 1);
    unsetenv("DIST_DEBUG");
    if (!words.ranks)
        return tune_rank(0, NULL);
    if (dist_spawn((int)words.ranks, tune_rank, NULL, &code) != DIST_OK) {
        fprintf(stderr, "dist_info: %s\n", dist_last_error());
        return 1;
    }
    if (code != 0)
        launched_report_end("dist_info", code);
    return code;
}

/* The origin of a variable: /proc has the environment that each process was started with. */

enum { ORIGIN_MOST = 1 << 20 }; /* maximum size read from a file of /proc */

/* Reads the file /proc/PID/what. Returns the content, which the caller frees; *length_p is 0 if the
 * file cannot be read. */
static char *origin_read(int pid, const char *what, size_t *length_p)
{
    char path[64], *text = malloc(ORIGIN_MOST);
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/%s", pid, what);
    file = fopen(path, "re");
    *length_p = file && text ? fread(text, 1, ORIGIN_MOST - 1, file) : 0;
    if (file)
        fclose(file);
    if (text)
        text[*length_p] = '\0';
    return text;
}

/* Returns 1 if the process was started with that value, 0 if not, -1 if its environment cannot be
 * read. */
static int origin_started_with(int pid, const char *name, const char *value)
{
    const size_t name_length = strlen(name);
    size_t length;
    char *text = origin_read(pid, "environ", &length);
    int found = length ? 0 : -1;

    for (size_t at = 0; at < length; at += strlen(text + at) + 1) {
        if (strncmp(text + at, name, name_length) == 0 && text[at + name_length] == '=')
            found = strcmp(text + at + name_length + 1, value) == 0;
    }
    free(text);
    return found;
}

/* Returns the parent's pid, or 0, and writes the process's name to `name`. Parses "PID (NAME) STATE
 * PARENT ...", where NAME may contain blanks and parentheses. */
static int origin_parent(int pid, char name[32])
{
    size_t length;
    char *text = origin_read(pid, "stat", &length), *begin, *end;
    int parent = 0;

    begin = text ? strchr(text, '(') : NULL;
    end = text ? strrchr(text, ')') : NULL;
    if (begin && end && sscanf(end + 1, " %*c %d", &parent) == 1)
        snprintf(name, 32, "%.*s", (int)(end - begin - 1), begin + 1);
    free(text);
    return parent;
}

/* True if /proc belongs to this PID namespace. Otherwise our pids name other processes there. */
static bool origin_is_own(void)
{
    char pid[16] = "";

    return readlink("/proc/self", pid, sizeof(pid) - 1) > 0 && atoi(pid) == getpid();
}

/*
 * Writes which process has set the variable to text[size]: "bash (1234)" for the closest ancestor
 * that was started without this value, or "the environment" if there is no such ancestor whose
 * environment can be read.
 */
static void origin_of(const char *name, const char *value, char *text, size_t size)
{
    char process[32];
    int pid = getppid();

    snprintf(text, size, "the environment");
    while (pid > 0 && origin_is_own()) {
        int with = origin_started_with(pid, name, value), parent = origin_parent(pid, process);

        if (with < 0)
            return;
        if (with == 0) {
            snprintf(text, size, "%s (%d)", process, pid);
            return;
        }
        pid = parent;
    }
}

/* dist_info env: every variable, its value, the process that has set it, and its meaning. */

/* A parsed line of dist_list_variables. */
struct env_line {
    const char *kind, *name, *note, *meaning;
    const char *value; /* NULL: unset */
    char from[64];
};

static void env_print(char *text, bool json)
{
    const char *kind = "";
    bool first = true;
    char *item;

    printf("%s", json ? "[" : "");
    while ((item = strsep(&text, "\n"))) {
        const char *fields[4];
        int count = 0;

        while (count < 4 && (fields[count] = strsep(&item, "\t")))
            count++;
        if (count < 4)
            continue;
        struct env_line line = {fields[0], fields[1], fields[2], fields[3], getenv(fields[1]), ""};

        if (line.value)
            origin_of(line.name, line.value, line.from, sizeof(line.from));
        if (!json && strcmp(kind, line.kind) != 0) {
            /* The heading of a kind of variables. */
            printf("%s\n", strcmp(line.kind, "own") == 0 ? "Variables of libdist"
                           : strcmp(line.kind, "foreign") == 0
                               ? "\nVariables of launchers and other software"
                           : strcmp(line.kind, "wrong") == 0
                               ? "\nVariables with an invalid value (jobs fail at start)"
                               : "\nUnknown DIST_ variables (ignored)");
        }
        kind = line.kind;
        if (json) {
            static const char *const notes[][2] = {
                {"own", "default"}, {"foreign", "owner"}, {"unknown", "meant"}};

            printf("%s\n  {", first ? "" : ",");
            json_member("name", line.name, true, stdout);
            json_member("kind", line.kind, false, stdout);
            if (line.value) {
                json_member("value", line.value, false, stdout);
                json_member("from", line.from, false, stdout);
            } else {
                printf(", \"value\": null, \"from\": null");
            }
            for (size_t i = 0; i < sizeof(notes) / sizeof(notes[0]); i++) {
                if (strcmp(notes[i][0], line.kind) == 0)
                    json_member(notes[i][1], line.note, false, stdout);
            }
            json_member("meaning", line.meaning, false, stdout);
            printf("}");
        } else {
            printf("  %-28s ", line.name);
            if (line.value)
                printf("%s  [set by %s]\n", *line.value ? line.value : "(empty)", line.from);
            else if (strcmp(line.kind, "own") == 0 && *line.note)
                printf("-  [default: %s]\n", line.note);
            else
                printf("-\n");
            if (strcmp(line.kind, "foreign") == 0)
                printf("      %s: %s\n", line.note, line.meaning);
            else if (strcmp(line.kind, "own") == 0 || strcmp(line.kind, "wrong") == 0)
                printf("      %s\n", line.meaning);
            else if (*line.note)
                printf("      did you mean %s, %s?\n", line.note, line.meaning);
            else
                printf("      no variable has a similar name\n");
        }
        first = false;
    }
    printf("%s", json ? "\n]\n" : "");
}

static int env_main(int argc, char **argv)
{
    struct words {
        const char *format;
        int action;
    } words = {0};
    static const struct args_row rows[] = {
        {"format", 0, ARGS_CHOICE, offsetof(struct words, format), 0, 0, "table|json",
         "for people (the default), or for programs"},
        ARGS_HELP_ROWS(struct words, 0),
    };
    static const struct args args = {
        .rows = rows,
        .count = sizeof(rows) / sizeof(rows[0]),
        .program = "dist_info env",
        .usage = "[--format table|json]",
        .about = "Prints every environment variable that libdist reads: its value, which process "
                 "has set it, its default, and its meaning.\n"};
    size_t size = dist_list_variables(NULL, 0) + 1;
    char *text;
    int rest, code = args_begin(&args, argc, argv, &words, 0, &rest);

    if (code >= 0)
        return code;
    text = malloc(size);
    if (!text) {
        fprintf(stderr, "dist_info: out of memory\n");
        return 1;
    }
    dist_list_variables(text, size);
    env_print(text, words.format && strcmp(words.format, "json") == 0);
    free(text);
    return 0;
}

/* dist_info backends: the collectives, dtypes and ops that each backend supports. */

/* The options of dist_info and of dist_info backends. */
struct info {
    const char *backend; /* NULL: every backend that can run here */
    const char *format;
    bool csv;
    int action;
};

static bool info_supports(const char *backend, dist_collective collective, int dtype, int op)
{
    return dist_backend_query(backend, collective, (dist_dtype)dtype, (dist_op)op) == DIST_OK;
}

static int info_ops(dist_collective collective)
{
    return dist_collective_reduces(collective) ? DIST_OP_COUNT : 1;
}

/* ---- the table ---- */

/* True if the backend supports the same dtypes and ops in two reducing collectives. */
static bool info_same(const char *backend, dist_collective a, dist_collective b)
{
    for (int dtype = 0; dtype < DIST_DTYPE_COUNT; dtype++) {
        for (int op = 0; op < DIST_OP_COUNT; op++) {
            if (info_supports(backend, a, dtype, op) != info_supports(backend, b, dtype, op))
                return false;
        }
    }
    return true;
}

/*
 * Prints the dtypes and ops of the reducing collectives as matrices, one for all collectives that
 * support the same.
 */
static void info_matrices(const char *backend)
{
    bool shown[DIST_COLL_COUNT] = {false};

    for (int c = 0; c < DIST_COLL_COUNT; c++) {
        if (shown[c] || !dist_collective_reduces((dist_collective)c))
            continue;
        printf("\n  dtypes and ops of");
        for (int other = c; other < DIST_COLL_COUNT; other++) {
            if (shown[other] || !dist_collective_reduces((dist_collective)other) ||
                !info_same(backend, (dist_collective)c, (dist_collective)other))
                continue;
            shown[other] = true;
            printf("%s %s", other == c ? "" : ",", dist_collective_string((dist_collective)other));
        }
        printf(":\n");
        printf("  %-10s", "");
        for (int op = 0; op < DIST_OP_COUNT; op++)
            printf(" %s", dist_op_string((dist_op)op));
        printf("\n");
        for (int dtype = 0; dtype < DIST_DTYPE_COUNT; dtype++) {
            printf("  %-10s", dist_dtype_string((dist_dtype)dtype));
            for (int op = 0; op < DIST_OP_COUNT; op++)
                printf(" %-*s", (int)strlen(dist_op_string((dist_op)op)),
                       info_supports(backend, (dist_collective)c, dtype, op) ? "yes" : "-");
            printf("\n");
        }
    }
}

/* ---- output and commands ---- */

static int info_no_memory(void)
{
    fprintf(stderr, "dist_info: out of memory, or cannot start a process\n");
    return 1;
}

static void info_lines(const struct modules_list *list, bool backends)
{
    for (int i = 0; i < list->count; i++) {
        const struct modules_line *line = &list->lines[i];

        if (line->backend == backends)
            printf("  %-8s %-4s %s\n", line->name, line->usable ? "yes" : "no", line->text);
    }
}

static void info_show(const struct info *info, const char *backend)
{
    if (info->csv) {
        for (int c = 0; c < DIST_COLL_COUNT; c++) {
            dist_collective collective = (dist_collective)c;

            for (int dtype = 0; dtype < DIST_DTYPE_COUNT; dtype++) {
                for (int op = 0; op < info_ops(collective); op++)
                    printf("%s,%s,%s,%s,%s\n", backend, dist_collective_string(collective),
                           dist_dtype_string((dist_dtype)dtype),
                           dist_collective_reduces(collective) ? dist_op_string((dist_op)op) : "-",
                           info_supports(backend, collective, dtype, op) ? "yes" : "no");
            }
        }
    } else {
        printf("%s\n", backend);
        for (int c = 0; c < DIST_COLL_COUNT; c++) {
            dist_collective collective = (dist_collective)c;
            bool supported[DIST_DTYPE_COUNT]; /* with any op */
            int count = 0;                    /* supported dtypes */

            for (int dtype = 0; dtype < DIST_DTYPE_COUNT; dtype++) {
                supported[dtype] = false;
                for (int op = 0; op < info_ops(collective); op++)
                    supported[dtype] =
                        supported[dtype] || info_supports(backend, collective, dtype, op);
                count += supported[dtype];
            }

            printf("  %-16s", dist_collective_string(collective));
            if (count == 0)
                printf("  no");
            else if (collective == DIST_COLL_BARRIER)
                printf("  yes");
            else if (count == DIST_DTYPE_COUNT)
                printf("  every dtype");
            for (int dtype = 0; dtype < DIST_DTYPE_COUNT && count < DIST_DTYPE_COUNT; dtype++) {
                if (supported[dtype])
                    printf("  %s", dist_dtype_string((dist_dtype)dtype));
            }
            if (count && dist_collective_reduces(collective))
                printf(", ops below");
            printf("\n");
        }
        info_matrices(backend);
    }
}

static int info_backends_main(int argc, char **argv)
{
    static const struct args_row rows[] = {
        {"backend", 0, ARGS_TEXT, offsetof(struct info, backend), 0, 0, "NAME",
         "show this backend only"},
        {"format", 0, ARGS_CHOICE, offsetof(struct info, format), 0, 0, "table|csv",
         "for people (the default), or for programs: lines of "
         "backend,collective,dtype,op,yes|no"},
        ARGS_HELP_ROWS(struct info, 0),
    };
    static const struct args args = {
        .rows = rows,
        .count = sizeof(rows) / sizeof(rows[0]),
        .program = "dist_info backends",
        .usage = "[--backend NAME] [--format table|csv]",
        .about = "Shows for each backend that can run here the collectives that it supports, with "
                 "the dtypes and ops of each. If nothing is reduced, the op is \"-\".\n"};
    struct info info = {0};
    struct modules_list list = {0};
    int rest, code = args_begin(&args, argc, argv, &info, 0, &rest);

    if (code >= 0)
        return code;
    code = 0;
    info.csv = info.format && strcmp(info.format, "csv") == 0;
    if (!info.backend) {
        bool asked = modules_probe_all(&list), first = true;

        for (int i = 0; i < list.count && asked; i++) {
            if (!list.lines[i].backend || !list.lines[i].usable)
                continue;
            if (!first && !info.csv)
                printf("\n");
            info_show(&info, list.lines[i].name);
            first = false;
        }
        free(list.lines);
        if (!asked)
            return info_no_memory();
        return first ? 1 : 0;
    }
    if (!modules_probe_one(info.backend, &list)) {
        code = info_no_memory();
    } else if (list.count && list.lines[0].backend && list.lines[0].usable) {
        info_show(&info, info.backend);
    } else {
        /*
         * Print why the backend cannot be used. If the probe crashed or hung in its child process,
         * print that; otherwise a query in this process is safe and returns a more detailed error.
         */
        if (list.count && list.lines[0].lost)
            fprintf(stderr, "dist_info: %s\n", list.lines[0].text);
        else if (dist_backend_query(info.backend, DIST_COLL_BARRIER, DIST_UINT8, DIST_SUM) !=
                 DIST_OK)
            fprintf(stderr, "dist_info: %s\n", dist_last_error());
        code = 1;
    }
    free(list.lines);
    return code;
}

static const struct {
    const char *name, *what;
    int (*run)(int argc, char **argv);
} info_commands[] = {
    {"backends", "the collectives, dtypes and ops that each backend supports", info_backends_main},
    {"doctor", "finds what prevents or slows down jobs here, and how to fix it", doctor_main},
    {"env", "every environment variable that libdist reads, its value and origin", env_main},
    {"explain", "which algorithm libdist chooses for a collective, and the predicted times",
     explain_main},
    {"flight", "finds out from flight recorders' files which rank a job waits for", flight_main},
    {"memory", "whether ranks of this machine can use each other's memory", memory_main},
    {"selftest", "tests whether a backend or a transport works correctly", selftest_main},
    {"topology", "packages, NUMA nodes, cores and GPUs, and the ranks on them", topology_main},
    {"tune", "measures the cost of messages and stores it for later jobs", tune_main},
};

static const struct args_row info_rows[] = {
    {.kind = ARGS_WORDS,
     .names = "",
     .argument = "backends|doctor|env|explain|flight|memory|selftest|topology|tune"},
    ARGS_HELP_ROWS(struct info, 0),
};
static const struct args info_args = {
    .rows = info_rows,
    .count = sizeof(info_rows) / sizeof(info_rows[0]),
    .stops = true,
    .program = "dist_info",
    .usage = "[COMMAND [ARGUMENT]...]\n--help | --version",
    .about = "Shows what this installation of libdist can do. Without a command: the version, the "
             "directories of the modules, and the backends and transports that can run here.\n"};

static int info_run(int argc, char **argv)
{
    struct info info = {0};
    char failure[ARGS_FAILURE];
    int rest;

    for (size_t i = 0; argc > 1 && i < sizeof(info_commands) / sizeof(info_commands[0]); i++) {
        if (strcmp(argv[1], info_commands[i].name) == 0)
            return info_commands[i].run(argc - 1, argv + 1);
    }
    if (args_read(&info_args, argc, argv, &info, &rest, failure) != 0)
        return args_wrong(&info_args, "%s", failure);
    if (info.action == ARGS_SHOW_HELP) {
        args_help(&info_args, stdout);
        printf("\nCommands:\n");
        for (size_t i = 0; i < sizeof(info_commands) / sizeof(info_commands[0]); i++)
            args_item(info_commands[i].name, 14, info_commands[i].what, stdout);
        args_text("\n'dist_info COMMAND --help' lists the options of a command.\n", stdout);
        return 0;
    }
    if (info.action == ARGS_SHOW_VERSION)
        return args_version(&info_args), 0;
    if (rest == argc) {
        struct modules_list list;
        bool asked;

        printf("libdist %s\n\nModules (dist_NAME.so) are looked for in\n", dist_version());
        size_t size = dist_list_module_folders(NULL, 0) + 1;
        char *folders = malloc(size), *next;

        if (folders)
            dist_list_module_folders(folders, size);
        for (char *line = folders ? strtok_r(folders, "\n", &next) : NULL; line;
             line = strtok_r(NULL, "\n", &next))
            printf("  %s\n", line);
        free(folders);
        asked = modules_probe_all(&list);
        if (asked) {
            printf("\nBackends, and whether they can run here\n");
            info_lines(&list, true);
            printf("\nTransports (DIST_TRANSPORT), and whether they can run here\n");
            info_lines(&list, false);
        }
        free(list.lines);
        return asked ? 0 : info_no_memory();
    }
    return args_wrong(&info_args, "unknown command '%s'", argv[rest]);
}

int main(int argc, char **argv)
{
    signal(SIGXFSZ, SIG_IGN); /* a write beyond RLIMIT_FSIZE then fails with EFBIG */
    return output_exit("dist_info", info_run(argc, argv));
}
