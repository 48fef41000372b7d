/* SPDX-License-Identifier: BSD-3-Clause */
/* The environment variables that the library reads, and names that look like them. */
#ifndef DISTI_BASE_SETTINGS_VARIABLES_H
#define DISTI_BASE_SETTINGS_VARIABLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One of the library's own; dist-env(7) says more of each, and a lint test that it says it of all.
 */
struct disti_variable {
    const char *name, *meaning;
};
extern const struct disti_variable disti_variables[];
extern const size_t disti_variable_count;

/*
 * How many letters of one name are to be changed, added, left out or swapped with their neighbour
 * to make the other (optimal alignment). The second has DISTI_NAME_LONGEST letters at most.
 */
#define DISTI_NAME_LONGEST 64
int disti_name_distance(const char *a, const char *b);

/* The one whose name is most like this one, by a few letters at most; NULL: none is. */
const struct disti_variable *disti_variable_like(const char *name);

/*
 * Looks through the environment for DIST_ variables that neither the library nor its tools read,
 * and of which `owned` (may be NULL) does not say that a module reads them. Returns a hash of their
 * names, the same wherever they are the same; 0: there are none. text[size] gets "DIST_BACKND (did
 * you mean DIST_BACKEND, ...?), DIST_X", cut behind a name if they are many.
 */
uint64_t disti_variables_unknown(bool (*owned)(const char *name), char *text, size_t size);

#endif
