/* SPDX-License-Identifier: BSD-3-Clause */
/* One-line texts: init methods, numbers, lists, choices, names, and descriptions of a machine. */
#include "tests/fuzz/fuzz.h"

#include "base/auth.h"
#include "base/faults.h"
#include "base/net.h"
#include "base/settings/config.h"
#include "base/settings/variables.h"
#include "launch/agents/agents.h"
#include "launch/hosts.h"
#include "launch/words.h"
#include "rendezvous/rendezvous.h"
#include "topology/topology.h"
#include "tuning/choose.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define SETTINGS_RANKS 100000

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

/* Parses the text as the name of an unknown variable, and as the value of DIST_SOCKET_IFNAME. */
static void settings_environment(const char *text)
{
    char name[DISTI_VARIABLE_ROOM], unknown[64], address[DISTI_HOST_SIZE];
    bool meant;

    if (disti_variable_of(text, name, sizeof(name)) && strcmp(name, "DIST_SOCKET_IFNAME")) {
        setenv(name, "", 1);
        disti_variables_unknown(NULL, unknown, sizeof(unknown), &meant);
        FUZZ_MUST(strlen(unknown) < sizeof(unknown));
        unsetenv(name);
    }
    setenv("DIST_SOCKET_IFNAME", text, 1);
    disti_primary_address(address);
    unsetenv("DIST_SOCKET_IFNAME");
}

static void settings_faults(const char *text)
{
    struct disti_faults faults;

    if (disti_faults_parse(text, &faults) == DIST_OK)
        FUZZ_MUST(faults.count > 0 && faults.count <= DISTI_FAULTS_MAX);
}

/* Checks that an algorithm is chosen for each collective, whatever is forced. */
static void settings_choose(const struct disti_choice *choice,
                            const struct disti_topology *topology)
{
    static const size_t sizes[] = {0, 1 << 10, 1 << 20, (size_t)1 << 30};
    const struct disti_algorithm *algorithm;
    uint32_t segments;

    for (int c = 0; c < DIST_COLL_SEND; c++) {
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            disti_select(choice, (dist_collective)c, sizes[i], topology, &algorithm, &segments);
            FUZZ_MUST(algorithm && segments > 0);
        }
    }
}

/*
 * True if the text describes more than SETTINGS_RANKS ranks. A million ranks are valid, but an
 * instrumented program would need a second for them.
 */
static bool settings_is_large(const char *text)
{
    long ranks = 1;

    for (; ranks <= SETTINGS_RANKS && (text = strchr(text, ':')) != NULL; text++) {
        const long count = strtol(text + 1, NULL, 10);

        ranks *= count > SETTINGS_RANKS ? SETTINGS_RANKS + 1 : count < 1 ? 1 : count;
    }
    return ranks > SETTINGS_RANKS;
}

static void settings_topology(const char *text, const struct disti_choice *choice)
{
    struct disti_topology *topology;

    if (strlen(text) < 40 && !settings_is_large(text) &&
        disti_topology_synthetic(text, &topology) == DIST_OK) {
        settings_choose(choice, topology);
        disti_topology_free(topology);
    }
}

static void settings_choice(const char *text)
{
    struct disti_choice choice;

    for (int reproducible = 0; reproducible < 2; reproducible++) {
        if (disti_choice_parse(text, reproducible, &choice) == DIST_OK)
            settings_topology("node:2 core:2", &choice);
        disti_choice_parse(NULL, reproducible, &choice);
        settings_topology(text, &choice);
    }
}

static void settings_hosts(const char *text)
{
    struct disti_hosts hosts = {0};

    disti_hosts_parse(text, &hosts);
    disti_hosts_free(&hosts);
}

/*
 * Checks and copies the configuration of a node. If the text is a number, it replaces the node's
 * numbers.
 */
static void settings_node(const char *text, struct disti_agents_config *config)
{
    struct disti_agents_config copy;
    int number = 1;

    if (disti_parse_int("n", text, INT_MIN, INT_MAX, &number) == DIST_OK) {
        config->node_rank = number;
        config->workers = config->max_restarts = config->endpoint_port = number & 0xfffff;
    }
    if (disti_agents_config_check(config) != DIST_OK)
        return;
    FUZZ_MUST(config->max_nodes >= config->min_nodes && config->node_rank < config->max_nodes);
    FUZZ_MUST(disti_agents_config_copy(&copy, config));
    disti_agents_config_free(&copy);
}

static void settings_meeting(const char *text)
{
    struct disti_agents_config config;
    char host[256] = "";

    disti_agents_defaults(&config);
    config.endpoint_port = -1;
    config.endpoint_host = host;
    config.job = config.address = text;
    config.secret = text;
    config.secret_bytes = strlen(text);
    disti_agents_configure(&config, text);
    disti_run_nodes(text, &config.min_nodes, &config.max_nodes);
    disti_run_endpoint(text, host, &config.endpoint_port);
    settings_node(text, &config);
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

/* Passes each text to all parsers. */
void fuzz_settings(struct fuzz_input *input)
{
    char *text = fuzz_text(input);

    settings_numbers(text);
    settings_names(text);
    settings_environment(text);
    settings_faults(text);
    settings_choice(text);
    settings_hosts(text);
    settings_meeting(text);
    settings_streams(text);
    free(text);
}

/*
 * Checks that a token's file is accepted only if its length is valid and its mode is private. The
 * first byte of the input selects the mode.
 */
void fuzz_secret(struct fuzz_input *input)
{
    static const mode_t modes[] = {0600, 0400, 0640, 0604};
    mode_t mode = modes[fuzz_byte(input) & 3];
    const char *path = fuzz_file(input);
    char why[DISTI_SECRET_WHY] = "";
    struct disti_secret secret;

    FUZZ_MUST(chmod(path, mode) == 0);
    if (disti_secret_read(path, &secret, why))
        FUZZ_MUST(!(mode & 077) && secret.length >= DISTI_SECRET_LEAST &&
                  secret.length <= DISTI_SECRET_MOST);
    else
        FUZZ_MUST(why[0] && secret.length == 0);
}
