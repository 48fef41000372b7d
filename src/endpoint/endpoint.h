/* SPDX-License-Identifier: BSD-3-Clause */
/* Opened transports: shared by the groups of a world, and the attachment of an engine to one. */
#ifndef DISTI_ENDPOINT_ENDPOINT_H
#define DISTI_ENDPOINT_ENDPOINT_H

#include <dist/backend.h>

#include <sys/queue.h>

/*
 * A transport that can forget one group's messages (its slot cancel) is opened once a world, with
 * the world's ranks. The groups' engines have attachments to that endpoint, and their tags tell
 * them apart; so a group costs no listener and no connection. Other transports are opened for each
 * group, and their endpoint has that one attachment.
 *
 *     group 0   engine -- attachment --.
 *     group 1   engine -- attachment --+--- endpoint --- transport --- connections
 *     group 2   engine -- attachment --'    lock
 *
 * An endpoint has a lock, below those of the groups. Whoever drives a group moves the whole
 * endpoint, and so ends other groups' requests as well. An engine does not look at what a transport
 * may be writing: it learns what its requests have come to in a call of its own attachment.
 *
 * Of the threads that sleep one watches: it has the transport armed and sleeps on its descriptor.
 * The others sleep on their doorbells, and whoever ends a request of theirs rings. A thread that
 * moves the endpoint takes the watch from the sleeper, and gives it to one when it has done:
 *
 *     thread 1   sleeps, watches  ............. rung: watches again
 *     thread 2                   moves the endpoint, ends, leaves
 */
struct disti_endpoint;

/* A request of an engine: the transport has `request` while status is IN_PROGRESS. */
struct engine_request {
    struct dist_request request;      /* the engine fills envelope and data or sink */
    dist_status status;               /* as of the last call of the attachment */
    int peer;                         /* in the group; so is request.peer once it has ended */
    LIST_ENTRY(engine_request) entry; /* the attachment's */
};

/* An engine's part of an endpoint. */
struct engine_attachment {
    const struct dist_transport *transport;
    struct disti_endpoint *endpoint;
    int peers; /* ranks that are reached through it */
    int rank, ranks;
    const int *members; /* rank in the transport by rank in the group; NULL: they are the same */
    uint32_t group;
    /* Guarded by the endpoint's lock. */
    LIST_ENTRY(engine_attachment) entry; /* of the endpoint */
    LIST_HEAD(, engine_request) out;     /* that have not ended */
    uint64_t seen;                       /* the endpoint's `happened` at the last look at them */
    bool asleep, from_any;
    struct engine_attachment *next_asleep;
    int doorbell, fd; /* the sleeper's; the transport's, -1: it sleeps on the doorbell alone */
    char *why;        /* what was reported of requests that failed; or NULL */
};

/* What disti_attachment_arm returns besides what a transport does: the doorbell will ring. */
#define DISTI_ATTACHMENT_DOORBELL (-4)

/* engine/mismatch.c: what all tags of a group have in these bits, and no other group's that lives.
 */
#define DISTI_TAG_GROUP_SHIFT 44
#define DISTI_TAG_CHANNEL_BITS 6 /* DISTI_CHANNELS and one more */
#define DISTI_TAG_GROUP_MASK (~UINT64_C(0) << DISTI_TAG_GROUP_SHIFT)
uint64_t disti_tag_group(uint32_t group);

/*
 * Opens the transport, or finds it open. The attachment must stay where it is until it is closed,
 * which must be done even if this fails. config and members live as long.
 */
dist_status disti_attachment_open(struct engine_attachment *attachment,
                                  const struct dist_transport *transport,
                                  const struct dist_backend_config *config, void *context);

/* Has another group of the world opened this transport? */
bool disti_attachment_is_open(const struct dist_transport *transport,
                              const struct dist_backend_config *config);

/* The slots of these names; peers are ranks of the group. */
dist_status disti_attachment_address(struct engine_attachment *attachment, void *blob,
                                     size_t *size_p);
dist_status disti_attachment_reach(struct engine_attachment *attachment, const void *blob,
                                   size_t size, struct dist_reach *reach_p);
dist_status disti_attachment_connect(struct engine_attachment *attachment, int peer,
                                     const void *blob, size_t size);
int disti_attachment_probe_tag(struct engine_attachment *attachment, uint64_t tag);
/* Does the peer's machine answer nothing, as far as the transport knows? */
bool disti_attachment_unreachable(const struct engine_attachment *attachment, int peer);
/* Writes "; " and what the transport says of messages to the peer that do not get through, or "".
 */
void disti_attachment_trouble(const struct engine_attachment *attachment, int peer, char *text,
                              size_t size);
void disti_attachment_unexpected(struct engine_attachment *attachment, uint64_t tag, uint64_t mask,
                                 int most, dist_unexpected_fn see, void *arg);

/* Start one, which may end at once. */
void disti_attachment_send(struct engine_attachment *attachment, int peer,
                           struct engine_request *request);
void disti_attachment_recv(struct engine_attachment *attachment, int peer,
                           struct engine_request *request);

/*
 * Moves the endpoint, unless another thread is just doing that, and takes what has ended. Returns
 * how much happened; negative: the transport is broken.
 */
int disti_attachment_progress(struct engine_attachment *attachment);

/*
 * As the slot arm, or DISTI_ATTACHMENT_DOORBELL. The calling thread is the one to sleep, on its
 * doorbell besides. from_any: a message with a tag that no request is for would wake it too.
 */
int disti_attachment_arm(struct engine_attachment *attachment, bool from_any);
void disti_attachment_disarm(struct engine_attachment *attachment);

/* From here on no transport touches a request of the attachment. A attachment that is all zero is
 * accepted. */
void disti_attachment_close(struct engine_attachment *attachment);

/*
 * The calling thread stops moving endpoints. Of those that it has moved, a thread that sleeps takes
 * over the watch. Never blocks.
 */
void disti_endpoints_release(void);

/*
 * Without a store ranks tell each other of failures themselves, by a short message over the
 * endpoints of their world. All ranks here are ranks of the world.
 */
#define DISTI_ENDPOINT_LOST                                                                        \
    DIST_OK /* `of`: a rank that is lost; with a failure: a group that has                         \
               ended with it on the sender */

/*
 * Sends it, with a text (NULL: none), to the ranks r with to[r], as far as an endpoint reaches
 * them, and moves the endpoints until it is sent, for at most half a second.
 */
void disti_endpoints_tell(const char *job, int rank, dist_status news, int of, const char *text,
                          const bool *to);

/*
 * Calls `heard` for all that has come from other ranks since the last call, in order of its
 * arrival. Then, with this rank as the sender, for each rank that ended a request with
 * DIST_ERR_PEER_LOST, once. Moves the endpoints first, and does not block. `heard` is called with
 * the endpoint's lock held; `text` is "" if there is none.
 */
typedef void (*disti_endpoint_heard)(void *arg, int sender, dist_status news, int of,
                                     const char *text);
void disti_endpoints_hear(const char *job, int rank, disti_endpoint_heard heard, void *arg);

/* Closes all endpoints of the world with this name, in which this process has this rank. */
void disti_endpoints_close(const char *job, int rank);

#endif
