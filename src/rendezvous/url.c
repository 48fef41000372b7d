/* SPDX-License-Identifier: BSD-3-Clause */
/* Init methods: env://, tcp://host:port, file:///path, mpi://, each with ?rank=..&world_size=.. */
#include "rendezvous/rendezvous.h"

#include "base/log.h"
#include "base/net/socket.h"
#include "base/settings/config.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

static dist_status url_bad(const char *text, const char *why)
{
    return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                      "the init method \"%.200s\" %s: give env://, tcp://HOST:PORT, "
                      "file:///PATH or mpi://",
                      text, why);
}

/* Copies `length` bytes; false if they do not fit, or are none. */
static bool url_copy(char *to, size_t size, const char *from, size_t length)
{
    if (length == 0 || length >= size)
        return false;
    memcpy(to, from, length);
    to[length] = 0;
    return true;
}

/* "host:port", "[::1]:port" */
static dist_status url_tcp(const char *text, const char *body, size_t length, struct disti_url *url)
{
    bool bracket = body[0] == '[';
    const char *end = bracket ? memchr(body, ']', length) : memchr(body, ':', length);
    const char *colon = end ? end + bracket : NULL;
    size_t used = colon ? (size_t)(colon - body) : 0;
    char port[16];

    if (!end || used >= length || *colon != ':')
        return url_bad(text, "has no port");
    if (!bracket && memchr(colon + 1, ':', length - used - 1))
        return url_bad(text, "has an IPv6 address, which needs brackets ([::1])");
    if (!url_copy(url->host, sizeof(url->host), body + bracket, (size_t)(end - body) - bracket))
        return url_bad(text, "has no host, or too long a host");
    disti_host_normalize(url->host);
    if (!url_copy(port, sizeof(port), colon + 1, length - used - 1))
        return url_bad(text, "has no port, or too long a port");
    return disti_parse_int("the port in the init method", port, 1, 65535, &url->port);
}

static dist_status url_file(const char *text, const char *body, size_t length,
                            struct disti_url *url)
{
    if (body[0] != '/')
        return url_bad(text, "has no absolute path (three slashes)");
    if (!url_copy(url->path, sizeof(url->path), body, length))
        return url_bad(text, "has too long a path");
    return DIST_OK;
}

/* "rank=1&world_size=4" */
static dist_status url_query(const char *text, const char *query, struct disti_url *url)
{
    dist_status status = DIST_OK;
    char item[64];

    if (strlen(query) >= sizeof(item))
        return url_bad(text, "is too long after \"?\"");
    for (int i = 0; status == DIST_OK && disti_list_item(query, '&', i, item, sizeof(item)); i++) {
        if (strncmp(item, "rank=", 5) == 0)
            status = disti_parse_int("rank in the init method", item + 5, 0, INT_MAX, &url->rank);
        else if (strncmp(item, "world_size=", 11) == 0)
            status = disti_parse_int("world_size in the init method", item + 11, 1, INT_MAX,
                                     &url->world_size);
        else
            status = url_bad(text, "has other keys than rank and world_size after \"?\"");
    }
    return status;
}

static const struct url_scheme {
    const char *prefix;
    enum disti_url_kind kind;
} url_schemes[] = {
    {"env://", DISTI_URL_ENV},
    {"tcp://", DISTI_URL_TCP},
    {"file://", DISTI_URL_FILE},
    {"mpi://", DISTI_URL_MPI},
};

static const struct url_scheme *url_scheme(const char *text)
{
    for (size_t i = 0; i < sizeof(url_schemes) / sizeof(url_schemes[0]); i++) {
        if (strncmp(text, url_schemes[i].prefix, strlen(url_schemes[i].prefix)) == 0)
            return &url_schemes[i];
    }
    return NULL;
}

dist_status disti_url_parse(const char *text, struct disti_url *url_p)
{
    struct disti_url url = {.kind = DISTI_URL_NONE, .port = -1, .rank = -1, .world_size = -1};
    const struct url_scheme *scheme;
    const char *body, *query;
    size_t length;
    dist_status status = DIST_OK;

    if (!text || !text[0]) {
        *url_p = url;
        return DIST_OK;
    }
    scheme = url_scheme(text);
    if (!scheme)
        return url_bad(text, "has an unknown scheme");
    url.kind = scheme->kind;
    body = text + strlen(scheme->prefix);
    query = strchr(body, '?');
    length = query ? (size_t)(query - body) : strlen(body);
    if (url.kind == DISTI_URL_TCP)
        status = url_tcp(text, body, length, &url);
    else if (url.kind == DISTI_URL_FILE)
        status = url_file(text, body, length, &url);
    else if (length)
        status = url_bad(text, "has text after \"//\"");
    if (status == DIST_OK && query)
        status = url_query(text, query + 1, &url);
    if (status == DIST_OK)
        *url_p = url;
    return status;
}
