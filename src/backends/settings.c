/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The values of the library's variables. Each is also checked where it is used, but not every job
 * uses all of them: a job of one rank has no transports and needs no secret. So all are checked
 * before a job starts, and by dist_info.
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
#include "transports/tcp/wire.h"
#include "tuning/choose.h"

#include <limits.h>
#include <string.h>

/* ---- variables whose values need more than a range or a list of words ---- */

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

/* Reads all variables of the log. */
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

/* Reads the three files of TLS. */
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
        /* Loads nothing: a module's file is enough. "mpi" is a transport of the modules for MPI. */
        if (disti_built_in_transport(name) || strcmp(name, "mpi") == 0 ||
            (!strchr(name, '/') && disti_module_locate(name, path, 1) > 0))
            continue;
        disti_transport_missing(name, why, sizeof(why));
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "DIST_TRANSPORT: there is no transport '%s': %s", name, why);
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
                      "DIST_TUNING is neither off nor measure nor a tuning file: %s", why);
}

/* ---- all of them ---- */

/* The values of a variable: a number, a size, one of some words, or as `check` says. */
struct settings_form {
    const char *name;
    int min, max; /* a number; both 0: none */
    size_t bytes; /* the largest size; 0: none */
    const char *words;
    dist_status (*check)(const char *value);
};

static const struct settings_form settings_forms[] = {
    {"DIST_ALGO", .check = settings_algo},
    {"DIST_AUTH", .words = "auto,cookie,none"},
    {"DIST_CHECKSUM", .max = 1},
    {"DIST_CHECK_NUMERICS", .max = 1},
    {"DIST_DEBUG", .check = settings_log},
    {"DIST_DEBUG_FILE", .check = settings_log},
    {"DIST_DEBUG_SUBSYS", .check = settings_log},
    {"DIST_DEVICE", .max = INT_MAX},
    {"DIST_FAULT", .check = settings_fault},
    {"DIST_FLIGHT", .max = 1 << 20},
    {"DIST_LAUNCHER_WATCH", .max = 1},
    {"DIST_MPI_COLL", .words = "auto,plan,native"},
    {"DIST_NODE_MEMORY", .max = 1},
    {"DIST_PMIX", .max = 1},
    {"DIST_PROGRESS_THREAD", .max = 1},
    {"DIST_REPRODUCIBLE", .max = 1},
    {"DIST_SECRET_FILE", .check = settings_secret},
    {"DIST_SEGMENTS", .min = 1, .max = 1024},
    {"DIST_SHM_CMA", .max = 1},
    {"DIST_SOCKET_IFNAME", .check = settings_interface},
    {"DIST_STEP_ASIDE", .max = 1},
    {"DIST_TCP_BUFFER", .bytes = (size_t)1 << 30},
    {"DIST_TCP_EARLY_LIMIT", .bytes = SIZE_MAX},
    {"DIST_TCP_SOCKETS", .min = 1, .max = DISTI_TCP_SOCKETS},
    {"DIST_TCP_ZEROCOPY", .words = "off,auto,on"},
    {"DIST_TIMEOUT", .min = 1, .max = INT_MAX},
    {"DIST_TLS_CA", .check = settings_tls},
    {"DIST_TLS_CERT", .check = settings_tls},
    {"DIST_TLS_KEY", .check = settings_tls},
    {"DIST_TRANSPORT", .check = settings_transport},
    {"DIST_TUNING", .check = settings_tuning},
};

static dist_status settings_words(const struct settings_form *form, const char *value)
{
    char word[16], next[16], all[64];
    size_t used = 0;

    for (int i = 0; disti_list_item(form->words, ',', i, word, sizeof(word)); i++) {
        const bool last = !disti_list_item(form->words, ',', i + 1, next, sizeof(next));

        if (strcmp(word, value) == 0)
            return DIST_OK;
        used += disti_text(all + used, sizeof(all) - used, "%s%s",
                           i == 0 ? ""
                           : last ? " or "
                                  : ", ",
                           word);
    }
    return disti_fail(DIST_ERR_INVALID_ARGUMENT, "%s is \"%.64s\": set it to %s", form->name, value,
                      all);
}

/* Empty words, lists and files are as if unset; empty numbers are wrong. */
static dist_status settings_check(const struct settings_form *form)
{
    const char *value = disti_env_raw(form->name);
    dist_status status;
    size_t bytes = 0;
    int number;

    if (!value)
        return DIST_OK;
    if (form->max)
        return disti_parse_int(form->name, value, form->min, form->max, &number);
    if (form->bytes) {
        status = disti_parse_bytes(form->name, value, &bytes);
        if (status == DIST_OK && bytes > form->bytes)
            status =
                disti_fail(DIST_ERR_INVALID_ARGUMENT, "%s is %.64s: set it to at most %zu bytes",
                           form->name, value, form->bytes);
        return status;
    }
    if (!value[0])
        return DIST_OK;
    return form->words ? settings_words(form, value) : form->check(value);
}

dist_status disti_settings_check(void)
{
    dist_status status = DIST_OK;

    for (size_t i = 0; status == DIST_OK && i < sizeof(settings_forms) / sizeof(*settings_forms);
         i++)
        status = settings_check(&settings_forms[i]);
    return status;
}

dist_status disti_setting_check(const char *name)
{
    for (size_t i = 0; i < sizeof(settings_forms) / sizeof(*settings_forms); i++) {
        if (strcmp(settings_forms[i].name, name) == 0)
            return settings_check(&settings_forms[i]);
    }
    return DIST_OK;
}
