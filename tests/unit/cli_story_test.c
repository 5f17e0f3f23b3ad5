// The text of `holdfast show`: complete, and nothing in it is obeyed by a terminal.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "cli/story_text.h"

static const char story_json[] =
    "{\"tenant_id\":\"default\",\"task_id\":\"t1\",\"runs\":[{\"run_id\":\"r-2\",\"status\":"
    "\"running\","
    "\"handler\":\"steps\",\"epoch\":2,\"revision\":3,\"attempts\":1,\"failures\":0,\"max_"
    "attempts\":3,"
    "\"condition\":\"held\",\"owner\":\"p2/"
    "\\u001b[31mred\",\"lease_expires_at\":\"2026-12-01T06:51:21.820845+00:00\","
    "\"prev_run_id\":\"r-1\",\"fresh\":true,\"checkpoint\":{\"saved\":1},"
    "\"history\":[{\"at\":\"2026-12-01T06:51:20.100000+00:00\",\"kind\":\"taken_over\",\"epoch\":2,"
    "\"revision\":2,"
    "\"owner\":\"p2/x\"}],"
    "\"operations\":[{\"operation_id\":\"default/r-2/pay/"
    "1\",\"step_id\":\"pay\",\"effect_version\":1,"
    "\"tool_name\":\"payments\",\"capability\":\"none\",\"status\":\"unknown\",\"attempts\":2,"
    "\"attempts_not_sent\":1,\"evidence\":[{\"at\":\"2026-12-01T06:51:21.000000+00:00\",\"kind\":"
    "\"timeout\","
    "\"attempt\":2,\"detail\":{\"fault\":\"closed\"}}]}],"
    "\"refusals\":[{\"verb\":\"commit\",\"reason\":\"lease_lost\",\"epoch\":1,\"current_epoch\":2,"
    "\"count\":3,"
    "\"first_at\":\"2026-12-01T06:51:22.000000+00:00\",\"owner\":\"p1/y\"}]}],"
    "\"requests\":[{\"verb\":\"submit\",\"outcome\":\"created\",\"request_key\":\"r:k\",\"at\":"
    "\"2026-12-01T06:51:19.000000+00:00\"}]}";

static void everything_that_matters_is_told(void **state)
{
    (void)state;
    struct arena *arena CLEANUP(arena_drop) = arena_new();
    const struct json_value *story;
    struct json_error error;
    assert_true(json_parse(span_of(story_json), NULL, arena, &story, &error));
    struct text t CLEANUP(text_free) = TEXT_EMPTY;
    story_text(story, arena, &t);
    static const char *const wanted[] = {
        "task t1 of tenant default, 1 run",
        "run r-2: running, epoch 2, revision 3",
        "retries    r-1, adopting nothing",
        "held by p2/",
        "until 2026-12-01 06:51:21.820",
        "taken_over   epoch 2, revision 2, by p2/x",
        "pay (version 1) by payments: unknown, may have been sent 1 time\n",
        "timeout      attempt 2  {\"fault\":\"closed\"}",
        "commit of epoch 1 (lease_lost), the epoch was 2, by p1/y, 3 times",
        "submit  created      r:k",
    };
    for (size_t i = 0; i < COUNT_OF(wanted); i++)
        if (strstr(t.p, wanted[i]) == NULL)
            fail_msg("\"%s\" is not in:\n%s", wanted[i], t.p);
    assert_null(memchr(t.p, 0x1b, t.n));
}

static void a_story_without_anything_is_no_crash(void **state)
{
    (void)state;
    struct arena *arena CLEANUP(arena_drop) = arena_new();
    const struct json_value *story;
    struct json_error error;
    assert_true(json_parse(SPAN_LIT("{\"runs\":[{}]}"), NULL, arena, &story, &error));
    struct text t CLEANUP(text_free) = TEXT_EMPTY;
    story_text(story, arena, &t);
    assert_non_null(strstr(t.p, "1 run"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_that_matters_is_told),
        cmocka_unit_test(a_story_without_anything_is_no_crash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
