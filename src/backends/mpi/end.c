/* SPDX-License-Identifier: BSD-3-Clause */
/* Backend mpi: the end of MPI while groups are open, by MPI_Finalize or exit: others are told. */
#include "backends/mpi/end.h"

#include "transports/mpi/mpi.h"

#include <pthread.h>

static pthread_mutex_t end_lock = PTHREAD_MUTEX_INITIALIZER;
static struct mpi_end *end_open;

/*
 * MPI_Finalize waits for all ranks, and those may wait in a call of the group for this one: until
 * their deadlines, as long as this process is there and says nothing. Returns the longest timeout.
 */
static int end_tell(void)
{
    int timeout_ms = 0;

    pthread_mutex_lock(&end_lock);
    for (struct mpi_end *end = end_open; end; end = end->next) {
        if (timeout_ms < end->config->timeout_ms)
            timeout_ms = end->config->timeout_ms;
        end->config->leave(end->config->all_gather_arg,
                           "ended MPI (MPI_Finalize or exit) before destroying the group");
    }
    pthread_mutex_unlock(&end_lock);
    return timeout_ms;
}

void disti_mpi_end_watch(struct mpi_end *end, const struct dist_backend_config *config)
{
    if (!config->leave)
        return;
    end->config = config;
    pthread_mutex_lock(&end_lock);
    end->next = end_open;
    end_open = end;
    pthread_mutex_unlock(&end_lock);
    disti_mpi_on_end(end_tell);
}

void disti_mpi_end_forget(struct mpi_end *end)
{
    struct mpi_end **entry = &end_open;

    pthread_mutex_lock(&end_lock);
    while (*entry && *entry != end)
        entry = &(*entry)->next;
    if (*entry)
        *entry = end->next;
    pthread_mutex_unlock(&end_lock);
}
