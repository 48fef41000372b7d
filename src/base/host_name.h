/* SPDX-License-Identifier: BSD-3-Clause */
/* The name of this machine. */
#ifndef DISTI_BASE_HOST_NAME_H
#define DISTI_BASE_HOST_NAME_H

/*
 * Bytes for a host's name with its terminator: Linux allows 64 characters. Also enough for a
 * numeric address with its scope. A multiple of 4, as the name is part of structs that ranks
 * exchange.
 */
#define DISTI_HOST_SIZE 68

/* The machine's whole name. Bytes other than printable ASCII, and '/', become '?'. "?" if unknown.
 */
void disti_host_name(char text[DISTI_HOST_SIZE]);

/* The same up to the first dot. */
void disti_host_short(char text[DISTI_HOST_SIZE]);

#endif
