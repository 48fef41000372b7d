/* SPDX-License-Identifier: BSD-3-Clause */
/* Where the kernel tells of this process. */
#ifndef DISTI_BASE_PROCESS_OWN_H
#define DISTI_BASE_PROCESS_OWN_H

/*
 * By the calling thread. /proc/self is the process's first thread: one that has ended while others
 * go on has no descriptors, memory, program or namespaces there.
 */
#define DISTI_PROCESS_OWN "/proc/thread-self"

#endif
