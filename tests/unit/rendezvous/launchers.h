/* SPDX-License-Identifier: BSD-3-Clause */
/* Clears and sets the environment variables of launchers, for tests that simulate one. */
#ifndef TESTS_UNIT_RENDEZVOUS_LAUNCHERS_H
#define TESTS_UNIT_RENDEZVOUS_LAUNCHERS_H

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Unsets every variable that a launcher may set. */
static inline void launchers_clear(void)
{
    static const char *const prefixes[] = {"RANK=", "WORLD_SIZE=",  "LOCAL_",    "MASTER_",
                                           "OMPI_", "PMI",          "MPI_LOCAL", "SLURM_",
                                           "MS_",   "TORCHELASTIC", "DIST_",     "GROUP_"};
    char name[256];

    for (size_t i = 0; environ && environ[i];) {
        size_t hits = 0;

        for (size_t p = 0; p < sizeof(prefixes) / sizeof(prefixes[0]); p++)
            hits += strncmp(environ[i], prefixes[p], strlen(prefixes[p])) == 0;
        if (hits == 0 || strcspn(environ[i], "=") >= sizeof(name)) {
            i++;
            continue;
        }
        memcpy(name, environ[i], strcspn(environ[i], "="));
        name[strcspn(environ[i], "=")] = 0;
        unsetenv(name);
    }
}

/* Sets variables from texts "NAME=value"; the array ends with NULL. */
static inline void launchers_set(const char *const *settings)
{
    for (; *settings; settings++) {
        const char *equals = strchr(*settings, '=');
        char name[128] = "";

        memcpy(name, *settings, (size_t)(equals - *settings));
        setenv(name, equals + 1, 1);
    }
}

#define LAUNCHED(...) launchers_set((const char *[]){__VA_ARGS__, NULL})

#endif
