/* SPDX-License-Identifier: BSD-3-Clause */
/* What backends and transports there are, each asked in a process of its own. */
#ifndef TOOLS_MODULES_H
#define TOOLS_MODULES_H

#include <stdbool.h>

/* "backend NAME yes|no TEXT" or "transport ...", taken apart. */
struct modules_line {
    bool backend; /* else a transport */
    bool usable;
    bool lost; /* loading it, or its probe, crashed or did not come back */
    char name[64];
    char text[1100];
};

/* In the order of dist_list_names; `lines` is the caller's to free. */
struct modules_list {
    struct modules_line *lines;
    int count;
};

/*
 * Asks what there is under a name, or under every name: a module that crashes or does not come back
 * within some seconds is a line too, and harms this process in no way. Blocks meanwhile. False: no
 * memory.
 */
bool modules_ask(const char *name, struct modules_list *list_p);
bool modules_ask_all(struct modules_list *list_p);

#endif
