/* SPDX-License-Identifier: BSD-3-Clause */
/* The pieces of a bucket, walked over as if they were one vector of float32. */
#ifndef DISTI_DDP_WIRE_PIECES_H
#define DISTI_DDP_WIRE_PIECES_H

#include <stddef.h>

#include <dist/ddp.h>

/* Begins as {.bucket = bucket}. */
struct pieces {
    const struct dist_ddp_bucket *bucket;
    int piece;
    size_t at; /* in this piece */
};

/* The next elements that lie in a row, at most `most` of them; 0: it was the last. */
static inline size_t pieces_next(struct pieces *pieces, size_t most, float **run_p)
{
    const struct dist_ddp_bucket *bucket = pieces->bucket;
    size_t count;

    if (pieces->piece < bucket->piece_count && pieces->at == bucket->counts[pieces->piece]) {
        pieces->piece++;
        pieces->at = 0;
    }
    if (pieces->piece == bucket->piece_count)
        return 0;
    count = bucket->counts[pieces->piece] - pieces->at;
    count = count < most ? count : most;
    *run_p = (float *)bucket->pieces[pieces->piece] + pieces->at;
    pieces->at += count;
    return count;
}

#endif
