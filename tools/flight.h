/* SPDX-License-Identifier: BSD-3-Clause */
/* dist_info flight: who is behind, by the records of all ranks. */
#ifndef DISTI_TOOLS_FLIGHT_H
#define DISTI_TOOLS_FLIGHT_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FLIGHT_RANKS_MAX 65536
#define FLIGHT_FAILURE 512

/* A call of one rank. */
struct flight_call {
    int64_t sequence;
    char words[160]; /* "all_reduce #412 (float32 x 1048576, sum)" */
    char alike[160]; /* the same on every rank, if all of them call the same */
    bool pending;    /* it had not ended well when the file was written */
    char state[16];
    double begun; /* seconds since 1970; 0: not known */
};

/* A send or a receive of one rank. */
struct flight_message {
    int64_t sequence; /* of the rank's own messages */
    bool sends;
    int peer; /* rank in the group; -1, of a receive: any */
    int64_t tag;
    char what[96]; /* "float32 x 1024" */
    bool pending;
    char state[16];
};

/* What a rank's file says of a group. */
struct flight_rank {
    bool here; /* there is such a file */
    int world_rank;
    char host[HOST_NAME_MAX + 1];
    int64_t pid;
    char waits_for[256], error[1024];
    struct flight_call *calls; /* oldest first, without a gap at the end */
    int count;
    struct flight_message *messages; /* oldest first */
    int message_count;
};

struct flight_group {
    struct flight_group *next;
    char job[32];
    int64_t number; /* 0: the world */
    char name[32];  /* "group world", "group 3" */
    int size;
    struct flight_rank *ranks;
};

int flight_main(int argc, char **argv);

#endif
