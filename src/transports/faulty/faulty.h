/* SPDX-License-Identifier: BSD-3-Clause */
/* A transport before another: breaks messages as DIST_FAULT says. */
#ifndef DISTI_TRANSPORTS_FAULTY_FAULTY_H
#define DISTI_TRANSPORTS_FAULTY_FAULTY_H

#include <dist/transport.h>

/*
 * The same transport with faults: always the same table for the same one. Without faults of
 * messages, or where there is no table left, it is the transport itself.
 */
const struct dist_transport *disti_transport_faulty(const struct dist_transport *transport);

#endif
