/* SPDX-License-Identifier: BSD-3-Clause */
/* The shm transport: its slots, and the order in which its parts run. */
#include "base/settings/config.h"

#include "base/descriptor.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/process.h"
#include "transports/shm/shm.h"
#include "transports/shm/state.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* Sockets are looked at once in so many calls of progress; more often while connections are made.
 */
#define SHM_CALLS_A_LOOK 1024
#define SHM_CALLS_A_LOOK_WANTING 16
#define SHM_FIFOS_BYTES ((size_t)4 << 20) /* of all connections of a rank, one direction, about */
#define SHM_LATENCY_NS 200
#define SHM_BANDWIDTH 8e9

static dist_status shm_probe(char *reason, size_t reason_size)
{
    struct shm_address address;
    uint64_t most;
    int fd;

    if (!disti_file_may_have(disti_shm_pair_bytes(SHM_FIFO_MAX), &most)) {
        snprintf(
            reason, reason_size,
            "files, and so shared memory, are limited to %llu KiB: raise the limit (ulimit -f)",
            (unsigned long long)most >> 10);
        return DIST_ERR_UNSUPPORTED;
    }
    fd = disti_file_memory();
    if (fd < 0 && disti_call_denied(errno)) {
        snprintf(reason, reason_size,
                 "the system call memfd_create is denied here (%s): allow it in the container's "
                 "seccomp filter",
                 strerror(errno));
        return DIST_ERR_UNSUPPORTED;
    }
    if (fd >= 0)
        close(fd);
    return disti_shm_machine_self(&address, reason, reason_size);
}

static size_t shm_fifo_bytes(int local_ranks)
{
    size_t share = SHM_FIFOS_BYTES / (size_t)(local_ranks > 0 ? local_ranks : 1);
    size_t bytes = SHM_FIFO_MAX;

    while (bytes > share && bytes > SHM_FIFO_MIN)
        bytes /= 2;
    return bytes;
}

static dist_status shm_open_transport(void *opaque, const struct dist_transport_config *config)
{
    struct shm_state *state = opaque;
    char reason[128];
    size_t ranks = (size_t)config->world_size;
    int cma = 1;
    dist_status status;

    state->opened = true;
    state->listener = state->doorbell = state->poll = -1;
    state->config = *config;
    status = disti_variable_int("DIST_SHM_CMA", 1, &cma);
    if (status != DIST_OK)
        return status;
    state->cma = cma;
    state->job = disti_hash_text(DISTI_HASH_START, config->job);
    state->fifo_bytes = shm_fifo_bytes(config->local_ranks);
    state->peers = calloc(ranks, sizeof(*state->peers));
    state->active = calloc(ranks, sizeof(*state->active));
    state->addresses = calloc(ranks, sizeof(*state->addresses));
    if (!state->peers || !state->active || !state->addresses ||
        posix_memalign((void **)&state->bounce, 4096, SHM_PULL_PIECE) != 0)
        return disti_fail(DIST_ERR_NO_MEMORY, "shm: no memory for %zu ranks", ranks);
    if (disti_shm_machine_self(&state->address, reason, sizeof(reason)) != DIST_OK)
        return disti_fail(DIST_ERR_UNSUPPORTED, "shm: %s", reason);
    disti_shm_machine_random(&state->probe, sizeof(state->probe));
    return disti_shm_connection_open(state);
}

static dist_status shm_address(void *opaque, void *blob, size_t *size_p)
{
    struct shm_state *state = opaque;

    memcpy(blob, &state->address, sizeof(state->address));
    *size_p = sizeof(state->address);
    return DIST_OK;
}

#define MACHINE_MAGIC 0x6d687364u

/* Can a process at `mine` share memory with one at `theirs`? */
static bool shm_machine_same(const struct shm_address *mine, const struct shm_address *theirs)
{
    return theirs->magic == MACHINE_MAGIC && theirs->abi == mine->abi && theirs->uid == mine->uid &&
           theirs->network_device == mine->network_device &&
           theirs->network_inode == mine->network_inode &&
           memcmp(theirs->boot, mine->boot, sizeof(mine->boot)) == 0;
}

static dist_status shm_reach(void *opaque, const void *blob, size_t size,
                             struct dist_reach *reach_p)
{
    struct shm_state *state = opaque;
    struct shm_address address;

    if (size != sizeof(address))
        return DIST_ERR_UNSUPPORTED;
    memcpy(&address, blob, sizeof(address));
    if (!shm_machine_same(&state->address, &address))
        return DIST_ERR_UNSUPPORTED;
    *reach_p = (struct dist_reach){.latency_ns = SHM_LATENCY_NS, .bytes_per_second = SHM_BANDWIDTH};
    return DIST_OK;
}

static dist_status shm_connect(void *opaque, int rank, const void *blob, size_t size)
{
    struct shm_state *state = opaque;

    if (rank < 0 || rank >= state->config.world_size || rank == state->config.rank ||
        size != sizeof(*state->addresses))
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "shm: no address of rank %d", rank);
    memcpy(&state->addresses[rank], blob, size);
    return DIST_OK;
}

/* The peer of a request; NULL: the request has failed. Most ranks exchange messages with few. */
static struct shm_peer *shm_request_peer(struct shm_state *state, struct dist_request *request)
{
    struct shm_peer *peer = state->peers[request->peer];

    if (!peer)
        peer = disti_shm_connection_peer(state, request->peer);
    if (!peer)
        request->status = DIST_ERR_NO_MEMORY;
    return peer;
}

static void shm_send(void *opaque, struct dist_request *request)
{
    struct shm_state *state = opaque;
    struct shm_peer *peer = shm_request_peer(state, request);

    if (!peer)
        return;
    if (peer->phase == SHM_LOST) {
        request->status = disti_shm_lost(peer);
        return;
    }
    disti_shm_send_start(peer, request);
    if (peer->phase != SHM_CONNECTED)
        disti_shm_call_want(state, peer);
}

static void shm_recv(void *opaque, struct dist_request *request)
{
    struct shm_state *state = opaque;
    struct shm_peer *peer = shm_request_peer(state, request);

    if (!peer)
        return;
    disti_shm_receive_start(peer, request);
    if (peer->phase == SHM_IDLE)
        disti_shm_call_want(state, peer);
}

/* Negative: the connection is broken, with this status. */
static int shm_turn(struct shm_state *state, struct shm_peer *peer)
{
    int moved = disti_shm_receive_turn(peer);

    if (moved >= 0 && peer->pull_head) {
        int pulled = disti_shm_loan_pull(state, peer);

        moved = pulled < 0 ? pulled : moved + pulled;
    }
    if (moved < 0)
        return moved;
    if (~peer->lent_free)
        moved += disti_shm_send_acks(peer);
    if (peer->send_head || peer->answers.count)
        moved += disti_shm_send_turn(peer);
    peer->corrupt = peer->out.corrupt;
    if (peer->corrupt)
        return disti_fail(DIST_ERR_PEER_LOST,
                          "shm: rank %d (pid %d) corrupted the shared memory: check it for stray "
                          "writes, and give all ranks the same version of libdist",
                          peer->rank, peer->pid);
    return moved;
}

static int shm_progress(void *opaque)
{
    struct shm_state *state = opaque;
    int moved = 0;

    for (int i = state->active_count; i-- > 0;) { /* downwards: a lost one leaves the array */
        struct shm_peer *peer = state->active[i];
        int result = shm_turn(state, peer);

        if (result < 0)
            disti_shm_connection_lose(state, peer, result);
        moved += result < 0 ? 1 : result;
    }
    state->calls++;
    if (state->look ||
        state->calls >= (state->wanting ? SHM_CALLS_A_LOOK_WANTING : SHM_CALLS_A_LOOK))
        moved += disti_shm_connection_look(state);
    return moved;
}

/* Also of peers that are lost: what they had sent whole can still be received. */
static int shm_probe_tag(void *opaque, uint64_t tag)
{
    return disti_match_probe(&((const struct shm_state *)opaque)->unexpected, tag);
}

static void shm_unexpected(void *opaque, uint64_t tag, uint64_t mask, int most,
                           dist_unexpected_fn see, void *arg)
{
    disti_match_show(&((struct shm_state *)opaque)->unexpected, tag, mask, most, see, arg);
}

static bool shm_ready(struct shm_peer *peer)
{
    return disti_shm_fifo_peek(&peer->in) || peer->pull_head || disti_shm_acks_ready(peer) ||
           disti_shm_send_ready(peer);
}

static void shm_disarm(void *opaque)
{
    struct shm_state *state = opaque;

    for (int i = 0; state->armed && i < state->active_count; i++)
        atomic_store_explicit(&state->active[i]->mine->asleep, 0, memory_order_relaxed);
    state->armed = false;
    state->look = true;
}

static int shm_arm(void *opaque)
{
    struct shm_state *state = opaque;
    bool called = disti_shm_call_all(state);

    state->armed = true;
    for (int i = 0; i < state->active_count; i++)
        atomic_store_explicit(&state->active[i]->mine->asleep, 1, memory_order_seq_cst);
    for (int i = 0; i < state->active_count; i++) {
        if (shm_ready(state->active[i]))
            return -2;
    }
    return called ? state->poll : -1;
}

static void shm_close(void *opaque)
{
    struct shm_state *state = opaque;

    if (!state->opened)
        return;
    if (state->peers)
        disti_shm_connection_close(state);
    disti_standins_free(&state->standins);
    free(state->peers);
    free(state->addresses);
    free(state->active);
    free(state->bounce);
    memset(state, 0, sizeof(*state));
}

static void shm_describe(void *opaque, int rank, char *text, size_t size)
{
    static const char *const phases[] = {"idle", "needed", "calling", "connected", "lost"};
    static const char *const verdicts[] = {"not yet known", "used", "refused"};
    struct shm_state *state = opaque;
    const struct shm_peer *peer = state->peers[rank];

    if (!peer)
        snprintf(text, size, "shared memory, idle");
    else
        snprintf(text, size, "shared memory, %s, pid %d, FIFO %zu KiB, CMA to it %s",
                 phases[peer->phase], peer->pid, peer->fifo_bytes >> 10, verdicts[peer->lend]);
}

/* The peer's memory, its socket, the doorbell and its process. */
static int shm_files(void)
{
    return 4;
}

const struct dist_transport disti_transport_shm = {
    .abi = DIST_ABI,
    .size = sizeof(struct dist_transport),
    .name = "shm",
    .summary = "shared memory and CMA between ranks of one machine",
    .state_size = sizeof(struct shm_state),
    .probe = shm_probe,
    .open = shm_open_transport,
    .address = shm_address,
    .reach = shm_reach,
    .connect = shm_connect,
    .send = shm_send,
    .recv = shm_recv,
    .progress = shm_progress,
    .probe_tag = shm_probe_tag,
    .unexpected = shm_unexpected,
    .arm = shm_arm,
    .disarm = shm_disarm,
    .close = shm_close,
    .describe = shm_describe,
    .cancel = disti_shm_cancel,
    .shares_memory = true,
    .files = shm_files,
};

/* Which machine this is, and how its ranks find each other's listeners. */

#define MACHINE_BOOT_ID "/proc/sys/kernel/random/boot_id"
#define MACHINE_NETWORK DISTI_PROCESS_OWN "/ns/net"
#define MACHINE_NAME "libdist-"

static bool machine_boot_id(char boot[SHM_BOOT_BYTES])
{
    int fd = open(MACHINE_BOOT_ID, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, boot, SHM_BOOT_BYTES - 1);

    if (fd >= 0)
        close(fd);
    return got > 0;
}

static dist_status machine_unsupported(char *reason, size_t reason_size, const char *what)
{
    if (reason)
        snprintf(reason, reason_size, "%s: %s", what, strerror(errno));
    return DIST_ERR_UNSUPPORTED;
}

dist_status disti_shm_machine_self(struct shm_address *address, char *reason, size_t reason_size)
{
    struct shm_address made = {.magic = MACHINE_MAGIC, .abi = DIST_ABI};
    struct stat network;

    if (!machine_boot_id(made.boot))
        return machine_unsupported(reason, reason_size, "cannot read " MACHINE_BOOT_ID);
    if (stat(MACHINE_NETWORK, &network) < 0)
        return machine_unsupported(reason, reason_size, "cannot look at " MACHINE_NETWORK);
    if (!disti_shm_machine_random(made.name, sizeof(made.name)))
        return machine_unsupported(reason, reason_size, "no random numbers");
    made.uid = (uint32_t)geteuid();
    made.pid = (uint32_t)getpid();
    made.network_device = network.st_dev;
    made.network_inode = network.st_ino;
    *address = made;
    return DIST_OK;
}

socklen_t disti_shm_machine_socket(const struct shm_address *address, struct sockaddr_un *name)
{
    char *path = name->sun_path + 1; /* the first byte stays 0: no file, nothing to unlink */

    memset(name, 0, sizeof(*name));
    name->sun_family = AF_UNIX;
    path += sprintf(path, MACHINE_NAME);
    for (int i = 0; i < SHM_NAME_BYTES; i++)
        path += sprintf(path, "%02x", address->name[i]);
    return (socklen_t)(path - (char *)name);
}

int disti_shm_machine_read(int pid, void *data, uint64_t address, size_t bytes)
{
    struct iovec here = {.iov_base = data, .iov_len = bytes};
    struct iovec there = {.iov_base = (void *)(uintptr_t)address, .iov_len = bytes};
    ssize_t got = disti_process_read(pid, &here, &there);

    if (got < 0)
        return errno;
    return (size_t)got == bytes ? 0 : EFAULT;
}

bool disti_shm_machine_runs(int pid)
{
    int process = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
    struct pollfd ended = {.fd = process, .events = POLLIN};
    bool runs;

    if (process < 0)
        return pid <= 0 || errno != ESRCH;
    runs = poll(&ended, 1, 0) == 0; /* one that has ended and is not waited for has a number too */
    close(process);
    return runs;
}

bool disti_shm_machine_random(void *data, size_t bytes)
{
    return getrandom(data, bytes, 0) == (ssize_t)bytes;
}

/* The memory that two ranks share: memfds, sealed and filled before they are used. */

#define MEMORY_SEALS (F_SEAL_SHRINK | F_SEAL_GROW)

bool disti_shm_fifo_bytes_valid(uint64_t fifo_bytes)
{
    return fifo_bytes >= SHM_FIFO_MIN && fifo_bytes <= SHM_FIFO_MAX &&
           (fifo_bytes & (fifo_bytes - 1)) == 0;
}

dist_status disti_shm_memory_make(size_t fifo_bytes, int *fd_p, struct shm_pair **pair_p)
{
    size_t bytes = disti_shm_pair_bytes(fifo_bytes);
    dist_status status;
    int fd = disti_file_memory();

    if (fd < 0 && (errno == EMFILE || errno == ENFILE))
        return DIST_IN_PROGRESS;
    if (fd < 0)
        return disti_fail_call("memfd_create", "shm: cannot make shared memory");
    if (disti_file_reserve(fd, 0, bytes) < 0) {
        status = disti_fail_errno(
            DIST_ERR_NO_MEMORY,
            "shm: no room for %zu KiB of shared memory; free memory, raise "
            "the container's limit or that on files (ulimit -f), or set DIST_TRANSPORT=tcp",
            bytes >> 10);
        goto out;
    }
    if (fcntl(fd, F_ADD_SEALS, MEMORY_SEALS) < 0) {
        status = disti_fail_errno(DIST_ERR_SYSTEM, "shm: cannot seal a memfd");
        goto out;
    }
    status = disti_shm_memory_map(fd, fifo_bytes, pair_p);
    if (status == DIST_OK) {
        *fd_p = disti_descriptor_own(fd);
        fd = -1;
    }
out:
    if (fd >= 0)
        close(fd);
    return status;
}

dist_status disti_shm_memory_map(int fd, size_t fifo_bytes, struct shm_pair **pair_p)
{
    size_t bytes = disti_shm_pair_bytes(fifo_bytes);
    int seals = fcntl(fd, F_GET_SEALS);
    struct stat info;
    void *memory;

    if (seals < 0 || (seals & MEMORY_SEALS) != MEMORY_SEALS || fstat(fd, &info) < 0 ||
        info.st_size != (off_t)bytes)
        return disti_fail(DIST_ERR_SYSTEM,
                          "shm: a peer offered memory that is not %zu sealed bytes: give all ranks "
                          "the same version of libdist",
                          bytes);
    memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED && errno == EAGAIN)
        return disti_file_locked_too_much(bytes);
    if (memory == MAP_FAILED)
        return disti_fail_errno(DIST_ERR_NO_MEMORY, "shm: cannot map %zu KiB", bytes >> 10);
    *pair_p = memory;
    return DIST_OK;
}

void disti_shm_memory_unmap(struct shm_pair *pair, size_t fifo_bytes)
{
    if (pair)
        munmap(pair, disti_shm_pair_bytes(fifo_bytes));
}
