/* What goes out: results, hints, relay identities, dead letters: encoded, read back, and held
 * against schemas/json. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/text.h"
#include "schemas/canon.h"
#include "schemas/dead_letter.h"
#include "schemas/intent.h"
#include "schemas/msgpack.h"
#include "schemas/result.h"

#define RUN "0192f0c1-7a3b-7cde-8f01-23456789abcd"
#define EVENT "4bf92f35-77b3-4da6-a3ce-929d0e0e4736"
#define DIGEST "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define OPERATION                                                                                  \
    "{\"operation\":{\"operation_id\":\"default/" RUN                                              \
    "/pay/1\",\"step_id\":\"pay\",\"effect_version\":1,"                                           \
    "\"tool_name\":\"payments\",\"request_digest\":\"" DIGEST                                      \
    "\",\"status\":\"succeeded\",\"revision\":2,"                                                  \
    "\"attempts\":1,\"remote_id\":\"p-1\",\"result\":{\"amount\":12.5}}}"

/* ---- python ---- */

static FILE *validator(const char *what)
{
    const char *python = SOURCE_DIR "/.venv/bin/python"; /* scripts/deps --tests makes it */
    const char *own = getenv("HOLDFAST_PYTHON");
    if (own != NULL)
        python = own;
    else if (access(python, X_OK) != 0)
        python = "python3";
    char command[1024];
    snprintf(command, sizeof(command), "exec '%s' " SOURCE_DIR "/tests/messages/validate.py %s",
             python, what);
    FILE *in = popen(command, "w");
    assert_non_null(in);
    return in;
}

static void offer(FILE *to, const char *schema, struct span json)
{
    fprintf(to, "%s\t%.*s\n", schema, SPAN_ARG(json));
}

static void offer_headers(FILE *to, const char *schema, const struct raw_header *headers, size_t n,
                          struct arena *arena)
{
    struct json_builder *b = json_builder_new(arena);
    struct json_node *o = json_new_object(b);
    for (size_t i = 0; i < n; i++)
        json_set(b, o, headers[i].name, json_new_text(b, headers[i].value));
    offer(to, schema, json_build(b, o));
}

/* ---- results ---- */

static struct uuid uuid_of(const char *text)
{
    struct uuid u;
    assert_true(uuid_parse(span_of(text), &u));
    return u;
}

static struct result_event event_of(const char *type, const char *body)
{
    return (struct result_event){
        .event_id = uuid_of(EVENT),
        .tenant_id = SPAN_LIT("default"),
        .task_id = SPAN_LIT("invoice-2041"),
        .has_run = strncmp(type, "submission.r", 12) != 0,
        .run_id = uuid_of(RUN),
        .type = span_of(type),
        .epoch = 3,
        .revision = 7,
        .timeline = 1,
        .at_us = INT64_C(1796117400123456),
        .body = span_of(body),
        .traceparent = SPAN_LIT("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        .tracestate = SPAN_LIT("a=1")};
}

/* A body for every type, in the form in which the SQL functions write it. */
static const struct {
    const char *type, *body;
} bodies[] = {
    {"run.started", "{}"},
    {"run.taken_over", "{\"takeover\": {\"after_ms\": 812, \"from_epoch\": 2}}"},
    {"run.succeeded", "{\"output\": {\"steps\": {\"pay\": {\"status\": \"succeeded\"}}}}"},
    {"run.succeeded", "{\"output\": null}"},
    {"run.failed",
     "{\"failure\": {\"detail\": \"the deadline had passed\", \"reason\": \"deadline_exceeded\"}}"},
    {"run.cancelled",
     "{\"failure\": {\"by\": \"ops\", \"reason\": \"cancelled\", \"detail\": \"asked\"}}"},
    {"operation.succeeded", OPERATION},
    {"operation.failed", OPERATION},
    {"operation.unknown", OPERATION},
    {"operation.cancelled", OPERATION},
    {"operation.contradiction", OPERATION},
    {"submission.duplicate", "{\"submission\": {\"source\": \"t/0/1/2\", \"request_id\": \"r\", "
                             "\"first_outcome\": \"created\"}}"},
    {"submission.rejected",
     "{\"failure\": {\"place\": \"/x\", \"reason\": \"unknown_field\", \"detail\": \"no field\"}}"},
    {"invoice.printed", "{\"task_id\": \"not mine\", \"pages\": 2}"},
    {"progress", "[1, 2]"},
};

static const struct result_options json_options = {.encoding = RESULT_JSON,
                                                   .source = {"/holdfast/test", 14}};

static struct span header(const struct result *r, const char *name)
{
    struct span found = SPAN_NULL;
    for (size_t i = 0; i < r->n_headers; i++) {
        if (!span_eq_text(r->headers[i].name, name))
            continue;
        assert_true(span_is_null(found));
        found = r->headers[i].value;
    }
    return found;
}

static void a_result_is_a_cloud_event(void **state)
{
    (void)state;
    struct arena *arena CLEANUP(arena_drop) = arena_new();
    struct result_event event = event_of("run.succeeded", "{\"output\": {\"a\": 1}}");
    struct result r;
    result_encode(&event, &json_options, arena, &r);
    assert_string_equal(
        r.value.p,
        "{\"event_id\":\"" EVENT "\",\"type\":\"run.succeeded\",\"tenant_id\":\"default\","
        "\"task_id\":\"invoice-2041\",\"run_id\":\"" RUN "\",\"epoch\":3,\"revision\":7,"
        "\"timeline\":1,\"time\":\"2026-12-01T09:30:00.123456Z\",\"output\": {\"a\": 1}}");
    assert_string_equal(r.key.p, "invoice-2041");
    static const char *const wanted[][2] = {
        {"ce_specversion", "1.0"},
        {"ce_id", EVENT},
        {"ce_type", "run.succeeded"},
        {"ce_source", "/holdfast/test"},
        {"ce_subject", "invoice-2041"},
        {"ce_time", "2026-12-01T09:30:00.123456Z"},
        {"ce_dataschema", "urn:holdfast:schema:result:run.succeeded:1"},
        {"content-type", "application/json"},
        {"run_id", RUN},
        {"epoch", "3"},
        {"revision", "7"},
        {"traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
        {"tracestate", "a=1"},
    };
    for (size_t i = 0; i < COUNT_OF(wanted); i++)
        assert_true(span_eq_text(header(&r, wanted[i][0]), wanted[i][1]));
    assert_int_equal(r.n_headers, COUNT_OF(wanted));
    struct uuid id;
    assert_true(result_event_id(r.headers, r.n_headers, &id));
    assert_true(uuid_eq(id, event.event_id));
    assert_false(result_event_id(r.headers, 1, &id));
}

static void a_result_without_a_run_or_trace(void **state)
{
    (void)state;
    struct arena *arena CLEANUP(arena_drop) = arena_new();
    struct result_event event =
        event_of("submission.rejected", "{\"failure\": {\"reason\": \"task_active\"}}");
    event.traceparent = SPAN_NULL;
    struct result r;
    result_encode(&event, &json_options, arena, &r);
    assert_true(span_is_null(header(&r, "run_id")) && span_is_null(header(&r, "epoch")));
    assert_true(span_is_null(header(&r, "traceparent")) && span_is_null(header(&r, "tracestate")));
    assert_null(strstr(r.value.p, "run_id"));
}

static void results_are_read_back_from_both_encodings(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(bodies) * 2; i++) {
        struct arena *arena CLEANUP(arena_drop) = arena_new();
        struct result_event event = event_of(bodies[i / 2].type, bodies[i / 2].body), back;
        struct result_options options = json_options;
        options.encoding = i % 2 ? RESULT_MSGPACK : RESULT_JSON;
        struct result r;
        struct json_error error;
        result_encode(&event, &options, arena, &r);
        assert_int_equal(msgpack_is_map(r.value), i % 2);
        assert_true(span_eq_text(header(&r, "content-type"),
                                 i % 2 ? "application/msgpack" : "application/json"));
        if (!result_decode(r.value, arena, &back, &error))
            fail_msg("%s: %s", bodies[i / 2].type, error.detail.p);
        assert_true(uuid_eq(back.event_id, event.event_id) && back.has_run == event.has_run);
        assert_true(!back.has_run || uuid_eq(back.run_id, event.run_id));
        assert_true(span_eq(back.type, event.type) && span_eq(back.task_id, event.task_id));
        assert_true(back.epoch == 3 && back.revision == 7 && back.timeline == 1 &&
                    back.at_us == event.at_us);
        const struct json_value *a, *b;
        assert_true(json_parse(event.body, NULL, arena, &a, &error) &&
                    json_parse(back.body, NULL, arena, &b, &error));
        assert_true(span_eq(canon_write(a, arena), canon_write(b, arena)));
    }
}

static void a_step_cannot_pose_as_the_product(void **state)
{
    (void)state;
    struct arena *arena CLEANUP(arena_drop) = arena_new();
    struct result_event event = event_of("invoice.printed", "{\"task_id\": \"not mine\"}");
    struct result r;
    result_encode(&event, &json_options, arena, &r);
    const struct json_value *v;
    struct json_error error;
    assert_true(json_parse(r.value, NULL, arena, &v, &error)); /* no key twice */
    assert_true(span_eq_text(json_text(json_get(v, "task_id")), "invoice-2041"));
    assert_true(span_eq_text(json_text(json_get(json_get(v, "data"), "task_id")), "not mine"));
    assert_true(span_eq_text(header(&r, "ce_dataschema"), "urn:holdfast:schema:result:event:1"));
    assert_true(result_type_reserved(SPAN_LIT("run.succeeded")) &&
                result_type_reserved(SPAN_LIT("operation.x")) &&
                result_type_reserved(SPAN_LIT("submission.")));
    assert_false(result_type_reserved(SPAN_LIT("running")) || result_type_reserved(SPAN_LIT("")));
}

static void too_large_is_told_by_reference(void **state)
{
    (void)state;
    struct arena *arena CLEANUP(arena_drop) = arena_new();
    struct text body CLEANUP(text_free) = TEXT_EMPTY;
    text_add_str(&body, "{\"output\": {\"z\": 1, \"a\": \"");
    for (int i = 0; i < 5000; i++)
        text_add_char(&body, 'x');
    text_add_str(&body, "\"}}");
    struct result_event event = event_of("run.succeeded", body.p);
    struct result_options options = json_options;
    struct result whole, r;
    result_encode(&event, &options, arena, &whole);
    options.max_bytes = whole.value.n;
    result_encode(&event, &options, arena, &r);
    assert_true(span_eq(whole.value, r.value));
    options.max_bytes--;
    result_encode(&event, &options, arena, &r);
    assert_true(r.value.n < 1000);
    const struct json_value *v, *original;
    struct json_error error;
    assert_true(json_parse(r.value, NULL, arena, &v, &error));
    assert_null(json_get(v, "output"));
    const struct json_value *omitted = json_get(v, "omitted");
    assert_int_equal((size_t)json_number(json_get(omitted, "bytes")), body.n);
    assert_true(json_parse(text_span(&body), NULL, arena, &original, &error));
    assert_true(
        span_eq_text(json_text(json_get(omitted, "digest")), digest_json(original, arena).text));
    assert_true(
        span_eq_text(json_text(json_get(omitted, "fetch")), "holdfast show " RUN " --json"));
    options.max_bytes = 0;
    options.omit_body = true;
    result_encode(&event, &options, arena, &r);
    assert_true(r.value.n < 1000);
}

/* ---- hints and identities ---- */

static const char *refusal_of_intent(const char *text, struct arena *arena)
{
    struct intent intent;
    struct json_error error;
    return intent_decode(span_of(text), arena, &intent, &error) ? "ok" : error.reason;
}

static struct intent registered(void)
{
    return (struct intent){.kind = INTENT_REGISTERED,
                           .operation_id = SPAN_LIT("default/" RUN "/pay/1"),
                           .run_id = uuid_of(RUN),
                           .tool_name = SPAN_LIT("payments"),
                           .request_digest = SPAN_LIT(DIGEST)};
}

static struct intent claimed(void)
{
    return (struct intent){.kind = INTENT_CLAIMED,
                           .operation_id = SPAN_LIT("default/" RUN "/pay/1"),
                           .attempt = 2,
                           .timeline = 5,
                           .until_us = INT64_C(1796117400000000)};
}

static void intents(void **state)
{
    (void)state;
    struct arena *arena CLEANUP(arena_drop) = arena_new();
    struct json_error error;
    struct intent a = registered(), b = claimed(), back;
    struct span text = intent_encode(&a, arena);
    assert_string_equal(text.p, "{\"operation_id\":\"default/" RUN "/pay/1\",\"run_id\":\"" RUN
                                "\",\"tool_name\":\"payments\",\"request_digest\":\"" DIGEST "\"}");
    assert_true(intent_decode(text, arena, &back, &error));
    assert_true(back.kind == INTENT_REGISTERED && span_eq(back.operation_id, a.operation_id) &&
                uuid_eq(back.run_id, a.run_id) && span_eq(back.tool_name, a.tool_name) &&
                span_eq(back.request_digest, a.request_digest));
    assert_true(intent_decode(intent_encode(&b, arena), arena, &back, &error));
    assert_true(back.kind == INTENT_CLAIMED && back.attempt == 2 && back.timeline == 5 &&
                back.until_us == b.until_us);

    assert_string_equal(refusal_of_intent("", arena), "not_json");
    assert_string_equal(refusal_of_intent("[]", arena), "wrong_type");
    assert_string_equal(refusal_of_intent("{\"operation_id\":\"x\"}", arena), "missing_field");
    assert_string_equal(refusal_of_intent("{\"operationid\":\"x\"}", arena), "unknown_field");
    assert_string_equal(refusal_of_intent("{\"operation_id\":7}", arena), "wrong_type");
    assert_string_equal(refusal_of_intent("{\"request_digest\":\"sha256:12\"}", arena),
                        "wrong_type");
    assert_string_equal(refusal_of_intent("{\"kind\":\"other\"}", arena), "out_of_range");
    assert_string_equal(refusal_of_intent("{\"kind\":\"claimed\",\"attempt\":-1}", arena),
                        "wrong_type");
    assert_string_equal(refusal_of_intent("{\"kind\":\"claimed\",\"attempt\":2147483648}", arena),
                        "wrong_type");
}

static void wakeups(void **state)
{
    (void)state;
    struct arena *arena CLEANUP(arena_drop) = arena_new();
    struct json_error error;
    struct wakeup w = {uuid_of(RUN), 12}, back;
    struct span text = wakeup_encode(&w, arena);
    assert_string_equal(text.p, "{\"run_id\":\"" RUN "\",\"epoch\":12}");
    assert_true(wakeup_decode(text, arena, &back, &error));
    assert_true(uuid_eq(back.run_id, w.run_id) && back.epoch == 12);
    assert_false(wakeup_decode(SPAN_LIT("{\"run_id\":\"x\",\"epoch\":12}"), arena, &back, &error));
    assert_string_equal(error.place.p, "/run_id");
    assert_false(
        wakeup_decode(SPAN_LIT("{\"run_id\":\"" RUN "\",\"epoch\":1.5}"), arena, &back, &error));
    assert_false(wakeup_decode(SPAN_LIT("{\"run_id\":\"" RUN "\"}"), arena, &back, &error));
    assert_string_equal(error.reason, "missing_field");
}

static struct relay_identity identity_of(size_t n, struct arena *arena)
{
    struct relay_pair *pairs = arena_array(arena, n + 1, sizeof(*pairs));
    for (size_t i = 0; i < n; i++)
        pairs[i] = (struct relay_pair){(int64_t)(1000 + i), uuid_v4()};
    return (struct relay_identity){.shard = 7,
                                   .batch = 123456,
                                   .system_identifier = SPAN_LIT("7310000000000000001"),
                                   .timeline = 2,
                                   .lsn = SPAN_LIT("0/16B3748"),
                                   .pairs = pairs,
                                   .n_pairs = n};
}

static void relay_identities(void **state)
{
    (void)state;
    struct arena *arena CLEANUP(arena_drop) = arena_new();
    struct json_error error;
    for (size_t n = 0; n <= 2000; n += 1000) {
        struct relay_identity a = identity_of(n, arena), b;
        if (!relay_identity_decode(relay_identity_encode(&a, arena), arena, &b, &error))
            fail_msg("%s", error.detail.p);
        assert_true(b.shard == 7 && b.batch == 123456 && b.timeline == 2 && b.n_pairs == n);
        assert_true(span_eq(a.system_identifier, b.system_identifier) && span_eq(a.lsn, b.lsn));
        for (size_t i = 0; i < n; i++)
            assert_true(a.pairs[i].seq == b.pairs[i].seq &&
                        uuid_eq(a.pairs[i].event_id, b.pairs[i].event_id));
    }
    struct relay_identity b;
    const char *base = "{\"shard\":0,\"batch\":1,\"system_identifier\":\"1\",\"timeline\":1,"
                       "\"lsn\":\"0/0\",\"events\":%s}";
    static const char *const wrong[] = {
        "{}", "[1]", "[[1]]", "[[1,\"x\"]]", "[[\"1\",\"" EVENT "\"]]", "[[1,\"" EVENT "\",2]]"};
    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        struct text t CLEANUP(text_free) = TEXT_EMPTY;
        text_add(&t, base, (size_t)(strstr(base, "%s") - base));
        text_add_str(&t, wrong[i]);
        text_add_str(&t, "}");
        assert_false(relay_identity_decode(text_span(&t), arena, &b, &error));
        assert_true(span_starts_with(error.place, SPAN_LIT("/events")));
    }
}

/* ---- dead letters ---- */

static struct raw_record refused_record(void)
{
    static const struct raw_header headers[] = {{{"content-type", 12}, {"application/json", 16}},
                                                {{"reason", 6}, {"the producer's own", 18}}};
    return (struct raw_record){.topic = SPAN_LIT("holdfast.tasks"),
                               .partition = 5,
                               .offset = INT64_C(9007199254740999),
                               .timestamp_ms = -1,
                               .key = SPAN_LIT("k\0ey"),
                               .value = SPAN_LIT("{not json"),
                               .headers = headers,
                               .n_headers = 2};
}

static void dead_letters(void **state)
{
    (void)state;
    struct arena *arena CLEANUP(arena_drop) = arena_new();
    struct raw_record record = refused_record();
    struct dead_letter letter;
    struct dead_letter_facts facts;
    dead_letter_encode(&record, SPAN_LIT("not_json"), SPAN_LIT("a sentence"), 2, 0, arena, &letter);
    assert_true(span_eq(letter.key, record.key) && span_eq(letter.value, record.value));
    assert_memory_equal(letter.headers, record.headers, 2 * sizeof(*record.headers));
    assert_true(dead_letter_decode(letter.headers, letter.n_headers, &facts));
    assert_true(span_eq(facts.topic, record.topic) && facts.partition == 5 &&
                facts.offset == record.offset);
    assert_true(facts.timestamp_ms == -1 && facts.tried == 2 && !facts.omitted);
    assert_true(span_eq_text(facts.reason, "not_json") && span_eq_text(facts.detail, "a sentence"));
    assert_false(dead_letter_decode(record.headers, record.n_headers, &facts));
    dead_letter_encode(&record, SPAN_LIT("not_json"), SPAN_LIT("a sentence"), 2, record.value.n,
                       arena, &letter);
    assert_true(span_eq(letter.value, record.value));
    dead_letter_encode(&record, SPAN_LIT("not_json"), SPAN_LIT("a sentence"), 2, record.value.n - 1,
                       arena, &letter);
    assert_true(span_is_null(letter.value));
    assert_true(dead_letter_decode(letter.headers, letter.n_headers, &facts) && facts.omitted);
    struct span omitted = letter.headers[letter.n_headers - 1].value;
    assert_string_equal(omitted.p, arena_printf(arena, "9 %s", digest_bytes(record.value).text));
}

/* ---- the schema files ---- */

static void offer_results(FILE *to, struct arena *arena)
{
    for (size_t i = 0; i < COUNT_OF(bodies) * 2; i++) {
        struct result_event event = event_of(bodies[i / 2].type, bodies[i / 2].body);
        struct result_options options = json_options;
        options.omit_body = i % 2 && strcmp(bodies[i / 2].type, "run.started") != 0;
        struct result r;
        result_encode(&event, &options, arena, &r);
        const char *schema = result_type_reserved(event.type) ? bodies[i / 2].type : "event";
        offer(to, arena_printf(arena, "result.%s", schema), r.value);
        offer_headers(to, "result.headers", r.headers, r.n_headers, arena);
    }
}

static void offer_tasks(FILE *to, struct arena *arena)
{
    static const char *const texts[] = {
        "{\"task_id\":\"t1\",\"handler\":\"plan\",\"by\":\"me\",\"request_id\":\"r\",\"deadline\":"
        "\"2026-12-01T09:30:00+05:00\"}",
        "{\"type\":\"cancel\",\"task_id\":\"t1\",\"reason\":\"x\"}",
        "{\"type\":\"retry\",\"run_id\":\"" RUN "\"}",
        "{\"type\":\"signal\",\"task_id\":\"t1\",\"signal_id\":\"s\",\"name\":\"n\",\"payload\":[1]"
        "}",
    };
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        struct raw_record record = {.topic = SPAN_LIT("t"), .value = span_of(texts[i])};
        struct message m;
        struct reject reject;
        assert_true(message_decode(&record, NULL, arena, &m, &reject));
        offer(to, arena_printf(arena, "task.%s", message_type_word(m.type)),
              message_record(&m, arena));
    }
    offer(to, "plan",
          SPAN_LIT("{\"steps\":[{\"id\":\"pay\",\"tool\":\"payments\",\"request\":{\"amount\":{\"$"
                   "ref\":\"/steps/a/result\"}},"
                   "\"after\":[\"reserve\"],\"effect_version\":1}]}"));
}

/* The lines of the page on exec handlers; the pool's own tests speak with real children. */
static void offer_exec_lines(FILE *to)
{
    static const char *const lines[][2] = {
        {"exec.context", "{\"context\":{\"tenant_id\":\"default\",\"task_id\":\"t1\",\"handler\":"
                         "\"h\",\"run_id\":\"" RUN "\",\"first_run_id\":\"" RUN
                         "\",\"epoch\":1,\"revision\":1,\"attempt\":1,\"failures\":0,"
                         "\"takeover\":false,\"input\":{},\"checkpoint\":{},\"operations\":[],"
                         "\"signals\":[],\"earlier\":[]}}"},
        {"exec.reply", "{\"revision\":3}"},
        {"exec.reply", "{\"conflict\":{\"revision\":4,\"checkpoint\":{}}}"},
        {"exec.reply", "{\"stop\":\"lease_lost\"}"},
        {"exec.line", "{\"progress\":0.5}"},
        {"exec.line", "{\"save\":{\"page\":2}}"},
        {"exec.line", "{\"decision\":\"continue\",\"checkpoint\":{\"page\":3}}"},
        {"exec.line", "{\"decision\":\"plan\",\"intents\":[{\"id\":\"pay\",\"tool\":\"payments\","
                      "\"request\":{}}]}"},
        {"exec.line", "{\"decision\":\"sleep\",\"ms\":500}"},
        {"exec.line", "{\"decision\":\"succeed\",\"output\":{},\"events\":[{\"type\":\"printed\","
                      "\"body\":{}}]}"},
        {"exec.line",
         "{\"decision\":\"fail\",\"failure\":{\"reason\":\"x\"},\"retry_after_ms\":1000}"},
    };
    for (size_t i = 0; i < COUNT_OF(lines); i++)
        offer(to, lines[i][0], span_of(lines[i][1]));
}

static void encoded_messages_match_the_schema_files(void **state)
{
    (void)state;
    struct arena *arena CLEANUP(arena_drop) = arena_new();
    FILE *to = validator("encoded");
    struct intent a = registered(), b = claimed();
    struct wakeup w = {uuid_of(RUN), 12};
    struct relay_identity identity = identity_of(3, arena);
    struct raw_record record = refused_record();
    struct dead_letter letter;
    offer_results(to, arena);
    offer_tasks(to, arena);
    offer_exec_lines(to);
    offer(to, "intent", intent_encode(&a, arena));
    offer(to, "intent.claimed", intent_encode(&b, arena));
    offer(to, "wakeup", wakeup_encode(&w, arena));
    offer(to, "relay-identity", relay_identity_encode(&identity, arena));
    for (size_t max_bytes = 0; max_bytes < 2; max_bytes++) {
        dead_letter_encode(&record, SPAN_LIT("not_json"), SPAN_LIT("a sentence"), 1, max_bytes,
                           arena, &letter);
        offer_headers(to, "dead-letter.headers", letter.headers, letter.n_headers, arena);
    }
    assert_int_equal(pclose(to), 0);
}

static void decoder_and_schema_agree_on_task_records(void **state)
{
    (void)state;
    assert_int_equal(pclose(validator("tasks")), 0);
}

static void schema_files_are_sound_and_in_asyncapi(void **state)
{
    (void)state;
    assert_int_equal(pclose(validator("files")), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_result_is_a_cloud_event),
        cmocka_unit_test(a_result_without_a_run_or_trace),
        cmocka_unit_test(results_are_read_back_from_both_encodings),
        cmocka_unit_test(a_step_cannot_pose_as_the_product),
        cmocka_unit_test(too_large_is_told_by_reference),
        cmocka_unit_test(intents),
        cmocka_unit_test(wakeups),
        cmocka_unit_test(relay_identities),
        cmocka_unit_test(dead_letters),
        cmocka_unit_test(encoded_messages_match_the_schema_files),
        cmocka_unit_test(decoder_and_schema_agree_on_task_records),
        cmocka_unit_test(schema_files_are_sound_and_in_asyncapi),
    };
    return cmocka_run_group_tests_name("messages that go out", tests, NULL, NULL);
}
