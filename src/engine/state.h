/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks that called different things; private to this floor. */
#ifndef DISTI_ENGINE_STATE_H
#define DISTI_ENGINE_STATE_H

#include "base/hash.h"
#include "endpoint/endpoint.h"
#include "engine/engine.h"
#include "node/node.h"
#include "plan/plan.h"
#include "topology/topology.h"
#include "tuning/choose.h"

#include <dist/transport.h>
#include <limits.h>

/* Calls that this rank remembers: how far it may be ahead of one that tells it of a mismatch. */
#define ENGINE_CALLS_KEPT 256

/* Unexpected messages that are looked at: of each peer a few, or all of them. */
#define DISTI_MISMATCH_FEW 8
#define DISTI_MISMATCH_ALL INT_MAX

/* A question to a rank that is waited for. */
struct engine_query {
    struct engine_query *next;
    struct engine_request request;
};

struct dist_engine;

/* What this rank called, to be compared with what the others did. */
struct engine_calls {
    struct engine_called {
        uint64_t fingerprint, history; /* history: of the calls before it */
    } called[ENGINE_CALLS_KEPT];       /* by sequence */
    uint64_t next;                     /* the sequence after the newest call's */
    uint64_t history;                  /* hash of the fingerprints so far */
    bool unpolled;             /* since the last call was posted nobody has polled the links */
    uint64_t waiting;          /* 1 + the sequence of the call that waits; 0: none */
    int64_t ask_ns;            /* when it asks those that it waits for */
    int ask_peer;              /* ranks below it have been asked */
    uint32_t idle;             /* polls that found nothing */
    struct dist_request found; /* peer >= 0: it called something else: its envelope and ours */
    uint64_t found_sequence;
    int suspect; /* a rank whose history before this call is another; negative: see mismatch.c */
    uint64_t suspect_sequence;
    struct engine_query *queries;
};

void disti_mismatch_open(struct dist_engine *engine);
/* After the links have been closed. */
void disti_mismatch_close(struct dist_engine *engine);

/* What stands for a call on its messages: the next, or the newest, which has been noted already. */
uint64_t disti_mismatch_number(const struct dist_engine *engine, uint64_t sequence);

/* Sequences that are left out are calls that no plan served. */
void disti_mismatch_skip(struct engine_calls *calls, uint64_t sequence);

/* The next collective is posted, in the order of all ranks. Returns the hash of all so far, with
 * it. Inline for those that end as they are posted. */
static inline uint64_t disti_mismatch_next(struct engine_calls *calls, uint64_t sequence,
                                           uint64_t fingerprint)
{
    uint64_t history = calls->history;

    calls->called[sequence % ENGINE_CALLS_KEPT] =
        (struct engine_called){.fingerprint = fingerprint, .history = history};
    calls->next = sequence + 1;
    return calls->history = disti_hash_call(history, fingerprint);
}

/* The same behind any that were left out. */
static inline uint64_t disti_mismatch_called(struct engine_calls *calls, uint64_t sequence,
                                             uint64_t fingerprint)
{
    if (calls->next != sequence)
        disti_mismatch_skip(calls, sequence);
    return disti_mismatch_next(calls, sequence, fingerprint);
}

/* The newest was not posted after all. */
static inline void disti_mismatch_uncalled(struct engine_calls *calls)
{
    calls->next--;
    calls->history = calls->called[calls->next % ENGINE_CALLS_KEPT].history;
}

/* Looks at `most` unexpected messages of each peer. True: a rank called something else. */
bool disti_mismatch_look(struct dist_engine *engine, int most);

/* The same, at all of them, while there is nothing else to do; and asks those that the oldest call
 * has waited for for long. */
bool disti_mismatch_rest(struct dist_engine *engine);

/* After a look was true: ERR_MISMATCH, and tells both calls. */
dist_status disti_mismatch_report(const struct dist_engine *engine);

/* What an engine is made of; private to this floor. */

#define ENGINE_TRANSPORTS_MAX 8
#define ENGINE_CACHE_BUCKETS 64
#define ENGINE_RUNNING_MAX 16

/* A plan that was written once; found again by its key. */
struct engine_cached {
    struct engine_cached *next;
    const struct disti_algorithm *algorithm;
    int root;
    uint32_t segments;
    struct disti_plan *plan;
};

/* Memory that a call reads or writes. */
struct engine_span {
    const char *start;
    size_t bytes;
};

/* Where a lane stands: steps before `next` have ended; `busy`: step `next` is under way. */
struct engine_lane {
    uint32_t next;
    bool busy;
    struct engine_request request;
};

/*
 * Where a task stands:
 *
 *                 posted             may run beside those before it
 *   IDLE ----------------> POSTED ----------------> RUNS
 *    ^                                                |
 *    '------------------------------------------------'
 *      all steps have ended, and it has left the queue
 *
 * One that fails stays where it is, in the queue: its requests may be with a transport.
 */
enum engine_task_state { TASK_IDLE, TASK_POSTED, TASK_RUNS };

/*
 * One call under way. A task is used again for a later call with its lanes and scratch.
 * `active` holds the numbers of the lanes that are not at their end.
 */
struct engine_task {
    struct engine_task *next;
    struct engine_task *next_prepared;
    bool prepared; /* kept for one call */
    bool on_node;  /* the boards of the machine serve it, not the steps of a plan */
    enum engine_task_state state;
    struct dist_call call;
    struct dist_ticket *ticket; /* NULL: it has ended */
    uint64_t order;             /* of posting, over collectives, sends and receives */
    const struct disti_plan *plan;
    struct disti_plan no_plan;    /* on_node: without steps, */
    struct disti_node_op node_op; /* and this is done instead */
    bool skips;                   /* a step without data sends no message */
    uint64_t fingerprint;
    uint64_t number; /* on its messages */
    size_t element_bytes, slot_bytes;
    struct disti_layout layouts[2];
    struct engine_span spans[2];
    char *base[2]; /* where IN and OUT begin */
    char *scratch; /* kept from call to call, as is `scaled` */
    size_t scratch_bytes;
    char *scaled; /* IN times PREMUL_SUM's factor, where OUT has no room for it */
    size_t scaled_bytes;
    struct engine_lane *lanes;
    uint32_t *active;
    uint32_t lane_capacity, active_count;
};

/* Where a send or receive stands; p2p.c draws it. */
enum engine_p2p_state {
    P2P_HELD, /* an earlier call must go first */
    P2P_OPEN, /* no transport has it: it is this rank's own, or its peer is not known */
    P2P_OUT,  /* a transport has it */
    P2P_ENDED /* its ticket has ended */
};

struct engine_p2p {
    struct engine_p2p *next;
    struct dist_call call;
    struct dist_ticket *ticket;
    uint64_t order;
    enum engine_p2p_state state;
    struct engine_span spans[2];
    size_t bytes;
    uint64_t fingerprint;
    int peer;                          /* OUT: the rank at the other end */
    bool last;                         /* OUT: when the requests have ended, so has the message */
    struct engine_request requests[2]; /* [0] is the message or its announcement, then the data */
};

/*
 * The last short call of a collective that the boards served, to be begun again as it is:
 *
 *   at_once ---> begun again ---> all are there: OK
 *                     |
 *                     '---------> IN_PROGRESS, `begun` ---> post: looks on, and makes it a task
 */
struct engine_again {
    uint32_t repeats; /* of that call; 0: there is none */
    struct disti_node_op op;
};

struct dist_engine {
    const struct dist_backend_config *config;
    struct disti_topology *topology;
    struct disti_topology *flat; /* for reproducible reductions: ranks in order; else NULL */
    struct disti_choice choice;
    struct disti_tuning tuning;
    struct disti_chooser chooser;
    struct engine_measurement *measuring; /* tune.c's */
    struct engine_attachment links[ENGINE_TRANSPORTS_MAX];
    int link_count;
    struct disti_node *node; /* NULL: the ranks are on several machines, or cannot share memory */
    bool node_armed;
    int tasks, node_tasks; /* in the queue, and those of them on the boards */
    uint32_t polls;
    int armed;      /* links[0 .. armed) are armed for a sleep */
    uint8_t *route; /* by rank: index in links */
    struct engine_cached *cache[ENGINE_CACHE_BUCKETS];
    struct engine_task *head, *tail; /* posted and not ended, in order */
    struct engine_task *idle;        /* ended, to be used again */
    struct engine_task *prepared;    /* kept for calls that come again */
    struct engine_p2p *p2p_head, *p2p_tail, *p2p_idle;
    int p2p_ended;   /* so many in the list have ended */
    uint64_t posted; /* calls so far */
    struct engine_calls calls;
    struct engine_again again[DIST_COLL_COUNT];
    struct disti_node_op *begun; /* by at_once: its post comes next, or the end; NULL: none */
};

/*
 * routes.c: opens the links and fills `route`; closes them. With the addresses each rank's offer is
 * exchanged, *offer becomes rank 0's; and where its board is: *node_p has met all ranks, NULL: they
 * do not all have transport shm. It is the caller's, whatever the status.
 */
dist_status disti_route_open(struct dist_engine *engine,
                             const struct dist_engine_config *engine_config,
                             struct disti_tune_offer *offer, struct disti_node **node_p);
void disti_route_close(struct dist_engine *engine);

/* tune.c: what is left of a measurement that failed; after disti_route_close. */
void disti_tune_links_free(struct dist_engine *engine);

/* engine.c: where in memory a call's blocks are. */

/* IN's and OUT's. */
void disti_bind_layouts(const struct dist_call *call, int rank, struct disti_layout layouts[2]);
/* What the call reads (IN) and writes (OUT), gaps between blocks included. */
void disti_bind_spans(const struct disti_plan *plan, const struct dist_call *call,
                      const struct disti_layout layouts[2], struct engine_span spans[2]);
/* Must one of the two wait for the other, since it writes what that one reads or writes? */
bool disti_spans_clash(const struct engine_span a[2], const struct engine_span b[2]);
/* Bytes of a block for the choice of an algorithm: the same on every rank. */
size_t disti_bind_bytes(const struct dist_call *call, int ranks);

/* engine.c: making, starting and ending a task. */
/* The only way to another state. ERR_INTERNAL: the drawing has no such arrow; it stays. */
dist_status disti_task_go(struct engine_task *task, enum engine_task_state to);
/* Ends the ticket, the first time. */
void disti_ticket_end(struct dist_ticket **ticket, dist_status status);

/* The one that is under way; NULL: none. */
struct engine_task *disti_on_node_first(const struct dist_engine *engine);

/* Does it wait for something of this peer's? */
bool disti_task_waits_for(const struct dist_engine *engine, const struct engine_task *task,
                          int peer);
/* engine.c: "rank 3", or "rank 3 (unreachable)". Returns its length. */
size_t disti_engine_name(const struct dist_engine *engine, int rank, char *text, size_t size);

/* p2p.c: sends and receives. */
dist_status disti_p2p_post(struct dist_engine *engine, const struct dist_call *call,
                           struct dist_ticket *ticket);
/* Moves them along. Returns how much happened, or the failure of one, as its ticket has it. */
int disti_p2p_run(struct dist_engine *engine);
/* Is there a receive from any source that has not found its message? */
bool disti_p2p_waits_for_any(const struct dist_engine *engine);
/* Must the task wait for a send or receive that was posted before it? */
bool disti_p2p_clash(const struct dist_engine *engine, const struct engine_task *task);

/* hint.c: writes "; " and the likely reason that the oldest call waits, or "". */
void disti_engine_hint(const struct dist_engine *engine, const struct engine_task *task,
                       const struct engine_p2p *p2p, char *text, size_t size);
/* Whose message it waits for: "rank 2". */
void disti_p2p_describe(const struct dist_engine *engine, const struct engine_p2p *p, char *text,
                        size_t size);
void disti_p2p_clear(struct dist_engine *engine);

/* mismatch.c: what stands on the messages. */

/* A collective's messages, by the call's number of 37 bits (disti_mismatch_number). Those of calls
 * under way side by side cannot mix. */
uint64_t disti_tag_collective(uint32_t group, uint64_t number, uint16_t channel);
/* Messages from point to point with that tag of the program's, in one of four lines. */
uint64_t disti_tag_p2p(uint32_t group, unsigned line, int tag);
/* The fingerprint of an announcement, which tells the count. */
uint64_t disti_announce(uint64_t fingerprint, size_t count);
/* How long a message is, from its envelope or that of its announcement. */
unsigned long long disti_message_bytes(const struct dist_envelope *envelope);
/* What a call is, in 64 bits, the same on every rank; and back as words for a person. */
uint64_t disti_fingerprint(const struct dist_call *call, int ranks);
void disti_fingerprint_text(uint64_t fingerprint, char *text, size_t size);
/* The receive ended with ERR_MISMATCH: says so for people, and returns it. */
dist_status disti_mismatch(const struct dist_request *request, int rank, uint64_t sequence);

/* Which transports an engine has to choose from; private to this floor. */

/* The backend's transports, and behind them those that DIST_TRANSPORT names besides. */
struct route_list {
    const struct dist_transport *transports[ENGINE_TRANSPORTS_MAX];
    int own, count;
    uint64_t names; /* a hash of the others' names; 0: there are no others */
    void *context;  /* the backend's, for its own */
};

/*
 * What a rank lays before the others: an offer, unless that is told by rank 0 alone; a head; then
 * for each transport of the list the bytes of its address, 0 if it is not open there, and the
 * address, each on a place of its own.
 *
 *      | offer | head | 88 | ... | 32 | ... | zeros to the width that all have |
 */
struct route_head {
    uint64_t names; /* what the transports are called that only DIST_TRANSPORT names */
    uint64_t bytes; /* of the card, without the zeros */
    struct disti_node_hello hello;
};

struct route_cards {
    unsigned char *all; /* by rank */
    size_t width;       /* of one */
    size_t offer;       /* bytes of the offer in it */
    const struct route_list *list;
    struct route_head head; /* this rank's */
};

#endif
