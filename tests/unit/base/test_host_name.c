/* SPDX-License-Identifier: BSD-3-Clause */
/* Host names of the maximum length of Linux, and with unusual bytes. */
#include "base/net.h"
#include "store/wire.h"
#include "topology/discover.h"

#include "unit.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static char host_set[65];

/* Replaces the function of libc. */
int gethostname(char *name, size_t size)
{
    size_t length = strlen(host_set) + 1;

    memcpy(name, host_set, length < size ? length : size);
    errno = length > size ? ENAMETOOLONG : 0;
    return errno ? -1 : 0;
}

static const char *host_named(const char *name)
{
    static char text[DISTI_HOST_SIZE];

    strcpy(host_set, name);
    memset(text, 'x', sizeof(text));
    disti_host_name(text);
    return text;
}

static void test_names_of_maximum_length_are_kept(void **state)
{
    unsigned char bytes[DISTI_WIRE_ID];
    struct disti_wire_id id = {.rank = 7, .job = "job"}, same;
    struct disti_locality locality;
    char name[65];

    (void)state;
    for (size_t length = 62; length <= 64; length++) {
        memset(name, 'a', length);
        name[length - 1] = 'z';
        name[length] = '\0';
        assert_string_equal(host_named(name), name);
        assert_int_equal(disti_discover(0, 1, &locality), DIST_OK);
        assert_string_equal(locality.host, name);
        disti_host_name(id.host);
        disti_wire_put_id(bytes, &id);
        assert_true(disti_wire_get_id(bytes, &same));
        assert_string_equal(same.host, name);
        assert_string_equal(same.job, "job");
    }
}

static void test_unusual_bytes_are_replaced(void **state)
{
    char text[DISTI_HOST_SIZE];

    (void)state;
    assert_string_equal(host_named(""), "?");
    assert_string_equal(host_named("n\xf6"
                                   "de\n../1"),
                        "n?de?..?1");
    strcpy(host_set, "node.example.org");
    disti_host_short(text);
    assert_string_equal(text, "node");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_names_of_maximum_length_are_kept),
                                       cmocka_unit_test(test_unusual_bytes_are_replaced)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
