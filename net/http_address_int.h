// net/http_address_int.h: which addresses a tool may be reached at unless its declaration says
// allow_private.
#ifndef HOLDFAST_NET_HTTP_ADDRESS_INT_H
#define HOLDFAST_NET_HTTP_ADDRESS_INT_H

#include <stdbool.h>
#include <sys/socket.h>

// True for a public unicast IPv4 or IPv6 address; false for anything else, unknown families
// included. Judged on the address that will be connected to, after name resolution: a name that
// changes its mind (DNS rebinding) gains nothing.
bool http_address_is_public(const struct sockaddr *address);

#endif
