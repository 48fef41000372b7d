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

/*
 * Gets the machine's full name; "?" if it is unknown. '/' and bytes other than printable ASCII
 * become '?'.
 */
void disti_host_name(char text[DISTI_HOST_SIZE]);

/* Gets the machine's name up to the first dot. */
void disti_host_short(char text[DISTI_HOST_SIZE]);

/* ---- sockets and addresses ---- */

/*
 * Resolves a name for TCP. Blocks at most until the deadline. Returns getaddrinfo's code,
 * EAI_AGAIN if the name servers have not answered by the deadline. Free the result with
 * freeaddrinfo.
 */
int disti_resolve(const char *host, int port, int64_t deadline, struct addrinfo **addresses_p);

/* Removes the brackets of "[::1]", and turns "::ffff:10.0.0.1" into "10.0.0.1". Never longer. */
void disti_host_normalize(char *host);

/* True for names and addresses of the loopback: localhost, me.localhost, 127.0.0.1, ::1. */
bool disti_host_is_loopback(const char *host);

/* Returns "127.0.0.1", or "::1" if only that can be used. */
const char *disti_loopback(void);

/*
 * True if a retry cannot succeed after this error, because the address is a loopback address that
 * cannot be used on this machine, or a link-local address without its interface. `why` then has the
 * cause and the fix.
 */
bool disti_address_is_hopeless(const struct sockaddr *address, int error, char *why, size_t size);

/* Formats the address without its port. */
void disti_address_text(const struct sockaddr *address, char text[DISTI_HOST_SIZE]);
int disti_address_port(const struct sockaddr *address);

/*
 * Listens on the first address of `host` that belongs to this machine, and on no other one. Port
 * 0: any free port. The socket is non-blocking and close-on-exec. Resolving blocks at most until
 * the deadline. ERR_ADDRESS_IN_USE, ERR_RENDEZVOUS.
 */
dist_status disti_listen(const char *host, int port, int64_t deadline, int *fd_p, int *port_p);

/*
 * Listens on all addresses of this machine. Needed for a name that resolves only to a loopback
 * address here (disti_host_is_hidden), since the address that it has on other machines is unknown.
 */
dist_status disti_listen_everywhere(int port, int *fd_p, int *port_p);

/*
 * True if the name resolves only to loopback addresses here but is not a loopback name. Debian has
 * such an entry in /etc/hosts for a machine's own name (127.0.1.1); other machines resolve it
 * differently.
 */
bool disti_host_is_hidden(const char *host, int64_t deadline);

/* Disables Nagle's algorithm and enables detection of vanished peers. Ignores errors. */
void disti_socket_tune(int fd);

/*
 * Gets the address by which other machines reach this one: that of the interface selected by
 * DIST_SOCKET_IFNAME ("eth,ib": names that begin with eth or ib; "^docker": names that do not begin
 * with docker; "=eth0": exactly this name), else of the default route, else 127.0.0.1.
 * ERR_INVALID_ARGUMENT if DIST_SOCKET_IFNAME matches no interface that has an address.
 */
dist_status disti_primary_address(char text[DISTI_HOST_SIZE]);

/*
 * Gets a text that is equal for processes that can reach each other over 127.0.0.1, and differs
 * for all other processes.
 */
void disti_machine_id(char text[DISTI_HOST_SIZE]);

/* Generates 32 random hexadecimal digits. ERR_SYSTEM. */
dist_status disti_random_id(char text[33]);

#endif
