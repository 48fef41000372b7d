/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Transport ucx: the process's UCX context, endpoints, and the functions of struct dist_transport.
 */
#include "base/clock.h"
#include "base/hash.h"
#include "base/settings/env.h"
#include "transports/ucx/state.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

/*
 * Some of UCX's transports, such as shared memory, do not report the exit of a peer. UCX then
 * detects it only by a check every 20 s. A rank that waits should not wait that long, so this
 * module sets a shorter interval.
 */
#define CONTEXT_KEEPALIVE "250ms"

/*
 * UCX 1.13 aborts the process ("comp->count > 0") when a peer exits during a zero-copy send over
 * TCP, and UCX's own rendezvous is slower over TCP than copying. So without RDMA, UCX copies all
 * payload and sends it eagerly.
 */
#define CONTEXT_RDMA_DEVICES "/sys/class/infiniband"

/* UCX settings of this module, each used only if the user has not set the variable. */
static const struct {
    const char *variable, *name, *value;
    bool without_rdma; /* only without RDMA */
} context_defaults[] = {
    {"UCX_KEEPALIVE_INTERVAL", "KEEPALIVE_INTERVAL", CONTEXT_KEEPALIVE, false},
    {"UCX_ZCOPY_THRESH", "ZCOPY_THRESH", "inf", true},
    {"UCX_RNDV_THRESH", "RNDV_THRESH", "inf", true},
};

static pthread_mutex_t context_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t context_once = PTHREAD_ONCE_INIT;
static ucp_context_h context_shared;
static unsigned context_users;

/* Called in a forked child, which must not use the parent's context. */
static void context_forked(void)
{
    pthread_mutex_init(&context_lock, NULL);
    context_shared = NULL;
    context_users = 0;
}

static void context_watch_forks(void)
{
    pthread_atfork(NULL, NULL, context_forked);
}

/* Returns true if the host has an RDMA device. */
static bool ucx_context_rdma(void)
{
    DIR *devices = opendir(CONTEXT_RDMA_DEVICES);
    struct dirent *entry = NULL;

    while (devices && (entry = readdir(devices)) && entry->d_name[0] == '.')
        continue;
    if (devices)
        closedir(devices);
    return entry != NULL;
}

static ucs_status_t context_make(int ranks, int local_ranks)
{
    const ucp_params_t params = {
        .field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED |
                      UCP_PARAM_FIELD_ESTIMATED_NUM_EPS | UCP_PARAM_FIELD_ESTIMATED_NUM_PPN |
                      UCP_PARAM_FIELD_NAME,
        .features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP,
        .mt_workers_shared = 1,
        .estimated_num_eps = (size_t)ranks,
        .estimated_num_ppn = (size_t)local_ranks,
        .name = "libdist",
    };
    bool rdma = ucx_context_rdma();
    ucp_config_t *config;
    ucs_status_t status = ucp_config_read(NULL, NULL, &config);

    if (status != UCS_OK)
        return status;
    for (size_t i = 0; i < sizeof(context_defaults) / sizeof(context_defaults[0]); i++) {
        if (status == UCS_OK && !disti_env_raw(context_defaults[i].variable) &&
            !(rdma && context_defaults[i].without_rdma))
            status = ucp_config_modify(config, context_defaults[i].name, context_defaults[i].value);
    }
    if (status == UCS_OK)
        status = ucp_init(&params, config, &context_shared);
    ucp_config_release(config);
    return status;
}

/*
 * Returns the process's context in *context_p and takes a reference to it; the first reference
 * creates it. `ranks` and `local_ranks` are hints about the number of endpoints. A forked child
 * creates its own context.
 */
static ucs_status_t ucx_context_acquire(int ranks, int local_ranks, ucp_context_h *context_p)
{
    ucs_status_t status = UCS_OK;

    pthread_once(&context_once, context_watch_forks);
    pthread_mutex_lock(&context_lock);
    if (!context_users)
        status = context_make(ranks, local_ranks);
    if (status == UCS_OK) {
        context_users++;
        *context_p = context_shared;
    }
    pthread_mutex_unlock(&context_lock);
    return status;
}

static void ucx_context_release(void)
{
    pthread_mutex_lock(&context_lock);
    if (context_users && --context_users == 0) {
        ucp_cleanup(context_shared);
        context_shared = NULL;
    }
    pthread_mutex_unlock(&context_lock);
}

/* Peers: opening endpoints when they are first needed, handling their loss, and leaving. */

/* The time limit for flushing messages, and also for closing endpoints. */
#define PEER_LEAVE_MS 200

/* ---- losing ---- */

static dist_status peer_report(struct ucx_peer *peer, const char *why)
{
    const struct ucx_state *ucx = peer->ucx;

    if (peer->leaving)
        return ucx->host->fail(
            DIST_ERR_PEER_LOST,
            "rank %d waits for rank %d, which has left the group: make the same calls on all ranks",
            ucx->rank, peer->rank);
    return ucx->host->fail(DIST_ERR_PEER_LOST,
                           "rank %d lost rank %d (UCX: %s); see that rank's output", ucx->rank,
                           peer->rank, why);
}

dist_status disti_ucx_peer_report_lost(struct ucx_peer *peer)
{
    return peer_report(peer, "the connection was already lost");
}

/* All changes of a peer's phase go through this function. */
static void peer_set_phase(struct ucx_peer *peer, enum ucx_phase to)
{
    if (disti_ucx_phase_allows(peer->phase, to))
        peer->phase = to;
    else
        disti_ucx_broken(peer->ucx, DIST_ERR_INTERNAL, "invalid change of a connection's phase");
}

void disti_ucx_peer_lose(struct ucx_peer *peer, const char *why)
{
    struct ucx_state *ucx = peer->ucx;

    if (ucx_is_lost(peer) || ucx->closing)
        return;
    peer_set_phase(peer, UCX_FAILED);
    ucx->failures = true;
    ucx->happened++;
    if (peer->match.posted_head || peer->inbounds || peer->rts_sends.count || !peer->leaving)
        peer_report(peer, why);
    disti_ucx_receive_fail(peer);
    disti_ucx_pieces_fail(peer);
}

dist_status disti_ucx_ended(struct ucx_peer *peer, ucs_status_t status)
{
    /*
     * UCX cancels a send if the receiver rejects the message because of a mismatch, which is not an
     * error of the sender.
     */
    if (status == UCS_OK || (status == UCS_ERR_CANCELED && !ucx_is_lost(peer)))
        return DIST_OK;
    if (status == UCS_ERR_NO_MEMORY)
        return peer->ucx->host->fail(DIST_ERR_NO_MEMORY, "no memory for a message with rank %d",
                                     peer->rank);
    disti_ucx_peer_lose(peer, ucs_status_string(status));
    return DIST_ERR_PEER_LOST;
}

/* The error handler of endpoints. UCX calls it from ucp_worker_progress. */
static void peer_error(void *arg, ucp_ep_h endpoint, ucs_status_t status)
{
    (void)endpoint;
    disti_ucx_peer_lose(arg, ucs_status_string(status));
}

/* ---- endpoints ---- */

bool disti_ucx_peer_open(struct ucx_peer *peer)
{
    const ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address = peer->address,
        .err_mode = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {.cb = peer_error, .arg = peer},
    };
    ucs_status_t status;

    if (peer->phase == UCX_OPEN)
        return true;
    if (ucx_is_lost(peer)) {
        disti_ucx_peer_report_lost(peer);
        return false;
    }
    status = ucp_ep_create(peer->ucx->worker, &params, &peer->endpoint);
    if (status == UCS_OK) {
        peer_set_phase(peer, UCX_OPEN);
        return true;
    }
    peer->endpoint = NULL;
    peer->ucx->host->log(DIST_LOG_WARN,
                         "UCX cannot reach rank %d (%s): let UCX_TLS and UCX_NET_DEVICES, where "
                         "set, name what both ranks have",
                         peer->rank, ucs_status_string(status));
    disti_ucx_peer_lose(peer, ucs_status_string(status));
    return false;
}

void disti_ucx_peer_connect(struct ucx_peer *peer)
{
    if (peer->phase == UCX_NEW && disti_ucx_peer_open(peer))
        disti_ucx_send_note(peer, UCX_AM_HELLO);
}

static void peer_close(struct ucx_peer *peer)
{
    const ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                       .flags = UCP_EP_CLOSE_FLAG_FORCE};
    void *closing = peer->endpoint ? ucp_ep_close_nbx(peer->endpoint, &param) : NULL;

    peer->endpoint = NULL;
    peer_set_phase(peer, UCX_CLOSED);
    if (UCS_PTR_IS_PTR(closing))
        peer->closing = closing;
}

void disti_ucx_peers_reap(struct ucx_state *ucx)
{
    ucx->failures = false;
    for (int r = 0; r < ucx->ranks; r++) {
        if (ucx->peers[r].phase == UCX_FAILED)
            peer_close(&ucx->peers[r]);
    }
}

/* ---- waiting for UCX ---- */

/* Waits until UCX has completed the request, and frees it. Returns false if the deadline passed. */
static bool peer_wait(struct ucx_state *ucx, void *request, int64_t deadline)
{
    bool done;

    if (!UCS_PTR_IS_PTR(request))
        return true;
    while (ucp_request_check_status(request) == UCS_INPROGRESS && !disti_expired(deadline)) {
        if (ucp_worker_progress(ucx->worker) == 0)
            disti_sleep_ns(20 * 1000);
    }
    done = ucp_request_check_status(request) != UCS_INPROGRESS;
    ucp_request_free(request);
    return done;
}

void disti_ucx_peers_wait_closed(struct ucx_state *ucx)
{
    int64_t deadline = disti_deadline_ms(PEER_LEAVE_MS);

    for (int r = 0; r < ucx->ranks; r++) {
        peer_wait(ucx, ucx->peers[r].closing, deadline);
        ucx->peers[r].closing = NULL;
    }
}

/* ---- leaving ---- */

/*
 * Sends GOODBYE to all peers, flushes all messages and closes all endpoints. Flushing and closing
 * take at most PEER_LEAVE_MS each.
 *
 * UCX 1.13 can crash in progress if both sides have closed a connection on which this process still
 * has bytes to send (tcp_iface.c: the read event frees the endpoint that the write event uses). So
 * if the flush times out, this function makes no further progress.
 */
static void ucx_peers_leave(struct ucx_state *ucx)
{
    const ucp_request_param_t param = {0};
    int64_t deadline = disti_deadline_ms(PEER_LEAVE_MS);
    bool all_left;

    for (int r = 0; r < ucx->ranks; r++) {
        if (ucx->peers[r].phase == UCX_OPEN)
            disti_ucx_send_note(&ucx->peers[r], UCX_AM_GOODBYE);
    }
    all_left = peer_wait(ucx, ucp_worker_flush_nbx(ucx->worker, &param), deadline);
    for (int r = 0; r < ucx->ranks; r++) {
        if (ucx->peers[r].endpoint)
            peer_close(&ucx->peers[r]);
    }
    if (all_left)
        disti_ucx_peers_wait_closed(ucx);
}

/* Opening, addresses, progress, sleeping and closing. */

/* UCX chooses a network only when it connects, so these are conservative estimates. */
#define UCX_LATENCY_NS 3000
#define UCX_BANDWIDTH 5e9

/* Precedes a worker's address. The hash `sum` detects data that are truncated or not from UCX. */
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
    ucs_status_t status = ucx_context_acquire(2, 1, &context);

    if (status == UCS_OK) {
        ucx_context_release();
        return DIST_OK;
    }
    snprintf(reason, reason_size,
             "UCX %s finds no usable device (%s); UCX_TLS is %s, UCX_NET_DEVICES is %s; `ucx_info "
             "-d` lists the devices",
             ucp_get_version_string(), ucs_status_string(status), tls ? tls : "not set",
             devices ? devices : "not set");
    return DIST_ERR_UNSUPPORTED;
}

/* A worker needs about 10 descriptors, and each connection 1 or 2. */
#define UCX_DESCRIPTORS 64

/*
 * Returns true if enough file descriptors are left; otherwise sets errno. Must be called before
 * UCX is started, since UCX aborts the process if it runs out of descriptors.
 */
static bool ucx_has_descriptors(void)
{
    int spare[UCX_DESCRIPTORS], count = 0;

    while (count < UCX_DESCRIPTORS && (spare[count] = epoll_create1(EPOLL_CLOEXEC)) >= 0)
        count++;
    for (int i = 0; i < count; i++)
        close(spare[i]);
    return count == UCX_DESCRIPTORS;
}

static dist_status ucx_open(void *state, const struct dist_transport_config *config)
{
    const ucp_worker_params_t params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                        .thread_mode = UCS_THREAD_MODE_SERIALIZED};
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    struct ucx_state *ucx = state;
    ucs_status_t status;
    int fd;

    ucx->host = config->host;
    ucx->rank = config->rank;
    ucx->ranks = config->world_size;
    ucx->process = getpid();
    ucx->copies = !ucx_context_rdma();
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
    status = ucx_context_acquire(config->world_size, config->local_ranks, &ucx->context);
    if (status == UCS_OK)
        status = ucp_worker_create(ucx->context, &params, &ucx->worker);
    else
        ucx->context = NULL;
    if (status == UCS_OK) {
        /*
         * While a connection waits for its peer, UCX's descriptor stays readable although there is
         * nothing to do. So threads sleep on an epoll that reports UCX's descriptor edge-triggered.
         * Without an epoll, they poll.
         */
        if (ucp_worker_get_efd(ucx->worker, &fd) == UCS_OK)
            ucx->fd = epoll_create1(EPOLL_CLOEXEC);
        if (ucx->fd >= 0 && epoll_ctl(ucx->fd, EPOLL_CTL_ADD, fd, &event) != 0) {
            close(ucx->fd);
            ucx->fd = -1;
        }
        status = disti_ucx_listen(ucx);
    } else {
        ucx->worker = NULL;
    }
    if (status == UCS_OK)
        return DIST_OK;
    return ucx->host->fail(DIST_ERR_UNSUPPORTED,
                           "rank %d: cannot start UCX: %s; set UCX_LOG_LEVEL=info to see why",
                           ucx->rank, ucs_status_string(status));
}

static dist_status ucx_copy_address(struct ucx_state *ucx, uint32_t flags, size_t capacity,
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
    if (attributes.address_length <= capacity)
        memcpy(address, attributes.address, attributes.address_length);
    ucp_worker_release_address(ucx->worker, attributes.address);
    return DIST_OK;
}

/* If the whole address is too long, returns only its network part, without shared memory. */
static dist_status ucx_address(void *state, void *blob, size_t *size_p)
{
    struct ucx_state *ucx = state;
    struct ucx_blob head = {.bytes = 0};
    unsigned char *address = (unsigned char *)blob + sizeof(head);
    size_t capacity = DIST_ADDRESS_MAX - sizeof(head), bytes = 0;
    dist_status status = ucx_copy_address(ucx, 0, capacity, address, &bytes);

    if (status == DIST_OK && bytes > capacity)
        status = ucx_copy_address(ucx, UCP_WORKER_ADDRESS_FLAG_NET_ONLY, capacity, address, &bytes);
    if (status != DIST_OK)
        return status;
    if (bytes > capacity)
        return ucx->host->fail(
            DIST_ERR_UNSUPPORTED,
            "rank %d: UCX's address has %zu bytes, more than the %zu that fit: name fewer devices "
            "in UCX_NET_DEVICES, or fewer transports in UCX_TLS",
            ucx->rank, bytes, capacity);
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

/* ---- progress ---- */

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
    ucx->is_idle = moved == 0;
    return ucx->broken < 0 ? ucx->broken : moved;
}

static int ucx_probe_tag(void *state, uint64_t tag)
{
    return disti_match_probe(&((const struct ucx_state *)state)->unexpected, tag);
}

static void ucx_unexpected(void *state, uint64_t tag, uint64_t mask, int most,
                           dist_unexpected_fn see, void *arg)
{
    disti_match_show(&((struct ucx_state *)state)->unexpected, tag, mask, most, see, arg);
}

/*
 * UCX may leave data in a socket for which no further event arrives. So this function first handles
 * a pending event, and lets the caller sleep only if the last progress call found nothing to do.
 * Pieces that wait for scratch memory do not prevent sleeping: they can start when another piece
 * completes, and that causes an event.
 */
static int ucx_arm(void *state)
{
    struct ucx_state *ucx = state;
    struct epoll_event event;
    ucs_status_t status;

    if (ucx->fd < 0)
        return -1;
    if (epoll_wait(ucx->fd, &event, 1, 0) != 0 && ucx_progress(state) != 0)
        return -2;
    if (!ucx->is_idle || ucx->happened || ucx->failures)
        return -2;
    status = ucp_worker_arm(ucx->worker);
    return status == UCS_OK ? ucx->fd : status == UCS_ERR_BUSY ? -2 : -1;
}

static void ucx_disarm(void *state)
{
    (void)state; /* progress disarms the worker */
}

static void ucx_describe(void *state, int peer, char *text, size_t size)
{
    static const char *const phases[] = {"not used yet", "in use", "lost", "lost"};
    const struct ucx_state *ucx = state;

    snprintf(text, size, "UCX %s, %s", ucp_get_version_string(), phases[ucx->peers[peer].phase]);
}

/* ---- closing ---- */

static void ucx_close(void *state)
{
    struct ucx_state *ucx = state;

    /* In a forked child, the worker and its connections belong to the parent: do not use them. */
    if (ucx->process == getpid()) {
        if (ucx->worker) {
            ucx->closing = true;
            disti_ucx_pulls_drop(ucx);
            for (int r = 0; r < ucx->ranks; r++)
                disti_ucx_receive_drop(&ucx->peers[r]);
            ucx_peers_leave(ucx);
            ucp_worker_destroy(ucx->worker);
            disti_ucx_sends_free(ucx);
            disti_standins_free(&ucx->standins);
        }
        if (ucx->context)
            ucx_context_release();
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
