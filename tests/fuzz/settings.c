/* SPDX-License-Identifier: BSD-3-Clause */
/* Texts of one line: init methods, numbers, lists, choices, names, and what tells of a machine. */
#include "tests/fuzz/fuzz.h"

#include "base/settings/config.h"
#include "base/settings/variables.h"
#include "launch/agents/agents.h"
#include "launch/hosts.h"
#include "launch/options/words.h"
#include "rendezvous/rendezvous.h"
#include "topology/topology.h"
#include "tuning/select.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

void fuzz_url(struct fuzz_input *input)
{
    char *text = fuzz_text(input);
    struct disti_url url;

    if (disti_url_parse(text, &url) == DIST_OK && url.kind == DISTI_URL_TCP)
        FUZZ_MUST(url.host[0] && url.port >= 1 && url.port <= 65535);
    free(text);
}

void fuzz_hostfile(struct fuzz_input *input)
{
    struct disti_hosts hosts = {0};
    int counts[64];

    if (disti_hosts_read(fuzz_file(input), &hosts) == DIST_OK && hosts.count <= 64)
        disti_hosts_place(&hosts, 8, counts);
    disti_hosts_free(&hosts);
}

static void settings_numbers(const char *text)
{
    size_t bytes;
    int number;

    if (disti_parse_int("n", text, -3, 70000, &number) == DIST_OK)
        FUZZ_MUST(number >= -3 && number <= 70000);
    disti_parse_bytes("n", text, &bytes);
}

static void settings_names(const char *text)
{
    char name[DISTI_VARIABLE_ROOM], item[16];

    for (int i = 0; disti_list_item(text, ',', i, item, sizeof(item)); i++)
        disti_interface_fits(text, item);
    disti_interface_fits(text, "eth0");
    if (disti_variable_of(text, name, sizeof(name)))
        disti_variable_like(name);
}

static void settings_choice(const char *text)
{
    struct disti_choice choice;

    disti_choice_parse(text, false, &choice);
    disti_choice_parse(text, true, &choice);
}

/* Many ranks are a matter of time, not of parsing. */
static void settings_topology(const char *text)
{
    struct disti_topology *topology;

    if (strlen(text) < 40 && disti_topology_synthetic(text, &topology) == DIST_OK)
        disti_topology_free(topology);
}

static void settings_hosts(const char *text)
{
    struct disti_hosts hosts = {0};

    disti_hosts_parse(text, &hosts);
    disti_hosts_free(&hosts);
}

static void settings_meeting(const char *text)
{
    struct disti_agents_config config;
    char host[256];
    int port = -1, least, most;

    disti_agents_defaults(&config);
    disti_agents_configure(&config, text);
    disti_run_nodes(text, &least, &most);
    disti_run_endpoint(text, host, &port);
}

static void settings_streams(const char *text)
{
    const struct disti_run_names names = {"role", "host", 3, 1};
    char line[32];
    sigset_t set;

    disti_run_streams(text, 1);
    disti_run_is_listed(text, 1);
    disti_run_signals(text, &set);
    disti_run_prefix(text, &names, line, sizeof(line));
}

/* Each text is given to all. */
void fuzz_settings(struct fuzz_input *input)
{
    char *text = fuzz_text(input);

    settings_numbers(text);
    settings_names(text);
    settings_choice(text);
    settings_topology(text);
    settings_hosts(text);
    settings_meeting(text);
    settings_streams(text);
    free(text);
}
