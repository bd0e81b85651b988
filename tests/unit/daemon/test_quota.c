/* quota: what one user may take, each limit by itself: refused at it, free again after; a viewer
 * without limits has none; more users than there are places. */
#include "daemon/quota.h"

#include "tests/lib/http_world.h"

/* Small limits instead of the world's. */
static void limit(struct http_world *h)
{
    h->settings.user_bytes_max = 100;
    h->settings.user_files_max = 3;
    h->settings.user_uploads_max = 2;
    h->settings.user_streams_max = 2;
    h->settings.user_requests_per_s = 5;
}

static void put_file(struct http_world *h, const char *id, int64_t bytes)
{
    const struct store_file file = {.id = id,
                                    .created_ms = 1,
                                    .filename = "a",
                                    .purpose = "fine-tune",
                                    .bytes = bytes,
                                    .status = "processed",
                                    .status_details = "",
                                    .hash = "",
                                    .owner = "ann"};
    OK(h->w, store_file_insert(h->w->store, &file, &h->w->err));
}

static void test_requests(void **state)
{
    struct http_world *h = *state;
    struct quota *quota = h->api.quota;
    struct err *err = &h->w->err;
    limit(h);
    for (int i = 0; i < 10; i++) /* the bucket: two seconds' worth */
        OK(h->w, quota_request(quota, "ann", err));
    assert_int_equal(quota_request(quota, "ann", err), -ERR_TOO_MANY);
    assert_non_null(strstr(err->text, "user_requests_per_s"));
    OK(h->w, quota_request(quota, "bob", err));
    h->w->fake.now_ms += 199; /* five a second: one in 200 ms */
    assert_int_equal(quota_request(quota, "ann", err), -ERR_TOO_MANY);
    h->w->fake.now_ms += 1;
    OK(h->w, quota_request(quota, "ann", err));
    assert_int_equal(quota_request(quota, "ann", err), -ERR_TOO_MANY);
    h->w->fake.now_ms += 3600000; /* no more than a full bucket */
    for (int i = 0; i < 10; i++)
        OK(h->w, quota_request(quota, "ann", err));
    assert_int_equal(quota_request(quota, "ann", err), -ERR_TOO_MANY);
    for (int i = 0; i < 100; i++)
        OK(h->w, quota_request(quota, "", err));
    h->settings.user_requests_per_s = 0;
    for (int i = 0; i < 100; i++)
        OK(h->w, quota_request(quota, "ann", err));
}

static void test_streams_and_uploads(void **state)
{
    struct http_world *h = *state;
    struct quota *quota = h->api.quota;
    struct err *err = &h->w->err;
    limit(h);
    for (int i = 0; i < 2; i++) {
        OK(h->w, quota_open_stream(quota, "ann", err));
        OK(h->w, quota_open_upload(quota, "ann", 1, err));
        OK(h->w, quota_open_stream(quota, "", err));
    }
    OK(h->w, quota_open_stream(quota, "", err));
    assert_int_equal(quota_open_stream(quota, "ann", err), -ERR_TOO_MANY);
    assert_non_null(strstr(err->text, "user_streams_max"));
    assert_int_equal(quota_open_upload(quota, "ann", 1, err), -ERR_TOO_MANY);
    assert_non_null(strstr(err->text, "user_uploads_max"));
    assert_string_equal(err->field, "file");
    OK(h->w, quota_open_stream(quota, "bob", err));
    quota_close_stream(quota, "bob");
    quota_close_stream(quota, "ann");
    quota_close_upload(quota, "ann", 0);
    OK(h->w, quota_open_stream(quota, "ann", err));
    OK(h->w, quota_open_upload(quota, "ann", 1, err));
}

static void test_files(void **state)
{
    struct http_world *h = *state;
    struct quota *quota = h->api.quota;
    struct err *err = &h->w->err;
    limit(h);
    put_file(h, "file-1", 40);
    OK(h->w, quota_open_upload(quota, "ann", 60, err)); /* to the byte */
    assert_int_equal(quota_open_upload(quota, "ann", 61, err), -ERR_QUOTA);
    assert_non_null(strstr(err->text, "40 bytes"));
    assert_non_null(strstr(err->text, "user_bytes_max"));
    OK(h->w, quota_open_upload(quota, "ann", -1, err));
    OK(h->w, quota_grow_upload(quota, "ann", 35, err));
    OK(h->w, quota_grow_upload(quota, "ann", 25, err)); /* both uploads count */
    assert_int_equal(quota_grow_upload(quota, "ann", 1, err), -ERR_QUOTA);
    quota_close_upload(quota, "ann", 25);
    OK(h->w, quota_grow_upload(quota, "ann", 25, err));
    quota_close_upload(quota, "ann", 60);
    OK(h->w, quota_check_file(quota, "ann", "file", 60, err));
    assert_int_equal(quota_check_file(quota, "ann", "file", 61, err), -ERR_QUOTA);
    OK(h->w, quota_check_file(quota, "bob", "file", 100, err));
    OK(h->w, quota_check_file(quota, "", "file", 1000, err));
    h->settings.user_bytes_max = 40; /* of a length that is not known there is a byte at least */
    assert_int_equal(quota_open_upload(quota, "ann", -1, err), -ERR_QUOTA);
    h->settings.user_bytes_max = 100;
    put_file(h, "file-2", 1);
    put_file(h, "file-3", 1);
    assert_int_equal(quota_check_file(quota, "ann", "file", 1, err), -ERR_QUOTA);
    assert_non_null(strstr(err->text, "user_files_max"));
    OK(h->w, store_file_delete(h->w->store, "file-3", err));
    OK(h->w, quota_check_file(quota, "ann", "file", 1, err));
    h->settings.user_bytes_max = 0;
    OK(h->w, quota_check_file(quota, "ann", "file", INT64_MAX, err));
}

/* A limit of 0 is none, and who sees all has none at all. */
static void test_without_limits(void **state)
{
    struct http_world *h = *state;
    struct quota *quota = h->api.quota;
    struct err *err = &h->w->err;
    limit(h);
    for (int user = 0; user < 2; user++) {
        const char *viewer = user ? "ann" : "";
        for (int i = 0; i < 10; i++) {
            OK(h->w, quota_open_stream(quota, viewer, err));
            OK(h->w, quota_open_upload(quota, viewer, 1000, err));
            OK(h->w, quota_grow_upload(quota, viewer, 1000, err));
        }
        for (int i = 0; i < 10; i++) {
            quota_close_stream(quota, viewer);
            quota_close_upload(quota, viewer, 1000);
        }
        h->settings.user_bytes_max = h->settings.user_files_max = 0;
        h->settings.user_uploads_max = h->settings.user_streams_max = 0;
    }
    h->settings.user_streams_max = 1;
    OK(h->w, quota_open_stream(quota, "ann", err));
    assert_int_equal(quota_open_stream(quota, "ann", err), -ERR_TOO_MANY);
}

/* What is announced counts at once. */
static void test_announced(void **state)
{
    struct http_world *h = *state;
    struct err *err = &h->w->err;
    limit(h);
    struct store_upload upload = {.id = "upload_1",
                                  .filename = "a",
                                  .purpose = "fine-tune",
                                  .bytes = 90,
                                  .status = "pending",
                                  .file_id = "",
                                  .owner = "ann"};
    OK(h->w, store_upload_insert(h->w->store, &upload, err));
    OK(h->w, quota_check_file(h->api.quota, "ann", "bytes", 10, err));
    assert_int_equal(quota_check_file(h->api.quota, "ann", "bytes", 11, err), -ERR_QUOTA);
    assert_string_equal(err->field, "bytes");
    OK(h->w, store_upload_end(h->w->store, "upload_1", "cancelled", err));
    OK(h->w, quota_check_file(h->api.quota, "ann", "bytes", 100, err));
}

/* A place is given to another when its user has nothing open and has not asked lately. */
static void test_more_users_than_places(void **state)
{
    struct http_world *h = *state;
    struct quota *quota = h->api.quota;
    struct err *err = &h->w->err;
    char name[32];
    limit(h);
    OK(h->w, quota_open_stream(quota, "ann", err));
    for (int i = 1; i < 1024; i++) {
        (void)snprintf(name, sizeof name, "user-%d", i);
        OK(h->w, quota_request(quota, name, err));
    }
    assert_int_equal(quota_request(quota, "one-more", err), -ERR_TOO_MANY);
    assert_int_equal(quota_open_stream(quota, "one-more", err), -ERR_TOO_MANY);
    assert_int_equal(quota_open_upload(quota, "one-more", 1, err), -ERR_TOO_MANY);
    h->w->fake.now_ms += 1000;
    for (int i = 0; i < 3000; i++) {
        (void)snprintf(name, sizeof name, "later-%d", i);
        OK(h->w, quota_request(quota, name, err));
        h->w->fake.now_ms += 1;
    }
    quota_close_stream(quota, "ann"); /* it was not forgotten */
}

/* By HTTP: a user's limits, which are not the admin's. */
static void test_by_http(void **state)
{
    struct http_world *h = *state;
    limit(h);
    http_world_user(h, "ann");
    put_file(h, "file-1", 99);
    static const char form[] =
        "--xyz\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nfine-tune\r\n"
        "--xyz\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n{}\r\n"
        "--xyz--\r\n";
    static const char type[] = "Content-Type: multipart/form-data; boundary=xyz\r\n";
    ask_with(h, "POST", "/v1/files", type, form, sizeof form - 1);
    expect(h, 403, "error.code", "quota_exceeded");
    expect(h, 403, "error.param", "file");
    OK(h->w, store_file_delete(h->w->store, "file-1", &h->w->err));
    ask_with(h, "POST", "/v1/files", type, form, sizeof form - 1);
    expect(h, 200, "object", "file");
    struct http_client streams[2];
    char request[256];
    (void)snprintf(request, sizeof request,
                   "GET /v1/stream HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n",
                   h->token);
    for (int i = 0; i < 2; i++) {
        client_open(h, &streams[i]);
        client_send(h, &streams[i], request, strlen(request));
        client_await(h, &streams[i], "retry:");
    }
    ask(h, "GET", "/v1/stream", NULL);
    expect(h, 429, "error.code", "too_many_requests");
    for (int i = 0; i < 2; i++)
        client_close(&streams[i]);
    for (int i = 0; i < 10; i++) /* the server hears that they are gone */
        OK(h->w, loop_turn(h->w->loop, 1, &h->w->err));
    h->w->fake.now_ms += 10000;
    for (int i = 0; i < 2; i++) {
        client_open(h, &streams[i]);
        client_send(h, &streams[i], request, strlen(request));
        client_await(h, &streams[i], "retry:");
        client_close(&streams[i]);
    }
    h->w->fake.now_ms += 10000;
    for (int i = 0; i < 10; i++)
        ask(h, "GET", "/v1/files", NULL);
    assert_int_equal(h->status, 200);
    ask(h, "GET", "/v1/files", NULL);
    expect(h, 429, "error.code", "too_many_requests");
    assert_non_null(strstr(h->head, "Retry-After: 1\r\n"));
    http_world_token(h);
    for (int i = 0; i < 30; i++)
        ask(h, "GET", "/v1/files", NULL);
    assert_int_equal(h->status, 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        HTTP_TEST(test_requests),       HTTP_TEST(test_streams_and_uploads),
        HTTP_TEST(test_files),          HTTP_TEST(test_more_users_than_places),
        HTTP_TEST(test_by_http),        HTTP_TEST(test_announced),
        HTTP_TEST(test_without_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
