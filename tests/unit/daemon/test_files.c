/* files: uploads in every order of parts, each refusal by its field, and that nothing is left of
 * what was refused or broken off; lists, bytes, deletion. */
#include "daemon/files.h"

#include "tests/lib/http_world.h"

#include <dirent.h>

#define MULTIPART "Content-Type: multipart/form-data; boundary=xyz\r\n"

/* One part of a form; filename NULL: a plain field. */
static void part(struct buf *form, const char *name, const char *filename, const char *bytes)
{
    buf_printf(form, "--xyz\r\nContent-Disposition: form-data; name=\"%s\"", name);
    if (filename != NULL)
        buf_printf(form, "; filename=\"%s\"\r\nContent-Type: application/jsonl", filename);
    buf_printf(form, "\r\n\r\n%s\r\n", bytes);
}

static void post(struct http_world *h, struct buf *form)
{
    buf_text(form, "--xyz--\r\n");
    ask_with(h, "POST", "/v1/files", MULTIPART, form->data, form->length);
    buf_clear(form);
}

/* Files in the folder, temporary ones too. */
static int files_there(struct http_world *h)
{
    CLEANUP(mem_free_ptr) char *folder = io_join(h->w->dir, "files");
    DIR *stream = opendir(folder);
    int count = 0;
    assert_non_null(stream);
    for (const struct dirent *entry; (entry = readdir(stream)) != NULL;)
        count += entry->d_name[0] != '.';
    (void)closedir(stream);
    return count;
}

static void test_upload(void **state)
{
    struct http_world *h = *state;
    char path[LIMIT_PATH_BYTES], id[64];
    struct stat info;
    CLEANUP(buf_done) struct buf form;
    buf_init(&form, 1 << 20);
    part(&form, "purpose", NULL, "fine-tune");
    part(&form, "file", "train.jsonl", "{\"a\":1}\n");
    post(h, &form);
    expect(h, 200, "object", "file");
    expect(h, 200, "filename", "train.jsonl");
    expect(h, 200, "purpose", "fine-tune");
    expect(h, 200, "status", "processed");
    assert_int_equal(answer_int(h, "bytes"), 8);
    assert_int_equal(answer_int(h, "created_at"), h->w->fake.host.ops->wall_ms(h->api.host) / 1000);
    (void)snprintf(id, sizeof id, "%s", json_string_value(answer(h, "id")));
    assert_memory_equal(id, "file-", 5);
    (void)snprintf(path, sizeof path, "%s/files/%s", h->w->dir, id);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    ask(h, "GET", http_target("/v1/files/%s/content", id).text, NULL);
    assert_int_equal(h->status, 200);
    assert_string_equal(h->body, "{\"a\":1}\n");
    part(&form, "file", "b.jsonl", "{}"); /* the other order */
    part(&form, "purpose", NULL, "fine-tune");
    post(h, &form);
    expect(h, 200, "filename", "b.jsonl");
    assert_int_equal(files_there(h), 2);
}

static void test_names_are_for_display(void **state)
{
    struct http_world *h = *state;
    static const char *const names[][2] = {
        {"../../etc/passwd", "passwd"},
        {"C:\\Users\\me\\a b.jsonl", "a b.jsonl"},
        {"", "upload.jsonl"},
        {"folder/", "upload.jsonl"},
        {"tab\there", "tab?here"},
        {"\xc3\xa4.jsonl", "\xc3\xa4.jsonl"},
        {"bad\xff", "bad?"},
    };
    CLEANUP(buf_done) struct buf form;
    buf_init(&form, 1 << 20);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        part(&form, "file", names[i][0], "x");
        part(&form, "purpose", NULL, "fine-tune");
        post(h, &form);
        expect(h, 200, "filename", names[i][1]);
    }
    char longest[400];
    memset(longest, 'n', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    part(&form, "file", longest, "x");
    part(&form, "purpose", NULL, "fine-tune");
    post(h, &form);
    assert_int_equal(strlen(json_string_value(answer(h, "filename"))), 255);
}

static void refused(struct http_world *h, struct buf *form, int status, const char *code,
                    const char *field)
{
    post(h, form);
    expect(h, status, "error.code", code);
    expect(h, status, "error.param", field);
    assert_int_equal(files_there(h), 0);
}

static void test_refusals(void **state)
{
    struct http_world *h = *state;
    CLEANUP(buf_done) struct buf form;
    buf_init(&form, 1 << 20);
    part(&form, "file", "a", "x");
    refused(h, &form, 400, "missing_required_parameter", "purpose");
    part(&form, "purpose", NULL, "fine-tune");
    refused(h, &form, 400, "missing_required_parameter", "file");
    part(&form, "file", "a", "x");
    part(&form, "purpose", NULL, "assistants");
    refused(h, &form, 400, "invalid_value", "purpose");
    part(&form, "purpose", NULL, "fine-tune");
    part(&form, "purpose", NULL, "fine-tune");
    refused(h, &form, 400, "invalid_value", "purpose");
    part(&form, "file", "a", "x");
    part(&form, "file", "b", "y");
    refused(h, &form, 400, "invalid_value", "file");
    part(&form, "purpose", NULL, "fine-tune");
    part(&form, "file", "a", "");
    refused(h, &form, 400, "invalid_value", "file");
    part(&form, "owner", NULL, "me");
    refused(h, &form, 400, "unknown_parameter", "owner");
    part(&form, "expires_after[anchor]", NULL, "created_at");
    part(&form, "file", "a", "x");
    part(&form, "purpose", NULL, "fine-tune");
    refused(h, &form, 400, "invalid_value", "expires_after.seconds");
    part(&form, "expires_after[anchor]", NULL, "used_at");
    part(&form, "expires_after[seconds]", NULL, "3600");
    part(&form, "file", "a", "x");
    part(&form, "purpose", NULL, "fine-tune");
    refused(h, &form, 400, "invalid_value", "expires_after.anchor");
    part(&form, "expires_after[anchor]", NULL, "created_at");
    part(&form, "expires_after[seconds]", NULL, "3600s");
    part(&form, "file", "a", "x");
    part(&form, "purpose", NULL, "fine-tune");
    refused(h, &form, 400, "invalid_value", "expires_after.seconds");
    char name[100];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    part(&form, name, NULL, "x");
    post(h, &form);
    expect(h, 400, "error.code", "unknown_parameter");
    static char purpose[100000]; /* it comes in pieces */
    memset(purpose, 'p', sizeof purpose - 1);
    purpose[sizeof purpose - 1] = '\0';
    part(&form, "purpose", NULL, purpose);
    refused(h, &form, 400, "invalid_value", "purpose");
}

static void test_bodies_that_are_no_form(void **state)
{
    struct http_world *h = *state;
    ask(h, "POST", "/v1/files", "{\"purpose\":\"fine-tune\"}");
    expect(h, 400, "error.code", "bad_request");
    static const char cut[] = "--xyz\r\nContent-Disposition: form-data; name=\"file\"; "
                              "filename=\"a\"\r\n\r\nbytes and no end";
    ask_with(h, "POST", "/v1/files", MULTIPART, cut, sizeof cut - 1);
    expect(h, 400, "error.code", "bad_request");
    ask_with(h, "POST", "/v1/files", MULTIPART, "", 0);
    assert_int_equal(h->status, 400);
    ask_with(h, "POST", "/v1/files", "Content-Type: multipart/form-data\r\n", "x", 1);
    expect(h, 400, "error.code", "bad_request"); /* no boundary */
    assert_int_equal(files_there(h), 0);
}

static void test_limit(void **state)
{
    struct http_world *h = *state;
    h->settings.upload_bytes_max = 10;
    CLEANUP(buf_done) struct buf form;
    buf_init(&form, 1 << 20);
    part(&form, "purpose", NULL, "fine-tune");
    part(&form, "file", "a", "0123456789");
    post(h, &form);
    expect(h, 200, "object", "file");
    part(&form, "purpose", NULL, "fine-tune");
    part(&form, "file", "a", "0123456789A");
    post(h, &form);
    expect(h, 413, "error.code", "too_large");
    expect(h, 413, "error.param", "file");
    assert_non_null(strstr(json_string_value(answer(h, "error.message")), "10 bytes"));
    ask_with(h, "POST", "/v1/files", MULTIPART "Content-Length: 99999999\r\n", NULL, 0);
    expect(h, 413, "error.code", "too_large"); /* before a byte of it came */
    assert_int_equal(files_there(h), 1);
}

static void test_client_leaves_half_way(void **state)
{
    struct http_world *h = *state;
    struct http_client client;
    char request[512];
    (void)snprintf(request, sizeof request,
                   "POST /v1/files HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n"
                   "%sContent-Length: 100000\r\n\r\n--xyz\r\nContent-Disposition: form-data; "
                   "name=\"file\"; filename=\"a\"\r\n\r\nthe first bytes",
                   h->token, MULTIPART);
    client_open(h, &client);
    client_send(h, &client, request, strlen(request));
    for (int i = 0; i < 2000 && files_there(h) == 0; i++)
        client_turn(h, &client);
    assert_int_equal(files_there(h), 1); /* a temporary one */
    client_close(&client);
    for (int i = 0; i < 2000 && files_there(h) > 0; i++)
        OK(h->w, loop_turn(h->w->loop, 1, &h->w->err));
    assert_int_equal(files_there(h), 0);
    ask(h, "GET", "/v1/files", NULL);
    assert_int_equal(json_array_size(answer(h, "data")), 0);
}

/* R54: whichever write of an upload fails, nothing of it is listed or left; the next one is taken.
 */
static void test_full_disk(void **state)
{
    struct http_world *h = *state;
    CLEANUP(buf_done) struct buf form;
    buf_init(&form, 1 << 20);
    int failed = 0;
    for (;; failed++) {
        part(&form, "purpose", NULL, "fine-tune");
        part(&form, "file", "train.jsonl", "{\"a\":1}\n");
        io_fault_after(failed + 1);
        post(h, &form);
        io_fault_after(0);
        if (h->status == 200)
            break;
        expect(h, 507, "error.code", "no_space");
        assert_null(strstr(h->body, h->w->dir)); /* nor is the server's folder told */
        assert_int_equal(files_there(h), 0);
        ask(h, "GET", "/v1/files", NULL);
        assert_int_equal(json_array_size(answer(h, "data")), 0);
    }
    assert_int_equal(failed, 4); /* the bytes, their sync, the rename, the folder's sync */
    assert_int_equal(files_there(h), 1);
}

static void test_list(void **state)
{
    struct http_world *h = *state;
    http_world_file(h, "file-1", "1");
    http_world_file(h, "file-2", "22");
    http_world_file(h, "file-3", "333");
    ask(h, "GET", "/v1/files?limit=2", NULL);
    expect(h, 200, "data.0.id", "file-3");
    expect(h, 200, "last_id", "file-2");
    assert_true(json_is_true(answer(h, "has_more")));
    ask(h, "GET", "/v1/files?limit=2&after=file-2", NULL);
    expect(h, 200, "data.0.id", "file-1");
    assert_true(json_is_false(answer(h, "has_more")));
    ask(h, "GET", "/v1/files?order=asc", NULL);
    expect(h, 200, "first_id", "file-1");
    ask(h, "GET", "/v1/files?order=up", NULL);
    expect(h, 400, "error.param", "order");
    ask(h, "GET", "/v1/files?after=file-9", NULL);
    expect(h, 400, "error.param", "after");
    ask(h, "GET", "/v1/files?limit=0", NULL);
    expect(h, 400, "error.param", "limit");
    ask(h, "GET", "/v1/files?purpose=batch", NULL);
    assert_int_equal(json_array_size(answer(h, "data")), 0);
    assert_true(json_is_null(answer(h, "first_id")));
    ask(h, "GET", "/v1/files/file-2", NULL);
    assert_int_equal(answer_int(h, "bytes"), 2);
    ask(h, "GET", "/v1/files/file-9", NULL);
    expect(h, 404, "error.code", "not_found");
}

static void test_bytes_that_are_gone(void **state)
{
    struct http_world *h = *state;
    CLEANUP(mem_free_ptr) char *path = mem_printf("%s/files/file-1", h->w->dir);
    http_world_file(h, "file-1", "1");
    assert_int_equal(unlink(path), 0);
    ask(h, "GET", "/v1/files/file-1/content", NULL);
    expect(h, 500, "error.code", "io");
    assert_int_equal(symlink("/etc/passwd", path), 0); /* is not followed */
    ask(h, "GET", "/v1/files/file-1/content", NULL);
    expect(h, 500, "error.code", "io");
    ask(h, "GET", "/v1/files/file-2/content", NULL);
    assert_int_equal(h->status, 404);
}

static void test_delete(void **state)
{
    struct http_world *h = *state;
    http_world_file(h, "file-a", "used by the world's jobs");
    http_world_file(h, "file-b", "used by this one, too");
    http_world_file(h, "file-c", "used by none");
    struct world_job job = world_submit(
        h->w, 1, "},\"validation_file\":\"file-b\",\"metadata\":{\"max_restarts\":\"\"");
    ask(h, "DELETE", "/v1/files/file-a", NULL);
    expect(h, 400, "error.code", "invalid_state");
    ask(h, "DELETE", "/v1/files/file-b", NULL);
    expect(h, 400, "error.code", "invalid_state");
    ask(h, "DELETE", "/v1/files/file-c", NULL);
    expect(h, 200, "id", "file-c");
    OK(h->w, coordinator_cancel(h->w->coordinator, job.id, &h->w->err));
    world_run(h->w);
    world_expect(h->w, &job, JOB_STATE_CANCELLED);
    ask(h, "DELETE", "/v1/files/file-b", NULL);
    expect(h, 200, "id", "file-b");
    ask(h, "DELETE", "/v1/files/file-a", NULL);
    expect(h, 200, "id", "file-a");
    assert_true(json_is_true(answer(h, "deleted")));
    assert_int_equal(files_there(h), 0);
    ask(h, "DELETE", "/v1/files/file-a", NULL);
    expect(h, 404, "error.code", "not_found");
}

static void test_open_removes_leftovers(void **state)
{
    struct http_world *h = *state;
    CLEANUP(mem_free_ptr) char *folder = io_join(h->w->dir, "files");
    http_world_put(h, folder, "file-1.tmp-99-1", "half");
    http_world_put(h, folder, "file-2", "whole");
    OK(h->w, files_open(h->w->dir, &h->w->err));
    assert_int_equal(files_there(h), 1);
    CLEANUP(mem_free_ptr) char *file = io_join(folder, "file-2");
    assert_int_not_equal(files_open(file, &h->w->err), 0); /* no folder can be made there */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        HTTP_TEST(test_upload),    HTTP_TEST(test_names_are_for_display),
        HTTP_TEST(test_refusals),  HTTP_TEST(test_bodies_that_are_no_form),
        HTTP_TEST(test_limit),     HTTP_TEST(test_client_leaves_half_way),
        HTTP_TEST(test_list),      HTTP_TEST(test_bytes_that_are_gone),
        HTTP_TEST(test_delete),    HTTP_TEST(test_open_removes_leftovers),
        HTTP_TEST(test_full_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
