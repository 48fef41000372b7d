/* SPDX-License-Identifier: BSD-3-Clause */
/* Processes: how they ended, their limits, memory, signal names and namespaces. */
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
 * Describes why a process on `host`, in PID namespace `space`, closed its connection without a
 * goodbye: "was killed by signal 9 (SIGKILL)" or "exited with code 3 without leaving the job". The
 * kernel reports this only for processes of this namespace, from their end until their parent has
 * waited for them. Otherwise: "closed its connection without leaving the job". Returns `text` or a
 * static string.
 */
const char *disti_process_end(const char *host, uint32_t space, int pid, char *text, size_t size);

/* ---- limits on processes and threads ---- */

/*
 * Reports from errno that something cannot be started, with the limit to raise. The format
 * describes it: "start rank %d". Returns ERR_SYSTEM.
 */
dist_status disti_process_limit_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- the out-of-memory killer ---- */

/*
 * Returns the number of out-of-memory kills. A launcher reads it before it starts processes, and
 * again after SIGKILL has ended one. Counts this process's cgroup (version 1 or 2) or, without a
 * memory cgroup, the machine. 0: unknown.
 */
int64_t disti_process_oom_kills(void);

/*
 * As disti_process_oom_kills, from a file like /proc/PID/cgroup, the directory where cgroups are
 * mounted, and a file like /proc/vmstat.
 */
int64_t disti_process_oom_kills_in(const char *membership, const char *mounts, const char *vmstat);

/*
 * Returns the text after "ended by SIGKILL" in a message. If `killed`, which means that the
 * out-of-memory killer ended the process, it is the cause and the fix; otherwise "".
 */
const char *disti_process_oom_text(bool killed);

/*
 * Splits a line of /proc/PID/cgroup, "HIERARCHY:CONTROLLERS:PATH", in place. Returns false if it
 * has another format. The controllers are empty in version 2.
 */
bool disti_cgroup_split(char *line, char **controllers_p, char **path_p);

/* True if the list, such as "cpu,cpuacct", contains the controller. */
bool disti_cgroup_controls(const char *controllers, const char *name);

/* ---- this process in /proc ---- */

/*
 * Use this instead of /proc/self, which shows the process's first thread. If that thread has ended
 * while other threads run, /proc/self shows no descriptors, memory, program or namespaces.
 */
#define DISTI_PROCESS_OWN "/proc/thread-self"

/* ---- mappings of this process, changed by system calls that no library has replaced ---- */

/*
 * UCX, Open MPI and libfabric replace libc's mmap, munmap, mremap and madvise in the whole process
 * to keep their registration caches valid. Code in this project calls libc for memory that such a
 * cache may contain. The functions below call the kernel directly, for mremap to a given address
 * (UCX's replacement drops the address), and for signal handlers and forked children (the
 * replacements take locks that the interrupted thread, or a thread missing in the child, may
 * hold). They are async-signal-safe and set errno as libc does.
 */
void *disti_pages_map(void *at, size_t bytes, int protection, int flags, int fd, off_t offset);
void disti_pages_unmap(void *memory, size_t bytes);

/* Returns the new address of the pages, or MAP_FAILED. */
void *disti_pages_grow(void *memory, size_t bytes, size_t new_bytes);

/*
 * Moves pages to `to` and replaces the pages there. Returns their new address, or MAP_FAILED if
 * they are still at `from`. Callers check that the result is `to`.
 */
void *disti_pages_move(void *from, size_t bytes, void *to);

/* ---- memory and descriptors of another process, even if its first thread has ended ---- */

/*
 * As process_vm_readv(2) and process_vm_writev(2) with one segment on each side. ESRCH: the process
 * has ended, or its first thread has and /proc does not show the other threads. The kernel reads
 * *there when the copy begins. The functions do not block.
 */
ssize_t disti_process_read(int pid, const struct iovec *here, const struct iovec *there);
ssize_t disti_process_write(int pid, const struct iovec *here, const struct iovec *there);

/* Size of a path of disti_process_path. */
#define DISTI_PROCESS_PATH 64

/* Gets the path under which this process can open descriptor `fd` of process `pid`. */
void disti_process_path(int pid, int fd, char path[DISTI_PROCESS_PATH]);

/* ---- names of signals ---- */

/* Returns "TERM" for SIGTERM; NULL for signals without a name, such as real-time signals. */
const char *disti_signal_name(int signal_number);

/* ---- the PID namespace of this process ---- */

/* Returns the inode of this process's PID namespace; 0: unknown, since /proc is not mounted. */
uint32_t disti_process_space(void);

/*
 * True if /proc shows the processes of this PID namespace. False if it is not mounted or shows
 * another namespace (unshare --pid without --mount-proc), where this process's pid belongs to
 * another process.
 */
bool disti_process_proc_is_own(void);

/* Returns the text after a pid in a message: "" or " in another PID namespace". */
const char *disti_process_elsewhere(uint32_t space);

/* ---- threads of another process (/proc/PID/stat) ---- */

/*
 * True if the process's first thread has ended or is ending; *status_p is then as from wait(2).
 * False if the thread runs or its state is unknown.
 */
bool disti_process_first_ends(int pid, int *status_p);

/*
 * Returns the id of a running thread of the process other than its first; 0: none, or unknown. If
 * the first thread has ended by pthread_exit, /proc shows the process's memory and descriptors only
 * for its other threads.
 */
int disti_process_thread(int pid);

#endif
