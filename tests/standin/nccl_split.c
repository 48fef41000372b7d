/* SPDX-License-Identifier: BSD-3-Clause */
/* Splits communicators: all ranks connect again, then the ranks of one color. */
#include "communicator.h"

#include <stdlib.h>
#include <string.h>

/* Counts the ranks of this rank's color, and stores its new rank, ordered by key, then by rank. */
static void split_place(const struct nccl_identity *identities, int rank, int ranks, int *rank_p,
                        int *ranks_p)
{
    *rank_p = *ranks_p = 0;
    for (int i = 0; i < ranks; i++) {
        if (identities[i].color != identities[rank].color)
            continue;
        ++*ranks_p;
        *rank_p += identities[i].key < identities[rank].key ||
                   (identities[i].key == identities[rank].key && i < rank);
    }
}

struct split {
    int color, key, parent_rank, parent_ranks;
    unsigned char id[16]; /* of the connection of all ranks */
};

/*
 * Derives another id from an id and a number. All ranks with the same id and number derive the
 * same.
 */
static void split_derive_id(const unsigned char *id, uint64_t number, unsigned char *derived)
{
    uint64_t words[2];

    memcpy(words, id, sizeof(words));
    for (int i = 0; i < 2; i++) {
        words[i] ^= (number + 1) * 0x9e3779b97f4a7c15u;
        words[i] *= 0xbf58476d1ce4e5b9u;
        words[i] ^= words[i] >> 29;
    }
    memcpy(derived, words, sizeof(words));
}

static int split_make(struct ncclComm *comm, void *arg)
{
    const struct split *split = arg;
    struct nccl_identity own = {.rank = split->parent_rank,
                                .ranks = split->parent_ranks,
                                .color = split->color,
                                .key = split->key};
    int ranks = own.ranks, *to = nccl_sockets_none(ranks), *from = nccl_sockets_none(ranks);
    struct nccl_identity *identities = calloc((size_t)ranks, sizeof(*identities));
    int result = to && from && identities ? nccl_mesh(comm, split->id, &own, identities, to, from)
                                          : RESULT_SystemError;

    nccl_sockets_close(to, ranks);
    nccl_sockets_close(from, ranks);
    free(to);
    free(from);
    if (!result && split->color != NCCL_NO_COLOR) {
        split_place(identities, own.rank, ranks, &comm->rank, &comm->ranks);
        split_derive_id(split->id, (uint64_t)split->color, comm->id);
        result = nccl_comm_connect(comm);
    }
    free(identities);
    return result;
}

int ncclCommSplit(struct ncclComm *parent, int color, int key, struct ncclComm **comm_p,
                  struct nccl_config *config)
{
    int result = nccl_ready(parent);
    struct split *split = result ? NULL : calloc(1, sizeof(*split));
    struct ncclComm *comm;

    *comm_p = NULL;
    if (result)
        return nccl_note(result);
    comm = nccl_comm_new(parent->rank, parent->ranks,
                         config && config->blocking != NCCL_UNDEFINED ? config->blocking != 0
                                                                      : parent->blocking);
    if (!comm || !split)
        return nccl_note(nccl_fail(RESULT_SystemError, "out of memory"));
    comm->device = parent->device;
    *split = (struct split){
        .color = color, .key = key, .parent_rank = parent->rank, .parent_ranks = parent->ranks};
    split_derive_id(parent->id, ++parent->splits << 32, split->id);
    result = nccl_make(comm, split_make, split, comm_p);
    if (color == NCCL_NO_COLOR && *comm_p) {
        *comm_p = NULL;
        standin_lock();
        nccl_comm_drop(comm);
        standin_unlock();
    }
    return result;
}
