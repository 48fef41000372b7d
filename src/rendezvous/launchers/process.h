/* SPDX-License-Identifier: BSD-3-Clause */
/* The launcher's process on this machine: the one above this rank that is to outlive it. */
#ifndef DISTI_RENDEZVOUS_PROCESS_H
#define DISTI_RENDEZVOUS_PROCESS_H

/* As /proc has it, without its end. */
#define DISTI_PROCESS_NAME 32

/*
 * The nearest process above this one that was started without `variable`, or with another value
 * than this one has. A launcher gives it to its ranks alone: so shells between the two do not
 * count, which may end before the rank does, and a launcher that is itself a rank of another does.
 * A pidfd of it, which the caller closes, with *pid_p and its name; -1: there is none but those
 * that adopt orphans, or the system does not tell. Does not block.
 */
int disti_launcher_process(const char *variable, int *pid_p, char name[DISTI_PROCESS_NAME]);

#endif
