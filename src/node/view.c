/* SPDX-License-Identifier: BSD-3-Clause */
/* Segments that hold data of a call: who can map whose. */
#include "base/log.h"
#include "node/state.h"

#include <string.h>

/* ---- this rank's segments ---- */

/* What is known of a segment of this rank's; NULL: nothing. */
static struct node_proof *view_proof(struct disti_node *node, uint64_t key)
{
    for (int i = 0; i < NODE_VIEWS; i++) {
        if (node->proofs[i].key == key)
            return &node->proofs[i];
    }
    return NULL;
}

bool disti_node_find(struct disti_node *node, const void *memory, size_t bytes,
                     struct disti_segment_location *location_p, bool *offered_p)
{
    const struct node_proof *proof;

    *offered_p = false;
    if (!disti_segment_find(memory, bytes, location_p))
        return false;
    proof = view_proof(node, location_p->name.key);
    *offered_p = !proof;
    if (proof && !proof->mapped)
        location_p->name.key = 0;
    return proof && proof->mapped;
}

/* Did all of them map what was offered? */
static bool view_is_mapped(const struct disti_node *node, const struct disti_node_op *op)
{
    for (int r = 0; r < node->ranks; r++) {
        if (r != node->rank && node_slot(node->peers[r].board, op)->locations.refuses)
            return false;
    }
    return true;
}

static void view_note(struct disti_node *node, uint64_t key, bool mapped)
{
    struct node_proof *proof = view_proof(node, key);

    if (!proof)
        proof = &node->proofs[node->proof_next++ % NODE_VIEWS];
    *proof = (struct node_proof){.key = key, .mapped = mapped};
}

void disti_node_record(struct disti_node *node, const struct disti_node_op *op)
{
    const struct node_locations *locations = &node_slot(node->board, op)->locations;
    bool mapped;

    if (!locations->in_offered && !locations->out_offered)
        return;
    mapped = view_is_mapped(node, op);
    if (locations->in_offered)
        view_note(node, locations->in.name.key, mapped);
    if (locations->out_offered)
        view_note(node, locations->out.name.key, mapped);
    if (!mapped)
        disti_info("memory of dist_alloc and dist_register is used as ordinary memory is: another "
                   "rank cannot map it");
}

/* ---- the others' ---- */

/* Puts the view at the front, where it is found first. */
static char *view_use(struct node_peer *peer, int at, struct node_view view)
{
    memmove(&peer->views[1], &peer->views[0], (size_t)at * sizeof(view));
    peer->views[0] = view;
    return view.memory;
}

/* The mapping of a segment: one of the last few, or a new one. */
static dist_status view_map(struct node_peer *peer, const struct disti_segment_name *name,
                            char **memory_p)
{
    void *memory;
    int at = 0;
    dist_status status;

    while (at < NODE_VIEWS && peer->views[at].key != name->key)
        at++;
    if (at < NODE_VIEWS) {
        *memory_p = at ? view_use(peer, at, peer->views[at]) : peer->views[0].memory;
        return DIST_OK;
    }
    status = disti_segment_map(name, &memory);
    if (status != DIST_OK)
        return status;
    disti_segment_unmap(peer->views[NODE_VIEWS - 1].key);
    *memory_p =
        view_use(peer, NODE_VIEWS - 1, (struct node_view){.key = name->key, .memory = memory});
    return DIST_OK;
}

void disti_node_unview(struct node_peer *peer)
{
    for (int i = 0; i < NODE_VIEWS; i++) {
        disti_segment_unmap(peer->views[i].key);
        peer->views[i] = (struct node_view){0};
    }
}

dist_status disti_node_see(struct node_peer *peer, const struct disti_segment_location *at,
                           size_t bytes, char **memory_p)
{
    char *memory = NULL;
    dist_status status = DIST_OK;

    if (at->name.key && (at->offset > at->name.bytes || bytes > at->name.bytes - at->offset))
        return disti_fail(DIST_ERR_INTERNAL, "a peer shows memory beyond its segment's end");
    if (at->name.key)
        status = view_map(peer, &at->name, &memory);
    *memory_p = memory ? memory + at->offset : NULL;
    return status;
}

char *disti_node_try_see(struct node_peer *peer, const struct disti_segment_location *at,
                         size_t bytes)
{
    const struct disti_log *log = disti_log_current();
    char *memory;
    dist_status status;

    disti_log_use(NULL);
    status = disti_node_see(peer, at, bytes, &memory);
    disti_log_use(log);
    return status == DIST_OK ? memory : NULL;
}

void disti_node_disprove(struct disti_node *node, uint64_t key)
{
    if (key)
        view_note(node, key, false);
}

void disti_node_try(struct disti_node *node, const struct disti_node_op *op, struct node_peer *peer,
                    const struct disti_segment_location *at)
{
    const struct disti_log *log = disti_log_current();
    char *memory;

    disti_log_use(NULL);
    if (view_map(peer, &at->name, &memory) != DIST_OK)
        node_slot(node->board, op)->locations.refuses = true;
    disti_log_use(log);
}
