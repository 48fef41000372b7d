/* SPDX-License-Identifier: BSD-3-Clause */
/* What an agent is told: defaults, --rdzv-conf, and what is wrong with it. */
#include "base/ascii.h"
#include "base/log.h"
#include "base/net.h"
#include "launch/agents/message.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SECRET_MAX 256

void disti_agents_defaults(struct disti_agents_config *config)
{
    *config = (struct disti_agents_config){.node_rank = -1,
                                           .min_nodes = 1,
                                           .max_nodes = 1,
                                           .workers = 1,
                                           .join_timeout_ms = 600000,
                                           .last_call_timeout_ms = 30000,
                                           .keep_alive_interval_ms = 5000,
                                           .keep_alive_max_attempt = 3};
}

static bool config_milliseconds(const char *text, int *ms_p)
{
    char *end;
    double seconds = disti_ascii_real(text, &end);

    if (!*text || *end || !isfinite(seconds) || seconds < 0 || seconds > 1e6)
        return false;
    *ms_p = (int)(seconds * 1e3 + 0.5);
    return true;
}

static bool config_whole(const char *text, int *number_p)
{
    char *end;
    long number = strtol(text, &end, 10);

    if (!*text || *end || number < 0 || number > INT_MAX)
        return false;
    *number_p = (int)number;
    return true;
}

static bool config_truth(const char *text, bool *is_true_p)
{
    static const char *const words[2][4] = {{"0", "false", "f", "no"}, {"1", "true", "t", "yes"}};

    for (int i = 0; i < 8; i++) {
        if (disti_ascii_same(text, words[i / 4][i % 4])) {
            *is_true_p = i >= 4;
            return true;
        }
    }
    return false;
}

/* False: the value is none for that key. *known_p: is there such a key? */
static bool config_set(struct disti_agents_config *config, const char *key, const char *value,
                       bool *known_p)
{
    static const char *const unused[] = {"close_timeout", "read_timeout", "heartbeat_timeout",
                                         "use_libuv", "store_type"};
    bool is_host;

    *known_p = true;
    if (strcmp(key, "join_timeout") == 0 || strcmp(key, "timeout") == 0)
        return config_milliseconds(value, &config->join_timeout_ms);
    if (strcmp(key, "last_call_timeout") == 0)
        return config_milliseconds(value, &config->last_call_timeout_ms);
    if (strcmp(key, "keep_alive_interval") == 0)
        return config_milliseconds(value, &config->keep_alive_interval_ms);
    if (strcmp(key, "keep_alive_max_attempt") == 0)
        return config_whole(value, &config->keep_alive_max_attempt);
    if (strcmp(key, "rank") == 0)
        return config_whole(value, &config->node_rank);
    if (strcmp(key, "is_host") == 0) {
        if (!config_truth(value, &is_host))
            return false;
        config->serve = is_host ? DISTI_AGENTS_SERVE : DISTI_AGENTS_SERVE_NEVER;
        return true;
    }
    if (strcmp(key, "join") == 0) {
        config->join_now = strcmp(value, "now") == 0;
        return config->join_now || strcmp(value, "restart") == 0;
    }
    for (size_t i = 0; i < sizeof(unused) / sizeof(unused[0]); i++) {
        if (strcmp(key, unused[i]) == 0)
            return true;
    }
    return *known_p = false;
}

static dist_status config_entry(struct disti_agents_config *config, char *entry)
{
    char *value = strchr(entry, '=');
    bool known;

    if (!value)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "--rdzv-conf: \"%s\" is not of the form KEY=VALUE", entry);
    *value++ = 0;
    if (config_set(config, entry, value, &known))
        return DIST_OK;
    if (known)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "--rdzv-conf: \"%s\" is no value for %s",
                          value, entry);
    return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                      "--rdzv-conf knows no \"%s\": it has join_timeout, last_call_timeout, "
                      "keep_alive_interval, keep_alive_max_attempt, is_host, rank, join",
                      entry);
}

dist_status disti_agents_configure(struct disti_agents_config *config, const char *conf)
{
    char *copy = strdup(conf), *rest = NULL, *entry;
    dist_status status = DIST_OK;

    if (!copy)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for --rdzv-conf: free some");
    for (entry = strtok_r(copy, ",", &rest); entry && status == DIST_OK;
         entry = strtok_r(NULL, ",", &rest))
        status = config_entry(config, entry);
    free(copy);
    return status;
}

/* Printable, so that others can show it. */
static bool config_is_text(const char *text, size_t size)
{
    for (const char *c = text; *c; c++) {
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            return false;
    }
    return text[0] && strlen(text) < size;
}

dist_status disti_agents_config_check(const struct disti_agents_config *config)
{
    if (config->min_nodes < 1 || config->max_nodes < config->min_nodes ||
        config->max_nodes > DISTI_AGENTS_NODES_MAX)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "--nnodes %d:%d: it wants MIN:MAX, with 1 <= MIN <= MAX <= %d",
                          config->min_nodes, config->max_nodes, DISTI_AGENTS_NODES_MAX);
    if (config->node_rank < -1 || config->node_rank >= config->max_nodes)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "--node-rank %d: with --nnodes %d it is from 0 to %d", config->node_rank,
                          config->max_nodes, config->max_nodes - 1);
    if (config->workers < 1 || config->workers > DISTI_AGENTS_WORKERS_MAX)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "--nproc-per-node %d: it is from 1 to %d",
                          config->workers, DISTI_AGENTS_WORKERS_MAX);
    if (config->max_restarts < 0 || config->master_port < 0 || config->master_port > 65535)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "--max-restarts %d, --master-port %d: no such number",
                          config->max_restarts, config->master_port);
    if (!config->endpoint_host || !config->endpoint_host[0] || config->endpoint_port < 0 ||
        config->endpoint_port > 65535)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "--rdzv-endpoint wants HOST:PORT with a port from 0 to 65535");
    if (!config->job || !config_is_text(config->job, AGENTS_JOB))
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "--rdzv-id wants 1 to %d printable characters",
                          AGENTS_JOB - 1);
    if (config->secret_bytes > SECRET_MAX || (config->secret_bytes && !config->secret))
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "a job's secret has at most %d bytes",
                          SECRET_MAX);
    if (config->secret_bytes && !disti_hmac_exists())
        return disti_fail(
            DIST_ERR_UNSUPPORTED,
            "this distrun was built without OpenSSL, and cannot prove that it has the "
            "job's secret: build it with libssl-dev");
    if (config->address && !config_is_text(config->address, AGENTS_ADDRESS))
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "--local-addr wants an address");
    if (config->join_timeout_ms < 1 || config->last_call_timeout_ms < 0 ||
        config->keep_alive_interval_ms < 1)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "--rdzv-conf: join_timeout and keep_alive_interval must be above 0");
    if (config->keep_alive_max_attempt < 1 ||
        config->keep_alive_max_attempt > INT_MAX / config->keep_alive_interval_ms)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "--rdzv-conf: %d is no number for keep_alive_max_attempt",
                          config->keep_alive_max_attempt);
    return DIST_OK;
}

bool disti_agents_config_copy(struct disti_agents_config *copy_p,
                              const struct disti_agents_config *config)
{
    char host[DISTI_HOST_SIZE], *address = config->address ? strdup(config->address) : NULL;
    void *secret = calloc(1, config->secret_bytes + 1);

    disti_host_name(host);
    *copy_p = *config;
    copy_p->endpoint_host = strdup(config->endpoint_host);
    copy_p->job = strdup(config->job);
    copy_p->host = strdup(config->host && config->host[0] ? config->host : host);
    if (address)
        disti_host_normalize(address);
    copy_p->address = address;
    if (secret && config->secret_bytes)
        memcpy(secret, config->secret, config->secret_bytes);
    copy_p->secret = secret;
    return secret && copy_p->endpoint_host && copy_p->job && copy_p->host &&
           (copy_p->address || !config->address);
}

void disti_agents_config_free(struct disti_agents_config *config)
{
    free((char *)config->endpoint_host);
    free((char *)config->job);
    free((char *)config->host);
    free((char *)config->address);
    if (config->secret)
        explicit_bzero((void *)config->secret, config->secret_bytes);
    free((void *)config->secret);
}
