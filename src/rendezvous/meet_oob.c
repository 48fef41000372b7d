/* SPDX-License-Identifier: BSD-3-Clause */
/* Meeting by an all-gather that the program brings. */
#include "rendezvous/meet.h"

#include "base/checked.h"
#include "base/log.h"
#include "store/server/server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* First: where is everybody? */
struct oob_machine {
    char id[DISTI_HOST_SIZE];
};

/* Then: where is the store? Only rank 0's counts. */
struct oob_answer {
    int32_t status; /* rank 0's, if it could not listen */
    struct disti_meet_address store;
};

/* The program's all-gather, into memory that is the caller's to free. */
static dist_status oob_gather(const struct disti_meeting *meeting, dist_oob_all_gather_fn gather,
                              void *arg, const void *in, size_t bytes, void **all_p)
{
    size_t total;
    void *all;
    int error;

    all = disti_mul(bytes, (size_t)meeting->world_size, &total) ? calloc(1, total) : NULL;
    if (!all)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory to gather from %d ranks: free some",
                          meeting->world_size);
    error = gather(arg, in, all, bytes);
    if (error) {
        free(all);
        return disti_fail(DIST_ERR_RENDEZVOUS,
                          "rank %d: the program's oob_all_gather returned %d: it must return 0 "
                          "once all ranks have exchanged their bytes",
                          meeting->rank, error);
    }
    *all_p = all;
    return DIST_OK;
}

/* Are all ranks where this one is? */
static dist_status oob_one_machine(const struct disti_meeting *meeting,
                                   dist_oob_all_gather_fn gather, void *arg, bool *one_p)
{
    struct oob_machine mine = {0}, *all;
    void *memory;
    dist_status status;

    disti_machine_id(mine.id);
    status = oob_gather(meeting, gather, arg, &mine, sizeof(mine), &memory);
    if (status != DIST_OK)
        return status;
    all = memory;
    *one_p = true;
    for (int r = 0; r < meeting->world_size; r++)
        *one_p = *one_p && memcmp(&all[r], &mine, sizeof(mine)) == 0;
    free(memory);
    return DIST_OK;
}

/* Rank 0 listens; whether it could, and where, is in *answer for all to know. */
static struct disti_store_server *oob_listen(const struct disti_meeting *meeting, bool one_machine,
                                             struct oob_answer *answer)
{
    struct disti_store_server *server = NULL;
    dist_status status = DIST_OK;

    snprintf(answer->store.host, sizeof(answer->store.host), "%s", disti_loopback());
    if (!one_machine)
        status = disti_primary_address(answer->store.host);
    if (status == DIST_OK)
        status = disti_meet_listen(meeting, answer->store.host, &server);
    answer->status = status;
    if (status != DIST_OK)
        return NULL;
    answer->store.port = disti_store_server_port(server);
    snprintf(answer->store.word, sizeof(answer->store.word), "%s", disti_store_server_word(server));
    return server;
}

dist_status disti_meet_oob(const struct disti_meeting *meeting, dist_oob_all_gather_fn gather,
                           void *arg, struct disti_bootstrap *bootstrap)
{
    struct disti_store_server *server = NULL;
    struct oob_answer answer = {0};
    void *answers = NULL;
    bool one_machine;
    dist_status status = oob_one_machine(meeting, gather, arg, &one_machine);

    if (status == DIST_OK && meeting->rank == 0)
        server = oob_listen(meeting, one_machine, &answer);
    if (status == DIST_OK)
        status = oob_gather(meeting, gather, arg, &answer, sizeof(answer), &answers);
    if (status != DIST_OK)
        goto out;
    memcpy(&answer, answers, sizeof(answer));
    answer.store.host[sizeof(answer.store.host) - 1] =
        answer.store.word[sizeof(answer.store.word) - 1] = 0;
    if (answer.status != DIST_OK) {
        status = meeting->rank == 0
                     ? (dist_status)answer.status
                     : disti_fail(DIST_ERR_RENDEZVOUS,
                                  "rank %d: rank 0 could not open a store (%s): see its own error",
                                  meeting->rank, dist_status_string((dist_status)answer.status));
        goto out;
    }
    if (server) {
        status = disti_meet_serve(meeting, answer.store.host, server, bootstrap);
        server = NULL;
    } else {
        status = disti_meet_connect_word(meeting, answer.store.host, answer.store.port,
                                         answer.store.word, bootstrap);
    }
out:
    free(answers);
    disti_store_server_stop(server, 0);
    return status;
}
