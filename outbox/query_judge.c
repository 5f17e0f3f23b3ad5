// outbox/query_judge.c: what a remote's word about an operation in doubt is worth.
#include "outbox/reconcile_int.h"

#include <string.h>

#include "base/text.h"
#include "schemas/canon.h"

const char *finding_word(enum finding finding)
{
    static const char *const words[] = {
        [FOUND_SUCCEEDED] = "succeeded", [FOUND_FAILED] = "failed_final",
        [FOUND_ABSENT] = "absent",       [FOUND_FOREIGN] = "foreign",
        [FOUND_PENDING] = "pending",     [FOUND_NOTHING] = "unanswered",
    };
    return words[finding];
}

// ---- the address ----

static void add_escaped(struct text *t, struct span value)
{
    static const char plain[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
    for (size_t i = 0; i < value.n; i++) {
        if (value.p[i] != '\0' && strchr(plain, value.p[i]) != NULL) {
            text_add_char(t, value.p[i]);
        } else {
            text_addf(t, "%%%02X", (unsigned)(unsigned char)value.p[i]);
        }
    }
}

const char *query_url(const struct config_tool *tool, const struct ledger_question *row,
                      struct arena *arena)
{
    static const char operation[] = "{operation_id}", remote[] = "{remote_id}";
    struct text t CLEANUP(text_free) = TEXT_EMPTY;
    for (const char *at = tool->query_url; *at != '\0';) {
        if (strncmp(at, operation, sizeof operation - 1) == 0) {
            add_escaped(&t, row->external_key);
            at += sizeof operation - 1;
        } else if (strncmp(at, remote, sizeof remote - 1) == 0) {
            if (span_is_null(row->remote_id)) {
                return NULL;
            }
            add_escaped(&t, row->remote_id);
            at += sizeof remote - 1;
        } else {
            text_add_char(&t, *at++);
        }
    }
    return arena_dup_text(arena, text_span(&t));
}

// ---- what was found ----

static bool is_empty(const struct json_value *v)
{
    return v == NULL || json_is(v, JSON_NULL) || (json_is(v, JSON_BOOL) && !json_bool(v)) ||
           (json_is(v, JSON_ARRAY) && json_count(v) == 0);
}

// Does what is there hold all that was asked for? A remote may add members of its own.
static bool contains(const struct json_value *have, const struct json_value *want,
                     struct arena *arena)
{
    if (have == NULL || json_kind(have) != json_kind(want)) {
        return false;
    }
    if (json_is(want, JSON_OBJECT)) {
        for (struct json_iter it = json_iter(want); json_next(&it);) {
            if (!contains(json_get_span(have, it.key), it.value, arena)) {
                return false;
            }
        }
        return true;
    }
    return span_eq(canon_write(have, arena), canon_write(want, arena));
}

static bool is_text(const struct json_value *found, const char *pointer, struct span want)
{
    const struct json_value *v = json_pointer(found, span_of(pointer), NULL);
    return json_is(v, JSON_STRING) && span_eq(json_text(v), want);
}

// Of that name, and ours? What differs, or NULL.
static const char *compare(const struct question *q, const struct json_value *found)
{
    const struct config_tool *tool = q->declared;
    if (!is_text(found, tool->tag, q->row.external_key)) {
        return "tag";
    }
    if (tool->owner[0] != '\0' && !is_text(found, tool->owner, span_of(tool->owner_is))) {
        return "owner";
    }
    const struct json_value *request = NULL;
    struct json_error error;
    if (tool->spec[0] == '\0') {
        return NULL;
    }
    if (!json_parse(q->row.request_body.text, NULL, q->arena, &request, &error)) {
        return "spec";
    }
    const struct json_value *want = json_pointer(request, span_of(tool->spec_is), NULL);
    const struct json_value *have = json_pointer(found, span_of(tool->spec), NULL);
    return want != NULL && contains(have, want, q->arena) ? NULL : "spec";
}

static bool is_listed(const char *list, struct span word)
{
    while (*list != '\0') {
        list += strspn(list, ", ");
        struct span one = {.p = list, .n = strcspn(list, ", ")};
        if (one.n > 0 && span_eq(one, word)) {
            return true;
        }
        list += one.n;
    }
    return false;
}

static void read_state(struct question *q, const struct json_value *found)
{
    const struct config_tool *tool = q->declared;
    struct span state = json_text(json_pointer(found, span_of(tool->state), NULL));
    if (span_is_null(state)) {
        q->finding = FOUND_NOTHING;
    } else if (is_listed(tool->state_succeeded, state)) {
        q->finding = FOUND_SUCCEEDED;
    } else if (is_listed(tool->state_failed, state)) {
        q->finding = FOUND_FAILED;
    } else {
        q->finding = FOUND_PENDING;
    }
}

static void note(struct question *q, const char *name, const char *text)
{
    q->evidence = evidence_with(q->evidence, name, span_of(text), q->arena);
}

void query_judge_found(struct question *q, const struct json_value *found)
{
    if (is_empty(found)) {
        q->finding = FOUND_ABSENT;
        return;
    }
    const char *differs =
        q->declared->capability == CAPABILITY_DETERMINISTIC_ID ? compare(q, found) : NULL;
    if (differs != NULL) {
        q->finding = FOUND_FOREIGN;
        note(q, "differs", differs);
        return;
    }
    q->finding = FOUND_SUCCEEDED;
    if (q->declared->state[0] != '\0') {
        read_state(q, found);
    }
    q->remote_id = judge_remote_id(found, q->row.declaration.text, q->arena);
    struct json_error error;
    q->result =
        json_check(found, NULL, q->arena, &error) ? json_write(found, q->arena) : SPAN_LIT("null");
}

// An answer that has no place for what was asked is not what the tool promised, and no word about
// the operation.
static void look_for_it(struct question *q, const struct json_value *body)
{
    const struct config_tool *tool = q->declared;
    if (tool->query_absent[0] != '\0' &&
        !is_empty(json_pointer(body, span_of(tool->query_absent), NULL))) {
        q->finding = FOUND_ABSENT;
        return;
    }
    size_t led = 0;
    struct span pointer = span_of(tool->query_found);
    const struct json_value *found = json_pointer(body, pointer, &led);
    const char *last = strrchr(tool->query_found, '/');
    bool has_place = last == NULL || led >= (size_t)(last - tool->query_found);
    if (found == NULL && !has_place) {
        q->finding = FOUND_NOTHING;
        note(q, "reading", "not_as_declared");
        return;
    }
    query_judge_found(q, found);
}

void query_judge(struct question *q, const struct http_answer *answer)
{
    q->evidence = evidence_of_answer(answer, q->arena);
    q->finding = FOUND_NOTHING;
    q->retry_ms = (struct db_int){.is_null = true};
    if (answer->fault != HTTP_FAULT_NONE) {
        return;
    }
    const struct json_limits any_number = {.any_number = true};
    const struct json_value *body = NULL;
    struct json_error error;
    bool is_json = json_parse(answer->body, &any_number, q->arena, &body, &error);
    if (config_status_in(&q->declared->query_absent_statuses, answer->status)) {
        q->finding = FOUND_ABSENT;
    } else if (config_status_in(&q->declared->query_found_statuses, answer->status)) {
        if (is_json) {
            look_for_it(q, body);
        } else {
            note(q, "reading", "not_as_declared");
        }
    } else {
        int64_t wait_ms = http_retry_after_ms(answer);
        if (wait_ms > 0) {
            q->retry_ms = (struct db_int){.v = wait_ms};
        }
    }
}
