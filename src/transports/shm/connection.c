/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connections to peers: the handshake before two ranks share memory, calling peers and accepting
 * calls.
 */
#include "base/clock.h"
#include "base/descriptor.h"
#include "base/file.h"
#include "base/log.h"
#include "base/process.h"
#include "base/thread.h"
#include "transports/shm/state.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* The node's identity and the addresses of its listeners. */

#define MACHINE_BOOT_ID "/proc/sys/kernel/random/boot_id"
#define MACHINE_NETWORK DISTI_PROCESS_OWN "/ns/net"
#define MACHINE_NAME "libdist-"

dist_status disti_shm_machine_self(struct shm_address *address, char *reason, size_t reason_size)
{
    struct shm_address made = {.magic = SHM_MACHINE_MAGIC, .abi = DIST_ABI};
    const char *failed = NULL;
    struct stat network;
    int fd = open(MACHINE_BOOT_ID, O_RDONLY | O_CLOEXEC);

    if (fd < 0 || read(fd, made.boot, sizeof(made.boot) - 1) <= 0)
        failed = "cannot read " MACHINE_BOOT_ID;
    else if (stat(MACHINE_NETWORK, &network) < 0)
        failed = "cannot stat " MACHINE_NETWORK;
    else if (!disti_shm_machine_random(made.name, sizeof(made.name)))
        failed = "cannot get random numbers";
    if (failed && reason)
        snprintf(reason, reason_size, "%s: %s", failed, strerror(errno));
    if (fd >= 0)
        close(fd);
    if (failed)
        return DIST_ERR_UNSUPPORTED;
    made.uid = (uint32_t)geteuid();
    made.pid = (uint32_t)getpid();
    made.network_device = network.st_dev;
    made.network_inode = network.st_ino;
    *address = made;
    return DIST_OK;
}

socklen_t disti_shm_machine_socket(const struct shm_address *address, struct sockaddr_un *name)
{
    char *path = name->sun_path + 1; /* the first byte stays 0: an abstract name */

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

/*
 * Returns false if the process is known to have exited. A pid of 0 is outside this PID namespace
 * and counts as running.
 */
static bool machine_runs(int pid)
{
    int process = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
    struct pollfd ended = {.fd = process, .events = POLLIN};
    bool runs;

    if (process < 0)
        return pid <= 0 || errno != ESRCH;
    runs = poll(&ended, 1, 0) == 0; /* a zombie still has a pid, but its pidfd is readable */
    close(process);
    return runs;
}

bool disti_shm_machine_random(void *data, size_t bytes)
{
    return getrandom(data, bytes, 0) == (ssize_t)bytes;
}

/* The memory that two ranks share: memfds that are sealed and allocated before use. */

#define MEMORY_SEALS (F_SEAL_SHRINK | F_SEAL_GROW)

static bool fifo_bytes_valid(uint64_t fifo_bytes)
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
            "shm: not enough memory for %zu KiB of shared memory; free memory, raise "
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

/* The handshake: packets with descriptors. */

#define HELLO_MAGIC 0x6c6c6568a7736d68ull
#define HELLO_VERSION 5u

/* The source of an epoll event. The event's data is source << 32 | rank or index. */
enum shm_event { SHM_ON_LISTENER, SHM_ON_DOORBELL, SHM_ON_PENDING, SHM_ON_SOCKET, SHM_ON_PROCESS };

/* A buffer for the descriptors of one packet, aligned for a cmsghdr. */
union hello_control {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(SHM_HELLO_FDS * sizeof(int))];
};

void disti_shm_hello_init(struct shm_hello *hello, enum shm_hello_kind kind, int from, int to,
                          uint64_t job)
{
    memset(hello, 0, sizeof(*hello));
    hello->magic = HELLO_MAGIC;
    hello->version = HELLO_VERSION;
    hello->kind = kind;
    hello->from = from;
    hello->to = to;
    hello->job = job;
}

/*
 * Returns true if the hello has this version and job, is for rank `to` and is from another rank of
 * the world.
 */
static bool shm_hello_valid(const struct shm_hello *hello, int to, int world_size, uint64_t job)
{
    return hello->magic == HELLO_MAGIC && hello->version == HELLO_VERSION && hello->to == to &&
           hello->from >= 0 && hello->from < world_size && hello->from != to && hello->job == job;
}

bool disti_shm_hello_send(int socket, const struct shm_hello *hello, const int *fds, int count)
{
    struct iovec part = {.iov_base = (void *)hello, .iov_len = sizeof(*hello)};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    union hello_control control;

    memset(&control, 0, sizeof(control));
    if (count > 0) {
        size_t bytes = (size_t)count * sizeof(int);

        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE(bytes);
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = CMSG_LEN(bytes);
        memcpy(CMSG_DATA(&control.header), fds, bytes);
    }
    return sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)sizeof(*hello);
}

/*
 * Copies the descriptors of a packet to fds. If the kernel truncated the control data, entries of
 * fds stay -1.
 */
static void hello_collect_fds(struct msghdr *message, int fds[SHM_HELLO_FDS])
{
    struct cmsghdr *header = CMSG_FIRSTHDR(message);
    size_t count;

    if (!header || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
        return;
    count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    memcpy(fds, CMSG_DATA(header), (count < SHM_HELLO_FDS ? count : SHM_HELLO_FDS) * sizeof(int));
}

/*
 * Returns true if this process has enough free descriptors to receive those of a packet; otherwise
 * sets errno. Must be called before recvmsg, since the kernel drops descriptors above the limit.
 */
static bool hello_has_descriptors(int socket)
{
    int spare[SHM_HELLO_FDS], count = 0, error;

    while (count < SHM_HELLO_FDS && (spare[count] = fcntl(socket, F_DUPFD_CLOEXEC, 0)) >= 0)
        count++;
    error = errno;
    for (int i = 0; i < count; i++)
        close(spare[i]);
    errno = error;
    return count == SHM_HELLO_FDS;
}

/* Closes a descriptor unless it is -1, and sets it to -1. */
static void shm_close_fd(int *fd_p)
{
    if (*fd_p >= 0)
        disti_descriptor_close(*fd_p);
    *fd_p = -1;
}

static void shm_close_fds(int *fds, int count)
{
    for (int i = 0; i < count; i++)
        shm_close_fd(&fds[i]);
}

int disti_shm_hello_receive(int socket, struct shm_hello *hello, int fds[SHM_HELLO_FDS])
{
    struct iovec part = {.iov_base = hello, .iov_len = sizeof(*hello)};
    union hello_control control;
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof(control)};
    ssize_t got;

    for (int i = 0; i < SHM_HELLO_FDS; i++)
        fds[i] = -1;
    if (!hello_has_descriptors(socket))
        return 0;
    got = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        errno = EAGAIN;
    if (got < 0)
        return errno == EAGAIN ? 0 : -1;
    hello_collect_fds(&message, fds);
    for (int i = 0; i < SHM_HELLO_FDS; i++)
        fds[i] = disti_descriptor_own(fds[i]);
    if (got == (ssize_t)sizeof(*hello) && !(message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)))
        return 1;
    shm_close_fds(fds, SHM_HELLO_FDS);
    return -1;
}

/*
 * Gets from the kernel the user and pid of the process at the other end. The pid is 0 if the
 * process is outside this PID namespace.
 */
static bool shm_hello_peer(int socket, uint32_t *uid_p, int *pid_p)
{
    struct ucred peer;
    socklen_t size = sizeof(peer);

    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
        return false;
    *uid_p = (uint32_t)peer.uid;
    *pid_p = (int)peer.pid;
    return true;
}

/* The state of connections to peers, and what happens when a peer is lost. */

/* The allowed transitions from each phase: see the drawing in state.h. */
static const uint8_t connection_transitions[] = {
    [SHM_IDLE] = 1 << SHM_NEEDED | 1 << SHM_CONNECTED | 1 << SHM_LOST,
    [SHM_NEEDED] = 1 << SHM_CALLING | 1 << SHM_CONNECTED | 1 << SHM_LOST,
    [SHM_CALLING] = 1 << SHM_NEEDED | 1 << SHM_CONNECTED | 1 << SHM_LOST,
    [SHM_CONNECTED] = 1 << SHM_LOST,
    [SHM_LOST] = 0,
};

static bool phase_is_connecting(enum shm_phase phase)
{
    return phase == SHM_NEEDED || phase == SHM_CALLING;
}

dist_status disti_shm_connection_set_phase(struct shm_state *state, struct shm_peer *peer,
                                           enum shm_phase to)
{
    if (!(connection_transitions[peer->phase] & 1 << to))
        return disti_fail(DIST_ERR_INTERNAL,
                          "shm: the connection to rank %d cannot go from phase %d to %d",
                          peer->rank, (int)peer->phase, (int)to);
    state->connecting += phase_is_connecting(to) - phase_is_connecting(peer->phase);
    peer->phase = to;
    return DIST_OK;
}

struct shm_peer *disti_shm_connection_peer(struct shm_state *state, int rank)
{
    struct shm_peer *peer = state->peers[rank];

    if (peer)
        return peer;
    peer = calloc(1, sizeof(*peer));
    if (!peer) {
        disti_fail(DIST_ERR_NO_MEMORY, "shm: out of memory for a connection to rank %d", rank);
        return NULL;
    }
    peer->rank = rank;
    peer->match.rank = rank;
    peer->match.set = &state->unexpected;
    peer->memory = peer->socket = peer->doorbell = peer->process = -1;
    peer->lent_free = ~UINT64_C(0);
    state->peers[rank] = peer;
    return peer;
}

/*
 * Removes a descriptor from the epoll and closes it. Closing alone is not enough: a copy in another
 * process would keep waking this one.
 */
static void connection_unwatch(const struct shm_state *state, int *fd_p)
{
    if (*fd_p >= 0)
        epoll_ctl(state->poll, EPOLL_CTL_DEL, *fd_p, NULL);
    shm_close_fd(fd_p);
}

/*
 * Closes the descriptors of a connection or a call and unmaps its memory. Does not change the phase
 * or complete requests.
 */
static void shm_connection_release(const struct shm_state *state, struct shm_peer *peer)
{
    shm_close_fd(&peer->memory);
    connection_unwatch(state, &peer->socket);
    shm_close_fd(&peer->doorbell);
    connection_unwatch(state, &peer->process);
    disti_shm_memory_unmap(peer->pair, peer->fifo_bytes);
    peer->pair = NULL;
    peer->mine = peer->theirs = NULL;
}

void disti_shm_connection_lose(struct shm_state *state, struct shm_peer *peer, dist_status status)
{
    if (peer->phase == SHM_CONNECTED && !peer->corrupt)
        disti_shm_drain(peer);
    for (int i = 0; i < state->active_count; i++) {
        if (state->active[i] == peer)
            state->active[i--] = state->active[--state->active_count];
    }
    shm_connection_release(state, peer);
    disti_shm_connection_set_phase(state, peer, SHM_LOST);
    peer->status = status;
    disti_shm_fail(peer, status);
}

/*
 * Handles the exit of a peer: receives the messages that it had sent completely, then marks it as
 * lost. Reports an error only if requests are pending.
 */
static void shm_connection_ended(struct shm_state *state, struct shm_peer *peer)
{
    if (peer->phase == SHM_CONNECTED)
        disti_shm_drain(peer);
    /* Without pending requests the exit is normal: ranks do not all close a group at once. */
    if ((peer->send_head || ~peer->lent_free || peer->pull_head || peer->match.posted_head ||
         peer->cts_head || peer->rts_sends.count || peer->arrival.request ||
         (peer->arrival.unexpected && peer->arrival.unexpected->claimed)))
        disti_fail(
            DIST_ERR_PEER_LOST,
            "shm: rank %d lost rank %d (pid %d on this machine): it exited or left the group; "
            "see the output of that rank",
            state->config.rank, peer->rank, peer->pid);
    disti_shm_connection_lose(state, peer, DIST_ERR_PEER_LOST);
}

dist_status disti_shm_report_lost(const struct shm_peer *peer)
{
    return disti_fail(
        peer->status,
        "shm: rank %d (pid %d on this machine) has exited: see the output of that rank", peer->rank,
        peer->pid);
}

static bool watch_epoll(struct shm_state *state, int operation, int fd, uint32_t events,
                        enum shm_event event, int index)
{
    struct epoll_event watched = {.events = events,
                                  .data.u64 = (uint64_t)event << 32 | (uint32_t)index};

    return epoll_ctl(state->poll, operation, fd, &watched) == 0;
}

static bool shm_watch(struct shm_state *state, int fd, enum shm_event event, int index,
                      uint32_t flags)
{
    return watch_epoll(state, EPOLL_CTL_ADD, fd, EPOLLIN | flags, event, index);
}

/*
 * Sets up a connection that both ranks have accepted. `hello` is the peer's last packet and `side`
 * is this rank's index in the pair.
 */
static void shm_connection_connected(struct shm_state *state, struct shm_peer *peer, int side,
                                     const struct shm_hello *hello)
{
    unsigned char *fifos[2] = {peer->pair->fifos, peer->pair->fifos + peer->fifo_bytes};
    size_t most = disti_shm_frame_max(peer->fifo_bytes);
    enum shm_verdict verdict = SHM_CMA_REFUSED;
    int error = ESRCH; /* the peer may be in another PID namespace */
    uint64_t word = 0;

    peer->mine = &peer->pair->side[side];
    peer->theirs = &peer->pair->side[1 - side];
    peer->out = (struct shm_out){.ring = fifos[side],
                                 .size = peer->fifo_bytes,
                                 .key = peer->key,
                                 .consumed_now = &peer->theirs->consumed};
    peer->in = (struct shm_in){.ring = fifos[1 - side],
                               .size = peer->fifo_bytes,
                               .key = peer->key,
                               .consumed = &peer->mine->consumed};
    peer->credit.limit = peer->debit.limit = SHM_CREDIT_FIFOS * (uint64_t)peer->fifo_bytes;
    peer->whole_max = most < SHM_COPY_MAX ? most : SHM_COPY_MAX;
    peer->lend = state->cma ? SHM_CMA_UNKNOWN : SHM_CMA_REFUSED;
    shm_close_fd(&peer->memory);
    disti_shm_connection_set_phase(state, peer, SHM_CONNECTED);
    state->active[state->active_count++] = peer;
    /*
     * A closed socket shows that the peer has exited, unless a child of the peer still has it open.
     * So the process is watched too, where possible.
     */
    if (peer->pid > 0)
        peer->process = disti_descriptor_own((int)syscall(SYS_pidfd_open, peer->pid, 0));
    if (peer->process >= 0)
        shm_watch(state, peer->process, SHM_ON_PROCESS, peer->rank, 0);
    /* Test whether the peer's memory can be read, by reading its probe word. */
    if (state->cma && peer->pid > 0)
        error = disti_shm_machine_read(peer->pid, &word, hello->probe_address, sizeof(word));
    if (state->cma && !error && word == hello->probe)
        verdict = SHM_CMA_WORKS;
    else if (state->cma)
        disti_info("shm: long messages from rank %d are copied twice, as its memory cannot be read "
                   "(%s): `dist_info memory` says what to do",
                   peer->rank, error ? strerror(error) : "another process answered");
    atomic_store_explicit(&peer->mine->verdict, verdict, memory_order_seq_cst);
    disti_shm_ring(peer);
}

void disti_shm_ring_slow(struct shm_peer *peer)
{
    const uint64_t one = 1;
    int held;

    if (!atomic_exchange_explicit(&peer->theirs->asleep, 0, memory_order_seq_cst))
        return;
    held = disti_cancel_hold();
    (void)!write(peer->doorbell, &one, sizeof(one)); /* EAGAIN: already readable */
    disti_cancel_let(held);
}

/* Initializes a hello to this peer. */
static void shm_connection_hello(const struct shm_state *state, const struct shm_peer *peer,
                                 enum shm_hello_kind kind, struct shm_hello *hello)
{
    disti_shm_hello_init(hello, kind, state->config.rank, peer->rank, state->job);
    hello->probe_address = (uint64_t)(uintptr_t)&state->probe;
    hello->probe = state->probe;
}

void disti_shm_connection_close(struct shm_state *state)
{
    for (int rank = 0; rank < state->config.world_size; rank++) {
        struct shm_peer *peer = state->peers[rank];

        if (!peer)
            continue;
        if (peer->mine)
            atomic_store_explicit(&peer->mine->closed, 1, memory_order_seq_cst);
        shm_connection_release(state, peer);
        disti_match_clear(&peer->match);
        disti_rts_clear(&peer->rts_sends);
        free(peer->answers.entries);
        peer->answers = (struct shm_answers){0};
        free(peer);
    }
    for (int i = 0; i < state->pending_capacity; i++)
        shm_close_fd(&state->pending[i].socket);
    free(state->pending);
    shm_close_fd(&state->listener);
    shm_close_fd(&state->doorbell);
    shm_close_fd(&state->poll);
}

/* Calling a peer and handling its answer. */

#define CALL_HIGHER_WAITS_NS (5 * 1000 * 1000) /* wait for the lower rank's call */
#define CALL_RETRY_NS (50 * 1000 * 1000)       /* after DEFER or a failed call */

/* Schedules another call after a temporary failure. */
static void call_retry(struct shm_state *state, struct shm_peer *peer)
{
    shm_connection_release(state, peer);
    if (peer->phase == SHM_CALLING)
        disti_shm_connection_set_phase(state, peer, SHM_NEEDED);
    peer->is_backing_off = true;
    peer->call_ns = disti_now_ns() + CALL_RETRY_NS;
}

/* Logs once that there are no file descriptors left. */
static void shm_report_descriptors(struct shm_state *state)
{
    if (!state->reported_descriptors)
        disti_notice(
            "shm: rank %d has no file descriptor left for a connection to a rank; it tries "
            "again until there is one: raise `ulimit -n`",
            state->config.rank);
    state->reported_descriptors = true;
}

/*
 * Continues a call after the socket is connected: creates the memory and sends CALL. Returns
 * IN_PROGRESS if the call must be retried later.
 */
static dist_status call_send_hello(struct shm_state *state, struct shm_peer *peer)
{
    struct shm_hello hello;
    uint32_t uid;
    dist_status status;
    int fds[SHM_HELLO_FDS];

    if (!shm_hello_peer(peer->socket, &uid, &peer->pid) || uid != state->address.uid)
        return disti_fail(
            DIST_ERR_PEER_LOST,
            "shm: another user's process listens for rank %d: run all ranks as one user",
            peer->rank);
    peer->fifo_bytes = state->fifo_bytes;
    status = disti_shm_memory_make(peer->fifo_bytes, &peer->memory, &peer->pair);
    if (status == DIST_IN_PROGRESS)
        shm_report_descriptors(state);
    if (status != DIST_OK)
        return status;
    if (!disti_shm_machine_random(&peer->key, sizeof(peer->key)))
        return disti_fail_call("getrandom", "shm: cannot get random bytes");
    peer->key |= 1; /* odd, so that no stamp is 0 as in new memory */
    shm_connection_hello(state, peer, SHM_CALL, &hello);
    hello.key = peer->key;
    hello.fifo_bytes = peer->fifo_bytes;
    fds[0] = peer->memory;
    fds[1] = state->doorbell;
    if (!disti_shm_hello_send(peer->socket, &hello, fds, 2))
        return machine_runs(peer->pid) ? DIST_IN_PROGRESS : disti_shm_report_lost(peer);
    if (!shm_watch(state, peer->socket, SHM_ON_SOCKET, peer->rank, 0))
        return disti_fail_errno(DIST_ERR_PEER_LOST, "shm: cannot connect to rank %d (pid %d)",
                                peer->rank, peer->pid);
    return disti_shm_connection_set_phase(state, peer, SHM_CALLING);
}

/*
 * Calls a peer. Returns false if the call must be retried later. Any other failure marks the peer
 * as lost.
 */
static bool call_peer(struct shm_state *state, struct shm_peer *peer)
{
    struct sockaddr_un name;
    const struct shm_address *address = &state->addresses[peer->rank];
    socklen_t size = disti_shm_machine_socket(address, &name);
    dist_status status;

    peer->socket =
        disti_descriptor_own(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (peer->socket < 0 && (errno == EMFILE || errno == ENFILE)) {
        shm_report_descriptors(state);
        status = DIST_IN_PROGRESS;
    } else if (peer->socket < 0) {
        status = disti_fail_errno(DIST_ERR_SYSTEM, "shm: cannot create a socket for rank %d",
                                  peer->rank);
    } else if (connect(peer->socket, (struct sockaddr *)&name, size) == 0) {
        status = call_send_hello(state, peer);
    } else if (errno == EAGAIN || errno == EINTR) {
        status = DIST_IN_PROGRESS;
    } else {
        status = disti_fail_errno(
            DIST_ERR_PEER_LOST,
            "shm: rank %d (pid %u on this machine) no longer listens: see the output of that rank",
            peer->rank, address->pid);
    }
    if (status == DIST_IN_PROGRESS)
        call_retry(state, peer);
    else if (status != DIST_OK)
        disti_shm_connection_lose(state, peer, status);
    return status != DIST_IN_PROGRESS;
}

void disti_shm_call_request(struct shm_state *state, struct shm_peer *peer)
{
    bool lower = state->config.rank < peer->rank;

    if (peer->phase != SHM_IDLE)
        return;
    disti_shm_connection_set_phase(state, peer, SHM_NEEDED);
    peer->call_ns = disti_now_ns() + (lower ? 0 : CALL_HIGHER_WAITS_NS);
    if (lower)
        disti_shm_connection_poll(state); /* accepts the peer's call, or calls the peer */
}

bool disti_shm_call_all(struct shm_state *state)
{
    int64_t now = disti_now_ns();
    bool all = true;

    for (int rank = 0; rank < state->config.world_size && state->connecting; rank++) {
        struct shm_peer *peer = state->peers[rank];

        if (!peer || peer->phase != SHM_NEEDED || !state->addresses[rank].magic)
            continue;
        if (peer->is_backing_off && peer->call_ns > now)
            all = false;
        else
            all = call_peer(state, peer) && all;
    }
    return all;
}

#define WATCH_BACKOFF_NS (50 * 1000 * 1000) /* after a lack of descriptors */

/*
 * Stops polling a socket until resume_ns, since there is no file descriptor to receive what arrived
 * on it.
 */
static void shm_back_off(struct shm_state *state, int fd, enum shm_event event, int index)
{
    shm_report_descriptors(state);
    watch_epoll(state, EPOLL_CTL_MOD, fd, 0, event, index);
    state->resume_ns = disti_now_ns() + WATCH_BACKOFF_NS;
}

/* Handles the answer to this rank's call. */
static void shm_call_answered(struct shm_state *state, struct shm_peer *peer)
{
    struct shm_hello hello;
    int fds[SHM_HELLO_FDS];
    int result = disti_shm_hello_receive(peer->socket, &hello, fds);

    if (result == 0 && errno != EAGAIN)
        shm_back_off(state, peer->socket, SHM_ON_SOCKET, peer->rank);
    if (result == 0)
        return;
    if (result < 0 && machine_runs(peer->pid)) { /* the peer dropped the call or is closing */
        call_retry(state, peer);
        return;
    }
    if (result < 0) {
        shm_connection_ended(state, peer);
        return;
    }
    if (!shm_hello_valid(&hello, state->config.rank, state->config.world_size, state->job) ||
        hello.from != peer->rank || (hello.kind == SHM_ACCEPT && fds[0] < 0)) {
        hello.kind = SHM_REFUSE;
        hello.status = DIST_ERR_PEER_LOST;
    }
    if (hello.kind == SHM_ACCEPT) {
        peer->doorbell = fds[0];
        fds[0] = -1;
        fcntl(peer->doorbell, F_SETFL, O_NONBLOCK);
        shm_connection_connected(state, peer, 0, &hello);
    } else if (hello.kind == SHM_DEFER) {
        shm_connection_release(state, peer);
        disti_shm_connection_set_phase(state, peer, SHM_NEEDED);
        peer->call_ns = disti_now_ns() + CALL_RETRY_NS;
    } else {
        disti_fail(DIST_ERR_PEER_LOST, "shm: rank %d (pid %d) refused to share memory: %s",
                   peer->rank, peer->pid, dist_status_string(hello.status));
        disti_shm_connection_lose(state, peer,
                                  hello.status < 0 ? hello.status : DIST_ERR_PEER_LOST);
    }
    shm_close_fds(fds, SHM_HELLO_FDS);
}

/* Accepting calls. A caller that has not sent its hello yet may be a rank, so it is kept. */

#define ACCEPT_ACCEPTS 32  /* accepted calls in one poll */
#define ACCEPT_CAPACITY 32 /* initial capacity for callers that have not sent a hello */
/*
 * The limit of callers without a hello, in addition to the world size. Above it, the oldest one is
 * disconnected; if it is a rank, it calls again.
 */
#define ACCEPT_STRANGERS 256

/* Answers a call with DEFER or REFUSE and closes the socket. */
static void accept_decline(struct shm_state *state, struct shm_peer *peer, int socket,
                           enum shm_hello_kind kind, dist_status status)
{
    struct shm_hello hello;

    shm_connection_hello(state, peer, kind, &hello);
    hello.status = status;
    disti_shm_hello_send(socket, &hello, NULL, 0);
    disti_descriptor_close(socket);
}

/*
 * The called rank's part: maps the caller's memory, sends ACCEPT, and takes ownership of the
 * doorbell and the socket.
 */
static dist_status accept_adopt(struct shm_state *state, struct shm_peer *peer, int socket,
                                const struct shm_hello *hello, int fds[SHM_HELLO_FDS])
{
    struct shm_hello answer;
    dist_status status;

    if (!fifo_bytes_valid(hello->fifo_bytes) || fds[0] < 0 || fds[1] < 0 ||
        fcntl(fds[1], F_SETFL, O_NONBLOCK) < 0)
        return disti_fail(
            DIST_ERR_SYSTEM,
            "shm: rank %d sent an invalid hello: give all ranks the same version of libdist",
            peer->rank);
    shm_connection_release(state, peer); /* this rank's own call, if any */
    peer->fifo_bytes = (size_t)hello->fifo_bytes;
    status = disti_shm_memory_map(fds[0], peer->fifo_bytes, &peer->pair);
    if (status != DIST_OK)
        return status;
    shm_connection_hello(state, peer, SHM_ACCEPT, &answer);
    if (!shm_watch(state, socket, SHM_ON_SOCKET, peer->rank, 0) ||
        !disti_shm_hello_send(socket, &answer, &state->doorbell, 1))
        return disti_fail_errno(DIST_ERR_PEER_LOST, "shm: cannot answer rank %d (pid %d)",
                                peer->rank, peer->pid);
    peer->socket = socket;
    peer->doorbell = fds[1];
    peer->key = hello->key;
    fds[1] = -1;
    return DIST_OK;
}

/*
 * Handles the hello of a caller that runs as this user. Takes ownership of the socket and the
 * descriptors.
 */
static void accept_called(struct shm_state *state, int socket, int pid,
                          const struct shm_hello *hello, int fds[SHM_HELLO_FDS])
{
    struct shm_peer *peer = NULL;
    dist_status status;

    if (shm_hello_valid(hello, state->config.rank, state->config.world_size, state->job) &&
        hello->kind == SHM_CALL)
        peer = disti_shm_connection_peer(state, hello->from);
    if (!peer) {
        disti_info("shm: refused process %d, which is not a rank of this job", pid);
        disti_descriptor_close(socket);
    } else if (peer->phase == SHM_CALLING && state->config.rank < peer->rank) {
        accept_decline(state, peer, socket, SHM_DEFER, DIST_OK);
    } else if (peer->phase == SHM_CONNECTED || peer->phase == SHM_LOST) {
        accept_decline(state, peer, socket, SHM_REFUSE, DIST_ERR_PEER_LOST);
    } else {
        peer->pid = pid;
        status = accept_adopt(state, peer, socket, hello, fds);
        if (status == DIST_OK) {
            shm_connection_connected(state, peer, 1, hello);
        } else {
            accept_decline(state, peer, socket, SHM_REFUSE, status);
            disti_shm_connection_lose(state, peer, status);
        }
    }
    shm_close_fds(fds, SHM_HELLO_FDS);
}

/* Keeps a caller that has not sent its hello until the timeout of blocking calls has passed. */
static void accept_park(struct shm_state *state, int socket, int pid)
{
    int capacity = state->pending_capacity, slot = 0;

    while (slot < capacity && state->pending[slot].socket >= 0)
        slot++;
    if (slot == capacity && capacity < state->config.world_size + ACCEPT_STRANGERS) {
        int more = capacity ? capacity * 2 : ACCEPT_CAPACITY;
        struct shm_pending *pending = realloc(state->pending, (size_t)more * sizeof(*pending));

        if (pending) {
            state->pending = pending;
            while (state->pending_capacity < more)
                pending[state->pending_capacity++].socket = -1;
        }
    }
    if (slot == state->pending_capacity && capacity) {
        /* Disconnects the oldest caller. If it is a rank, it calls again. */
        slot = 0;
        for (int i = 1; i < state->pending_capacity; i++) {
            if (state->pending[i].deadline_ns < state->pending[slot].deadline_ns)
                slot = i;
        }
        shm_close_fd(&state->pending[slot].socket);
    }
    if (slot == state->pending_capacity || !shm_watch(state, socket, SHM_ON_PENDING, slot, 0)) {
        disti_descriptor_close(socket); /* out of memory or of epoll entries: a rank calls again */
        return;
    }
    state->pending[slot] = (struct shm_pending){
        .socket = socket, .pid = pid, .deadline_ns = disti_deadline_ms(state->config.timeout_ms)};
}

/* Returns true if a packet or an error was read; the socket has then been closed or taken over. */
static bool accept_read(struct shm_state *state, int socket, int pid)
{
    struct shm_hello hello;
    int fds[SHM_HELLO_FDS];
    int result = disti_shm_hello_receive(socket, &hello, fds);

    if (result == 0)
        return false;
    if (result < 0)
        disti_descriptor_close(socket);
    else
        accept_called(state, socket, pid, &hello, fds);
    return true;
}

/* Accepts callers from the listener. */
static void shm_accept_callers(struct shm_state *state)
{
    for (int i = 0; i < ACCEPT_ACCEPTS; i++) {
        int socket = disti_descriptor_own(
            accept4(state->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
        uint32_t uid;
        int pid;

        if (socket < 0 &&
            (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM))
            shm_back_off(state, state->listener, SHM_ON_LISTENER, 0);
        if (socket < 0 && (errno == ECONNABORTED || errno == EINTR))
            continue;
        if (socket < 0)
            return;
        /*
         * address.uid is the user that opened the transport. If the ranks have changed their
         * effective user since then, they call as the new user.
         */
        if (!shm_hello_peer(socket, &uid, &pid) ||
            !(uid == state->address.uid || uid == (uint32_t)geteuid())) {
            disti_info("shm: refused a process of another user");
            disti_descriptor_close(socket);
        } else if (!accept_read(state, socket, pid)) {
            accept_park(state, socket, pid);
        }
    }
}

/* Reads the hello of a caller in `pending`. Watches the socket again if none has arrived. */
static void shm_accept_pending(struct shm_state *state, int slot)
{
    struct shm_pending *pending = &state->pending[slot];
    int socket = pending->socket;
    bool silent;

    if (socket < 0 || epoll_ctl(state->poll, EPOLL_CTL_DEL, socket, NULL) < 0)
        return;
    if (accept_read(state, socket, pending->pid)) { /* the socket has been closed or taken over */
        state->pending[slot].socket = -1;
        return;
    }
    silent = errno == EAGAIN;
    shm_watch(state, socket, SHM_ON_PENDING, slot, 0);
    if (!silent)
        shm_back_off(state, socket, SHM_ON_PENDING, slot);
}

/* The epoll, its events, and retries after a lack of descriptors. */

#define WATCH_BACKLOG 4096
#define WATCH_EVENTS 32

/* Once resume_ns has passed, resumes polling the sockets that shm_back_off disabled. */
static void watch_resume(struct shm_state *state)
{
    if (!state->resume_ns || disti_now_ns() < state->resume_ns)
        return;
    state->resume_ns = 0;
    /* Fails for a descriptor of -1, which is harmless. */
    watch_epoll(state, EPOLL_CTL_MOD, state->listener, EPOLLIN, SHM_ON_LISTENER, 0);
    for (int i = 0; i < state->pending_capacity; i++)
        watch_epoll(state, EPOLL_CTL_MOD, state->pending[i].socket, EPOLLIN, SHM_ON_PENDING, i);
    for (int rank = 0; rank < state->config.world_size; rank++) {
        if (state->peers[rank] && state->peers[rank]->phase == SHM_CALLING)
            watch_epoll(state, EPOLL_CTL_MOD, state->peers[rank]->socket, EPOLLIN, SHM_ON_SOCKET,
                        rank);
    }
}

dist_status disti_shm_connection_open(struct shm_state *state)
{
    struct sockaddr_un name;
    socklen_t size = disti_shm_machine_socket(&state->address, &name);

    state->poll = disti_descriptor_own(epoll_create1(EPOLL_CLOEXEC));
    state->doorbell = disti_descriptor_own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    state->listener =
        disti_descriptor_own(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (state->poll < 0 || state->doorbell < 0 || state->listener < 0)
        return disti_fail_call("epoll_create1, eventfd or socket",
                               "shm: rank %d cannot listen to its peers", state->config.rank);
    if (bind(state->listener, (struct sockaddr *)&name, size) < 0 ||
        listen(state->listener, WATCH_BACKLOG) < 0)
        return disti_fail_errno(DIST_ERR_SYSTEM, "shm: cannot listen on a Unix socket");
    /* The doorbell is edge-triggered and never read: its counter has 64 bits. */
    if (!shm_watch(state, state->listener, SHM_ON_LISTENER, 0, 0) ||
        !shm_watch(state, state->doorbell, SHM_ON_DOORBELL, 0, EPOLLET))
        return disti_fail_errno(DIST_ERR_SYSTEM, "shm: epoll_ctl failed");
    return DIST_OK;
}

static void watch_handle(struct shm_state *state, uint64_t data)
{
    int index = (int)(uint32_t)data;
    struct shm_peer *peer;
    char byte;

    switch ((enum shm_event)(data >> 32)) {
    case SHM_ON_LISTENER:
        shm_accept_callers(state);
        break;
    case SHM_ON_PENDING:
        shm_accept_pending(state, index);
        break;
    case SHM_ON_SOCKET:
        peer = state->peers[index];
        /*
         * A connected peer sends nothing on its socket: the socket becomes readable only when the
         * peer closes it.
         */
        if (peer->phase == SHM_CALLING)
            shm_call_answered(state, peer);
        else if (peer->phase == SHM_CONNECTED &&
                 (recv(peer->socket, &byte, 1, MSG_DONTWAIT) >= 0 || errno != EAGAIN))
            shm_connection_ended(state, peer);
        break;
    case SHM_ON_PROCESS:
        if (state->peers[index]->phase == SHM_CONNECTED)
            shm_connection_ended(state, state->peers[index]);
        break;
    case SHM_ON_DOORBELL:
        break;
    }
}

int disti_shm_connection_poll(struct shm_state *state)
{
    struct epoll_event events[WATCH_EVENTS];
    int count, handled = 0, held = disti_cancel_hold();
    int64_t now = 0;

    watch_resume(state);
    count = epoll_wait(state->poll, events, WATCH_EVENTS, 0);
    state->calls = 0;
    state->poll_now = count == WATCH_EVENTS;
    for (int i = 0; i < count; i++) {
        watch_handle(state, events[i].data.u64);
        handled += events[i].data.u64 >> 32 != SHM_ON_DOORBELL;
    }
    /* Disconnect callers that sent no hello in time. */
    for (int i = 0; i < state->pending_capacity; i++) {
        struct shm_pending *pending = &state->pending[i];

        if (pending->socket >= 0 && disti_expired(pending->deadline_ns))
            shm_close_fd(&pending->socket);
    }
    if (state->connecting)
        now = disti_now_ns();
    for (int rank = 0; now && rank < state->config.world_size; rank++) {
        struct shm_peer *peer = state->peers[rank];

        if (peer && peer->phase == SHM_NEEDED && state->addresses[rank].magic &&
            peer->call_ns <= now)
            call_peer(state, peer);
    }
    disti_cancel_let(held);
    return handled;
}
