/* SPDX-License-Identifier: BSD-3-Clause */
/* The hosts of --hostfile and -H, and the start of agents there by ssh or another command. */
#ifndef DISTI_LAUNCH_HOSTS_H
#define DISTI_LAUNCH_HOSTS_H

#include <dist/dist.h>

#include <sys/types.h>

#define DISTI_HOSTS_NAME 256

struct disti_hosts_entry {
    char name[DISTI_HOSTS_NAME]; /* "node1", "me@node1", "10.0.0.1", "fe80::1" */
    int slots;                   /* 0: not said */
};

/* In the order in which they are named; each once. Zeroed is empty. */
struct disti_hosts {
    struct disti_hosts_entry *entries;
    int count;
};

/*
 * What -H says: "node1:2,node2:4,[fe80::1]:2"; a host that is named again has all slots together,
 * one for each time that says none. Adds to *hosts. ERR_INVALID_ARGUMENT names what is wrong.
 */
dist_status disti_hosts_parse(const char *text, struct disti_hosts *hosts);

/*
 * A hostfile: a host a line, "node1", "node1:2", or "node1 slots=2 max_slots=4"; # begins a
 * comment. Adds to *hosts. ERR_INVALID_ARGUMENT names file, line and what is wrong, or that nobody
 * is there; ERR_SYSTEM that it cannot be read.
 */
dist_status disti_hosts_read(const char *path, struct disti_hosts *hosts);

void disti_hosts_free(struct disti_hosts *hosts);

/*
 * Fills the hosts with so many processes, one after the other, up to their slots (one, where it is
 * not said): counts_p[i] of host i, 0: it is not needed. ERR_INVALID_ARGUMENT if that is too many.
 */
dist_status disti_hosts_place(const struct disti_hosts *hosts, int processes, int *counts_p);

/* Is this localhost, or this machine's own name or address? */
bool disti_hosts_is_local(const char *name);

/* An address that a socket can be bound to. Names are not looked up: that may take seconds. */
bool disti_hosts_is_own_address(const char *name);

/* Does each machine mean itself by this name? */
bool disti_hosts_is_loopback(const char *name);

/* Runs without a terminal: a host that asks for a password is an error, not a wait; nor is one that
 * does not answer any more. */
#define DISTI_HOSTS_AGENT "ssh -x -o BatchMode=yes -o ServerAliveInterval=10"

#define DISTI_HOSTS_SECRET 3 /* the descriptor on which a program can read its secret */

/* A program to be started on a host. */
struct disti_hosts_start {
    const char *const *argv; /* ends with NULL */
    const char *const
        *environment;   /* "NAME=value", ends with NULL; NULL: none besides that there */
    const char *folder; /* to run in; NULL: that which the shell there begins in */
    const char *secret; /* readable by the program on DISTI_HOSTS_SECRET; NULL: none */
};

/* Has "NAME=value" a name that a shell knows? */
bool disti_hosts_is_variable(const char *entry);

/*
 * What a shell on the host is to read on its standard input, to become the program: *script_p, of
 * *bytes_p, which the caller frees. The program has the rest of that input. What is written there
 * before the program runs may be read, and dropped, by the shell. ERR_INVALID_ARGUMENT,
 * ERR_NO_MEMORY.
 */
dist_status disti_hosts_script(const struct disti_hosts_start *start, char **script_p,
                               size_t *bytes_p);

/*
 * Starts `AGENT HOST sh`: no command line holds more than the host. `agent` is a command that takes
 * a host and a command for it, such as "ip netns exec", with blanks between its words; NULL:
 * DISTI_HOSTS_AGENT. Without a host it starts `sh` here. The child is its own process group and
 * dies with its parent; in_fd, out_fd and err_fd become its streams. Does not wait for the program:
 * the caller reaps the child, whose exit code is the program's, or ssh's 255. ERR_SYSTEM if the
 * agent's command is not there.
 */
dist_status disti_hosts_start(const char *agent, const char *host, int in_fd, int out_fd,
                              int err_fd, pid_t *pid_p);

#endif
