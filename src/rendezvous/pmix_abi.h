/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The part of PMIx's binary interface that is used: no header of it is needed. Structures and
 * numbers are those of the PMIx Standard (its chapter on data structures), and the same in the
 * library's versions 3, 4 and 5, which share the name libpmix.so.2. Version 2 has that name too,
 * and a smaller value. A test compares this with meet.h, where that is.
 */
#ifndef DISTI_RENDEZVOUS_PMIX_ABI_H
#define DISTI_RENDEZVOUS_PMIX_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DISTI_PMIX_FILE "libpmix.so.2"

/* A function that version 2 does not have. */
#define DISTI_PMIX_SINCE_3 "PMIx_IOF_pull"

enum { DISTI_PMIX_SUCCESS = 0 }; /* pmix_status_t */
enum { DISTI_PMIX_GLOBAL = 3 };  /* pmix_scope_t */
enum { DISTI_PMIX_BOOL = 1, DISTI_PMIX_STRING = 3, DISTI_PMIX_UINT16 = 13, DISTI_PMIX_UINT32 = 14 };
#define DISTI_PMIX_RANK_ALL (UINT32_MAX - 1) /* what is true of the whole job */

#define DISTI_PMIX_JOB_SIZE "pmix.job.size"
#define DISTI_PMIX_LOCAL_RANK "pmix.lrank"
#define DISTI_PMIX_LOCAL_SIZE "pmix.local.size"
#define DISTI_PMIX_COLLECT_DATA "pmix.collect"

struct disti_pmix_proc {
    char nspace[256];
    uint32_t rank;
};

/* Of the many members of pmix_value_t those that are used, and the largest. */
struct disti_pmix_value {
    uint16_t type;
    union {
        bool flag;
        char *string;
        uint16_t uint16;
        uint32_t uint32;
        struct {
            char *name, *value;
            char separator;
        } envar;
    } data;
};

struct disti_pmix_info {
    char key[512];
    uint32_t flags;
    struct disti_pmix_value value;
};

/* X(member, symbol, parameters): the functions that return a pmix_status_t. */
#define DISTI_PMIX_CALLS(X)                                                                        \
    X(init, "PMIx_Init", (struct disti_pmix_proc *, struct disti_pmix_info *, size_t))             \
    X(finalize, "PMIx_Finalize", (const struct disti_pmix_info *, size_t))                         \
    X(put, "PMIx_Put", (uint8_t scope, const char *key, struct disti_pmix_value *))                \
    X(commit, "PMIx_Commit", (void))                                                               \
    X(fence, "PMIx_Fence",                                                                         \
      (const struct disti_pmix_proc *, size_t, const struct disti_pmix_info *, size_t))            \
    X(get, "PMIx_Get",                                                                             \
      (const struct disti_pmix_proc *, const char *key, const struct disti_pmix_info *, size_t,    \
       struct disti_pmix_value **))

#endif
