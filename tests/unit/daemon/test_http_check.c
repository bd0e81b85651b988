/* http_check: each rule refuses alone, and an ordinary request passes. */
#include "daemon/http_check.h"

#include "daemon/settings.h"
#include "tests/lib/cmocka.h"

static char more_host[] = "node7.example";
static struct settings_pair more_pairs[] = {{.key = NULL, .value = more_host}};
static const struct settings_list more = {.items = more_pairs, .count = 1};

static struct http_facts good(void)
{
    return (struct http_facts){.hosts = 1, .host = "localhost:8620", .target = "/v1/files"};
}

static int check(const struct http_facts *facts, int64_t *ret_length)
{
    struct err err;
    return http_check(facts, "10.1.2.3", &more, ret_length, &err);
}

static void test_ordinary_requests_pass(void **state)
{
    int64_t length = 0;
    struct http_facts facts = good();
    assert_int_equal(check(&facts, &length), 0);
    assert_int_equal(length, -1);
    facts.content_lengths = 1;
    facts.content_length = "123456789012345678";
    assert_int_equal(check(&facts, &length), 0);
    assert_int_equal(length, 123456789012345678);
    facts = good();
    facts.transfer_encodings = 1;
    facts.transfer_encoding = "Chunked";
    assert_int_equal(check(&facts, &length), 0);
    assert_int_equal(length, -1);
    facts = good();
    facts.http_1_0 = true;
    facts.hosts = 0;
    facts.host = NULL;
    assert_int_equal(check(&facts, &length), 0);
}

static void test_compressed_bodies(void **state)
{
    int64_t length;
    struct http_facts facts = good();
    facts.content_encoding = "Identity";
    assert_int_equal(check(&facts, &length), 0);
    static const char *const codings[] = {"gzip", "deflate", "br", "zstd", "identity, gzip", ""};
    for (size_t i = 0; i < sizeof codings / sizeof codings[0]; i++) {
        struct err err;
        facts.content_encoding = codings[i];
        assert_int_equal(http_check(&facts, "::1", &more, &length, &err), -ERR_UNSUPPORTED);
        assert_string_equal(err.field, "Content-Encoding");
    }
}

static void test_framing(void **state)
{
    int64_t length;
    struct http_facts facts = good();
    facts.content_lengths = 2;
    facts.content_length = "3";
    assert_int_equal(check(&facts, &length), -ERR_BAD_REQUEST);
    facts = good();
    facts.hosts = 2;
    assert_int_equal(check(&facts, &length), -ERR_BAD_REQUEST);
    facts = good();
    facts.hosts = 0;
    facts.host = NULL;
    assert_int_equal(check(&facts, &length), -ERR_BAD_REQUEST);
    facts = good();
    facts.transfer_encodings = 2;
    facts.transfer_encoding = "chunked";
    assert_int_equal(check(&facts, &length), -ERR_BAD_REQUEST);
    facts = good();
    facts.authorizations = 2; /* of two users? */
    assert_int_equal(check(&facts, &length), -ERR_BAD_REQUEST);
    facts = good();
    facts.transfer_encoding = "chunked";
    facts.transfer_encodings = 1;
    facts.http_1_0 = true;
    assert_int_equal(check(&facts, &length), -ERR_BAD_REQUEST);
    facts.http_1_0 = false;
    facts.content_lengths = 1;
    facts.content_length = "3";
    assert_int_equal(check(&facts, &length), -ERR_BAD_REQUEST);
    static const char *const encodings[] = {
        "", "gzip", "gzip, chunked", "chunked, chunked", "identity", "chunked "};
    for (size_t i = 0; i < sizeof encodings / sizeof encodings[0]; i++) {
        facts = good();
        facts.transfer_encodings = 1;
        facts.transfer_encoding = encodings[i];
        assert_int_equal(check(&facts, &length), -ERR_BAD_REQUEST);
    }
    static const char *const lengths[] = {
        "", "-1", "+3", "3 ", "0x3", "3,3", "1234567890123456789"};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        facts = good();
        facts.content_lengths = 1;
        facts.content_length = lengths[i];
        assert_int_equal(check(&facts, &length), -ERR_BAD_REQUEST);
    }
    static const char *const targets[] = {"", "*", "http://localhost/", "localhost:80"};
    for (size_t i = 0; i < sizeof targets / sizeof targets[0]; i++) {
        facts = good();
        facts.target = targets[i];
        assert_int_equal(check(&facts, &length), -ERR_BAD_REQUEST);
    }
}

static void test_hosts(void **state)
{
    static const char *const served[] = {"localhost",  "LocalHost:1",   "127.0.0.1",
                                         "[::1]",      "[::1]:8620",    "10.1.2.3:8620",
                                         "localhost:", "node7.EXAMPLE", "node7.example:8620"};
    for (size_t i = 0; i < sizeof served / sizeof served[0]; i++)
        assert_true(http_check_host(served[i], "10.1.2.3", &more));
    static const char *const refused[] = {"",
                                          "evil.example",
                                          "localhost.evil.example",
                                          "localhos",
                                          "localhost:80a",
                                          "localhost:80:80",
                                          "[::1",
                                          "[::1]a",
                                          "[localhost",
                                          "user@localhost",
                                          "localhost ",
                                          "10.1.2.33",
                                          "node7.example.evil"};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        assert_false(http_check_host(refused[i], "10.1.2.3", &more));
    struct http_facts facts = good();
    facts.host = "evil.example";
    int64_t length;
    assert_int_equal(check(&facts, &length), -ERR_FORBIDDEN);
}

static void test_origins(void **state)
{
    static const struct {
        const char *fetch_site, *origin;
        bool may_read, may_change;
    } rows[] = {
        {NULL, NULL, true, false}, /* no browser of today, or no browser */
        {"same-origin", NULL, true, true},
        {"same-origin", "http://evil.example", true, true}, /* the browser's word counts */
        {"none", NULL, true, false},
        {"same-site", "http://localhost:8620", false, false},
        {"cross-site", NULL, false, false},
        {"", NULL, false, false},
        {NULL, "http://localhost:8620", true, true},
        {NULL, "https://LOCALHOST:8620", true, true},
        {NULL, "http://localhost", false, false},
        {NULL, "http://localhost:86200", false, false},
        {NULL, "http://evil.example", false, false},
        {NULL, "null", false, false},
        {NULL, "", false, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (int changes = 0; changes < 2; changes++) {
            struct err err;
            bool may = changes != 0 ? rows[i].may_change : rows[i].may_read;
            int rc = http_check_origin(changes != 0, rows[i].fetch_site, rows[i].origin,
                                       "localhost:8620", &err);
            if (rc != (may ? 0 : -ERR_FORBIDDEN))
                fail_msg("row %zu, changes %d: %d", i, changes, rc);
        }
    struct err err;
    assert_int_equal(http_check_origin(true, NULL, "http://a", NULL, &err), -ERR_FORBIDDEN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ordinary_requests_pass),
        cmocka_unit_test(test_compressed_bodies),
        cmocka_unit_test(test_framing),
        cmocka_unit_test(test_hosts),
        cmocka_unit_test(test_origins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
