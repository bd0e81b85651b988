/* uploads: files in parts, from their announcement to the file, across lost answers, refusals by
 * their field, limits, time, and that nothing is left of what was ended. */
#include "daemon/uploads.h"

#include "daemon/files.h"
#include "daemon/folder_walk.h"
#include "daemon/trash.h"
#include "tests/lib/http_world.h"

#include <fcntl.h>

#define MULTIPART "Content-Type: multipart/form-data; boundary=xyz\r\n"

/* Files and folders below a folder. */
static int count_left(struct http_world *h, const char *folder)
{
    CLEANUP(mem_free_ptr) char *path = io_join(h->w->dir, folder);
    struct folder_walk *walk = NULL;
    struct folder_walk_entry entry;
    int count = -1; /* the folder itself */
    OK(h->w, folder_walk_new(path, &walk, &h->w->err));
    while (folder_walk_next(walk, &entry))
        count++;
    folder_walk_free(walk);
    return count;
}

/* Announces an upload; its id. */
static void announce(struct http_world *h, int bytes, const char *more, char ret_id[64])
{
    char body[300];
    (void)snprintf(body, sizeof body,
                   "{\"filename\":\"a/big.jsonl\",\"purpose\":\"fine-tune\",\"bytes\":%d,"
                   "\"mime_type\":\"application/jsonl\"%s}",
                   bytes, more);
    ask(h, "POST", "/v1/uploads", body);
    expect(h, 200, "object", "upload");
    expect(h, 200, "status", "pending");
    expect(h, 200, "filename", "big.jsonl");
    assert_true(json_is_null(answer(h, "file")));
    assert_int_equal(answer_int(h, "expires_at") - answer_int(h, "created_at"), UPLOADS_LIFETIME_S);
    (void)snprintf(ret_id, 64, "%s", json_string_value(answer(h, "id")));
    assert_memory_equal(ret_id, "upload_", 7);
}

/* Sends a field as a part; its id, when it was taken. */
static void send_part(struct http_world *h, const char *upload, const char *field,
                      const char *bytes, char ret_id[64])
{
    char body[400];
    int length = snprintf(body, sizeof body,
                          "--xyz\r\nContent-Disposition: form-data; name=\"%s\"; "
                          "filename=\"blob\"\r\n\r\n%s\r\n--xyz--\r\n",
                          field, bytes);
    ask_with(h, "POST", http_target("/v1/uploads/%s/parts", upload).text, MULTIPART, body,
             (size_t)length);
    if (h->status == 200)
        (void)snprintf(ret_id, 64, "%s", json_string_value(answer(h, "id")));
}

static void end_upload(struct http_world *h, const char *upload, const char *how, const char *body)
{
    ask(h, "POST", http_target("/v1/uploads/%s/%s", upload, how).text, body);
}

static void complete(struct http_world *h, const char *upload, const char *first,
                     const char *second)
{
    char body[200];
    (void)snprintf(body, sizeof body, "{\"part_ids\":[\"%s\",\"%s\"]}", first, second);
    end_upload(h, upload, "complete", body);
}

static void test_parts_become_a_file(void **state)
{
    struct http_world *h = *state;
    char upload[64], first[64], second[64], unused[64], file[64];
    announce(h, 10, ",\"expires_after\":{\"anchor\":\"created_at\",\"seconds\":7200}", upload);
    send_part(h, upload, "data", "world", second);
    expect(h, 200, "object", "upload.part");
    expect(h, 200, "upload_id", upload);
    send_part(h, upload, "data", "hello", unused); /* its answer was lost: it comes again */
    send_part(h, upload, "data", "hello", first);
    h->w->fake.now_ms += 1000;
    complete(h, upload, first, second);
    expect(h, 200, "status", "completed");
    expect(h, 200, "file.object", "file");
    expect(h, 200, "file.filename", "big.jsonl");
    expect(h, 200, "file.status", "processed");
    assert_int_equal(answer_int(h, "file.bytes"), 10);
    assert_int_equal(answer_int(h, "file.expires_at") - answer_int(h, "file.created_at"), 7200);
    (void)snprintf(file, sizeof file, "%s", json_string_value(answer(h, "file.id")));
    complete(h, upload, first, second); /* and this answer was lost */
    expect(h, 200, "file.id", file);
    ask(h, "GET", http_target("/v1/files/%s/content", file).text, NULL);
    assert_string_equal(h->body, "helloworld");
    assert_int_equal(count_left(h, "uploads"), 0);
    send_part(h, upload, "data", "more", unused);
    expect(h, 400, "error.code", "invalid_state");
    end_upload(h, upload, "cancel", "");
    expect(h, 400, "error.code", "invalid_state");
}

/* Parts in the wrong order have the right size; the checksum tells them, and no file is made. */
static void test_checksum(void **state)
{
    struct http_world *h = *state;
    char upload[64], first[64], second[64], body[300];
    const char *const md5 = "FC5E038D38A57032085441e7fe7010b0"; /* of helloworld */
    announce(h, 10, "", upload);
    send_part(h, upload, "data", "hello", first);
    send_part(h, upload, "data", "world", second);
    (void)snprintf(body, sizeof body, "{\"part_ids\":[\"%s\",\"%s\"],\"md5\":\"%s\"}", second,
                   first, md5);
    end_upload(h, upload, "complete", body);
    expect(h, 400, "error.param", "md5");
    assert_int_equal(count_left(h, "files"), 0);
    ask(h, "GET", "/v1/files", NULL);
    assert_int_equal(json_array_size(answer(h, "data")), 0);
    (void)snprintf(body, sizeof body, "{\"part_ids\":[\"%s\",\"%s\"],\"md5\":\"%s\"}", first,
                   second, md5);
    end_upload(h, upload, "complete", body);
    expect(h, 200, "status", "completed");
    assert_int_equal(answer_int(h, "file.bytes"), 10);
}

/* Several requests complete one upload at once: its parts become one file, and each is told so. */
static void test_completed_at_once(void **state)
{
    struct http_world *h = *state;
    enum { REQUESTS = 4 };
    struct http_client clients[REQUESTS];
    char upload[64], part[64], request[600], body[128], file[64] = "";
    announce(h, 5, "", upload);
    send_part(h, upload, "data", "hello", part);
    int length = snprintf(body, sizeof body, "{\"part_ids\":[\"%s\"]}", part);
    (void)snprintf(request, sizeof request,
                   "POST /v1/uploads/%s/complete HTTP/1.1\r\nHost: localhost\r\n"
                   "Connection: close\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s",
                   upload, h->token, length, body);
    for (int i = 0; i < REQUESTS; i++) { /* all are there before the loop turns */
        client_open(h, &clients[i]);
        assert_int_equal(send(clients[i].fd, request, strlen(request), MSG_NOSIGNAL),
                         strlen(request));
    }
    for (int i = 0; i < REQUESTS; i++) {
        ask_end(h, &clients[i]);
        expect(h, 200, "status", "completed");
        if (file[0] == '\0')
            (void)snprintf(file, sizeof file, "%s", json_string_value(answer(h, "file.id")));
        expect(h, 200, "file.id", file);
    }
    ask(h, "GET", "/v1/files", NULL);
    assert_int_equal(json_array_size(answer(h, "data")), 1);
    assert_int_equal(count_left(h, "uploads"), 0);
}

static void test_announcements_refused(void **state)
{
    struct http_world *h = *state;
    static const struct {
        const char *body, *code, *param;
    } rows[] = {
        {"{}", "missing_required_parameter", "bytes"},
        {"{\"bytes\":1,\"filename\":\"a\",\"mime_type\":\"b\"}", "missing_required_parameter",
         "purpose"},
        {"{\"bytes\":0,\"filename\":\"a\",\"mime_type\":\"b\",\"purpose\":\"fine-tune\"}",
         "invalid_value", "bytes"},
        {"{\"bytes\":\"1\",\"filename\":\"a\",\"mime_type\":\"b\",\"purpose\":\"fine-tune\"}",
         "invalid_value", "bytes"},
        {"{\"bytes\":99999999999999,\"filename\":\"a\",\"mime_type\":\"b\",\"purpose\":\"fine-"
         "tune\"}",
         "invalid_value", "bytes"},
        {"{\"bytes\":1,\"filename\":7,\"mime_type\":\"b\",\"purpose\":\"fine-tune\"}",
         "invalid_value", "filename"},
        {"{\"bytes\":1,\"filename\":\"a\",\"mime_type\":null,\"purpose\":\"fine-tune\"}",
         "invalid_value", "mime_type"},
        {"{\"bytes\":1,\"filename\":\"a\",\"mime_type\":\"b\",\"purpose\":\"batch\"}",
         "invalid_value", "purpose"},
        {"{\"bytes\":1,\"filename\":\"a\",\"mime_type\":\"b\",\"purpose\":\"fine-tune\",\"x\":1}",
         "unknown_parameter", "x"},
        {"{\"bytes\":1,\"filename\":\"a\",\"mime_type\":\"b\",\"purpose\":\"fine-tune\","
         "\"expires_after\":{\"anchor\":\"created_at\"}}",
         "invalid_value", "expires_after"},
        {"{\"bytes\":1,\"filename\":\"a\",\"mime_type\":\"b\",\"purpose\":\"fine-tune\","
         "\"expires_after\":{\"anchor\":\"created_at\",\"seconds\":3599}}",
         "invalid_value", "expires_after.seconds"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ask(h, "POST", "/v1/uploads", rows[i].body);
        expect(h, 400, "error.code", rows[i].code);
        expect(h, 400, "error.param", rows[i].param);
    }
    assert_int_equal(count_left(h, "uploads"), 0);
}

static void test_parts_refused(void **state)
{
    struct http_world *h = *state;
    char upload[64], part[64] = "", other[64];
    announce(h, 4, "", upload);
    send_part(h, "upload_none", "data", "x", part);
    expect(h, 404, "error.code", "not_found");
    send_part(h, upload, "file", "x", part);
    expect(h, 400, "error.param", "file");
    send_part(h, upload, "data", "", part);
    expect(h, 400, "error.param", "data");
    char length[128];
    (void)snprintf(length, sizeof length, MULTIPART "Content-Length: %d\r\n",
                   UPLOADS_PART_BYTES + (1 << 20));
    ask_with(h, "POST", http_target("/v1/uploads/%s/parts", upload).text, length, NULL,
             0); /* refused at its headers */
    expect(h, 413, "error.param", "data");
    send_part(h, upload, "data", "1234567890", part); /* more than twice the announced */
    assert_int_equal(h->status, 200);
    send_part(h, upload, "data", "1", other);
    expect(h, 413, "error.param", "data");
    complete(h, upload, part, "part_none");
    expect(h, 400, "error.param", "part_ids");
    complete(h, upload, part, "../../auth.key");
    expect(h, 400, "error.param", "part_ids");
    complete(h, upload, part, part); /* 20 bytes, not 4 */
    expect(h, 400, "error.param", "part_ids");
    announce(h, 8, "", other);
    send_part(h, other, "data", "half", part);
    complete(h, other, part, part); /* 8 bytes, but a file with a half of it twice */
    expect(h, 400, "error.param", "part_ids");
    assert_non_null(strstr(h->body, "is there twice"));
    end_upload(h, other, "cancel", "");
    expect(h, 200, "status", "cancelled");
    end_upload(h, upload, "complete", "{}");
    expect(h, 400, "error.code", "missing_required_parameter");
    end_upload(h, upload, "complete", "{\"part_ids\":[]}");
    expect(h, 400, "error.param", "part_ids");
    end_upload(h, upload, "complete", "{\"part_ids\":[\"a\"],\"md5\":\"b\"}");
    expect(h, 400, "error.param", "md5");
    end_upload(h, upload, "complete", "{\"part_ids\":[\"a\"],\"md5\":7}");
    expect(h, 400, "error.param", "md5");
    end_upload(h, upload, "complete", "{\"part_ids\":[\"a\"],\"b\":1}");
    expect(h, 400, "error.code", "unknown_parameter");
    end_upload(h, "upload_none", "complete", "{\"part_ids\":[\"a\"]}");
    assert_int_equal(h->status, 404);
    end_upload(h, "upload_none", "cancel", "");
    assert_int_equal(h->status, 404);
    end_upload(h, upload, "cancel", "");
    expect(h, 200, "status", "cancelled");
    assert_int_equal(count_left(h, "uploads"), 0);
    ask(h, "GET", "/v1/files", NULL);
    assert_int_equal(json_array_size(answer(h, "data")), 0);
}

/* Twice the announced bytes may lie there, and ten thousand parts; a field comes once. */
static void test_how_much_parts_take(void **state)
{
    static const char twice[] =
        "--xyz\r\nContent-Disposition: form-data; name=\"data\"; filename=\"a\"\r\n\r\n1\r\n"
        "--xyz\r\nContent-Disposition: form-data; name=\"data\"; filename=\"a\"\r\n\r\n2\r\n"
        "--xyz--\r\n";
    struct http_world *h = *state;
    char upload[64], part[64] = "";
    announce(h, 4, "", upload);
    ask_with(h, "POST", http_target("/v1/uploads/%s/parts", upload).text, MULTIPART, twice,
             sizeof twice - 1);
    expect(h, 400, "error.message", "data is given twice");
    send_part(h, upload, "data", "12345678", part); /* as much again, then */
    assert_int_equal(h->status, 200);
    send_part(h, upload, "data", "12", part);
    assert_int_equal(h->status, 200);
    send_part(h, upload, "data", "1", part);
    expect(h, 413, "error.param", "data");

    announce(h, 4, "", upload);
    CLEANUP(mem_free_ptr) char *folder = io_join(h->w->dir, "uploads");
    CLEANUP(mem_free_ptr) char *parts = io_join(folder, upload);
    for (int i = 0; i < UPLOADS_PARTS_MAX - 1; i++) {
        char path[256];
        (void)snprintf(path, sizeof path, "%s/part_%d%s", parts, i, i < 3 ? ".tmp-1" : "");
        int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
        assert_true(fd >= 0 && close(fd) == 0);
    }
    send_part(h, upload, "data", "1", part);
    assert_int_equal(h->status, 200);
    send_part(h, upload, "data", "1", part);
    expect(h, 413, "error.param", "data");
    OK(h->w, uploads_open(h->w->dir, &h->w->err)); /* the next daemon removes what was cut short */
    send_part(h, upload, "data", "1", part);
    assert_int_equal(h->status, 200);
    assert_int_equal(count_left(h, "uploads"), 3 + 1 + UPLOADS_PARTS_MAX - 4 + 2);
}

/* The last value of a setting is a good one; a user's own limit is kept to the byte. */
static void test_bytes_that_may_be_announced(void **state)
{
    struct http_world *h = *state;
    char upload[64];
    const struct {
        int64_t upload_bytes_max, user_bytes_max;
        int status;
        const char *code;
    } rows[] = {
        {100, 100, 200, NULL}, {99, 100, 400, "invalid_value"}, {100, 99, 403, "quota_exceeded"}};
    http_world_user(h, "ann");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        h->settings.upload_bytes_max = rows[i].upload_bytes_max;
        h->settings.user_bytes_max = rows[i].user_bytes_max;
        ask(h, "POST", "/v1/uploads",
            "{\"bytes\":100,\"filename\":\"a\",\"mime_type\":\"b\",\"purpose\":\"fine-tune\","
            "\"expires_after\":null}");
        if (rows[i].code == NULL) {
            assert_int_equal(h->status, rows[i].status);
            (void)snprintf(upload, sizeof upload, "%s", json_string_value(answer(h, "id")));
            end_upload(h, upload, "cancel", "");
            expect(h, 200, "status", "cancelled");
        } else {
            expect(h, rows[i].status, "error.code", rows[i].code);
            expect(h, rows[i].status, "error.param", "bytes");
        }
    }
}

/* Rounds of housekeeping follow one another at once while they find something. */
static void keep_house(struct http_world *h)
{
    housekeeping_wake(h->api.housekeeping);
    http_world_turn(h);
}

static void test_what_expires_goes(void **state)
{
    struct http_world *h = *state;
    char upload[64], other[64], part[64];
    announce(h, 4, "", upload);
    send_part(h, upload, "data", "1234", part);
    h->w->fake.now_ms += UPLOADS_LIFETIME_S * 1000LL - 1;
    keep_house(h);
    assert_true(count_left(h, "uploads") > 0);
    h->w->fake.now_ms += 1;
    complete(h, upload, part, part);
    expect(h, 400, "error.code", "invalid_state"); /* before anybody has swept */
    announce(h, 1, "", other);
    keep_house(h);
    end_upload(h, upload, "cancel", "");
    expect(h, 400, "error.code", "invalid_state");
    end_upload(h, other, "cancel", "");
    expect(h, 200, "status", "cancelled");
    assert_int_equal(count_left(h, "uploads"), 0);
    const struct host_process *child = &h->w->fake.processes[h->w->fake.count - 1];
    assert_string_equal(child->mode, "-rf"); /* of what lies in the trash */
    h->w->fake.now_ms += 2LL * 86400 * 1000;
    keep_house(h);
    end_upload(h, upload, "cancel", "");
    assert_int_equal(h->status, 404); /* forgotten */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        HTTP_TEST(test_parts_become_a_file),
        HTTP_TEST(test_checksum),
        HTTP_TEST(test_completed_at_once),
        HTTP_TEST(test_announcements_refused),
        HTTP_TEST(test_parts_refused),
        HTTP_TEST(test_how_much_parts_take),
        HTTP_TEST(test_bytes_that_may_be_announced),
        HTTP_TEST(test_what_expires_goes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
