/* SPDX-License-Identifier: BSD-3-Clause */
/* The launcher's PMIx: what it says of the job, and what it carries from rank 0 to the others. */
#ifndef DISTI_RENDEZVOUS_PMIX_PMIX_H
#define DISTI_RENDEZVOUS_PMIX_PMIX_H

#include <stdbool.h>
#include <stdint.h>

#define DISTI_PMIX_TEXT 512
#define DISTI_PMIX_REASON 400

/*
 * All four block until the deadline at most, whatever the server does, and on false say why in
 * reason. What it has not answered by then is still pending: until it is answered, further
 * questions wait for that, and then fail. The library is opened at run time.
 */

/* Does the environment say that a launcher serves PMIx to this process? */
bool disti_pmix_is_offered(void);

/*
 * Connects to the server, unless this process is connected. A forked child of a process that is
 * connected cannot.
 */
bool disti_pmix_open(int64_t deadline, char reason[DISTI_PMIX_REASON]);

/* What the launcher says of this process; -1: it does not. Once it is open. */
struct disti_pmix_job {
    int world_size, local_rank, local_world_size;
};
bool disti_pmix_ask_job(int64_t deadline, struct disti_pmix_job *job_p,
                        char reason[DISTI_PMIX_REASON]);

/* Gives rank 0's text to all ranks of the job: all of them call this. Once it is open. */
bool disti_pmix_spread(int rank, char text[DISTI_PMIX_TEXT], int64_t deadline,
                       char reason[DISTI_PMIX_REASON]);

/*
 * Ends the connection after use, as MPI_Init of Open MPI 5 fails in a process that is connected.
 * All ranks do this between their last question and their next meeting: a server counts a rank that
 * has gone as one that misses the fence. Versions before 5 cannot be begun again in the same
 * process, so with these the connection stays until the process exits. Any thread; also if nothing
 * is open.
 */
void disti_pmix_close(int64_t deadline);

#endif
