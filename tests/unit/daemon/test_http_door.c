/* http_door: a certificate that cannot be used, at the start and when it is renewed: each
 * descriptor is closed once, for a second time may hit another thread's. tests/e2e/test_access.py
 * renews one under connections. */
#include "tests/lib/http_world.h"

#include <sys/syscall.h>

static int closed_twice; /* so many closes were of nothing */

/* The library's, too. */
int close(int fd)
{
    long rc = syscall(SYS_close, fd);
    closed_twice += rc != 0 && errno == EBADF;
    return (int)rc;
}

static void put_pem(struct http_world *h, const char *name, char **ret_path)
{
    *ret_path = io_join(h->w->dir, name);
    OK(h->w, io_write_file(*ret_path, "no PEM\n", 7, 0600, &h->w->err));
}

static void test_certificate_that_is_none(void **state)
{
    struct http_world *h = *state;
    const struct settings kept = h->settings;
    struct settings settings = h->settings;
    struct http_app app;
    struct http *http = NULL;
    CLEANUP(mem_free_ptr) char *cert = NULL;
    CLEANUP(mem_free_ptr) char *key = NULL;
    put_pem(h, "cert.pem", &cert);
    put_pem(h, "key.pem", &key);
    settings.tls_cert = cert;
    settings.tls_key = key;
    api_app(&h->api, &app);
    closed_twice = 0;
    assert_int_equal(http_new(h->w->loop, &settings, &app, &http, &h->w->err), -ERR_IO);
    assert_non_null(strstr(h->w->err.text, "PEM"));
    assert_int_equal(closed_twice, 0);
    assert_int_equal(http_renew(h->http, &h->w->err), -ERR_BAD_STATE); /* it speaks plainly */
    h->settings.tls_cert = cert;
    h->settings.tls_key = key;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(http_renew(h->http, &h->w->err), -ERR_IO);
        assert_non_null(strstr(h->w->err.text, "PEM"));
        ask(h, "GET", "/healthz", NULL); /* nothing has changed */
        assert_int_equal(h->status, 200);
    }
    OK(h->w, io_write_file(key, "no PEM\n", 7, 0644, &h->w->err));
    assert_int_equal(http_renew(h->http, &h->w->err), -ERR_SETTING);
    assert_int_equal(unlink(cert), 0);
    assert_int_equal(http_renew(h->http, &h->w->err), -ERR_NOT_FOUND);
    ask(h, "GET", "/healthz", NULL);
    assert_int_equal(h->status, 200);
    assert_int_equal(closed_twice, 0);
    h->settings = kept;
}

int main(void)
{
    const struct CMUnitTest tests[] = {HTTP_TEST(test_certificate_that_is_none)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
