/* SPDX-License-Identifier: BSD-3-Clause */
/* Transport ucx: messages over UCX's active messages. Part of the ucx module. */
#ifndef DISTI_TRANSPORTS_UCX_UCX_H
#define DISTI_TRANSPORTS_UCX_UCX_H

#include <dist/backend.h>

extern const struct dist_transport disti_transport_ucx;

#endif
