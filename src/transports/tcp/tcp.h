/* SPDX-License-Identifier: BSD-3-Clause */
/* The tcp transport: a pair of ranks has a connection, or several, made when first needed. */
#ifndef DISTI_TRANSPORTS_TCP_TCP_H
#define DISTI_TRANSPORTS_TCP_TCP_H

#include <dist/transport.h>

/*
 * Listens on config->bind_host alone, on a port of the kernel's choice, and so on each further
 * interface that carries. Environment:
 * DIST_TCP_SOCKETS (of a pair, 1 to 16, the smaller if two ranks differ; unset: one an interface),
 * DIST_SOCKET_IFNAME (which interfaces carry; unset: bind_host's and its equals),
 * DIST_TCP_ZEROCOPY (off, auto, on: whether long messages are sent without a copy; off),
 * DIST_TCP_BUFFER (bytes of each socket buffer; unset: the kernel tunes them),
 * DIST_TCP_CONGESTION (the congestion control; unset: the system's, but none that paces for a peer
 * on the same network; "system": the system's in any case) and
 * DIST_TCP_EARLY_LIMIT (bytes of messages kept a peer before their receives are posted, 16M, and no
 * more than 256M for all peers together unless that is less than 1M each; past it messages wait at
 * their sender, who offers them in about 100 bytes each).
 */
extern const struct dist_transport disti_transport_tcp;

#endif
