/* SPDX-License-Identifier: BSD-3-Clause */
/* The environment variables that the library reads, and names that look like them. */
#ifndef DISTI_BASE_SETTINGS_VARIABLES_H
#define DISTI_BASE_SETTINGS_VARIABLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One of libdist's variables, from variables.def. */
struct disti_variable {
    const char *name, *meaning;
    const char *unset; /* text of the default; "": none */
    int least, most;   /* range of a number; both 0: not a number */
    size_t bytes;      /* maximum of a size; 0: not a size */
    const char *words; /* comma-separated values; NULL: no list */
};
extern const struct disti_variable disti_variables[];
extern const size_t disti_variable_count;

/* A variable of another program that libdist reads too. */
struct disti_foreign {
    const char *name, *meaning;
    const char *owner; /* the program that sets or defines it */
};
extern const struct disti_foreign disti_foreigns[];
extern const size_t disti_foreign_count;

/*
 * Returns the edit distance of two names: letters changed, inserted, deleted or swapped with their
 * neighbour (optimal string alignment). The second name has at most DISTI_NAME_LONGEST letters.
 */
#define DISTI_NAME_LONGEST 64
int disti_name_distance(const char *a, const char *b);

/* Returns the variable with the most similar name, within a few letters; NULL: none. */
const struct disti_variable *disti_variable_like(const char *name);

/*
 * Copies the name of an environment entry, "DIST_BACKEND=gloo", to name[size]. Returns false if it
 * does not begin with DIST_ or does not fit.
 */
#define DISTI_VARIABLE_ROOM 256
bool disti_variable_of(const char *item, char *name, size_t size);

/*
 * True if the library, its tools or, according to `owned` (may be NULL), a module reads the
 * variable.
 */
bool disti_variable_is_known(const char *name, bool (*owned)(const char *name));

/*
 * Searches the environment for DIST_ variables that nothing reads. Returns a hash of their names,
 * which is equal wherever the names are; 0: none. text[size] gets "DIST_BACKND (did you mean
 * DIST_BACKEND, ...?), DIST_X", truncated after a name if there are many. *meant_p: true if some
 * name is similar to a known one.
 */
uint64_t disti_variables_unknown(bool (*owned)(const char *name), char *text, size_t size,
                                 bool *meant_p);

#endif
