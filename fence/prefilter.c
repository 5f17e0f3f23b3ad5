/* prefilter: the only file that speaks to Redis. */
#include "fence/prefilter.h"

#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/metric.h"
#include "base/text.h"

/* After a failure Redis is left alone for this long, doubled at every further one. */
#define BREAKER_FIRST_US (INT64_C(500) * CLOCK_MS)
#define BREAKER_LAST_US (INT64_C(10) * CLOCK_SECOND)
/* Commands in one pipeline: bounds what a dead connection leaves in doubt. */
enum { PIPELINE_MAX = 512 };

#define DROP_SCRIPT                                                                                \
    "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 "   \
    "end"
#define EXTEND_SCRIPT                                                                              \
    "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('pexpire',KEYS[1],ARGV[2]) "     \
    "else return 0 end"

struct script {
    const char *text;
    char sha[41]; /* "" until Redis has it on this connection */
};

struct prefilter {
    bool off; /* no Redis configured */
    char *host, *password, *prefix;
    char *user; /* "" : none */
    bool unix_socket;
    int port, database;
    int64_t timeout_us, ttl_ms;
    enum config_on_failure on_failure;
    redisContext *redis;
    int64_t closed_until_us; /* breaker: no try before */
    int64_t breaker_us;      /* its next length */
    struct script drop, extend;
};

/* ---- where Redis is: redis://[user:password@]host[:port][/database], unix:///path ---- */

static bool parse_number(const char *text, int max, int *ret)
{
    char *end;
    long v = strtol(text, &end, 10);
    if (end == text || *end != '\0' || v < 0 || v > max)
        return false;
    *ret = (int)v;
    return true;
}

static bool parse_authority(struct prefilter *p, char *rest)
{
    char *slash = strchr(rest, '/');
    if (slash != NULL) {
        *slash = '\0';
        if (slash[1] != '\0' && !parse_number(slash + 1, 65535, &p->database))
            return false;
    }
    char *at = strrchr(rest, '@');
    if (at != NULL) {
        *at = '\0';
        char *colon = strchr(rest, ':');
        if (colon != NULL)
            *colon = '\0';
        p->user = memory_copy_text(colon ? rest : "");
        p->password = memory_copy_text(colon ? colon + 1 : rest);
        rest = at + 1;
    }
    char *colon = strrchr(rest, ':');
    bool bracketed = rest[0] == '[';
    if (colon != NULL && (!bracketed || colon > strchr(rest, ']'))) {
        *colon = '\0';
        if (!parse_number(colon + 1, 65535, &p->port))
            return false;
    }
    size_t n = strlen(rest);
    if (bracketed && n > 2 && rest[n - 1] == ']') {
        rest[n - 1] = '\0';
        rest++;
    }
    p->host = memory_copy_text(rest);
    return *rest != '\0';
}

static bool parse_url(struct prefilter *p, const char *url)
{
    static const char plain[] = "redis://", local[] = "unix://";
    if (strncmp(url, local, sizeof(local) - 1) == 0) {
        p->unix_socket = true;
        p->host = memory_copy_text(url + sizeof(local) - 1);
        return p->host[0] == '/';
    }
    if (strncmp(url, plain, sizeof(plain) - 1) != 0)
        return false;
    char *rest CLEANUP(memory_drop) = memory_copy_text(url + sizeof(plain) - 1);
    return parse_authority(p, rest);
}

enum outcome prefilter_open(const struct config *cfg, struct prefilter **ret)
{
    struct prefilter *p = memory_new(1, sizeof(*p));
    p->port = 6379;
    p->prefix = memory_copy_text(cfg->redis.prefix);
    p->timeout_us = cfg->redis.timeout_ms * CLOCK_MS;
    p->ttl_ms = cfg->redis.key_life == REDIS_KEYS_LEASE ? cfg->lease.ttl_ms : cfg->redis.key_ttl_ms;
    p->on_failure = cfg->redis.on_failure;
    p->breaker_us = BREAKER_FIRST_US;
    p->drop.text = DROP_SCRIPT;
    p->extend.text = EXTEND_SCRIPT;
    p->off = cfg->redis.url[0] == '\0';
    if (!p->off && !parse_url(p, cfg->redis.url)) {
        prefilter_close(p);
        return OUTCOME_INVALID;
    }
    *ret = p;
    return OUTCOME_OK;
}

static void disconnect(struct prefilter *p)
{
    if (p->redis != NULL)
        redisFree(p->redis);
    p->redis = NULL;
    p->drop.sha[0] = '\0';
    p->extend.sha[0] = '\0';
}

void prefilter_close(struct prefilter *p)
{
    if (p == NULL)
        return;
    disconnect(p);
    free(p->host);
    free(p->user);
    free(p->password);
    free(p->prefix);
    free(p);
}

/* ---- connection and breaker ---- */

static void trip(struct prefilter *p)
{
    disconnect(p);
    p->closed_until_us = clock_deadline_us(p->breaker_us);
    p->breaker_us = p->breaker_us * 2 > BREAKER_LAST_US ? BREAKER_LAST_US : p->breaker_us * 2;
    metric_set(METRIC_PREFILTER_OPEN, NO_LABELS, 1);
}

static void heal(struct prefilter *p)
{
    if (p->breaker_us != BREAKER_FIRST_US || p->closed_until_us != 0)
        metric_set(METRIC_PREFILTER_OPEN, NO_LABELS, 0);
    p->breaker_us = BREAKER_FIRST_US;
    p->closed_until_us = 0;
}

/* NULL: no answer; the connection is of no use any more. */
static redisReply *next_reply(struct prefilter *p)
{
    void *reply = NULL;
    return p->redis != NULL && redisGetReply(p->redis, &reply) == REDIS_OK ? reply : NULL;
}

static bool reply_ok(redisReply *reply)
{
    bool ok = reply != NULL && reply->type != REDIS_REPLY_ERROR;
    if (reply != NULL)
        freeReplyObject(reply);
    return ok;
}

static bool greet(struct prefilter *p)
{
    int asked = 0;
    if (p->password != NULL && p->password[0] != '\0') {
        if (p->user[0] != '\0')
            redisAppendCommand(p->redis, "AUTH %s %s", p->user, p->password);
        else
            redisAppendCommand(p->redis, "AUTH %s", p->password);
        asked++;
    }
    if (p->database != 0) {
        redisAppendCommand(p->redis, "SELECT %d", p->database);
        asked++;
    }
    for (int i = 0; i < asked; i++)
        if (!reply_ok(next_reply(p)))
            return false;
    return true;
}

static bool connected(struct prefilter *p)
{
    if (p->redis != NULL)
        return true;
    if (p->closed_until_us > clock_mono_us())
        return false;
    struct timeval timeout = {p->timeout_us / CLOCK_SECOND, p->timeout_us % CLOCK_SECOND};
    p->redis = p->unix_socket ? redisConnectUnixWithTimeout(p->host, timeout)
                              : redisConnectWithTimeout(p->host, p->port, timeout);
    if (p->redis == NULL || p->redis->err != 0 || redisSetTimeout(p->redis, timeout) != REDIS_OK ||
        !greet(p)) {
        trip(p);
        return false;
    }
    return true;
}

/* ---- keys ---- */

static void key_text(const struct prefilter *p, const struct prefilter_key *key, struct text *t)
{
    char run[UUID_TEXT_SIZE];
    text_reset(t);
    text_addf(t, "%srun:%s:%lld", p->prefix, uuid_format(key->run_id, run), (long long)key->epoch);
}

static void ask_take(struct prefilter *p, const struct prefilter_key *key, struct text *t)
{
    key_text(p, key, t);
    redisAppendCommand(p->redis, "SET %b %b NX PX %lld", t->p, t->n, key->token.p, key->token.n,
                       (long long)p->ttl_ms);
}

/* One pipeline of at most PIPELINE_MAX. Keys without an answer count as somebody else's: the
 * command may have been applied. False: Redis failed; *ret_done keys have their answer. */
static bool take_some(struct prefilter *p, const struct prefilter_key *keys, size_t n, bool *ret_go,
                      size_t *ret_done)
{
    struct text t CLEANUP(text_free) = TEXT_EMPTY;
    for (size_t i = 0; i < n; i++)
        ask_take(p, &keys[i], &t);
    for (size_t i = 0; i < n; i++) {
        redisReply *reply = next_reply(p);
        if (reply == NULL || reply->type == REDIS_REPLY_ERROR) {
            reply_ok(reply);
            *ret_done = i;
            return false;
        }
        ret_go[i] = reply->type != REDIS_REPLY_NIL;
        metric_add(METRIC_PREFILTER, LABELS(ret_go[i] ? "won" : "lost"), 1);
        freeReplyObject(reply);
    }
    *ret_done = n;
    return true;
}

/* Redis does not answer: configuration says what that means. */
static void answer_for(const struct prefilter *p, size_t n, bool *ret_go)
{
    bool go = p->on_failure == REDIS_BYPASS;
    for (size_t i = 0; i < n; i++)
        ret_go[i] = go;
    metric_add(METRIC_PREFILTER, LABELS(go ? "bypassed" : "held"), n);
}

void prefilter_take(struct prefilter *p, const struct prefilter_key *keys, size_t n, bool *ret_go)
{
    if (p->off) {
        for (size_t i = 0; i < n; i++)
            ret_go[i] = true;
        return;
    }
    int64_t start_us = clock_mono_us();
    size_t at = 0;
    while (at < n && connected(p)) {
        size_t some = n - at > PIPELINE_MAX ? PIPELINE_MAX : n - at, done = 0;
        if (!take_some(p, keys + at, some, ret_go + at, &done)) {
            at += done;
            trip(p);
            break;
        }
        at += some;
        heal(p);
    }
    if (at < n)
        answer_for(p, n - at, ret_go + at);
    metric_observe(METRIC_PREFILTER_SECONDS, NO_LABELS,
                   (double)(clock_mono_us() - start_us) / (double)CLOCK_SECOND);
}

/* ---- compare and delete, compare and extend ---- */

static bool load(struct prefilter *p, struct script *script)
{
    if (script->sha[0] != '\0')
        return true;
    redisAppendCommand(p->redis, "SCRIPT LOAD %s", script->text);
    redisReply *reply = next_reply(p);
    bool ok =
        reply != NULL && reply->type == REDIS_REPLY_STRING && reply->len == sizeof(script->sha) - 1;
    if (ok)
        memcpy(script->sha, reply->str, sizeof(script->sha));
    reply_ok(reply);
    return ok;
}

/* False: Redis failed. *ret_flushed: it had forgotten the script. */
static bool run_once(struct prefilter *p, struct script *script, const struct prefilter_key *keys,
                     size_t n, int64_t ttl_ms, bool *ret_flushed)
{
    struct text t CLEANUP(text_free) = TEXT_EMPTY;
    if (!load(p, script))
        return false;
    for (size_t i = 0; i < n; i++) {
        key_text(p, &keys[i], &t);
        redisAppendCommand(p->redis, "EVALSHA %s 1 %b %b %lld", script->sha, t.p, t.n,
                           keys[i].token.p, keys[i].token.n, (long long)ttl_ms);
    }
    *ret_flushed = false;
    for (size_t i = 0; i < n; i++) {
        redisReply *reply = next_reply(p);
        if (reply == NULL)
            return false;
        *ret_flushed |= reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, "NOSCRIPT", 8) == 0;
        freeReplyObject(reply);
    }
    return true;
}

/* After SCRIPT FLUSH the script is loaded anew and all are asked once more; asking twice changes
 * nothing. */
static bool run_some(struct prefilter *p, struct script *script, const struct prefilter_key *keys,
                     size_t n, int64_t ttl_ms)
{
    bool flushed;
    if (!run_once(p, script, keys, n, ttl_ms, &flushed))
        return false;
    if (!flushed)
        return true;
    script->sha[0] = '\0';
    return run_once(p, script, keys, n, ttl_ms, &flushed) && !flushed;
}

static void run_all(struct prefilter *p, struct script *script, const struct prefilter_key *keys,
                    size_t n, int64_t ttl_ms)
{
    if (p->off)
        return;
    for (size_t at = 0; at < n && connected(p);) {
        size_t some = n - at > PIPELINE_MAX ? PIPELINE_MAX : n - at;
        if (!run_some(p, script, keys + at, some, ttl_ms)) {
            trip(p);
            return;
        }
        at += some;
        heal(p);
    }
}

void prefilter_drop(struct prefilter *p, const struct prefilter_key *keys, size_t n)
{
    run_all(p, &p->drop, keys, n, 0);
}

void prefilter_extend(struct prefilter *p, const struct prefilter_key *keys, size_t n)
{
    run_all(p, &p->extend, keys, n, p->ttl_ms);
}
