/* job_spec: fields that are lists of texts, or a text. */
#include "common/mem.h"
#include "tests/lib/job_words.h"

static void test_lists_of_texts(void **state)
{
    struct job_spec spec;
    const enum err_code invalid = ERR_INVALID_VALUE;
    accept("'ithaca':{'tags':['b','a','b'],'depends_on':['ftjob-1']}", &spec);
    assert_int_equal(spec.tags.count, 2); /* twice counts once, in the order given */
    assert_string_equal(spec.tags.items[0], "b");
    assert_string_equal(spec.tags.items[1], "a");
    assert_string_equal(spec.depends_on.items[0], "ftjob-1");
    job_spec_done(&spec);
    refuse("'ithaca':{'tags':'a'}", invalid, "ithaca.tags", "a list of at most 16 texts");
    refuse("'ithaca':{'tags':['']}", invalid, "ithaca.tags", "of 1 to 64 bytes");
    refuse("'ithaca':{'tags':[1]}", invalid, "ithaca.tags", "is 1;");
    refuse("'ithaca':{'tags':["
           "'01234567890123456789012345678901234567890123456789012345678901234']}",
           invalid, "ithaca.tags", "of 1 to 64 bytes");
    refuse("'ithaca':{'tags':['1','2','3','4','5','6','7','8','9','10','11','12','13','14','15',"
           "'16','17']}",
           invalid, "ithaca.tags", "at most 16");
}

static void test_texts(void **state)
{
    struct job_spec spec;
    char longest[LIMIT_TEXT_BYTES + 64], url[LIMIT_TEXT_BYTES + 2] = "";
    accept("'ithaca':{'webhook':'https://a.b/c?d'}", &spec);
    assert_string_equal(spec.webhook, "https://a.b/c?d");
    job_spec_done(&spec);
    accept("'ithaca':{'webhook':null}", &spec);
    assert_string_equal(spec.webhook, "");
    job_spec_done(&spec);
    memset(url, 'x', LIMIT_TEXT_BYTES);
    (void)snprintf(longest, sizeof longest, "'ithaca':{'webhook':'%s'}", url);
    accept(longest, &spec);
    assert_int_equal(strlen(spec.webhook), LIMIT_TEXT_BYTES);
    job_spec_done(&spec);
    (void)snprintf(longest, sizeof longest, "'ithaca':{'webhook':'%sx'}", url);
    refuse(longest, ERR_INVALID_VALUE, "ithaca.webhook", "1 to 512 printable ASCII");
    refuse("'ithaca':{'webhook':''}", ERR_INVALID_VALUE, "ithaca.webhook", "or null");
    refuse("'ithaca':{'webhook':7}", ERR_INVALID_VALUE, "ithaca.webhook", "is 7;");
    refuse("'ithaca':{'webhook':'a b'}", ERR_INVALID_VALUE, "ithaca.webhook", "printable");
    refuse("'ithaca':{'webhook':'a\\nb'}", ERR_INVALID_VALUE, "ithaca.webhook", "printable");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lists_of_texts),
        cmocka_unit_test(test_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
