/* SPDX-License-Identifier: BSD-3-Clause */
/* MindSpore's variables: who is the scheduler, and where its workers meet. */
#include "rendezvous/launchers/mindspore.h"

#include "base/log.h"
#include "base/net/socket.h"
#include "base/settings/config.h"

#include <stdio.h>
#include <string.h>

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

static dist_status mindspore_time(struct disti_launch *launch)
{
    return disti_env_seconds("MS_CLUSTER_TIMEOUT", -1, &launch->timeout_ms);
}

dist_status disti_launch_mindspore_agent(struct disti_launch *launch)
{
    const char *role = disti_env("MS_ROLE");

    if (!role)
        return DIST_OK;
    if (strcmp(role, "MS_SCHED") == 0 && launch->rank < 0)
        launch->scheduler = DISTI_SCHEDULER_SELF;
    return mindspore_time(launch);
}

/* A scheduler of MindSpore itself may hold MS_SCHED_PORT: our store, whoever holds it, takes the
 * next. */
dist_status disti_launch_mindspore(struct disti_launch *launch)
{
    const char *host = disti_env("MS_SCHED_HOST");
    int port = -1;
    dist_status status = disti_env_int("MS_SCHED_PORT", 1, 65534, -1, &port);

    if (status == DIST_OK)
        status = mindspore_time(launch);
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
