/* SPDX-License-Identifier: BSD-3-Clause */
/* What agents tell each other, and how it is packed into the store's frames. */
#ifndef DISTI_LAUNCH_AGENTS_MESSAGE_H
#define DISTI_LAUNCH_AGENTS_MESSAGE_H

#include "base/auth.h"
#include "launch/agents/agents.h"
#include "store/wire.h"

/*
 * Frames are those of store/wire.h, with these ops; id is 0, and there is no key. An agent that
 * joins speaks first:
 *
 *     agent                                       server
 *     HELLO   nonce[32] job[128]   -------->
 *                                  <--------      CHALLENGE nonce[32]
 *     JOIN    proof[32] member     -------->
 *                                  <--------      WELCOME   proof[32] welcome
 *
 * A proof is zeroes in a job without a secret, else an HMAC-SHA-256 with the job's secret over who
 * gives it ("agent" or "server" and a zero byte), both nonces, the job, and what follows the proof.
 * Before the server has an agent's proof it believes nothing and keeps nothing; before an agent has
 * the server's, it only shows its user the text of a REFUSED. Frames after these are not proved:
 * who can change packets on the way can change them.
 *
 * Then either side sends, at any time, what follows; in brackets the value.
 */
enum agents_op {
    AGENTS_HELLO = 96,
    AGENTS_CHALLENGE,
    AGENTS_JOIN,
    AGENTS_WELCOME,
    AGENTS_REFUSED, /* (text) from the server, which then closes: no place in the job, or not any
                       more */
    AGENTS_BEAT,    /* a sign of life */
    /* from an agent: */
    AGENTS_READY,  /* (u32 master_port, store_port) for the next round */
    AGENTS_ENDED,  /* (u32 workers that succeeded): all its workers have ended */
    AGENTS_FAILED, /* (failure) */
    AGENTS_LEAVE,  /* (text) */
    /* from the server: */
    AGENTS_ROUND,    /* (round) */
    AGENTS_RESTART,  /* (failure) */
    AGENTS_FINISHED, /* */
    AGENTS_GIVEN_UP, /* (failure) */
    AGENTS_NOTE      /* (text) */
};

#define AGENTS_NONCE 32
#define AGENTS_JOB 128
#define AGENTS_ADDRESS 256

/* u32 each, then the texts, zero-filled. */
struct agents_member {
    uint32_t pid;
    int32_t node_rank; /* wished for, or -1 */
    uint32_t min_nodes, max_nodes, max_restarts, workers;
    uint32_t same_workers, join_now, serves, goes_on;
    uint32_t master_port, store_port;
    char host[DISTI_HOST_SIZE], address[AGENTS_ADDRESS];
};
#define AGENTS_READY_BYTES (2 * 4)
#define AGENTS_MEMBER_BYTES (12 * 4 + DISTI_HOST_SIZE + AGENTS_ADDRESS)

struct agents_welcome {
    uint32_t pid;
    uint32_t interval_ms, silence_ms; /* how often to give a sign of life; who is silent is lost */
    char host[DISTI_HOST_SIZE];
};
#define AGENTS_WELCOME_BYTES (3 * 4 + DISTI_HOST_SIZE)

/*
 * u32 round, restarts, node_rank, nodes, master_port, store_port; secret; address; nodes * u32
 * workers. In a job with a secret, what the store asks for is not the round's secret but what
 * disti_agents_store_word makes of it: who reads packets does not learn it from here.
 */
#define AGENTS_SECRET 33
#define AGENTS_ROUND_BYTES (6 * 4 + AGENTS_SECRET + AGENTS_ADDRESS)

/* 9 * 4, i64 time, host, text. */
#define AGENTS_FAILURE_BYTES (9 * 4 + 8 + DISTI_HOST_SIZE + DISTI_AGENTS_TEXT)

/* Limits of a frame's value: before the proof, from an agent, from the server. */
#define AGENTS_LIMIT_STRANGER (DISTI_HMAC_BYTES + AGENTS_MEMBER_BYTES)
#define AGENTS_LIMIT_AGENT AGENTS_FAILURE_BYTES
#define AGENTS_LIMIT_SERVER (AGENTS_ROUND_BYTES + 4 * DISTI_AGENTS_NODES_MAX)

void disti_agents_put_text(unsigned char *bytes, const char *text, size_t size);
/* False if a text is not ended or holds control characters; so for all of `get`. */
bool disti_agents_get_text(const unsigned char *bytes, size_t size, char *text);

/* Text of any length up to DISTI_AGENTS_TEXT - 1, as the whole value of a frame. */
bool disti_agents_get_sentence(const struct disti_wire_reader *frame, char text[DISTI_AGENTS_TEXT]);

void disti_agents_put_member(unsigned char *bytes, const struct agents_member *member);
bool disti_agents_get_member(const unsigned char *bytes, struct agents_member *member_p);

void disti_agents_put_welcome(unsigned char *bytes, const struct agents_welcome *welcome);
bool disti_agents_get_welcome(const unsigned char *bytes, struct agents_welcome *welcome_p);

void disti_agents_put_failure(unsigned char *bytes, const struct disti_agents_failure *failure);
bool disti_agents_get_failure(const struct disti_wire_reader *frame,
                              struct disti_agents_failure *failure_p);

/* All but first_rank, world_size, which follow from the rest, and the job. */
void disti_agents_put_round(unsigned char *bytes, const struct disti_agents_round *round);
/* workers_p: memory for DISTI_AGENTS_NODES_MAX counts. */
bool disti_agents_get_round(const struct disti_wire_reader *frame,
                            struct disti_agents_round *round_p, int *workers_p);

/* A round's sums. False if there are more workers than an int counts. */
bool disti_agents_round_count(struct disti_agents_round *round);

struct agents_transcript {
    const void *secret;
    size_t secret_bytes;
    unsigned char agent_nonce[AGENTS_NONCE], server_nonce[AGENTS_NONCE];
    char job[AGENTS_JOB];                     /* filled up with zero bytes */
    unsigned char binding[DISTI_TLS_BINDING]; /* of the TLS session */
    size_t binding_bytes;                     /* 0: there is none */
};

/* who: "agent" or "server". */
void disti_agents_prove(const struct agents_transcript *transcript, const char *who,
                        const void *value, size_t bytes, unsigned char proof[DISTI_HMAC_BYTES]);

/* What the store of a round asks for, of the round's secret: in a job without one that itself. */
void disti_agents_store_word(const struct agents_transcript *transcript, char word[AGENTS_SECRET]);

/* A connection between an agent and the server: frames out and in, signs of life. */

struct agents_link {
    int fd;       /* -1: none */
    int epoll_fd; /* which watches it */
    void *tag;    /* what that gives for it */
    uint32_t events;
    bool is_broken;              /* nothing can be sent any more */
    struct disti_wire_reader in; /* with the TLS session, if there is one; the link's own */
    unsigned char *out;          /* not sent yet; bounded */
    size_t out_bytes, out_room;
    int64_t heard_ns, told_ns;
};

/* Takes the descriptor, a connected or connecting socket, and watches it; false: closed it. */
bool disti_agents_link_open(struct agents_link *link, int fd, int epoll_fd, void *tag,
                            size_t limit);
void disti_agents_link_close(struct agents_link *link);

/* Sends or keeps a frame. Who reads too little has its link broken. */
void disti_agents_link_send(struct agents_link *link, uint8_t op, const void *value, size_t bytes);
void disti_agents_link_send_text(struct agents_link *link, uint8_t op, const char *text);

/* Sends what the socket takes. */
void disti_agents_link_flush(struct agents_link *link);

/* The next frame is in link->in: use it, then disti_wire_next. */
enum disti_wire_event disti_agents_link_read(struct agents_link *link);

/* Lowers *when_p to when, if that is sooner. */
static inline void agents_sooner(int64_t *when_p, int64_t when)
{
    if (when < *when_p)
        *when_p = when;
}

/* Sends a sign of life when it is time; *when_p is lowered to the next. */
void disti_agents_link_beat(struct agents_link *link, uint32_t interval_ms, int64_t *when_p);

/* Has nothing come for so long? *when_p is lowered to when that would be so. */
bool disti_agents_link_is_silent(const struct agents_link *link, uint32_t silence_ms,
                                 int64_t *when_p);

#endif
