/* SPDX-License-Identifier: BSD-3-Clause */
/* Where the workers run: on the hosts that -H or --hostfile name, or on this node alone. */
#include "base/settings/config.h"
#include "launch/options/options.h"
#include "launch/options/words.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool places_wrong(const char *text)
{
    fprintf(stderr, "distrun: %s\n", text);
    return false;
}

/* May the job go on with some of its hosts? */
static bool places_are_elastic(const struct disti_run_options *options)
{
    return strchr(options->nodes_text, ':') != NULL;
}

/* The hosts decide what these would say. */
static bool places_clash(const struct disti_run_options *options)
{
    const bool elastic = places_are_elastic(options);

    if (options->standalone || options->node_rank >= 0 || options->rdzv_endpoint ||
        (!elastic && strcmp(options->nodes_text, "1") != 0))
        return !places_wrong("-H and --hostfile say which nodes there are: leave out --node-rank, "
                             "--standalone, --rdzv-endpoint, and --nnodes unless it is MIN:MAX");
    if (elastic && options->total_text)
        return !places_wrong("with --nnodes MIN:MAX the number of all workers changes: leave out "
                             "-n, and give slots or --nproc-per-node");
    if (options->total_text && options->workers_text)
        return !places_wrong("with hosts give either -n, the workers of all, or --nproc-per-node");
    if (options->hosts_text && options->hostfile)
        return !places_wrong("give either -H or --hostfile");
    return false;
}

static int places_slots(const struct disti_hosts *hosts)
{
    int slots = 0;

    for (int h = 0; h < hosts->count; h++)
        slots += hosts->entries[h].slots ? hosts->entries[h].slots : 1;
    return slots;
}

/* The slots become the workers of each host; those without any go. */
static dist_status places_deal(struct disti_run_options *options)
{
    struct disti_hosts *hosts = &options->hosts;
    int *counts = calloc((size_t)hosts->count, sizeof(*counts));
    int total = places_slots(hosts), left = 0;
    dist_status status = counts ? DIST_OK : DIST_ERR_NO_MEMORY;

    if (status == DIST_OK && options->total_text)
        status = disti_parse_int("-n", options->total_text, 1, 1 << 20, &total);
    if (status == DIST_OK)
        status = disti_hosts_place(hosts, total, counts);
    for (int h = 0; status == DIST_OK && h < hosts->count; h++) {
        hosts->entries[left] = hosts->entries[h];
        hosts->entries[left].slots = counts[h];
        left += counts[h] > 0;
    }
    hosts->count = status == DIST_OK ? left : hosts->count;
    free(counts);
    return status;
}

bool disti_run_host_is_here(const struct disti_run_options *options, int h)
{
    return !options->remote_shell && disti_hosts_is_local(options->hosts.entries[h].name);
}

/* This machine alone needs no remote shell, unless one is named. */
static void places_stay(struct disti_run_options *options)
{
    static char count[16];

    if (options->hosts.count != 1 || !disti_run_host_is_here(options, 0))
        return;
    if (!options->workers_text) {
        snprintf(count, sizeof(count), "%d", options->hosts.entries[0].slots);
        options->workers_text = count;
    }
    disti_hosts_free(&options->hosts);
}

/* How many of the hosts are enough. */
static bool places_bound(struct disti_run_options *options)
{
    int least, most;
    char text[200];

    if (!places_are_elastic(options))
        return true;
    if (!disti_run_nodes(options->nodes_text, &least, &most))
        return places_wrong("--nnodes is neither a number of nodes, 1 to 16384, nor MIN:MAX");
    options->least_hosts = least;
    options->nodes_text = "1"; /* as long as only the starter is looked at */
    if (least <= options->hosts.count && options->hosts.count <= most)
        return true;
    snprintf(text, sizeof(text),
             "--nnodes %d:%d, but there are %d hosts: name as many as MAX says, or at least MIN",
             least, most, options->hosts.count);
    return places_wrong(text);
}

bool disti_run_places(struct disti_run_options *options)
{
    dist_status status;

    if (!options->hosts_text && !options->hostfile) {
        options->workers_text = options->total_text ? options->total_text : options->workers_text;
        return true;
    }
    if (places_clash(options))
        return false;
    status = options->hosts_text ? disti_hosts_parse(options->hosts_text, &options->hosts)
                                 : disti_hosts_read(options->hostfile, &options->hosts);
    if (status == DIST_OK && !options->workers_text)
        status = places_deal(options);
    if (status != DIST_OK)
        return places_wrong(dist_last_error());
    if (!places_bound(options))
        return false;
    places_stay(options);
    return true;
}
