/* SPDX-License-Identifier: BSD-3-Clause */
/* What launched this process, by its variables and by the processes above it. */
#include "base/descriptor.h"
#include "base/log.h"
#include "base/net.h"
#include "base/process.h"
#include "base/settings/config.h"
#include "rendezvous/meet.h"
#include "rendezvous/rendezvous.h"
#include "store/server.h"
#include "store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PROCESS_INIT = 1, PROCESS_ABOVE = 64 /* looked at, at most */ };

static FILE *process_open(int pid, const char *what)
{
    char path[32];

    snprintf(path, sizeof(path), "/proc/%d/%s", pid, what);
    return fopen(path, "re");
}

/* Was it started with that variable, set to that? One that another user has started is no rank of
 * ours. */
static bool process_has(int pid, const char *variable, const char *value)
{
    const size_t length = strlen(variable);
    FILE *file = process_open(pid, "environ");
    char *entry = NULL;
    size_t room = 0;
    bool found = false;

    if (!file)
        return errno != EACCES;
    while (!found && getdelim(&entry, &room, '\0', file) > 0)
        found = strncmp(entry, variable, length) == 0 && entry[length] == '=' &&
                strcmp(entry + length + 1, value) == 0;
    free(entry);
    fclose(file);
    return found;
}

/* "PID (NAME) STATE PARENT ..."; the name may have blanks and brackets in it. 0: not known. */
static int process_parent(int pid, char name[DISTI_PROCESS_NAME])
{
    FILE *file = process_open(pid, "stat");
    char text[256] = "", *begin, *end;
    int parent = 0;

    if (!file)
        return 0;
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    fclose(file);
    begin = strchr(text, '(');
    end = strrchr(text, ')');
    if (!begin || !end || sscanf(end + 1, " %*c %d", &parent) != 1)
        return 0;
    snprintf(name, DISTI_PROCESS_NAME, "%.*s", (int)(end - begin - 1), begin + 1);
    return parent;
}

int disti_launcher_process(const char *variable, int *pid_p, char name[DISTI_PROCESS_NAME])
{
    const char *value = disti_env(variable);
    int pid = getppid(), fd;

    if (!disti_process_proc_is_own())
        return -1;
    for (int above = 0; value && pid > PROCESS_INIT && above < PROCESS_ABOVE; above++) {
        const bool is_below = process_has(pid, variable, value);
        const int parent = process_parent(pid, name);

        if (is_below) {
            pid = parent;
            continue;
        }
        fd = disti_descriptor_own((int)syscall(SYS_pidfd_open, pid, 0));
        *pid_p = pid;
        return fd;
    }
    return -1;
}

/* ---- SLURM_STEP_TASKS_PER_NODE and SLURM_STEP_NODELIST; a port for a step ---- */

/* A decimal number of at most 9 digits; moves *text_p behind it. -1: there is none. */
static int slurm_number(const char **text_p)
{
    const char *c = *text_p;
    int value = 0, digits = 0;

    for (; *c >= '0' && *c <= '9'; c++, digits++) {
        if (digits == 9)
            return -1;
        value = value * 10 + (*c - '0');
    }
    *text_p = c;
    return digits ? value : -1;
}

int disti_slurm_tasks(const char *text, int node)
{
    for (;;) {
        int tasks = slurm_number(&text), nodes = 1;

        if (tasks < 0)
            return -1;
        if (strncmp(text, "(x", 2) == 0) {
            text += 2;
            nodes = slurm_number(&text);
            if (nodes < 1 || *text++ != ')')
                return -1;
        }
        if (*text && *text != ',')
            return -1;
        if (node < nodes)
            return tasks;
        node -= nodes;
        if (*text++ != ',')
            return -1;
    }
}

bool disti_slurm_first_host(const char *text, char *host, size_t size)
{
    size_t at = 0;

    /* In "n[01-03,7]-ib,m5" the bracket stands for its first item, "01". */
    for (; *text && *text != ','; text++) {
        if (*text == '[') {
            const char *item = text + 1;
            size_t length = strcspn(item, "-,]");
            const char *end = strchr(item, ']');

            if (!end || length == 0 || length != strspn(item, "0123456789") || length >= size - at)
                return false;
            memcpy(host + at, item, length);
            at += length;
            text = end;
        } else {
            if (*text == ']' || at + 1 >= size)
                return false;
            host[at++] = *text;
        }
    }
    host[at] = 0;
    return at > 0;
}

/* A port that all processes of the step work out alike from its name: 20000 to 29499. */
static int slurm_port(const char *job)
{
    unsigned hash = 5381;

    for (; *job; job++)
        hash = hash * 33 + (unsigned char)*job;
    return 20000 + (int)(hash % 9500);
}

/* ---- MindSpore's variables ---- */

static dist_status mindspore_role(struct disti_launch *launch)
{
    const char *role = disti_env("MS_ROLE");

    if (launch->world_size < 0)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "MS_ROLE is %.40s, but MS_WORKER_NUM is not set: set it to the number of "
                          "workers, the same for the scheduler and all of them",
                          role);
    launch->scheduler = DISTI_SCHEDULER_POSSIBLE;
    if (role && strcmp(role, "MS_WORKER") == 0)
        launch->scheduler = DISTI_SCHEDULER_EXPECTED;
    else if (role && strcmp(role, "MS_SCHED") == 0)
        launch->scheduler = DISTI_SCHEDULER_SELF;
    else if (role)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "MS_ROLE is %.40s: set it to MS_WORKER for the processes that take part, "
                          "and to MS_SCHED for one that serves them",
                          role);
    return DIST_OK;
}

/*
 * Of a process of distrun --role mindspore. Its numbers, and the place of the store, are in the
 * variables that all processes of distrun have; who has no rank is the scheduler, which holds it.
 */
static dist_status launch_mindspore_agent(struct disti_launch *launch)
{
    const char *role = disti_env("MS_ROLE");

    if (!role)
        return DIST_OK;
    if (strcmp(role, "MS_SCHED") == 0 && launch->rank < 0)
        launch->scheduler = DISTI_SCHEDULER_SELF;
    return disti_env_seconds("MS_CLUSTER_TIMEOUT", -1, &launch->timeout_ms);
}

/* What MindSpore's variables say besides the numbers: role, place and time. ERR_INVALID_ARGUMENT
 * names the one that is wrong, or is not there. A scheduler of MindSpore itself may hold
 * MS_SCHED_PORT: our store, whoever holds it, takes the next. */
static dist_status launch_mindspore(struct disti_launch *launch)
{
    const char *host = disti_env("MS_SCHED_HOST");
    int port = -1;
    dist_status status = disti_env_int("MS_SCHED_PORT", 1, 65534, -1, &port);

    if (status == DIST_OK)
        status = disti_env_seconds("MS_CLUSTER_TIMEOUT", -1, &launch->timeout_ms);
    if (status == DIST_OK)
        status = mindspore_role(launch);
    if (status != DIST_OK)
        return status;
    if (launch->scheduler == DISTI_SCHEDULER_SELF)
        launch->rank = -1;
    if (!launch->host[0] && host) {
        snprintf(launch->host, sizeof(launch->host), "%s", host);
        disti_host_normalize(launch->host);
        if (port > 0)
            launch->port = port + 1;
    }
    return DIST_OK;
}

/* ---- the variables that each launcher sets ---- */

static void launch_job(struct disti_launch *launch, const char *launcher, const char *a,
                       const char *b)
{
    snprintf(launch->job, sizeof(launch->job), "%s.%s%s%s", launcher, a, b ? "." : "", b ? b : "");
}

static dist_status launch_no_secret(const char *path, int inherited)
{
    const char *why = errno == ESTALE ? "is another file in this PID namespace" : strerror(errno);

    if (inherited < 0)
        return disti_fail(
            DIST_ERR_RENDEZVOUS,
            "cannot read the secret of the launcher's store (DIST_AGENT_STORE_SECRET=%.200s): %s: "
            "start the program as the user who started the launcher",
            path, why);
    return disti_fail(
        DIST_ERR_RENDEZVOUS,
        "cannot read the secret of the launcher's store: a program between the launcher and this "
        "rank has closed descriptor %d, and %.200s cannot be opened instead: %s. Keep the "
        "descriptor open (podman run --preserve-fd=%d), or start the rank as the launcher's user, "
        "in the launcher's PID and user namespaces, with /proc mounted, or set DIST_AUTH=none for "
        "the launcher",
        inherited, path, why, inherited);
}

/* The store's secret is stored in a file that no other user can read. */
static dist_status launch_secret(const char *path, char secret[128])
{
    int inherited;
    const int fd = disti_handed_open(DISTI_HANDED_SECRET, path, O_RDONLY, &inherited);
    const ssize_t got = fd >= 0 ? pread(fd, secret, 127, 0) : -1;
    const int error = got == 0 ? ENODATA : errno;

    if (fd >= 0)
        close(fd);
    errno = error;
    if (got <= 0)
        return launch_no_secret(path, inherited);
    secret[got] = '\0';
    secret[strcspn(secret, "\n")] = '\0';
    return DIST_OK;
}

/* Our own launcher's store: at MASTER_ADDR and MASTER_PORT ("1"), or at HOST:PORT. */
static dist_status launch_agent_store(const char *place, struct disti_launch *launch)
{
    const char *colon = strrchr(place, ':'), *secret = disti_env("DIST_AGENT_STORE_SECRET");
    dist_status status;

    launch->agent_store = true;
    if (strcmp(place, "1") == 0)
        return secret ? launch_secret(secret, launch->agent_secret) : DIST_OK;
    if (!colon || colon == place || (size_t)(colon - place) >= sizeof(launch->host))
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "DIST_AGENT_STORE is \"%.100s\": it is set by distrun, to HOST:PORT, and "
                          "by dist_spawn, to 1: leave it as they do",
                          place);
    status = disti_parse_int("the port in DIST_AGENT_STORE", colon + 1, 1, 65535, &launch->port);
    if (status != DIST_OK)
        return status;
    snprintf(launch->host, sizeof(launch->host), "%.*s", (int)(colon - place), place);
    return secret ? launch_secret(secret, launch->agent_secret) : DIST_OK;
}

/*
 * torchrun's own agent listens on MASTER_PORT when TORCHELASTIC_USE_AGENT_STORE is True, in a
 * protocol of its own; rank 0 then takes the next port. Where the launcher is ours
 * (DIST_AGENT_STORE) it holds our store; distrun's HOST:PORT is that of a launcher around torchrun
 * where torchrun's agent has a store.
 */
static dist_status launch_torchrun(struct disti_launch *launch)
{
    const char *agent = disti_env("TORCHELASTIC_USE_AGENT_STORE");
    const char *own = disti_env("DIST_AGENT_STORE");
    const bool has_store = agent && strcmp(agent, "True") == 0;

    launch_job(launch, "torchrun", disti_env("TORCHELASTIC_RUN_ID"), disti_env("MASTER_PORT"));
    if (own && (!has_store || strcmp(own, "1") == 0)) {
        const dist_status status = launch_agent_store(own, launch);
        return status == DIST_OK ? launch_mindspore_agent(launch) : status;
    }
    if (has_store && launch->port > 0)
        launch->port += launch->port < 65535 ? 1 : -1;
    return DIST_OK;
}

static dist_status launch_openmpi(struct disti_launch *launch)
{
    const char *space = disti_env("PMIX_NAMESPACE");

    if (!space)
        space = disti_env("OMPI_MCA_ess_base_jobid");
    if (!space)
        space = disti_env("OMPI_MCA_orte_ess_jobid");
    /* Job numbers are few; the transport key is random. */
    if (space)
        launch_job(launch, "ompi", space, disti_env("OMPI_MCA_orte_precondition_transports"));
    return DIST_OK;
}

/* The process manager of this machine is at the other end of PMI_FD: one a job. */
static dist_status launch_mpich(struct disti_launch *launch)
{
    struct ucred manager = {0};
    socklen_t size = sizeof(manager);
    char pid[16];
    int fd = -1;
    dist_status status = disti_env_int("PMI_FD", 0, INT_MAX, -1, &fd);

    if (status != DIST_OK)
        return status;
    if (fd >= 0 && getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &manager, &size) == 0 &&
        manager.pid > 0) {
        snprintf(pid, sizeof(pid), "%d", (int)manager.pid);
        launch_job(launch, "mpich", pid, disti_env("PMI_JOBID"));
    }
    return DIST_OK;
}

static dist_status launch_srun(struct disti_launch *launch)
{
    const char *tasks = disti_env("SLURM_STEP_TASKS_PER_NODE");
    const char *nodes = disti_env("SLURM_STEP_NODELIST");
    const char *job = disti_env("SLURM_JOB_ID");
    int node = 0;
    dist_status status = disti_env_int("SLURM_NODEID", 0, INT_MAX, 0, &node);

    if (status != DIST_OK)
        return status;
    if (tasks) {
        launch->local_world_size = disti_slurm_tasks(tasks, node);
        if (launch->local_world_size < 1)
            return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                              "SLURM_STEP_TASKS_PER_NODE is \"%.100s\", which has no entry for "
                              "node %d (SLURM_NODEID): start the job with srun, or set LOCAL_RANK "
                              "and RANK yourself",
                              tasks, node);
    }
    launch_job(launch, "slurm", job ? job : "0", disti_env("SLURM_STEP_ID"));
    if (!launch->host[0] && nodes && launch->local_world_size != launch->world_size) {
        if (!disti_slurm_first_host(nodes, launch->host, sizeof(launch->host)))
            return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                              "SLURM_STEP_NODELIST is \"%.100s\", which names no host: start the "
                              "program with srun, or set MASTER_ADDR",
                              nodes);
        launch->guessed = true;
        launch->serves = node == 0 && launch->local_rank == 0;
        if (!disti_env("MASTER_PORT"))
            launch->port = slurm_port(launch->job);
    }
    return DIST_OK;
}

/* A launcher that serves PMIx and has no variables of its own. The rest is the server's to say. */
static dist_status launch_pmix(struct disti_launch *launch)
{
    launch_job(launch, "pmix", disti_env("PMIX_NAMESPACE"), NULL);
    return DIST_OK;
}

/* A loop in a shell that sets LOCAL_RANK alone: one machine, so that says everything. */
static dist_status launch_environment(struct disti_launch *launch)
{
    bool one_machine =
        launch->local_world_size < 0 || launch->local_world_size == launch->world_size;

    if (launch->rank < 0 && launch->local_rank >= 0 && one_machine) {
        launch->rank = launch->local_rank;
        launch->local_world_size = launch->world_size;
        if (!launch->host[0])
            snprintf(launch->host, sizeof(launch->host), "%s", disti_loopback());
    }
    if (launch->rank < 0 && launch->world_size == 1)
        launch->rank = 0;
    return DIST_OK;
}

/* Where a launcher puts its numbers; a name may be NULL. */
struct launch_source {
    const char *launcher;
    const char *mark; /* the variable by which the launcher is known */
    const char *rank, *world_size, *local_rank, *local_world_size;
    dist_status (*finish)(struct disti_launch *launch); /* the rest; may be NULL */
    bool pmix; /* PMIx that is offered is this launcher's */
};

/* In the order in which they are believed: inside a Slurm batch job mpirun launched us, and
 * a bare RANK may be an old export. */
static const struct launch_source launch_sources[] = {
    {"torchrun", "TORCHELASTIC_RUN_ID", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
     launch_torchrun, false},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", launch_openmpi, true},
    {"MPICH", "PMI_RANK", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS",
     launch_mpich, false},
    {"srun", "SLURM_STEP_ID", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", NULL, launch_srun,
     true},
    {"PMIx", "PMIX_RANK", "PMIX_RANK", NULL, NULL, NULL, launch_pmix, true},
    {"environment", "WORLD_SIZE", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
     launch_environment, false},
    {"environment", "RANK", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", NULL, false},
    {"MindSpore", "MS_WORKER_NUM", "MS_NODE_ID", "MS_WORKER_NUM", NULL, NULL, launch_mindspore,
     false},
    {"MindSpore", "MS_ROLE", "MS_NODE_ID", "MS_WORKER_NUM", NULL, NULL, launch_mindspore, false},
};
#define LAUNCH_SOURCES (sizeof(launch_sources) / sizeof(launch_sources[0]))

static dist_status launch_numbers(const struct launch_source *source, struct disti_launch *launch)
{
    const struct {
        const char *name;
        int min, *value;
    } numbers[] = {{source->rank, 0, &launch->rank},
                   {source->world_size, 1, &launch->world_size},
                   {source->local_rank, 0, &launch->local_rank},
                   {source->local_world_size, 1, &launch->local_world_size}};
    dist_status status = DIST_OK;

    for (int i = 0; i < 4 && status == DIST_OK; i++) {
        if (numbers[i].name)
            status = disti_env_int(numbers[i].name, numbers[i].min, INT_MAX, -1, numbers[i].value);
    }
    return status;
}

/* distrun takes from its workers what a launcher around it has set: where that stands nevertheless,
 * a worker has become a launcher, whose numbers count. */
static bool launch_is_inside_distrun(void)
{
    return disti_env("DIST_AGENT_LAST_CALL") &&
           (disti_env("OMPI_COMM_WORLD_RANK") || disti_env("PMI_RANK"));
}

/* Warns if `other` says something else than what was chosen, about one number. */
static void launch_compare(const struct launch_source *chosen, const struct launch_source *other,
                           const char *chosen_name, const char *other_name, int value)
{
    const char *text = disti_env(other_name);
    char number[16];

    snprintf(number, sizeof(number), "%d", value);
    if (text && value >= 0 && strcmp(text, number) != 0)
        disti_warn("%s sets %s=%d, but %s=%s is set too (%s): using that of %s", chosen->launcher,
                   chosen_name, value, other_name, text, other->launcher, chosen->launcher);
}

static void launch_compare_all(const struct launch_source *chosen,
                               const struct disti_launch *launch)
{
    for (size_t i = 0; i < LAUNCH_SOURCES && !launch_is_inside_distrun(); i++) {
        const struct launch_source *other = &launch_sources[i];

        /* An MPI job that runs inside a Slurm step always sees the step's numbers too. */
        if (other <= chosen || strcmp(other->launcher, "srun") == 0 || !disti_env(other->mark) ||
            !other->world_size || strcmp(other->rank, chosen->rank) == 0)
            continue;
        launch_compare(chosen, other, chosen->rank, other->rank, launch->rank);
        launch_compare(chosen, other, chosen->world_size, other->world_size, launch->world_size);
        if (strcmp(other->launcher, "environment") == 0)
            return;
    }
}

/* Batch scripts and the shells of allocations carry Slurm's numbers too, but are no tasks. */
static bool launch_is_slurm_task(void)
{
    const char *step = disti_env("SLURM_STEP_ID");

    return disti_env("SLURM_PROCID") && disti_env("SLURM_NTASKS") &&
           strtoull(step, NULL, 10) < 0xfffffff0u;
}

/* Slurm speaks MPICH's protocol too (srun --mpi=pmi2), but does not say what MPICH's launcher says
 * of a machine: Slurm's own variables do. */
static bool launch_is_slurm_pmi(void)
{
    const char *rank = disti_env("PMI_RANK"), *task = disti_env("SLURM_PROCID");
    const char *size = disti_env("PMI_SIZE"), *tasks = disti_env("SLURM_NTASKS");

    return disti_env("SLURM_STEP_ID") && launch_is_slurm_task() && !disti_env("MPI_LOCALRANKID") &&
           rank && size && strcmp(rank, task) == 0 && strcmp(size, tasks) == 0;
}

static const struct launch_source *launch_find(bool pmix)
{
    for (size_t i = 0; i < LAUNCH_SOURCES; i++) {
        const struct launch_source *source = &launch_sources[i];

        if (!disti_env(source->mark))
            continue;
        if (strcmp(source->launcher, "torchrun") == 0 && launch_is_inside_distrun())
            continue;
        if (strcmp(source->launcher, "srun") == 0 && !launch_is_slurm_task())
            continue;
        if (strcmp(source->launcher, "MPICH") == 0 && launch_is_slurm_pmi())
            continue;
        if (strcmp(source->launcher, "PMIx") == 0 && !pmix)
            continue;
        return source;
    }
    return NULL;
}

const struct disti_launch disti_launch_unknown = {.launcher = "none",
                                                  .rank = -1,
                                                  .world_size = -1,
                                                  .local_rank = -1,
                                                  .local_world_size = -1,
                                                  .port = DISTI_PORT_DEFAULT,
                                                  .timeout_ms = -1};

dist_status disti_launch_detect(struct disti_launch *launch_p)
{
    struct disti_launch launch = disti_launch_unknown;
    const struct launch_source *source;
    const char *host = disti_env("MASTER_ADDR");
    int pmix = -1, watch = 1;
    dist_status status = disti_env_int("MASTER_PORT", 1, 65535, DISTI_PORT_DEFAULT, &launch.port);

    if (status == DIST_OK)
        status = disti_variable_int("DIST_PMIX", -1, &pmix);
    if (status == DIST_OK)
        status = disti_variable_int("DIST_LAUNCHER_WATCH", 1, &watch);
    if (status != DIST_OK)
        return status;
    launch.inside = launch_is_inside_distrun();
    launch.pmix = pmix != 0 && disti_pmix_is_offered();
    launch.pmix_always = pmix == 1;
    source = launch_find(launch.pmix);
    launch.pmix = launch.pmix && source && source->pmix;
    if (host && strlen(host) >= sizeof(launch.host))
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "MASTER_ADDR is too long for a host name: give the name or address of "
                          "rank 0's machine");
    if (host) {
        snprintf(launch.host, sizeof(launch.host), "%s", host);
        disti_host_normalize(launch.host);
    }
    if (source) {
        launch.launcher = source->launcher;
        /* Ranks of other launchers descend from a process of the launcher, which outlives them. */
        if (watch && strcmp(source->launcher, "environment") != 0 &&
            strcmp(source->launcher, "MindSpore") != 0)
            launch.mark = source->mark;
        status = launch_numbers(source, &launch);
        if (status == DIST_OK && source->finish)
            status = source->finish(&launch);
        if (status != DIST_OK)
            return status;
        launch_compare_all(source, &launch);
    }
    *launch_p = launch;
    return DIST_OK;
}
