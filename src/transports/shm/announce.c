/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages that are announced, since nobody may want them yet, and sent when they are asked for. */
#include "base/log.h"
#include "transports/shm/state.h"

#include <stdlib.h>

#define ANNOUNCE_ROOM 64 /* answers that wait, at first */

/* ---- the sender's half ---- */

bool disti_shm_announce(struct shm_peer *peer, struct dist_request *request)
{
    dist_status status = DIST_IN_PROGRESS;
    uint32_t name;

    if (!disti_announced_add(&peer->announced, request, &name)) {
        status = disti_fail(DIST_ERR_NO_MEMORY, "shm: no memory to announce a message to rank %d",
                            peer->rank);
    } else if (!disti_shm_send_frame(peer, SHM_ANNOUNCED, &request->envelope, &name,
                                     sizeof(name))) {
        disti_announced_take(&peer->announced, name);
        return false;
    }
    disti_shm_pop(&peer->send_head);
    if (status != DIST_IN_PROGRESS)
        disti_shm_end(request, status);
    return true;
}

bool disti_shm_announce_answered(struct shm_peer *peer, uint32_t name, bool wanted)
{
    struct dist_request *request;

    if (name & SHM_NAME_LOAN)
        return wanted && disti_shm_loan_declined(peer, name & ~SHM_NAME_LOAN);
    request = disti_announced_take(&peer->announced, name);
    if (!request)
        return false;
    request->own[0] = wanted ? SHM_SEND_ASKED : SHM_SEND_UNASKED;
    request->own[1] = name;
    if (wanted)
        disti_shm_append(&peer->send_head, &peer->send_tail, request);
    else
        disti_shm_end(request, DIST_OK);
    return true;
}

void disti_shm_announce_fail(struct shm_peer *peer, dist_status status)
{
    struct dist_request *request;
    uint32_t cursor = 0;

    while ((request = disti_announced_take_next(&peer->announced, &cursor)))
        disti_shm_end(request, status);
}

/* ---- the receiver's half ---- */

static bool announce_put(struct shm_peer *peer, struct shm_answer answer)
{
    const struct dist_envelope nothing = {0};

    return disti_shm_send_frame(peer, answer.wanted ? SHM_WANTED : SHM_UNWANTED, &nothing,
                                &answer.name, sizeof(answer.name));
}

bool disti_shm_answers_flush(struct shm_peer *peer)
{
    struct shm_answers *answers = &peer->answers;

    while (answers->sent < answers->count && announce_put(peer, answers->entries[answers->sent]))
        answers->sent++;
    if (answers->sent < answers->count)
        return false;
    answers->sent = answers->count = 0;
    return true;
}

dist_status disti_shm_answer(struct shm_peer *peer, uint32_t name, bool wanted)
{
    struct shm_answers *answers = &peer->answers;
    const struct shm_answer answer = {.name = name, .wanted = wanted};

    if (!answers->count && announce_put(peer, answer))
        return DIST_OK;
    if (answers->count == answers->room) {
        size_t room = answers->room ? answers->room * 2 : ANNOUNCE_ROOM;
        struct shm_answer *entries = realloc(answers->entries, room * sizeof(*entries));

        if (!entries)
            return disti_fail(DIST_ERR_NO_MEMORY, "shm: no memory to ask rank %d for a message",
                              peer->rank);
        answers->entries = entries;
        answers->room = room;
    }
    answers->entries[answers->count++] = answer;
    return DIST_OK;
}

void disti_shm_announce_free(struct shm_peer *peer)
{
    disti_announced_clear(&peer->announced);
    free(peer->answers.entries);
    peer->answers = (struct shm_answers){0};
}
