/* SPDX-License-Identifier: BSD-3-Clause */
/* A library of ours, as the command line has it. */
#include "spec.h"

#include "bench/measure/driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char spec_failure[256];

static int spec_variables(struct spec *spec, char *text)
{
    for (char *one = strtok(text, "+"); one; one = strtok(NULL, "+")) {
        if (!strchr(one, '=') || *one == '=' || spec->variable_count == SPEC_VARIABLES_MAX - 1) {
            snprintf(spec_failure, sizeof(spec_failure),
                     "'%s': after a + comes VARIABLE=VALUE, at most %d times", one,
                     SPEC_VARIABLES_MAX - 1);
            return -1;
        }
        spec->variables[spec->variable_count++] = one;
    }
    return 0;
}

static int spec_cut(struct spec *spec, char *text)
{
    char *plus = strchr(text, '+'), *slash;

    if (plus) {
        *plus = '\0';
        if (spec_variables(spec, plus + 1) != 0)
            return -1;
    }
    slash = strchr(text, '/');
    spec->memory = slash ? slash + 1 : "malloc";
    if (slash)
        *slash = '\0';
    spec->backend = text;
    if (strcmp(text, "mpi-native") == 0) {
        spec->backend = "mpi";
        spec->variables[spec->variable_count++] = "DIST_MPI_COLL=native";
    }
    spec->launched = strcmp(spec->backend, "mpi") == 0;
    spec->limit = strcmp(text, "limit") == 0;
    if (*text && libdist_has_memory(spec->memory))
        return 0;
    snprintf(spec_failure, sizeof(spec_failure),
             "write BACKEND[/malloc|/registered|/dist][+VARIABLE=VALUE], not '%s/%s'", text,
             spec->memory);
    return -1;
}

int spec_read(const char *text, struct spec *spec_p, const char **failure_p)
{
    struct spec spec = {.text = strdup(text)};

    *failure_p = spec_failure;
    if (!spec.text || spec_cut(&spec, spec.text) != 0) {
        free(spec.text);
        return -1;
    }
    *spec_p = spec;
    return 0;
}

void spec_free(struct spec *spec)
{
    free(spec->text);
    *spec = (struct spec){0};
}

int spec_apply(const struct spec *spec)
{
    for (int i = 0; i < spec->variable_count; i++) {
        char *variable = strdup(spec->variables[i]), *value;

        if (!variable)
            return -1;
        value = strchr(variable, '=');
        *value++ = '\0';
        setenv(variable, value, 1);
        free(variable);
    }
    return 0;
}
