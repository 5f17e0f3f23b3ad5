#include "base/metric.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/lock.h"
#include "base/memory.h"

enum kind { KIND_COUNTER, KIND_GAUGE, KIND_HISTOGRAM };

struct row {
    enum kind kind;
    const char *name;
    const char *labels;
    const char *help;
};

static const struct row rows[METRIC_COUNT] = {
#define METRIC(kind, id, name, labels, help) [METRIC_##id] = {KIND_##kind, name, labels, help},
#include "base/metric.tbl.h"
#undef METRIC
};

/* Upper bounds in seconds, or in items for histograms of sizes. */
static const double bounds_seconds[] = {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                        0.25,   0.5,   1,      2.5,   5,    10,    30};
static const double bounds_items[] = {1,   2,   4,    8,    16,   32,   64,   128,
                                      256, 512, 1024, 2048, 4096, 8192, 16384};
enum { BUCKETS = COUNT_OF(bounds_seconds) };
_Static_assert(COUNT_OF(bounds_items) == BUCKETS, "both kinds of histogram have as many buckets");

struct series {
    char *labels[2];
    _Atomic uint64_t count; /* counter; of a histogram the bits of its sum of seconds */
    _Atomic uint64_t bucket[BUCKETS + 1];
    _Atomic bool hidden; /* forgotten gauge */
};

/* Series are only ever added, so readers walk them without a lock: used says how many are whole. */
static struct {
    _Atomic(struct series *) series[METRIC_SERIES];
    _Atomic size_t used;
} store[METRIC_COUNT];
static struct lock adding = LOCK_INIT;

static uint64_t bits_of(double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof(bits));
    return bits;
}

static double value_of(uint64_t bits)
{
    double v;
    memcpy(&v, &bits, sizeof(v));
    return v;
}

static size_t label_count(enum metric_id id)
{
    const char *l = rows[id].labels;
    return *l == '\0' ? 0 : strchr(l, ',') ? 2 : 1;
}

static bool same(const struct series *s, const struct metric_labels *labels, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(s->labels[i], labels->v[i]) != 0)
            return false;
    return true;
}

static struct series *find(enum metric_id id, const struct metric_labels *labels, size_t n)
{
    size_t used = atomic_load_explicit(&store[id].used, memory_order_acquire);
    for (size_t i = 0; i < used; i++) {
        struct series *s = atomic_load_explicit(&store[id].series[i], memory_order_relaxed);
        if (same(s, labels, n))
            return s;
    }
    return NULL;
}

static struct series *add_series(enum metric_id id, struct metric_labels labels, size_t n)
{
    LOCK_SCOPE(&adding);
    struct series *s = find(id, &labels, n);
    if (s)
        return s;
    size_t used = atomic_load_explicit(&store[id].used, memory_order_relaxed);
    if (used >= METRIC_SERIES - 1) { /* the last place is for all that do not fit */
        labels = LABELS("other", "other");
        s = find(id, &labels, n);
        if (s)
            return s;
    }
    s = memory_new(1, sizeof(*s)); /* kept until the process ends */
    for (size_t i = 0; i < n; i++)
        s->labels[i] = memory_copy_text(labels.v[i]);
    atomic_store_explicit(&store[id].series[used], s, memory_order_relaxed);
    atomic_store_explicit(&store[id].used, used + 1, memory_order_release);
    return s;
}

static struct series *series_of(enum metric_id id, struct metric_labels labels, enum kind kind)
{
    CHECK((unsigned)id < METRIC_COUNT && rows[id].kind == kind);
    size_t n = label_count(id);
    for (size_t i = 0; i < 2; i++)
        CHECK((labels.v[i] != NULL) == (i < n));
    struct series *s = find(id, &labels, n);
    if (s == NULL)
        s = add_series(id, labels, n);
    if (kind == KIND_GAUGE)
        atomic_store_explicit(&s->hidden, false, memory_order_relaxed);
    return s;
}

static void add_real(_Atomic uint64_t *bits, double by)
{
    uint64_t old = atomic_load_explicit(bits, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(bits, &old, bits_of(value_of(old) + by),
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
}

void metric_add(enum metric_id id, struct metric_labels labels, uint64_t n)
{
    struct series *s = series_of(id, labels, KIND_COUNTER);
    atomic_fetch_add_explicit(&s->count, n, memory_order_relaxed);
}

void metric_set(enum metric_id id, struct metric_labels labels, double v)
{
    struct series *s = series_of(id, labels, KIND_GAUGE);
    atomic_store_explicit(&s->count, bits_of(v), memory_order_relaxed);
}

void metric_move(enum metric_id id, struct metric_labels labels, double by)
{
    add_real(&series_of(id, labels, KIND_GAUGE)->count, by);
}

static const double *bounds_of(enum metric_id id)
{
    size_t n = strlen(rows[id].name);
    return n > 8 && strcmp(rows[id].name + n - 8, "_seconds") == 0 ? bounds_seconds : bounds_items;
}

void metric_observe(enum metric_id id, struct metric_labels labels, double seconds)
{
    struct series *s = series_of(id, labels, KIND_HISTOGRAM);
    const double *bounds = bounds_of(id);
    size_t i = 0;
    while (i < BUCKETS && seconds > bounds[i])
        i++;
    atomic_fetch_add_explicit(&s->bucket[i], 1, memory_order_relaxed);
    add_real(&s->count, seconds);
}

static uint64_t observations(struct series *s)
{
    uint64_t total = 0;
    for (size_t i = 0; i <= BUCKETS; i++)
        total += atomic_load_explicit(&s->bucket[i], memory_order_relaxed);
    return total;
}

double metric_read(enum metric_id id, struct metric_labels labels)
{
    struct series *s = find(id, &labels, label_count(id));
    if (s == NULL || atomic_load_explicit(&s->hidden, memory_order_relaxed))
        return 0;
    uint64_t count = atomic_load_explicit(&s->count, memory_order_relaxed);
    switch (rows[id].kind) {
    case KIND_COUNTER:
        return (double)count;
    case KIND_GAUGE:
        return value_of(count);
    case KIND_HISTOGRAM:
        return (double)observations(s);
    }
    return 0;
}

void metric_forget(enum metric_id id)
{
    CHECK(rows[id].kind == KIND_GAUGE);
    size_t used = atomic_load_explicit(&store[id].used, memory_order_acquire);
    for (size_t i = 0; i < used; i++) {
        struct series *s = atomic_load_explicit(&store[id].series[i], memory_order_relaxed);
        atomic_store_explicit(&s->count, 0, memory_order_relaxed);
        atomic_store_explicit(&s->hidden, true, memory_order_relaxed);
    }
}

/* name="value",… of the series and, for buckets, le. */
static void write_labels(struct text *t, enum metric_id id, const struct series *s, const char *le)
{
    const char *name = rows[id].labels;
    size_t n = label_count(id);
    if (n == 0 && le == NULL)
        return;
    text_add_char(t, '{');
    for (size_t i = 0; i < n; i++) {
        size_t length = strcspn(name, ",");
        text_addf(t, "%s%.*s=\"", i ? "," : "", (int)length, name);
        text_add_json(t, span_of(s->labels[i])); /* a superset of OpenMetrics' three escapes */
        text_add_char(t, '"');
        name += length + (name[length] == ',');
    }
    if (le)
        text_addf(t, "%sle=\"%s\"", n ? "," : "", le);
    text_add_char(t, '}');
}

static void write_histogram(struct text *t, enum metric_id id, struct series *s)
{
    const double *bounds = bounds_of(id);
    uint64_t total = 0;
    for (size_t i = 0; i <= BUCKETS; i++) {
        char le[32] = "+Inf";
        if (i < BUCKETS)
            snprintf(le, sizeof(le), "%g", bounds[i]);
        total += atomic_load_explicit(&s->bucket[i], memory_order_relaxed);
        text_addf(t, "%s_bucket", rows[id].name);
        write_labels(t, id, s, le);
        text_addf(t, " %llu\n", (unsigned long long)total);
    }
    text_addf(t, "%s_sum", rows[id].name);
    write_labels(t, id, s, NULL);
    text_addf(t, " %.9g\n%s_count", value_of(atomic_load_explicit(&s->count, memory_order_relaxed)),
              rows[id].name);
    write_labels(t, id, s, NULL);
    text_addf(t, " %llu\n", (unsigned long long)total);
}

static void write_series(struct text *t, enum metric_id id, struct series *s)
{
    uint64_t count = atomic_load_explicit(&s->count, memory_order_relaxed);
    switch (rows[id].kind) {
    case KIND_COUNTER:
        text_add_str(t, rows[id].name);
        write_labels(t, id, s, NULL);
        text_addf(t, " %llu\n", (unsigned long long)count);
        break;
    case KIND_GAUGE:
        text_add_str(t, rows[id].name);
        write_labels(t, id, s, NULL);
        text_addf(t, " %.15g\n", value_of(count));
        break;
    case KIND_HISTOGRAM:
        write_histogram(t, id, s);
        break;
    }
}

static void write_metric(struct text *t, enum metric_id id)
{
    static const char *const kinds[] = {"counter", "gauge", "histogram"};
    const struct row *row = &rows[id];
    size_t length = strlen(row->name);
    if (row->kind == KIND_COUNTER)
        length -= strlen("_total"); /* OpenMetrics: the family has no suffix, the sample has */
    text_addf(t, "# TYPE %.*s %s\n", (int)length, row->name, kinds[row->kind]);
    if (length > 8 && strncmp(row->name + length - 8, "_seconds", 8) == 0)
        text_addf(t, "# UNIT %.*s seconds\n", (int)length, row->name);
    text_addf(t, "# HELP %.*s %s\n", (int)length, row->name, row->help);
    if (label_count(id) == 0 && atomic_load(&store[id].used) == 0)
        (void)add_series(id, NO_LABELS,
                         0); /* without labels a metric is there from the start, as zero */
    size_t used = atomic_load_explicit(&store[id].used, memory_order_acquire);
    for (size_t i = 0; i < used; i++) {
        struct series *s = atomic_load_explicit(&store[id].series[i], memory_order_relaxed);
        if (!atomic_load_explicit(&s->hidden, memory_order_relaxed))
            write_series(t, id, s);
    }
}

void metric_write(struct text *t)
{
    for (unsigned id = 0; id < METRIC_COUNT; id++)
        write_metric(t, (enum metric_id)id);
    text_add_str(t, "# EOF\n");
}
