/* SPDX-License-Identifier: BSD-3-Clause */
/* Coming to the store: every address, again and again, until the deadline. */
#include "store/client.h"

#include "base/clock.h"
#include "base/descriptor.h"
#include "base/log.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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

/* The session with a store whose certificate is for the host that was asked for. */
static dist_status connect_tls(int fd, const struct disti_store_target *target,
                               struct disti_tls **tls_p)
{
    struct disti_tls_context *context;
    dist_status status = disti_tls_open(&context);

    *tls_p = NULL;
    if (status != DIST_OK || !context)
        return status;
    *tls_p = disti_tls_call(context, fd, target->host);
    disti_tls_context_free(context);
    return *tls_p ? DIST_OK : disti_fail(DIST_ERR_NO_MEMORY, "no memory for a TLS session");
}

static struct disti_store *connect_store(int fd, struct disti_tls *tls,
                                         const struct addrinfo *address)
{
    struct disti_store *store = disti_store_client_new(fd, tls);
    struct sockaddr_storage own;
    socklen_t size = sizeof(own);
    char host[DISTI_HOST_SIZE];

    if (!store)
        return NULL;
    disti_socket_tune(fd);
    if (getsockname(fd, (struct sockaddr *)&own, &size) == 0)
        disti_address_text((struct sockaddr *)&own, store->local_host);
    disti_address_text(address->ai_addr, host);
    snprintf(store->where, sizeof(store->where), "%s port %d", host,
             disti_address_port(address->ai_addr));
    return store;
}

/* *hopeless_p: to try the address again cannot help, as the last of tries->text says. */
static dist_status connect_address(const struct addrinfo *address,
                                   const struct disti_store_target *target, int64_t deadline,
                                   struct disti_store_tries *tries, struct disti_store **store_p,
                                   bool *hopeless_p)
{
    struct disti_store *store;
    struct disti_tls *tls;
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
            disti_store_tried(tries, "%s", why);
        else
            disti_store_tried(tries, "%s port %d: %s", host, target->port, strerror(error));
        return DIST_IN_PROGRESS;
    }
    if (connect_met_itself(fd)) {
        disti_descriptor_close(fd);
        disti_store_tried(tries, "%s port %d: nothing listens there", host, target->port);
        return DIST_IN_PROGRESS;
    }
    status = connect_tls(fd, target, &tls);
    if (status != DIST_OK) {
        disti_descriptor_close(fd);
        return status;
    }
    store = connect_store(fd, tls, address);
    if (!store)
        return disti_fail_call("epoll_create1 or eventfd",
                               "rank %d cannot set up its end of the store", target->rank);
    status = disti_store_client_greet(
        store, target, target->doubtful ? connect_sooner(deadline, welcome_by) : deadline, tries);
    if (status == DIST_OK)
        *store_p = store;
    else
        disti_store_client_free(store);
    return status;
}

static dist_status connect_unresolved(const struct disti_store_target *target, int code,
                                      struct disti_store_tries *tries)
{
    disti_store_tried(tries, "%s: %s", target->host, gai_strerror(code));
    tries->unresolved = code == EAI_AGAIN;
    if (tries->unresolved) /* the name server does not answer yet */
        return DIST_IN_PROGRESS;
    if (!tries->unresolved_by)
        tries->unresolved_by = disti_deadline_ms(UNRESOLVED_MS);
    if (!disti_expired(tries->unresolved_by))
        return DIST_IN_PROGRESS;
    return disti_fail(DIST_ERR_RENDEZVOUS,
                      "rank %d cannot find the address of \"%s\": %s. Give MASTER_ADDR or the init "
                      "method a name that this machine knows, or a numeric address",
                      target->rank, target->host, gai_strerror(code));
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
    if (code)
        return connect_unresolved(target, code, tries);
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
        return "what was there ended a TLS handshake. See the log of rank 0, and set "
               "DIST_TLS_CERT, DIST_TLS_KEY and DIST_TLS_CA on all ranks, or on none";
    if (tries->unresolved)
        return "the name servers do not answer. See /etc/resolv.conf, or give a numeric address";
    if (tries->stranger)
        return "if another program has that port, rank 0 cannot listen there: choose another one "
               "(MASTER_PORT)";
    if (disti_host_is_loopback(target->host) && !target->one_machine)
        return "that host is this machine itself. If rank 0 runs on another machine, set "
               "MASTER_ADDR to the address of that one";
    return "start rank 0, or see the error that it reported; set the same MASTER_ADDR on all "
           "ranks, or raise the timeout given to init_process_group, else DIST_TIMEOUT (seconds)";
}

int64_t disti_store_warn_at(int64_t deadline)
{
    return connect_sooner(disti_deadline_ms(WARN_MS),
                          disti_deadline_ms(disti_left_ms(deadline) / 2));
}

void disti_store_back_off(int *ms, int most_ms, int64_t deadline)
{
    int left = disti_left_ms(deadline);

    disti_sleep_ns((int64_t)(*ms < left ? *ms : left) * 1000000);
    *ms = *ms * 2 < most_ms ? *ms * 2 : most_ms;
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
                "rank %d finds no store at %s port %d yet (%s), and gives up in %.1f s: %s",
                target->rank, target->host, target->port, tries.text, disti_left_ms(deadline) / 1e3,
                connect_advice(target, &tries));
        }
        disti_store_back_off(&delay_ms, 200, deadline);
    }
}
