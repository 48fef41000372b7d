/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Checks the values of the library's variables before a job starts, and for dist_info. Each value
 * is also checked where it is used, but not every job uses all variables: a job of one rank, for
 * example, has no transports and needs no token.
 */
#include "backends/module.h"
#include "backends/registry.h"
#include "base/auth.h"
#include "base/faults.h"
#include "base/log.h"
#include "base/net.h"
#include "base/settings/config.h"
#include "base/settings/variables.h"
#include "base/tls/tls.h"
#include "engine/engine.h"
#include "tuning/choose.h"

#include <limits.h>
#include <string.h>

/* ---- variables that need more than a range or a list of words ---- */

static dist_status settings_algo(const char *value)
{
    struct disti_choice choice;

    return disti_choice_parse(value, false, &choice);
}

static dist_status settings_fault(const char *value)
{
    struct disti_faults set = {0};

    return disti_faults_parse(value, &set);
}

/* Checks all variables of the log at once. */
static dist_status settings_log(const char *value)
{
    struct disti_log log;

    (void)value;
    return disti_log_init(&log, NULL, NULL);
}

static dist_status settings_secret(const char *value)
{
    struct disti_secret secret;
    char why[DISTI_SECRET_WHY];
    bool good = disti_secret_read(value, &secret, why);

    disti_secret_wipe(&secret);
    return good ? DIST_OK : disti_fail(DIST_ERR_INVALID_ARGUMENT, "DIST_SECRET_FILE: %s", why);
}

static dist_status settings_interface(const char *value)
{
    char address[DISTI_HOST_SIZE];

    (void)value;
    return disti_primary_address(address);
}

/* Checks the three TLS files at once. */
static dist_status settings_tls(const char *value)
{
    struct disti_tls_context *context = NULL;
    dist_status status = disti_tls_open(&context);

    (void)value;
    disti_tls_context_free(context);
    return status;
}

static dist_status settings_transport(const char *value)
{
    char name[DISTI_MODULE_NAME], why[1024], path[1][PATH_MAX];

    for (int i = 0; disti_list_item(value, ',', i, name, sizeof(name)); i++) {
        /* Loads nothing: it is enough that the module's file exists. "mpi" is a transport of the
         * MPI modules. */
        if (disti_built_in_transport(name) || strcmp(name, "mpi") == 0 ||
            (!strchr(name, '/') && disti_module_locate(name, path, 1) > 0))
            continue;
        disti_transport_missing(name, why, sizeof(why));
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "DIST_TRANSPORT: unknown transport '%s': %s",
                          name, why);
    }
    return DIST_OK;
}

static dist_status settings_tuning(const char *value)
{
    struct disti_tuning tuning;
    char why[1024];

    if (strcmp(value, "off") == 0 || strcmp(value, "measure") == 0 ||
        disti_tune_read(value, NULL, &tuning, why, sizeof(why)) == DIST_OK)
        return DIST_OK;
    return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                      "DIST_TUNING is not off, measure or a valid tuning file: %s", why);
}

/* ---- all variables ---- */

/* Variables of type TEXT (variables.def) whose values can be checked in advance. */
static const struct {
    const char *name;
    dist_status (*check)(const char *value);
} settings_checks[] = {
    {"DIST_ALGO", settings_algo},
    {"DIST_DEBUG", settings_log},
    {"DIST_DEBUG_FILE", settings_log},
    {"DIST_DEBUG_SUBSYS", settings_log},
    {"DIST_FAULT", settings_fault},
    {"DIST_SECRET_FILE", settings_secret},
    {"DIST_SOCKET_IFNAME", settings_interface},
    {"DIST_TLS_CA", settings_tls},
    {"DIST_TLS_CERT", settings_tls},
    {"DIST_TLS_KEY", settings_tls},
    {"DIST_TRANSPORT", settings_transport},
    {"DIST_TUNING", settings_tuning},
};

static dist_status settings_words(const struct disti_variable *variable, const char *value)
{
    char word[16], next[16], all[64];
    size_t used = 0;

    for (int i = 0; disti_list_item(variable->words, ',', i, word, sizeof(word)); i++) {
        const bool last = !disti_list_item(variable->words, ',', i + 1, next, sizeof(next));

        if (strcmp(word, value) == 0)
            return DIST_OK;
        used += disti_text(all + used, sizeof(all) - used, "%s%s",
                           i == 0 ? ""
                           : last ? " or "
                                  : ", ",
                           word);
    }
    return disti_fail(DIST_ERR_INVALID_ARGUMENT, "%s is \"%.64s\": set it to %s", variable->name,
                      value, all);
}

/* Checks one variable. An empty word, list or file name counts as unset; an empty number is an
 * error. */
static dist_status settings_check(const struct disti_variable *variable)
{
    const char *value = disti_env_raw(variable->name);
    dist_status status;
    size_t bytes = 0;
    int number;

    if (!value)
        return DIST_OK;
    if (variable->most)
        return disti_parse_int(variable->name, value, variable->least, variable->most, &number);
    if (variable->bytes) {
        status = disti_parse_bytes(variable->name, value, &bytes);
        if (status == DIST_OK && bytes > variable->bytes)
            status =
                disti_fail(DIST_ERR_INVALID_ARGUMENT, "%s is %.64s: set it to at most %zu bytes",
                           variable->name, value, variable->bytes);
        return status;
    }
    if (!value[0])
        return DIST_OK;
    if (variable->words)
        return settings_words(variable, value);
    for (size_t i = 0; i < sizeof(settings_checks) / sizeof(*settings_checks); i++) {
        if (strcmp(settings_checks[i].name, variable->name) == 0)
            return settings_checks[i].check(value);
    }
    return DIST_OK;
}

dist_status disti_settings_check(void)
{
    dist_status status = DIST_OK;

    for (size_t i = 0; status == DIST_OK && i < disti_variable_count; i++)
        status = settings_check(&disti_variables[i]);
    return status;
}

dist_status disti_setting_check(const char *name)
{
    for (size_t i = 0; i < disti_variable_count; i++) {
        if (strcmp(disti_variables[i].name, name) == 0)
            return settings_check(&disti_variables[i]);
    }
    return DIST_OK;
}
