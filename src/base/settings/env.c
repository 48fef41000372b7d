/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads the environment; no other file does. */
#include "base/settings/env.h"

#include <stdlib.h>

const char *disti_env_raw(const char *name)
{
    return secure_getenv(name);
}

const char *disti_env(const char *name)
{
    const char *value = disti_env_raw(name);

    return value && value[0] ? value : NULL;
}
