/* access: whatever lies below what has an owner, by every route there is, is not there for another
 * user, in the words for what is missing; a route takes no token below its scope. */
#include "daemon/access.h"

#include "daemon/store_experiments.h"

#include "tests/lib/http_world.h"

/* Things of ann's, and how many routes lie below each. */
static struct owned {
    const char *prefix; /* of their routes, up to the id */
    char id[LIMIT_ID_BYTES + 1];
    int routes_min;
} things[] = {{.prefix = "/v1/fine_tuning/jobs/", .routes_min = 15},
              {.prefix = "/v1/files/", .id = "file-of-ann", .routes_min = 3},
              {.prefix = "/v1/uploads/", .id = "upload_of_ann", .routes_min = 3},
              {.prefix = "/v1/experiments/", .id = "ftexp-of-ann", .routes_min = 4}};
enum { THINGS = sizeof things / sizeof things[0] };

static void make_things(struct http_world *h)
{
    const struct store_file file = {.id = "file-of-ann",
                                    .filename = "a",
                                    .purpose = "fine-tune",
                                    .bytes = 1,
                                    .status = "processed",
                                    .status_details = "",
                                    .hash = "",
                                    .owner = "ann"};
    const struct store_upload upload = {.id = "upload_of_ann",
                                        .filename = "a",
                                        .purpose = "fine-tune",
                                        .bytes = 1,
                                        .status = "pending",
                                        .file_id = "",
                                        .owner = "ann"};
    const struct store_experiment experiment = {
        .id = "ftexp-of-ann", .owner = "ann", .name = "", .spec_json = "{}"};
    OK(h->w, store_file_insert(h->w->store, &file, &h->w->err));
    OK(h->w, store_upload_insert(h->w->store, &upload, &h->w->err));
    OK(h->w, store_experiment_insert(h->w->store, &experiment, NULL, 0, &h->w->err));
    (void)snprintf(things[0].id, sizeof things[0].id, "%s", world_submit_as(h->w, "ann", 1, "").id);
}

/* Asks by a route for a thing, and keeps status and message. */
static void ask_for(struct http_world *h, enum route_id route, const struct owned *thing,
                    const char *id, char *ret_message, size_t bytes)
{
    char target[256];
    const char *rest = strchr(route_path(route), '}') + 1;
    (void)snprintf(target, sizeof target, "%s%s%s", thing->prefix, id, rest);
    ask(h, route_method(route), target, strcmp(route_method(route), "POST") == 0 ? "{}" : NULL);
    const char *message = json_string_value(answer(h, "error.message"));
    (void)snprintf(ret_message, bytes, "%s", message != NULL ? message : "");
}

static void test_what_is_anothers_is_not_there(void **state)
{
    struct http_world *h = *state;
    int routes[THINGS] = {0};
    make_things(h);
    http_world_user(h, "bob");
    for (int route = 0; route < ROUTE_COUNT; route++)
        for (int i = 0; i < THINGS; i++) {
            const char *path = route_path((enum route_id)route);
            char hidden[256], missing[256];
            if (strncmp(path, things[i].prefix, strlen(things[i].prefix)) != 0 ||
                strchr(path, '{') == NULL || route_scope((enum route_id)route) == AUTH_SCOPE_ADMIN)
                continue;
            ask_for(h, (enum route_id)route, &things[i], things[i].id, hidden, sizeof hidden);
            if (h->status != 404 || strstr(hidden, things[i].id) == NULL)
                fail_msg("%s: %d %s", path, h->status, h->body);
            char id[LIMIT_ID_BYTES + 1]; /* as long, with another end */
            (void)snprintf(id, sizeof id, "%s", things[i].id);
            id[strlen(id) - 1] = id[strlen(id) - 1] == 'x' ? 'y' : 'x';
            ask_for(h, (enum route_id)route, &things[i], id, missing, sizeof missing);
            strstr(hidden, things[i].id)[strlen(id) - 1] = id[strlen(id) - 1];
            assert_int_equal(h->status, 404);
            assert_string_equal(hidden, missing);
            routes[i]++;
        }
    for (int i = 0; i < THINGS; i++)
        assert_true(routes[i] >= things[i].routes_min);
}

static void test_what_is_ones_own_is_there(void **state)
{
    struct http_world *h = *state;
    char target[256];
    make_things(h);
    for (int admin = 0; admin < 2; admin++) {
        if (admin)
            http_world_token(h);
        else
            http_world_user(h, "ann");
        for (int i = 0; i < THINGS; i++) {
            (void)snprintf(target, sizeof target, "%s%s", things[i].prefix, things[i].id);
            if (strcmp(things[i].prefix, "/v1/uploads/") == 0) /* no route shows one */
                continue;
            ask(h, "GET", target, NULL);
            expect(h, 200, "id", things[i].id);
        }
    }
    assert_int_equal(access_check_file(h->w->store, "bob", "file-of-ann", &h->w->err),
                     -ERR_NOT_FOUND);
    OK(h->w, access_check_file(h->w->store, "ann", "file-of-ann", &h->w->err));
    OK(h->w, access_check_file(h->w->store, "", "file-of-ann", &h->w->err));
    assert_int_equal(access_check_file(h->w->store, "ann", "file-none", &h->w->err),
                     -ERR_NOT_FOUND);
}

static void test_scopes(void **state)
{
    struct http_world *h = *state;
    static const enum auth_scope scopes[] = {AUTH_SCOPE_READ, AUTH_SCOPE_SUBMIT};
    for (size_t i = 0; i < sizeof scopes / sizeof scopes[0]; i++) {
        char body[64];
        http_world_token(h);
        (void)snprintf(body, sizeof body, "{\"user\":\"ann\",\"scope\":\"%s\"}",
                       auth_scope_name(scopes[i]));
        ask(h, "POST", "/v1/tokens", body);
        (void)snprintf(h->token, sizeof h->token, "%s", json_string_value(answer(h, "token")));
        for (int route = 0; route < ROUTE_COUNT; route++) {
            const char *path = route_path((enum route_id)route);
            if (route_scope((enum route_id)route) <= scopes[i] || strchr(path, '{') != NULL)
                continue;
            ask(h, route_method((enum route_id)route), path, NULL);
            if (h->status != 403 || strstr(h->body, "forbidden") == NULL)
                fail_msg("%s: %d %s", path, h->status, h->body);
        }
    }
    (void)snprintf(h->token, sizeof h->token, "nobody's");
    for (int route = 0; route < ROUTE_COUNT; route++) {
        const char *path = route_path((enum route_id)route);
        if (route_scope((enum route_id)route) == AUTH_SCOPE_NONE || strchr(path, '{') != NULL)
            continue;
        ask(h, route_method((enum route_id)route), path, NULL);
        expect(h, 401, "error.code", "invalid_api_key");
    }
}

/* Asks as a browser would, with a session's cookie and other headers, and without a token. */
static void browse(struct http_world *h, const char *method, const char *cookie,
                   const char *headers)
{
    struct http_client client;
    char request[512];
    int length = snprintf(request, sizeof request,
                          "%s /v1/session HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                          "Content-Length: 0\r\nCookie: %s\r\n%s\r\n",
                          method, cookie, headers);
    client_open(h, &client);
    client_send(h, &client, request, (size_t)length);
    ask_end(h, &client);
}

/* A session stands for its token, where no token is sent and no other site asks. */
static void test_sessions(void **state)
{
    static const struct {
        const char *method, *headers;
        int status;
    } rows[] = {
        {"GET", "", 200},
        {"GET", "Sec-Fetch-Site: cross-site\r\n", 403},
        {"GET", "Authorization: Bearer ithaca-nobodys\r\n", 401},
        {"DELETE", "Sec-Fetch-Site: cross-site\r\n", 403},
        {"DELETE", "Origin: http://elsewhere\r\n", 403},
        {"GET", "", 200}, /* it is there still */
        {"DELETE", "Sec-Fetch-Site: same-origin\r\n", 200},
        {"GET", "", 401},
    };
    struct http_world *h = *state;
    char cookie[256];
    http_world_user(h, "ann");
    ask(h, "POST", "/v1/session", NULL);
    assert_int_equal(h->status, 200);
    const char *set = strstr(h->head, "Set-Cookie: ");
    assert_non_null(set);
    set += strlen("Set-Cookie: ");
    (void)snprintf(cookie, sizeof cookie, "%.*s", (int)strcspn(set, ";"), set);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        browse(h, rows[i].method, cookie, rows[i].headers);
        if (h->status != rows[i].status)
            fail_msg("row %zu: %d %s", i, h->status, h->body);
        if (h->status == 200 && strcmp(rows[i].method, "GET") == 0)
            expect(h, 200, "user", "ann");
    }
    browse(h, "GET", "other=1", "");
    assert_int_equal(h->status, 401);
}

int main(void)
{
    const struct CMUnitTest tests[] = {HTTP_TEST(test_what_is_anothers_is_not_there),
                                       HTTP_TEST(test_what_is_ones_own_is_there),
                                       HTTP_TEST(test_scopes), HTTP_TEST(test_sessions)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
