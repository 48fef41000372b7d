/* SPDX-License-Identifier: BSD-3-Clause */
/* Can this process have a descriptor for all that the routes may need? */
#include "engine/routes/route.h"

#include "base/descriptor.h"
#include "base/log.h"
#include "base/process/own.h"
#include "base/settings/config.h"

#include <dirent.h>
#include <limits.h>
#include <string.h>

/* Of a peer that is reached by shared memory: memory, socket, doorbell, and its process. */
#define FILES_SHM 4
/* What a call may need for a moment. */
#define FILES_SPARE 4

/* Those that are open; 0: it is not known. */
static size_t files_open(void)
{
    DIR *folder = opendir(DISTI_PROCESS_OWN "/fd");
    size_t count = 0;

    while (folder && readdir(folder))
        count++;
    if (folder)
        closedir(folder);
    return count;
}

static size_t files_a_peer(const struct dist_transport *transport)
{
    int sockets = 1;

    if (strcmp(transport->name, "shm") == 0)
        return FILES_SHM;
    if (strcmp(transport->name, "tcp") == 0 &&
        disti_env_int("DIST_TCP_SOCKETS", 1, INT_MAX, 1, &sockets) != DIST_OK)
        sockets = 1;
    return (size_t)sockets;
}

void disti_route_files(const struct dist_engine *engine)
{
    size_t open, wanted, most;

    if (engine->config->group != 0) /* the groups of a world share its connections */
        return;
    open = files_open();
    wanted = open + FILES_SPARE;
    for (int i = 0; i < engine->link_count; i++)
        wanted += (size_t)engine->links[i].peers * files_a_peer(engine->links[i].transport);
    most = disti_descriptor_allow(wanted);
    if (most < wanted)
        disti_notice("rank %d may have %zu open files, has %zu, and needs %zu to talk to all %d "
                     "ranks: where its calls need more, they will fail; raise the hard limit of "
                     "open files (ulimit -Hn) to %zu or more",
                     engine->config->rank, most, open, wanted, engine->config->world_size, wanted);
}
