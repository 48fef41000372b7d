/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A PMIx for tests with the fault that DIST_TEST_PMIX selects: a call fails (init, put, fence,
 * get), never returns (init_hangs, fence_hangs) or returns late (init_late), or the address is
 * invalid (garbage). Like other implementations it counts its initializations. Its version is
 * DIST_TEST_PMIX_VERSION.
 */
#include "rendezvous/pmix_abi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PMIX_ERROR (-1)

#define EXPORT __attribute__((visibility("default")))
EXPORT int PMIx_Init(struct disti_pmix_proc *self, struct disti_pmix_info *info, size_t count);
EXPORT int PMIx_Finalize(const struct disti_pmix_info *info, size_t count);
EXPORT int PMIx_Put(uint8_t scope, const char *key, struct disti_pmix_value *value);
EXPORT int PMIx_Commit(void);
EXPORT int PMIx_Fence(const struct disti_pmix_proc *procs, size_t proc_count,
                      const struct disti_pmix_info *info, size_t count);
EXPORT int PMIx_Get(const struct disti_pmix_proc *of, const char *key,
                    const struct disti_pmix_info *info, size_t count,
                    struct disti_pmix_value **value_p);
EXPORT const char *PMIx_Error_string(int status);
EXPORT void PMIx_IOF_pull(void);
EXPORT const char *PMIx_Get_version(void);

static int begun;

static int behave(const char *call)
{
    const char *fault = getenv("DIST_TEST_PMIX");

    if (fault && strncmp(fault, call, strlen(call)) == 0) {
        while (strcmp(fault + strlen(call), "_hangs") == 0)
            pause();
        if (strcmp(fault, call) == 0)
            return PMIX_ERROR;
    }
    return DISTI_PMIX_SUCCESS;
}

int PMIx_Init(struct disti_pmix_proc *self, struct disti_pmix_info *info, size_t count)
{
    const char *fault = getenv("DIST_TEST_PMIX");

    (void)info, (void)count;
    if (begun++ == 0 && fault && strcmp(fault, "init_late") == 0)
        usleep(1200 * 1000);
    snprintf(self->nspace, sizeof(self->nspace), "%s", getenv("PMIX_NAMESPACE"));
    self->rank = (uint32_t)atoi(getenv("PMIX_RANK"));
    return behave("init");
}

int PMIx_Finalize(const struct disti_pmix_info *info, size_t count)
{
    (void)info, (void)count;
    if (--begun == 0)
        fprintf(stderr, "finalized\n");
    return DISTI_PMIX_SUCCESS;
}

int PMIx_Put(uint8_t scope, const char *key, struct disti_pmix_value *value)
{
    (void)scope, (void)key, (void)value;
    return behave("put");
}

int PMIx_Commit(void)
{
    return DISTI_PMIX_SUCCESS;
}

int PMIx_Fence(const struct disti_pmix_proc *procs, size_t proc_count,
               const struct disti_pmix_info *info, size_t count)
{
    (void)procs, (void)proc_count, (void)info, (void)count;
    return behave("fence");
}

/* Returns the values of a job of two ranks, and those that its rank 0 would have put. */
int PMIx_Get(const struct disti_pmix_proc *of, const char *key, const struct disti_pmix_info *info,
             size_t count, struct disti_pmix_value **value_p)
{
    const char *fault = getenv("DIST_TEST_PMIX");

    (void)of, (void)info, (void)count;
    if (behave("get") != DISTI_PMIX_SUCCESS)
        return PMIX_ERROR;
    *value_p = calloc(1, sizeof(**value_p));
    (*value_p)->type = DISTI_PMIX_UINT32;
    (*value_p)->data.uint32 = 2;
    if (strncmp(key, "dist.", 5) == 0) {
        (*value_p)->type = DISTI_PMIX_STRING;
        (*value_p)->data.string = strdup(fault && strcmp(fault, "garbage") == 0 ? "0 a b c" : "-7");
    }
    return DISTI_PMIX_SUCCESS;
}

const char *PMIx_Error_string(int status)
{
    return status == PMIX_ERROR ? "AN_ERROR" : "?";
}

void PMIx_IOF_pull(void)
{
}

const char *PMIx_Get_version(void)
{
    const char *version = getenv("DIST_TEST_PMIX_VERSION");

    return version ? version : "OpenPMIx 5.0.7a1 (PMIx Standard: 5.1, Stable ABI: 5.0)";
}
