/* SPDX-License-Identifier: BSD-3-Clause */
/* PMIx's library, opened at run time. */
#ifndef DISTI_RENDEZVOUS_PMIX_LIBRARY_H
#define DISTI_RENDEZVOUS_PMIX_LIBRARY_H

#include "rendezvous/pmix/abi.h"
#include "rendezvous/pmix/pmix.h"

struct disti_pmix_api {
#define DISTI_PMIX_MEMBER(member, symbol, parameters) int(*member) parameters;
    DISTI_PMIX_CALLS(DISTI_PMIX_MEMBER)
#undef DISTI_PMIX_MEMBER
    const char *(*error_string)(int status);
    const char *(*version)(void);
    bool reopens; /* the process may call init again after finalize */
};

/*
 * Its functions, or NULL and why not. It is opened once, and not closed again: threads of it may
 * run. Any thread.
 */
const struct disti_pmix_api *disti_pmix_load(char reason[DISTI_PMIX_REASON]);

#endif
