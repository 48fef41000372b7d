/* SPDX-License-Identifier: BSD-3-Clause */
/* Wraps a transport and injects the message faults that DIST_FAULT requests. */
#ifndef DISTI_TRANSPORTS_FAULTY_FAULTY_H
#define DISTI_TRANSPORTS_FAULTY_FAULTY_H

#include <dist/transport.h>

/*
 * Returns `transport` wrapped so that it injects faults; every call with the same transport returns
 * the same pointer, which stays valid. Returns `transport` itself if DIST_FAULT has no message
 * faults or all wrappers are in use.
 */
const struct dist_transport *disti_transport_faulty(const struct dist_transport *transport);

#endif
