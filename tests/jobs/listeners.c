/* SPDX-License-Identifier: BSD-3-Clause */
/* Lists the listening sockets of a process, as the kernel reports them. */
#include "listeners.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* True if the process has that socket open. */
static bool listeners_holds(pid_t process, unsigned long inode)
{
    char folder[64], path[400], link[64], wanted[64];
    const struct dirent *entry;
    bool found = false;
    DIR *opened;

    snprintf(folder, sizeof(folder), "/proc/%d/fd", (int)process);
    snprintf(wanted, sizeof(wanted), "socket:[%lu]", inode);
    opened = opendir(folder);
    while (opened && !found && (entry = readdir(opened))) {
        ssize_t length;

        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        length = readlink(path, link, sizeof(link) - 1);
        found = length > 0 && strncmp(link, wanted, (size_t)length) == 0 &&
                strlen(wanted) == (size_t)length;
    }
    if (opened)
        closedir(opened);
    return found;
}

/* Parses "0100007F:1F90", or 32 digits for IPv6: the words of the address in memory order, and the
 * port. */
static void listeners_read(const char *text, struct listener *listener)
{
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)&listener->address;
    struct sockaddr_in *four = (struct sockaddr_in *)&listener->address;
    unsigned words[4] = {0}, port = 0;
    bool is_four = strcspn(text, ":") == 8;

    memset(listener, 0, sizeof(*listener));
    if (is_four) {
        sscanf(text, "%8X:%4X", &words[0], &port);
        four->sin_family = AF_INET;
        four->sin_port = htons((uint16_t)port);
        memcpy(&four->sin_addr, words, sizeof(four->sin_addr));
    } else {
        sscanf(text, "%8X%8X%8X%8X:%4X", &words[0], &words[1], &words[2], &words[3], &port);
        six->sin6_family = AF_INET6;
        six->sin6_port = htons((uint16_t)port);
        memcpy(&six->sin6_addr, words, sizeof(six->sin6_addr));
    }
    listener->length = is_four ? sizeof(*four) : sizeof(*six);
    listener->everywhere = strspn(text, "0") == strcspn(text, ":");
}

static int listeners_in(const char *table, pid_t process, struct listener *found, int most)
{
    char path[64], line[512], address[64], state[8];
    unsigned long inode;
    int count = 0;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/net/%s", (int)process, table);
    file = fopen(path, "re");
    while (file && count < most && fgets(line, sizeof(line), file)) {
        if (sscanf(line, "%*s %63s %*s %7s %*s %*s %*s %*s %*s %lu", address, state, &inode) == 3 &&
            strcmp(state, "0A") == 0 && listeners_holds(process, inode))
            listeners_read(address, &found[count++]);
    }
    if (file)
        fclose(file);
    return count;
}

int listeners_of(pid_t process, struct listener found[LISTENERS_MOST])
{
    int count = listeners_in("tcp", process, found, LISTENERS_MOST);

    return count + listeners_in("tcp6", process, found + count, LISTENERS_MOST - count);
}
