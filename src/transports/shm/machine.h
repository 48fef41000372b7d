/* SPDX-License-Identifier: BSD-3-Clause */
/* Which machine this is, and how its ranks find each other's listeners. */
#ifndef DISTI_TRANSPORTS_SHM_MACHINE_H
#define DISTI_TRANSPORTS_SHM_MACHINE_H

#include <dist/transport.h>

#include <sys/socket.h>
#include <sys/un.h>

#define SHM_NAME_BYTES 16
#define SHM_BOOT_BYTES 40

/* A rank's address, as it goes to the peers. `name` is that of its listener. */
struct shm_address {
    uint32_t magic;
    uint32_t abi;
    uint32_t uid;
    uint32_t pid;
    uint64_t network_device, network_inode; /* the network namespace: abstract names live in it */
    char boot[SHM_BOOT_BYTES];              /* the kernel's boot id, text */
    uint8_t name[SHM_NAME_BYTES];
};

/*
 * Fills *address for this process, with a new random name. On failure writes the reason
 * (reason may be NULL) and returns ERR_UNSUPPORTED.
 */
dist_status disti_shm_machine_self(struct shm_address *address, char *reason, size_t reason_size);

/* Can a process at `mine` share memory with one at `theirs`? */
bool disti_shm_machine_same(const struct shm_address *mine, const struct shm_address *theirs);

/* The abstract socket address of a listener; returns its length. */
socklen_t disti_shm_machine_socket(const struct shm_address *address, struct sockaddr_un *name);

/*
 * Copies `bytes` bytes at `address` in process `pid` to `data`. 0, or the errno: ESRCH, the
 * process has ended; EPERM, it may not be read; EFAULT, there is not that much memory.
 */
int disti_shm_machine_read(int pid, void *data, uint64_t address, size_t bytes);

/* Does the process still run, as far as this one can see? A pid of 0 cannot be seen. */
bool disti_shm_machine_runs(int pid);

bool disti_shm_machine_random(void *data, size_t bytes);

#endif
