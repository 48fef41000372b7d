/* SPDX-License-Identifier: BSD-3-Clause */
/* Processes: their end, limits, memory, names and namespaces. */
#ifndef DISTI_BASE_PROCESS_H
#define DISTI_BASE_PROCESS_H

#include <dist/dist.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

/* ---- how another process ended ---- */

/*
 * Why a process on the host of that name, in PID namespace `space`, closed its connection
 * without a goodbye: "was killed by signal 9 (SIGKILL)", or "exited with code 3 without leaving the
 * job". The kernel knows it of this namespace's processes, while they end and until their parent
 * has waited for them. If nothing is known: "closed its connection without leaving the job".
 * Returns text, or that.
 */
const char *disti_process_end(const char *host, uint32_t space, int pid, char *text, size_t size);

/* ---- limits on processes and threads ---- */

/*
 * Reports from errno that something cannot be started, with the limit to raise. The format says
 * what: "start rank %d". Returns ERR_SYSTEM.
 */
dist_status disti_process_limit_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- the out-of-memory killer ---- */

/*
 * A launcher reads the number before it starts processes, and again when SIGKILL has ended one.
 * Counted are processes of this process's cgroup (version 1 or 2), or, without a cgroup for memory,
 * of the machine. 0: not known.
 */
int64_t disti_process_oom_kills(void);

/* The same from files like /proc/PID/cgroup and /proc/vmstat, and the folder of cgroups. */
int64_t disti_process_oom_kills_in(const char *membership, const char *mounts, const char *vmstat);

/* The text after "ended by SIGKILL" in a message: the cause and the fix, or "" unless `killed`. */
const char *disti_process_oom_text(bool killed);

/*
 * Splits a line of /proc/PID/cgroup, "HIERARCHY:CONTROLLERS:PATH", in place. False: it is none.
 * Version 2 of cgroups has no controllers there.
 */
bool disti_cgroup_split(char *line, char **controllers_p, char **path_p);

/* True if the list, "cpu,cpuacct", contains that controller. */
bool disti_cgroup_controls(const char *controllers, const char *name);

/* ---- this process in /proc ---- */

/*
 * By the calling thread. /proc/self is the process's first thread: one that has ended while others
 * go on has no descriptors, memory, program or namespaces there.
 */
#define DISTI_PROCESS_OWN "/proc/thread-self"

/* ---- mappings of this process, changed by system calls that no library has replaced ---- */

/*
 * UCX, Open MPI and libfabric replace mmap, munmap, mremap and madvise of libc in the whole
 * process, so that their caches of pinned pages learn which pages go. Code in this project calls
 * libc for memory that such a cache may know. The functions below are for these cases:
 *
 * - mremap to a given address: the replacement in UCX drops that address.
 * - signal handlers and forked children: the replacements wait for locks that the interrupted
 *   thread, or a thread that the child does not have, may hold.
 *
 * All four may be called from a signal handler. They set errno as the calls of libc do.
 */
void *disti_pages_map(void *at, size_t bytes, int protection, int flags, int fd, off_t offset);
void disti_pages_unmap(void *memory, size_t bytes);

/* Returns the new address of the pages, or MAP_FAILED. */
void *disti_pages_grow(void *memory, size_t bytes, size_t new_bytes);

/* Moves pages to `to`, in place of the pages there. Returns where they are now, or MAP_FAILED: then
 * they are still at `from`. Callers check for an address other than `to`. */
void *disti_pages_move(void *from, size_t bytes, void *to);

/* ---- memory and descriptors of another process, also if only its first thread has ended ---- */

/*
 * As process_vm_readv(2) and process_vm_writev(2) with one piece on each side. ESRCH: the process
 * has ended, or its first thread has and /proc does not tell of the others. The kernel reads *there
 * as the copy begins. Do not block.
 */
ssize_t disti_process_read(int pid, const struct iovec *here, const struct iovec *there);
ssize_t disti_process_write(int pid, const struct iovec *here, const struct iovec *there);

/* Room for a path of disti_process_path. */
#define DISTI_PROCESS_PATH 64

/* Writes the path under which this process opens descriptor `fd` of that one, if there is such. */
void disti_process_path(int pid, int fd, char path[DISTI_PROCESS_PATH]);

/* ---- names of signals ---- */

/* "TERM" for SIGTERM; NULL for a number without a name, as real-time signals have. */
const char *disti_signal_name(int signal_number);

/* ---- the PID namespace of this process ---- */

/* The inode of this process's PID namespace; 0: not known, since /proc is not mounted. */
uint32_t disti_process_space(void);

/*
 * True if /proc has the processes of this PID namespace. False: it is not mounted, or shows those
 * of another namespace (unshare --pid without --mount-proc), where a pid of this process belongs to
 * another one.
 */
bool disti_process_proc_is_own(void);

/* The text after a pid in a message: "", or " in another PID namespace". */
const char *disti_process_elsewhere(uint32_t space);

/* ---- threads of another process (/proc/PID/stat) ---- */

/*
 * Has the process's first thread ended, or begun to? Then *status_p is as wait(2) has it. False: it
 * goes on, or nothing is known of it any more.
 */
bool disti_process_first_ends(int pid, int *status_p);

/*
 * The number of a thread of the process that goes on, and is not its first. 0: there is none, or
 * nothing is known. The first may have ended by pthread_exit while the process lives. It has no
 * memory and no descriptors then, while those of every other thread are the process's.
 */
int disti_process_thread(int pid);

#endif
