/* SPDX-License-Identifier: BSD-3-Clause */
/* The course of a round: successes, failures, losses, and what follows from them. */
#include "launch/agents/server.h"

#include "base/clock.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define CAUSE_MS 1000 /* for the cause of what is called a consequence */

static int64_t course_time_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void course_tell_failure(struct agents_server *server, uint8_t op)
{
    unsigned char value[AGENTS_FAILURE_BYTES];

    disti_agents_put_failure(value, &server->failure);
    for (struct agents_peer *p = server->peers; p; p = p->next) {
        bool concerned =
            agents_is_member(p) && (op == AGENTS_GIVEN_UP || p->state != AGENTS_PEER_READY);

        if (concerned)
            disti_agents_link_send(&p->link, op, value, sizeof(value));
    }
}

/* True if the remaining workers go on after this failure: with --on-failure continue, unless the
 * process that holds the store has failed (node 0's agent, or the scheduler), or it is final. */
static bool course_goes_on(const struct agents_server *server,
                           const struct disti_agents_failure *failure)
{
    if (!server->config->goes_on || failure->is_final)
        return false;
    return failure->cause == DISTI_AGENTS_WORKER_FAILED
               ? failure->rank >= 0
               : failure->cause == DISTI_AGENTS_NODE_LOST && failure->node_rank != 0;
}

/* The round ends: another one, unless the restarts are used up, or workers went on and succeeded.
 */
static void course_decide(struct agents_server *server)
{
    bool is_failure = server->failure.cause != DISTI_AGENTS_NODE_JOINS;

    if (is_failure &&
        (server->failure.is_final || server->restarts >= server->config->max_restarts ||
         (course_goes_on(server, &server->failure) && server->succeeded))) {
        server->phase = AGENTS_OVER;
        course_tell_failure(server, AGENTS_GIVEN_UP);
        return;
    }
    server->restarts += is_failure;
    server->round++;
    disti_agents_meeting_begin(server);
    course_tell_failure(server, AGENTS_RESTART);
    for (struct agents_peer *p = server->peers; p; p = p->next) {
        if (p->state == AGENTS_PEER_RUNNING || p->state == AGENTS_PEER_DONE)
            p->state = AGENTS_PEER_STOPPING;
    }
}

/* True if the failure replaces the recorded one: because that is a consequence, or because this one
 * ends the round and that one does not. */
static bool course_replaces(const struct agents_server *server,
                            const struct disti_agents_failure *failure)
{
    const bool first_goes_on = course_goes_on(server, &server->failure);

    if (first_goes_on != course_goes_on(server, failure))
        return first_goes_on;
    return server->failure.is_consequence && !failure->is_consequence;
}

/* The first failure of a round counts, unless it was a consequence of one that comes soon. */
static void course_fail(struct agents_server *server, const struct disti_agents_failure *failure)
{
    char text[DISTI_AGENTS_TEXT];

    if (server->phase != AGENTS_RUNNING)
        return;
    if (course_goes_on(server, failure)) {
        disti_agents_describe(failure, text, sizeof(text));
        disti_agents_note(server, "%s; the other workers go on", text);
    }
    if (server->decide_ns && !course_replaces(server, failure))
        return;
    server->failure = *failure;
    server->decide_ns = disti_deadline_ms(failure->is_consequence ? CAUSE_MS : 0);
}

void disti_agents_course_look(struct agents_server *server, int64_t *when_p)
{
    if (server->phase != AGENTS_RUNNING || !server->decide_ns)
        return;
    if (course_goes_on(server, &server->failure) &&
        disti_agents_count(server, AGENTS_PEER_RUNNING) > 0)
        return;
    if (disti_expired(server->decide_ns))
        course_decide(server);
    else
        agents_sooner(when_p, server->decide_ns);
}

void disti_agents_course_joined(struct agents_server *server, struct agents_peer *peer)
{
    int running = disti_agents_count(server, AGENTS_PEER_RUNNING);
    struct disti_agents_failure join = {.cause = DISTI_AGENTS_NODE_JOINS,
                                        .node_rank = -1,
                                        .rank = -1,
                                        .local_rank = -1,
                                        .pid = -1,
                                        .time_ms = course_time_ms()};

    if (server->phase != AGENTS_RUNNING)
        return;
    memcpy(join.host, peer->member.host, sizeof(join.host));
    if (server->config->join_now && running < server->config->max_nodes &&
        !disti_agents_count(server, AGENTS_PEER_DONE) && !server->decide_ns)
        course_fail(server, &join);
    else
        disti_agents_note(server, "the node %s (%.64s) waits to join, until the next restart",
                          peer->member.host, peer->member.address);
}

static void course_finish(struct agents_server *server)
{
    if (server->phase != AGENTS_RUNNING || server->decide_ns ||
        disti_agents_count(server, AGENTS_PEER_RUNNING) ||
        !disti_agents_count(server, AGENTS_PEER_DONE))
        return;
    server->phase = AGENTS_OVER;
    disti_agents_tell_all(server, AGENTS_FINISHED, NULL, 0);
}

void disti_agents_course_ended(struct agents_server *server, struct agents_peer *peer,
                               bool succeeded)
{
    peer->state = AGENTS_PEER_DONE;
    server->succeeded = server->succeeded || succeeded;
    course_finish(server);
}

void disti_agents_course_failed(struct agents_server *server, struct agents_peer *peer,
                                struct disti_agents_failure *failure)
{
    if (peer->state != AGENTS_PEER_RUNNING)
        return;
    failure->cause = DISTI_AGENTS_WORKER_FAILED;
    failure->node_rank = peer->node_rank;
    memcpy(failure->host, peer->member.host, sizeof(failure->host));
    course_fail(server, failure);
}

/* Whose workers have succeeded may go; whose have not takes the round along. */
void disti_agents_course_lost(struct agents_server *server, const struct agents_peer *peer,
                              enum agents_peer_state was, const char *why)
{
    struct disti_agents_failure loss = {.cause = DISTI_AGENTS_NODE_LOST,
                                        .node_rank = peer->node_rank,
                                        .rank = -1,
                                        .local_rank = -1,
                                        .pid = (int)peer->member.pid,
                                        .time_ms = course_time_ms()};

    if (server->phase == AGENTS_OVER)
        return;
    memcpy(loss.host, peer->member.host, sizeof(loss.host));
    snprintf(loss.text, sizeof(loss.text), "%s", why);
    if (was == AGENTS_PEER_RUNNING)
        course_fail(server, &loss);
    else
        disti_agents_note(server, "the node %s (%.64s) is gone: %.512s", peer->member.host,
                          peer->member.address, why);
}
