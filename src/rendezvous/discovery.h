/* SPDX-License-Identifier: BSD-3-Clause */
/* The discovery: a Unix socket by which the ranks of one machine learn where their store is. */
#ifndef DISTI_RENDEZVOUS_DISCOVERY_H
#define DISTI_RENDEZVOUS_DISCOVERY_H

#include <dist/dist.h>

/*
 * Listens on the abstract address "dist/<uid>/<job>". The kernel says who is at the other
 * end, so only processes of the same user are answered. Never blocks. IN_PROGRESS: someone else
 * has that address.
 */
dist_status disti_discovery_open(const char *job, int *fd_p);

/*
 * Asks at the discovery, once, for port and word of the store. IN_PROGRESS: nobody is there yet.
 * Blocks a second at most, if whoever opened it does not answer. ERR_RENDEZVOUS if it is another
 * user's.
 */
dist_status disti_discovery_ask(const char *job, int *port_p, char word[128]);

#endif
