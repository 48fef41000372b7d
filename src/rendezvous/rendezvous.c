/* SPDX-License-Identifier: BSD-3-Clause */
/* Puts together what program, init method and launcher say of rank and world size. */
#include "rendezvous/rendezvous.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/net.h"
#include "base/settings/config.h"
#include "rendezvous/meet.h"
#include "store/client.h"
#include "store/store.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

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
        disti_warn("%s is %d (%s), but the launcher (%s) says %d: using %d", what, number->value,
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
    facts->launch = disti_launch_unknown;
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

/* What the launcher says when it is asked, where it does not say it unasked. Blocks until then. */
static dist_status facts_ask_launcher(struct disti_facts *facts, int64_t deadline)
{
    struct disti_launch *launch = &facts->launch;
    dist_status status;

    if (!launch->pmix || launch->world_size >= 0)
        return DIST_OK;
    status = disti_launch_ask_pmix(launch, deadline);
    if (status == DIST_OK)
        facts_pick_all(facts);
    return status;
}

static dist_status facts_missing(const struct disti_facts *facts)
{
    if (facts->rank.value < 0 && facts->world_size.value < 0)
        return disti_fail(DIST_ERR_RENDEZVOUS,
                          "neither rank nor world size is known: set RANK and WORLD_SIZE for each "
                          "process, give both to dist_init_process_group, or use a launcher such "
                          "as mpirun");
    if (facts->rank.value < 0)
        return disti_fail(DIST_ERR_RENDEZVOUS,
                          "the world size is %d (%s), but this process's rank is not known: set "
                          "RANK to 0 to %d, a different one for each process",
                          facts->world_size.value, facts->world_size.from,
                          facts->world_size.value - 1);
    return disti_fail(DIST_ERR_RENDEZVOUS,
                      "this is rank %d (%s), but the world size is not known: set WORLD_SIZE to "
                      "the number of processes",
                      facts->rank.value, facts->rank.from);
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
    if (facts->world_size.value < 0 || (facts->rank.value < 0 && !facts_are_scheduled(facts)))
        return facts_missing(facts);
    if (facts->world_size.value == 0)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "the world size is 0 (%s): give the number of processes, 1 or more",
                          facts->world_size.from);
    if (facts->rank.value >= facts->world_size.value)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "rank %d (%s) is out of range: the world size is %d (%s), so ranks are 0 "
                          "to %d",
                          facts->rank.value, facts->rank.from, facts->world_size.value,
                          facts->world_size.from, facts->world_size.value - 1);
    if (facts->local_rank >= facts->world_size.value)
        return disti_fail(
            DIST_ERR_INVALID_ARGUMENT,
            "local rank %d is out of range: the world size is %d (%s), so set LOCAL_RANK to less",
            facts->local_rank, facts->world_size.value, facts->world_size.from);
    return DIST_OK;
}

/* ---- init methods: env://, tcp://HOST:PORT, file:///PATH, mpi:// ---- */

static dist_status url_bad(const char *text, const char *why)
{
    return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                      "the init method \"%.200s\" %s: give env://, tcp://HOST:PORT, "
                      "file:///PATH or mpi://",
                      text, why);
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

static const struct url_scheme {
    const char *prefix;
    enum disti_url_kind kind;
} url_schemes[] = {
    {"env://", DISTI_URL_ENV},
    {"tcp://", DISTI_URL_TCP},
    {"file://", DISTI_URL_FILE},
    {"mpi://", DISTI_URL_MPI},
};

dist_status disti_url_parse(const char *text, struct disti_url *url_p)
{
    struct disti_url url = {.kind = DISTI_URL_NONE, .port = -1, .rank = -1, .world_size = -1};
    const struct url_scheme *scheme = NULL;
    const char *body, *query;
    size_t length;
    dist_status status = DIST_OK;

    if (!text || !text[0]) {
        *url_p = url;
        return DIST_OK;
    }
    for (size_t i = 0; !scheme && i < sizeof(url_schemes) / sizeof(url_schemes[0]); i++) {
        if (strncmp(text, url_schemes[i].prefix, strlen(url_schemes[i].prefix)) == 0)
            scheme = &url_schemes[i];
    }
    if (!scheme)
        return url_bad(text, "has an unknown scheme");
    url.kind = scheme->kind;
    body = text + strlen(scheme->prefix);
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

/* Do the ranks meet through the launcher's PMIx? What has been guessed does not count then. */
static void rendezvous_try_pmix(struct disti_facts *facts, int64_t deadline)
{
    struct disti_launch *launch = &facts->launch;

    facts->by_pmix = !facts->options->oob_all_gather && facts->url.kind == DISTI_URL_NONE &&
                     facts->rank.value == launch->rank &&
                     facts->world_size.value == launch->world_size &&
                     disti_launch_meets_by_pmix(launch, rendezvous_is_local(launch), deadline);
    if (facts->by_pmix)
        launch->host[0] = 0;
}

static dist_status rendezvous_no_way(const struct disti_facts *facts, int rank)
{
    if (facts->url.kind == DISTI_URL_MPI)
        return disti_fail(DIST_ERR_RENDEZVOUS,
                          "rank %d: mpi:// works only with a backend that uses MPI: choose backend "
                          "mpi, or give env://, tcp:// or file://",
                          rank);
    if (facts_are_scheduled(facts))
        return disti_fail(
            DIST_ERR_RENDEZVOUS,
            "MS_SCHED_HOST is not set: set it to the address of the machine where the "
            "scheduler runs, or rank 0 if there is none (127.0.0.1 if all run on this "
            "one), and MS_SCHED_PORT to a free port there, the same for all");
    return disti_fail(DIST_ERR_RENDEZVOUS,
                      "rank %d does not know where to meet the others: MASTER_ADDR is not set. Set "
                      "MASTER_ADDR to the address of the machine where rank 0 runs (127.0.0.1 if "
                      "all ranks run on this one), and MASTER_PORT to a free port there (default "
                      "%d), the same for all ranks",
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

/* Is this the machine of the store, and known to others by an address that its name hides here? */
static bool rendezvous_is_hidden(const struct disti_facts *facts, int64_t deadline)
{
    const struct disti_launch *launch = &facts->launch;
    bool by_url = facts->url.kind == DISTI_URL_TCP;

    if (facts->options->oob_all_gather || facts->url.kind == DISTI_URL_FILE ||
        facts->url.kind == DISTI_URL_MPI || facts->world_size.value == 1 ||
        (launch->world_size > 0 && launch->local_world_size == launch->world_size))
        return false;
    return disti_host_is_hidden(by_url ? facts->url.host : launch->host, deadline);
}

/* The address for this rank's listeners: of the interface asked for, else the one that reaches
 * the store; that may be the loopback's where the store is, which its name hides. */
static dist_status rendezvous_bind_host(const struct disti_meeting *meeting,
                                        struct disti_bootstrap *bootstrap)
{
    bootstrap->hidden = meeting->hidden && !disti_env("DIST_SOCKET_IFNAME");
    if (disti_env("DIST_SOCKET_IFNAME") || bootstrap->hidden)
        return disti_primary_address(bootstrap->bind_host);
    snprintf(bootstrap->bind_host, sizeof(bootstrap->bind_host), "%s",
             bootstrap->store ? bootstrap->store->local_host : disti_loopback());
    return DIST_OK;
}

/* The launcher may say how long all have to come; a caller in a hurry does not wait for that. */
static struct disti_meeting rendezvous_plan(const struct disti_facts *facts, int timeout_ms)
{
    const struct disti_launch *launch = &facts->launch;
    const bool guessed = launch->guessed && facts->url.kind <= DISTI_URL_ENV &&
                         facts->rank.value == launch->rank &&
                         facts->world_size.value == launch->world_size;
    bool hurry = timeout_ms < facts->options->timeout_ms;
    int64_t deadline;

    if (launch->timeout_ms > 0 && !hurry)
        timeout_ms = launch->timeout_ms;
    deadline = disti_deadline_ms(timeout_ms);
    return (struct disti_meeting){.rank = facts->rank.value,
                                  .world_size = facts->world_size.value,
                                  .timeout_ms = timeout_ms,
                                  .deadline = deadline,
                                  .one_machine = facts->local_world_size == facts->world_size.value,
                                  .serves = guessed ? launch->serves : facts->rank.value == 0,
                                  .warns = facts->local_rank <= 0,
                                  .hidden = rendezvous_is_hidden(facts, deadline)};
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
    disti_info("rank %d ends its calls when its launcher does (%s, pid %d)", bootstrap->rank, name,
               pid);
    disti_host_name(host);
    snprintf(text, sizeof(text),
             "the launcher of rank %d (%s, host %s, pid %d) has ended before it: start the job "
             "again, or set DIST_LAUNCHER_WATCH=0 if ranks are to outlive it",
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

    if (status == DIST_OK)
        status = facts_ask_launcher(&facts, deadline);
    if (status == DIST_OK)
        status = facts_complete(&facts);
    if (status != DIST_OK)
        return status;
    rendezvous_try_pmix(&facts, deadline);
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
    if (status == DIST_OK)
        status = rendezvous_bind_host(&meeting, &bootstrap);
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
    disti_info("rank %d listens on %s, which other machines reached", bootstrap->rank,
               bootstrap->bind_host);
    return DIST_OK;
}

void disti_bootstrap_close(struct disti_bootstrap *bootstrap, int linger_ms)
{
    disti_store_close(bootstrap->store);
    disti_store_server_stop(bootstrap->server, linger_ms);
    bootstrap->store = NULL;
    bootstrap->server = NULL;
}
