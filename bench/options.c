/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of options: OSU's letters, and the long names of OSU's and NCCL's tests. */
#include "options.h"
#include "bench/measure.h"
#include "protocol.h"

#include <limits.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

const struct options options_defaults = {
    .ranks = -1,
    .least = -1,
    .most = -1,
    .factor = 2,
    .iterations = -1,
    .warmup = -1,
    .time = 0.4,
    .rounds = 5,
    .window = BENCH_WINDOW,
    .timing = "row",
    .memory_limit = (int64_t)8 << 30,
    .dtype_name = "float32",
    .op_name = "sum",
    .memory = "malloc",
    .format = NULL,
    .tolerance = 10,
    .timeout = 60,
};

#define AT(member) offsetof(struct options, member)
#define GROUP(name)                                                                                \
    {                                                                                              \
        name, 0, ARGS_GROUP, 0, 0, 0, NULL, NULL                                                   \
    }
#define FLAG(names, letter, member, help)                                                          \
    {                                                                                              \
        names, letter, ARGS_FLAG, AT(member), 0, 0, NULL, help                                     \
    }
#define NUMBER(names, letter, kind, member, least, most, argument, help)                           \
    {                                                                                              \
        names, letter, ARGS_##kind, AT(member), least, most, argument, help                        \
    }
#define TEXT(names, letter, kind, member, argument, help)                                          \
    {                                                                                              \
        names, letter, ARGS_##kind, AT(member), 0, 0, argument, help                               \
    }
#define ACTION(names, letter, value, help)                                                         \
    {                                                                                              \
        names, letter, ARGS_ACTION, AT(action), value, 0, NULL, help                               \
    }

#define WORD(name, ...) "|" #name

static const struct args_row options_rows[] = {
    {"", 0, ARGS_WORDS, 0, 0, 0, "all" OPERATION_MAP(WORD), NULL},
    GROUP("Measurements"),
    NUMBER("ranks", 'n', INT, ranks, 1, 65536, "N",
           "start N processes on this machine (default: use those of the launcher)"),
    TEXT("message-size", 'm', TEXT, sizes, "[MIN:]MAX",
         "sizes in bytes, with K, M or G (default: 4:1M; messages 4:4M)"),
    NUMBER("minbytes", 'b', BYTES, least, 0, 1e15, "BYTES", "the smallest size"),
    NUMBER("maxbytes", 'e', BYTES, most, 0, 1e15, "BYTES", "the largest size"),
    NUMBER("stepfactor", 0, INT, factor, 2, 1 << 20, "N", "ratio between sizes (default: 2)"),
    NUMBER("stepbytes", 0, BYTES, step, 1, 1e15, "BYTES",
           "difference between sizes, instead of a ratio"),
    TEXT("dtype,datatype,type", 'T', TEXT, dtype_name, "NAME",
         "type of the elements, also by its name in OSU and NCCL (default: float32)"),
    TEXT("op", 'o', TEXT, op_name, "NAME", "operator of reductions (default: sum)"),
    NUMBER("root,root-rank", 'k', INT, root, 0, INT_MAX, "RANK",
           "root of rooted operations (default: 0)"),
    FLAG("in-place", 'l', in_place, "use the same memory for in and out, if possible"),
    NUMBER("window-size", 'W', INT, window, 1, ORDER_WINDOW_MAX, "N",
           "messages in flight in bw and bibw (default: 64)"),
    TEXT("backend", 0, TEXT, backend, "NAME",
         "gloo, mpi, ... (default: $DIST_BACKEND, or gloo; self with one process)"),
    TEXT("mem", 0, CHOICE, memory, "malloc|registered|dist|cuda",
         "memory of the buffers; dist: of dist_alloc (default: malloc)"),
    TEXT("accelerator", 'd', CHOICE, device, "cuda", "same as --mem=cuda"),
    NUMBER("buffers", 0, INT, buffers, 1, ORDER_BUFFERS_MAX, "N",
           "sets of buffers, allocated separately and used in rotation (default: 64 MiB in one "
           "piece)"),
    NUMBER("mem-limit", 'M', BYTES, memory_limit, 1, 1e15, "BYTES",
           "skip sizes whose buffers need more memory per rank (default: 8G)"),

    GROUP("Repetitions"),
    TEXT("timing", 0, CHOICE, timing, "row|osu",
         "row: time consecutive calls together; osu: as OSU's programs do, time each call after a "
         "barrier, on one buffer, mean over the ranks (default: row)"),
    NUMBER("time", 't', REAL, time, 0.001, 3600, "SECONDS",
           "for each size and library (default: 0.4)"),
    NUMBER("iterations,iters", 'i', INT, iterations, 1, ORDER_SAMPLES_MAX, "N",
           "run N calls, each timed separately, instead of --time"),
    NUMBER("warmup,warmup-iters", 'x', INT, warmup, 0, 1 << 30, "N",
           "calls before the timed ones (default: automatic)"),
    NUMBER("rounds", 'r', INT, rounds, 1, 10000, "N",
           "rounds, in each of which every library runs once (default: 5)"),
    FLAG("no-check", 0, no_check, "do not check the results (default with one library)"),
    NUMBER("check,validation", 'c', SWITCH, check, 0, 1, NULL,
           "check the results (default with several libraries)"),
    FLAG("validate", 'u', check, "same as --check"),

    GROUP("Several libraries"),
    TEXT("compare", 0, TEXT, compare, "LIST",
         "comma-separated list of backend[/mem][+VAR=VALUE]..., mpi-native, limit, or names of "
         "peers; ratios are relative to the first (default with --peer, --peers, --limit: gloo)"),
    FLAG("peers", 0, peers, "add all peers, that is other libraries with a driver"),
    TEXT("peer", 0, TEXT, peer, "LIST", "add these peers"),
    FLAG("limit", 0, limit, "add the bound of this machine: a bare loop over shared memory"),
    TEXT("mpirun", 0, TEXT, mpirun, "COMMAND",
         "command that starts the ranks of backend mpi (default: of the MPI found at build time)"),
    NUMBER("timeout", 0, INT, timeout, 1, 86400, "SECONDS",
           "exclude a library that does not answer for this time (default: 60)"),

    GROUP("Output"),
    TEXT("format", 0, CHOICE, format, "osu|nccl|csv|json|table",
         "output format (default: osu; with several libraries: table)"),
    FLAG("full", 'f', full, "more columns"),
    TEXT("save", 0, TEXT, save, "FILE", "write the results as JSON"),
    TEXT("baseline", 0, TEXT, baseline, "FILE",
         "compare with the results saved in FILE; exit status 3 if slower"),
    NUMBER("tolerance", 0, REAL, tolerance, 0, 1e6, "PERCENT",
           "difference that counts as slower (default: 10)"),
    TEXT("html", 0, TEXT, html, "FILE", "write an HTML page with curves"),
    ACTION("help", 'h', OPTIONS_HELP, "print this and exit"),
    ACTION("version", 'v', OPTIONS_VERSION, "print the version and exit"),
    TEXT("worker", 0, TEXT, worker, "SPEC", NULL),
};

#define NAME(name, ...) " " #name

const struct args options_args = {
    .rows = options_rows,
    .count = sizeof(options_rows) / sizeof(options_rows[0]),
    .program = "dist_bench",
    .usage = "[OPTION]... WHAT...\n--help | --version",
    .about = "Measures collective communication. WHAT is all, or some of\n"
             " " OPERATION_MAP(NAME) "\n",
    .after = "\n"
             "  dist_bench -n 8 all_reduce                    8 processes on this machine\n"
             "  mpirun -np 8 dist_bench -f all_reduce bw      processes of a launcher\n"
             "  dist_bench -n 8 --compare gloo,gloo/dist,mpi --limit all_reduce\n"
             "\n"
             "Exit status: 0 success, 1 failure or a wrong result, 2 wrong usage, 3 slower than "
             "the baseline.\n"};

/* Parses the command line with the table. */

static char options_failure[ARGS_FAILURE];

__attribute__((format(printf, 1, 2))) static int options_wrong(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(options_failure, sizeof(options_failure), format, arguments);
    va_end(arguments);
    return -1;
}

/* ---- checks across options ---- */

static int options_operations(struct options *options, int argc, char **argv)
{
    for (int a = 0; a < argc; a++) {
        const struct operation *operation = operation_find(argv[a]);

        if (!operation && strcmp(argv[a], "all") != 0)
            return options_wrong("unknown operation '%s': expected a collective such as "
                                 "all_reduce, or bw, bibw, latency, barrier, all",
                                 argv[a]);
        for (int k = 0; k < OPERATION_COUNT; k++)
            options->operations[k] =
                options->operations[k] || !operation || operation == &operation_table[k];
    }
    if (argc == 0 && !options->worker)
        return options_wrong("no operation: name a collective such as all_reduce, or bw, bibw, "
                             "latency, barrier, all");
    return 0;
}

static int options_sizes(struct options *options)
{
    const char *colon = options->sizes ? strchr(options->sizes, ':') : NULL;
    char first[32];
    double value;

    if (colon) {
        snprintf(first, sizeof(first), "%.*s", (int)(colon - options->sizes), options->sizes);
        if (!args_number(first, true, &value) || value < 0 || value > 1e15)
            return options_wrong("-m %s: expected [MIN:]MAX, as in 8:64M", options->sizes);
        options->least = (int64_t)value;
    }
    if (options->sizes) {
        if (!args_number(colon ? colon + 1 : options->sizes, true, &value) || value < 0 ||
            value > 1e15)
            return options_wrong("-m %s: expected [MIN:]MAX, as in 8:64M", options->sizes);
        options->most = (int64_t)value;
    }
    if (options->least >= 0 && options->most >= 0 && options->least > options->most)
        return options_wrong("the smallest size exceeds the largest: use [MIN:]MAX, as in 8:64M");
    return 0;
}

static int options_fit(struct options *options)
{
    int dtype = operation_dtype(options->dtype_name), op = operation_op(options->op_name);
    bool compares = options_compares(options);

    if (dtype < 0)
        return options_wrong(
            "--dtype %s: unknown type, expected float32, bfloat16, int64, uint8, ...",
            options->dtype_name);
    if (op < 0)
        return options_wrong(
            "--op %s: unknown operator, expected sum, avg, prod, min, max, band, bor, bxor or "
            "premul_sum",
            options->op_name);
    options->dtype = (dist_dtype)dtype;
    options->op = (dist_op)op;
    if (options->device)
        options->memory = options->device;
    if (!libdist_has_memory(options->memory))
        return options_wrong("--mem %s: not supported by this build; use malloc", options->memory);
    if (!options->format)
        options->format = compares ? "table" : "osu";
    options->apart = strcmp(options->timing, "osu") == 0;
    if (options->apart && !options->buffers)
        options->buffers = 1;
    options->check = options->check && !options->no_check;
    if (compares && options->ranks < 0 && !options->worker)
        return options_wrong("a comparison starts its own ranks: set their number with -n");
    if (compares && options->window != options_defaults.window)
        return options_wrong("-W cannot be used in a comparison, where the window is 64");
    if (compares && options->backend)
        return options_wrong(
            "--backend cannot be used in a comparison: name the backend in --compare");
    if (options->ranks > 0 && options->root >= options->ranks)
        return options_wrong("--root %ld: out of range, the ranks are 0 to %ld",
                             (long)options->root, (long)options->ranks - 1);
    return 0;
}

bool options_compares(const struct options *options)
{
    return options->compare || options->peers || options->peer || options->limit;
}

int options_parse(int argc, char **argv, struct options *options_p, const char **failure_p)
{
    struct options options = options_defaults;
    int rest;

    *failure_p = options_failure;
    if (args_read(&options_args, argc, argv, &options, &rest, options_failure) != 0)
        return -1;
    if (options.action == OPTIONS_RUN &&
        (options_operations(&options, argc - rest, argv + rest) != 0 ||
         options_sizes(&options) != 0 || options_fit(&options) != 0))
        return -1;
    *options_p = options;
    return 0;
}
