/* SPDX-License-Identifier: BSD-3-Clause */
/* The plan engine: runs collectives as plans over the transports that reach the peers. */
#ifndef DISTI_ENGINE_ENGINE_H
#define DISTI_ENGINE_ENGINE_H

#include <dist/backend.h>

/*
 * Opens the transports (DIST_TRANSPORT, "shm,tcp", restricts them), exchanges their addresses
 * and chooses for each peer the one that reaches it at the least cost. Collective. ERR_UNSUPPORTED
 * names a peer that none reaches, with every transport's reason.
 */
dist_status disti_engine_open(const struct dist_backend_config *config,
                              const struct dist_engine_config *engine_config,
                              struct dist_engine **engine_p);

/*
 * Starts a call. Calls run side by side, except that one whose memory overlaps that of an
 * earlier one waits for it. Never blocks.
 */
dist_status disti_engine_post(struct dist_engine *engine, const struct dist_call *call,
                              struct dist_ticket *ticket);

/* The backend's slot at_once, for calls that shared memory serves. */
dist_status disti_engine_at_once(struct dist_engine *engine, const struct dist_call *call);

/*
 * Keeps ready what a call needs that will be posted again and again, with *prepared_p as its
 * `prepared`, one at a time; NULL for sends and receives. Ends with the engine, or with release.
 */
dist_status disti_engine_prepare(struct dist_engine *engine, const struct dist_call *call,
                                 void **prepared_p);
void disti_engine_release(struct dist_engine *engine, void *prepared);

/* Moves all calls along; as dist_transport.progress. */
int disti_engine_progress(struct dist_engine *engine);

/* What to sleep on: as the backend slots arm and disarm. */
int disti_engine_arm(struct dist_engine *engine, int *fds, int room);
void disti_engine_disarm(struct dist_engine *engine);

/* The peers that the oldest call waits for: "rank 2, rank 5"; "" if for none. */
void disti_engine_describe(const struct dist_engine *engine, char *text, size_t size);

/* Local and bounded; calls that have not ended are dropped, their tickets not touched. */
void disti_engine_close(struct dist_engine *engine);

#endif
