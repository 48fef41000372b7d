/* SPDX-License-Identifier: BSD-3-Clause */
/* The shm transport connects ranks of one node through shared memory and CMA. */
#ifndef DISTI_TRANSPORTS_SHM_H
#define DISTI_TRANSPORTS_SHM_H

#include <dist/transport.h>

/*
 * Reaches ranks of the same node, network namespace and user. With DIST_SHM_CMA=0 it never reads a
 * peer's memory directly (process_vm_readv) and copies all messages through the shared FIFOs.
 */
extern const struct dist_transport disti_transport_shm;

#endif
