/* SPDX-License-Identifier: BSD-3-Clause */
/* Meeting through the launcher's PMIx: rank 0's address and the job's secret go that way. */
#include "rendezvous/meet.h"

#include "base/clock.h"
#include "base/log.h"
#include "rendezvous/pmix/pmix.h"
#include "store/server/server.h"

#include <stdio.h>
#include <string.h>

bool disti_launch_meets_by_pmix(const struct disti_launch *launch, bool local, int64_t deadline)
{
    char reason[DISTI_PMIX_REASON];

    if (!launch->pmix || launch->world_size < 2 || (launch->host[0] && !launch->guessed) ||
        (local && !launch->pmix_always))
        return false;
    if (disti_pmix_open(deadline, reason) || disti_expired(deadline))
        return true;
    disti_log_from(__FILE__, launch->pmix_always ? DIST_LOG_WARN : DIST_LOG_INFO,
                   "the launcher's PMIx is not used: %s", reason);
    return false;
}

dist_status disti_launch_ask_pmix(struct disti_launch *launch, int64_t deadline)
{
    struct disti_pmix_job job;
    char reason[DISTI_PMIX_REASON];

    if (!disti_pmix_open(deadline, reason) || !disti_pmix_ask_job(deadline, &job, reason))
        return disti_fail(
            DIST_ERR_RENDEZVOUS,
            "rank %d: the launcher's PMIx, which would know the world size, cannot be "
            "asked (%s): set DIST_PMIX=0, and RANK and WORLD_SIZE for each process",
            launch->rank, reason);
    launch->world_size = job.world_size;
    launch->local_rank = job.local_rank;
    launch->local_world_size = job.local_world_size;
    return DIST_OK;
}

/* Rank 0 listens. The text for the others: where, or why not. */
static dist_status pmix_listen(const struct disti_meeting *meeting, bool one_machine,
                               char text[DISTI_PMIX_TEXT], struct disti_store_server **server_p)
{
    char host[DISTI_HOST_SIZE];
    dist_status status = DIST_OK;

    snprintf(host, sizeof(host), "%s", disti_loopback());
    if (!one_machine)
        status = disti_primary_address(host);
    if (status == DIST_OK)
        status = disti_meet_listen(meeting, host, server_p);
    if (status == DIST_OK)
        snprintf(text, DISTI_PMIX_TEXT, "0 %s %d %s", host, disti_store_server_port(*server_p),
                 disti_store_server_word(*server_p));
    else
        snprintf(text, DISTI_PMIX_TEXT, "%d", (int)status);
    return status;
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
                      "rank %d got no address of rank 0 from the launcher's PMIx: have all ranks "
                      "use the same libdist, or set DIST_PMIX=0 for all",
                      meeting->rank);
}

/* The server also answers at once that ranks are missing: where a process of theirs has ended. */
static dist_status pmix_fail_to_meet(const struct disti_meeting *meeting, const char *reason)
{
    if (disti_expired(meeting->deadline))
        return disti_fail(DIST_ERR_RENDEZVOUS,
                          "rank %d waited at most %d ms for the other %d ranks to meet through the "
                          "launcher's PMIx (%s): check that all of them call "
                          "dist_init_process_group, or set MASTER_ADDR and MASTER_PORT",
                          meeting->rank, meeting->timeout_ms, meeting->world_size - 1, reason);
    return disti_fail(DIST_ERR_RENDEZVOUS,
                      "rank %d could not meet the other %d ranks through the launcher's PMIx (%s): "
                      "check whether one of them has ended; if it has run another program before, "
                      "start each by a launcher of its own, or set MASTER_ADDR and MASTER_PORT",
                      meeting->rank, meeting->world_size - 1, reason);
}

dist_status disti_meet_pmix(const struct disti_meeting *meeting, bool one_machine,
                            struct disti_bootstrap *bootstrap)
{
    struct disti_store_server *server = NULL;
    struct disti_meet_address address = {.port = 0};
    char text[DISTI_PMIX_TEXT] = "", reason[DISTI_PMIX_REASON];
    dist_status listens = DIST_OK, status;

    disti_info("rank %d meets the others through the launcher's PMIx", meeting->rank);
    if (meeting->rank == 0)
        listens = pmix_listen(meeting, one_machine, text, &server);
    if (!disti_pmix_spread(meeting->rank, text, meeting->deadline, reason)) {
        disti_store_server_stop(server, 0);
        return pmix_fail_to_meet(meeting, reason);
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
