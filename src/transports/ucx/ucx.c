/* SPDX-License-Identifier: BSD-3-Clause */
/* Transport ucx: opening, addresses, progress, sleeping and closing. */
#include "base/hash.h"
#include "base/settings/env.h"
#include "transports/ucx/state.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

/* What UCX chooses is known once it has connected; so much any network that is worth it gives. */
#define UCX_LATENCY_NS 3000
#define UCX_BANDWIDTH 5e9

/* In front of a worker's address; the sum finds what is no address, or not all of it. */
struct ucx_blob {
    char magic[4];
    uint32_t bytes;
    uint64_t sum;
};

static const char ucx_magic[4] = {'u', 'c', 'x', '2'};

/* ---- opening ---- */

static dist_status ucx_probe(char *reason, size_t reason_size)
{
    const char *tls = disti_env_raw("UCX_TLS"), *devices = disti_env_raw("UCX_NET_DEVICES");
    ucp_context_h context;
    ucs_status_t status = disti_ucx_context_take(2, 1, &context);

    if (status == UCS_OK) {
        disti_ucx_context_give();
        return DIST_OK;
    }
    snprintf(reason, reason_size,
             "UCX %s finds no device to use (%s); UCX_TLS is %s, UCX_NET_DEVICES is %s; `ucx_info "
             "-d` lists the devices",
             ucp_get_version_string(), ucs_status_string(status), tls ? tls : "not set",
             devices ? devices : "not set");
    return DIST_ERR_UNSUPPORTED;
}

/*
 * While a connection waits for its peer, UCX's descriptor stays readable with nothing to do. What
 * is slept on tells of news alone: each time that something happens to UCX's. Without one: poll.
 */
static void ucx_open_wakeup(struct ucx_state *ucx)
{
    struct epoll_event news = {.events = EPOLLIN | EPOLLET};
    int fd;

    if (ucp_worker_get_efd(ucx->worker, &fd) != UCS_OK)
        return;
    ucx->fd = epoll_create1(EPOLL_CLOEXEC);
    if (ucx->fd >= 0 && epoll_ctl(ucx->fd, EPOLL_CTL_ADD, fd, &news) != 0) {
        close(ucx->fd);
        ucx->fd = -1;
    }
}

/* A worker takes ten or so, and each connection one or two. */
#define UCX_DESCRIPTORS 64

/* UCX ends the process where it has no descriptor for what it has begun: it shall not begin. */
static bool ucx_has_descriptors(void)
{
    int spare[UCX_DESCRIPTORS], count = 0;

    while (count < UCX_DESCRIPTORS && (spare[count] = epoll_create1(EPOLL_CLOEXEC)) >= 0)
        count++;
    for (int i = 0; i < count; i++)
        close(spare[i]);
    return count == UCX_DESCRIPTORS;
}

static ucs_status_t ucx_open_worker(struct ucx_state *ucx)
{
    const ucp_worker_params_t params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                        .thread_mode = UCS_THREAD_MODE_SERIALIZED};
    ucs_status_t status = ucp_worker_create(ucx->context, &params, &ucx->worker);

    if (status != UCS_OK) {
        ucx->worker = NULL;
        return status;
    }
    ucx_open_wakeup(ucx);
    return disti_ucx_listen(ucx);
}

static dist_status ucx_open(void *state, const struct dist_transport_config *config)
{
    struct ucx_state *ucx = state;
    ucs_status_t status;

    ucx->host = config->host;
    ucx->rank = config->rank;
    ucx->ranks = config->world_size;
    ucx->process = getpid();
    ucx->copies = !disti_ucx_context_rdma();
    ucx->whole_bytes = ucx->copies ? UCX_WHOLE_BYTES : UCX_WHOLE_BYTES_RDMA;
    ucx->fd = -1;
    ucx->peers = calloc((size_t)ucx->ranks, sizeof(*ucx->peers));
    if (!ucx->peers)
        return ucx->host->fail(DIST_ERR_NO_MEMORY, "no memory for transport ucx");
    for (int r = 0; r < ucx->ranks; r++) {
        ucx->peers[r].ucx = ucx;
        ucx->peers[r].rank = r;
        ucx->peers[r].credit.limit = ucx->peers[r].debit.limit = UCX_CREDIT_BYTES;
        ucx->peers[r].match.rank = r;
        ucx->peers[r].match.set = &ucx->unexpected;
    }
    if (!ucx_has_descriptors())
        return errno == EPERM || errno == ENOSYS
                   ? ucx->host->fail(DIST_ERR_SYSTEM,
                                     "rank %d: the system call epoll_create1, which UCX needs, is "
                                     "denied here (%s): allow it in the container's seccomp filter",
                                     ucx->rank, strerror(errno))
                   : ucx->host->fail(
                         DIST_ERR_SYSTEM,
                         "rank %d: UCX needs up to %d file descriptors, but fewer are left: "
                         "raise the limit (ulimit -n), or close some",
                         ucx->rank, UCX_DESCRIPTORS);
    status = disti_ucx_context_take(config->world_size, config->local_ranks, &ucx->context);
    if (status == UCS_OK)
        status = ucx_open_worker(ucx);
    else
        ucx->context = NULL;
    if (status == UCS_OK)
        return DIST_OK;
    return ucx->host->fail(DIST_ERR_UNSUPPORTED,
                           "rank %d: UCX does not start: %s; set UCX_LOG_LEVEL=info to see why",
                           ucx->rank, ucs_status_string(status));
}

static dist_status ucx_copy_address(struct ucx_state *ucx, uint32_t flags, size_t room,
                                    unsigned char *address, size_t *bytes_p)
{
    ucp_worker_attr_t attributes = {.field_mask = UCP_WORKER_ATTR_FIELD_ADDRESS |
                                                  UCP_WORKER_ATTR_FIELD_ADDRESS_FLAGS,
                                    .address_flags = flags};
    ucs_status_t status = ucp_worker_query(ucx->worker, &attributes);

    if (status != UCS_OK)
        return ucx->host->fail(DIST_ERR_INTERNAL, "ucp_worker_query: %s",
                               ucs_status_string(status));
    *bytes_p = attributes.address_length;
    if (attributes.address_length <= room)
        memcpy(address, attributes.address, attributes.address_length);
    ucp_worker_release_address(ucx->worker, attributes.address);
    return DIST_OK;
}

/* Where the whole address is too long, shared memory is left out. */
static dist_status ucx_address(void *state, void *blob, size_t *size_p)
{
    struct ucx_state *ucx = state;
    struct ucx_blob head = {.bytes = 0};
    unsigned char *address = (unsigned char *)blob + sizeof(head);
    size_t room = DIST_ADDRESS_MAX - sizeof(head), bytes = 0;
    dist_status status = ucx_copy_address(ucx, 0, room, address, &bytes);

    if (status == DIST_OK && bytes > room)
        status = ucx_copy_address(ucx, UCP_WORKER_ADDRESS_FLAG_NET_ONLY, room, address, &bytes);
    if (status != DIST_OK)
        return status;
    if (bytes > room)
        return ucx->host->fail(
            DIST_ERR_UNSUPPORTED,
            "rank %d: UCX's address has %zu bytes, more than the %zu that fit: name fewer devices "
            "in UCX_NET_DEVICES, or fewer transports in UCX_TLS",
            ucx->rank, bytes, room);
    memcpy(head.magic, ucx_magic, sizeof(ucx_magic));
    head.bytes = (uint32_t)bytes;
    head.sum = disti_hash_bytes(DISTI_HASH_START, address, bytes);
    memcpy(blob, &head, sizeof(head));
    *size_p = sizeof(head) + bytes;
    return DIST_OK;
}

static dist_status ucx_reach(void *state, const void *blob, size_t size, struct dist_reach *reach_p)
{
    struct ucx_blob head;

    (void)state;
    if (size < sizeof(head))
        return DIST_ERR_UNSUPPORTED;
    memcpy(&head, blob, sizeof(head));
    if (memcmp(head.magic, ucx_magic, sizeof(ucx_magic)) != 0 ||
        head.bytes != size - sizeof(head) ||
        head.sum !=
            disti_hash_bytes(DISTI_HASH_START, (const char *)blob + sizeof(head), head.bytes))
        return DIST_ERR_UNSUPPORTED;
    *reach_p = (struct dist_reach){.latency_ns = UCX_LATENCY_NS, .bytes_per_second = UCX_BANDWIDTH};
    return DIST_OK;
}

static dist_status ucx_connect(void *state, int rank, const void *blob, size_t size)
{
    struct ucx_state *ucx = state;
    struct ucx_peer *peer = &ucx->peers[rank];
    size_t bytes = size - sizeof(struct ucx_blob);

    peer->address = malloc(bytes);
    if (!peer->address)
        return ucx->host->fail(DIST_ERR_NO_MEMORY, "no memory for the address of rank %d", rank);
    memcpy(peer->address, (const unsigned char *)blob + sizeof(struct ucx_blob), bytes);
    return DIST_OK;
}

/* ---- moving ---- */

static int ucx_progress(void *state)
{
    struct ucx_state *ucx = state;
    int moved = (int)ucp_worker_progress(ucx->worker);

    if (ucx->failures)
        disti_ucx_peers_reap(ucx);
    if (ucx->ready)
        disti_ucx_pulls_start(ucx);
    moved += ucx->happened;
    ucx->happened = 0;
    ucx->still = moved == 0;
    return ucx->broken < 0 ? ucx->broken : moved;
}

static int ucx_probe_tag(void *state, uint64_t tag)
{
    const struct ucx_state *ucx = state;

    return disti_match_probe(&ucx->unexpected, tag);
}

static void ucx_unexpected(void *state, uint64_t tag, uint64_t mask, int most,
                           dist_unexpected_fn see, void *arg)
{
    struct ucx_state *ucx = state;

    disti_match_show(&ucx->unexpected, &(struct disti_look){tag, mask, most, see, arg});
}

/*
 * UCX may leave in a socket what no news will come of, so it must have found nothing since the last
 * news; old news are looked into here. A piece that lacks scratch waits for another to end, of
 * which UCX tells.
 */
static int ucx_arm(void *state)
{
    struct ucx_state *ucx = state;
    struct epoll_event news;
    ucs_status_t status;

    if (ucx->fd < 0)
        return -1;
    if (epoll_wait(ucx->fd, &news, 1, 0) != 0 && ucx_progress(state) != 0)
        return -2;
    if (!ucx->still || ucx->happened || ucx->failures)
        return -2;
    status = ucp_worker_arm(ucx->worker);
    return status == UCS_OK ? ucx->fd : status == UCS_ERR_BUSY ? -2 : -1;
}

static void ucx_disarm(void *state)
{
    (void)state; /* progress does it */
}

static void ucx_describe(void *state, int peer, char *text, size_t size)
{
    static const char *const phases[] = {"not used yet", "in use", "lost", "lost"};
    const struct ucx_state *ucx = state;

    snprintf(text, size, "UCX %s, %s", ucp_get_version_string(), phases[ucx->peers[peer].phase]);
}

/* ---- closing ---- */

static void ucx_close_worker(struct ucx_state *ucx)
{
    ucx->closing = true;
    disti_ucx_pulls_drop(ucx);
    for (int r = 0; r < ucx->ranks; r++)
        disti_ucx_receive_drop(&ucx->peers[r]);
    disti_ucx_peers_leave(ucx);
    ucp_worker_destroy(ucx->worker);
    for (int r = 0; r < ucx->ranks; r++) {
        disti_ucx_sends_free(&ucx->peers[r]);
        disti_ucx_pieces_free(&ucx->peers[r]);
    }
    disti_ucx_heads_free(ucx);
    disti_standins_free(&ucx->standins);
}

static void ucx_close(void *state)
{
    struct ucx_state *ucx = state;

    /* What a fork has copied is the parent's: not a byte may go from here. */
    if (ucx->process == getpid()) {
        if (ucx->worker)
            ucx_close_worker(ucx);
        if (ucx->context)
            disti_ucx_context_give();
    }
    if (ucx->fd >= 0 && ucx->peers)
        close(ucx->fd);
    for (int r = 0; ucx->peers && r < ucx->ranks; r++)
        free(ucx->peers[r].address);
    free(ucx->peers);
    while (ucx->scratches_free)
        free(ucx->scratch_free[--ucx->scratches_free]);
    memset(ucx, 0, sizeof(*ucx));
}

const struct dist_transport disti_transport_ucx = {
    .abi = DIST_ABI,
    .size = sizeof(struct dist_transport),
    .name = "ucx",
    .summary = "UCX active messages, over the network that UCX chooses",
    .state_size = sizeof(struct ucx_state),
    .probe = ucx_probe,
    .open = ucx_open,
    .address = ucx_address,
    .reach = ucx_reach,
    .connect = ucx_connect,
    .send = disti_ucx_send,
    .recv = disti_ucx_recv,
    .progress = ucx_progress,
    .probe_tag = ucx_probe_tag,
    .arm = ucx_arm,
    .disarm = ucx_disarm,
    .close = ucx_close,
    .describe = ucx_describe,
    .unexpected = ucx_unexpected,
    .cancel = disti_ucx_cancel,
};
