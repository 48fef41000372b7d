/* SPDX-License-Identifier: BSD-3-Clause */
/* All that a rank is told before it meets anybody. */
#ifndef DISTI_RENDEZVOUS_FACTS_H
#define DISTI_RENDEZVOUS_FACTS_H

#include "rendezvous/rendezvous.h"

/* A number and where it comes from, for the errors. */
struct disti_facts_number {
    int value; /* -1: nobody says */
    const char *from;
};

struct disti_facts {
    const struct dist_options *options;
    struct disti_url url;
    struct disti_launch launch;
    struct disti_facts_number rank, world_size;
    int local_rank, local_world_size;
    bool by_pmix; /* the ranks meet through the launcher's PMIx */
};

/* From the options, the init method and the environment. The options stay the caller's, and must
 * live as long as the facts. */
dist_status disti_facts_gather(const struct dist_options *options, struct disti_facts *facts_p);

/* What the launcher says when it is asked, where it does not say it unasked. Blocks until then. */
dist_status disti_facts_ask_launcher(struct disti_facts *facts, int64_t deadline);

/* Completes and checks rank and world size. ERR_RENDEZVOUS names what is missing,
 * ERR_INVALID_ARGUMENT what is wrong. */
dist_status disti_facts_complete(struct disti_facts *facts);

/* May a scheduler have part in the meeting? */
bool disti_facts_are_scheduled(const struct disti_facts *facts);

/* Is this process one? Whoever has a rank by another word than the launcher's is none. */
bool disti_facts_are_scheduler(const struct disti_facts *facts);

#endif
