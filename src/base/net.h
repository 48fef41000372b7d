/* SPDX-License-Identifier: BSD-3-Clause */
/* Sockets, addresses and host names. */
#ifndef DISTI_BASE_NET_H
#define DISTI_BASE_NET_H

#include <dist/dist.h>
#include <netdb.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

/* ---- the name of this machine ---- */

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

/* ---- sockets and addresses ---- */

/*
 * The addresses of a name, for TCP. Returns getaddrinfo's code; free with freeaddrinfo. EAI_AGAIN
 * if the name servers have not answered by the deadline.
 */
int disti_resolve(const char *host, int port, int64_t deadline, struct addrinfo **addresses_p);

/* Removes the brackets of "[::1]", and turns "::ffff:10.0.0.1" into "10.0.0.1". Never longer. */
void disti_host_normalize(char *host);

/* True for names and addresses of the loopback: localhost, me.localhost, 127.0.0.1, ::1. */
bool disti_host_is_loopback(const char *host);

/* "127.0.0.1", or "::1" if only that can be used. */
const char *disti_loopback(void);

/*
 * True if to use the address again cannot help after it failed with that error: a loopback address
 * that this machine does not have, a link-local one without its interface. Says why and what to do.
 */
bool disti_address_is_hopeless(const struct sockaddr *address, int error, char *why, size_t size);

/* "10.0.0.1", without the port. */
void disti_address_text(const struct sockaddr *address, char text[DISTI_HOST_SIZE]);
int disti_address_port(const struct sockaddr *address);

/*
 * Listens on the first address of `host` that belongs to this machine, and on no other.
 * Port 0: any free one. The socket does not block and is closed by exec. A name is looked up until
 * the deadline. ERR_ADDRESS_IN_USE, ERR_RENDEZVOUS.
 */
dist_status disti_listen(const char *host, int port, int64_t deadline, int *fd_p, int *port_p);

/*
 * Listens on all addresses of this machine. For a name by which others find this machine, while
 * here it stands for the loopback address: which address they use is not known.
 */
dist_status disti_listen_everywhere(int port, int *fd_p, int *port_p);

/*
 * Does the name stand for loopback addresses alone here, though it is no name of the loopback? So
 * Debian has it in /etc/hosts for a machine's own name (127.0.1.1); other machines know it better.
 */
bool disti_host_is_hidden(const char *host, int64_t deadline);

/* No delays for small messages; a peer that has vanished is noticed. Errors are ignored. */
void disti_socket_tune(int fd);

/*
 * The address by which other machines reach this one: of the interface that
 * DIST_SOCKET_IFNAME asks for ("eth,ib": any that begins so; "^docker": any but those;
 * "=eth0": exactly), else of the default route, else 127.0.0.1.
 * ERR_INVALID_ARGUMENT if DIST_SOCKET_IFNAME fits no interface that has an address.
 */
dist_status disti_primary_address(char text[DISTI_HOST_SIZE]);

/* The same text for processes that can reach each other by 127.0.0.1, and for no others. */
void disti_machine_id(char text[DISTI_HOST_SIZE]);

/* 32 random hexadecimal digits. ERR_SYSTEM. */
dist_status disti_random_id(char text[33]);

#endif
