/* SPDX-License-Identifier: BSD-3-Clause */
/* The hosts of --hostfile and -H, and starting programs on them with ssh or another command. */
#ifndef DISTI_LAUNCH_HOSTS_H
#define DISTI_LAUNCH_HOSTS_H

#include <dist/dist.h>

#include <sys/types.h>

#define DISTI_HOSTS_NAME 256

struct disti_hosts_entry {
    char name[DISTI_HOSTS_NAME]; /* "node1", "me@node1", "10.0.0.1", "fe80::1" */
    int slots;                   /* 0: not specified */
};

/* Hosts in the order in which they are named, without duplicates. Zeroed: empty. */
struct disti_hosts {
    struct disti_hosts_entry *entries;
    int count;
};

/*
 * Parses the value of -H: "node1:2,node2:4,[fe80::1]:2". Slots of a host that is named several
 * times are added; a mention without a number counts as 1. Adds to *hosts. ERR_INVALID_ARGUMENT:
 * the message names the wrong part.
 */
dist_status disti_hosts_parse(const char *text, struct disti_hosts *hosts);

/*
 * Reads a hostfile: one host a line, "node1", "node1:2", or "node1 slots=2 max_slots=4"; # begins a
 * comment. Adds to *hosts. ERR_INVALID_ARGUMENT: a wrong line, or no host at all; the message names
 * the file and line. ERR_SYSTEM: the file cannot be read.
 */
dist_status disti_hosts_read(const char *path, struct disti_hosts *hosts);

void disti_hosts_free(struct disti_hosts *hosts);

/*
 * Places processes on the hosts in order, each host up to its slots (1 if not specified):
 * counts_p[i] is the number for host i; 0: the host is not needed. ERR_INVALID_ARGUMENT: more
 * processes than slots.
 */
dist_status disti_hosts_place(const struct disti_hosts *hosts, int processes, int *counts_p);

/* True if the name is localhost, or this machine's own name or address. */
bool disti_hosts_is_local(const char *name);

/*
 * True if the name is a numeric address that a socket can be bound to. Host names are not resolved:
 * that may take seconds.
 */
bool disti_hosts_is_own_address(const char *name);

/* True if the name denotes the local machine on every machine. */
bool disti_hosts_is_loopback(const char *name);

/*
 * Without a terminal, ssh fails if a host asks for a password or stops responding; it does not
 * hang.
 */
#define DISTI_HOSTS_AGENT "ssh -x -o BatchMode=yes -o ServerAliveInterval=10"

#define DISTI_HOSTS_SECRET 3 /* the descriptor from which a program can read its secret */

/* A program to start on a host. */
struct disti_hosts_start {
    const char *const *argv; /* terminated by NULL */
    /* Entries "NAME=value", terminated by NULL; NULL: the host's own environment only. */
    const char *const *environment;
    const char *directory; /* working directory; NULL: the remote shell's */
    const char *secret;    /* the program can read it from DISTI_HOSTS_SECRET; NULL: none */
};

/* True if the name in "NAME=value" is valid as a shell variable. */
bool disti_hosts_is_variable(const char *entry);

/*
 * Builds the script that a shell on the host reads from its standard input in order to exec the
 * program: *script_p, *bytes_p long; the caller frees it. The program inherits the rest of that
 * input; bytes written before the program runs may be consumed by the shell. ERR_INVALID_ARGUMENT,
 * ERR_NO_MEMORY.
 */
dist_status disti_hosts_script(const struct disti_hosts_start *start, char **script_p,
                               size_t *bytes_p);

/*
 * Starts `AGENT HOST sh`; the script is not on the command line, which others could read. `agent`
 * is a command that accepts a host and a command for it, such as "ip netns exec", with arguments
 * separated by blanks; NULL: DISTI_HOSTS_AGENT. If `host` is NULL, starts a local `sh`. The child
 * has its own process group and dies with its parent; in_fd, out_fd and err_fd become its standard
 * streams. Does not wait for the program: the caller reaps the child, whose exit code is the
 * program's, or 255 from ssh. ERR_SYSTEM if the agent's command cannot be run.
 */
dist_status disti_hosts_start(const char *agent, const char *host, int in_fd, int out_fd,
                              int err_fd, pid_t *pid_p);

#endif
