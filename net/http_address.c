// net/http_address.c: the table of addresses that are not public (IANA special-purpose registries).
#include "net/http_address_int.h"

#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct range4 {
    uint32_t net;
    unsigned bits;
};

#define NET4(a, b, c, d)                                                                           \
    ((uint32_t)(a) << 24 | (uint32_t)(b) << 16 | (uint32_t)(c) << 8 | (uint32_t)(d))

static const struct range4 not_public4[] = {
    {NET4(0, 0, 0, 0), 8},      {NET4(10, 0, 0, 0), 8},     {NET4(100, 64, 0, 0), 10},
    {NET4(127, 0, 0, 0), 8},    {NET4(169, 254, 0, 0), 16}, {NET4(172, 16, 0, 0), 12},
    {NET4(192, 0, 0, 0), 24},   {NET4(192, 0, 2, 0), 24},   {NET4(192, 88, 99, 0), 24},
    {NET4(192, 168, 0, 0), 16}, {NET4(198, 18, 0, 0), 15},  {NET4(198, 51, 100, 0), 24},
    {NET4(203, 0, 113, 0), 24}, {NET4(224, 0, 0, 0), 4},    {NET4(240, 0, 0, 0), 4},
};

static bool public4(uint32_t address)
{
    for (size_t i = 0; i < sizeof not_public4 / sizeof not_public4[0]; i++) {
        uint32_t mask = ~(uint32_t)0 << (32 - not_public4[i].bits);
        if ((address & mask) == not_public4[i].net) {
            return false;
        }
    }
    return true;
}

static uint32_t embedded4(const uint8_t *b)
{
    return NET4(b[0], b[1], b[2], b[3]);
}

static bool starts(const uint8_t *b, const uint8_t *prefix, size_t n)
{
    return memcmp(b, prefix, n) == 0;
}

static bool public6(const uint8_t b[16])
{
    static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    static const uint8_t nat64[12] = {0x00, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0};
    if (starts(b, mapped, sizeof mapped) || starts(b, nat64, sizeof nat64)) {
        return public4(embedded4(b + 12));
    }
    if (b[0] == 0x20 && b[1] == 0x02) { // 6to4 carries the IPv4 address it leads to
        return public4(embedded4(b + 2));
    }
    if ((b[0] & 0xe0) !=
        0x20) { // global unicast is 2000::/3: no loopback, fc00::/7, fe80::/10, ff00::/8
        return false;
    }
    static const uint8_t documentation[4] = {0x20, 0x01, 0x0d, 0xb8};
    bool protocol = b[0] == 0x20 && b[1] == 0x01 && (b[2] & 0xfe) == 0; // 2001::/23: Teredo, ORCHID
    return !protocol && !starts(b, documentation, sizeof documentation);
}

bool http_address_is_public(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET) {
        struct sockaddr_in in;
        memcpy(&in, address, sizeof in);
        return public4(ntohl(in.sin_addr.s_addr));
    }
    if (address->sa_family == AF_INET6) {
        struct sockaddr_in6 in6;
        memcpy(&in6, address, sizeof in6);
        return public6(in6.sin6_addr.s6_addr);
    }
    return false;
}
