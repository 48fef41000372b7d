/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads the job's secret from the file that the options or the environment name. */
#include "base/settings/env.h"
#include "launch/options/options.h"

#include <stdio.h>
#include <unistd.h>

bool disti_run_secret(struct disti_run_options *options)
{
    const char *path = options->secret_file ? options->secret_file : disti_env("DIST_SECRET_FILE");
    char why[DISTI_SECRET_WHY];
    bool taken;

    if (!path || !*path)
        return true;
    taken = disti_secret_read(path, &options->secret, why);
    if (!taken)
        fprintf(stderr, "distrun: %s\n", why);
    else if (options->leashed)
        close(DISTI_HOSTS_SECRET); /* the workers need not have it */
    return taken;
}
