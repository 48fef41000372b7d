/* SPDX-License-Identifier: BSD-3-Clause */
/* Starts a worker, with its CPUs and environment, and finds its descendants. */
#include <config.h>

#include "base/log.h"
#include "base/process.h"
#include "base/settings/env.h"
#include "launch/workers.h"
#include "topology/discover.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* Divides a machine among the workers, with hwloc. */

int disti_run_binding_part(int local_rank, int workers, int parts)
{
    return (int)((long long)local_rank * parts / workers);
}

#ifdef HAVE_HWLOC
#include <hwloc.h>

/* hwloc types of the parts that --numa-binding names. */
static const struct binding_mode {
    const char *name;
    hwloc_obj_type_t type;
} binding_modes[] = {{"node", HWLOC_OBJ_NUMANODE},
                     {"socket", HWLOC_OBJ_PACKAGE},
                     {"core-complex", HWLOC_OBJ_L3CACHE},
                     {"exclusive", HWLOC_OBJ_CORE}};

/* The machine's topology, and the CPUs that this process may use. */
struct binding_machine {
    hwloc_topology_t topology;
    hwloc_bitmap_t usable;
};

/*
 * Returns part number `index` of a type, counting only parts with a usable CPU; NULL: there are
 * fewer.
 */
static hwloc_obj_t binding_part(const struct binding_machine *machine, hwloc_obj_type_t type,
                                int index)
{
    hwloc_obj_t part = NULL;

    while ((part = hwloc_get_next_obj_by_type(machine->topology, type, part))) {
        if (hwloc_bitmap_intersects(part->cpuset, machine->usable) && index-- == 0)
            return part;
    }
    return NULL;
}

static int binding_parts(const struct binding_machine *machine, hwloc_obj_type_t type)
{
    int count = 0;

    while (binding_part(machine, type, count))
        count++;
    return count;
}

/*
 * Assigns a part to each worker, shared if there are more workers than parts; cores are not shared,
 * and a worker may get several.
 */
static dist_status binding_apply(const struct binding_machine *machine,
                                 const struct binding_mode *mode, struct disti_run_binding *binding)
{
    const int parts = binding_parts(machine, mode->type), workers = binding->workers;
    const bool cores = mode->type == HWLOC_OBJ_CORE;

    if (parts == 0)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "--numa-binding %s: this machine has no such parts to bind workers to: "
                          "specify another value, or none",
                          mode->name);
    if (cores && parts < workers)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "--numa-binding exclusive: %d workers need a core each, but only %d are "
                          "usable: start fewer workers, or specify node",
                          workers, parts);
    binding->cpus = calloc((size_t)workers, sizeof(*binding->cpus));
    if (!binding->cpus)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for the CPUs of %d workers: start fewer",
                          workers);
    for (int w = 0; w < workers; w++) {
        const int first = disti_run_binding_part(w, workers, parts);
        const int end = cores ? disti_run_binding_part(w + 1, workers, parts) : first + 1;

        for (int p = first; p < end; p++) {
            hwloc_obj_t part = binding_part(machine, mode->type, p);
            unsigned cpu;

            hwloc_bitmap_foreach_begin(cpu, part->cpuset)
            {
                if (hwloc_bitmap_isset(machine->usable, cpu))
                    CPU_SET_S(cpu, sizeof(binding->cpus[w]), (cpu_set_t *)&binding->cpus[w]);
            }
            hwloc_bitmap_foreach_end();
        }
    }
    binding->mode = mode->name;
    return DIST_OK;
}

static dist_status binding_choose(const char *mode, struct disti_run_binding *binding)
{
    struct binding_machine machine = {.usable = hwloc_bitmap_alloc()};
    const bool is_new = machine.usable && hwloc_topology_init(&machine.topology) == 0;
    dist_status status = DIST_OK;
    int parts;

    if (!is_new || hwloc_topology_load(machine.topology) != 0) {
        if (mode)
            status = disti_fail(
                DIST_ERR_SYSTEM,
                "--numa-binding: hwloc cannot read this machine's topology: specify none");
        goto out;
    }
    if (hwloc_get_cpubind(machine.topology, machine.usable, HWLOC_CPUBIND_PROCESS) != 0)
        hwloc_bitmap_copy(machine.usable, hwloc_topology_get_allowed_cpuset(machine.topology));
    parts = binding_parts(&machine, HWLOC_OBJ_NUMANODE);
    if (!mode && parts > 1 && binding->workers >= parts)
        mode = "node";
    for (size_t i = 0; mode && i < sizeof(binding_modes) / sizeof(binding_modes[0]); i++) {
        if (strcmp(mode, binding_modes[i].name) == 0)
            status = binding_apply(&machine, &binding_modes[i], binding);
    }
out:
    if (is_new)
        hwloc_topology_destroy(machine.topology);
    hwloc_bitmap_free(machine.usable);
    return status;
}

#else

static dist_status binding_choose(const char *mode, struct disti_run_binding *binding)
{
    (void)binding;
    return mode ? disti_fail(DIST_ERR_UNSUPPORTED,
                             "--numa-binding is not available: distrun was built without hwloc")
                : DIST_OK;
}

#endif

dist_status disti_run_binding_create(const char *mode, int workers,
                                     struct disti_run_binding *binding_p)
{
    dist_status status = DIST_OK;

    *binding_p = (struct disti_run_binding){
        .mode = "none", .workers = workers, .usable = disti_usable_cpus()};
    binding_p->threads = binding_p->usable / workers;
    if (binding_p->threads < 1)
        binding_p->threads = 1;
    if (!mode || strcmp(mode, "none") != 0)
        status = binding_choose(mode, binding_p);
    return status;
}

/* ---- the environment ---- */

/*
 * Variables of an outer launcher that must not reach the workers: they would be mistaken for our
 * variables, or for those of a launcher that a worker starts.
 */
static const char *const environment_dropped[] = {"DIST_AGENT_FILES",     "DIST_AGENT_LAST_CALL",
                                                  "DIST_AGENT_STORE",     "DIST_AGENT_STORE_SECRET",
                                                  "OMPI_COMM_WORLD_RANK", "PMI_RANK"};

/* Variables that the scheduler must not inherit: it has no rank. */
static const char *const environment_ranks[] = {"LOCAL_RANK", "MS_NODE_ID", "RANK", "ROLE_RANK"};
#define ENVIRONMENT_COUNT(names) ((int)(sizeof(names) / sizeof((names)[0])))

/* True if `names` (entries "NAME" or "NAME=value") contains the name of `variable`. */
static bool environment_is_in(const char *const *names, int count, const char *variable)
{
    for (int i = 0; i < count; i++) {
        const size_t length = strcspn(names[i], "=");

        if (strncmp(variable, names[i], length) == 0 && variable[length] == '=')
            return true;
    }
    return false;
}

void disti_run_environment(const struct disti_run_options *options,
                           const struct disti_run_round *round,
                           const struct disti_run_worker *worker, const char *last_calls,
                           const char *files, int threads, struct disti_run_list *made)
{
    const bool is_rank = worker->local_rank >= 0;
    const int rank = round->first_rank + worker->local_rank;
    int own;

    /*
     * ROLE_RANK and ROLE_WORLD_SIZE equal RANK and WORLD_SIZE: a job of this launcher has one role.
     */
    disti_run_list_add(made, "WORLD_SIZE=%d", round->world_size);
    disti_run_list_add(made, "LOCAL_WORLD_SIZE=%d", round->workers);
    disti_run_list_add(made, "GROUP_RANK=%d", round->node_rank);
    disti_run_list_add(made, "GROUP_WORLD_SIZE=%d", round->nodes);
    disti_run_list_add(made, "ROLE_NAME=%s", options->role);
    disti_run_list_add(made, "ROLE_WORLD_SIZE=%d", round->world_size);
    disti_run_list_add(made, "MASTER_ADDR=%s", round->master_address);
    disti_run_list_add(made, "MASTER_PORT=%d", round->master_port);
    disti_run_list_add(made, "TORCHELASTIC_RESTART_COUNT=%d", round->restarts);
    disti_run_list_add(made, "TORCHELASTIC_MAX_RESTARTS=%d", (int)options->max_restarts);
    disti_run_list_add(made, "TORCHELASTIC_RUN_ID=%s", round->job);
    /*
     * torch's rank 0 then creates torch's store at MASTER_PORT; the agent's store is a different
     * one.
     */
    disti_run_list_add(made, "TORCHELASTIC_USE_AGENT_STORE=False");
    disti_run_list_add(made, "TORCHELASTIC_ERROR_FILE=%s", worker->error_file);
    disti_run_list_add(made, "TORCHELASTIC_SIGNALS_TO_HANDLE=%s", options->signals_text);
    if (!disti_env("TORCH_NCCL_ASYNC_ERROR_HANDLING"))
        disti_run_list_add(made, "TORCH_NCCL_ASYNC_ERROR_HANDLING=1");
    if (!disti_env("OMP_NUM_THREADS") && threads > 0)
        disti_run_list_add(made, "OMP_NUM_THREADS=%d", threads);
    if (is_rank) {
        disti_run_list_add(made, "RANK=%d", rank);
        disti_run_list_add(made, "LOCAL_RANK=%d", worker->local_rank);
        disti_run_list_add(made, "ROLE_RANK=%d", rank);
    }
    if (options->scheduler) {
        /* MindSpore's own scheduler may use rank 0's port: libdist's store has another port. */
        disti_run_list_add(made, "MS_ROLE=%s", worker->local_rank < 0 ? "MS_SCHED" : "MS_WORKER");
        disti_run_list_add(made, "MS_WORKER_NUM=%d", round->world_size);
        disti_run_list_add(made, "MS_SCHED_HOST=%s", disti_run_store_host(round));
        disti_run_list_add(made, "MS_SCHED_PORT=%d", round->master_port);
        if (worker->local_rank >= 0)
            disti_run_list_add(made, "MS_NODE_ID=%d", round->first_rank + worker->local_rank);
    }
    disti_run_list_add(made, "DIST_AGENT_LAST_CALL=%s", last_calls);
    disti_run_list_add(made, "DIST_AGENT_STORE=%s", round->store);
    disti_run_list_add(made, "DIST_AGENT_FILES=%s", files);
    if (round->store_token_file[0])
        disti_run_list_add(made, "DIST_AGENT_STORE_SECRET=%s", round->store_token_file);
    own = made->count;
    for (char **v = environ; *v; v++) {
        if (!environment_is_in((const char *const *)made->words, own, *v) &&
            !environment_is_in(environment_dropped, ENVIRONMENT_COUNT(environment_dropped), *v) &&
            (is_rank ||
             !environment_is_in(environment_ranks, ENVIRONMENT_COUNT(environment_ranks), *v)))
            disti_run_list_add(made, "%s", *v);
    }
}

/* Finds all descendants of this process through the parents in /proc. */

struct process {
    pid_t pid, parent;
    bool is_descendant; /* a descendant of this process */
};

struct process_table {
    struct process *processes;
    int count, capacity;
};

/*
 * Reads the parent from /proc/PID/stat: it follows the state, which follows the name in
 * parentheses.
 */
static pid_t process_parent(const char *pid)
{
    char path[32], text[512], state;
    const char *after;
    ssize_t length;
    int fd, parent = 0;

    snprintf(path, sizeof(path), "/proc/%.10s/stat", pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    length = fd >= 0 ? read(fd, text, sizeof(text) - 1) : 0;
    if (fd >= 0)
        close(fd);
    text[length > 0 ? length : 0] = '\0';
    after = strrchr(text, ')');
    return after && sscanf(after + 1, " %c %d", &state, &parent) == 2 ? parent : 0;
}

static int process_compare(const void *a, const void *b)
{
    const struct process *first = a, *second = b;

    return (first->pid > second->pid) - (first->pid < second->pid);
}

/*
 * Marks children of descendants until no new ones are found. As most children have higher process
 * ids than their parents, and the processes are sorted, one pass finds nearly all.
 */
bool disti_run_signal_descendants(int signal_number)
{
    struct process_table table = {0};
    const pid_t self = getpid();
    DIR *directory;
    const struct dirent *entry;
    struct process *processes;

    if (!disti_process_proc_is_own())
        return false;
    directory = opendir("/proc");
    while (directory && (entry = readdir(directory))) {
        const pid_t pid = (pid_t)atoi(entry->d_name);

        if (pid <= 0)
            continue;
        if (table.count == table.capacity) {
            const int capacity = table.capacity ? 2 * table.capacity : 256;

            processes = realloc(table.processes, (size_t)capacity * sizeof(*processes));
            if (!processes)
                break;
            table.processes = processes;
            table.capacity = capacity;
        }
        table.processes[table.count++] =
            (struct process){.pid = pid, .parent = process_parent(entry->d_name)};
    }
    if (directory)
        closedir(directory);
    if (table.processes)
        qsort(table.processes, (size_t)table.count, sizeof(*table.processes), process_compare);
    for (bool new = true; new;) {
        new = false;
        for (int i = 0; i < table.count; i++) {
            struct process *process = &table.processes[i], key = {.pid = process->parent};
            const struct process *parent;

            if (process->is_descendant)
                continue;
            parent = bsearch(&key, table.processes, (size_t)table.count, sizeof(*table.processes),
                             process_compare);
            process->is_descendant = process->parent == self || (parent && parent->is_descendant);
            new |= process->is_descendant;
        }
    }
    for (int i = 0; i < table.count; i++) {
        if (table.processes[i].is_descendant)
            kill(table.processes[i].pid, signal_number);
    }
    free(table.processes);
    return true;
}

/* Starts a worker. */

static const char worker_refused[] = "the kernel rejects it";

/*
 * Runs in the vfork child, which shares the agent's memory until execve. Returns only on failure;
 * *what_p is the failed step.
 */
static void worker_become(const struct disti_run_start *start, pid_t agent, const char **what_p)
{
    /* The kernel kills the child when the agent dies; the agent may be dead already. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != agent)
        _exit(128 + SIGKILL);
    /* If the group does not exist, the user has killed it, and the agent learns of that soon. */
    setpgid(0, start->group);
    *what_p = "its standard streams cannot be set up";
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (start->fds[fd] >= 0 && dup2(start->fds[fd], fd) < 0)
            return;
    }
    *what_p = "it cannot be bound to its CPUs";
    if (start->cpus && sched_setaffinity(0, sizeof(*start->cpus), (const cpu_set_t *)start->cpus))
        return;
    for (int i = 0; i < 2; i++)
        fcntl(start->inherited[i], F_SETFD, 0);
    setrlimit(RLIMIT_NOFILE, &start->files);
    sigprocmask(SIG_SETMASK, &start->mask, NULL);
    *what_p = worker_refused;
    execve(start->path, start->command, start->environment);
}

dist_status disti_run_worker_start(const struct disti_run_start *start, pid_t *pid_p)
{
    const char *volatile what = NULL;
    volatile int error = 0;
    const pid_t agent = getpid();
    const char *failed = NULL;
    pid_t pid;

    /* vfork: forking a process with many pages takes longer, about a second for 256 workers. */
    pid = vfork();
    if (pid == 0) {
        worker_become(start, agent, &failed);
        error = errno;
        what = failed;
        _exit(127);
    }
    if (pid < 0)
        return disti_process_limit_fail("start %s", start->name);
    if (!what) {
        *pid_p = pid;
        return DIST_OK;
    }
    waitpid(pid, NULL, 0);
    errno = error;
    /* Adds a likely reason if execve rejects an existing file. */
    return disti_fail_errno(what == worker_refused ? DIST_ERR_INVALID_ARGUMENT : DIST_ERR_SYSTEM,
                            "cannot run %s: %s%s", start->path, what,
                            error == ENOEXEC ? " (a script begins with #!/bin/sh or the like)"
                            : error == ENOENT
                                ? " (the interpreter in its #! line, or its loader, does not exist)"
                                : "");
}

/* Used by the agent and the starter. */

/* Below the ephemeral ports of Linux. */
enum { PORT_FIRST = 10000, PORT_COUNT = 10000, PORT_TRIES = 20 };

/* True if the port can be bound on all addresses; *port_p is the port. 0: any port. */
static bool port_is_free(int port, int *port_p)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    socklen_t size = sizeof(address);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool is_free = fd >= 0 && bind(fd, (struct sockaddr *)&address, size) == 0 &&
                         getsockname(fd, (struct sockaddr *)&address, &size) == 0;
    const int error = errno;

    if (fd >= 0)
        close(fd);
    errno = error;
    if (is_free)
        *port_p = ntohs(address.sin_port);
    return is_free;
}

/*
 * The port must be free on all addresses, since rank 0 may listen on any of them. It is not kept
 * bound until rank 0 binds it, since rank 0's program may not set SO_REUSEADDR. On a busy machine
 * rank 0 may need seconds for that. So that no other program takes the port meanwhile, it is not an
 * ephemeral port; it is random, so that two jobs that start together rarely choose the same.
 */
dist_status disti_run_free_port(int *port_p)
{
    unsigned number;

    for (int tries = 0; tries < PORT_TRIES; tries++) {
        if (getrandom(&number, sizeof(number), GRND_NONBLOCK) == (ssize_t)sizeof(number) &&
            port_is_free(PORT_FIRST + (int)(number % PORT_COUNT), port_p))
            return DIST_OK;
    }
    if (port_is_free(0, port_p))
        return DIST_OK;
    return disti_fail_errno(DIST_ERR_SYSTEM, "no free port found: specify one with --master-port");
}

enum { OPEN_FILES = 65536 };

/* Each worker needs up to five descriptors here; the worker itself gets the inherited limit. */
bool disti_run_open(struct rlimit *previous_p, int *child_fd_p, int *done_fd_p)
{
    struct rlimit files;
    sigset_t child;

    if (getrlimit(RLIMIT_NOFILE, previous_p) == 0) {
        files = *previous_p;
        if (files.rlim_cur < OPEN_FILES)
            files.rlim_cur = files.rlim_max < OPEN_FILES ? files.rlim_max : OPEN_FILES;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    *child_fd_p = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
    *done_fd_p = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return *child_fd_p >= 0 && *done_fd_p >= 0;
}
