/* SPDX-License-Identifier: BSD-3-Clause */
/* Lists the TCP sockets on which processes listen, from /proc. */
#ifndef DISTI_TESTS_JOBS_LISTENERS_H
#define DISTI_TESTS_JOBS_LISTENERS_H

#include <stdbool.h>
#include <sys/socket.h>
#include <sys/types.h>

#define LISTENERS_MOST 256

struct listener {
    struct sockaddr_storage address;
    socklen_t length;
    bool everywhere; /* bound to the wildcard address */
};

/* Finds the listening sockets of a process, at most LISTENERS_MOST. Returns their number. */
int listeners_of(pid_t process, struct listener found[LISTENERS_MOST]);

#endif
