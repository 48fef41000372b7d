/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of options, and what is checked of them before anything starts. */
#include "launch/options/options.h"

#include "base/ascii.h"
#include "base/net.h"
#include "base/settings/env.h"
#include "launch/options/words.h"
#include "tools/common/args.h"

#include <stdlib.h>
#include <string.h>

#define AT(member) offsetof(struct disti_run_options, member)

enum { OPTIONS_NODES_MAX = 16384, OPTIONS_ENDPOINT_PORT = 29400, OPTIONS_MASTER_PORT = 29500 };

static const struct args_row options_rows[] = {
    {.names = "Workers", .kind = ARGS_GROUP},
    {"nproc-per-node", 0, ARGS_TEXT, AT(workers_text), 0, 0, "N|auto|cpu|gpu",
     "processes on each node (1)"},
    {"np", 'n', ARGS_TEXT, AT(total_text), 0, 0, "N",
     "the same; with -H or --hostfile processes on all hosts together; -np N too"},
    {"max-restarts", 0, ARGS_INT, AT(max_restarts), 0, 1e6, "N",
     "start all workers again after a failure, so many times (0)"},
    {"numa-binding", 0, ARGS_CHOICE, AT(numa), 0, 0, "node|socket|exclusive|core-complex|none",
     "the CPUs of each worker (node, if there are several and enough workers)"},
    {"role", 0, ARGS_TEXT, AT(role), 0, 0, "NAME|mindspore",
     "ROLE_NAME of the workers (default); mindspore: MindSpore's variables, and a scheduler too"},
    {"module", 'm', ARGS_FLAG, AT(module), 0, 0, NULL, "the program is a Python module"},
    {"no-python", 0, ARGS_FLAG, AT(no_python), 0, 0, NULL,
     "run a program that ends in .py by itself, not by Python"},
    {"start-method", 0, ARGS_TEXT, AT(start_method), 0, 0, "NAME", NULL},
    {.names = "Nodes", .kind = ARGS_GROUP},
    {"hosts,host", 'H', ARGS_TEXT, AT(hosts_text), 0, 0, "HOST[:SLOTS],...",
     "start the processes on these hosts, in this order, by a remote shell"},
    {"hostfile,machinefile", 0, ARGS_TEXT, AT(hostfile), 0, 0, "FILE",
     "or on those of a file: lines of HOST slots=N"},
    {"remote-shell", 0, ARGS_TEXT, AT(remote_shell), 0, 0, "COMMAND",
     "what runs a command on a host (" DISTI_HOSTS_AGENT ")"},
    {"leashed", 0, ARGS_FLAG, AT(leashed), 0, 0, NULL, NULL},
    {"standalone", 0, ARGS_FLAG, AT(standalone), 0, 0, NULL,
     "this node alone, on a free port; so it is if nothing is said"},
    {"nnodes", 0, ARGS_TEXT, AT(nodes_text), 0, 0, "N|MIN:MAX",
     "nodes of the job (1); MIN:MAX: it goes on while MIN are left, see --max-restarts"},
    {"node-rank", 0, ARGS_INT, AT(node_rank), 0, OPTIONS_NODES_MAX, "N", "which of them this is"},
    {"master-addr", 0, ARGS_TEXT, AT(master_addr), 0, 0, "HOST", "where rank 0 is (127.0.0.1)"},
    {"master-port", 0, ARGS_INT, AT(master_port), 1, 65535, "PORT",
     "a free port there (29500; on one node any free one)"},
    {"local-addr", 0, ARGS_TEXT, AT(local_addr), 0, 0, "HOST", "the address of this node"},
    {"rdzv-endpoint", 0, ARGS_TEXT, AT(rdzv_endpoint), 0, 0, "HOST[:PORT]",
     "where the nodes meet (port 29400)"},
    {"rdzv-id", 0, ARGS_TEXT, AT(rdzv_id), 0, 0, "NAME", "the job's name there"},
    {"rdzv-conf", 0, ARGS_TEXT, AT(rdzv_conf), 0, 0, "KEY=VALUE,...",
     "how they meet: join_timeout=SECONDS, join=now and others, see distrun(1)"},
    {"secret-file", 0, ARGS_TEXT, AT(secret_file), 0, 0, "FILE",
     "what the nodes prove to each other that they know (DIST_SECRET_FILE)"},
    {"rdzv-backend", 0, ARGS_CHOICE, AT(rdzv_backend), 0, 0, "static|c10d",
     "by rank and master address, or by endpoint; accepted, not needed"},
    {.names = "Output", .kind = ARGS_GROUP},
    {"log-dir", 0, ARGS_TEXT, AT(log_dir), 0, 0, "DIR", "where the log files go"},
    {"redirects", 'r', ARGS_TEXT, AT(redirects), 0, 0, "STREAMS",
     "to files alone: 1 stdout, 2 stderr, 3 both; or 0:1,1:2 by local rank (0)"},
    {"tee", 't', ARGS_TEXT, AT(tee), 0, 0, "STREAMS", "to files too, in the same way (0)"},
    {"local-ranks-filter", 0, ARGS_TEXT, AT(shown), 0, 0, "N,...",
     "show the output of these workers alone"},
    {"log-line-prefix-template", 0, ARGS_TEXT, AT(prefix), 0, 0, "TEXT",
     "before each line ('[${rank}]:'); none: no prefix"},
    {.names = "Ending", .kind = ARGS_GROUP},
    {"on-failure", 0, ARGS_CHOICE, AT(on_failure), 0, 0, "stop|continue",
     "end all workers when one fails (stop), or let the other workers go on, for dist_shrink"},
    {"signals-to-handle", 0, ARGS_TEXT, AT(signals_text), 0, 0, "SIGNAL,...",
     "those that end the job (SIGTERM,SIGINT,SIGHUP,SIGQUIT); others are passed on"},
    {"shutdown-timeout", 0, ARGS_REAL, AT(shutdown_timeout), 0, 1e6, "SECONDS",
     "from SIGTERM to SIGKILL (30)"},
    {"monitor-interval", 0, ARGS_REAL, AT(monitor_interval), 0, 1e6, "SECONDS",
     "accepted: a failure is seen at once"},
    {"help", 'h', ARGS_ACTION, AT(action), DISTI_RUN_HELP, 0, NULL, "print this"},
    {"version", 0, ARGS_ACTION, AT(action), DISTI_RUN_VERSION, 0, NULL, "print the version"},
};
static const struct args options_args = {
    .rows = options_rows,
    .count = sizeof(options_rows) / sizeof(options_rows[0]),
    .stops = true,
    .program = "distrun",
    .usage = "[OPTION]... PROGRAM [ARGUMENT]...\n--help | --version",
    .about = "Runs PROGRAM once for each rank, with the variables that torchrun sets, and ends all "
             "of it when one fails (see --on-failure). Each option may be given as PET_NAME too, "
             "such as "
             "PET_NPROC_PER_NODE=4.\n"
             "\n"
             "  distrun -n 4 ./train                        4 processes here\n"
             "  distrun -H node0:8,node1:8 ./train          16 on two machines, by ssh\n"};

void disti_run_options_help(void)
{
    args_help(&options_args, stdout);
}

void disti_run_options_version(void)
{
    args_version(&options_args);
}

static bool options_wrong(const char *text)
{
    args_wrong(&options_args, "%s", text);
    return false;
}

/* ---- variables ---- */

/* PET_NPROC_PER_NODE for nproc-per-node; the first name of several. */
static const char *options_variable(const struct args_row *row)
{
    char name[64] = "PET_";
    size_t length = strcspn(row->names, ",");

    for (size_t i = 0; i < length; i++)
        name[4 + i] = row->names[i] == '-' ? '_' : disti_ascii_upper(row->names[i]);
    name[4 + length] = '\0';
    return disti_env(name);
}

/* One as if it stood on the command line; its name in `failure` if it is wrong. */
static bool options_read_variable(const struct args_row *row, const char *value,
                                  struct disti_run_options *options, char failure[ARGS_FAILURE])
{
    const bool flag = row->kind == ARGS_FLAG;
    char word[4096];
    char *words[] = {(char[]){"distrun"}, word, NULL};
    int rest;

    if (flag && strcmp(value, "0") == 0)
        return true;
    if (flag && strcmp(value, "1") != 0) {
        snprintf(failure, ARGS_FAILURE, "%s is neither 0 nor 1", value);
        return false;
    }
    snprintf(word, sizeof(word), "--%.*s%s%s", (int)strcspn(row->names, ","), row->names,
             flag ? "" : "=", flag ? "" : value);
    if (args_read(&options_args, 2, words, options, &rest, failure) != 0)
        return false;
    /* A text would point into `word`. */
    if (row->kind == ARGS_TEXT || row->kind == ARGS_CHOICE)
        *(const char **)(void *)((char *)options + row->offset) = value;
    return true;
}

static bool options_read_variables(struct disti_run_options *options)
{
    for (int i = 0; i < options_args.count; i++) {
        const struct args_row *row = &options_rows[i];
        const char *value =
            row->kind == ARGS_GROUP || row->kind == ARGS_ACTION ? NULL : options_variable(row);
        char failure[ARGS_FAILURE], text[ARGS_FAILURE + 32];

        if (value && !options_read_variable(row, value, options, failure)) {
            snprintf(text, sizeof(text), "in a PET_ variable: %s", failure);
            return options_wrong(text);
        }
    }
    return true;
}

/* ---- the command line ---- */

/* "-np 4", as mpirun has it, is option n with the value "p" for getopt, and 4 the program. */
static bool options_read_line(int argc, char *argv[], struct disti_run_options *options,
                              int *rest_p)
{
    char failure[ARGS_FAILURE];
    int rest, from = 0;

    for (;;) {
        const char *before = options->total_text;

        options->total_text = NULL;
        if (args_read(&options_args, argc - from, argv + from, options, &rest, failure) != 0)
            return options_wrong(failure);
        rest += from;
        if (!options->total_text)
            options->total_text = before;
        else if (strcmp(options->total_text, "p") == 0) {
            if (rest == argc)
                return options_wrong("-np: a value is missing");
            options->total_text = argv[rest];
            from = rest;
            continue;
        }
        *rest_p = rest;
        return true;
    }
}

/* ---- checks ---- */

static bool options_check_streams(const struct disti_run_options *options)
{
    if (disti_run_streams(options->redirects, 0) < 0)
        return options_wrong("--redirects is neither 0 to 3 nor a list such as 0:1,1:2");
    if (disti_run_streams(options->tee, 0) < 0)
        return options_wrong("--tee is neither 0 to 3 nor a list such as 0:1,1:2");
    if (disti_run_is_listed(options->shown, 0) < 0)
        return options_wrong("--local-ranks-filter is no list of local ranks such as 0,2");
    return true;
}

static bool options_check_signals(struct disti_run_options *options)
{
    const char *wrong = disti_run_signals(options->signals_text, &options->signals);
    char text[128];

    if (!wrong)
        return true;
    snprintf(text, sizeof(text),
             "--signals-to-handle: '%s' is no signal that can be handled; give SIGTERM,SIGINT",
             wrong);
    return options_wrong(text);
}

/* Without an endpoint the nodes meet where rank 0 is: at node 0. */
static bool options_check_endpoint(struct disti_run_options *options)
{
    const char *host = options->master_addr ? options->master_addr : disti_loopback();

    if (options->rdzv_endpoint) {
        options->endpoint_port = OPTIONS_ENDPOINT_PORT;
        if (!disti_run_endpoint(options->rdzv_endpoint, options->endpoint, &options->endpoint_port))
            return options_wrong("--rdzv-endpoint is neither HOST nor HOST:PORT");
    } else {
        snprintf(options->endpoint, sizeof(options->endpoint), "%s", host);
        options->endpoint_port =
            options->master_port < 0 ? OPTIONS_MASTER_PORT : (int)options->master_port;
    }
    disti_host_normalize(options->endpoint);
    return true;
}

static bool options_check_nodes(struct disti_run_options *options)
{
    if (!disti_run_nodes(options->nodes_text, &options->least_nodes, &options->most_nodes) ||
        options->most_nodes > OPTIONS_NODES_MAX)
        return options_wrong("--nnodes is neither a number of nodes, 1 to 16384, nor MIN:MAX");
    if (options->standalone)
        options->least_nodes = options->most_nodes = 1;
    if (options->most_nodes == 1)
        return true;
    if (!options->rdzv_endpoint && options->node_rank < 0)
        return options_wrong(
            "of several nodes each needs --node-rank and the --master-addr of node "
            "0, or all --rdzv-endpoint and --rdzv-id");
    if (options->node_rank >= options->most_nodes)
        return options_wrong("--node-rank is not below the number of nodes (--nnodes)");
    return options_check_endpoint(options);
}

static bool options_check(struct disti_run_options *options)
{
    char why[160], text[256];

    options->goes_on = strcmp(options->on_failure, "continue") == 0;
    options->scheduler = strcmp(options->role, "mindspore") == 0;
    if (!disti_run_places(options) || !options_check_nodes(options) ||
        !options_check_streams(options) || !options_check_signals(options))
        return false;
    if (options->hosts.count > 0 && !options->workers_text)
        return true;
    options->workers = disti_run_worker_count(options->workers_text ? options->workers_text : "1",
                                              why, sizeof(why));
    if (options->workers > 0 || options->hosts.count > 0)
        return true;
    snprintf(text, sizeof(text), "%s: %s", options->total_text ? "-n" : "--nproc-per-node", why);
    return options_wrong(text);
}

/* As torch has it: the variable stands for the default. */
static double options_grace(void)
{
    const char *text = disti_env("TORCH_ELASTIC_SHUTDOWN_TIMEOUT");
    double value;

    return text && args_number(text, false, &value) && value >= 0 ? value : 30;
}

bool disti_run_options_read(int argc, char *argv[], struct disti_run_options *options)
{
    int rest;

    *options =
        (struct disti_run_options){.nodes_text = "1",
                                   .role = "default",
                                   .on_failure = "stop",
                                   .prefix = disti_env("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"),
                                   .signals_text = "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
                                   .node_rank = -1,
                                   .master_port = -1,
                                   .monitor_interval = 0.1,
                                   .shutdown_timeout = options_grace()};
    if (!options->prefix)
        options->prefix = "[${rank}]:";
    if (!options_read_variables(options) || !options_read_line(argc, argv, options, &rest))
        return false;
    if (options->action)
        return true;
    if (strcmp(options->prefix, "none") == 0)
        options->prefix = "";
    if (!options_check(options) || !disti_run_secret(options))
        return false;
    if (rest == argc)
        return options_wrong("no program is given: name it behind the options");
    return disti_run_command(argv + rest, options);
}

/* ---- for another host ---- */

/* Said anew for each host, or of no use there. */
static bool options_is_here(const struct args_row *row)
{
    static const char *const here[] = {
        "nproc-per-node", "np",          "hosts,host", "hostfile,machinefile",
        "remote-shell",   "leashed",     "nnodes",     "node-rank",
        "master-addr",    "master-port", "local-addr", "secret-file"};

    for (size_t i = 0; i < sizeof(here) / sizeof(here[0]); i++) {
        if (strcmp(row->names, here[i]) == 0)
            return true;
    }
    return row->kind == ARGS_GROUP || row->kind == ARGS_ACTION;
}

/* "--max-restarts=3"; NULL: no memory, or *said_p is false: it is not given. */
static char *options_word(const struct args_row *row, const struct disti_run_options *options,
                          bool *said_p)
{
    const char *at = (const char *)options + row->offset, *text;
    const int length = (int)strcspn(row->names, ",");
    int64_t number;
    double real;
    char *word = NULL;
    int written = 0;

    *said_p = true;
    if (row->kind == ARGS_FLAG) {
        *said_p = *(const bool *)at;
        written = asprintf(&word, "--%.*s", length, row->names);
    } else if (row->kind == ARGS_INT) {
        memcpy(&number, at, sizeof(number));
        written = asprintf(&word, "--%.*s=%lld", length, row->names, (long long)number);
    } else if (row->kind == ARGS_REAL) {
        memcpy(&real, at, sizeof(real));
        written = asprintf(&word, "--%.*s=%.17g", length, row->names, real);
    } else {
        memcpy(&text, at, sizeof(text));
        *said_p = text != NULL;
        /* Empty is only the prefix, once "none" has been understood. */
        written = asprintf(&word, "--%.*s=%s", length, row->names, text && *text ? text : "none");
    }
    return written < 0 ? NULL : word;
}

char **disti_run_options_words(const struct disti_run_options *options)
{
    char **words = calloc((size_t)options_args.count + 1, sizeof(*words));
    int count = 0;
    bool said;

    for (int i = 0; words && i < options_args.count; i++) {
        if (options_is_here(&options_rows[i]))
            continue;
        words[count] = options_word(&options_rows[i], options, &said);
        if (words[count] && said)
            count++;
        else
            free(words[count]);
    }
    if (words)
        words[count] = NULL;
    return words;
}
