/* SPDX-License-Identifier: BSD-3-Clause */
/* The launcher's PMIx: what it says of the job, and what it carries from rank 0 to the others. */
#include "base/clock.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/settings/env.h"
#include "base/thread.h"
#include "rendezvous/meet.h"
#include "rendezvous/pmix_abi.h"
#include "store/client.h"
#include "store/server.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the library, opened at run time ---- */

#define PMIX_TEXT 512
#define PMIX_REASON 400

struct pmix_api {
#define PMIX_MEMBER(member, symbol, parameters) int(*member) parameters;
    DISTI_PMIX_CALLS(PMIX_MEMBER)
#undef PMIX_MEMBER
    const char *(*error_string)(int status);
    const char *(*version)(void);
    bool reopens; /* the process may call init again after finalize */
};

/*
 * Versions 3 and 4 keep what the server says of each rank in memory that a second PMIx_Init of the
 * process does not find again: it gets no local rank, and MPI_Init of Open MPI 4 fails.
 */
#define LIBRARY_REOPENS 5

DISTI_PROCESS_LOCK(library_lock);
static struct pmix_api library_api;
static bool library_loaded;

/* Its functions. NULL: all are there; else what is not. */
static const char *library_resolve(void *handle, struct pmix_api *api)
{
    void *symbol = dlsym(handle, DISTI_PMIX_SINCE_3);

    if (!symbol)
        return DISTI_PMIX_SINCE_3;
#define LIBRARY_RESOLVE(member, name, parameters)                                                  \
    symbol = dlsym(handle, name);                                                                  \
    if (!symbol)                                                                                   \
        return name;                                                                               \
    memcpy(&api->member, &symbol, sizeof(symbol));
    DISTI_PMIX_CALLS(LIBRARY_RESOLVE)
    LIBRARY_RESOLVE(error_string, "PMIx_Error_string", ())
    LIBRARY_RESOLVE(version, "PMIx_Get_version", ())
#undef LIBRARY_RESOLVE
    return NULL;
}

/* The library that the program has already, as MPI may have brought it; the launcher's own; any. */
static bool library_try(char reason[PMIX_REASON])
{
    static const char *const folders[] = {"lib", "lib64", "lib/openmpi"};
    const char *prefix = disti_env("PMIX_PREFIX"), *missing, *version;
    void *handle = dlopen(DISTI_PMIX_FILE, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    char path[1024];

    for (size_t i = 0; !handle && prefix && i < sizeof(folders) / sizeof(folders[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s/%s", prefix, folders[i], DISTI_PMIX_FILE);
        handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    if (!handle)
        handle = dlopen(DISTI_PMIX_FILE, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        snprintf(reason, PMIX_REASON, "the PMIx library was not found (%.250s)", dlerror());
        return false;
    }
    missing = library_resolve(handle, &library_api);
    if (missing) {
        snprintf(reason, PMIX_REASON, "%s has no function %s: it is older than PMIx 3",
                 DISTI_PMIX_FILE, missing);
        return false;
    }
    version = library_api.version(); /* such as "OpenPMIx 4.2.2 (PMIx Standard: 4.2, ...)" */
    library_api.reopens =
        strtol(version + strcspn(version, "0123456789"), NULL, 10) >= LIBRARY_REOPENS;
    return true;
}

/*
 * ---- asking, by a thread that may be left behind ----
 *
 * The functions that ask block until the deadline at most, whatever the server does, and on false
 * say why in reason. What it has not answered by then is still pending: until it is answered,
 * further questions wait for that, and then fail.
 */

#define PMIX_LOOK_MS 5 /* at most between two looks for an answer */

static const struct pmix_api *_Atomic pmix_api; /* NULL: not loaded */

/* Who this process is, as the server said, once it is connected, in the process of that number. */
static struct disti_pmix_proc pmix_self;
static _Atomic pid_t pmix_connected;

static _Atomic int pmix_waiting; /* threads that have a question to ask */

bool disti_pmix_is_offered(void)
{
    static const char *const servers[] = {"PMIX_SERVER_URI41", "PMIX_SERVER_URI4",
                                          "PMIX_SERVER_URI3", "PMIX_SERVER_URI21",
                                          "PMIX_SERVER_URI2"};
    bool server = false;

    for (size_t i = 0; i < sizeof(servers) / sizeof(servers[0]); i++)
        server = server || disti_env(servers[i]);
    return server && disti_env("PMIX_NAMESPACE") && disti_env("PMIX_RANK");
}

/* ---- questions ---- */

/* What the launcher says of this process; -1: it does not. Once it is open. */
struct pmix_job {
    int world_size, local_rank, local_world_size;
};

/* What is asked, in a thread of its own: so a server that does not answer keeps that, not us. */
struct pmix_question {
    int (*ask)(struct pmix_question *question); /* returns a status of PMIx */
    _Atomic int left;                           /* which of the two have done with it */
    int status, rank, number;
    struct pmix_job job;
    char text[PMIX_TEXT];
};

/* There is one at a time: two fences of one process could meet each other's. */
static atomic_flag pmix_asking = ATOMIC_FLAG_INIT;

static bool pmix_is_connected(void)
{
    return pmix_connected == getpid();
}

/* MPI may want PMIx later: Open MPI 4 with a library that cannot be begun again, which stays
 * connected; Open MPI 5 only if nobody is connected. */
static int pmix_hang_up(struct pmix_question *question)
{
    (void)question;
    if (!pmix_is_connected() || !pmix_api->reopens)
        return DISTI_PMIX_SUCCESS;
    pmix_connected = 0;
    return pmix_api->finalize(NULL, 0);
}

/* The second of asker and thread frees the question, and the next one may be asked. */
static void pmix_leave_question(struct pmix_question *question)
{
    if (atomic_fetch_add(&question->left, 1) == 0)
        return;
    free(question);
    atomic_flag_clear(&pmix_asking);
}

/* If the asker has given up, nobody else will end the connection. */
static void *pmix_answer(void *arg)
{
    struct pmix_question *question = arg;

    question->status = question->ask(question);
    if (atomic_load(&question->left) > 0 && pmix_waiting == 0)
        pmix_hang_up(question);
    pmix_leave_question(question);
    return NULL;
}

/* NULL, with the reason: it cannot be asked. */
static struct pmix_question *pmix_question_new(int (*ask)(struct pmix_question *), int64_t deadline,
                                               char *reason)
{
    struct pmix_question *question;
    int delay_ms = 1;
    bool taken;

    pmix_waiting++;
    while ((taken = atomic_flag_test_and_set(&pmix_asking)) && !disti_expired(deadline))
        disti_store_back_off(&delay_ms, PMIX_LOOK_MS, deadline);
    pmix_waiting--;
    if (taken) {
        snprintf(reason, PMIX_REASON, "the server has not answered the previous request yet");
        return NULL;
    }
    question = calloc(1, sizeof(*question));
    if (question) {
        question->ask = ask;
        return question;
    }
    snprintf(reason, PMIX_REASON, "out of memory");
    atomic_flag_clear(&pmix_asking);
    return NULL;
}

/* Asks and waits. True: the answer is there; the caller leaves the question in any case. */
static bool pmix_ask(struct pmix_question *question, int64_t deadline, char *reason)
{
    int delay_ms = 1;
    pthread_t thread;

    if (disti_thread_create(&thread, pmix_answer, question) != 0) {
        snprintf(reason, PMIX_REASON, "cannot start a thread");
        atomic_store(&question->left, 1);
        return false;
    }
    pthread_detach(thread);
    while (atomic_load(&question->left) == 0 && !disti_expired(deadline))
        disti_store_back_off(&delay_ms, PMIX_LOOK_MS, deadline);
    if (atomic_load(&question->left) == 0)
        snprintf(reason, PMIX_REASON, "no answer before the deadline");
    else if (question->status != DISTI_PMIX_SUCCESS)
        snprintf(reason, PMIX_REASON, "%s, status %d", pmix_api->error_string(question->status),
                 question->status);
    else
        return true;
    return false;
}

/* ---- what is asked ---- */

/* A forked child runs this too: the connection is not its own. */
static void pmix_disconnect(void)
{
    if (pmix_is_connected() && !atomic_flag_test_and_set(&pmix_asking))
        pmix_api->finalize(NULL, 0);
}

/*
 * Every question begins with this: another thread may have hung up. PMIx counts calls of init, and
 * wants as many of finalize. An answer that came too late for the asker counts, too.
 */
static int pmix_connect(struct pmix_question *question)
{
    static bool once; /* by pmix_asking */
    int status;

    (void)question;
    if (pmix_is_connected())
        return DISTI_PMIX_SUCCESS;
    status = pmix_api->init(&pmix_self, NULL, 0);
    if (status != DISTI_PMIX_SUCCESS)
        return status;
    pmix_connected = getpid();
    if (!once)
        once = atexit(pmix_disconnect) == 0;
    return status;
}

/*
 * Connects to the server, unless this process is connected. A forked child of a process that is
 * connected cannot.
 */
static bool pmix_open(int64_t deadline, char reason[PMIX_REASON])
{
    struct pmix_question *question;
    bool open, loaded;

    /* The library is opened once, and not closed again: threads of it may run. */
    pthread_mutex_lock(&library_lock);
    library_loaded = library_loaded || library_try(reason);
    loaded = library_loaded;
    pthread_mutex_unlock(&library_lock);
    pmix_api = loaded ? &library_api : NULL;
    if (!pmix_api || pmix_is_connected())
        return pmix_api;
    if (pmix_connected) {
        snprintf(reason, PMIX_REASON, "this process was forked from a connected process");
        return false;
    }
    question = pmix_question_new(pmix_connect, deadline, reason);
    if (!question)
        return false;
    open = pmix_ask(question, deadline, reason);
    pmix_leave_question(question);
    return open;
}

void disti_pmix_close(int64_t deadline)
{
    char reason[PMIX_REASON];
    struct pmix_question *question;

    if (!pmix_is_connected() || !pmix_api->reopens)
        return;
    question = pmix_question_new(pmix_hang_up, deadline, reason);
    if (question && !pmix_ask(question, deadline, reason))
        disti_info("cannot close the connection to the launcher's PMIx: %s", reason);
    if (question)
        pmix_leave_question(question);
}

/* A value as text or as number; false: it is not there, or something else. */
static bool pmix_get(const struct disti_pmix_proc *of, const char *key, char *text, int *number)
{
    struct disti_pmix_value *value = NULL;
    bool found = true;

    if (pmix_api->get(of, key, NULL, 0, &value) != DISTI_PMIX_SUCCESS || !value)
        return false;
    if (text && value->type == DISTI_PMIX_STRING && value->data.string)
        snprintf(text, PMIX_TEXT, "%s", value->data.string);
    else if (number && value->type == DISTI_PMIX_UINT32 && value->data.uint32 <= INT_MAX)
        *number = (int)value->data.uint32;
    else if (number && value->type == DISTI_PMIX_UINT16)
        *number = value->data.uint16;
    else
        found = false;
    if (value->type == DISTI_PMIX_STRING)
        free(value->data.string);
    free(value);
    return found;
}

static int pmix_get_job(struct pmix_question *question)
{
    struct pmix_job *job = &question->job;
    struct disti_pmix_proc all;
    int status = pmix_connect(question);

    if (status != DISTI_PMIX_SUCCESS)
        return status;
    all = pmix_self;
    all.rank = DISTI_PMIX_RANK_ALL;
    *job = (struct pmix_job){-1, -1, -1};
    pmix_get(&all, DISTI_PMIX_JOB_SIZE, NULL, &job->world_size);
    pmix_get(&all, DISTI_PMIX_LOCAL_SIZE, NULL, &job->local_world_size);
    pmix_get(&pmix_self, DISTI_PMIX_LOCAL_RANK, NULL, &job->local_rank);
    return DISTI_PMIX_SUCCESS;
}

/*
 * No time limit goes with the fence: servers of one job give up at different times, if at all, and
 * the next fence of those that did would meet this one of the others.
 */
static int pmix_carry(struct pmix_question *question)
{
    struct disti_pmix_value text = {.type = DISTI_PMIX_STRING};
    struct disti_pmix_info collect = {.key = DISTI_PMIX_COLLECT_DATA};
    struct disti_pmix_proc first;
    char key[32];
    int status = pmix_connect(question);

    snprintf(key, sizeof(key), "dist.meet.%d", question->number);
    text.data.string = question->text;
    collect.value.type = DISTI_PMIX_BOOL;
    collect.value.data.flag = true;
    first = pmix_self;
    first.rank = 0;
    if (question->rank == 0 && status == DISTI_PMIX_SUCCESS)
        status = pmix_api->put(DISTI_PMIX_GLOBAL, key, &text);
    if (question->rank == 0 && status == DISTI_PMIX_SUCCESS)
        status = pmix_api->commit();
    if (status == DISTI_PMIX_SUCCESS)
        status = pmix_api->fence(NULL, 0, &collect, 1);
    if (status == DISTI_PMIX_SUCCESS && question->rank != 0 &&
        !pmix_get(&first, key, question->text, NULL))
        question->text[0] = 0;
    return status;
}

/* Gives rank 0's text to all ranks of the job: all of them call this. Once it is open. */
static bool pmix_spread(int rank, char text[PMIX_TEXT], int64_t deadline, char reason[PMIX_REASON])
{
    static _Atomic int meetings; /* each has a key of its own: values once read are kept */
    struct pmix_question *question = pmix_question_new(pmix_carry, deadline, reason);
    bool answered;

    if (!question)
        return false;
    question->rank = rank;
    question->number = meetings++;
    memcpy(question->text, text, PMIX_TEXT);
    answered = pmix_ask(question, deadline, reason);
    if (answered)
        memcpy(text, question->text, PMIX_TEXT);
    pmix_leave_question(question);
    return answered;
}

/* ---- meeting: PMIx carries rank 0's address and the job's secret ---- */

bool disti_launch_meets_by_pmix(const struct disti_launch *launch, bool local, int64_t deadline)
{
    char reason[PMIX_REASON];

    if (!launch->pmix || launch->world_size < 2 || (launch->host[0] && !launch->guessed) ||
        (local && !launch->pmix_always))
        return false;
    if (pmix_open(deadline, reason) || disti_expired(deadline))
        return true;
    disti_log_from(__FILE__, launch->pmix_always ? DIST_LOG_WARN : DIST_LOG_INFO,
                   "the launcher's PMIx is not used: %s", reason);
    return false;
}

dist_status disti_launch_ask_pmix(struct disti_launch *launch, int64_t deadline)
{
    struct pmix_question *question = NULL;
    char reason[PMIX_REASON];
    bool answered = false;

    if (pmix_open(deadline, reason))
        question = pmix_question_new(pmix_get_job, deadline, reason);
    if (question) {
        answered = pmix_ask(question, deadline, reason);
        if (answered) {
            launch->world_size = question->job.world_size;
            launch->local_rank = question->job.local_rank;
            launch->local_world_size = question->job.local_world_size;
        }
        pmix_leave_question(question);
    }
    if (answered)
        return DIST_OK;
    return disti_fail(DIST_ERR_RENDEZVOUS,
                      "rank %d: cannot get the world size from the launcher's PMIx (%s): set "
                      "DIST_PMIX=0, and RANK and WORLD_SIZE for each process",
                      launch->rank, reason);
}

static dist_status pmix_read(const struct disti_meeting *meeting, const char *text,
                             struct disti_meet_address *address_p)
{
    int status, fields;

    _Static_assert(sizeof(address_p->host) == 68 && sizeof(address_p->word) == 128, "%67s, %127s");
    fields = sscanf(text, "%d %67s %d %127s", &status, address_p->host, &address_p->port,
                    address_p->word);
    if (fields == 4 && status == DIST_OK && address_p->port > 0 && address_p->port < 65536)
        return DIST_OK;
    if (fields == 1 && status < 0)
        return disti_fail(DIST_ERR_RENDEZVOUS,
                          "rank %d: rank 0 could not open a store (%s): see its own error",
                          meeting->rank, dist_status_string((dist_status)status));
    return disti_fail(DIST_ERR_RENDEZVOUS,
                      "rank %d got no address of rank 0 from the launcher's PMIx: use the same "
                      "version of libdist on all ranks, or set DIST_PMIX=0 on all ranks",
                      meeting->rank);
}

dist_status disti_meet_pmix(const struct disti_meeting *meeting, bool one_machine,
                            struct disti_bootstrap *bootstrap)
{
    struct disti_store_server *server = NULL;
    struct disti_meet_address address = {.port = 0};
    char text[PMIX_TEXT] = "", reason[PMIX_REASON], host[DISTI_HOST_SIZE];
    dist_status listens = DIST_OK, status;

    disti_info("rank %d meets the other ranks through the launcher's PMIx", meeting->rank);
    if (meeting->rank == 0) {
        /* Rank 0 listens. The text for the other ranks: where, or why not. */
        listens = disti_meet_listen(meeting, one_machine, host, &server);
        if (listens == DIST_OK)
            snprintf(text, sizeof(text), "0 %s %d %s", host, disti_store_server_port(server),
                     (const char *)server->secret.bytes);
        else
            snprintf(text, sizeof(text), "%d", (int)listens);
    }
    if (!pmix_spread(meeting->rank, text, meeting->deadline, reason)) {
        disti_store_server_stop(server, 0);
        /* The server also answers at once that ranks are missing: where a process of theirs has
         * ended. */
        if (disti_expired(meeting->deadline))
            return disti_fail(
                DIST_ERR_RENDEZVOUS,
                "rank %d waited at most %d ms for the other %d ranks to meet through the "
                "launcher's PMIx (%s): check that all of them call "
                "dist_init_process_group, or set MASTER_ADDR and MASTER_PORT",
                meeting->rank, meeting->timeout_ms, meeting->world_size - 1, reason);
        return disti_fail(
            DIST_ERR_RENDEZVOUS,
            "rank %d could not meet the other %d ranks through the launcher's PMIx (%s): check "
            "whether one of them has exited; if the launcher has run another program before, start "
            "each program with its own launcher, or set MASTER_ADDR and MASTER_PORT",
            meeting->rank, meeting->world_size - 1, reason);
    }
    if (listens != DIST_OK)
        return listens;
    status = pmix_read(meeting, text, &address);
    if (server)
        return disti_meet_serve(meeting, address.host, server, bootstrap);
    return status == DIST_OK ? disti_meet_connect_word(meeting, address.host, address.port,
                                                       address.word, bootstrap)
                             : status;
}
