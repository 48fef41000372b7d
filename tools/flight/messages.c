/* SPDX-License-Identifier: BSD-3-Clause */
/* What the records of two ranks say together of a send or a receive that has not ended. */
#include "flight.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* So many of a group are told at most: they are the oldest. */
#define MESSAGES_MOST 16

/* Nothing older has been written over. */
static bool messages_whole(const struct flight_rank *rank)
{
    return rank->message_count == 0 || rank->messages[0].sequence == 0;
}

/* Sends, or receives, with that peer and tag, older than `before`. A receive from any rank may be
 * from this one. */
static int messages_count(const struct flight_rank *rank, bool sends, int peer, int64_t tag,
                          int64_t before)
{
    int count = 0;

    for (int i = 0; i < rank->message_count && rank->messages[i].sequence < before; i++) {
        const struct flight_message *other = &rank->messages[i];

        count += other->sends == sends && other->tag == tag &&
                 (other->peer == peer || (!sends && other->peer < 0));
    }
    return count;
}

/* Messages with one peer and tag meet in their order: has the peer made what this one waits for? */
static bool messages_met(const struct flight_group *group, int rank,
                         const struct flight_message *message)
{
    const struct flight_rank *peer = &group->ranks[message->peer];

    return messages_count(peer, !message->sends, rank, message->tag, INT64_MAX) >
           messages_count(&group->ranks[rank], message->sends, message->peer, message->tag,
                          message->sequence);
}

/* "; rank 0 (host a, pid 7) has not called that send", if its record tells. */
static void messages_say_peer(const struct flight_group *group, int rank,
                              const struct flight_message *message)
{
    const struct flight_rank *peer = &group->ranks[message->peer];
    const char *call = message->sends ? "recv" : "send";
    char who[160];

    flight_say_rank(group, message->peer, who, sizeof(who));
    if (!peer->here)
        printf("; no file is of rank %d", message->peer);
    else if (!messages_whole(peer) || !messages_whole(&group->ranks[rank]))
        printf("; the records begin too late to tell whether %s has called that %s (DIST_FLIGHT)",
               who, call);
    else if (messages_met(group, rank, message))
        printf("; %s has called that %s", who, call);
    else
        printf("; %s never called that %s", who, call);
}

/* "rank 2 (host a, pid 9) waits in recv from rank 0, tag 7 (float32 x 8); ..." */
static void messages_say(const struct flight_group *group, int rank,
                         const struct flight_message *message)
{
    const bool failed =
        strcmp(message->state, "failed") == 0 || strcmp(message->state, "refused") == 0;
    char who[160], peer[24] = "any rank";

    if (message->peer >= 0)
        snprintf(peer, sizeof(peer), "rank %d", message->peer);
    flight_say_rank(group, rank, who, sizeof(who));
    printf("%s %s in %s %s, tag %" PRId64 " (%s)", who, failed ? "failed" : "waits",
           message->sends ? "send to" : "recv from", peer, message->tag, message->what);
    if (message->peer >= 0)
        messages_say_peer(group, rank, message);
    printf("\n");
}

void flight_say_messages(const struct flight_group *group)
{
    int said = 0, left = 0;

    for (int r = 0; r < group->size; r++) {
        const struct flight_rank *rank = &group->ranks[r];

        for (int i = 0; i < rank->message_count; i++) {
            if (!rank->messages[i].pending)
                continue;
            if (said < MESSAGES_MOST)
                messages_say(group, r, &rank->messages[i]);
            said++;
        }
    }
    left = said - MESSAGES_MOST;
    if (left > 0)
        printf("%d more sends and receives have not ended\n", left);
}
