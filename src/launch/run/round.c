/* SPDX-License-Identifier: BSD-3-Clause */
/* The round of a single node. */
#include "launch/run/round.h"

#include "base/log.h"
#include "base/net/socket.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/*
 * A port that is free now, at all addresses: rank 0 may listen at any. It is not kept: a program
 * need not say that it shares addresses. The kernel gives free ports at random, so that two jobs
 * that start together hardly get the same.
 */
dist_status disti_run_free_port(int *port_p)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t size = sizeof(address);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || bind(fd, (struct sockaddr *)&address, size) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &size) != 0) {
        const dist_status status =
            disti_fail_errno(DIST_ERR_SYSTEM, "there is no free port: give one by --master-port");
        if (fd >= 0)
            close(fd);
        return status;
    }
    close(fd);
    *port_p = ntohs(address.sin_port);
    return DIST_OK;
}

/* As torch names a job that has no name: 8-4-4-4-12 hexadecimal digits. */
static dist_status round_name(char job[128])
{
    char digits[33];
    const dist_status status = disti_random_id(digits);

    if (status == DIST_OK)
        snprintf(job, 128, "%.8s-%.4s-%.4s-%.4s-%.12s", digits, digits + 8, digits + 12,
                 digits + 16, digits + 20);
    return status;
}

const char *disti_run_store_host(const struct disti_run_round *round)
{
    return round->nodes == 1 ? "127.0.0.1" : round->master_address;
}

int disti_run_processes(const struct disti_run_options *options,
                        const struct disti_run_round *round)
{
    return round->workers + (options->scheduler && round->node_rank == 0);
}

dist_status disti_run_round_local(const struct disti_run_options *options, int restarts,
                                  struct disti_run_round *round_p)
{
    const char *host = options->master_addr ? options->master_addr : "127.0.0.1";
    dist_status status = DIST_OK;

    round_p->restarts = round_p->attempt = restarts;
    round_p->node_rank = round_p->first_rank = 0;
    round_p->nodes = 1;
    round_p->workers = round_p->world_size = options->workers;
    round_p->processes = disti_run_processes(options, round_p);
    snprintf(round_p->master_address, sizeof(round_p->master_address), "%s", host);
    round_p->master_port = (int)options->master_port;
    round_p->store_port = 0;
    if (options->master_port < 0)
        status = disti_run_free_port(&round_p->master_port);
    if (status == DIST_OK && options->scheduler)
        status = disti_run_free_port(&round_p->store_port);
    if (options->rdzv_id)
        snprintf(round_p->job, sizeof(round_p->job), "%s", options->rdzv_id);
    else if (status == DIST_OK && !round_p->job[0])
        status = round_name(round_p->job);
    if (status == DIST_OK)
        status = disti_random_id(round_p->store_word);
    return status;
}
