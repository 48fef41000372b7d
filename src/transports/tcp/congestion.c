/* SPDX-License-Identifier: BSD-3-Clause */
/* Which congestion control a connection uses. */
#include "base/log.h"
#include "base/settings/config.h"
#include "transports/tcp/state.h"

#include <linux/tcp.h>
#include <stdio.h>
#include <string.h>

/* A peer nearer than this is on the same network, where nothing but the job competes. */
#define CONGESTION_NEAR_US 1000
/* Every kernel has it and grants it to everybody. */
#define CONGESTION_NEAR "reno"
/* Stands for the kernel's choice. */
#define CONGESTION_SYSTEM "system"

/*
 * bbr paces: it sends at the rate that it has measured, by a timer. Made for long lossy paths, on a
 * short fast one it gives half the rate or less of what sends as soon as its window allows. A
 * connection that has begun to pace goes on pacing: so each begins without, and is given back to
 * the system's choice if the peer turns out to be far.
 */
static bool congestion_paces(const char *name)
{
    return strncmp(name, "bbr", 3) == 0;
}

static bool congestion_set(int fd, const char *name)
{
    return setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, (socklen_t)strlen(name)) == 0;
}

/* By the shortest round trip so far: the kernels' alone, however late the programs answer. */
static bool congestion_near(int fd)
{
    struct tcp_info info = {0};
    socklen_t size = sizeof(info);

    return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 && info.tcpi_min_rtt > 0 &&
           info.tcpi_min_rtt < CONGESTION_NEAR_US;
}

/* Is one wanted by name, does the kernel grant it? It is tried on the listener. */
static dist_status congestion_named(struct tcp_state *state, const char *name)
{
    if (congestion_set(state->listeners[0], name)) {
        snprintf(state->congestion, sizeof(state->congestion), "%s", name);
        return DIST_OK;
    }
    return disti_fail_errno(
        DIST_ERR_INVALID_ARGUMENT,
        "DIST_TCP_CONGESTION is \"%.32s\", which this kernel refuses: give \"" CONGESTION_SYSTEM
        "\" or one of those in "
        "/proc/sys/net/ipv4/tcp_allowed_congestion_control",
        name);
}

dist_status disti_tcp_congestion_open(struct tcp_state *state)
{
    const char *name = disti_env("DIST_TCP_CONGESTION");
    socklen_t size = sizeof(state->paced) - 1;

    if (name && strcmp(name, CONGESTION_SYSTEM) == 0)
        return DIST_OK;
    if (name)
        return congestion_named(state, name);
    if (getsockopt(state->listeners[0], IPPROTO_TCP, TCP_CONGESTION, state->paced, &size) ||
        !congestion_paces(state->paced) || !congestion_set(state->listeners[0], CONGESTION_NEAR))
        state->paced[0] = '\0';
    else
        snprintf(state->congestion, sizeof(state->congestion), "%s", CONGESTION_NEAR);
    return DIST_OK;
}

void disti_tcp_congestion(const struct tcp_state *state, int fd)
{
    if (state->congestion[0])
        (void)congestion_set(fd, state->congestion);
}

void disti_tcp_congestion_choose(const struct tcp_state *state, int fd)
{
    if (state->paced[0] && !congestion_near(fd))
        (void)congestion_set(fd, state->paced);
}
