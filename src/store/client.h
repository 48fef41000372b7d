/* SPDX-License-Identifier: BSD-3-Clause */
/* The store's client from inside: how it connects, and what it keeps. */
#ifndef DISTI_STORE_CLIENT_H
#define DISTI_STORE_CLIENT_H

#include "base/net.h"
#include "store/wire.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

/* Where to go, and as whom. */
struct disti_store_target {
    const char *host;
    int port;
    int rank; /* -1: the store's choice, see `rank` of the store */
    int world_size;
    const struct disti_secret *secret; /* NULL: none */
    bool doubtful;    /* host and port may be out of date: who is no store there means "not yet" */
    bool probe;       /* leaves at the challenge: there is a store */
    bool one_machine; /* all ranks are known to be on this machine */
    bool warns;       /* after a few seconds without a store: one rank of a machine is enough */
};

/* What the tries so far met; zeroed to begin with. */
struct disti_store_tries {
    char text[400];        /* "127.0.0.1: Connection refused", of the last round */
    int64_t unresolved_by; /* give up on a name that nobody knows; 0: not tried yet */
    bool unresolved;       /* in the last round no name server answered */
    bool stranger;         /* somebody accepts, and does not speak the store's protocol */
    bool tls_ended;        /* in some round a TLS handshake was hung up on */
};

/*
 * One round over all addresses of the name. IN_PROGRESS: nobody there yet, as tries->text
 * says. Any other failure is final, and reported. Blocks until the deadline at most.
 */
dist_status disti_store_try(const struct disti_store_target *target, int64_t deadline,
                            struct disti_store_tries *tries, struct disti_store **store_p);

/*
 * Rounds until the deadline, which is timeout_ms from when the caller began. ERR_RENDEZVOUS
 * says what was tried. The server refuses a second client of one rank, and a world size that is not
 * its own: the error names both sides.
 */
dist_status disti_store_reach(const struct disti_store_target *target, int timeout_ms,
                              int64_t deadline, struct disti_store **store_p);

/* When a rank that still seeks the store warns: halfway to the deadline, after 5 s at the latest.
 */
int64_t disti_store_warn_at(int64_t deadline);

/* Sleeps before the next round, longer each time, not beyond the deadline. */
void disti_store_back_off(int *ms, int most_ms, int64_t deadline);

struct client_news {
    STAILQ_ENTRY(client_news) next;
    struct disti_notice notice;
};

/* A request that waits for its reply: on the stack of the thread that made it. */
struct client_call {
    LIST_ENTRY(client_call) next;
    uint32_t id;
    bool done;
    struct disti_wire_reader reply;
};

/* A process of this machine, see disti_store_watch_process. */
struct client_process {
    LIST_ENTRY(client_process) next;
    int fd; /* its pidfd */
    int rank, pid;
    char text[];
};

/* A group that was aborted, and by which rank of the world. */
struct client_abort {
    LIST_ENTRY(client_abort) next;
    int32_t group;
    int rank;
};

/*
 * Any thread may ask, and wait for its reply beside the others. One of those that wait reads for
 * all; when it has its reply, another takes its `turn`. So does the next who sends, where a frame
 * waits for room. `lock` guards everything from `packed` on, and is let go while one of them
 * sleeps.
 */
struct disti_store {
    int fd;
    struct disti_tls *tls; /* NULL: all goes in clear */
    int epoll_fd, news_fd; /* the fd and an eventfd that is set while there is news */
    LIST_HEAD(, client_process) processes; /* whose end is a notice */
    int64_t look_at;                       /* time of the next look at them */
    int rank;                              /* that it asked for, or was given */
    int world_size;
    unsigned char key[DISTI_STORE_KEY];
    struct disti_wire_id holder;      /* who holds the store; its rank -1: a launcher */
    char where[DISTI_HOST_SIZE + 16]; /* "127.0.0.1 port 29500" */
    char local_host[DISTI_HOST_SIZE]; /* numeric, of this end: the interface that reaches the job */
    pthread_mutex_t lock;
    pthread_cond_t turn;
    unsigned char *packed; /* room for a party; NULL before the hello */
    uint32_t last_id;
    bool halfway; /* somebody sleeps until there is room for the rest of a frame */
    bool reading; /* somebody sleeps until there is something to read */
    LIST_HEAD(, client_call) calls; /* under way */
    struct disti_wire_reader in;
    STAILQ_HEAD(, client_news) news;
    LIST_HEAD(, client_abort) aborts;
    bool lost;        /* the connection is of no use any more */
    bool strange;     /* because the other end speaks another protocol */
    bool asks_tls;    /* which is TLS */
    bool no_tls;      /* because the session is broken, as disti_tls_why says */
    bool holder_left; /* it said goodbye, so its end is no surprise */
    char lost_text[DISTI_NEWS_MAX];
    char cause[DISTI_NEWS_MAX]; /* the first rank's end that the store has told of; "": none */

    /* Without the lock, for alarms. */
    atomic_bool sending; /* somebody puts a frame on the connection */
    struct disti_store_alarm *_Atomic alarms;
};

/*
 * A connected socket becomes a store without a hello; takes the fd, and the session over it (NULL:
 * none). NULL: no memory.
 */
struct disti_store *disti_store_client_new(int fd, struct disti_tls *tls);

/* What goes out. */
struct client_request {
    uint8_t op;
    int32_t arg;
    const char *key; /* may be NULL */
    const void *value;
    size_t bytes;
    bool of_party;                   /* the party stands before the value */
    const struct disti_party *party; /* NULL: all ranks, for no group */
    void (*late)(void *arg); /* called once if the reply does not come soon; NULL: nobody cares */
    void *late_arg;
};

/* Sends a request that has no reply. Statuses as below. */
dist_status disti_store_client_send(struct disti_store *store, const struct client_request *request,
                                    int64_t deadline);

/*
 * Sends a request and waits for its reply. OK: *reply_p is to be given to disti_wire_next.
 * IN_PROGRESS: the deadline has passed. ERR_ABORTED: the group that this thread heeds.
 * ERR_PEER_LOST: the connection is gone. ERR_RENDEZVOUS: the other end speaks another protocol.
 * None of them is reported yet.
 */
dist_status disti_store_client_call(struct disti_store *store, const struct client_request *request,
                                    int64_t deadline, struct disti_wire_reader *reply_p);
void disti_store_client_free(struct disti_store *store);

/* "rank 0 (host node1, pid 812), which holds the store". Returns text. */
#define CLIENT_HOLDER 192

#endif
