/* SPDX-License-Identifier: BSD-3-Clause */
/* What launched this process: read from the variables that each launcher sets. */
#include "rendezvous/rendezvous.h"

#include "base/log.h"
#include "base/net/socket.h"
#include "base/settings/config.h"
#include "rendezvous/launchers/mindspore.h"
#include "rendezvous/launchers/slurm.h"
#include "rendezvous/pmix/pmix.h"
#include "store/handed.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Where a launcher puts its numbers; a name may be NULL. */
struct launch_source {
    const char *launcher;
    const char *mark; /* the variable by which the launcher is known */
    const char *rank, *world_size, *local_rank, *local_world_size;
    dist_status (*finish)(struct disti_launch *launch); /* the rest; may be NULL */
    bool pmix; /* PMIx that is offered is this launcher's */
};

static dist_status launch_torchrun(struct disti_launch *launch);
static dist_status launch_openmpi(struct disti_launch *launch);
static dist_status launch_mpich(struct disti_launch *launch);
static dist_status launch_srun(struct disti_launch *launch);
static dist_status launch_pmix(struct disti_launch *launch);
static dist_status launch_environment(struct disti_launch *launch);

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
    {"MindSpore", "MS_WORKER_NUM", "MS_NODE_ID", "MS_WORKER_NUM", NULL, NULL,
     disti_launch_mindspore, false},
    {"MindSpore", "MS_ROLE", "MS_NODE_ID", "MS_WORKER_NUM", NULL, NULL, disti_launch_mindspore,
     false},
};
#define LAUNCH_SOURCES (sizeof(launch_sources) / sizeof(launch_sources[0]))

static dist_status launch_int(const char *name, int min, int *value_p)
{
    return name ? disti_env_int(name, min, INT_MAX, -1, value_p) : DIST_OK;
}

static dist_status launch_numbers(const struct launch_source *source, struct disti_launch *launch)
{
    dist_status status = launch_int(source->rank, 0, &launch->rank);

    if (status == DIST_OK)
        status = launch_int(source->world_size, 1, &launch->world_size);
    if (status == DIST_OK)
        status = launch_int(source->local_rank, 0, &launch->local_rank);
    if (status == DIST_OK)
        status = launch_int(source->local_world_size, 1, &launch->local_world_size);
    return status;
}

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
        return status == DIST_OK ? disti_launch_mindspore_agent(launch) : status;
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
            launch->port = disti_slurm_port(launch->job);
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

/* Do the ranks descend from a process of the launcher's, which outlives them? */
static bool launch_is_process(const struct launch_source *source)
{
    return strcmp(source->launcher, "environment") != 0 &&
           strcmp(source->launcher, "MindSpore") != 0;
}

dist_status disti_launch_detect(struct disti_launch *launch_p)
{
    struct disti_launch launch = {.launcher = "none",
                                  .rank = -1,
                                  .world_size = -1,
                                  .local_rank = -1,
                                  .local_world_size = -1,
                                  .inside = launch_is_inside_distrun(),
                                  .port = DISTI_PORT_DEFAULT,
                                  .timeout_ms = -1};
    const struct launch_source *source;
    const char *host = disti_env("MASTER_ADDR");
    int pmix = -1, watch = 1;
    dist_status status = disti_env_int("MASTER_PORT", 1, 65535, DISTI_PORT_DEFAULT, &launch.port);

    if (status == DIST_OK)
        status = disti_env_int("DIST_PMIX", 0, 1, -1, &pmix);
    if (status == DIST_OK)
        status = disti_env_int("DIST_LAUNCHER_WATCH", 0, 1, 1, &watch);
    if (status != DIST_OK)
        return status;
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
        launch.mark = watch && launch_is_process(source) ? source->mark : NULL;
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
