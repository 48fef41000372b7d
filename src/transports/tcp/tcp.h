/* SPDX-License-Identifier: BSD-3-Clause */
/* The tcp transport: one or several connections per pair of ranks, opened when first needed. */
#ifndef DISTI_TRANSPORTS_TCP_TCP_H
#define DISTI_TRANSPORTS_TCP_TCP_H

#include <dist/transport.h>

/*
 * Listens on config->bind_host and on each further interface in use, on ports that the kernel
 * chooses. Environment variables:
 *
 *   DIST_TCP_SOCKETS      sockets per pair, 1 to 16; the smaller value if two ranks differ.
 *                         Default: one per interface
 *   DIST_SOCKET_IFNAME    interfaces to use. Default: bind_host's and equal ones
 *   DIST_TCP_ZEROCOPY     off, auto, on: send long messages without a copy. Default: off
 *   DIST_TCP_BUFFER       size of each socket buffer. Default: tuned by the kernel
 *   DIST_TCP_CONGESTION   congestion control; "system": always the system's. Default: the system's,
 *                         but reno for a peer on the same network if the system's is bbr
 *   DIST_TCP_EARLY_LIMIT  bytes of unexpected messages buffered per peer. Further messages wait at
 *                         the sender, after an RTS of about 100 bytes each. Default: 16M, reduced
 *                         to 256M divided by the number of peers, but at least 1M
 */
extern const struct dist_transport disti_transport_tcp;

#endif
