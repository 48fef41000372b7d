/* SPDX-License-Identifier: BSD-3-Clause */
/* The environment variables that the library reads, and names that look like them. */
#ifndef DISTI_BASE_SETTINGS_VARIABLES_H
#define DISTI_BASE_SETTINGS_VARIABLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A variable of the library's own, from variables.def. */
struct disti_variable {
    const char *name, *meaning;
    const char *unset; /* what holds without it, in words; "": nothing to say */
    int least, most;   /* of a number; both 0: no number */
    size_t bytes;      /* the largest size; 0: no size */
    const char *words; /* the values, with commas between; NULL: no list */
};
extern const struct disti_variable disti_variables[];
extern const size_t disti_variable_count;

/* One that others set or define, and the library reads too. */
struct disti_foreign {
    const char *name, *meaning;
    const char *owner; /* who sets it, or whose it is */
};
extern const struct disti_foreign disti_foreigns[];
extern const size_t disti_foreign_count;

/*
 * How many letters of one name are to be changed, added, left out or swapped with their neighbour
 * to make the other (optimal alignment). The second has DISTI_NAME_LONGEST letters at most.
 */
#define DISTI_NAME_LONGEST 64
int disti_name_distance(const char *a, const char *b);

/* The one whose name is most like this one, by a few letters at most; NULL: none is. */
const struct disti_variable *disti_variable_like(const char *name);

/*
 * Copies the name of an item of the environment, "DIST_BACKEND=gloo", to name[size]. False: it does
 * not begin with DIST_, or has no room.
 */
#define DISTI_VARIABLE_ROOM 256
bool disti_variable_of(const char *item, char *name, size_t size);

/* Do the library, its tools, or, as `owned` (may be NULL) says, a module read a DIST_ variable? */
bool disti_variable_is_known(const char *name, bool (*owned)(const char *name));

/*
 * Looks through the environment for DIST_ variables that nobody reads. Returns a hash of their
 * names, the same wherever they are the same; 0: there are none. text[size] gets "DIST_BACKND (did
 * you mean DIST_BACKEND, ...?), DIST_X", cut behind a name if they are many. *meant_p: some name is
 * like one that is read.
 */
uint64_t disti_variables_unknown(bool (*owned)(const char *name), char *text, size_t size,
                                 bool *meant_p);

#endif
