/* SPDX-License-Identifier: BSD-3-Clause */
/* The secret of a job whose ranks nobody hands one: a file, the user's cookie, or none. */
#include "rendezvous/meet.h"

#include "base/log.h"
#include "base/settings/config.h"

#include <string.h>

enum secret_wish { SECRET_AUTO, SECRET_COOKIE, SECRET_NONE };

static dist_status secret_wish(enum secret_wish *wish_p)
{
    const char *text = disti_env("DIST_AUTH");

    *wish_p = SECRET_AUTO;
    if (!text || strcmp(text, "auto") == 0)
        return DIST_OK;
    *wish_p = strcmp(text, "cookie") == 0 ? SECRET_COOKIE : SECRET_NONE;
    if (*wish_p == SECRET_COOKIE || strcmp(text, "none") == 0)
        return DIST_OK;
    return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                      "DIST_AUTH is \"%.40s\": set it to auto, cookie or none, the same for all "
                      "ranks",
                      text);
}

static dist_status secret_refuse(const struct disti_meeting *meeting, const char *why)
{
    return disti_fail(DIST_ERR_RENDEZVOUS, "rank %d: %s", meeting->rank, why);
}

static dist_status secret_take(const struct disti_meeting *meeting, const char *host,
                               enum secret_wish wish, struct disti_secret *secret_p)
{
    const char *path = disti_env("DIST_SECRET_FILE");
    char why[DISTI_SECRET_WHY];

    if ((path || wish == SECRET_COOKIE) && !disti_hmac_exists())
        return secret_refuse(meeting, "this libdist was built without OpenSSL, and cannot prove "
                                      "that it has a secret: build it with libssl-dev");
    if (path)
        return disti_secret_read(path, secret_p, why) ? DIST_OK : secret_refuse(meeting, why);
    if (!disti_hmac_exists() ||
        (wish == SECRET_AUTO && !meeting->one_machine && !disti_host_is_loopback(host))) {
        disti_info("rank %d has no secret to prove to the store at %s: whoever reaches it may take "
                   "part. See DIST_SECRET_FILE and DIST_AUTH",
                   meeting->rank, host);
        return DIST_OK;
    }
    if (disti_secret_cookie(secret_p, why))
        return DIST_OK;
    /* To go on without would be what somebody wants who has laid a file there. */
    if (wish == SECRET_COOKIE || secret_p->path[0])
        return secret_refuse(meeting, why);
    disti_warn("rank %d goes on without a secret, and whoever reaches the store may take part: %s. "
               "DIST_SECRET_FILE names another file; DIST_AUTH=none means that no secret is wanted",
               meeting->rank, why);
    return DIST_OK;
}

dist_status disti_meet_secret(const struct disti_meeting *meeting, const char *host,
                              struct disti_secret *secret_p)
{
    enum secret_wish wish;
    dist_status status = secret_wish(&wish);

    disti_secret_wipe(secret_p);
    if (status != DIST_OK || wish == SECRET_NONE)
        return status;
    return secret_take(meeting, host, wish, secret_p);
}
