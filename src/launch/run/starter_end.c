/* SPDX-License-Identifier: BSD-3-Clause */
/* What is said of the hosts at the end, and the exit code. */
#include "launch/options/words.h"
#include "launch/run/starter.h"

#include <stdio.h>

/* Where all agents ended alike one of them has said why. */
static bool end_is_alike(const struct disti_run_starter *starter)
{
    for (int h = 0; h < starter->count; h++) {
        if (starter->hosts[h].code != starter->hosts[starter->first].code)
            return false;
    }
    return true;
}

/* Did no agent run there, as far as a remote shell can tell? */
static bool end_is_shells(const struct disti_run_host *host)
{
    return host->code == 255 || host->code == 126 || host->code == 127;
}

/* What is said of a host where it was most likely no worker that failed, or where nobody else may
 * have said anything; else "". */
static const char *end_reason(const struct disti_run_starter *starter,
                              const struct disti_run_host *host)
{
    if (starter->elastic && (host->killed || !host->begun || end_is_shells(host)))
        return ": the nodes meet there, so the job ends";
    if (!host->begun)
        return host->code == 0 ? ": its remote shell must pass on its standard input"
                               : ": its remote shell has said why";
    if (host->killed)
        return ": its remote shell was killed";
    if (host->code == 255)
        return ": its remote shell has said why, or a worker ended so";
    if (end_is_shells(host))
        return ": the folder and distrun must be there, at the paths that they have here";
    if (starter->count == 1 && host->code > 128)
        return ": it is lost, or a worker was ended by a signal";
    return "";
}

/* An agent that was lost, or that could not be started. Returns the exit code. */
static int end_first(const struct disti_run_starter *starter)
{
    const struct disti_run_host *first = &starter->hosts[starter->first];
    const char *reason = end_reason(starter, first);
    const bool is_alike = starter->elastic || starter->goes_on || end_is_alike(starter);

    if (!is_alike || *reason)
        fprintf(stderr, "distrun: host %s ended first, with exit code %d%s\n", first->name,
                first->code, reason);
    /* Where agents ran, a code that all have is a worker's. */
    return !first->begun || (!is_alike && end_is_shells(first)) ? DISTI_RUN_STARTER_FAILED
                                                                : first->code;
}

int disti_run_starter_conclude(const struct disti_run_starter *starter)
{
    char name[16];

    if (starter->stop_signal) {
        disti_run_signal_name(starter->stop_signal, name);
        fprintf(stderr, "distrun: stopped by %s\n", name);
        return 128 + starter->stop_signal;
    }
    if (starter->first < 0)
        return 0;
    return end_first(starter);
}
