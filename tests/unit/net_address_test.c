// Which addresses count as public.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

#include "base/check.h"
#include "net/http_address_int.h"

static bool is_public(const char *text)
{
    struct sockaddr_storage storage;
    memset(&storage, 0, sizeof storage);
    if (strchr(text, ':') != NULL) {
        struct sockaddr_in6 in6 = {.sin6_family = AF_INET6};
        assert_int_equal(inet_pton(AF_INET6, text, &in6.sin6_addr), 1);
        memcpy(&storage, &in6, sizeof in6);
    } else {
        struct sockaddr_in in = {.sin_family = AF_INET};
        assert_int_equal(inet_pton(AF_INET, text, &in.sin_addr), 1);
        memcpy(&storage, &in, sizeof in);
    }
    return http_address_is_public((const struct sockaddr *)&storage);
}

static void test_public(void **state)
{
    (void)state;
    static const char *const addresses[] = {
        "1.1.1.1",          "8.8.8.8",         "9.255.255.255",  "11.0.0.0",
        "100.63.255.255",   "100.128.0.0",     "172.15.255.255", "172.32.0.0",
        "192.167.255.255",  "192.169.0.0",     "198.17.255.255", "198.20.0.0",
        "223.255.255.255",  "2606:4700::1111", "2a00::1",        "::ffff:8.8.8.8",
        "64:ff9b::8.8.8.8", "2002:808:808::1"};
    for (size_t i = 0; i < COUNT_OF(addresses); i++) {
        if (!is_public(addresses[i])) {
            fail_msg("%s is public", addresses[i]);
        }
    }
}

static void test_not_public(void **state)
{
    (void)state;
    static const char *const addresses[] = {"0.0.0.0",
                                            "10.0.0.1",
                                            "10.255.255.255",
                                            "100.64.0.0",
                                            "127.0.0.1",
                                            "127.255.255.255",
                                            "169.254.169.254",
                                            "172.16.0.1",
                                            "172.31.255.255",
                                            "192.168.0.1",
                                            "198.18.0.1",
                                            "192.0.2.1",
                                            "224.0.0.1",
                                            "255.255.255.255",
                                            "::",
                                            "::1",
                                            "fe80::1",
                                            "fc00::1",
                                            "fd12::1",
                                            "ff02::1",
                                            "::ffff:127.0.0.1",
                                            "::ffff:10.0.0.1",
                                            "64:ff9b::10.0.0.1",
                                            "2002:7f00:1::1",
                                            "2001:db8::1",
                                            "2001::1",
                                            "::127.0.0.1"};
    for (size_t i = 0; i < COUNT_OF(addresses); i++) {
        if (is_public(addresses[i])) {
            fail_msg("%s is not public", addresses[i]);
        }
    }
    struct sockaddr unix_socket = {.sa_family = AF_UNIX};
    assert_false(http_address_is_public(&unix_socket));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_public),
                                       cmocka_unit_test(test_not_public)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
