/* SPDX-License-Identifier: BSD-3-Clause */
/* Transport ucx: where the connection to a peer stands; private to this folder. */
#ifndef DISTI_TRANSPORTS_UCX_PHASE_H
#define DISTI_TRANSPORTS_UCX_PHASE_H

#include <stdbool.h>
#include <stdint.h>

/*
 *           an endpoint             an error, or its               the endpoint
 *           is made                 messages were all              is closed
 *      NEW ------------> OPEN --------------------------> FAILED ---------------> CLOSED
 *       |                 |                                 ^                       ^
 *       |                 '------ this rank leaves ---------|-----------------------'
 *       '---------- no endpoint can be made, or the peer said goodbye
 *
 * A peer is lost once it has FAILED: no message leaves or comes any more. An endpoint is not closed
 * at once, since UCX reports errors from its callbacks, in which nothing may be closed.
 */
enum ucx_phase { UCX_NEW, UCX_OPEN, UCX_FAILED, UCX_CLOSED };

/* Does the drawing have that arrow? */
static inline bool disti_ucx_phase_leads(enum ucx_phase from, enum ucx_phase to)
{
    static const uint8_t arrows[] = {
        [UCX_NEW] = 1 << UCX_OPEN | 1 << UCX_FAILED,
        [UCX_OPEN] = 1 << UCX_FAILED | 1 << UCX_CLOSED,
        [UCX_FAILED] = 1 << UCX_CLOSED,
        [UCX_CLOSED] = 0,
    };

    return arrows[from] & 1 << to;
}

#endif
