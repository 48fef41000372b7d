/* SPDX-License-Identifier: BSD-3-Clause */
/* The store's server from inside: connections, ranks, collectives. One thread owns all of it. */
#ifndef DISTI_STORE_SERVER_H
#define DISTI_STORE_SERVER_H

#include "store/wire.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

#define STORE_HELLO_MS 10000     /* who has not proved by then that he belongs here is dropped */
#define STORE_STRANGERS 256      /* connections without a proof, besides one for each rank */
#define STORE_ACCEPTS 64         /* in a row, before others are heard */
#define STORE_STAY_MS 1000       /* that these have, where no descriptor is left for others */
#define STORE_REFUSALS 8         /* are told of as warnings, the others only at level INFO */
#define STORE_OWN_FILES 16       /* descriptors besides the ranks' connections, at least */
#define STORE_BACK_OFF_MS 100    /* out of descriptors: until the next look at who wants in */
#define STORE_OUT_MAX (1u << 20) /* a client that does not read is not listened to either */
#define STORE_FAILURES_MAX 4096  /* older ones are forgotten: all have heard of them long ago */

struct disti_store_server;

/* One frame on its way out. */
struct store_out {
    STAILQ_ENTRY(store_out) next;
    unsigned char head[DISTI_WIRE_HEAD];
    struct disti_blob *body; /* may be NULL */
};

/* A key as it came: not terminated. */
struct store_key {
    unsigned char bytes[DISTI_KEY_MAX];
    size_t length;
};

/* A request that other ranks take part in. */
struct store_request {
    uint8_t op;
    uint32_t id;
    int64_t deadline;
    struct store_key key;
};

/* A rank of a collective: has it come, and does it wait for the reply to its request `id`? */
struct store_arrival {
    bool here, waits;
    uint32_t id;
    int64_t deadline;
};

/* A collective under way: an ALL_GATHER, BROADCAST, ARRIVE or LEAVE. */
struct store_coll {
    LIST_ENTRY(store_coll) next;
    struct store_key key;
    uint8_t op;
    int32_t group; /* whose it is; DISTI_NO_GROUP */
    int *ranks;    /* the party; NULL: all ranks */
    int size;      /* of the party */
    size_t bytes;  /* each rank's; of a BROADCAST: 0 */
    int first;     /* the rank that began it */
    int count;     /* how many are here */
    int64_t begun_ns;
    int64_t due;                    /* no deadline of an arrival is before this */
    struct store_arrival *arrivals; /* by index in the party */
    struct disti_blob *result; /* size * bytes; of a BROADCAST: what its root gave, NULL before */
    char *refusal;             /* by the first rank that refused to come; NULL: none has */
    dist_status refused;       /* its status */
};

/* A group that one of its ranks has reported as failed. */
struct store_failure {
    TAILQ_ENTRY(store_failure) next;
    int32_t group;
    int rank;
    dist_status status;
    bool echoed; /* it has heard of a second rank's */
    char news[]; /* as long as it is: there may be thousands of these */
};

/* A rank waits for the others to leave a group, in which it has called so many collectives. */
struct store_leaving {
    LIST_ENTRY(store_leaving) next;
    int32_t group;
    int rank;
    uint64_t calls;
};

/* What a scheduler sees of its job. */
struct store_schedule {
    int timeout_ms;     /* for all ranks to come */
    bool formed;        /* they have, once */
    int64_t come_by;    /* until then they may */
    int64_t end_at;     /* nobody is here, and if nobody comes it ends then; 0: somebody is */
    dist_status status; /* of the job so far */
    char text[1024];    /* why it failed */
};

struct store_peer {
    LIST_ENTRY(store_peer) next;
    int fd;
    struct sockaddr_storage from; /* the socket knows no more once it has been reset */
    struct disti_tls *tls;        /* NULL: all goes in clear */
    int rank;                     /* -1 until it has proved that it belongs here */
    int64_t hello_by;
    bool challenged; /* its hello has come, and is answered; `said` is complete */
    struct disti_wire_handshake said;
    struct disti_wire_reader in;
    STAILQ_HEAD(, store_out) out;
    size_t out_sent;  /* of the first frame */
    size_t out_bytes; /* bodies waiting */
    uint32_t events;  /* what epoll watches */
    bool closing;     /* close once everything is out */
    bool dead;        /* to be reaped */
};

/*
 * A rank, by what its client says and does:
 *
 *     ABSENT -- hello --> HERE -- goodbye --> LEFT        all LEFT: a launcher's store
 *       ^                  |                              makes them ABSENT
 *       |                  +-- report --> FAILED -- goodbye, or its connection ends --> LOST
 *       |                  +-- its connection ends --> LOST
 *       +-- withdraws -----+
 */
enum store_state { STORE_ABSENT, STORE_HERE, STORE_FAILED, STORE_LEFT, STORE_LOST };

/* What the server knows about a rank. */
#define STORE_LIST 128
struct store_rank {
    enum store_state state;
    struct store_peer *peer; /* NULL unless HERE or FAILED */
    uint32_t pid, space;
    char host[DISTI_HOST_SIZE];
    char list[STORE_LIST]; /* of the new group that it waits for, or waited for last; "": none */
    int64_t list_until_ns; /* when it stopped to wait; INT64_MAX: it waits */
    char news[DISTI_NEWS_MAX]; /* why it FAILED, LEFT or was LOST */
};

struct disti_store_server {
    int epoll_fd, listen_fd, wake_fd;
    int discovery_fd; /* -1, or a Unix socket that tells port and word, see rendezvous/meet.c */
    int port, world_size;
    bool everywhere;            /* it listens at every address */
    char seen[DISTI_HOST_SIZE]; /* see disti_store_seen_host */
    char only[DISTI_HOST_SIZE]; /* but for the loopback, the one address at which it lets in; "":
                                    any */
    int holder;               /* the rank whose process this is; -1, as after listen: a launcher */
    char job[DISTI_WIRE_JOB]; /* its name: random, and no secret */
    struct disti_tls_context *tls;       /* with which all must come; NULL: none does */
    struct disti_secret secret;          /* what clients must prove to have; empty: nothing */
    unsigned char seed[DISTI_WIRE_SEED]; /* of the world's key */
    int refusals;                        /* of clients without a proof, so far */
    struct store_rank *ranks;
    int here, left;   /* how many are HERE or FAILED, LEFT */
    int gone;         /* how many are FAILED, LEFT or LOST */
    bool formed;      /* all have come */
    bool over;        /* all have come to the end of the world's group: who goes is no news */
    char broken[512]; /* a client came that cannot belong here, before all had come; or "" */
    LIST_HEAD(, store_peer) peers; /* newest first */
    int strangers;
    bool reap;
    int64_t accept_at; /* no new connections before this time: out of descriptors; 0: any time */
    bool short_told;   /* that it is out of descriptors */
    const struct disti_log *log; /* of whoever started it; may be NULL */
    int64_t numbers;             /* taken so far */
    LIST_HEAD(, store_coll) colls;
    TAILQ_HEAD(store_failures, store_failure)
    failures; /* newest first, STORE_FAILURES_MAX at most */
    int failure_count;
    LIST_HEAD(, store_leaving) leavings; /* one for a group at most: who made the fewest calls */
    /* Called once from the server's thread when all ranks have come, or when it stops before. */
    void (*formed_fn)(void *arg);
    void *formed_arg;
    struct store_schedule *schedule; /* NULL: the job is somebody else's care */
    pthread_t thread;
    bool running;
    atomic_bool stop;
    atomic_bool expects_all; /* those who have not come yet, when it stops */
    _Atomic int64_t stop_by;
};

/* ---- for the rendezvous and launchers, before the server runs ---- */

/* What clients must prove to have: a word; "": nothing, as after listen. */
void disti_store_server_set_word(struct disti_store_server *server, const char *word);
/* Another name, and another key for the next world. */
dist_status disti_store_server_renew(struct disti_store_server *server);

/* Answers on a listening Unix socket with port and word until all have come. Takes the socket. */
void disti_store_server_set_discovery(struct disti_store_server *server, int fd);

/* In a child after fork: closes the copies of the descriptors and frees; the parent's go on. */
void disti_store_server_forget(struct disti_store_server *server);

/* Nobody can be let in now, by errno: listens again in a moment. Who waits, waits in the queue. */
void disti_store_server_back_off(struct disti_store_server *server);

/* Queues a frame; takes the reference to body (may be NULL). A failure marks the peer dead. */
void disti_store_peer_send(struct disti_store_server *server, struct store_peer *peer,
                           const struct disti_wire_head *head, struct disti_blob *body);
void disti_store_peer_reply(struct disti_store_server *server, struct store_peer *peer, uint32_t id,
                            dist_status status, struct disti_blob *body);
void disti_store_peer_refuse(struct disti_store_server *server, struct store_peer *peer,
                             uint32_t id, dist_status status, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* ranks.c */
/* It belongs here, and says that it is that client: welcomes it as a rank, or refuses it. */
void disti_store_ranks_join(struct disti_store_server *server, struct store_peer *peer,
                            struct disti_wire_id *id);
void disti_store_ranks_report(struct disti_store_server *server, struct store_peer *peer);
void disti_store_ranks_goodbye(struct disti_store_server *server, struct store_peer *peer);
/* The connection of a rank ended without a goodbye. */
void disti_store_ranks_lost(struct disti_store_server *server, struct store_peer *peer);
/* Tells the ranks of the party (NULL: all), except the rank that it is about. */
void disti_store_ranks_push(struct disti_store_server *server, const struct disti_notice *notice,
                            const struct disti_wire_party *party);
/* Is the rank FAILED or LOST (and with `left`: or LEFT)? */
bool disti_store_ranks_is_gone(const struct disti_store_server *server, int rank, bool left);
/* Forgets collectives, groups that failed, and ranks that wait for others to leave a group. */
void disti_store_ranks_clear(struct disti_store_server *server);

/* How a peer came: the address at this end of its socket, numeric; false: by the loopback. */
bool disti_store_peer_came_by(int fd, char text[DISTI_HOST_SIZE]);

void disti_store_coll_join(struct disti_store_server *server, struct store_peer *peer,
                           const struct store_request *request);
/* Takes a REFUSE: the other ranks of the collective are told, at once or when they ask. */
void disti_store_coll_take_refusal(struct disti_store_server *server, struct store_peer *peer);

/* Ends what is due. Returns when the next one is; INT64_MAX: none. */
int64_t disti_store_coll_tick(struct disti_store_server *server);
/* Ends those in which the rank takes part (-1: any), of the group (DISTI_NO_GROUP: of any). */
void disti_store_coll_fail(struct disti_store_server *server, int rank, int32_t group,
                           dist_status status, const char *text);
/* Who waits for others to leave a group. */
void disti_store_leavings_take(struct disti_store_server *server, struct store_peer *peer);

/* rendezvous/meet.c */
void disti_store_discovery_answer(struct disti_store_server *server);

#endif
