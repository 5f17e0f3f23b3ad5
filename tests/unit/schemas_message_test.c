/* Task records: tests/messages/tasks.txt in both encodings, and what lies around the fields. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "schemas/canon.h"
#include "schemas/message.h"
#include "schemas/msgpack.h"

static struct raw_record record_of(struct span value)
{
    return (struct raw_record){.cluster = SPAN_LIT("c1"),
                               .topic = SPAN_LIT("holdfast.tasks"),
                               .partition = 3,
                               .offset = 41,
                               .timestamp_ms = 1796117400123,
                               .key = SPAN_LIT("t1"),
                               .value = value};
}

static bool decode(struct span value, struct arena *arena, struct message *m, struct reject *reject)
{
    struct raw_record record = record_of(value);
    return message_decode(&record, NULL, arena, m, reject);
}

static struct message decoded(const char *text, struct arena *arena)
{
    struct message m;
    struct reject reject;
    if (!decode(span_of(text), arena, &m, &reject))
        fail_msg("%s: %s", text, reject.detail.p);
    return m;
}

/* ---- the table of records ---- */

struct row {
    char *verdict, *place;
    struct span json;
};

static bool split(char *line, struct row *ret)
{
    line[strcspn(line, "\n")] = '\0';
    char *space = strchr(line, ' ');
    if (line[0] == '#' || space == NULL)
        return false;
    *space = '\0';
    char *second = strchr(space + 1, ' ');
    assert_non_null(second);
    *second = '\0';
    char *unsure = strchr(line, '~');
    if (unsure != NULL)
        *unsure = '\0';
    *ret =
        (struct row){line, strcmp(space + 1, "-") == 0 ? second : space + 1, span_of(second + 1)};
    return true;
}

static void check_row(const struct row *row, struct arena *arena)
{
    struct message m, packed;
    struct reject reject;
    bool wanted = strcmp(row->verdict, "ok") == 0;
    bool ok = decode(row->json, arena, &m, &reject);
    if (ok != wanted)
        fail_msg("%.*s: %s", SPAN_ARG(row->json), ok ? "accepted" : reject.detail.p);
    if (!ok) {
        if (strcmp(reject_word(reject.reason), row->verdict) != 0 ||
            strcmp(reject.place.p, row->place) != 0)
            fail_msg("%.*s: %s at %s: %s", SPAN_ARG(row->json), reject_word(reject.reason),
                     reject.place.p, reject.detail.p);
        assert_true(reject.detail.n > 10);
        return;
    }
    const struct json_value *v;
    struct json_error error;
    assert_true(json_parse(row->json, NULL, arena, &v, &error));
    assert_true(decode(msgpack_write(v, arena), arena, &packed, &reject));
    assert_true(span_eq(m.digest, packed.digest));
    assert_true(span_eq(message_record(&m, arena), message_record(&packed, arena)));
    assert_true(digest_is(m.digest));
    /* The canonical record is a record, and says the same. */
    struct message again = decoded(message_record(&m, arena).p, arena);
    assert_true(span_eq(message_record(&again, arena), message_record(&m, arena)));
    assert_true(span_eq(again.digest, m.digest));
    assert_true(json_parse(message_record(&m, arena), NULL, arena, &v, &error));
    assert_true(span_eq(canon_write(v, arena), message_record(&m, arena)));
}

static void table_of_records(void **state)
{
    (void)state;
    FILE *file = fopen(SOURCE_DIR "/tests/messages/tasks.txt", "r");
    assert_non_null(file);
    char line[4096];
    int rows = 0;
    struct arena *arena CLEANUP(arena_drop) = arena_new();
    while (fgets(line, sizeof(line), file) != NULL) {
        struct row row;
        if (!split(line, &row))
            continue;
        check_row(&row, arena);
        arena_reset(arena);
        rows++;
    }
    fclose(file);
    assert_true(rows > 60);
}

/* ---- what the fields become ---- */

static void defaults(void **state)
{
    (void)state;
    struct arena *arena CLEANUP(arena_drop) = arena_new();
    struct message m = decoded("{\"task_id\":\"t1\",\"handler\":\"plan\"}", arena);
    assert_int_equal(m.type, MESSAGE_SUBMIT);
    assert_string_equal(m.tenant_id.p, "default");
    assert_true(span_is_null(m.record));
    assert_string_equal(m.input.p, "{}");
    assert_true(json_is(m.input_value, JSON_OBJECT));
    assert_string_equal(m.labels.p, "{}");
    assert_int_equal(m.max_attempts, 3);
    assert_int_equal(m.priority, 0);
    assert_false(m.cancel_previous || m.allow_unsettled || m.has_deadline || m.has_not_before ||
                 m.has_run);
    assert_false(m.own_key);
    assert_string_equal(m.request_key.p, "kafka:c1/holdfast.tasks/3/41/1796117400123");
    assert_string_equal(m.source.p, "holdfast.tasks/3/41/1796117400123");
    assert_string_equal(
        message_record(&m, arena).p,
        "{\"allow_unsettled\":false,\"handler\":\"plan\",\"input\":{},\"labels\":{},\"max_"
        "attempts\":3,"
        "\"on_active\":\"reject\",\"priority\":0,\"task_id\":\"t1\",\"tenant_id\":\"default\","
        "\"type\":\"submit\"}");
    assert_string_equal(m.digest.p, digest_bytes(message_record(&m, arena)).text);
}

static void fields_are_carried(void **state)
{
    (void)state;
    struct arena *arena CLEANUP(arena_drop) = arena_new();
    struct message m = decoded(
        "{\"task_id\":\"t1\",\"handler\":\"h\",\"input\":{\"b\":1.0,\"a\":[2]},\"request_id\":"
        "\"r\","
        "\"tenant_id\":\"acme\",\"priority\":-7,\"not_before\":\"1970-01-01T00:00:01Z\","
        "\"deadline\":\"1970-01-01T01:00:02+01:00\",\"max_attempts\":9,"
        "\"on_active\":\"cancel_previous\",\"allow_unsettled\":true,\"labels\":{\"k\":\"v\"},"
        "\"by\":\"me\"}",
        arena);
    assert_string_equal(m.input.p, "{\"a\":[2],\"b\":1}");
    assert_string_equal(m.request_key.p, "r:r");
    assert_true(m.own_key && m.cancel_previous && m.allow_unsettled);
    assert_int_equal(m.priority, -7);
    assert_int_equal(m.not_before_us, 1000000);
    assert_int_equal(m.deadline_us, 2000000);
    assert_string_equal(m.labels.p, "{\"k\":\"v\"}");
    assert_string_equal(m.by.p, "me");
    m = decoded("{\"type\":\"signal\",\"task_id\":\"t\",\"signal_id\":\"s\",\"name\":\"n\","
                "\"payload\":{\"z\":1,\"a\":2}}",
                arena);
    assert_string_equal(m.request_key.p, "r:s");
    assert_true(span_eq(m.record, message_record(&m, arena)));
    assert_string_equal(m.payload.p, "{\"a\":2,\"z\":1}");
    m = decoded("{\"type\":\"signal\",\"task_id\":\"t\",\"signal_id\":\"s\",\"name\":\"n\"}",
                arena);
    assert_true(span_is_null(m.payload));
    m = decoded(
        "{\"type\":\"retry\",\"run_id\":\"0192F0C1-7A3B-7CDE-8F01-23456789ABCD\",\"fresh\":true}",
        arena);
    assert_true(m.has_run && m.fresh && span_is_null(m.task_id));
    char uuid[UUID_TEXT_SIZE];
    assert_string_equal(uuid_format(m.run_id, uuid), "0192f0c1-7a3b-7cde-8f01-23456789abcd");
}

static void digest_covers_the_effect(void **state)
{
    (void)state;
    struct arena *arena CLEANUP(arena_drop) = arena_new();
    const char *base =
        "{\"task_id\":\"t1\",\"handler\":\"h\",\"deadline\":\"2026-12-01T10:00:00Z\"}";
    struct span digest = decoded(base, arena).digest;
    static const char *const same[] = {
        "{\"handler\":\"h\",\"deadline\":\"2026-12-01T11:00:00.000+01:00\",\"task_id\":\"t1\"}",
        "{\"task_id\":\"t1\",\"handler\":\"h\",\"deadline\":\"2026-12-01T10:00:00Z\",\"priority\":"
        "0,\"input\":{},"
        "\"type\":\"submit\",\"tenant_id\":\"default\",\"on_active\":\"reject\",\"labels\":{},"
        "\"max_attempts\":3e0}",
        "{\"task_id\":\"t1\",\"handler\":\"h\",\"deadline\":\"2026-12-01T10:00:00Z\",\"request_"
        "id\":\"x\"}",
        "{\"task_id\":\"t1\",\"handler\":\"h\",\"deadline\":\"2026-12-01T10:00:00Z\",\"by\":"
        "\"somebody\"}",
    };
    for (size_t i = 0; i < COUNT_OF(same); i++)
        assert_true(span_eq(decoded(same[i], arena).digest, digest));
    static const char *const other[] = {
        "\"task_id\":\"t2\",\"handler\":\"h\"",
        "\"task_id\":\"t1\",\"handler\":\"g\"",
        "\"task_id\":\"t1\",\"handler\":\"h\",\"tenant_id\":\"acme\"",
        "\"task_id\":\"t1\",\"handler\":\"h\",\"priority\":1",
        "\"task_id\":\"t1\",\"handler\":\"h\",\"max_attempts\":4",
        "\"task_id\":\"t1\",\"handler\":\"h\",\"input\":{\"a\":1}",
        "\"task_id\":\"t1\",\"handler\":\"h\",\"labels\":{\"a\":\"1\"}",
        "\"task_id\":\"t1\",\"handler\":\"h\",\"on_active\":\"cancel_previous\"",
        "\"task_id\":\"t1\",\"handler\":\"h\",\"allow_unsettled\":true",
        "\"task_id\":\"t1\",\"handler\":\"h\",\"not_before\":\"2026-11-30T10:00:00Z\"",
    };
    for (size_t i = 0; i < COUNT_OF(other); i++) {
        const char *text =
            arena_printf(arena, "{%s,\"deadline\":\"2026-12-01T10:00:00Z\"}", other[i]);
        assert_false(span_eq(decoded(text, arena).digest, digest));
    }
    assert_false(span_eq(decoded("{\"type\":\"cancel\",\"task_id\":\"t1\"}", arena).digest,
                         decoded("{\"type\":\"retry\",\"task_id\":\"t1\"}", arena).digest));
}

/* ---- headers ---- */

struct header_case {
    const char *name, *value;
    struct span body;
    const char *verdict;
};

static void content_type_decides(void **state)
{
    (void)state;
    const struct span json = SPAN_LIT("{\"task_id\":\"t1\",\"handler\":\"plan\"}");
    const struct span packed = SPAN_LIT("\x82\xa7task_id\xa2t1\xa7handler\xa4plan");
    const struct header_case cases[] = {
        {"content-type", "application/json", json, "ok"},
        {"Content-Type", "Application/JSON; charset=UTF-8", json, "ok"},
        {"content-type", "application/json;charset=\"utf-8\"", json, "ok"},
        {"content-type", "application/msgpack", packed, "ok"},
        {"content-type", " application/vnd.msgpack ", packed, "ok"},
        {"content-type", "application/x-msgpack", packed, "ok"},
        {"content-type", "", packed, "ok"},
        {"x-other", "whatever", packed, "ok"},
        {"x-other", "whatever", json, "ok"},
        {"content-type", "application/json", packed, "not_json"},
        {"content-type", "application/msgpack", json, "not_msgpack"},
        {"content-type", "application/json; charset=utf-16", json, "content_type"},
        {"content-type", "text/plain", json, "content_type"},
        {"content-type", "application/avro\r\nx", json, "content_type"},
        {"content-encoding", "identity", json, "ok"},
        {"content-encoding", "gzip", json, "content_type"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct arena *arena CLEANUP(arena_drop) = arena_new();
        struct raw_header header = {span_of(cases[i].name), span_of(cases[i].value)};
        struct raw_record record = record_of(cases[i].body);
        record.headers = &header;
        record.n_headers = 1;
        struct message m;
        struct reject reject;
        bool ok = message_decode(&record, NULL, arena, &m, &reject);
        const char *verdict = ok ? "ok" : reject_word(reject.reason);
        if (strcmp(verdict, cases[i].verdict) != 0)
            fail_msg("%s: %s -> %s", cases[i].name, cases[i].value, verdict);
        assert_true(
            ok || (strchr(reject.detail.p, '\r') == NULL && strchr(reject.detail.p, '\n') == NULL));
    }
}

static void trace_context_is_taken_or_dropped(void **state)
{
    (void)state;
    static const struct {
        const char *parent;
        bool valid;
    } rows[] = {
        {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", true},
        {"cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more", true},
        {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more", false},
        {"ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", false},
        {"00-00000000000000000000000000000000-b7ad6b7169203331-01", false},
        {"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01", false},
        {"00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01", false},
        {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331", false},
        {"", false},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct arena *arena CLEANUP(arena_drop) = arena_new();
        struct raw_header headers[] = {{SPAN_LIT("traceparent"), span_of(rows[i].parent)},
                                       {SPAN_LIT("tracestate"), SPAN_LIT("a=1,b=2")}};
        struct raw_record record = record_of(SPAN_LIT("{\"task_id\":\"t1\",\"handler\":\"plan\"}"));
        record.headers = headers;
        record.n_headers = 2;
        struct message m;
        struct reject reject;
        assert_true(message_decode(&record, NULL, arena, &m, &reject));
        assert_int_equal(span_eq_text(m.traceparent, rows[i].parent), rows[i].valid);
        assert_int_equal(span_eq_text(m.tracestate, "a=1,b=2"), rows[i].valid);
    }
}

/* ---- refusals ---- */

static void refused_records_keep_what_can_be_read(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *task;
        const char *tenant;
        const char *key;
    } rows[] = {
        {"{\"task_id\":\"t1\"}", "t1", "default", "kafka:c1/holdfast.tasks/3/41/1796117400123"},
        {"{\"task_id\":\"t1\",\"request_id\":\"q\",\"tenant_id\":\"acme\",\"x\":1}", "t1", "acme",
         "r:q"},
        {"{\"task_id\":\"t1\",\"request_id\":\"bad one\"}", "t1", "default",
         "kafka:c1/holdfast.tasks/3/41/1796117400123"},
        {"{\"type\":\"signal\",\"task_id\":\"t1\",\"signal_id\":\"s\"}", "t1", "default", "r:s"},
        {"{\"task_id\":\"t1\",\"handler\":\"plan\",\"input\":{\"n\":1e99}}", "t1", "default", NULL},
        {"{\"task_id\":\"t1\",\"type\":\"nonsense\"}", "t1", "default", NULL},
        {"{\"task_id\":\"t1\",\"tenant_id\":\"a/b\"}", NULL, NULL, NULL},
        {"{\"task_id\":\"t1\",\"task_id\":\"t2\",\"handler\":\"plan\"}", NULL, NULL, NULL},
        {"{\"task_id\":\"t 1\"}", NULL, NULL, NULL},
        {"{\"task_id\":\"t1\"", NULL, NULL, NULL},
        {"[\"task_id\"]", NULL, NULL, NULL},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct arena *arena CLEANUP(arena_drop) = arena_new();
        struct message m;
        struct reject reject;
        assert_false(decode(span_of(rows[i].text), arena, &m, &reject));
        if (reject.has_task != (rows[i].task != NULL))
            fail_msg("%s: has_task %d", rows[i].text, reject.has_task);
        assert_string_equal(m.source.p, "holdfast.tasks/3/41/1796117400123");
        if (rows[i].task == NULL)
            continue;
        assert_string_equal(m.task_id.p, rows[i].task);
        assert_string_equal(m.tenant_id.p, rows[i].tenant);
        if (rows[i].key != NULL)
            assert_string_equal(m.request_key.p, rows[i].key);
        assert_string_equal(m.digest.p, digest_bytes(span_of(rows[i].text)).text);
    }
}

static void sentences_help(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *sentence;
    } rows[] = {
        {"{\"task_id\":\"t\",\"handler\":\"h\",\"max_atempts\":3}",
         "a submission has no field \"max_atempts\"; did you mean \"max_attempts\"?"},
        {"{\"taskid\":\"t\",\"handler\":\"h\"}",
         "a submission has no field \"taskid\"; did you mean \"task_id\"?"},
        {"{\"type\":\"cancel\",\"task_id\":\"t\",\"handler\":\"h\"}",
         "a cancel has no field \"handler\""},
        {"{\"type\":\"cancle\",\"task_id\":\"t\"}",
         "\"type\" must be submit, cancel, retry or signal; did you mean \"cancel\"?"},
        {"{\"task_id\":\"t\",\"handler\":\"h\",\"zzzzzz\":3}",
         "a submission has no field \"zzzzzz\""},
        {"{\"task_id\":\"t\",\"handler\":\"h\",\"concurrency_key\":\"a\"}",
         "\"concurrency_key\" is not supported in this version"},
        {"{\"task_id\":\"t\",\"handler\":\"h\",\"deadline\":null}",
         "\"deadline\" must be a text, not null; leave the field out instead"},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct arena *arena CLEANUP(arena_drop) = arena_new();
        struct message m;
        struct reject reject;
        assert_false(decode(span_of(rows[i].text), arena, &m, &reject));
        assert_string_equal(reject.detail.p, rows[i].sentence);
        struct span json = reject_json(&reject, arena);
        const struct json_value *v;
        struct json_error error;
        assert_true(json_parse(json, NULL, arena, &v, &error));
        assert_true(span_eq(json_text(json_get(v, "detail")), reject.detail));
    }
}

static void limits_and_tenants(void **state)
{
    (void)state;
    struct arena *arena CLEANUP(arena_drop) = arena_new();
    struct message m;
    struct reject reject;
    struct raw_record record = record_of(SPAN_LIT("{\"task_id\":\"t1\",\"handler\":\"plan\"}"));
    struct message_limits limits = {.max_bytes = record.value.n};
    assert_true(message_decode(&record, &limits, arena, &m, &reject));
    limits.max_bytes--;
    assert_false(message_decode(&record, &limits, arena, &m, &reject));
    assert_int_equal(reject.reason, REJECT_TOO_LARGE);
    limits = (struct message_limits){.tenant = SPAN_LIT("acme")};
    assert_true(message_decode(&record, &limits, arena, &m, &reject));
    assert_string_equal(m.tenant_id.p, "acme");
    record.value = SPAN_LIT("{\"task_id\":\"t1\",\"handler\":\"plan\",\"tenant_id\":\"other\"}");
    assert_false(message_decode(&record, &limits, arena, &m, &reject));
    assert_int_equal(reject.reason, REJECT_TENANT);
    assert_string_equal(m.tenant_id.p, "acme"); /* the answer goes to the topic's tenant */
    record.value = SPAN_NULL;
    assert_false(message_decode(&record, NULL, arena, &m, &reject));
    assert_int_equal(reject.reason, REJECT_EMPTY);
    record.value = SPAN_LIT("");
    assert_false(message_decode(&record, NULL, arena, &m, &reject));
    assert_int_equal(reject.reason, REJECT_EMPTY);
    assert_false(reject.has_task);
}

static void too_many_labels(void **state)
{
    (void)state;
    struct arena *arena CLEANUP(arena_drop) = arena_new();
    for (int n = MESSAGE_MAX_LABELS; n <= MESSAGE_MAX_LABELS + 1; n++) {
        struct json_builder *b = json_builder_new(arena);
        struct json_node *o = json_new_object(b), *labels = json_new_object(b);
        for (int i = 0; i < n; i++)
            json_put_text(b, labels, arena_printf(arena, "l%d", i), SPAN_LIT(""));
        json_put_text(b, o, "task_id", SPAN_LIT("t"));
        json_put_text(b, o, "handler", SPAN_LIT("h"));
        json_put_node(b, o, "labels", labels);
        struct message m;
        struct reject reject;
        assert_int_equal(decode(json_build(b, o), arena, &m, &reject), n == MESSAGE_MAX_LABELS);
    }
}

/* docs/MESSAGES.md names every reason in the words of the table, and the limits that the code has.
 */
static void the_page_says_the_same(void **state)
{
    (void)state;
    struct arena *arena CLEANUP(arena_drop) = arena_new();
    FILE *file = fopen(SOURCE_DIR "/docs/MESSAGES.md", "r");
    assert_non_null(file);
    char *page = arena_alloc(arena, 65536);
    assert_true(fread(page, 1, 65535, file) > 1000);
    fclose(file);
    for (int i = 0; i <= REJECT_TENANT; i++) {
        enum reject_reason reason = (enum reject_reason)i, back;
        const char *row =
            arena_printf(arena, "| `%s` | %s |\n", reject_word(reason), reject_meaning(reason));
        if (strstr(page, row) == NULL)
            fail_msg("docs/MESSAGES.md lacks the line: %s", row);
        assert_true(reject_from_word(reject_word(reason), &back) && back == reason);
    }
    const char *limits[] = {
        arena_printf(arena, "| %d,000 bytes |", MESSAGE_MAX_BYTES / 1000),
        arena_printf(arena, "| nesting of arrays and objects | %d |", JSON_MAX_DEPTH),
        arena_printf(arena, "step and tool | %d characters |", MESSAGE_MAX_TENANT),
        arena_printf(arena, "`signal_id` | %d characters |", MESSAGE_MAX_TASK),
        arena_printf(arena, "| `by` | %d bytes", MESSAGE_MAX_BY),
        arena_printf(arena, "| `reason` | %d bytes", MESSAGE_MAX_REASON),
        arena_printf(arena, "| `labels` | %d members, keys %d characters, values %d bytes |",
                     MESSAGE_MAX_LABELS, MESSAGE_MAX_LABEL_KEY, MESSAGE_MAX_LABEL_VALUE),
        arena_printf(arena, "| `priority` | %d to %d,", MESSAGE_MIN_PRIORITY, MESSAGE_MAX_PRIORITY),
        arena_printf(arena, "| 1 to %d, default %d |", MESSAGE_MAX_ATTEMPTS,
                     MESSAGE_DEFAULT_ATTEMPTS),
    };
    for (size_t i = 0; i < COUNT_OF(limits); i++)
        if (strstr(page, limits[i]) == NULL)
            fail_msg("docs/MESSAGES.md does not say: %s", limits[i]);
    enum reject_reason reason;
    assert_false(reject_from_word("nonsense", &reason));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table_of_records),
        cmocka_unit_test(defaults),
        cmocka_unit_test(fields_are_carried),
        cmocka_unit_test(digest_covers_the_effect),
        cmocka_unit_test(content_type_decides),
        cmocka_unit_test(trace_context_is_taken_or_dropped),
        cmocka_unit_test(refused_records_keep_what_can_be_read),
        cmocka_unit_test(sentences_help),
        cmocka_unit_test(limits_and_tenants),
        cmocka_unit_test(too_many_labels),
        cmocka_unit_test(the_page_says_the_same),
    };
    return cmocka_run_group_tests_name("task records", tests, NULL, NULL);
}
