#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "config/config_int.h"

/* What two options say about each other, and what this version does not honour. All of it in this
 * file. */

static void check_lease(struct loading *l)
{
    const struct config_lease *c = &l->cfg->lease;
    if (c->ttl_ms <= 2 * (c->heartbeat_ms + c->heartbeat_timeout_ms))
        config_error(l, "lease",
                     "ttl_ms (%" PRId64
                     ") must be more than 2 x (heartbeat_ms + heartbeat_timeout_ms) = %" PRId64
                     ", or one lost heartbeat loses the lease",
                     c->ttl_ms, 2 * (c->heartbeat_ms + c->heartbeat_timeout_ms));
}

static void check_services(struct loading *l)
{
    const struct config *c = l->cfg;
    if (c->sweep.enabled && c->sweep.interval_ms * 2 > c->sweep.ttl_ms)
        config_error(l, "sweep",
                     "interval_ms (%" PRId64 ") must be at most half of ttl_ms (%" PRId64 ")",
                     c->sweep.interval_ms, c->sweep.ttl_ms);
    if (c->relay.enabled && c->relay.interval_ms * 2 > c->relay.shard_ttl_ms)
        config_error(l, "relay",
                     "interval_ms (%" PRId64 ") must be at most half of shard_ttl_ms (%" PRId64 ")",
                     c->relay.interval_ms, c->relay.shard_ttl_ms);
    if (c->dispatch.retry_ms > c->dispatch.retry_max_ms)
        config_error(l, "dispatch", "retry_ms is more than retry_max_ms");
    if (c->pool.batch > c->pool.queue)
        config_error(l, "pool", "queue is less than batch");
}

static void check_topics(struct loading *l)
{
    static const char allowed[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    const struct config *c = l->cfg;
    if (c->topics.prefix[strspn(c->topics.prefix, allowed)] != '\0' ||
        strlen(c->topics.prefix) > 200)
        config_error(l, "topics", "prefix \"%s\" is no part of a Kafka topic's name",
                     c->topics.prefix);
    if (c->ingest.control_topic[strspn(c->ingest.control_topic, allowed)] != '\0')
        config_error(l, "ingest", "control_topic \"%s\" is no Kafka topic's name",
                     c->ingest.control_topic);
    if (c->ingest.group[0] == '\0' || c->dispatch.group[0] == '\0')
        config_error(l, "ingest", "a consumer group has no name (ingest.group, dispatch.group)");
}

static void check_redis(struct loading *l)
{
    const char *url = l->cfg->redis.url;
    if (strncmp(url, "rediss://", 9) == 0)
        config_error(l, "redis", "url: TLS to Redis is not supported in this version");
    else if (url[0] && strncmp(url, "redis://", 8) != 0 && strncmp(url, "unix://", 7) != 0)
        config_error(l, "redis", "url is neither redis://… nor unix://…");
    /* heart lengthens the keys between two beats; a connection and an answer may each take that long */
    if (l->cfg->redis.key_life == REDIS_KEYS_LEASE &&
        2 * l->cfg->redis.timeout_ms > l->cfg->lease.heartbeat_timeout_ms)
        config_error(l, "redis",
                     "timeout_ms must be at most half of lease.heartbeat_timeout_ms where key_life "
                     "is lease, or a slow Redis delays renewals");
}

/* host:port, [v6]:port */
static void check_admin(struct loading *l)
{
    const char *listen = l->cfg->admin.listen;
    if (listen[0] == '\0')
        return;
    const char *colon = strrchr(listen, ':');
    char *end = NULL;
    long port = colon ? strtol(colon + 1, &end, 10) : -1;
    if (colon == NULL || colon == listen || colon[1] == '\0' || *end != '\0' || port < 0 ||
        port > 65535) {
        config_error(l, "admin", "listen \"%s\" is not host:port", listen);
        return;
    }
    struct span host = {listen, (size_t)(colon - listen)};
    bool loopback = span_starts_with(host, SPAN_LIT("127.")) || span_eq_text(host, "localhost") ||
                    span_eq_text(host, "[::1]");
    if (!loopback && l->cfg->admin.token[0] == '\0')
        config_error(l, "admin", "listening on %s, beyond this machine, needs admin.token", listen);
}

static void not_supported(struct loading *l, const char *section, const char *what)
{
    config_error(l, section, "%s is not supported in this version", what);
}

static void check_handler(struct loading *l, const struct config_handler *h)
{
    const char *section = arena_printf(l->arena, "handler.%s", h->name);
    bool is_plan = strcmp(h->name, "plan") == 0;
    if (h->kind == HANDLER_HTTP)
        not_supported(l, section, "kind = http");
    if (h->kind == HANDLER_PLUGIN)
        not_supported(l, section, "kind = plugin");
    if (is_plan != (h->kind == HANDLER_PLAN))
        config_error(l, section,
                     "the handler plan is built in: this name and kind = plan belong together");
    if (h->kind == HANDLER_EXEC && h->command[0] == '\0')
        config_error(l, section, "kind = exec needs a command");
    if (h->kind == HANDLER_PLAN && h->command[0] != '\0')
        config_error(l, section, "kind = plan runs no command");
    if (h->retry_ms > h->retry_max_ms)
        config_error(l, section, "retry_ms is more than retry_max_ms");
}

void config_check_rules(struct loading *l)
{
    check_lease(l);
    check_services(l);
    check_topics(l);
    check_redis(l);
    check_admin(l);
    config_check_tools(l);
    for (size_t i = 0; i < l->cfg->n_handlers; i++)
        check_handler(l, &l->cfg->handlers[i]);
}
