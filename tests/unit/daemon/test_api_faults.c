/* Every handler of the API while memory runs out: each allocation of a request fails in turn. The
 * answer is the right one or says that it cannot be made, or the connection ends; the next request
 * is answered, and nothing is left of the failed one. */
#include "tests/lib/http_world.h"

enum { FAULTS_MAX = 400 };

/* The answer's status when the n-th allocation from here fails; 0: no answer. */
static int ask_failing(struct http_world *h, int64_t n, const struct buf *request)
{
    struct http_client client;
    client_open(h, &client);
    while (client.in.length < (256 << 10)) /* the client's own room: what fails is the server's */
        buf_text(&client.in, "                                                                ");
    buf_clear(&client.in);
    assert_int_equal(send(client.fd, request->data, request->length, MSG_NOSIGNAL),
                     request->length);
    mem_fault_after(n);
    client_await(h, &client, NULL);
    mem_fault_after(0);
    int status = 0;
    if (client.in.length > 0) {
        client_take(h, &client);
        status = h->status;
    }
    client_close(&client);
    return status;
}

/* An answer of success is the same kind of object whatever failed on the way. */
static void check_object(struct http_world *h, char object[64])
{
    const char *text = json_string_value(answer(h, "object"));
    if (object[0] == '\0')
        (void)snprintf(object, 64, "%s", text != NULL ? text : "none");
    assert_string_equal(text != NULL ? text : "none", object);
}

/* Fails one allocation after the other until three requests in a row are answered as they should
 * be; body NULL: none. */
static void walk(struct http_world *h, const char *method, const char *target, const char *type,
                 const char *body, int expected)
{
    CLEANUP(buf_done) struct buf request;
    buf_init(&request, 1 << 20);
    buf_printf(&request,
               "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
               "Authorization: Bearer %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n\r\n%s",
               method, target, h->token, type, strlen(body), body);
    int good = 0, failed = 0;
    char object[64] = "";
    int64_t n = 1;
    for (; good < 3 && n <= FAULTS_MAX; n++) {
        int status = ask_failing(h, n, &request);
        good = status == expected ? good + 1 : 0;
        if (status == expected && h->json != NULL)
            check_object(h, object);
        if (status == expected || status == 0)
            continue;
        failed++;
        if (status != 500)
            fail_msg("%s %s, allocation %lld: %d %s", method, target, (long long)n, status,
                     h->body);
        const char *code = json_string_value(answer(h, "error.code"));
        if (code == NULL || (strcmp(code, "out_of_memory") != 0 && strcmp(code, "internal") != 0))
            fail_msg("%s %s, allocation %lld: %s", method, target, (long long)n, h->body);
    }
    if (good < 3 || failed == 0)
        fail_msg("%s %s: %d failed, then %d were good", method, target, failed, good);
}

#define JSON "application/json"

static void test_files(void **state)
{
    struct http_world *h = *state;
    static const char form[] =
        "--xyz\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nfine-tune\r\n"
        "--xyz\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n{}\r\n"
        "--xyz--\r\n";
    http_world_file(h, "file-a", "the bytes");
    walk(h, "GET", "/v1/files", JSON, "", 200);
    walk(h, "GET", "/v1/files/file-a/content", JSON, "", 200);
    walk(h, "POST", "/v1/files", "multipart/form-data; boundary=xyz", form, 200);
    const struct store_upload upload = {.id = "upload_a",
                                        .created_ms = 5000,
                                        .expires_ms = 9000000,
                                        .filename = "a",
                                        .purpose = "fine-tune",
                                        .bytes = 4,
                                        .status = "pending",
                                        .owner = "admin"};
    CLEANUP(mem_free_ptr) char *parts = mem_printf("%s/uploads/upload_a", h->w->dir);
    OK(h->w, store_upload_insert(h->w->store, &upload, &h->w->err));
    http_world_put(h, parts, "part_a", "{}");
    http_world_put(h, parts, "part_b", "{}");
    walk(h, "POST", "/v1/uploads/upload_a/complete", JSON, "{\"part_ids\":[\"part_a\",\"part_b\"]}",
         200);
    walk(h, "GET", "/v1/models", JSON, "", 200);
    walk(h, "GET", "/v1/models/tiny-llama", JSON, "", 200);
}

static void test_tokens(void **state)
{
    struct http_world *h = *state;
    walk(h, "POST", "/v1/tokens", JSON, "{\"user\":\"ann\",\"expires_in_s\":60}", 200);
    walk(h, "GET", "/v1/tokens", JSON, "", 200);
    walk(h, "POST", "/v1/session", JSON, "", 200);
}

static void test_jobs(void **state)
{
    struct http_world *h = *state;
    http_world_file(h, "file-a", "{}");
    static const char job[] = "{\"model\":\"tiny-llama\",\"training_file\":\"file-a\","
                              "\"metadata\":{\"a\":\"b\"},\"ithaca\":{\"seq_len\":64}}";
    walk(h, "POST", JOBS, JSON, job, 200);
    walk(h, "POST", JOBS, JSON "\r\nIdempotency-Key: one", job, 200); /* replayed at the end */
    walk(h, "POST", "/v1/experiments/estimate", JSON,
         "{\"base\":{\"model\":\"tiny-llama\"},\"grid\":{\"seq_len\":[64]}}", 200);
    walk(h, "POST", "/v1/fine_tuning/estimate", JSON "\r\nIdempotency-Key: two",
         "{\"model\":\"tiny-llama\"}", 200);
    walk(h, "GET", JOBS "?metadata[a]=b&limit=3", JSON, "", 200);
    walk(h, "POST", "/v1/fine_tuning/estimate", JSON, "{\"model\":\"tiny-llama\"}", 200);
}

static void test_a_finished_job(void **state)
{
    struct http_world *h = *state;
    struct world_job job = http_world_succeeded(h);
    static const char *const tails[] = {"",
                                        "/events",
                                        "/metrics",
                                        "/metrics?max_points=100",
                                        "/memory",
                                        "/logs",
                                        "/checkpoints",
                                        "/model/files",
                                        "/model/content?file="
                                        "config.json",
                                        "/stream"};
    for (size_t i = 0; i < sizeof tails / sizeof tails[0]; i++) {
        walk(h, "GET", http_target(JOBS "/%s%s", job.id, tails[i]).text, JSON, "", 200);
    }
    walk(h, "POST", http_target(JOBS "/%s/resume", job.id).text, JSON, "{\"checkpoint\":null}",
         400);
}

static void test_queue(void **state)
{
    struct http_world *h = *state;
    struct world_job job = world_submit(h->w, 1, ",\"hold\":true");
    walk(h, "GET", "/v1/queue", JSON, "", 200);
    walk(h, "PATCH", http_target(JOBS "/%s", job.id).text, JSON,
         "{\"ithaca\":{\"priority\":1,\"tags\":[\"x\"]}}", 200);
    walk(h, "POST", "/v1/admin/drain", JSON, "", 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {HTTP_TEST(test_files), HTTP_TEST(test_tokens),
                                       HTTP_TEST(test_jobs), HTTP_TEST(test_a_finished_job),
                                       HTTP_TEST(test_queue)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
