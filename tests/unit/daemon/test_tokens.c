/* tokens: what may be asked for, to the last value; lists; what cannot be revoked. */
#include "tests/lib/http_world.h"

static void test_wishes(void **state)
{
    struct http_world *h = *state;
    char longest[2][LIMIT_NAME_BYTES + 64]; /* a name, and one that is too long */
    for (int i = 0; i < 2; i++)
        (void)snprintf(longest[i], sizeof longest[i], "{\"user\":\"ann\",\"name\":\"%0*d\"}",
                       LIMIT_NAME_BYTES + i, 0);
    const struct {
        const char *body, *field; /* NULL: it is made */
    } rows[] = {
        {"{\"user\":\"ann\"}", NULL},
        {"{\"user\":\"ann\",\"expires_in_s\":null}", NULL},
        {"{\"user\":\"ann\",\"expires_in_s\":60}", NULL},
        {"{\"user\":\"ann\",\"expires_in_s\":316224000}", NULL},
        {"{\"user\":\"ann\",\"expires_in_s\":59}", "expires_in_s"},
        {"{\"user\":\"ann\",\"expires_in_s\":316224001}", "expires_in_s"},
        {"{\"user\":\"ann\",\"expires_in_s\":\"60\"}", "expires_in_s"},
        {longest[0], NULL},
        {longest[1], "name"},
        {"{\"user\":\"ann\",\"name\":1}", "name"},
        {"{\"user\":\"ann\",\"scope\":\"read\"}", NULL},
        {"{\"user\":\"ann\",\"scope\":\"root\"}", "scope"},
        {"{\"user\":\"ann\",\"scope\":1}", "scope"},
        {"{\"user\":\"a b\"}", "user"},
        {"{\"user\":1}", "user"},
        {"{}", "user"},
        {"{\"user\":\"ann\",\"colour\":1}", "colour"},
    };
    int made = 0;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ask(h, "POST", "/v1/tokens", rows[i].body);
        if (rows[i].field != NULL) {
            expect(h, 400, "error.param", rows[i].field);
            continue;
        }
        made++;
        expect(h, 200, "user", "ann");
        expect(h, 200, "scope", strstr(rows[i].body, "read") != NULL ? "read" : "submit");
        const char *name =
            strstr(rows[i].body, "\"name\"") != NULL ? strstr(longest[0], "\"name\"") + 8 : NULL;
        if (name != NULL)
            assert_memory_equal(json_string_value(answer(h, "name")), name, LIMIT_NAME_BYTES);
        else
            assert_true(json_is_null(answer(h, "name")));
        const char *wished = strstr(rows[i].body, "expires_in_s\":");
        int64_t lasts_s = wished != NULL ? atoll(wished + strlen("expires_in_s\":")) : 0;
        if (lasts_s > 0)
            assert_int_equal(answer_int(h, "expires_at"), answer_int(h, "created_at") + lasts_s);
        else
            assert_true(json_is_null(answer(h, "expires_at")));
    }
    ask(h, "GET", "/v1/tokens", NULL);
    assert_int_equal(json_array_size(answer(h, "data")), made + 1); /* and the admin's */
    assert_true(json_is_false(answer(h, "has_more")));
    ask(h, "GET", "/v1/tokens?limit=2", NULL);
    assert_int_equal(json_array_size(answer(h, "data")), 2);
    assert_true(json_is_true(answer(h, "has_more")));
    assert_null(answer(h, "data.0.token")); /* it is told once */
    ask(h, "GET", "/v1/tokens?limit=0", NULL);
    expect(h, 400, "error.param", "limit");
}

static void test_revoking(void **state)
{
    struct http_world *h = *state;
    char target[128];
    ask(h, "DELETE", "/v1/tokens/token-none", NULL);
    expect(h, 404, "error.code", "not_found");
    ask(h, "DELETE", "/v1/tokens/" AUTH_ADMIN_ID, NULL);
    expect(h, 400, "error.code", "invalid_state");
    ask(h, "POST", "/v1/tokens", "{\"user\":\"ann\",\"scope\":\"admin\"}");
    (void)snprintf(target, sizeof target, "/v1/tokens/%s", json_string_value(answer(h, "id")));
    (void)snprintf(h->token, sizeof h->token, "%s", json_string_value(answer(h, "token")));
    ask(h, "DELETE", target, NULL); /* itself */
    assert_true(h->status == 200 && json_is_true(answer(h, "revoked")));
    ask(h, "GET", "/v1/files", NULL);
    expect(h, 401, "error.message", "the token was revoked");
    http_world_token(h);
    ask(h, "GET", "/v1/files", NULL);
    assert_int_equal(h->status, 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {HTTP_TEST(test_wishes), HTTP_TEST(test_revoking)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
