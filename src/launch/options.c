/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * distrun's command line: its options, and the hosts, workers, secret and program that they
 * specify.
 */
#include "launch/options.h"
#include "base/ascii.h"
#include "base/net.h"
#include "base/settings/config.h"
#include "base/settings/env.h"
#include "tools/common/args.h"
#include "topology/discover.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Hosts: workers run on the hosts of -H or --hostfile, or on this node alone. */

static bool places_fail(const char *text)
{
    fprintf(stderr, "distrun: %s\n", text);
    return false;
}

/*
 * Rejects options that conflict with hosts. `elastic`: the job may continue with some of its hosts.
 */
static bool places_check(const struct disti_run_options *options, bool elastic)
{
    if (options->standalone || options->node_rank >= 0 || options->rdzv_endpoint ||
        (!elastic && strcmp(options->nodes_text, "1") != 0))
        return places_fail("-H and --hostfile specify the nodes: remove --node-rank, "
                           "--standalone, --rdzv-endpoint, and --nnodes unless it is MIN:MAX");
    if (elastic && options->total_text)
        return places_fail("with --nnodes MIN:MAX the total number of workers varies: replace -n "
                           "by slots or --nproc-per-node");
    if (options->total_text && options->workers_text)
        return places_fail(
            "with hosts specify either -n (all workers) or --nproc-per-node, not both");
    if (options->hosts_text && options->hostfile)
        return places_fail("specify either -H or --hostfile, not both");
    return true;
}

/* Sets the slots to the number of workers on each host, and drops hosts without workers. */
static dist_status places_assign(struct disti_run_options *options)
{
    struct disti_hosts *hosts = &options->hosts;
    int *counts = calloc((size_t)hosts->count, sizeof(*counts));
    int total = 0, left = 0;
    dist_status status = counts ? DIST_OK : DIST_ERR_NO_MEMORY;

    for (int h = 0; h < hosts->count; h++)
        total += hosts->entries[h].slots ? hosts->entries[h].slots : 1;
    if (status == DIST_OK && options->total_text)
        status = disti_parse_int("-n", options->total_text, 1, 1 << 20, &total);
    if (status == DIST_OK)
        status = disti_hosts_place(hosts, total, counts);
    for (int h = 0; status == DIST_OK && h < hosts->count; h++) {
        hosts->entries[left] = hosts->entries[h];
        hosts->entries[left].slots = counts[h];
        left += counts[h] > 0;
    }
    hosts->count = status == DIST_OK ? left : hosts->count;
    free(counts);
    return status;
}

/*
 * Reads the hosts of -H or --hostfile, and sets the number of workers on each. Without hosts -n is
 * the number of workers of this node. False after printing an error.
 */
static bool options_read_places(struct disti_run_options *options)
{
    static char count[16];
    const bool elastic = strchr(options->nodes_text, ':') != NULL;
    dist_status status;
    int most;

    if (!options->hosts_text && !options->hostfile) {
        options->workers_text = options->total_text ? options->total_text : options->workers_text;
        return true;
    }
    if (!places_check(options, elastic))
        return false;
    status = options->hosts_text ? disti_hosts_parse(options->hosts_text, &options->hosts)
                                 : disti_hosts_read(options->hostfile, &options->hosts);
    if (status == DIST_OK && !options->workers_text)
        status = places_assign(options);
    if (status != DIST_OK)
        return places_fail(dist_last_error());
    if (elastic) { /* how many of the hosts are required */
        if (!disti_run_nodes(options->nodes_text, &options->min_hosts, &most))
            return places_fail("--nnodes must be a number of nodes from 1 to 16384, or MIN:MAX");
        options->nodes_text = "1"; /* the starter itself is a single node */
        if (options->hosts.count < options->min_hosts || options->hosts.count > most) {
            fprintf(stderr,
                    "distrun: --nnodes %d:%d, but there are %d hosts: specify at least MIN and at "
                    "most MAX hosts\n",
                    options->min_hosts, most, options->hosts.count);
            return false;
        }
    }
    /* If this machine is the only host, no remote shell is needed, unless one is specified. */
    if (options->hosts.count == 1 && disti_run_host_is_local(options, 0)) {
        snprintf(count, sizeof(count), "%d", options->hosts.entries[0].slots);
        options->workers_text = options->workers_text ? options->workers_text : count;
        disti_hosts_free(&options->hosts);
    }
    return true;
}

/* ---- workers, secret and program ---- */

enum { COUNTS_MAX = 65536 };

/* Returns the number of GPUs that workers would see. The driver has one directory per GPU. */
static int counts_gpus(void)
{
    const char *visible = disti_env_raw("CUDA_VISIBLE_DEVICES");
    DIR *directory = visible ? NULL : opendir("/proc/driver/nvidia/gpus");
    const struct dirent *entry;
    char item[64];
    int count = 0;

    while (visible && disti_list_item(visible, ',', count, item, sizeof(item)))
        count++;
    while (directory && (entry = readdir(directory)))
        count += entry->d_name[0] != '.';
    if (directory)
        closedir(directory);
    return count;
}

/*
 * Returns the number of workers that --nproc-per-node means on this machine; 0 and `why` on error.
 */
static int options_workers(const char *text, char *why, int size)
{
    const bool automatic = strcmp(text, "auto") == 0;
    const int gpus = automatic || strcmp(text, "gpu") == 0 ? counts_gpus() : 0;
    int count;

    if (gpus > 0)
        return gpus;
    if (automatic || strcmp(text, "cpu") == 0)
        return disti_usable_cpus();
    if (strcmp(text, "gpu") == 0)
        snprintf(why, (size_t)size, "no GPU is visible on this node: specify a number, or cpu");
    else if (strcmp(text, "xpu") == 0)
        snprintf(why, (size_t)size, "distrun cannot count XPUs: specify their number");
    else if (disti_parse_int("--nproc-per-node", text, 1, COUNTS_MAX, &count) == DIST_OK)
        return count;
    else
        snprintf(why, (size_t)size, "'%.60s' is neither a number, 1 to %d, nor auto, cpu or gpu",
                 text, COUNTS_MAX);
    return 0;
}

/*
 * Finds the program before anything is started: a missing program is reported once, not by each
 * rank.
 */

static bool command_is_file(const char *path)
{
    struct stat entry;

    return stat(path, &entry) == 0 && S_ISREG(entry.st_mode);
}

/* Searches PATH, as a shell does. */
static bool command_search(const char *name, char path[PATH_MAX])
{
    const char *directories = disti_env("PATH");

    for (const char *at = directories ? directories : "/usr/bin:/bin"; at;) {
        const int length = (int)strcspn(at, ":");
        const int written =
            snprintf(path, PATH_MAX, "%.*s%s%s", length, at, length ? "/" : "", name);

        if (written < PATH_MAX && command_is_file(path) && access(path, X_OK) == 0)
            return true;
        at = at[length] ? at + length + 1 : NULL;
    }
    return false;
}

static bool command_missing(const char *name)
{
    if (!strchr(name, '/') && command_is_file(name))
        fprintf(
            stderr,
            "distrun: program '%s' not found in PATH: for the one in this directory specify ./%s\n",
            name, name);
    else if (!strchr(name, '/'))
        fprintf(stderr, "distrun: program '%s' not found in PATH: specify its path\n", name);
    else
        fprintf(stderr, "distrun: cannot run '%s': %s: specify the path of a program\n", name,
                errno ? strerror(errno) : "not a regular file");
    return false;
}

/* Finds the path of a program for execve. */
static bool command_find(const char *name, char path[PATH_MAX])
{
    if (!strchr(name, '/'))
        return command_search(name, path) || command_missing(name);
    errno = 0;
    if (!command_is_file(name))
        return command_missing(name);
    if (access(name, X_OK) != 0) {
        fprintf(stderr, "distrun: '%s' is not executable: chmod +x %s\n", name, name);
        return false;
    }
    snprintf(path, PATH_MAX, "%s", name);
    return true;
}

/*
 * Finds the program and its interpreter, and sets path, command and program. With hosts, the agent
 * on each host does this, and this function checks only that the remote shell exists.
 */
static bool options_command(char *words[], struct disti_run_options *options)
{
    static char path[PATH_MAX];
    static struct disti_run_list python; /* valid until the next call */
    const char *interpreter = disti_env("PYTHON_EXEC");
    const size_t length = strlen(words[0]);

    options->program = words[0];
    options->command = words;
    if (options->hosts.count > 0) {
        const char *shell = options->remote_shell ? options->remote_shell : DISTI_HOSTS_AGENT;
        char *name = NULL;
        bool found = true;

        /* The remote shell is needed unless all hosts are this machine. */
        for (int h = 0; h < options->hosts.count; h++)
            found &= disti_run_host_is_local(options, h);
        if (!found) {
            shell += strspn(shell, " \t");
            name = strndup(shell, strcspn(shell, " \t"));
            found = command_find(name ? name : "", path);
        }
        free(name);
        return found;
    }
    options->python = options->module || (length > 3 && !options->no_python &&
                                          strcmp(words[0] + length - 3, ".py") == 0);
    if (!interpreter)
        interpreter = "python3";
    errno = ENOENT;
    if (options->python && !options->module && !command_is_file(words[0]))
        return command_missing(words[0]);
    if (!command_find(options->python ? interpreter : words[0], path))
        return false;
    options->path = path;
    if (!options->python)
        return true;
    /* `python -u [-m] PROGRAM ARGUMENT...`, as torchrun runs it. */
    disti_run_list_free(&python);
    python = (struct disti_run_list){0};
    disti_run_list_add(&python, "%s", path);
    disti_run_list_add(&python, "-u");
    if (options->module)
        disti_run_list_add(&python, "-m");
    for (int i = 0; words[i]; i++)
        disti_run_list_add(&python, "%s", words[i]);
    options->command = python.words;
    return !python.failed || command_missing(words[0]);
}

/* The table of options, and the checks before anything starts. */

#define AT(member) offsetof(struct disti_run_options, member)

enum { OPTIONS_NODES_MAX = 16384, OPTIONS_ENDPOINT_PORT = 29400, OPTIONS_MASTER_PORT = 29500 };

static const struct args_row options_rows[] = {
    {.names = "Workers", .kind = ARGS_GROUP},
    {"nproc-per-node", 0, ARGS_TEXT, AT(workers_text), 0, 0, "N|auto|cpu|gpu",
     "processes on each node (1)"},
    {"np", 'n', ARGS_TEXT, AT(total_text), 0, 0, "N",
     "the same as --nproc-per-node; with -H or --hostfile: processes on all hosts; also -np N"},
    {"max-restarts", 0, ARGS_INT, AT(max_restarts), 0, 1e6, "N",
     "how often to restart all workers after a failure (0)"},
    {"numa-binding", 0, ARGS_CHOICE, AT(numa), 0, 0, "node|socket|exclusive|core-complex|none",
     "bind each worker to a part of the CPUs (node, if there are several and enough workers)"},
    {"role", 0, ARGS_TEXT, AT(role), 0, 0, "NAME|mindspore",
     "ROLE_NAME of the workers (default); mindspore: MindSpore's variables, and a scheduler"},
    {"module", 'm', ARGS_FLAG, AT(module), 0, 0, NULL, "the program is a Python module"},
    {"no-python", 0, ARGS_FLAG, AT(no_python), 0, 0, NULL,
     "execute a program that ends in .py directly, not with Python"},
    {"start-method", 0, ARGS_TEXT, AT(start_method), 0, 0, "NAME", NULL},
    {.names = "Nodes", .kind = ARGS_GROUP},
    {"hosts,host", 'H', ARGS_TEXT, AT(hosts_text), 0, 0, "HOST[:SLOTS],...",
     "start the processes on these hosts, in this order, with a remote shell"},
    {"hostfile,machinefile", 0, ARGS_TEXT, AT(hostfile), 0, 0, "FILE",
     "start them on the hosts of a file with lines HOST slots=N"},
    {"remote-shell", 0, ARGS_TEXT, AT(remote_shell), 0, 0, "COMMAND",
     "command that runs another command on a host (" DISTI_HOSTS_AGENT ")"},
    {"from-starter", 0, ARGS_FLAG, AT(remote), 0, 0, NULL, NULL},
    {"standalone", 0, ARGS_FLAG, AT(standalone), 0, 0, NULL,
     "single node, on a free port (default)"},
    {"nnodes", 0, ARGS_TEXT, AT(nodes_text), 0, 0, "N|MIN:MAX",
     "nodes of the job (1); MIN:MAX: elastic, continues while MIN are left, see --max-restarts"},
    {"node-rank", 0, ARGS_INT, AT(node_rank), 0, OPTIONS_NODES_MAX, "N",
     "number of this node, from 0"},
    {"master-addr", 0, ARGS_TEXT, AT(master_addr), 0, 0, "HOST", "host of rank 0 (127.0.0.1)"},
    {"master-port", 0, ARGS_INT, AT(master_port), 1, 65535, "PORT",
     "free port on that host (29500; on one node any free port)"},
    {"local-addr", 0, ARGS_TEXT, AT(local_addr), 0, 0, "HOST", "the address of this node"},
    {"rdzv-endpoint", 0, ARGS_TEXT, AT(rdzv_endpoint), 0, 0, "HOST[:PORT]",
     "rendezvous of the nodes (port 29400)"},
    {"rdzv-id", 0, ARGS_TEXT, AT(rdzv_id), 0, 0, "NAME", "name of the job at the rendezvous"},
    {"rdzv-conf", 0, ARGS_TEXT, AT(rdzv_conf), 0, 0, "KEY=VALUE,...",
     "rendezvous settings: join_timeout=SECONDS, join=now and more, see distrun(1)"},
    {"secret-file", 0, ARGS_TEXT, AT(secret_file), 0, 0, "FILE",
     "file with the secret that authenticates the nodes to each other (DIST_SECRET_FILE)"},
    {"rdzv-backend", 0, ARGS_CHOICE, AT(rdzv_backend), 0, 0, "static|c10d",
     "accepted and ignored: the backend follows from the other options"},
    {.names = "Output", .kind = ARGS_GROUP},
    {"log-dir", 0, ARGS_TEXT, AT(log_dir), 0, 0, "DIR", "directory for log files"},
    {"redirects", 'r', ARGS_TEXT, AT(redirects), 0, 0, "STREAMS",
     "write to files only: 1 stdout, 2 stderr, 3 both; or 0:1,1:2 by local rank (0)"},
    {"tee", 't', ARGS_TEXT, AT(tee), 0, 0, "STREAMS",
     "write to files too, with the same values (0)"},
    {"local-ranks-filter", 0, ARGS_TEXT, AT(shown), 0, 0, "N,...",
     "print the output of these workers only"},
    {"log-line-prefix-template", 0, ARGS_TEXT, AT(prefix), 0, 0, "TEXT",
     "prefix of each line ('[${rank}]:'); none: no prefix"},
    {.names = "Ending", .kind = ARGS_GROUP},
    {"on-failure", 0, ARGS_CHOICE, AT(on_failure), 0, 0, "stop|continue",
     "end all workers when one fails (stop), or let the other workers continue, for dist_shrink"},
    {"signals-to-handle", 0, ARGS_TEXT, AT(signals_text), 0, 0, "SIGNAL,...",
     "signals that end the job (SIGTERM,SIGINT,SIGHUP,SIGQUIT); other signals are forwarded"},
    {"shutdown-timeout", 0, ARGS_REAL, AT(shutdown_timeout), 0, 1e6, "SECONDS",
     "time from SIGTERM to SIGKILL (30)"},
    {"monitor-interval", 0, ARGS_REAL, AT(monitor_interval), 0, 1e6, "SECONDS",
     "accepted and ignored: failures are detected at once"},
    {"help", 'h', ARGS_ACTION, AT(action), ARGS_SHOW_HELP, 0, NULL, "print this"},
    {"version", 0, ARGS_ACTION, AT(action), ARGS_SHOW_VERSION, 0, NULL, "print the version"},
};
static const struct args options_args = {
    .rows = options_rows,
    .count = sizeof(options_rows) / sizeof(options_rows[0]),
    .stops = true,
    .program = "distrun",
    .usage = "[OPTION]... PROGRAM [ARGUMENT]...\n--help | --version",
    .about = "Runs PROGRAM once for each rank, with the variables that torchrun sets, and ends all "
             "processes when one fails (see --on-failure). Each option can also be set as a "
             "variable PET_NAME, such as PET_NPROC_PER_NODE=4.\n\n  distrun -n 4 ./train           "
             "             4 processes on this node\n  distrun -H node0:8,node1:8 ./train          "
             "16 processes on two nodes, with ssh\n"};

static bool options_fail(const char *text)
{
    args_wrong(&options_args, "%s", text);
    return false;
}

/* ---- variables ---- */

/*
 * Reads a variable as if the option were on the command line; on error `failure` names the option.
 */
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
    /* Text options must not point into `word`. */
    if (row->kind == ARGS_TEXT || row->kind == ARGS_CHOICE)
        *(const char **)(void *)((char *)options + row->offset) = value;
    return true;
}

/*
 * Reads variables such as PET_NPROC_PER_NODE for nproc-per-node; only an option's first name
 * counts.
 */
static bool options_read_variables(struct disti_run_options *options)
{
    for (int i = 0; i < options_args.count; i++) {
        const struct args_row *row = &options_rows[i];
        char name[64] = "PET_", failure[ARGS_FAILURE];
        size_t length = strcspn(row->names, ",");
        const char *value;

        if (row->kind == ARGS_GROUP || row->kind == ARGS_ACTION)
            continue;
        for (size_t c = 0; c < length; c++)
            name[4 + c] = row->names[c] == '-' ? '_' : disti_ascii_upper(row->names[c]);
        name[4 + length] = '\0';
        value = disti_env(name);
        if (value && !options_read_variable(row, value, options, failure)) {
            args_wrong(&options_args, "in a PET_ variable: %s", failure);
            return false;
        }
    }
    return true;
}

/* ---- the command line ---- */

/*
 * Reads the command line. getopt takes "-np 4", which mpirun accepts, for option n with the value
 * "p" and the program 4, so that case is corrected here.
 */
static bool options_read_line(int argc, char *argv[], struct disti_run_options *options,
                              int *rest_p)
{
    char failure[ARGS_FAILURE];
    int rest, from = 0;

    for (;;) {
        const char *before = options->total_text;

        options->total_text = NULL;
        if (args_read(&options_args, argc - from, argv + from, options, &rest, failure) != 0)
            return options_fail(failure);
        rest += from;
        if (!options->total_text) {
            options->total_text = before;
        } else if (strcmp(options->total_text, "p") == 0) {
            if (rest == argc)
                return options_fail("-np: a value is missing");
            options->total_text = argv[rest];
            from = rest;
            continue;
        }
        *rest_p = rest;
        return true;
    }
}

/* ---- checks ---- */

static bool options_check_nodes(struct disti_run_options *options)
{
    if (!disti_run_nodes(options->nodes_text, &options->min_nodes, &options->max_nodes) ||
        options->max_nodes > OPTIONS_NODES_MAX)
        return options_fail("--nnodes must be a number of nodes from 1 to 16384, or MIN:MAX");
    if (options->standalone)
        options->min_nodes = options->max_nodes = 1;
    if (options->max_nodes == 1)
        return true;
    if (!options->rdzv_endpoint && options->node_rank < 0)
        return options_fail("a job on several nodes needs --node-rank and --master-addr (of node "
                            "0) on each, or --rdzv-endpoint and --rdzv-id");
    if (options->node_rank >= options->max_nodes)
        return options_fail("--node-rank must be less than the number of nodes (--nnodes)");
    options->endpoint_port = OPTIONS_ENDPOINT_PORT;
    if (!options->rdzv_endpoint) {
        /* Without an endpoint the rendezvous is at the address of node 0, which has rank 0. */
        snprintf(options->endpoint, sizeof(options->endpoint), "%s",
                 options->master_addr ? options->master_addr : disti_loopback());
        options->endpoint_port =
            options->master_port < 0 ? OPTIONS_MASTER_PORT : (int)options->master_port;
    } else if (!disti_run_endpoint(options->rdzv_endpoint, options->endpoint,
                                   &options->endpoint_port)) {
        return options_fail("--rdzv-endpoint must be HOST or HOST:PORT");
    }
    disti_host_normalize(options->endpoint);
    return true;
}

static bool options_check(struct disti_run_options *options)
{
    const char *wrong;
    char why[160];

    options->goes_on = strcmp(options->on_failure, "continue") == 0;
    options->scheduler = strcmp(options->role, "mindspore") == 0;
    if (!options_read_places(options) || !options_check_nodes(options))
        return false;
    if (disti_run_streams(options->redirects, 0) < 0)
        return options_fail("--redirects must be 0 to 3, or a list such as 0:1,1:2");
    if (disti_run_streams(options->tee, 0) < 0)
        return options_fail("--tee must be 0 to 3, or a list such as 0:1,1:2");
    if (disti_run_is_listed(options->shown, 0) < 0)
        return options_fail("--local-ranks-filter must be a list of local ranks such as 0,2");
    wrong = disti_run_signals(options->signals_text, &options->signals);
    if (wrong) {
        args_wrong(&options_args,
                   "--signals-to-handle: '%s' is not a signal that can be handled; specify signals "
                   "such as SIGTERM,SIGINT",
                   wrong);
        return false;
    }
    if (options->hosts.count > 0 && !options->workers_text)
        return true;
    options->workers =
        options_workers(options->workers_text ? options->workers_text : "1", why, sizeof(why));
    if (options->workers > 0 || options->hosts.count > 0)
        return true;
    args_wrong(&options_args, "%s: %s", options->total_text ? "-n" : "--nproc-per-node", why);
    return false;
}

bool disti_run_options_read(int argc, char *argv[], struct disti_run_options *options)
{
    const char *grace = disti_env("TORCH_ELASTIC_SHUTDOWN_TIMEOUT"), *secret;
    char why[DISTI_SECRET_WHY];
    int rest;

    *options =
        (struct disti_run_options){.nodes_text = "1",
                                   .role = "default",
                                   .on_failure = "stop",
                                   .prefix = disti_env("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"),
                                   .signals_text = "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
                                   .node_rank = -1,
                                   .master_port = -1,
                                   .monitor_interval = 0.1};
    /* As in torch, the variable replaces the default. */
    if (!grace || !args_number(grace, false, &options->shutdown_timeout) ||
        !(options->shutdown_timeout >= 0))
        options->shutdown_timeout = 30;
    if (!options->prefix)
        options->prefix = "[${rank}]:";
    if (!options_read_variables(options) || !options_read_line(argc, argv, options, &rest))
        return false;
    if (options->action == ARGS_SHOW_HELP)
        args_help(&options_args, stdout);
    if (options->action == ARGS_SHOW_VERSION)
        args_version(&options_args);
    if (options->action)
        return true;
    if (strcmp(options->prefix, "none") == 0)
        options->prefix = "";
    if (!options_check(options))
        return false;
    secret = options->secret_file ? options->secret_file : disti_env("DIST_SECRET_FILE");
    if (secret && *secret) {
        if (!disti_secret_read(secret, &options->secret, why)) {
            fprintf(stderr, "distrun: %s\n", why);
            return false;
        }
        if (options->remote)
            close(DISTI_HOSTS_SECRET); /* the workers must not inherit it */
    }
    if (rest == argc)
        return options_fail("no program specified: name it after the options");
    return options_command(argv + rest, options);
}

/* ---- options for other hosts ---- */

/* True for options that are set separately for each host, or that do not apply there. */
static bool options_is_per_host(const struct args_row *row)
{
    static const char *const here[] = {
        "nproc-per-node", "np",           "hosts,host", "hostfile,machinefile",
        "remote-shell",   "from-starter", "nnodes",     "node-rank",
        "master-addr",    "master-port",  "local-addr", "secret-file"};

    for (size_t i = 0; i < sizeof(here) / sizeof(here[0]); i++) {
        if (strcmp(row->names, here[i]) == 0)
            return true;
    }
    return row->kind == ARGS_GROUP || row->kind == ARGS_ACTION;
}

void disti_run_options_arguments(const struct disti_run_options *options,
                                 struct disti_run_list *words)
{
    for (int i = 0; i < options_args.count; i++) {
        const struct args_row *row = &options_rows[i];
        const void *at = (const char *)options + row->offset;
        const int length = (int)strcspn(row->names, ",");
        const char *text;

        if (options_is_per_host(row))
            continue;
        switch (row->kind) {
        case ARGS_FLAG:
            if (*(const bool *)at)
                disti_run_list_add(words, "--%.*s", length, row->names);
            break;
        case ARGS_INT:
            disti_run_list_add(words, "--%.*s=%lld", length, row->names,
                               (long long)*(const int64_t *)at);
            break;
        case ARGS_REAL:
            disti_run_list_add(words, "--%.*s=%.17g", length, row->names, *(const double *)at);
            break;
        default:
            text = *(const char *const *)at;
            /* Only the prefix can be empty, after "none" was parsed. */
            if (text)
                disti_run_list_add(words, "--%.*s=%s", length, row->names, *text ? text : "none");
        }
    }
}
