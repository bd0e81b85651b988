/* webhook_url: what is a webhook's address, where it may go, and which addresses that means. */
#include "common/mem.h"
#include "daemon/settings.h"
#include "daemon/webhook_url.h"
#include "tests/lib/cmocka.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

static void test_parse(void **state)
{
    static const struct {
        const char *text, *host; /* host NULL: refused */
        int port;
    } cases[] = {
        {.text = "https://Hooks.Example.com/a?b=c", .host = "hooks.example.com", .port = 443},
        {.text = "http://a", .host = "a", .port = 80},
        {.text = "HTTP://a:8080?x", .host = "a", .port = 8080},
        {.text = "https://[::1]:9/x", .host = "::1", .port = 9},
        {.text = "https://[fe80::1]", .host = "fe80::1", .port = 443},
        {.text = "ftp://a"},
        {.text = "file:///etc/passwd"},
        {.text = "http:/a"},
        {.text = "http://"},
        {.text = "http:///a"},
        {.text = "http://:80/"},
        {.text = "http://a:"},
        {.text = "http://a:0"},
        {.text = "http://a:65536"},
        {.text = "http://a:8x"},
        {.text = "http://a:123456"},
        {.text = "http://user@a/"},
        {.text = "http://good.example.com@127.0.0.1/"},
        {.text = "http://good.example.com\\@127.0.0.1/"},
        {.text = "http://a%2fb/"},
        {.text = "http://a/#x"},
        {.text = "http://[::1/"},
        {.text = "http://[]/"},
        {.text = "http://[::1]x/"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct webhook_url url;
        struct err err;
        int rc = webhook_url_parse(cases[i].text, &url, &err);
        if ((rc == 0) != (cases[i].host != NULL))
            fail_msg("%s: %d", cases[i].text, rc);
        if (rc != 0) {
            assert_int_equal(rc, -ERR_INVALID_VALUE);
            assert_string_equal(err.field, "ithaca.webhook");
            continue;
        }
        assert_string_equal(url.host, cases[i].host);
        assert_int_equal(url.port, cases[i].port);
    }
    char longest[400] = "http://";
    struct webhook_url url;
    struct err err;
    memset(longest + 7, 'a', 300);
    assert_int_equal(webhook_url_parse(longest, &url, &err), -ERR_INVALID_VALUE);
}

static void test_reach(void **state)
{
    static const struct {
        const char *hosts, *text; /* one entry */
        enum webhook_reach reach;
    } cases[] = {
        {.hosts = "*", .text = "http://a.com", .reach = WEBHOOK_REACH_PUBLIC},
        {.hosts = "*", .text = "http://127.0.0.1", .reach = WEBHOOK_REACH_PUBLIC},
        {.hosts = "A.com", .text = "http://a.com:99", .reach = WEBHOOK_REACH_PRIVATE},
        {.hosts = "a.com:99", .text = "http://a.com:99", .reach = WEBHOOK_REACH_PRIVATE},
        {.hosts = "a.com:99", .text = "http://a.com", .reach = WEBHOOK_REACH_NONE},
        {.hosts = "a.com", .text = "http://b.a.com", .reach = WEBHOOK_REACH_NONE},
        {.hosts = "a.com", .text = "http://a.com.", .reach = WEBHOOK_REACH_NONE},
        {.hosts = "*.a.com", .text = "http://c.b.a.com", .reach = WEBHOOK_REACH_PRIVATE},
        {.hosts = "*.a.com", .text = "http://a.com", .reach = WEBHOOK_REACH_NONE},
        {.hosts = "*.a.com", .text = "http://xa.com", .reach = WEBHOOK_REACH_NONE},
        {.hosts = "*.a.com", .text = "http://.a.com", .reach = WEBHOOK_REACH_NONE},
        {.hosts = "127.0.0.1", .text = "http://127.0.0.1:5", .reach = WEBHOOK_REACH_ALL},
        {.hosts = "127.0.0.1:5", .text = "http://127.0.0.1:6", .reach = WEBHOOK_REACH_NONE},
        {.hosts = "[::1]:5", .text = "http://[::1]:5", .reach = WEBHOOK_REACH_ALL},
        {.hosts = "::1", .text = "http://[::1]:5", .reach = WEBHOOK_REACH_ALL},
        {.hosts = "localhost", .text = "http://LOCALHOST", .reach = WEBHOOK_REACH_ALL},
        {.hosts = "127.0.0.1", .text = "http://2130706433", .reach = WEBHOOK_REACH_NONE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct webhook_url url;
        struct err err;
        CLEANUP(mem_free_ptr) char *entry = mem_strdup(cases[i].hosts);
        struct settings_pair pair = {.value = entry};
        const struct settings_list hosts = {.items = &pair, .count = 1};
        assert_int_equal(webhook_url_parse(cases[i].text, &url, &err), 0);
        if (webhook_url_reach(&url, &hosts) != cases[i].reach)
            fail_msg("%s for %s: %d", cases[i].hosts, cases[i].text,
                     (int)webhook_url_reach(&url, &hosts));
    }
    const struct settings_list none = {.count = 0};
    enum webhook_reach reach;
    struct err err;
    assert_int_equal(webhook_url_check("https://a.com", &none, &reach, &err), -ERR_INVALID_VALUE);
    assert_non_null(strstr(err.text, "webhook_hosts, which is empty"));
}

static void test_addresses(void **state)
{
    static const struct {
        const char *text;
        enum webhook_reach needed;
    } cases[] = {
        {.text = "8.8.8.8", .needed = WEBHOOK_REACH_PUBLIC},
        {.text = "172.15.255.255", .needed = WEBHOOK_REACH_PUBLIC},
        {.text = "172.16.0.1", .needed = WEBHOOK_REACH_PRIVATE},
        {.text = "172.31.255.255", .needed = WEBHOOK_REACH_PRIVATE},
        {.text = "172.32.0.0", .needed = WEBHOOK_REACH_PUBLIC},
        {.text = "10.1.2.3", .needed = WEBHOOK_REACH_PRIVATE},
        {.text = "192.168.0.1", .needed = WEBHOOK_REACH_PRIVATE},
        {.text = "100.64.0.1", .needed = WEBHOOK_REACH_PRIVATE},
        {.text = "0.0.0.0", .needed = WEBHOOK_REACH_ALL},
        {.text = "127.8.0.1", .needed = WEBHOOK_REACH_ALL},
        {.text = "169.254.169.254", .needed = WEBHOOK_REACH_ALL},
        {.text = "224.0.0.1", .needed = WEBHOOK_REACH_ALL},
        {.text = "255.255.255.255", .needed = WEBHOOK_REACH_ALL},
        {.text = "2606:4700::1", .needed = WEBHOOK_REACH_PUBLIC},
        {.text = "fd00::1", .needed = WEBHOOK_REACH_PRIVATE},
        {.text = "::1", .needed = WEBHOOK_REACH_ALL},
        {.text = "::", .needed = WEBHOOK_REACH_ALL},
        {.text = "fe80::1", .needed = WEBHOOK_REACH_ALL},
        {.text = "ff02::1", .needed = WEBHOOK_REACH_ALL},
        {.text = "::ffff:127.0.0.1", .needed = WEBHOOK_REACH_ALL},
        {.text = "::ffff:8.8.8.8", .needed = WEBHOOK_REACH_PUBLIC},
        {.text = "::127.0.0.1", .needed = WEBHOOK_REACH_ALL},
        {.text = "64:ff9b::a9fe:a9fe", .needed = WEBHOOK_REACH_ALL},
        {.text = "2002:7f00:1::", .needed = WEBHOOK_REACH_ALL},
        {.text = "2001:0:1::", .needed = WEBHOOK_REACH_ALL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sockaddr_storage address = {.ss_family = AF_INET6};
        struct sockaddr_in *v4 = (struct sockaddr_in *)(void *)&address;
        struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)(void *)&address;
        if (inet_pton(AF_INET6, cases[i].text, &v6->sin6_addr) != 1) {
            address.ss_family = AF_INET;
            assert_int_equal(inet_pton(AF_INET, cases[i].text, &v4->sin_addr), 1);
        }
        for (int reach = 0; reach <= WEBHOOK_REACH_ALL; reach++)
            if (webhook_url_reaches((enum webhook_reach)reach, (struct sockaddr *)&address) !=
                (reach >= (int)cases[i].needed))
                fail_msg("%s at reach %d", cases[i].text, reach);
    }
    const struct sockaddr unix_socket = {.sa_family = AF_UNIX};
    assert_false(webhook_url_reaches(WEBHOOK_REACH_ALL, &unix_socket));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse),
        cmocka_unit_test(test_reach),
        cmocka_unit_test(test_addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
