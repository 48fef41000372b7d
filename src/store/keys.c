/* SPDX-License-Identifier: BSD-3-Clause */
/* A hash table with chains, and counted references to values. */
#include "store/keys.h"

#include "base/checked.h"

#include <stdlib.h>
#include <string.h>

struct disti_store_entry {
    struct disti_store_entry *next;
    struct disti_key key;
    struct disti_blob *value;
};

struct disti_blob *disti_blob_new(size_t bytes)
{
    struct disti_blob *blob;
    size_t size;

    if (!disti_add(sizeof(*blob), bytes, &size))
        return NULL;
    blob = malloc(size);
    if (!blob)
        return NULL;
    blob->refs = 1;
    blob->bytes = bytes;
    return blob;
}

struct disti_blob *disti_blob_copy(const void *data, size_t bytes)
{
    struct disti_blob *blob = disti_blob_new(bytes);

    if (blob && bytes)
        memcpy(blob->data, data, bytes);
    return blob;
}

struct disti_blob *disti_blob_hold(struct disti_blob *blob)
{
    blob->refs++;
    return blob;
}

void disti_blob_drop(struct disti_blob *blob)
{
    if (blob && --blob->refs == 0)
        free(blob);
}

bool disti_key_equal(const struct disti_key *a, const struct disti_key *b)
{
    return a->length == b->length && memcmp(a->bytes, b->bytes, a->length) == 0;
}

/* FNV-1a */
static size_t keys_bucket(const struct disti_key *key)
{
    uint32_t hash = 2166136261u;

    for (size_t i = 0; i < key->length; i++)
        hash = (hash ^ key->bytes[i]) * 16777619u;
    return hash % DISTI_STORE_BUCKETS;
}

static struct disti_store_entry *keys_find(const struct disti_store_table *table,
                                           const struct disti_key *key)
{
    struct disti_store_entry *entry = table->buckets[keys_bucket(key)];

    while (entry && !disti_key_equal(&entry->key, key))
        entry = entry->next;
    return entry;
}

struct disti_blob *disti_table_get(const struct disti_store_table *table,
                                   const struct disti_key *key)
{
    struct disti_store_entry *entry = keys_find(table, key);

    return entry ? entry->value : NULL;
}

bool disti_table_set(struct disti_store_table *table, const struct disti_key *key,
                     struct disti_blob *value)
{
    struct disti_store_entry **bucket = &table->buckets[keys_bucket(key)];
    struct disti_store_entry *entry = keys_find(table, key);
    size_t old = entry ? entry->value->bytes : 0;
    size_t added = entry ? value->bytes : value->bytes + sizeof(*entry);

    if (added > old && added - old > DISTI_STORE_TOTAL_MAX - table->bytes)
        return false;
    if (!entry) {
        entry = calloc(1, sizeof(*entry));
        if (!entry)
            return false;
        entry->key = *key;
        entry->next = *bucket;
        *bucket = entry;
    }
    table->bytes = table->bytes - old + added;
    disti_blob_drop(entry->value);
    entry->value = value;
    return true;
}

void disti_table_clear(struct disti_store_table *table)
{
    for (size_t i = 0; i < DISTI_STORE_BUCKETS; i++) {
        while (table->buckets[i]) {
            struct disti_store_entry *entry = table->buckets[i];

            table->buckets[i] = entry->next;
            disti_blob_drop(entry->value);
            free(entry);
        }
    }
    table->bytes = 0;
}
