/* SPDX-License-Identifier: BSD-3-Clause */
/* The tables of backends and transports are right before anything in them is called. */
#include "backends/registry.h"

#include "base/log.h"

static dist_status check_abi(uint32_t abi, uint32_t size, size_t expected, const char *from)
{
    if (abi == DIST_ABI && size >= expected)
        return DIST_OK;
    return disti_fail(DIST_ERR_ABI,
                      "%s was built for ABI %u (%u bytes), this library has ABI %d (%zu bytes): "
                      "build the module again with this library's headers",
                      from, abi, size, DIST_ABI, expected);
}

/* A slot that must be set, and whether it is. */
struct check_slot {
    const char *name;
    bool set;
};

static dist_status check_slots(const struct check_slot *slots, const char *from)
{
    for (; slots->name; slots++) {
        if (!slots->set)
            return disti_fail(DIST_ERR_ABI, "%s lacks the mandatory slot '%s': it must be set",
                              from, slots->name);
    }
    return DIST_OK;
}

dist_status disti_backend_check(const struct dist_backend *b, const char *from)
{
    dist_status status = check_abi(b->abi, b->size, sizeof(*b), from);

    if (status != DIST_OK)
        return status;
    const struct check_slot slots[] = {
        {"name", b->name && *b->name},
        {"summary", b->summary != NULL},
        {"probe", b->probe != NULL},
        {"query", b->query != NULL},
        {"open", b->open != NULL},
        {"close", b->close != NULL},
        {"post", b->post != NULL},
        {"progress", b->progress != NULL},
        {"abort", b->abort != NULL},
        {"disarm", !b->arm || b->disarm},
        {"release", !b->prepare || b->release},
        {"free", !b->alloc || b->free},
        {NULL, true},
    };

    return check_slots(slots, from);
}

dist_status disti_transport_check(const struct dist_transport *t, const char *from)
{
    dist_status status = check_abi(t->abi, t->size, sizeof(*t), from);

    if (status != DIST_OK)
        return status;
    const struct check_slot slots[] = {
        {"name", t->name && *t->name},
        {"open", t->open != NULL},
        {"address", t->address != NULL},
        {"reach", t->reach != NULL},
        {"connect", t->connect != NULL},
        {"send", t->send != NULL},
        {"recv", t->recv != NULL},
        {"progress", t->progress != NULL},
        {"arm", t->arm != NULL},
        {"disarm", t->disarm != NULL},
        {"close", t->close != NULL},
        {"probe_tag", t->probe_tag != NULL},
        {NULL, true},
    };

    return check_slots(slots, from);
}
