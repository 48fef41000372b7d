/* SPDX-License-Identifier: BSD-3-Clause */
/* The shm transport: ranks of one machine, through shared memory and CMA. */
#ifndef DISTI_TRANSPORTS_SHM_H
#define DISTI_TRANSPORTS_SHM_H

#include <dist/transport.h>

/*
 * Reaches ranks of the same machine, network namespace and user. Settings from the
 * environment: DIST_SHM_CMA=0 never reads a peer's memory directly (process_vm_readv);
 * everything is then copied through the shared FIFOs.
 */
extern const struct dist_transport disti_transport_shm;

#endif
