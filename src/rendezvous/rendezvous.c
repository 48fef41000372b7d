/* SPDX-License-Identifier: BSD-3-Clause */
/* How the ranks of a job find each other: from the options, and from what launched them, to a
 * store. */
#include "rendezvous/rendezvous.h"
#include "base/clock.h"
#include "base/descriptor.h"
#include "base/log.h"
#include "base/process.h"
#include "base/settings/config.h"
#include "rendezvous/meet.h"
#include "store/client.h"
#include "store/server.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* What is known of a launcher before its variables are read: nothing. */
static const struct disti_launch launch_unknown = {.launcher = "none",
                                                   .rank = -1,
                                                   .world_size = -1,
                                                   .local_rank = -1,
                                                   .local_world_size = -1,
                                                   .port = DISTI_PORT_DEFAULT,
                                                   .timeout_ms = -1};

static struct disti_facts_number facts_pick(int option, int url, int launch, const char *launcher)
{
    if (option >= 0)
        return (struct disti_facts_number){option, "given by the program"};
    if (url >= 0)
        return (struct disti_facts_number){url, "from the init method"};
    return (struct disti_facts_number){launch, launcher};
}

static void facts_compare(const char *what, const struct disti_facts_number *number,
                          const struct disti_launch *launch, int launched)
{
    if (launched >= 0 && launched != number->value)
        disti_warn("%s is %d (%s), but the launcher (%s) has set %d: using %d", what, number->value,
                   number->from, launch->launcher, launched, number->value);
}

/* Options first, then the init method, then the launcher. */
static void facts_pick_all(struct disti_facts *facts)
{
    const struct dist_options *options = facts->options;
    const struct disti_launch *launch = &facts->launch;

    facts->rank = facts_pick(options->rank, facts->url.rank, launch->rank, launch->launcher);
    facts->world_size = facts_pick(options->world_size, facts->url.world_size, launch->world_size,
                                   launch->launcher);
    facts->local_rank = options->local_rank;
    facts->local_world_size = -1;
    /* The launcher's local rank belongs to the launcher's world. */
    if (facts->world_size.value == launch->world_size) {
        facts->local_world_size = launch->local_world_size;
        if (facts->local_rank < 0)
            facts->local_rank = launch->local_rank;
    }
}

/* From the options, the init method and the environment. The options stay the caller's, and must
 * live as long as the facts. */
static dist_status facts_gather(const struct dist_options *options, struct disti_facts *facts)
{
    dist_status status = disti_url_parse(options->init_method, &facts->url);
    bool told = options->rank >= 0 && options->world_size >= 0 &&
                (options->oob_all_gather || facts->url.kind == DISTI_URL_TCP ||
                 facts->url.kind == DISTI_URL_FILE);

    facts->options = options;
    facts->launch = launch_unknown;
    if (told)
        facts->launch.launcher = "the program itself";
    /* Whoever is told everything does not look at the environment, nonsense or not. */
    if (status == DIST_OK && !told)
        status = disti_launch_detect(&facts->launch);
    if (status != DIST_OK)
        return status;
    facts_pick_all(facts);
    facts_compare("the rank", &facts->rank, &facts->launch, facts->launch.rank);
    facts_compare("the world size", &facts->world_size, &facts->launch, facts->launch.world_size);
    return DIST_OK;
}

/* May a scheduler have part in the meeting? */
static bool facts_are_scheduled(const struct disti_facts *facts)
{
    return facts->launch.scheduler != DISTI_SCHEDULER_NONE && !facts->options->oob_all_gather &&
           (facts->url.kind == DISTI_URL_NONE || facts->url.kind == DISTI_URL_ENV);
}

/* Is this process one? Whoever has a rank by another word than the launcher's is none. */
static bool facts_are_scheduler(const struct disti_facts *facts)
{
    return facts_are_scheduled(facts) && facts->launch.scheduler == DISTI_SCHEDULER_SELF &&
           facts->rank.value < 0;
}

/* Completes and checks rank and world size. ERR_RENDEZVOUS names what is missing,
 * ERR_INVALID_ARGUMENT what is wrong. */
static dist_status facts_complete(struct disti_facts *facts)
{
    bool nothing = facts->rank.value < 0 && facts->world_size.value < 0;

    if (nothing && facts->url.kind == DISTI_URL_NONE && !facts->options->oob_all_gather)
        facts->rank.value = 0, facts->world_size.value = 1;
    if (facts->world_size.value == 1 && facts->rank.value < 0 && !facts_are_scheduler(facts))
        facts->rank.value = 0;
    if (facts->world_size.value < 0 && facts->rank.value < 0)
        return disti_fail(
            DIST_ERR_RENDEZVOUS,
            "neither rank nor world size is known: set RANK and WORLD_SIZE for each process, pass "
            "both to dist_init_process_group, or use a launcher such as mpirun");
    if (facts->world_size.value < 0)
        return disti_fail(DIST_ERR_RENDEZVOUS,
                          "this is rank %d (%s), but the world size is not known: set WORLD_SIZE "
                          "to the number of processes",
                          facts->rank.value, facts->rank.from);
    if (facts->rank.value < 0 && !facts_are_scheduled(facts))
        return disti_fail(DIST_ERR_RENDEZVOUS,
                          "the world size is %d (%s), but this process's rank is not known: set "
                          "RANK to a number from 0 to %d, different for each process",
                          facts->world_size.value, facts->world_size.from,
                          facts->world_size.value - 1);
    if (facts->world_size.value == 0)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "the world size is 0 (%s): set it to the number of processes, 1 or more",
                          facts->world_size.from);
    if (facts->rank.value >= facts->world_size.value)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "rank %d (%s) is out of range: the world size is %d (%s), so ranks are 0 "
                          "to %d",
                          facts->rank.value, facts->rank.from, facts->world_size.value,
                          facts->world_size.from, facts->world_size.value - 1);
    if (facts->local_rank >= facts->world_size.value)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "local rank %d is out of range: the world size is %d (%s), so set "
                          "LOCAL_RANK to a smaller number",
                          facts->local_rank, facts->world_size.value, facts->world_size.from);
    return DIST_OK;
}

/* ---- init methods: env://, tcp://HOST:PORT, file:///PATH, mpi:// ---- */

static dist_status url_bad(const char *text, const char *why)
{
    return disti_fail(
        DIST_ERR_INVALID_ARGUMENT,
        "the init method \"%.200s\" %s: use env://, tcp://HOST:PORT, file:///PATH or mpi://", text,
        why);
}

/* Copies `length` bytes; false if they do not fit, or are none. */
static bool url_copy(char *to, size_t size, const char *from, size_t length)
{
    if (length == 0 || length >= size)
        return false;
    memcpy(to, from, length);
    to[length] = 0;
    return true;
}

/* "host:port", "[::1]:port" */
static dist_status url_tcp(const char *text, const char *body, size_t length, struct disti_url *url)
{
    bool bracket = body[0] == '[';
    const char *end = bracket ? memchr(body, ']', length) : memchr(body, ':', length);
    const char *colon = end ? end + bracket : NULL;
    size_t used = colon ? (size_t)(colon - body) : 0;
    char port[16];

    if (!end || used >= length || *colon != ':')
        return url_bad(text, "has no port");
    if (!bracket && memchr(colon + 1, ':', length - used - 1))
        return url_bad(text, "has an IPv6 address, which needs brackets ([::1])");
    if (!url_copy(url->host, sizeof(url->host), body + bracket, (size_t)(end - body) - bracket))
        return url_bad(text, "has no host, or too long a host");
    disti_host_normalize(url->host);
    if (!url_copy(port, sizeof(port), colon + 1, length - used - 1))
        return url_bad(text, "has no port, or too long a port");
    return disti_parse_int("the port in the init method", port, 1, 65535, &url->port);
}

/* "rank=1&world_size=4" */
static dist_status url_query(const char *text, const char *query, struct disti_url *url)
{
    dist_status status = DIST_OK;
    char item[64];

    if (strlen(query) >= sizeof(item))
        return url_bad(text, "is too long after \"?\"");
    for (int i = 0; status == DIST_OK && disti_list_item(query, '&', i, item, sizeof(item)); i++) {
        if (strncmp(item, "rank=", 5) == 0)
            status = disti_parse_int("rank in the init method", item + 5, 0, INT_MAX, &url->rank);
        else if (strncmp(item, "world_size=", 11) == 0)
            status = disti_parse_int("world_size in the init method", item + 11, 1, INT_MAX,
                                     &url->world_size);
        else
            status = url_bad(text, "has other keys than rank and world_size after \"?\"");
    }
    return status;
}

dist_status disti_url_parse(const char *text, struct disti_url *url_p)
{
    static const char *const schemes[] = {[DISTI_URL_ENV] = "env://",
                                          [DISTI_URL_TCP] = "tcp://",
                                          [DISTI_URL_FILE] = "file://",
                                          [DISTI_URL_MPI] = "mpi://"};
    struct disti_url url = {.kind = DISTI_URL_NONE, .port = -1, .rank = -1, .world_size = -1};
    const char *body, *query;
    size_t length;
    dist_status status = DIST_OK;

    if (!text || !text[0]) {
        *url_p = url;
        return DIST_OK;
    }
    for (int kind = DISTI_URL_ENV; kind <= DISTI_URL_MPI; kind++) {
        if (strncmp(text, schemes[kind], strlen(schemes[kind])) == 0)
            url.kind = (enum disti_url_kind)kind;
    }
    if (url.kind == DISTI_URL_NONE)
        return url_bad(text, "has an unknown scheme");
    body = text + strlen(schemes[url.kind]);
    query = strchr(body, '?');
    length = query ? (size_t)(query - body) : strlen(body);
    if (url.kind == DISTI_URL_TCP)
        status = url_tcp(text, body, length, &url);
    else if (url.kind == DISTI_URL_FILE && body[0] != '/')
        status = url_bad(text, "has no absolute path (three slashes)");
    else if (url.kind == DISTI_URL_FILE && !url_copy(url.path, sizeof(url.path), body, length))
        status = url_bad(text, "has too long a path");
    else if (url.kind != DISTI_URL_FILE && length)
        status = url_bad(text, "has text after \"//\"");
    if (status == DIST_OK && query)
        status = url_query(text, query + 1, &url);
    if (status == DIST_OK)
        *url_p = url;
    return status;
}

/* ---- from options and environment to a store ---- */

/* For a scheduler to come, where MS_ROLE says that there is one; then rank 0 holds the store. */
#define RENDEZVOUS_PATIENCE_MS 2000

/* May the ranks meet by the name of the job? */
static bool rendezvous_is_local(const struct disti_launch *launch)
{
    return launch->job[0] && launch->world_size > 0 &&
           launch->local_world_size == launch->world_size;
}

static dist_status rendezvous_no_way(const struct disti_facts *facts, int rank)
{
    if (facts->url.kind == DISTI_URL_MPI)
        return disti_fail(DIST_ERR_RENDEZVOUS,
                          "rank %d: mpi:// works only with a backend that uses MPI: choose backend "
                          "mpi, or use env://, tcp:// or file://",
                          rank);
    if (facts_are_scheduled(facts))
        return disti_fail(
            DIST_ERR_RENDEZVOUS,
            "MS_SCHED_HOST is not set: set it to the address of the machine where the "
            "scheduler runs, or rank 0 if there is none (127.0.0.1 if all run on this "
            "one), and MS_SCHED_PORT to a free port there, the same for all");
    return disti_fail(
        DIST_ERR_RENDEZVOUS,
        "rank %d has no address of rank 0: MASTER_ADDR is not set. Set MASTER_ADDR to the address "
        "of the machine where rank 0 runs (127.0.0.1 if all ranks run on this one), and "
        "MASTER_PORT to a free port there (default %d), the same for all ranks",
        rank, DISTI_PORT_DEFAULT);
}

static dist_status rendezvous_meet(const struct disti_facts *facts,
                                   const struct disti_meeting *meeting,
                                   struct disti_bootstrap *bootstrap)
{
    const struct disti_launch *launch = &facts->launch;
    const struct disti_url *url = &facts->url;
    const char *served = launch->agent_store ? launch->agent_secret : NULL;

    if (facts->options->oob_all_gather)
        return disti_meet_oob(meeting, facts->options->oob_all_gather, facts->options->oob_arg,
                              bootstrap);
    if (url->kind == DISTI_URL_TCP)
        return disti_meet_tcp(meeting, url->host, url->port,
                              url->port == launch->port ? served : NULL, bootstrap);
    if (url->kind == DISTI_URL_FILE)
        return disti_meet_file(meeting, url->path, bootstrap);
    /* Several workers of distrun may each be an mpirun, and all of them see one MASTER_PORT. */
    if (launch->inside && url->kind <= DISTI_URL_ENV && rendezvous_is_local(launch))
        return disti_meet_local(meeting, launch->job, bootstrap);
    if (facts_are_scheduled(facts) && launch->host[0])
        return disti_meet_scheduled(
            meeting, launch->host, launch->port,
            launch->scheduler == DISTI_SCHEDULER_EXPECTED ? RENDEZVOUS_PATIENCE_MS : 0, bootstrap);
    if (url->kind != DISTI_URL_MPI && launch->host[0])
        return disti_meet_tcp(meeting, launch->host, launch->port, served, bootstrap);
    if (facts->by_pmix)
        return disti_meet_pmix(meeting, rendezvous_is_local(launch), bootstrap);
    if (url->kind == DISTI_URL_NONE && rendezvous_is_local(launch))
        return disti_meet_local(meeting, launch->job, bootstrap);
    return rendezvous_no_way(facts, meeting->rank);
}

/* The launcher may say how long all have to come; a caller in a hurry does not wait for that. */
static struct disti_meeting rendezvous_plan(const struct disti_facts *facts, int timeout_ms)
{
    const struct disti_launch *launch = &facts->launch;
    const bool guessed = launch->guessed && facts->url.kind <= DISTI_URL_ENV &&
                         facts->rank.value == launch->rank &&
                         facts->world_size.value == launch->world_size;
    const bool by_url = facts->url.kind == DISTI_URL_TCP;
    /* True if others may know the store's machine by an address that its name hides here. */
    const bool may_hide =
        !facts->options->oob_all_gather && facts->url.kind != DISTI_URL_FILE &&
        facts->url.kind != DISTI_URL_MPI && facts->world_size.value != 1 &&
        (launch->world_size <= 0 || launch->local_world_size != launch->world_size);
    bool hurry = timeout_ms < facts->options->timeout_ms;
    int64_t deadline;

    if (launch->timeout_ms > 0 && !hurry)
        timeout_ms = launch->timeout_ms;
    deadline = disti_deadline_ms(timeout_ms);
    return (struct disti_meeting){
        .rank = facts->rank.value,
        .world_size = facts->world_size.value,
        .timeout_ms = timeout_ms,
        .deadline = deadline,
        .one_machine = facts->local_world_size == facts->world_size.value,
        .serves = guessed ? launch->serves : facts->rank.value == 0,
        .warns = facts->local_rank <= 0,
        .hidden =
            may_hide && disti_host_is_hidden(by_url ? facts->url.host : launch->host, deadline)};
}

static dist_status rendezvous_schedule(const struct disti_facts *facts,
                                       const struct disti_meeting *meeting)
{
    dist_status status;

    if (!facts->launch.host[0])
        return rendezvous_no_way(facts, -1);
    status = disti_meet_schedule(meeting, facts->launch.host, facts->launch.port,
                                 facts->launch.agent_secret);
    if (status == DIST_ERR_SCHEDULER && facts->launch.agent_store)
        disti_last_call_note_served(facts->launch.local_world_size);
    if (status == DIST_ERR_PEER_LOST && facts->launch.agent_store) {
        disti_last_call_open(facts->launch.local_world_size);
        disti_last_call_note_loss();
    }
    return status;
}

/*
 * A launcher that is killed cannot end its ranks, which then would wait for each other until their
 * time limit.
 */
static void rendezvous_watch(const struct disti_launch *launch,
                             const struct disti_bootstrap *bootstrap)
{
    char name[DISTI_PROCESS_NAME], host[DISTI_HOST_SIZE], text[320];
    int fd, pid;

    if (!launch->mark || !bootstrap->store)
        return;
    fd = disti_launcher_process(launch->mark, &pid, name);
    if (fd < 0)
        return;
    disti_info("rank %d ends its calls when its launcher exits (%s, pid %d)", bootstrap->rank, name,
               pid);
    disti_host_name(host);
    snprintf(text, sizeof(text),
             "the launcher of rank %d (%s, host %s, pid %d) exited before the rank: start the job "
             "again, or set DIST_LAUNCHER_WATCH=0 if ranks may outlive their launcher",
             bootstrap->rank, name, host, pid);
    (void)disti_store_watch_process(bootstrap->store, fd, -1, pid, text);
}

static dist_status rendezvous_run(const struct dist_options *options, int timeout_ms,
                                  struct disti_bootstrap *bootstrap_p)
{
    static const struct dist_options defaults = DIST_OPTIONS_INIT;
    struct disti_bootstrap bootstrap = {0};
    struct disti_meeting meeting;
    struct disti_facts facts;
    int64_t deadline = disti_deadline_ms(timeout_ms);
    dist_status status = facts_gather(options ? options : &defaults, &facts);
    struct disti_launch *launch;

    /* Asks the launcher what it does not say unasked. Blocks until it answers. */
    if (status == DIST_OK && facts.launch.pmix && facts.launch.world_size < 0) {
        status = disti_launch_ask_pmix(&facts.launch, deadline);
        if (status == DIST_OK)
            facts_pick_all(&facts);
    }
    if (status == DIST_OK)
        status = facts_complete(&facts);
    if (status != DIST_OK)
        return status;
    /* Where the ranks meet through the launcher's PMIx, what has been guessed does not count. */
    launch = &facts.launch;
    facts.by_pmix = !facts.options->oob_all_gather && facts.url.kind == DISTI_URL_NONE &&
                    facts.rank.value == launch->rank &&
                    facts.world_size.value == launch->world_size &&
                    disti_launch_meets_by_pmix(launch, rendezvous_is_local(launch), deadline);
    if (facts.by_pmix)
        launch->host[0] = 0;
    meeting = rendezvous_plan(&facts, timeout_ms);
    if (facts_are_scheduler(&facts))
        return rendezvous_schedule(&facts, &meeting);
    bootstrap.rank = meeting.rank;
    bootstrap.world_size = meeting.world_size;
    bootstrap.local_rank = facts.local_rank;
    bootstrap.local_world_size = facts.local_world_size;
    bootstrap.launcher = facts.launch.launcher;
    bootstrap.join_by = meeting.deadline;
    if (meeting.world_size == 1)
        status = disti_random_id(bootstrap.job);
    else
        status = rendezvous_meet(&facts, &meeting, &bootstrap);
    if (status == DIST_OK) {
        /* The address for this rank's listeners: of the interface asked for, else the one that
         * reaches the store; that may be the loopback's where the store is, which its name hides.
         */
        bootstrap.hidden = meeting.hidden && !disti_env("DIST_SOCKET_IFNAME");
        if (disti_env("DIST_SOCKET_IFNAME") || bootstrap.hidden) {
            status = disti_primary_address(bootstrap.bind_host);
        } else {
            snprintf(bootstrap.bind_host, sizeof(bootstrap.bind_host), "%s",
                     bootstrap.store ? bootstrap.store->local_host : disti_loopback());
        }
    }
    if (status != DIST_OK) {
        if (bootstrap.store) /* the others are to hear why it comes no further */
            disti_store_report(bootstrap.store, NULL, status, dist_last_error());
        disti_bootstrap_close(&bootstrap, 0);
        return status;
    }
    if (bootstrap.store) {
        bootstrap.rank = bootstrap.store->rank;
        memcpy(bootstrap.job, bootstrap.store->holder.job, sizeof(bootstrap.job));
    }
    rendezvous_watch(&facts.launch, &bootstrap);
    disti_info("rank %d of %d (launcher: %s, job %s) listens on %s", bootstrap.rank,
               meeting.world_size, bootstrap.launcher, bootstrap.job, bootstrap.bind_host);
    *bootstrap_p = bootstrap;
    return DIST_OK;
}

dist_status disti_rendezvous(const struct dist_options *options, int timeout_ms,
                             struct disti_bootstrap *bootstrap_p)
{
    int64_t deadline = disti_deadline_ms(timeout_ms);
    dist_status status = rendezvous_run(options, timeout_ms, bootstrap_p);

    disti_pmix_close(deadline);
    return status;
}

bool disti_rendezvous_needs_mpi(const struct dist_options *options)
{
    struct disti_launch launch;
    struct disti_url url;
    bool agrees;

    if (options && options->oob_all_gather)
        return false;
    if (disti_url_parse(options ? options->init_method : NULL, &url) != DIST_OK)
        return false;
    if (url.kind != DISTI_URL_NONE)
        return url.kind == DISTI_URL_MPI;
    if (disti_launch_detect(&launch) != DIST_OK)
        return false;
    agrees = options && (options->rank < 0 || options->rank == launch.rank) &&
             (options->world_size < 0 || options->world_size == launch.world_size);
    return (strcmp(launch.launcher, "Open MPI") == 0 || strcmp(launch.launcher, "MPICH") == 0) &&
           launch.world_size > 1 && !launch.host[0] && !rendezvous_is_local(&launch) &&
           !(agrees &&
             disti_launch_meets_by_pmix(&launch, false, disti_deadline_ms(options->timeout_ms)));
}

bool disti_rendezvous_is_scheduler(const struct dist_options *options)
{
    struct disti_facts facts;

    return facts_gather(options, &facts) == DIST_OK && facts_are_scheduler(&facts);
}

dist_status disti_bootstrap_correct_host(struct disti_bootstrap *bootstrap)
{
    char seen[DISTI_HOST_SIZE];
    dist_status status;

    if (!bootstrap->hidden)
        return DIST_OK;
    status = disti_store_seen_host(bootstrap->store, seen);
    if (status != DIST_OK || !seen[0])
        return status;
    snprintf(bootstrap->bind_host, sizeof(bootstrap->bind_host), "%s", seen);
    disti_info("rank %d listens on %s, the address that other machines have connected to",
               bootstrap->rank, bootstrap->bind_host);
    return DIST_OK;
}

void disti_bootstrap_close(struct disti_bootstrap *bootstrap, int linger_ms)
{
    disti_store_close(bootstrap->store);
    disti_store_server_stop(bootstrap->server, linger_ms);
    bootstrap->store = NULL;
    bootstrap->server = NULL;
}

/* What launched this process, by its variables and by the processes above it. */

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

/* ---- MindSpore's variables ---- */

/* What MindSpore's variables say besides the numbers: role, place and time. ERR_INVALID_ARGUMENT
 * names the one that is wrong, or is not there. A scheduler of MindSpore itself may hold
 * MS_SCHED_PORT: our store, whoever holds it, takes the next. */
static dist_status launch_mindspore(struct disti_launch *launch)
{
    const char *host = disti_env("MS_SCHED_HOST"), *role = disti_env("MS_ROLE");
    int port = -1;
    dist_status status = disti_env_int("MS_SCHED_PORT", 1, 65534, -1, &port);

    if (status == DIST_OK)
        status = disti_env_seconds("MS_CLUSTER_TIMEOUT", -1, &launch->timeout_ms);
    if (status != DIST_OK)
        return status;
    if (launch->world_size < 0)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "MS_ROLE is %.40s, but MS_WORKER_NUM is not set: set it to the number of "
                          "workers, the same for the scheduler and all of them",
                          role);
    launch->scheduler = DISTI_SCHEDULER_POSSIBLE;
    if (role && strcmp(role, "MS_WORKER") == 0) {
        launch->scheduler = DISTI_SCHEDULER_EXPECTED;
    } else if (role && strcmp(role, "MS_SCHED") == 0) {
        launch->scheduler = DISTI_SCHEDULER_SELF;
        launch->rank = -1;
    } else if (role) {
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "MS_ROLE is %.40s: set it to MS_WORKER for the workers, and to MS_SCHED "
                          "for the scheduler",
                          role);
    }
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

/* The store's secret is stored in a file that no other user can read. */
static dist_status launch_secret(const char *path, char secret[128])
{
    int inherited;
    const int fd = disti_handed_open(DISTI_HANDED_SECRET, path, O_RDONLY, &inherited);
    const ssize_t got = fd >= 0 ? pread(fd, secret, 127, 0) : -1;
    const int error = got == 0 ? ENODATA : errno;
    const char *why = error == ESTALE ? "is another file in this PID namespace" : strerror(error);

    if (fd >= 0)
        close(fd);
    if (got > 0) {
        secret[got] = '\0';
        secret[strcspn(secret, "\n")] = '\0';
        return DIST_OK;
    }
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
                          "DIST_AGENT_STORE is \"%.100s\": distrun sets it to HOST:PORT and "
                          "dist_spawn sets it to 1: do not change it",
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
        const char *role = disti_env("MS_ROLE");
        const dist_status status = launch_agent_store(own, launch);

        if (status != DIST_OK || !role)
            return status;
        /* Of distrun --role mindspore who has no rank is the scheduler, which holds the store. */
        if (strcmp(role, "MS_SCHED") == 0 && launch->rank < 0)
            launch->scheduler = DISTI_SCHEDULER_SELF;
        return disti_env_seconds("MS_CLUSTER_TIMEOUT", -1, &launch->timeout_ms);
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
    unsigned hash = 5381;
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
        /* A port that all processes of the step work out alike from its name: 20000 to 29499. */
        for (const char *c = launch->job; *c; c++)
            hash = hash * 33 + (unsigned char)*c;
        if (!disti_env("MASTER_PORT"))
            launch->port = 20000 + (int)(hash % 9500);
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
        disti_warn("%s sets %s=%d, but %s=%s is set too (%s): using the value of %s",
                   chosen->launcher, chosen_name, value, other_name, text, other->launcher,
                   chosen->launcher);
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

dist_status disti_launch_detect(struct disti_launch *launch_p)
{
    struct disti_launch launch = launch_unknown;
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
                          "MASTER_ADDR is too long for a host name: set it to the name or address "
                          "of rank 0's machine");
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
