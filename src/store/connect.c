/* SPDX-License-Identifier: BSD-3-Clause */
/* Connects a client to the store, and proves the secret; opens files of the launcher. */
#include "base/clock.h"
#include "base/descriptor.h"
#include "base/file.h"
#include "base/log.h"
#include "base/process.h"
#include "base/settings/env.h"
#include "store/client.h"
#include "store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- files in memory that a launcher passes to its ranks ---- */

int disti_handed_secret(const char *word)
{
    const int seals = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    const size_t length = strlen(word);
    const int fd = disti_file_private();
    int error;

    /* EPERM: the file is no memfd, since memfd_create is denied. */
    if (fd >= 0 && fchmod(fd, 0600) == 0 && disti_file_write(fd, word, length) == (ssize_t)length &&
        (fcntl(fd, F_ADD_SEALS, seals) == 0 || errno == EPERM))
        return fd;
    error = errno;
    if (fd >= 0)
        close(fd);
    errno = error;
    return -1;
}

void disti_handed_name(int fd, char text[DISTI_HANDED_TEXT])
{
    struct stat file = {0};

    (void)fstat(fd, &file);
    snprintf(text, DISTI_HANDED_TEXT, "%d:%" PRIu64, fd, (uint64_t)file.st_ino);
}

/* Only files in memory have seals. */
static bool handed_is(int fd, uint64_t inode)
{
    struct stat file;

    return fcntl(fd, F_GET_SEALS) >= 0 && fstat(fd, &file) == 0 && (uint64_t)file.st_ino == inode;
}

int disti_handed_open(enum disti_handed which, const char *path, int flags, int *inherited_p)
{
    uint64_t inode;
    int inherited = -1;
    const char *text;
    struct stat file;
    int fd;

    /* The launcher's numbers of that file, if it has told of it. */
    text = disti_env("DIST_AGENT_FILES");
    for (int i = 0; text && i < (int)which; i++) {
        text = strchr(text, ',');
        text = text ? text + 1 : NULL;
    }
    if (!text || sscanf(text, "%d:%" SCNu64, &inherited, &inode) != 2) {
        *inherited_p = -1;
        return open(path, flags | O_CLOEXEC);
    }
    *inherited_p = inherited;
    if (handed_is(inherited, inode))
        return fcntl(inherited, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    /* To open a device or a FIFO may have effects, so the inode is compared first. */
    if (stat(path, &file) != 0)
        return -1;
    errno = ESTALE;
    if (!S_ISREG(file.st_mode) || (uint64_t)file.st_ino != inode)
        return -1;
    fd = open(path, flags | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0 || handed_is(fd, inode))
        return fd;
    close(fd);
    errno = ESTALE;
    return -1;
}

/* ---- the client's side of the handshake: hello, challenge, proof, welcome ---- */

static const struct disti_secret hello_no_secret;

static const struct disti_secret *hello_secret(const struct disti_store_target *target)
{
    return target->secret ? target->secret : &hello_no_secret;
}

/* One more thing that the round has met. */
__attribute__((format(printf, 2, 3))) static void store_tried(struct disti_store_tries *tries,
                                                              const char *format, ...)
{
    size_t at = strlen(tries->text);
    va_list args;

    if (at && at + 2 < sizeof(tries->text)) {
        memcpy(tries->text + at, "; ", 3);
        at += 2;
    }
    va_start(args, format);
    vsnprintf(tries->text + at, sizeof(tries->text) - at, format, args);
    va_end(args);
}

/* Not let in: for now, or for good, where the store is known to be the right one. */
__attribute__((format(printf, 5, 6))) static dist_status
hello_refused(const struct disti_store *store, const struct disti_store_target *target,
              dist_status status, struct disti_store_tries *tries, const char *format, ...)
{
    char text[DISTI_NEWS_MAX + DISTI_SECRET_WHY];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (status == DIST_IN_PROGRESS || (status == DIST_ERR_MISMATCH && target->doubtful)) {
        store_tried(tries, "%s: %s", store->where, text);
        return DIST_IN_PROGRESS;
    }
    return disti_fail(DIST_ERR_RENDEZVOUS, "%s refused rank %d: %s", store->where, target->rank,
                      text);
}

/* What to do where the secrets are not the same: where this rank has its own from. */
static void hello_remedy(const struct disti_store_target *target, char text[DISTI_SECRET_WHY])
{
    const struct disti_secret *secret = hello_secret(target);
    char host[DISTI_HOST_SIZE];

    disti_host_name(host);
    if (secret->path[0])
        snprintf(text, DISTI_SECRET_WHY,
                 "the secret of this rank (host %s) is from %s: use a file with the same secret on "
                 "all hosts and in all containers (DIST_SECRET_FILE, distrun --secret-file), or "
                 "set DIST_AUTH=none on all ranks",
                 host, secret->path);
    else if (secret->length)
        snprintf(text, DISTI_SECRET_WHY,
                 "the secret of this rank (host %s) came from its launcher or from rank 0: start "
                 "all ranks in the same way",
                 host);
    else
        snprintf(text, DISTI_SECRET_WHY,
                 "this rank (host %s) has no secret: use the same secret file as rank 0 "
                 "(DIST_SECRET_FILE, distrun --secret-file), or set DIST_AUTH=none on all ranks",
                 host);
}

/* The server's answer was a refusal. It has proved nothing: nothing of it may act on a terminal. */
static dist_status hello_take_refusal(const struct disti_store *store,
                                      const struct disti_store_target *target,
                                      const struct disti_wire_reader *reply,
                                      struct disti_store_tries *tries)
{
    const unsigned char *value = disti_wire_value(reply);
    char remedy[DISTI_SECRET_WHY] = "", said[DISTI_NEWS_MAX] = "";
    bool other = reply->head.arg == DIST_ERR_MISMATCH;

    if (other)
        hello_remedy(target, remedy);
    for (size_t i = 0; i < reply->head.value_bytes && i < DISTI_NEWS_MAX - 1; i++)
        said[i] = value[i] >= ' ' && value[i] <= '~' ? (char)value[i] : '?';
    return hello_refused(store, target, reply->head.arg, tries, "%s%s%s", said, other ? "; " : "",
                         remedy);
}

static dist_status hello_nonsense(const struct disti_store *store,
                                  const struct disti_store_target *target, const char *what)
{
    return disti_fail(DIST_ERR_RENDEZVOUS,
                      "rank %d: %s %s: it is not the store of this job. Check which program "
                      "listens there, or choose another port (MASTER_PORT)",
                      target->rank, store->where, what);
}

/* Asks, and takes a reply of that size. OK: *reply_p is to be given to disti_wire_next. */
static dist_status hello_ask(struct disti_store *store, const struct disti_store_target *target,
                             const struct client_request *request, size_t bytes, int64_t deadline,
                             struct disti_store_tries *tries, struct disti_wire_reader *reply_p)
{
    dist_status status = disti_store_client_call(store, request, deadline, reply_p);

    if (status != DIST_OK) {
        const struct client_request withdraw = {.op = DISTI_WIRE_GOODBYE,
                                                .arg = DISTI_WIRE_WITHDRAW};

        /* A store may be slow, and one that is just ending hangs up: only who says nonsense is
         * none. */
        if (store->no_tls) {
            const char *why = disti_tls_why(store->tls);

            /* Certificates that do not fit today will not in a moment. */
            store_tried(tries, "%s: TLS: %s", store->where, why);
            if (target->doubtful || target->probe)
                return DIST_IN_PROGRESS;
            return disti_fail(
                DIST_ERR_RENDEZVOUS,
                "rank %d cannot set up a TLS connection with the store at %s (\"%s\"): %s",
                target->rank, store->where, target->host, why);
        }
        if (status == DIST_IN_PROGRESS) /* it may read our hello yet, and we may come again */
            disti_store_client_send(store, &withdraw, 0);
        store_tried(tries, "%s: %s", store->where,
                    store->asks_tls                ? "requires TLS"
                    : disti_tls_why(store->tls)[0] ? disti_tls_why(store->tls)
                    : store->tls && !disti_tls_is_up(store->tls)
                        ? "does not continue the TLS handshake"
                    : status == DIST_ERR_RENDEZVOUS ? "uses another protocol"
                    : status == DIST_ERR_PEER_LOST  ? "closed the connection"
                                                    : "accepts connections but does not respond");
        tries->stranger = true;
        tries->tls_ended |= disti_tls_why(store->tls)[0] != '\0';
        if (target->doubtful || status != DIST_ERR_RENDEZVOUS)
            return DIST_IN_PROGRESS;
        if (store->asks_tls)
            return disti_fail(
                DIST_ERR_RENDEZVOUS,
                "rank %d: the store at %s requires TLS, but this rank does not use it: set "
                "DIST_TLS_CERT, DIST_TLS_KEY and DIST_TLS_CA on all ranks, or on none",
                target->rank, store->where);
        return disti_fail(DIST_ERR_RENDEZVOUS,
                          "rank %d: the program that listens on %s is not a store of libdist (it "
                          "uses another protocol): choose another port (MASTER_PORT)",
                          target->rank, store->where);
    }
    if (reply_p->head.arg != DIST_OK)
        status = hello_take_refusal(store, target, reply_p, tries);
    else if (reply_p->head.value_bytes != bytes)
        status = hello_nonsense(store, target, "sent a reply of the wrong size");
    if (status != DIST_OK)
        disti_wire_next(reply_p);
    return status;
}

static dist_status hello_say(struct disti_store *store, const struct disti_store_target *target,
                             int64_t deadline, struct disti_store_tries *tries,
                             struct disti_wire_handshake *said)
{
    struct disti_wire_id id = {.rank = target->rank,
                               .world_size = (uint32_t)target->world_size,
                               .pid = (uint32_t)getpid(),
                               .space = disti_process_space(),
                               .flags = hello_secret(target)->length ? DISTI_WIRE_SECRET : 0};
    const struct client_request hello = {
        .op = DISTI_WIRE_HELLO, .value = said->hello, .bytes = sizeof(said->hello)};
    struct disti_wire_reader reply;
    dist_status status;

    if (!disti_nonce(id.proof))
        return disti_fail_call("getrandom", "rank %d cannot get random bytes", target->rank);
    disti_host_name(id.host);
    disti_wire_put_id(said->hello, &id);
    store->rank = target->rank;
    store->world_size = target->world_size;
    store->packed = malloc(disti_wire_party_bytes((size_t)target->world_size));
    if (!store->packed)
        return disti_fail(DIST_ERR_NO_MEMORY, "rank %d has no memory for a world of %d ranks",
                          target->rank, target->world_size);
    status = hello_ask(store, target, &hello, sizeof(said->challenge), deadline, tries, &reply);
    if (status != DIST_OK)
        return status;
    memcpy(said->challenge, disti_wire_value(&reply), sizeof(said->challenge));
    said->binding_bytes = disti_tls_binding(store->tls, said->binding);
    disti_wire_next(&reply);
    return DIST_OK;
}

/* Is it worth while to prove anything? A secret is not given up because the other has none. */
static dist_status hello_compare(const struct disti_store *store,
                                 const struct disti_store_target *target,
                                 const struct disti_wire_handshake *said,
                                 struct disti_store_tries *tries)
{
    uint32_t flags = disti_wire_get32(said->challenge + DISTI_NONCE_BYTES);
    char remedy[DISTI_SECRET_WHY];

    if (target->probe)
        return hello_refused(store, target, DIST_IN_PROGRESS, tries, "there is a store");
    if ((flags & DISTI_WIRE_SECRET) == (hello_secret(target)->length ? DISTI_WIRE_SECRET : 0))
        return DIST_OK;
    hello_remedy(target, remedy);
    return hello_refused(store, target, DIST_ERR_MISMATCH, tries, "the store there %s; %s",
                         flags & DISTI_WIRE_SECRET ? "requires a secret" : "has no secret", remedy);
}

/* Who holds the store, and which rank it has let this client be. */
static dist_status hello_take_welcome(struct disti_store *store,
                                      const struct disti_store_target *target,
                                      const struct disti_wire_handshake *said,
                                      const unsigned char *welcome)
{
    const struct disti_hmac_piece seed = {welcome + DISTI_WIRE_ID + 4, DISTI_WIRE_SEED};
    unsigned char proof[DISTI_HMAC_BYTES];
    int rank = (int32_t)disti_wire_get32(welcome + DISTI_WIRE_ID);

    disti_wire_prove_server(said, welcome, hello_secret(target), proof);
    if (!disti_hmac_same(proof, welcome + 16))
        return hello_nonsense(store, target, "did not prove that it has the job's secret");
    if (!disti_wire_get_id(welcome, &store->holder) || rank < 0 || rank >= target->world_size ||
        (target->rank >= 0 && rank != target->rank))
        return hello_nonsense(store, target, "sent an invalid reply to the handshake");
    /* The key of the world, which only those know who have the secret and have heard the seed. */
    disti_prove(hello_secret(target), "libdist world", &seed, 1, store->key);
    store->rank = rank;
    store->in.limit = DISTI_WIRE_GATHER_MAX;
    disti_tls_trust(store->tls);
    return DIST_OK;
}

/*
 * Proves to the server that this client has the secret, has it prove the same, and becomes
 * a rank there. IN_PROGRESS: not now, as tries->text says; other failures are reported.
 */
static dist_status store_client_greet(struct disti_store *store,
                                      const struct disti_store_target *target, int64_t deadline,
                                      struct disti_store_tries *tries)
{
    unsigned char proof[DISTI_HMAC_BYTES];
    const struct client_request prove = {
        .op = DISTI_WIRE_PROOF, .value = proof, .bytes = sizeof(proof)};
    struct disti_wire_handshake said;
    struct disti_wire_reader reply;
    dist_status status = hello_say(store, target, deadline, tries, &said);

    if (status == DIST_OK)
        status = hello_compare(store, target, &said, tries);
    if (status != DIST_OK)
        return status;
    disti_wire_prove_client(&said, hello_secret(target), proof);
    status = hello_ask(store, target, &prove, DISTI_WIRE_WELCOME, deadline, tries, &reply);
    if (status != DIST_OK)
        return status;
    status = hello_take_welcome(store, target, &said, disti_wire_value(&reply));
    disti_wire_next(&reply);
    return status;
}

/* ---- connecting: every address, again and again, until the deadline ---- */

#define CONNECT_MS 5000    /* for one address: a machine that does not answer */
#define DOUBTFUL_MS 1000   /* the same, where another place may be announced meanwhile */
#define WELCOME_MS 30000   /* the same, for an answer to the hello */
#define UNRESOLVED_MS 5000 /* a name that nobody knows */
#define WARN_MS 5000       /* until a rank that finds no store warns */

static int64_t connect_sooner(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* A connected, non-blocking socket, or -1 and errno. */
static int connect_socket(const struct addrinfo *address, int64_t deadline)
{
    int fd = disti_descriptor_own(
        socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    struct pollfd ready = {.fd = fd, .events = POLLOUT};
    int error = 0;
    socklen_t size = sizeof(error);

    if (fd < 0)
        return -1;
    if (connect(fd, address->ai_addr, address->ai_addrlen) == 0)
        return fd;
    error = errno;
    if (error == EINPROGRESS) {
        while (poll(&ready, 1, disti_left_ms(deadline)) < 0 && errno == EINTR)
            ;
        error = ETIMEDOUT;
        if (ready.revents)
            getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
    }
    if (!error)
        return fd;
    disti_descriptor_close(fd);
    errno = error;
    return -1;
}

/* A free local port can be the very port that is asked for: the socket then meets itself. */
static bool connect_met_itself(int fd)
{
    struct sockaddr_storage own, other;
    socklen_t own_size = sizeof(own), other_size = sizeof(other);
    char own_text[DISTI_HOST_SIZE], other_text[DISTI_HOST_SIZE];

    if (getsockname(fd, (struct sockaddr *)&own, &own_size) ||
        getpeername(fd, (struct sockaddr *)&other, &other_size))
        return false;
    disti_address_text((struct sockaddr *)&own, own_text);
    disti_address_text((struct sockaddr *)&other, other_text);
    return strcmp(own_text, other_text) == 0 && disti_address_port((struct sockaddr *)&own) ==
                                                    disti_address_port((struct sockaddr *)&other);
}

/* *hopeless_p: to try the address again cannot help, as the last of tries->text says. */
static dist_status connect_address(const struct addrinfo *address,
                                   const struct disti_store_target *target, int64_t deadline,
                                   struct disti_store_tries *tries, struct disti_store **store_p,
                                   bool *hopeless_p)
{
    struct disti_store *store;
    struct disti_tls_context *context;
    struct disti_tls *tls = NULL;
    struct sockaddr_storage own;
    socklen_t size = sizeof(own);
    char host[DISTI_HOST_SIZE], why[256];
    dist_status status;
    int64_t connect_by = disti_deadline_ms(target->doubtful ? DOUBTFUL_MS : CONNECT_MS);
    int64_t welcome_by = disti_deadline_ms(WELCOME_MS);
    int fd = connect_socket(address, connect_sooner(deadline, connect_by)), error = errno;

    *hopeless_p = false;
    disti_address_text(address->ai_addr, host);
    if (fd < 0) {
        /* EADDRNOTAVAIL may mean that all local ports are in use at the moment. */
        *hopeless_p = error != EADDRNOTAVAIL &&
                      disti_address_is_hopeless(address->ai_addr, error, why, sizeof(why));
        if (*hopeless_p)
            store_tried(tries, "%s", why);
        else
            store_tried(tries, "%s port %d: %s", host, target->port, strerror(error));
        return DIST_IN_PROGRESS;
    }
    if (connect_met_itself(fd)) {
        disti_descriptor_close(fd);
        store_tried(tries, "%s port %d: no process listens there", host, target->port);
        return DIST_IN_PROGRESS;
    }
    /* The session with a store whose certificate is for the host that was asked for. */
    status = disti_tls_open(&context);
    if (status == DIST_OK && context) {
        tls = disti_tls_call(context, fd, target->host);
        disti_tls_context_free(context);
        if (!tls)
            status = disti_fail(DIST_ERR_NO_MEMORY, "no memory for a TLS session");
    }
    if (status != DIST_OK) {
        disti_descriptor_close(fd);
        return status;
    }
    store = disti_store_client_new(fd, tls);
    if (!store)
        return disti_fail_call("epoll_create1 or eventfd",
                               "rank %d cannot set up its connection to the store", target->rank);
    disti_socket_tune(fd);
    if (getsockname(fd, (struct sockaddr *)&own, &size) == 0)
        disti_address_text((struct sockaddr *)&own, store->local_host);
    snprintf(store->where, sizeof(store->where), "%s port %d", host,
             disti_address_port(address->ai_addr));
    status = store_client_greet(
        store, target, target->doubtful ? connect_sooner(deadline, welcome_by) : deadline, tries);
    if (status == DIST_OK)
        *store_p = store;
    else
        disti_store_client_free(store);
    return status;
}

dist_status disti_store_try(const struct disti_store_target *target, int64_t deadline,
                            struct disti_store_tries *tries, struct disti_store **store_p)
{
    struct addrinfo *addresses, *a;
    dist_status status = DIST_IN_PROGRESS;
    int code = disti_resolve(target->host, target->port, deadline, &addresses);
    bool hopeless, all_hopeless = true;

    if (code == EAI_AGAIN && tries->text[0] && disti_expired(deadline))
        return DIST_IN_PROGRESS; /* no time is left: keep what the round before met */
    tries->text[0] = 0;
    tries->stranger = tries->unresolved = false;
    if (code) {
        store_tried(tries, "%s: %s", target->host, gai_strerror(code));
        tries->unresolved = code == EAI_AGAIN;
        if (tries->unresolved) /* the name server does not answer yet */
            return DIST_IN_PROGRESS;
        if (!tries->unresolved_by)
            tries->unresolved_by = disti_deadline_ms(UNRESOLVED_MS);
        if (!disti_expired(tries->unresolved_by))
            return DIST_IN_PROGRESS;
        return disti_fail(
            DIST_ERR_RENDEZVOUS,
            "rank %d cannot find the address of \"%s\": %s. Set MASTER_ADDR or the init method to "
            "a name that this machine can resolve, or to a numeric address",
            target->rank, target->host, gai_strerror(code));
    }
    for (a = addresses; a && status == DIST_IN_PROGRESS; a = a->ai_next) {
        status = connect_address(a, target, deadline, tries, store_p, &hopeless);
        all_hopeless = all_hopeless && hopeless;
    }
    freeaddrinfo(addresses);
    if (status == DIST_IN_PROGRESS && all_hopeless)
        return disti_fail(DIST_ERR_RENDEZVOUS, "rank %d cannot reach \"%s\" port %d: %s",
                          target->rank, target->host, target->port, tries->text);
    return status;
}

/* Names the likely cause, and what to do. */
static const char *connect_advice(const struct disti_store_target *target,
                                  const struct disti_store_tries *tries)
{
    if (tries->tls_ended)
        return "a TLS handshake failed there. See the log of rank 0, and set DIST_TLS_CERT, "
               "DIST_TLS_KEY and DIST_TLS_CA on all ranks, or on none";
    if (tries->unresolved)
        return "the name servers do not respond. Check /etc/resolv.conf, or use a numeric address";
    if (tries->stranger)
        return "if another program has that port, rank 0 cannot listen there: choose another port "
               "(MASTER_PORT)";
    if (disti_host_is_loopback(target->host) && !target->one_machine)
        return "that host is this machine itself. If rank 0 runs on another machine, set "
               "MASTER_ADDR to the address of that machine";
    return "start rank 0, or see the error that it reported; set the same MASTER_ADDR on all "
           "ranks, or raise the timeout passed to init_process_group, or DIST_TIMEOUT (seconds)";
}

void disti_store_back_off(int *ms, int most_ms, int64_t deadline)
{
    int left = disti_left_ms(deadline);

    disti_sleep_ns((int64_t)(*ms < left ? *ms : left) * 1000000);
    *ms = *ms * 2 < most_ms ? *ms * 2 : most_ms;
}

int64_t disti_store_warn_at(int64_t deadline)
{
    return connect_sooner(disti_deadline_ms(WARN_MS),
                          disti_deadline_ms(disti_left_ms(deadline) / 2));
}

dist_status disti_store_reach(const struct disti_store_target *target, int timeout_ms,
                              int64_t deadline, struct disti_store **store_p)
{
    struct disti_store_tries tries = {0};
    int delay_ms = 5;
    int64_t warn_at = disti_store_warn_at(deadline);
    struct disti_tls_context *tls;
    dist_status status = disti_tls_open(&tls); /* what is wrong with it is said before any wait */

    disti_tls_context_free(tls);
    if (status != DIST_OK)
        return status;
    for (;;) {
        status = disti_store_try(target, deadline, &tries, store_p);
        if (status != DIST_IN_PROGRESS)
            return status;
        if (disti_expired(deadline))
            return disti_fail(DIST_ERR_RENDEZVOUS,
                              "rank %d found no store at %s port %d within %d ms (%s): %s",
                              target->rank, target->host, target->port, timeout_ms, tries.text,
                              connect_advice(target, &tries));
        if (target->warns && disti_expired(warn_at)) {
            warn_at = INT64_MAX;
            disti_notice(
                "rank %d has found no store at %s port %d yet (%s), and gives up in %.1f s: %s",
                target->rank, target->host, target->port, tries.text, disti_left_ms(deadline) / 1e3,
                connect_advice(target, &tries));
        }
        disti_store_back_off(&delay_ms, 200, deadline);
    }
}
