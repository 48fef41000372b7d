/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The table of environment variables that libdist reads, checks of their values, and suggestions
 * for misspelt names.
 */
#include "base/settings/variables.h"

#include "base/checked.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/settings/config.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VARIABLES_PREFIX "DIST_"
#define DIGITS "0123456789"

const struct disti_variable disti_variables[] = {
#define VALUES_TEXT 0, 0, 0, NULL
#define VALUES_FLAG 0, 1, 0, NULL
#define VALUES_NUMBER(least, most) least, most, 0, NULL
#define VALUES_BYTES(most) 0, 0, most, NULL
#define VALUES_WORDS(words) 0, 0, 0, words
#define VARIABLE(name, values, meaning, unset) {#name, meaning, unset, VALUES_##values},
#include "base/settings/variables.def"
#undef VARIABLE
};
const size_t disti_variable_count = sizeof(disti_variables) / sizeof(disti_variables[0]);

const struct disti_foreign disti_foreigns[] = {
    {"HOME", "the directory that contains .cache and .config", "the user"},
    {"HWLOC_COMPONENTS", "which components of hwloc detect the machine", "hwloc"},
    {"HWLOC_CPUID_PATH", "the directory of a recorded processor, in place of the real one",
     "hwloc"},
    {"HWLOC_FSROOT", "the directory of a recorded machine, in place of the real one", "hwloc"},
    {"HWLOC_SYNTHETIC", "the description of a machine, in place of the real one", "hwloc"},
    {"HWLOC_XMLFILE", "the XML file of a machine, in place of the real one", "hwloc"},
    {"LOCAL_RANK", "the rank's number on its machine", "torchrun, a shell"},
    {"LOCAL_WORLD_SIZE", "how many ranks are on this machine", "torchrun, a shell"},
    {"MASTER_ADDR", "the host where the ranks meet", "torchrun, a shell"},
    {"MASTER_PORT", "the port where they meet", "torchrun, a shell"},
    {"MPI_LOCALNRANKS", "how many ranks are on this machine", "MPICH"},
    {"MPI_LOCALRANKID", "the rank's number on its machine", "MPICH"},
    {"MS_CLUSTER_TIMEOUT", "the seconds that the ranks have to meet", "MindSpore"},
    {"MS_NODE_ID", "the rank", "MindSpore"},
    {"MS_ROLE", "whether this process is a worker", "MindSpore"},
    {"MS_SCHED_HOST", "the host where the ranks meet", "MindSpore"},
    {"MS_SCHED_PORT", "the port of the scheduler; the ranks meet at the next port", "MindSpore"},
    {"MS_WORKER_NUM", "how many ranks there are", "MindSpore"},
    {"NCCL_HOSTID", "distinguishes machines that have the same name", "NCCL"},
    {"OMPI_COMM_WORLD_LOCAL_RANK", "the rank's number on its machine", "Open MPI"},
    {"OMPI_COMM_WORLD_LOCAL_SIZE", "how many ranks are on this machine", "Open MPI"},
    {"OMPI_COMM_WORLD_RANK", "the rank", "Open MPI"},
    {"OMPI_COMM_WORLD_SIZE", "how many ranks there are", "Open MPI"},
    {"PMIX_NAMESPACE", "distinguishes jobs", "Open MPI, a PMIx launcher"},
    {"PMIX_PREFIX", "the directory of the launcher's PMIx library", "Open MPI"},
    {"PMIX_RANK", "the rank; set if Open MPI has launched it", "Open MPI, a PMIx launcher"},
    {"PMIX_SERVER_URI2", "set if there is a PMIx server", "Open MPI, a PMIx launcher"},
    {"PMIX_SERVER_URI21", "the same", "Open MPI, a PMIx launcher"},
    {"PMIX_SERVER_URI3", "the same", "Open MPI, a PMIx launcher"},
    {"PMIX_SERVER_URI4", "the same", "Open MPI, a PMIx launcher"},
    {"PMIX_SERVER_URI41", "the same", "Open MPI, a PMIx launcher"},
    {"PMI_FD", "the connection to the process manager, which distinguishes jobs", "MPICH"},
    {"PMI_JOBID", "distinguishes jobs", "MPICH"},
    {"PMI_RANK", "the rank", "MPICH"},
    {"PMI_SIZE", "how many ranks there are", "MPICH"},
    {"RANK", "the rank", "torchrun, a shell"},
    {"SLURM_JOB_ID", "distinguishes jobs", "srun"},
    {"SLURM_LOCALID", "the rank's number on its machine", "srun"},
    {"SLURM_NODEID", "the number of this machine", "srun"},
    {"SLURM_NTASKS", "how many ranks there are", "srun"},
    {"SLURM_PROCID", "the rank", "srun"},
    {"SLURM_STEP_ID", "set if srun has launched the rank", "srun"},
    {"SLURM_STEP_NODELIST", "the machines; the ranks meet on the first one", "srun"},
    {"SLURM_STEP_TASKS_PER_NODE", "how many ranks are on each machine", "srun"},
    {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "what distrun writes before a rank's lines",
     "torchrun"},
    {"TORCHELASTIC_RUN_ID", "set if torchrun has launched the rank; distinguishes jobs",
     "torchrun"},
    {"TORCHELASTIC_USE_AGENT_STORE", "whether torchrun's agent holds MASTER_PORT", "torchrun"},
    {"UCX_KEEPALIVE_INTERVAL",
     "how often UCX checks that peers are alive; libdist sets it if unset", "UCX"},
    {"UCX_NET_DEVICES", "the devices that backend ucx uses", "UCX"},
    {"UCX_RNDV_THRESH", "from which length messages use rendezvous; libdist sets it if unset",
     "UCX"},
    {"UCX_TLS", "the transports that backend ucx uses", "UCX"},
    {"UCX_ZCOPY_THRESH", "from which length messages are not copied; libdist sets it if unset",
     "UCX"},
    {"WORLD_SIZE", "how many ranks there are", "torchrun, a shell"},
    {"XDG_CACHE_HOME", "the directory of caches, if not .cache in HOME", "the user"},
    {"XDG_CONFIG_HOME", "the directory of settings, if not .config in HOME", "the user"},
};
const size_t disti_foreign_count = sizeof(disti_foreigns) / sizeof(disti_foreigns[0]);

/* ---- values: numbers are parsed strictly ---- */

dist_status disti_parse_int(const char *what, const char *text, int min, int max, int *value_p)
{
    const char *digits = text && text[0] == '-' ? text + 1 : text;
    char *end;
    long long value;

    if (!text || !text[0])
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "%s is empty: give a number from %d to %d",
                          what, min, max);
    errno = 0;
    value = strtoll(text, &end, 10);
    if (!strspn(digits, DIGITS) || *end)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "%s is \"%.64s\", which is not a whole number: give one from %d to %d",
                          what, text, min, max);
    if (errno == ERANGE || value < min || value > max)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "%s is %.64s, out of range: give a number from %d to %d", what, text, min,
                          max);
    *value_p = (int)value;
    return DIST_OK;
}

/* Returns the factor of a size suffix; 0 if `suffix` is invalid. */
static size_t config_unit(const char *suffix)
{
    static const char units[] = "kKmMgG";
    const char *unit = strchr(units, suffix[0]);

    if (!suffix[0])
        return 1;
    return unit && !suffix[1] ? (size_t)1024 << 10 * ((unit - units) / 2) : 0;
}

dist_status disti_parse_bytes(const char *what, const char *text, size_t *value_p)
{
    char *end;
    unsigned long long number;
    size_t unit, value;

    if (!text || !text[0])
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "%s is empty: give a number of bytes such as 4096, 64K, 1M or 2G", what);
    errno = 0;
    number = strtoull(text, &end, 10);
    unit = config_unit(end);
    if (!strspn(text, DIGITS) || !unit)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "%s is \"%.64s\", which is not a number of bytes: give one such as 4096, "
                          "64K, 1M or 2G",
                          what, text);
    if (errno == ERANGE || number > SIZE_MAX || !disti_mul((size_t)number, unit, &value))
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "%s is %.64s, which is more bytes than this machine can count: give less",
                          what, text);
    *value_p = value;
    return DIST_OK;
}

dist_status disti_env_int(const char *name, int min, int max, int fallback, int *value_p)
{
    const char *text = disti_env_raw(name);

    if (text)
        return disti_parse_int(name, text, min, max, value_p);
    *value_p = fallback;
    return DIST_OK;
}

dist_status disti_variable_int(const char *name, int fallback, int *value_p)
{
    for (size_t i = 0; i < disti_variable_count; i++) {
        const struct disti_variable *variable = &disti_variables[i];

        if (strcmp(variable->name, name) == 0)
            return disti_env_int(name, variable->least, variable->most, fallback, value_p);
    }
    return disti_fail(DIST_ERR_INTERNAL, "%s has no row in variables.def: please report it", name);
}

dist_status disti_env_seconds(const char *name, int fallback_ms, int *ms_p)
{
    int seconds = 0;
    dist_status status = disti_env_int(name, 1, INT_MAX, 0, &seconds);

    if (status == DIST_OK)
        *ms_p = seconds == 0 ? fallback_ms : seconds > INT_MAX / 1000 ? INT_MAX : seconds * 1000;
    return status;
}

dist_status disti_env_bytes(const char *name, size_t fallback, size_t *value_p)
{
    const char *text = disti_env_raw(name);

    if (text)
        return disti_parse_bytes(name, text, value_p);
    *value_p = fallback;
    return DIST_OK;
}

bool disti_list_item(const char *list, char separator, int index, char *item, size_t size)
{
    const char *end;
    size_t length;

    if (!list || !list[0] || index < 0)
        return false;
    for (; index > 0; index--) {
        list = strchr(list, separator);
        if (!list)
            return false;
        list++;
    }
    end = strchrnul(list, separator);
    length = (size_t)(end - list);
    if (length >= size)
        return false;
    memcpy(item, list, length);
    item[length] = '\0';
    return true;
}

bool disti_interface_fits(const char *spec, const char *name)
{
    bool exclude = spec[0] == '^', fits = false;
    bool exact;
    size_t length;

    spec += exclude;
    exact = spec[0] == '=';
    spec += exact;
    for (; !fits && spec[0]; spec += length + (spec[length] != '\0')) {
        length = strcspn(spec, ",");
        fits = length && strncmp(name, spec, length) == 0 && !(exact && name[length]);
    }
    return fits != exclude;
}

/* ---- names that are unknown ---- */

/* Prefixes of the variables of other programs of the project: dist_bench, the tests, an example. */
static const char *const variables_prefixes[] = {"DIST_BENCH_", "DIST_TEST_", "DIST_ACL_"};

static int variables_min(int a, int b)
{
    return a < b ? a : b;
}

int disti_name_distance(const char *a, const char *b)
{
    int rows[3][DISTI_NAME_LONGEST + 1], length = (int)strlen(b), i;
    int *before = rows[0], *last = rows[1], *row = rows[2];

    for (int j = 0; j <= length; j++)
        last[j] = before[j] = j;
    for (i = 0; a[i]; i++) {
        int *free = before;

        row[0] = i + 1;
        for (int j = 0; j < length; j++) {
            row[j + 1] =
                variables_min(last[j] + (a[i] != b[j]), variables_min(last[j + 1], row[j]) + 1);
            if (i && j && a[i] == b[j - 1] && a[i - 1] == b[j])
                row[j + 1] = variables_min(row[j + 1], before[j - 1] + 1);
        }
        before = last;
        last = row;
        row = free;
    }
    return last[length];
}

const struct disti_variable *disti_variable_like(const char *name)
{
    const char *own = name + strlen(VARIABLES_PREFIX);
    const struct disti_variable *best = NULL;
    int least = 1 + (int)strlen(own) / 5;

    if (strlen(name) > DISTI_NAME_LONGEST)
        return NULL;
    for (size_t i = 0; i < disti_variable_count; i++) {
        int distance = disti_name_distance(name, disti_variables[i].name);

        if (distance < least + !best) {
            least = distance;
            best = &disti_variables[i];
        }
    }
    return best;
}

bool disti_variable_is_known(const char *name, bool (*owned)(const char *name))
{
    for (size_t i = 0; i < disti_variable_count; i++) {
        if (strcmp(name, disti_variables[i].name) == 0)
            return true;
    }
    for (size_t i = 0; i < sizeof(variables_prefixes) / sizeof(variables_prefixes[0]); i++) {
        if (strncmp(name, variables_prefixes[i], strlen(variables_prefixes[i])) == 0)
            return true;
    }
    return owned && owned(name);
}

/* Appends a name and the similar known names. */
static void variables_name(const char *name, char *text, size_t size)
{
    const struct disti_variable *like = disti_variable_like(name);
    size_t used = strlen(text);
    int length;

    if (like)
        length = snprintf(text + used, size - used, "%s%s (did you mean %s, %s?)", used ? ", " : "",
                          name, like->name, like->meaning);
    else
        length = snprintf(text + used, size - used, "%s%.64s", used ? ", " : "", name);
    if (used && (size_t)length >= size - used)
        text[used] = '\0';
}

bool disti_variable_of(const char *item, char *name, size_t size)
{
    size_t length = strcspn(item, "=");

    if (strncmp(item, VARIABLES_PREFIX, strlen(VARIABLES_PREFIX)) != 0 || length >= size)
        return false;
    memcpy(name, item, length);
    name[length] = '\0';
    return true;
}

uint64_t disti_variables_unknown(bool (*owned)(const char *name), char *text, size_t size,
                                 bool *meant_p)
{
    uint64_t hash = 0;

    text[0] = '\0';
    *meant_p = false;
    for (char **item = environ; item && *item; item++) {
        char name[DISTI_VARIABLE_ROOM];

        if (!disti_variable_of(*item, name, sizeof(name)) || disti_variable_is_known(name, owned))
            continue;
        /* Use a sum, since the environment has no order. */
        hash += disti_hash_text(DISTI_HASH_START, name);
        variables_name(name, text, size);
        *meant_p |= disti_variable_like(name) != NULL;
    }
    return text[0] && !hash ? 1 : hash;
}
