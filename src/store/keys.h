/* SPDX-License-Identifier: BSD-3-Clause */
/* The server's memory: shared values, and a table of them by key. */
#ifndef DISTI_STORE_KEYS_H
#define DISTI_STORE_KEYS_H

#include <dist/dist.h>

#include "store/store.h"

/* All values together; more is refused. */
#define DISTI_STORE_TOTAL_MAX ((size_t)512 << 20)

/* Bytes that several replies may be sending at a time. */
struct disti_blob {
    size_t refs, bytes;
    unsigned char data[];
};

/* One reference; data is not set. NULL: no memory. */
struct disti_blob *disti_blob_new(size_t bytes);
struct disti_blob *disti_blob_copy(const void *data, size_t bytes);
struct disti_blob *disti_blob_hold(struct disti_blob *blob);
void disti_blob_drop(struct disti_blob *blob); /* NULL is accepted */

/* A key as it came: not terminated. */
struct disti_key {
    unsigned char bytes[DISTI_KEY_MAX];
    size_t length;
};
bool disti_key_equal(const struct disti_key *a, const struct disti_key *b);

#define DISTI_STORE_BUCKETS 1024
struct disti_store_entry;
struct disti_store_table {
    struct disti_store_entry *buckets[DISTI_STORE_BUCKETS];
    size_t bytes;
};

/* The value, borrowed; NULL if there is none. */
struct disti_blob *disti_table_get(const struct disti_store_table *table,
                                   const struct disti_key *key);

/* Takes the reference to `value`, on success only. False: no room. */
bool disti_table_set(struct disti_store_table *table, const struct disti_key *key,
                     struct disti_blob *value);
void disti_table_clear(struct disti_store_table *table);

#endif
