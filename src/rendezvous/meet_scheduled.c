/* SPDX-License-Identifier: BSD-3-Clause */
/* Meeting in MindSpore's way: a scheduler holds the store and may hand out the ranks. */
#include "rendezvous/meet.h"

#include "base/clock.h"
#include "base/log.h"
#include "store/server/server.h"

#include <stdio.h>

#define SCHEDULED_LOOK_MS 200 /* at most between two looks */

/* Comes to the store there, time and again. IN_PROGRESS: the deadline has passed. */
static dist_status scheduled_seek(const struct disti_meeting *meeting, const char *host, int port,
                                  const struct disti_secret *secret, int64_t deadline,
                                  struct disti_store_tries *tries_p,
                                  struct disti_bootstrap *bootstrap)
{
    const struct disti_store_target target = {.host = host,
                                              .port = port,
                                              .rank = meeting->rank,
                                              .world_size = meeting->world_size,
                                              .secret = secret};
    int delay_ms = 5;
    dist_status status;

    do {
        status = disti_store_try(&target, deadline, tries_p, &bootstrap->store);
        if (status != DIST_IN_PROGRESS || disti_expired(deadline))
            return status;
        disti_store_back_off(&delay_ms, SCHEDULED_LOOK_MS, deadline);
    } while (true);
}

/* Comes as a client, until the meeting's deadline. */
static dist_status scheduled_join(const struct disti_meeting *meeting, const char *host, int port,
                                  const struct disti_secret *secret,
                                  struct disti_bootstrap *bootstrap)
{
    struct disti_store_tries tries = {0};
    dist_status status =
        scheduled_seek(meeting, host, port, secret, meeting->deadline, &tries, bootstrap);

    if (status != DIST_IN_PROGRESS)
        return status;
    return disti_fail(DIST_ERR_RENDEZVOUS,
                      "a worker found no store at %s port %d within %d ms (%s): start the program "
                      "on MS_SCHED_HOST once with MS_ROLE=MS_SCHED, or run the worker with "
                      "MS_NODE_ID=0 there",
                      host, port, meeting->timeout_ms, tries.text);
}

/* Holds the store as rank 0. */
static dist_status scheduled_serve(const struct disti_meeting *meeting, const char *host,
                                   struct disti_store_server *server,
                                   struct disti_bootstrap *bootstrap)
{
    struct disti_meeting first = *meeting;

    first.rank = 0;
    disti_store_server_set_holder(server, 0);
    return disti_meet_serve(&first, host, server, bootstrap);
}

/* Comes as a client if somebody holds the store already, or else holds it. */
static dist_status scheduled_first(const struct disti_meeting *meeting, const char *host, int port,
                                   const struct disti_secret *secret, int patience_ms,
                                   struct disti_bootstrap *bootstrap)
{
    int64_t patient_until = disti_deadline_ms(patience_ms);
    struct disti_store_tries tries = {0};
    struct disti_store_server *server;
    dist_status status;

    if (patient_until > meeting->deadline)
        patient_until = meeting->deadline;
    if (patience_ms > 0) {
        status = scheduled_seek(meeting, host, port, secret, patient_until, &tries, bootstrap);
        if (status != DIST_IN_PROGRESS)
            return status;
    }
    /* The port can be had once: by a scheduler, or by one of the workers. */
    if (disti_meet_listen_at(meeting, host, port, &server) != DIST_OK)
        return scheduled_join(meeting, host, port, secret, bootstrap);
    disti_store_server_set_secret(server, secret);
    return scheduled_serve(meeting, host, server, bootstrap);
}

dist_status disti_meet_scheduled(const struct disti_meeting *meeting, const char *host, int port,
                                 int patience_ms, struct disti_bootstrap *bootstrap)
{
    struct disti_secret secret;
    dist_status status = disti_meet_secret(meeting, host, &secret);

    if (status == DIST_OK && meeting->rank > 0)
        status = scheduled_join(meeting, host, port, &secret, bootstrap);
    else if (status == DIST_OK)
        status = scheduled_first(meeting, host, port, &secret, patience_ms, bootstrap);
    disti_secret_wipe(&secret);
    return status;
}

/* Does a store of libdist have that port? */
static bool scheduled_is_store(const struct disti_meeting *meeting, const char *host, int port)
{
    const struct disti_store_target target = {.host = host,
                                              .port = port,
                                              .rank = -1,
                                              .world_size = meeting->world_size,
                                              .doubtful = true,
                                              .probe = true};
    struct disti_store_tries tries = {0};
    struct disti_store *store = NULL;
    dist_status status = disti_store_try(&target, meeting->deadline, &tries, &store);

    disti_store_close(store);
    return status == DIST_IN_PROGRESS && !tries.stranger;
}

/* Rank 0, or another scheduler, was here before: the job is over when its port is free. */
static dist_status scheduled_outlast(const struct disti_meeting *meeting, const char *host,
                                     int port, dist_status in_use)
{
    struct disti_store_server *server;
    int delay_ms = 5;
    char text[1024];

    disti_text(text, sizeof(text), "%s", dist_last_error());
    if (!scheduled_is_store(meeting, host, port))
        return disti_fail(in_use, "%s", text);
    while (disti_meet_listen_at(meeting, host, port, &server) != DIST_OK)
        disti_store_back_off(&delay_ms, SCHEDULED_LOOK_MS, INT64_MAX);
    disti_store_server_stop(server, 0);
    return disti_fail(
        DIST_ERR_SCHEDULER,
        "this process was the scheduler (MS_ROLE=MS_SCHED) of a job of %d workers, and found the "
        "store held by rank 0, or by another scheduler (%s port %d): it cannot tell how the job "
        "ended. Start one scheduler, before the workers",
        meeting->world_size, host, port);
}

static dist_status scheduled_hold(const struct disti_meeting *meeting, const char *host, int port,
                                  const char *word)
{
    struct disti_store_server *server;
    struct disti_secret secret;
    dist_status status = DIST_OK;

    if (word[0])
        disti_secret_set_word(&secret, word);
    else
        status = disti_meet_secret(meeting, host, &secret);
    if (status != DIST_OK)
        return status;
    status = disti_meet_listen_at(meeting, host, port, &server);
    if (status == DIST_OK)
        disti_store_server_set_secret(server, &secret);
    disti_secret_wipe(&secret);
    if (status == DIST_ERR_ADDRESS_IN_USE && !word[0])
        return scheduled_outlast(meeting, host, port, status);
    return status == DIST_OK ? disti_store_server_schedule(server, meeting->timeout_ms) : status;
}

dist_status disti_meet_schedule(const struct disti_meeting *meeting, const char *host, int port,
                                const char *word)
{
    dist_status status = DIST_OK;

    if (meeting->world_size > 1) /* a world of one needs no store */
        status = scheduled_hold(meeting, host, port, word);
    if (status != DIST_OK)
        return status;
    return disti_fail(DIST_ERR_SCHEDULER,
                      "this process was the scheduler (MS_ROLE=MS_SCHED) of a job of %d workers, "
                      "which has ended well: it is no rank",
                      meeting->world_size);
}
