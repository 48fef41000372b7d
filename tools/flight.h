/* SPDX-License-Identifier: BSD-3-Clause */
/* dist_info flight: finds out from flight recorders' files which rank a job waits for. */
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
    char words[160];     /* "all_reduce #412 (float32 x 1048576, sum)" */
    char signature[160]; /* equal on all ranks if the calls match */
    bool pending;        /* had not completed successfully when the file was written */
    char state[16];
    double begun; /* start, in seconds since 1970; 0: unknown */
};

/* A send or a receive of one rank. */
struct flight_message {
    int64_t sequence; /* counts the rank's messages */
    bool sends;
    int peer; /* rank in the group; -1: a receive from any rank */
    int64_t tag;
    char what[96]; /* "float32 x 1024" */
    bool pending;
    char state[16];
};

/* The record of a group in one rank's file. */
struct flight_rank {
    bool has_file; /* the rank's file has been read */
    int world_rank;
    char host[HOST_NAME_MAX + 1];
    int64_t pid;
    char waits_for[256], error[1024];
    struct flight_call *calls; /* oldest first, up to the rank's last call */
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

/* Runs the command; argv[0] is "flight". Returns the exit code. */
int flight_main(int argc, char **argv);

#endif
