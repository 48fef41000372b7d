/* SPDX-License-Identifier: BSD-3-Clause */
/* What coll.c, where ranks come to a collective, and coll_end.c share. */
#ifndef DISTI_STORE_SERVER_COLL_H
#define DISTI_STORE_SERVER_COLL_H

#include "store/server/server.h"

void disti_store_coll_free(struct disti_store_server *server, struct store_coll *coll);

/* The rank at an index of the party, and back: -1, it is not in it. */
int disti_store_coll_rank(const struct store_coll *coll, int index);
int disti_store_coll_index(const struct store_coll *coll, int rank);

/* True if the ranks call it in dist_new_group. */
bool disti_store_coll_makes_group(const struct store_coll *coll);
/* Writes its ranks of the world: "0-4, 6, 7". */
void disti_store_coll_list(const struct store_coll *coll, char *text, size_t size);
/* Answers all ranks that wait for it, with the result or with a text. */
void disti_store_coll_answer(struct disti_store_server *server, struct store_coll *coll,
                             dist_status status, const char *text);
/* The same, and frees it. */
void disti_store_coll_end(struct disti_store_server *server, struct store_coll *coll,
                          dist_status status, const char *text);

#endif
