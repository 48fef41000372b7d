/* SPDX-License-Identifier: BSD-3-Clause */
/* Meeting on one machine by the name of the job. */
#include "rendezvous/meet.h"

#include "base/clock.h"
#include "base/log.h"
#include "rendezvous/discovery.h"
#include "store/server/server.h"

#include <stdio.h>

#define LOCAL_TAKEN_MS 5000 /* for an earlier group of this job to end */

static dist_status local_open(const struct disti_meeting *meeting, const char *job, int *fd_p)
{
    int64_t taken_by = disti_deadline_ms(LOCAL_TAKEN_MS);
    int delay_ms = 2;
    dist_status status;

    for (;;) {
        status = disti_discovery_open(job, fd_p);
        if (status != DIST_IN_PROGRESS)
            return status;
        if (disti_expired(taken_by) || disti_expired(meeting->deadline))
            return disti_fail(
                DIST_ERR_ADDRESS_IN_USE,
                "rank 0 cannot listen for the ranks of job %s: another process has "
                "the Unix socket of that name: set MASTER_ADDR and MASTER_PORT instead",
                job);
        disti_store_back_off(&delay_ms, 50, meeting->deadline);
    }
}

static dist_status local_serve(const struct disti_meeting *meeting, const char *job,
                               struct disti_bootstrap *bootstrap)
{
    const char *host = disti_loopback();
    struct disti_store_server *server;
    int discovery;
    dist_status status = disti_meet_listen(meeting, host, &server);

    if (status != DIST_OK)
        return status;
    status = local_open(meeting, job, &discovery);
    if (status != DIST_OK) {
        disti_store_server_stop(server, 0);
        return status;
    }
    disti_store_server_set_discovery(server, discovery);
    return disti_meet_serve(meeting, host, server, bootstrap);
}

static dist_status local_ask(const char *job, struct disti_meet_address *address_p)
{
    snprintf(address_p->host, sizeof(address_p->host), "%s", disti_loopback());
    return disti_discovery_ask(job, &address_p->port, address_p->word);
}

dist_status disti_meet_local(const struct disti_meeting *meeting, const char *job,
                             struct disti_bootstrap *bootstrap)
{
    struct disti_store_tries tries = {.text = "nobody listens"};
    dist_status status;

    if (meeting->rank == 0)
        return local_serve(meeting, job, bootstrap);
    /* Asked anew each time: behind the discovery may still be the last group's store. */
    status = disti_meet_seek(meeting, local_ask, job, 50, &tries, bootstrap);
    if (status != DIST_IN_PROGRESS)
        return status;
    return disti_fail(DIST_ERR_RENDEZVOUS,
                      "rank %d waited %d ms for rank 0 of job %s on this machine (%s): "
                      "check that rank 0 runs and calls dist_init_process_group",
                      meeting->rank, meeting->timeout_ms, job, tries.text);
}
