/* SPDX-License-Identifier: BSD-3-Clause */
/* A process's doorbell: who sleeps until a peer's call comes is woken through it. */
#ifndef DISTI_NODE_DOORBELL_H
#define DISTI_NODE_DOORBELL_H

#include "node/state.h"

/* Readies the process's doorbell for this rank, and writes how it is reached. */
dist_status disti_node_doorbell_open(struct disti_node *node, struct disti_node_hello *hello);
/* The process's, if this was its last node, and its hold of its peers'. */
void disti_node_doorbell_close(struct disti_node *node);

/* Wakes that rank's sleeper. */
void disti_node_doorbell_ring(struct disti_node *node, int rank);
/* The calling thread is the one to wake. Returns what becomes readable then. */
int disti_node_doorbell_listen(struct disti_node *node);
/* Nobody is; what came for other nodes of the process is forwarded. */
void disti_node_doorbell_silence(struct disti_node *node);

#endif
