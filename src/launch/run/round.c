/* SPDX-License-Identifier: BSD-3-Clause */
/* The round of a single node. */
#include "launch/run/round.h"

#include "base/log.h"
#include "base/net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

/* Below those that Linux takes by itself for connections that go out. */
enum { ROUND_PORT_FIRST = 10000, ROUND_PORTS = 10000, ROUND_TRIES = 20 };

/* Port 0: any. At all addresses. */
static bool round_is_free(int port, int *port_p)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    socklen_t size = sizeof(address);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool is_free = fd >= 0 && bind(fd, (struct sockaddr *)&address, size) == 0 &&
                         getsockname(fd, (struct sockaddr *)&address, &size) == 0;
    const int error = errno;

    if (fd >= 0)
        close(fd);
    errno = error;
    if (is_free)
        *port_p = ntohs(address.sin_port);
    return is_free;
}

/*
 * Rank 0 may listen at any address. The port is not kept: a program need not say that it shares
 * addresses. So that nobody gets it before, which on a busy machine is seconds, it is none of those
 * that a connection of another program may get, and at random, so that two jobs which start
 * together hardly have the same.
 */
dist_status disti_run_free_port(int *port_p)
{
    unsigned number;

    for (int tries = 0; tries < ROUND_TRIES; tries++) {
        if (getrandom(&number, sizeof(number), GRND_NONBLOCK) == (ssize_t)sizeof(number) &&
            round_is_free(ROUND_PORT_FIRST + (int)(number % ROUND_PORTS), port_p))
            return DIST_OK;
    }
    if (round_is_free(0, port_p))
        return DIST_OK;
    return disti_fail_errno(DIST_ERR_SYSTEM, "there is no free port: give one by --master-port");
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
    return round->nodes == 1 ? disti_loopback() : round->master_address;
}

int disti_run_processes(const struct disti_run_options *options,
                        const struct disti_run_round *round)
{
    return round->workers + (options->scheduler && round->node_rank == 0);
}

dist_status disti_run_round_local(const struct disti_run_options *options, int restarts,
                                  struct disti_run_round *round_p)
{
    const char *host = options->master_addr ? options->master_addr : disti_loopback();
    dist_status status = DIST_OK;

    round_p->restarts = round_p->attempt = restarts;
    round_p->node_rank = round_p->first_rank = 0;
    round_p->nodes = 1;
    round_p->workers = round_p->world_size = options->workers;
    round_p->processes = disti_run_processes(options, round_p);
    snprintf(round_p->master_address, sizeof(round_p->master_address), "%s", host);
    disti_host_normalize(round_p->master_address);
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
