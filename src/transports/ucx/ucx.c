/* SPDX-License-Identifier: BSD-3-Clause */
/* Transport ucx: opening, addresses, progress, sleeping and closing. */
#include "base/hash.h"
#include "base/settings/env.h"
#include "transports/ucx/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

/* What UCX chooses is known once it has connected; so much any network that is worth it gives. */
#define LINK_LATENCY_NS 3000
#define LINK_BANDWIDTH 5e9

/* In front of a worker's address; the sum finds what is no address, or not all of it. */
struct link_blob {
    char magic[4];
    uint32_t bytes;
    uint64_t sum;
};

static const char link_magic[4] = {'u', 'c', 'x', '2'};

/* ---- opening ---- */

static dist_status link_probe(char *reason, size_t reason_size)
{
    const char *tls = disti_env_raw("UCX_TLS"), *devices = disti_env_raw("UCX_NET_DEVICES");
    ucp_context_h context;
    ucs_status_t status = disti_ucx_context_take(2, 1, &context);

    if (status == UCS_OK) {
        disti_ucx_context_give();
        return DIST_OK;
    }
    snprintf(
        reason, reason_size,
        "UCX %s finds nothing to use (%s); UCX_TLS is %s, UCX_NET_DEVICES is %s; see ucx_info -d",
        ucp_get_version_string(), ucs_status_string(status), tls ? tls : "not set",
        devices ? devices : "not set");
    return DIST_ERR_UNSUPPORTED;
}

/*
 * While a connection waits for its peer, UCX's descriptor stays readable with nothing to do. What
 * is slept on tells of news alone: each time that something happens to UCX's. Without one: poll.
 */
static void link_open_wakeup(struct ucx_link *link)
{
    struct epoll_event news = {.events = EPOLLIN | EPOLLET};
    int fd;

    if (ucp_worker_get_efd(link->worker, &fd) != UCS_OK)
        return;
    link->fd = epoll_create1(EPOLL_CLOEXEC);
    if (link->fd >= 0 && epoll_ctl(link->fd, EPOLL_CTL_ADD, fd, &news) != 0) {
        close(link->fd);
        link->fd = -1;
    }
}

/* A worker takes ten or so, and each connection one or two. */
#define LINK_DESCRIPTORS 64

/* UCX ends the process where it has no descriptor for what it has begun: it shall not begin. */
static bool link_has_descriptors(void)
{
    int spare[LINK_DESCRIPTORS], count = 0;

    while (count < LINK_DESCRIPTORS && (spare[count] = epoll_create1(EPOLL_CLOEXEC)) >= 0)
        count++;
    for (int i = 0; i < count; i++)
        close(spare[i]);
    return count == LINK_DESCRIPTORS;
}

static ucs_status_t link_open_worker(struct ucx_link *link)
{
    const ucp_worker_params_t params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                        .thread_mode = UCS_THREAD_MODE_SERIALIZED};
    ucs_status_t status = ucp_worker_create(link->context, &params, &link->worker);

    if (status != UCS_OK) {
        link->worker = NULL;
        return status;
    }
    link_open_wakeup(link);
    return disti_ucx_listen(link);
}

static dist_status link_open(void *state, const struct dist_transport_config *config)
{
    struct ucx_link *link = state;
    ucs_status_t status;

    link->host = config->host;
    link->rank = config->rank;
    link->ranks = config->world_size;
    link->process = getpid();
    link->whole_bytes = disti_ucx_context_rdma() ? UCX_WHOLE_BYTES_RDMA : UCX_WHOLE_BYTES;
    link->fd = -1;
    link->peers = calloc((size_t)link->ranks, sizeof(*link->peers));
    if (!link->peers)
        return link->host->fail(DIST_ERR_NO_MEMORY, "no memory for transport ucx");
    for (int r = 0; r < link->ranks; r++) {
        link->peers[r].link = link;
        link->peers[r].rank = r;
        link->peers[r].credit.limit = link->peers[r].debit.limit = UCX_CREDIT_BYTES;
        link->peers[r].match.unexpected_count = &link->unexpected_count;
    }
    if (!link_has_descriptors())
        return link->host->fail(DIST_ERR_SYSTEM,
                                "rank %d: UCX takes up to %d file descriptors, and fewer are "
                                "left: raise the limit (ulimit -n), or close some",
                                link->rank, LINK_DESCRIPTORS);
    status = disti_ucx_context_take(config->world_size, config->local_ranks, &link->context);
    if (status == UCS_OK)
        status = link_open_worker(link);
    else
        link->context = NULL;
    if (status == UCS_OK)
        return DIST_OK;
    return link->host->fail(DIST_ERR_UNSUPPORTED,
                            "rank %d: UCX does not start: %s; UCX_LOG_LEVEL=info says more",
                            link->rank, ucs_status_string(status));
}

static dist_status link_copy_address(struct ucx_link *link, uint32_t flags, size_t room,
                                     unsigned char *address, size_t *bytes_p)
{
    ucp_worker_attr_t attributes = {.field_mask = UCP_WORKER_ATTR_FIELD_ADDRESS |
                                                  UCP_WORKER_ATTR_FIELD_ADDRESS_FLAGS,
                                    .address_flags = flags};
    ucs_status_t status = ucp_worker_query(link->worker, &attributes);

    if (status != UCS_OK)
        return link->host->fail(DIST_ERR_INTERNAL, "ucp_worker_query: %s",
                                ucs_status_string(status));
    *bytes_p = attributes.address_length;
    if (attributes.address_length <= room)
        memcpy(address, attributes.address, attributes.address_length);
    ucp_worker_release_address(link->worker, attributes.address);
    return DIST_OK;
}

/* Where the whole address is too long, shared memory is left out. */
static dist_status link_address(void *state, void *blob, size_t *size_p)
{
    struct ucx_link *link = state;
    struct link_blob head = {.bytes = 0};
    unsigned char *address = (unsigned char *)blob + sizeof(head);
    size_t room = DIST_ADDRESS_MAX - sizeof(head), bytes = 0;
    dist_status status = link_copy_address(link, 0, room, address, &bytes);

    if (status == DIST_OK && bytes > room)
        status = link_copy_address(link, UCP_WORKER_ADDRESS_FLAG_NET_ONLY, room, address, &bytes);
    if (status != DIST_OK)
        return status;
    if (bytes > room)
        return link->host->fail(DIST_ERR_UNSUPPORTED,
                                "rank %d: UCX's address has %zu bytes, of which %zu can be told: "
                                "name fewer devices in UCX_NET_DEVICES, or fewer transports in "
                                "UCX_TLS",
                                link->rank, bytes, room);
    memcpy(head.magic, link_magic, sizeof(link_magic));
    head.bytes = (uint32_t)bytes;
    head.sum = disti_hash_bytes(DISTI_HASH_START, address, bytes);
    memcpy(blob, &head, sizeof(head));
    *size_p = sizeof(head) + bytes;
    return DIST_OK;
}

static dist_status link_reach(void *state, const void *blob, size_t size,
                              struct dist_reach *reach_p)
{
    struct link_blob head;

    (void)state;
    if (size < sizeof(head))
        return DIST_ERR_UNSUPPORTED;
    memcpy(&head, blob, sizeof(head));
    if (memcmp(head.magic, link_magic, sizeof(link_magic)) != 0 ||
        head.bytes != size - sizeof(head) ||
        head.sum !=
            disti_hash_bytes(DISTI_HASH_START, (const char *)blob + sizeof(head), head.bytes))
        return DIST_ERR_UNSUPPORTED;
    *reach_p =
        (struct dist_reach){.latency_ns = LINK_LATENCY_NS, .bytes_per_second = LINK_BANDWIDTH};
    return DIST_OK;
}

static dist_status link_connect(void *state, int rank, const void *blob, size_t size)
{
    struct ucx_link *link = state;
    struct ucx_peer *peer = &link->peers[rank];
    size_t bytes = size - sizeof(struct link_blob);

    peer->address = malloc(bytes);
    if (!peer->address)
        return link->host->fail(DIST_ERR_NO_MEMORY, "no memory for the address of rank %d", rank);
    memcpy(peer->address, (const unsigned char *)blob + sizeof(struct link_blob), bytes);
    return DIST_OK;
}

/* ---- moving ---- */

static int link_progress(void *state)
{
    struct ucx_link *link = state;
    int moved = (int)ucp_worker_progress(link->worker);

    if (link->failures)
        disti_ucx_peers_reap(link);
    if (link->ready)
        disti_ucx_pulls_start(link);
    moved += link->happened;
    link->happened = 0;
    link->still = moved == 0;
    return link->broken < 0 ? link->broken : moved;
}

static int link_probe_tag(void *state, uint64_t tag)
{
    const struct ucx_link *link = state;
    uint64_t oldest = UINT64_MAX;
    int found = -1;

    for (int r = 0; r < link->ranks; r++) {
        const struct disti_unexpected *unexpected = disti_match_waiting(&link->peers[r].match, tag);

        if (unexpected && unexpected->order < oldest) {
            oldest = unexpected->order;
            found = r;
        }
    }
    return found;
}

static void link_unexpected(void *state, uint64_t tag, uint64_t mask, int most,
                            dist_unexpected_fn see, void *arg)
{
    const struct ucx_link *link = state;
    const struct disti_look look = {tag, mask, most, see, arg};

    for (int r = 0; link->unexpected_count && r < link->ranks; r++)
        disti_match_show(&link->peers[r].match, r, &look);
}

/*
 * UCX may leave in a socket what no news will come of, so it must have found nothing since the last
 * news; old news are looked into here. A piece that lacks scratch waits for another to end, of
 * which UCX tells.
 */
static int link_arm(void *state)
{
    struct ucx_link *link = state;
    struct epoll_event news;
    ucs_status_t status;

    if (link->fd < 0)
        return -1;
    if (epoll_wait(link->fd, &news, 1, 0) != 0 && link_progress(state) != 0)
        return -2;
    if (!link->still || link->happened || link->failures)
        return -2;
    status = ucp_worker_arm(link->worker);
    return status == UCS_OK ? link->fd : status == UCS_ERR_BUSY ? -2 : -1;
}

static void link_disarm(void *state)
{
    (void)state; /* progress does it */
}

static void link_describe(void *state, int peer, char *text, size_t size)
{
    const struct ucx_link *link = state;

    snprintf(text, size, "UCX %s, %s", ucp_get_version_string(),
             link->peers[peer].lost       ? "lost"
             : link->peers[peer].endpoint ? "in use"
                                          : "not used yet");
}

/* ---- closing ---- */

static void link_close_worker(struct ucx_link *link)
{
    link->closing = true;
    disti_ucx_pulls_drop(link);
    for (int r = 0; r < link->ranks; r++)
        disti_ucx_receive_drop(&link->peers[r]);
    disti_ucx_peers_leave(link);
    ucp_worker_destroy(link->worker);
    for (int r = 0; r < link->ranks; r++) {
        disti_ucx_sends_free(&link->peers[r]);
        disti_ucx_pieces_free(&link->peers[r]);
    }
    disti_standins_free(&link->standins);
}

static void link_close(void *state)
{
    struct ucx_link *link = state;

    /* What a fork has copied is the parent's: not a byte may go from here. */
    if (link->process == getpid()) {
        if (link->worker)
            link_close_worker(link);
        if (link->context)
            disti_ucx_context_give();
    }
    if (link->fd >= 0 && link->peers)
        close(link->fd);
    for (int r = 0; link->peers && r < link->ranks; r++)
        free(link->peers[r].address);
    free(link->peers);
    while (link->scratches_free)
        free(link->scratch_free[--link->scratches_free]);
    memset(link, 0, sizeof(*link));
}

const struct dist_transport disti_transport_ucx = {
    .abi = DIST_ABI,
    .size = sizeof(struct dist_transport),
    .name = "ucx",
    .summary = "UCX active messages, over the network that UCX chooses",
    .state_size = sizeof(struct ucx_link),
    .probe = link_probe,
    .open = link_open,
    .address = link_address,
    .reach = link_reach,
    .connect = link_connect,
    .send = disti_ucx_send,
    .recv = disti_ucx_recv,
    .progress = link_progress,
    .probe_tag = link_probe_tag,
    .arm = link_arm,
    .disarm = link_disarm,
    .close = link_close,
    .describe = link_describe,
    .unexpected = link_unexpected,
    .cancel = disti_ucx_cancel,
};
