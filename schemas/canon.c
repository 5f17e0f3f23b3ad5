#include "schemas/canon.h"

#include <math.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "schemas/canon_int.h"
#include "schemas/json_int.h"

/* ---- output ---- */

void canon_grow(struct canon_out *out, size_t n)
{
    enum { LEAST = 512 }; /* most records fit at once */
    size_t cap = (out->cap + n) * 2;
    if (cap < LEAST)
        cap = LEAST;
    char *grown = arena_alloc(out->arena, cap);
    if (out->n > 0)
        memcpy(grown, out->p, out->n);
    out->p = grown;
    out->cap = cap;
}

struct span canon_end(struct canon_out *out)
{
    canon_bytes(out, "", 1);
    return (struct span){out->p, out->n - 1};
}

/* ---- RFC 8785, 3.2.2.2: texts ---- */

static size_t escape(unsigned char c, char ret[8])
{
    static const char short_form[] = {
        ['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f', ['\r'] = 'r'};
    ret[0] = '\\';
    if (c == '"' || c == '\\')
        ret[1] = (char)c;
    else if (c < sizeof(short_form) && short_form[c] != 0)
        ret[1] = short_form[c];
    else
        return (size_t)snprintf(ret, 8, "\\u%04x", c);
    return 2;
}

void canon_text(struct canon_out *out, struct span s)
{
    canon_bytes(out, "\"", 1);
    size_t plain = 0; /* start of what needs no escape */
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        if (c >= 0x20 && c != '"' && c != '\\')
            continue;
        char escaped[8];
        size_t n = escape(c, escaped);
        canon_bytes(out, s.p + plain, i - plain);
        canon_bytes(out, escaped, n);
        plain = i + 1;
    }
    canon_bytes(out, s.p + plain, s.n - plain);
    canon_bytes(out, "\"", 1);
}

/* ---- 3.2.2.3: numbers as ECMAScript prints them ---- */

struct decimal {
    char digits[24]; /* no leading or trailing zeros */
    int count;
    int point; /* the value is 0.DIGITS times ten to this power */
};

/* Reads the spelling of the JSON library's writer, which finds the shortest digits. */
static struct decimal decimal_of(double v)
{
    char text[64];
    size_t n = json_shortest_double(v, text, sizeof(text));
    struct decimal d = {.count = 0, .point = 0};
    bool seen_point = false;
    size_t i = 0;
    for (; i < n && text[i] != 'e' && text[i] != 'E'; i++) {
        if (text[i] == '.') {
            seen_point = true;
            continue;
        }
        bool leading_zero = text[i] == '0' && d.count == 0;
        if (!leading_zero) {
            CHECK(d.count < (int)sizeof(d.digits));
            d.digits[d.count++] = text[i];
        }
        if (!seen_point && !leading_zero)
            d.point++;
        else if (seen_point && leading_zero)
            d.point--;
    }
    if (i < n)
        d.point += (int)strtol(text + i + 1, NULL, 10);
    while (d.count > 1 && d.digits[d.count - 1] == '0')
        d.count--;
    return d;
}

static int write_decimal(const struct decimal *d, char *out, size_t size)
{
    int k = d->count, n = d->point;
    if (k <= n && n <= 21) /* 12300 */
        return snprintf(out, size, "%.*s%.*s", k, d->digits, n - k, "000000000000000000000");
    if (0 < n && n <= 21) /* 1.23 */
        return snprintf(out, size, "%.*s.%.*s", n, d->digits, k - n, d->digits + n);
    if (-6 < n && n <= 0) /* 0.00123 */
        return snprintf(out, size, "0.%.*s%.*s", -n, "00000", k, d->digits);
    int e = n - 1;
    char sign = e < 0 ? '-' : '+';
    if (k == 1)
        return snprintf(out, size, "%ce%c%d", d->digits[0], sign, abs(e));
    return snprintf(out, size, "%c.%.*se%c%d", d->digits[0], k - 1, d->digits + 1, sign, abs(e));
}

size_t canon_number(double v, char ret[CANON_NUMBER_SIZE])
{
    CHECK(isfinite(v));
    int64_t whole;
    if (json_whole(v, &whole)) /* also turns -0 into 0 */
        return (size_t)snprintf(ret, CANON_NUMBER_SIZE, "%lld", (long long)whole);
    struct decimal d = decimal_of(fabs(v));
    size_t sign = v < 0 ? 1 : 0;
    ret[0] = '-';
    int n = write_decimal(&d, ret + sign, CANON_NUMBER_SIZE - sign);
    CHECK(n > 0 && (size_t)n < CANON_NUMBER_SIZE - sign);
    return sign + (size_t)n;
}

/* ---- 3.2.3: members in the order of their keys' UTF-16 code units ---- */

struct member {
    struct span key;
    const struct json_value *value;
};

/* UTF-8 sorts like code points; UTF-16 puts the surrogates of U+10000 and above (lead bytes F0..F4)
 * before U+E000..U+FFFF (lead bytes EE, EF). Only a lead byte can differ that way. */
static int utf16_rank(unsigned char c)
{
    return c >= 0xf0 ? 0xee : c >= 0xee ? c + 1 : c;
}

static int order_members(const void *a, const void *b)
{
    struct span x = ((const struct member *)a)->key, y = ((const struct member *)b)->key;
    size_t shorter = x.n < y.n ? x.n : y.n;
    for (size_t i = 0; i < shorter; i++) {
        unsigned char c = (unsigned char)x.p[i], d = (unsigned char)y.p[i];
        if (c == d)
            continue;
        int order = utf16_rank(c) - utf16_rank(d);
        return order != 0 ? order : (int)c - (int)d; /* F0 against F4: same rank, then by value */
    }
    return x.n < y.n ? -1 : x.n > y.n;
}

static void write_value(struct canon_out *out, const struct json_value *v);

static void write_object(struct canon_out *out, const struct json_value *v)
{
    enum { FEW = 16 };
    struct member few[FEW];
    size_t n = json_count(v);
    struct member *members = n <= FEW ? few : arena_array(out->arena, n, sizeof(*members));
    bool sorted = true;
    struct json_iter it = json_iter(v);
    while (json_next(&it)) {
        members[it.index] = (struct member){it.key, it.value};
        if (it.index > 0 && order_members(&members[it.index - 1], &members[it.index]) > 0)
            sorted = false;
    }
    if (!sorted)
        qsort(members, n, sizeof(*members), order_members);
    canon_bytes(out, "{", 1);
    for (size_t i = 0; i < n; i++) {
        if (i > 0)
            canon_bytes(out, ",", 1);
        canon_text(out, members[i].key);
        canon_bytes(out, ":", 1);
        write_value(out, members[i].value);
    }
    canon_bytes(out, "}", 1);
}

static void write_array(struct canon_out *out, const struct json_value *v)
{
    canon_bytes(out, "[", 1);
    struct json_iter it = json_iter(v);
    while (json_next(&it)) {
        if (it.index > 0)
            canon_bytes(out, ",", 1);
        write_value(out, it.value);
    }
    canon_bytes(out, "]", 1);
}

static void write_value(struct canon_out *out, const struct json_value *v)
{
    char number[CANON_NUMBER_SIZE];
    switch (json_kind(v)) {
    case JSON_NULL:
        canon_bytes(out, "null", 4);
        return;
    case JSON_BOOL:
        canon_bytes(out, json_bool(v) ? "true" : "false", json_bool(v) ? 4 : 5);
        return;
    case JSON_NUMBER:
        canon_bytes(out, number, canon_number(json_number(v), number));
        return;
    case JSON_STRING:
        canon_text(out, json_text(v));
        return;
    case JSON_ARRAY:
        write_array(out, v);
        return;
    case JSON_OBJECT:
        write_object(out, v);
        return;
    }
}

void canon_value(struct canon_out *out, const struct json_value *v)
{
    write_value(out, v);
}

struct span canon_write(const struct json_value *v, struct arena *arena)
{
    struct canon_out out = {.arena = arena};
    write_value(&out, v);
    return canon_end(&out);
}

/* ---- digests ---- */

static EVP_MD *sha256;
static pthread_once_t sha256_once = PTHREAD_ONCE_INIT;

/* Fetched once: libcrypto otherwise looks the algorithm up again for every digest. */
static void fetch_sha256(void)
{
    sha256 = EVP_MD_fetch(NULL, "SHA256", NULL);
}

struct digest digest_bytes(struct span bytes)
{
    CHECK(pthread_once(&sha256_once, fetch_sha256) == 0 && sha256 != NULL);
    unsigned char md[EVP_MAX_MD_SIZE];
    unsigned int n = 0;
    CHECK(EVP_Digest(bytes.p, bytes.n, md, &n, sha256, NULL) == 1 && n == 32);
    struct digest d;
    memcpy(d.text, "sha256:", 7);
    for (unsigned int i = 0; i < n; i++) {
        d.text[7 + 2 * i] = "0123456789abcdef"[md[i] >> 4];
        d.text[8 + 2 * i] = "0123456789abcdef"[md[i] & 15];
    }
    d.text[CANON_DIGEST_LENGTH] = '\0';
    return d;
}

struct digest digest_json(const struct json_value *v, struct arena *arena)
{
    return digest_bytes(canon_write(v, arena));
}

struct span digest_span(struct span bytes, struct arena *arena)
{
    struct digest d = digest_bytes(bytes);
    return arena_dup(arena, (struct span){d.text, CANON_DIGEST_LENGTH});
}

bool digest_is(struct span text)
{
    if (text.n != CANON_DIGEST_LENGTH || memcmp(text.p, "sha256:", 7) != 0)
        return false;
    for (size_t i = 7; i < text.n; i++) {
        char c = text.p[i];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')))
            return false;
    }
    return true;
}
