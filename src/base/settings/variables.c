/* SPDX-License-Identifier: BSD-3-Clause */
/* The environment variables that the library reads, and names that look like them. */
#include "base/settings/variables.h"

#include "base/hash.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VARIABLES_PREFIX "DIST_"

const struct disti_variable disti_variables[] = {
    {"DIST_AGENT_LAST_CALL", "set by distrun: the file that it reads a rank's last call from"},
    {"DIST_AGENT_STORE", "set by distrun and dist_spawn, which then hold the store"},
    {"DIST_AGENT_STORE_SECRET", "set by distrun: the file with what its store asks for"},
    {"DIST_ALGO", "the algorithms to be used"},
    {"DIST_BACKEND", "the backend, if the program names none"},
    {"DIST_DEBUG", "what is logged"},
    {"DIST_DEBUG_FILE", "the file that log lines go to"},
    {"DIST_DEVICE", "the GPU of this rank"},
    {"DIST_GPU_DRIVER", "the file of the GPU's driver library"},
    {"DIST_MPI_COLL", "how backend mpi runs collectives"},
    {"DIST_MPI_COMPARE", "libdist_mpi.so hands on what MPI does faster"},
    {"DIST_MPI_CUDA", "whether MPI takes GPU memory directly"},
    {"DIST_MPI_REPORT", "libdist_mpi.so prints what it has served"},
    {"DIST_MPI_SERVE", "what libdist_mpi.so serves"},
    {"DIST_NCCL_LIBRARY", "the file of NCCL's library"},
    {"DIST_NODE_MEMORY", "whether ranks of a machine share memory"},
    {"DIST_PLUGIN_PATH", "the folders that contain modules"},
    {"DIST_PROGRESS_THREAD", "whether a progress thread advances started works"},
    {"DIST_REPRODUCIBLE", "whether the bits of a reduction depend on the number of ranks alone"},
    {"DIST_SEGMENTS", "into how many segments pipelined algorithms cut"},
    {"DIST_SHM_CMA", "whether the kernel copies between processes"},
    {"DIST_SOCKET_IFNAME", "the interfaces whose addresses the listeners bind"},
    {"DIST_STEP_ASIDE", "whether a rank migrates from a CPU that it shares"},
    {"DIST_TCP_BUFFER", "the bytes of each socket buffer"},
    {"DIST_TCP_CONGESTION", "the congestion control of transport tcp"},
    {"DIST_TCP_EARLY_LIMIT", "the bytes of unexpected messages that are kept"},
    {"DIST_TCP_SOCKETS", "how many sockets a pair of ranks has"},
    {"DIST_TCP_ZEROCOPY", "whether transport tcp sends without copying"},
    {"DIST_TIMEOUT", "the seconds that a blocking call may wait"},
    {"DIST_TRANSPORT", "the transports that the backend may use"},
    {"DIST_TUNING", "how algorithms are chosen"},
};
const size_t disti_variable_count = sizeof(disti_variables) / sizeof(disti_variables[0]);

/* How the names begin that programs beside the library read: dist_bench, the tests, an example. */
static const char *const variables_others[] = {"DIST_BENCH_", "DIST_TEST_", "DIST_ACL_"};

static int variables_least(int a, int b)
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
                variables_least(last[j] + (a[i] != b[j]), variables_least(last[j + 1], row[j]) + 1);
            if (i && j && a[i] == b[j - 1] && a[i - 1] == b[j])
                row[j + 1] = variables_least(row[j + 1], before[j - 1] + 1);
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

static bool variables_is_known(const char *name, bool (*owned)(const char *name))
{
    for (size_t i = 0; i < disti_variable_count; i++) {
        if (strcmp(name, disti_variables[i].name) == 0)
            return true;
    }
    for (size_t i = 0; i < sizeof(variables_others) / sizeof(variables_others[0]); i++) {
        if (strncmp(name, variables_others[i], strlen(variables_others[i])) == 0)
            return true;
    }
    return owned && owned(name);
}

/* Appends one, and what may be meant. */
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

uint64_t disti_variables_unknown(bool (*owned)(const char *name), char *text, size_t size)
{
    uint64_t hash = 0;

    text[0] = '\0';
    for (char **item = environ; item && *item; item++) {
        size_t length = strcspn(*item, "=");
        char name[256];

        if (strncmp(*item, VARIABLES_PREFIX, strlen(VARIABLES_PREFIX)) != 0 ||
            length >= sizeof(name))
            continue;
        memcpy(name, *item, length);
        name[length] = '\0';
        if (variables_is_known(name, owned))
            continue;
        /* A sum, as the environment has no order. */
        hash += disti_hash_text(DISTI_HASH_START, name);
        variables_name(name, text, size);
    }
    return text[0] && !hash ? 1 : hash;
}
