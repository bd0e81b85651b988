/* sample: requests that are refused and why, answers that end by themselves and answers that are
 * cut, by max_tokens and by the model's context. */
#include "worker/sample.h"

#include "common/chat_template.h"
#include "tests/lib/model_folder.h"

#include <string.h>
#include <unistd.h>

enum { TOKEN_END = 260 };

/* A model that says one token after everything: the head's row of it alone is not zero. */
static int64_t favourite;

static float one_token(const struct model_shape_row *row, int64_t element)
{
    switch (row->kind) {
    case MODEL_TENSOR_HEAD:
        return element / row->cols == favourite ? 1.0f : 0.0f;
    case MODEL_TENSOR_EMBED:
    case MODEL_TENSOR_LN1:
    case MODEL_TENSOR_LN2:
    case MODEL_TENSOR_LNF:
        return 1.0f;
    default:
        return 0.0f;
    }
}

/* The answer's JSON, or NULL with folder->err. */
static json_t *ask(struct model_folder *folder, const char *request)
{
    char *text = NULL;
    size_t length = 0;
    FILE *in = fmemopen((void *)(uintptr_t)request, strlen(request), "r");
    FILE *out = open_memstream(&text, &length);
    json_t *answer = NULL;
    assert_true(in != NULL && out != NULL);
    folder->err = (struct err){.code = ERR_NONE};
    int rc = sample_main(folder->dir, in, out, &folder->err);
    (void)fclose(in);
    (void)fclose(out);
    assert_int_equal(rc, -(int)folder->err.code);
    if (rc == 0) {
        assert_int_equal(text[length - 1], '\n');
        assert_int_equal(json_parse(text, length, "answer", &answer, &folder->err), 0);
    } else {
        assert_int_equal(length, 0); /* no half an answer */
    }
    (free)(text); /* open_memstream's */
    return answer;
}

#define HELLO "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"

static void expect(struct model_folder *folder, const char *request, const char *text,
                   const char *finish, int64_t tokens)
{
    CLEANUP(json_unref) json_t *answer = ask(folder, request);
    if (answer == NULL)
        fail_msg("%s: %s", request, folder->err.text);
    assert_string_equal(json_string_value(json_object_get(answer, "text")), text);
    assert_string_equal(json_string_value(json_object_get(answer, "finish_reason")), finish);
    assert_int_equal(json_integer_value(json_object_get(answer, "completion_tokens")), tokens);
    /* <|begin|> <|user|> h i <|end|> <|assistant|> */
    assert_int_equal(json_integer_value(json_object_get(answer, "prompt_tokens")), 6);
}

static void test_ends(void **state)
{
    struct model_folder folder;
    favourite = TOKEN_END;
    model_folder_open(&folder, &model_folder_config, one_token);
    expect(&folder, HELLO "}", "", "stop", 0);
    favourite = 'a';
    model_folder_weights(&folder, one_token);
    expect(&folder, HELLO ",\"max_tokens\":3}", "aaa", "length", 3);
    expect(&folder, HELLO ",\"max_tokens\":1}", "a", "length", 1);
    char all[64] = "";
    memset(all, 'a', 64 - 6);
    expect(&folder, HELLO "}", all, "length", 64 - 6); /* what the context leaves */
    expect(&folder, HELLO ",\"max_tokens\":9223372036854775807}", all, "length", 64 - 6);
    favourite = 0xff; /* no UTF-8 */
    model_folder_weights(&folder, one_token);
    expect(&folder, HELLO ",\"max_tokens\":2}", "??", "length", 2);
    favourite = 0; /* a NUL */
    model_folder_weights(&folder, one_token);
    expect(&folder, HELLO ",\"max_tokens\":2}", "??", "length", 2);
    favourite = 257; /* a special token in the middle of an answer is no text */
    model_folder_weights(&folder, one_token);
    expect(&folder, HELLO ",\"max_tokens\":2}", "", "length", 2);
    model_folder_close(&folder);
    assert_int_equal(mem_live(), 0);
}

static void test_refusals(void **state)
{
    static const struct {
        const char *request;
        enum err_code code;
        const char *field;
    } bad[] = {
        {"x", ERR_BAD_JSON, ""},
        {"{}", ERR_BAD_REQUEST, "messages"},
        {"{\"messages\":{}}", ERR_BAD_REQUEST, "messages"},
        {HELLO ",\"max_tokens\":0}", ERR_BAD_REQUEST, "max_tokens"},
        {HELLO ",\"max_tokens\":-5}", ERR_BAD_REQUEST, "max_tokens"},
        {HELLO ",\"max_tokens\":\"5\"}", ERR_BAD_REQUEST, NULL},
        {HELLO ",\"chat_template\":\"ghost\"}", ERR_BAD_REQUEST, "chat_template"},
        {HELLO ",\"chat_template\":7}", ERR_BAD_REQUEST, NULL},
        {HELLO ",\"chat_template\":\"chatml\"}", ERR_MODEL,
         NULL}, /* the tokenizer lacks its tokens */
        {"{\"messages\":[{\"role\":\"user\"}]}", ERR_BAD_REQUEST, "messages"},
        {"{\"messages\":[{\"role\":\"ghost\",\"content\":\"x\"}]}", ERR_BAD_REQUEST, "messages"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"0123456789012345678901234567890123456789"
         "0123456789012345678901234567890123456789\"}]}",
         ERR_BAD_REQUEST, "max_tokens"}, /* longer than the context */
    };
    struct model_folder folder;
    favourite = 'a';
    model_folder_open(&folder, &model_folder_config, one_token);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_null(ask(&folder, bad[i].request));
        if (folder.err.code != bad[i].code)
            fail_msg("%s: %s", bad[i].request, folder.err.text);
        if (bad[i].field != NULL)
            assert_string_equal(folder.err.field, bad[i].field);
    }
    CLEANUP(mem_free_ptr) char *weights = io_join(folder.dir, "model.safetensors");
    CLEANUP(mem_free_ptr) char *tokenizer = io_join(folder.dir, "tokenizer.json");
    assert_int_equal(unlink(weights), 0);
    assert_null(ask(&folder, HELLO "}"));
    assert_int_equal(unlink(tokenizer), 0);
    assert_null(ask(&folder, HELLO "}"));
    assert_non_null(strstr(folder.err.text, "tokenizer.json"));
    model_folder_close(&folder);
    assert_int_equal(mem_live(), 2); /* the two paths above */
}

static void test_long_request(void **state)
{
    struct model_folder folder;
    favourite = 'a';
    model_folder_open(&folder, &model_folder_config, one_token);
    CLEANUP(mem_free_ptr) char *long_one = mem_new(1, LIMIT_JSON_BODY_BYTES + 2);
    memset(long_one, ' ', LIMIT_JSON_BODY_BYTES + 1);
    assert_null(ask(&folder, long_one));
    assert_int_equal(folder.err.code, ERR_TOO_LARGE);
    model_folder_close(&folder);
}

/* A pipe that nobody reads. */
static void test_answer_cannot_be_written(void **state)
{
    struct model_folder folder;
    static const char request[] = HELLO ",\"max_tokens\":1}";
    favourite = 'a';
    model_folder_open(&folder, &model_folder_config, one_token);
    FILE *in = fmemopen((void *)(uintptr_t)request, sizeof request - 1, "r");
    FILE *out = fopen("/dev/full", "we");
    assert_true(in != NULL && out != NULL);
    assert_int_equal(sample_main(folder.dir, in, out, &folder.err), -ERR_IO);
    (void)fclose(in);
    (void)fclose(out);
    model_folder_close(&folder);
}

static void test_allocation_failures(void **state)
{
    struct model_folder folder;
    favourite = 'a';
    model_folder_open(&folder, &model_folder_config, one_token);
    json_t *answer = NULL;
    for (int64_t n = 1; answer == NULL; n += 1 + n / 8) {
        mem_fault_after(n);
        answer = ask(&folder, HELLO ",\"max_tokens\":2}");
        mem_fault_after(0);
        if (answer == NULL)
            assert_int_equal(folder.err.code, ERR_NOMEM);
        assert_int_equal(mem_live(), 0);
        assert_true(n < 3000);
    }
    json_decref(answer);
    model_folder_close(&folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_long_request),
        cmocka_unit_test(test_answer_cannot_be_written),
        cmocka_unit_test(test_allocation_failures),
    };
    (void)setenv("OMP_NUM_THREADS", "1", 1); /* so small a model is slower on more */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
