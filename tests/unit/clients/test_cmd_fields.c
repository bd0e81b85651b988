/* cmd_fields: a line for every row of api/job_fields.def, with default, unit-free text and range.
 */
#include "common/job_field.h"
#include "tests/lib/fake_server.h"

static void test_every_field(void **state)
{
    struct scene *s = *state;
    scene_run(s, cmd_fields, NULL);
    assert_int_equal(s->rc, 0);
    size_t lines = 0;
    for (const char *c = s->out; *c != '\0'; c++)
        lines += *c == '\n';
    assert_int_equal(lines, job_field_count);
    for (size_t i = 0; i < job_field_count; i++) {
        CLEANUP(mem_free_ptr) char *begin = mem_printf("\n%s ", job_fields[i].path);
        if (strncmp(s->out, begin + 1, strlen(begin + 1)) != 0 && strstr(s->out, begin) == NULL)
            fail_msg("%s has no line", job_fields[i].path);
    }
    assert_int_equal(s->server.asked_count, 0); /* no daemon is needed */
}

/* The line of a field, without what stands before and behind. */
static void line_of(const char *out, const char *path, char line[512])
{
    CLEANUP(mem_free_ptr) char *begin = mem_printf("\n%s ", path);
    const char *at = strstr(out, begin);
    assert_non_null(at);
    (void)snprintf(line, 512, "%.*s", (int)strcspn(at + 1, "\n"), at + 1);
}

static void test_lines(void **state)
{
    struct scene *s = *state;
    char line[512];
    scene_run(s, cmd_fields, NULL);
    line_of(s->out, "optimizer.schedule", line);
    assert_non_null(strstr(line, "\"constant\",")); /* its values */
    line_of(s->out, "optimizer.beta1", line);
    assert_non_null(strstr(line, " 0.9 "));
    line_of(s->out, "batch.sequences", line);
    assert_non_null(strstr(line, ".."));
}

static void test_json_and_mistakes(void **state)
{
    struct scene *s = *state;
    json_t *schema = NULL;
    s->json = true;
    scene_run(s, cmd_fields, NULL);
    assert_int_equal(json_parse(s->out, strlen(s->out), "schema", &schema, &s->err), 0);
    assert_true(json_is_object(json_object_get(json_object_get(schema, "properties"), "ithaca")));
    json_decref(schema);
    scene_run(s, cmd_fields, "more", NULL);
    scene_expect_usage(s, "unexpected argument more");
}

int main(void)
{
    const struct CMUnitTest tests[] = {SCENE_TEST(test_every_field), SCENE_TEST(test_lines),
                                       SCENE_TEST(test_json_and_mistakes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
