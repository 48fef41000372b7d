/* SPDX-License-Identifier: BSD-3-Clause */
/* dist_info: the version, the backends there are, and what each of them supports. */
#include "common/args.h"
#include "common/output.h"
#include "doctor/doctor.h"
#include "explain.h"
#include "memory.h"
#include "modules.h"
#include "selftest/selftest.h"
#include "tools/env.h"
#include "tools/flight.h"
#include "topology/topology.h"

#include <dist/backend.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What the command line asks for. */
struct info {
    const char *backend; /* NULL: every one that can run here */
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

/* ---- csv ---- */

static void info_csv(const char *backend)
{
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
}

/* ---- the table ---- */

/* How many dtypes go with that collective, with any op. */
static int info_dtypes(const char *backend, dist_collective collective,
                       bool taken[DIST_DTYPE_COUNT])
{
    int count = 0;

    for (int dtype = 0; dtype < DIST_DTYPE_COUNT; dtype++) {
        taken[dtype] = false;
        for (int op = 0; op < info_ops(collective); op++)
            taken[dtype] = taken[dtype] || info_supports(backend, collective, dtype, op);
        count += taken[dtype];
    }
    return count;
}

static void info_row(const char *backend, dist_collective collective)
{
    bool taken[DIST_DTYPE_COUNT];
    int count = info_dtypes(backend, collective, taken);

    printf("  %-16s", dist_collective_string(collective));
    if (count == 0)
        printf("  no");
    else if (collective == DIST_COLL_BARRIER)
        printf("  yes");
    else if (count == DIST_DTYPE_COUNT)
        printf("  every dtype");
    for (int dtype = 0; dtype < DIST_DTYPE_COUNT && count < DIST_DTYPE_COUNT; dtype++) {
        if (taken[dtype])
            printf("  %s", dist_dtype_string((dist_dtype)dtype));
    }
    if (count && dist_collective_reduces(collective))
        printf(", ops below");
    printf("\n");
}

/* Do two collectives that reduce support the same? */
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

static void info_matrix(const char *backend, dist_collective collective)
{
    printf("  %-10s", "");
    for (int op = 0; op < DIST_OP_COUNT; op++)
        printf(" %s", dist_op_string((dist_op)op));
    printf("\n");
    for (int dtype = 0; dtype < DIST_DTYPE_COUNT; dtype++) {
        printf("  %-10s", dist_dtype_string((dist_dtype)dtype));
        for (int op = 0; op < DIST_OP_COUNT; op++)
            printf(" %-*s", (int)strlen(dist_op_string((dist_op)op)),
                   info_supports(backend, collective, dtype, op) ? "yes" : "-");
        printf("\n");
    }
}

/* One matrix for all collectives that share it. */
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
        info_matrix(backend, (dist_collective)c);
    }
}

static void info_table(const char *backend)
{
    printf("%s\n", backend);
    for (int c = 0; c < DIST_COLL_COUNT; c++)
        info_row(backend, (dist_collective)c);
    info_matrices(backend);
}

/* ---- what is asked for ---- */

static int info_no_memory(void)
{
    fprintf(stderr, "dist_info: out of memory or processes\n");
    return 1;
}

static void info_folders(void)
{
    size_t size = dist_list_module_folders(NULL, 0) + 1;
    char *folders = malloc(size), *rest;

    if (folders)
        dist_list_module_folders(folders, size);
    for (char *line = folders ? strtok_r(folders, "\n", &rest) : NULL; line;
         line = strtok_r(NULL, "\n", &rest))
        printf("  %s\n", line);
    free(folders);
}

static void info_lines(const struct modules_list *list, bool backends)
{
    for (int i = 0; i < list->count; i++) {
        const struct modules_line *line = &list->lines[i];

        if (line->backend == backends)
            printf("  %-8s %-4s %s\n", line->name, line->usable ? "yes" : "no", line->text);
    }
}

static int info_summary(void)
{
    struct modules_list list;
    bool asked;

    printf("libdist %s\n\nModules (dist_NAME.so) are looked for in\n", dist_version());
    info_folders();
    asked = modules_ask_all(&list);
    if (asked) {
        printf("\nBackends, and whether they can run here\n");
        info_lines(&list, true);
        printf("\nTransports (DIST_TRANSPORT), and whether they can run here\n");
        info_lines(&list, false);
    }
    free(list.lines);
    return asked ? 0 : info_no_memory();
}

static void info_show(const struct info *info, const char *backend)
{
    if (info->csv)
        info_csv(backend);
    else
        info_table(backend);
}

static int info_show_all(const struct info *info)
{
    struct modules_list list;
    bool asked = modules_ask_all(&list), first = true;

    for (int i = 0; i < list.count && asked; i++) {
        if (!list.lines[i].backend || !list.lines[i].usable)
            continue;
        if (!first && !info->csv)
            printf("\n");
        info_show(info, list.lines[i].name);
        first = false;
    }
    free(list.lines);
    if (!asked)
        return info_no_memory();
    return first ? 1 : 0;
}

/* Why it cannot be shown. What did no harm in a child does none here, and says more. */
static int info_refuse(const char *backend, const struct modules_list *list)
{
    if (list->count && list->lines[0].lost)
        fprintf(stderr, "dist_info: %s\n", list->lines[0].text);
    else if (dist_backend_query(backend, DIST_COLL_BARRIER, DIST_UINT8, DIST_SUM) != DIST_OK)
        fprintf(stderr, "dist_info: %s\n", dist_last_error());
    return 1;
}

static int info_backends(const struct info *info)
{
    struct modules_list list;
    int code = 0;

    if (!info->backend)
        return info_show_all(info);
    if (!modules_ask(info->backend, &list))
        code = info_no_memory();
    else if (list.count && list.lines[0].backend && list.lines[0].usable)
        info_show(info, info->backend);
    else
        code = info_refuse(info->backend, &list);
    free(list.lines);
    return code;
}

static int info_backends_main(int argc, char **argv)
{
    static const struct args_row rows[] = {
        {"backend", 0, ARGS_TEXT, offsetof(struct info, backend), 0, 0, "NAME", "this one only"},
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
    int rest, code = args_begin(&args, argc, argv, &info, 0, &rest);

    if (code >= 0)
        return code;
    info.csv = info.format && strcmp(info.format, "csv") == 0;
    return info_backends(&info);
}

static const struct {
    const char *name, *what;
    int (*run)(int argc, char **argv);
} info_commands[] = {
    {"backends", "the collectives, dtypes and ops that each backend supports", info_backends_main},
    {"doctor", "what keeps jobs from running here, or from running fast, and how to fix it",
     doctor_main},
    {"env", "every environment variable that libdist reads, its value, and who has set it",
     env_main},
    {"explain", "which algorithm libdist chooses for a collective, and the predicted times",
     explain_main},
    {"flight", "which rank is behind, from the files of the ranks' flight recorders", flight_main},
    {"memory", "whether ranks of this machine can use each other's memory", memory_main},
    {"selftest", "whether a backend or a transport keeps its contract", selftest_main},
    {"topology", "packages, NUMA nodes, cores and GPUs, and the ranks on them", topology_main},
    {"tune", "measures the cost of messages, and keeps it for later jobs", tune_main},
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
    .about = "Says what this installation of libdist can do. Without a command: the version, where "
             "modules are looked for, and the backends and transports that can run here.\n"};

static void info_help(void)
{
    args_help(&info_args, stdout);
    printf("\nCommands:\n");
    for (size_t i = 0; i < sizeof(info_commands) / sizeof(info_commands[0]); i++)
        args_item(info_commands[i].name, 14, info_commands[i].what, stdout);
    args_text("\n'dist_info COMMAND --help' lists the options of a command.\n", stdout);
}

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
    if (info.action == ARGS_SHOW_HELP)
        return info_help(), 0;
    if (info.action == ARGS_SHOW_VERSION)
        return args_version(&info_args), 0;
    if (rest == argc)
        return info_summary();
    return args_wrong(&info_args, "unknown command '%s'", argv[rest]);
}

int main(int argc, char **argv)
{
    signal(SIGXFSZ, SIG_IGN); /* a write beyond the limit on files fails, and is reported */
    return output_exit("dist_info", info_run(argc, argv));
}
