/* SPDX-License-Identifier: BSD-3-Clause */
/* Meeting by host and port, and what all ways to meet share. */
#include "rendezvous/meet.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/settings/config.h"
#include "store/server/server.h"

#include <stdio.h>
#include <string.h>

dist_status disti_meet_listen(const struct disti_meeting *meeting, const char *host,
                              struct disti_store_server **server_p)
{
    struct disti_store_server *server;
    char word[33];
    dist_status status = disti_random_id(word);

    if (status == DIST_OK)
        status =
            disti_store_server_listen(host, 0, meeting->world_size, meeting->deadline, &server);
    if (status != DIST_OK)
        return status;
    disti_store_server_set_holder(server, meeting->rank);
    disti_store_server_set_word(server, word);
    *server_p = server;
    return DIST_OK;
}

dist_status disti_meet_connect(const struct disti_meeting *meeting, const char *host, int port,
                               const struct disti_secret *secret, struct disti_bootstrap *bootstrap)
{
    struct disti_store_target target = {.host = host,
                                        .port = port,
                                        .rank = meeting->rank,
                                        .world_size = meeting->world_size,
                                        .secret = secret,
                                        .one_machine = meeting->one_machine,
                                        .warns = meeting->warns};

    return disti_store_reach(&target, meeting->timeout_ms, meeting->deadline, &bootstrap->store);
}

dist_status disti_meet_connect_word(const struct disti_meeting *meeting, const char *host, int port,
                                    const char *word, struct disti_bootstrap *bootstrap)
{
    struct disti_secret secret;
    dist_status status;

    disti_secret_set_word(&secret, word);
    status = disti_meet_connect(meeting, host, port, &secret, bootstrap);
    disti_secret_wipe(&secret);
    return status;
}

dist_status disti_meet_seek(const struct disti_meeting *meeting, disti_meet_locate_fn locate,
                            const char *name, int most_ms, struct disti_store_tries *tries_p,
                            struct disti_bootstrap *bootstrap)
{
    struct disti_meet_address address = {.port = 0};
    struct disti_secret secret = {0};
    struct disti_store_target target = {.host = address.host,
                                        .rank = meeting->rank,
                                        .world_size = meeting->world_size,
                                        .secret = &secret,
                                        .doubtful = true};
    int64_t warn_at = disti_store_warn_at(meeting->deadline);
    int delay_ms = 2;
    dist_status status;

    for (;;) {
        status = locate(name, &address);
        target.port = address.port;
        disti_secret_set_word(&secret, address.word);
        if (status == DIST_OK)
            status = disti_store_try(&target, meeting->deadline, tries_p, &bootstrap->store);
        if (status != DIST_IN_PROGRESS || disti_expired(meeting->deadline))
            return status;
        if (meeting->warns && disti_expired(warn_at)) {
            warn_at = INT64_MAX;
            disti_notice(
                "rank %d still waits for rank 0 to announce its store by %s (%s), and gives "
                "up in %.1f s: see whether rank 0 runs, or has reported an error",
                meeting->rank, name, tries_p->text, disti_left_ms(meeting->deadline) / 1e3);
        }
        disti_store_back_off(&delay_ms, most_ms, meeting->deadline);
    }
}

dist_status disti_meet_serve(const struct disti_meeting *meeting, const char *host,
                             struct disti_store_server *server, struct disti_bootstrap *bootstrap)
{
    struct disti_secret secret = server->secret;
    dist_status status = disti_store_server_run(server);

    if (status == DIST_OK)
        status =
            disti_meet_connect(meeting, host, disti_store_server_port(server), &secret, bootstrap);
    disti_secret_wipe(&secret);
    if (status == DIST_OK)
        bootstrap->server = server;
    else
        disti_store_server_stop(server, 0);
    return status;
}

/*
 * Where the name says nothing of use: at every address, or at that of the interface that was asked
 * for. Ranks of this machine come by the loopback, where the name leads them.
 */
static dist_status tcp_listen_hidden(const struct disti_meeting *meeting, const char *host,
                                     int port, struct disti_store_server **server_p)
{
    char only[DISTI_HOST_SIZE] = "";
    dist_status status = DIST_OK;

    if (disti_env("DIST_SOCKET_IFNAME"))
        status = disti_primary_address(only);
    if (status == DIST_OK)
        status =
            disti_store_server_listen(NULL, port, meeting->world_size, meeting->deadline, server_p);
    if (status != DIST_OK)
        return status;
    disti_store_server_set_only(*server_p, only);
    disti_info(
        "\"%s\" is the loopback address on this machine (/etc/hosts): the store also listens on %s "
        "port %d for other machines. Set MASTER_ADDR to an address to choose another",
        host, only[0] ? only : "every address,", port);
    return DIST_OK;
}

dist_status disti_meet_listen_at(const struct disti_meeting *meeting, const char *host, int port,
                                 struct disti_store_server **server_p)
{
    return meeting->hidden ? tcp_listen_hidden(meeting, host, port, server_p)
                           : disti_store_server_listen(host, port, meeting->world_size,
                                                       meeting->deadline, server_p);
}

dist_status disti_meet_tcp(const struct disti_meeting *meeting, const char *host, int port,
                           const char *served, struct disti_bootstrap *bootstrap)
{
    struct disti_store_server *server;
    struct disti_secret secret;
    dist_status status;

    if (served)
        return disti_meet_connect_word(meeting, host, port, served, bootstrap);
    status = disti_meet_secret(meeting, host, &secret);
    if (status != DIST_OK)
        return status;
    if (!meeting->serves) {
        status = disti_meet_connect(meeting, host, port, &secret, bootstrap);
    } else if ((status = disti_meet_listen_at(meeting, host, port, &server)) == DIST_OK) {
        disti_store_server_set_holder(server, meeting->rank);
        disti_store_server_set_secret(server, &secret);
        status = disti_meet_serve(meeting, host, server, bootstrap);
    }
    disti_secret_wipe(&secret);
    return status;
}
