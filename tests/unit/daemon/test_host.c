/* host: ids have their prefix, their length, only their characters, each as likely as another, and
 * no random bytes mean no id. */
#include "daemon/host.h"

#include "tests/lib/fake_host.h"

#include <string.h>

static const char characters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

static void test_shape(void **state)
{
    struct fake_host fake;
    struct err err = {0};
    char id[64], other[64], tight[3 + HOST_ID_RANDOM_CHARS];
    fake_host_init(&fake);
    assert_int_equal(host_new_id(&fake.host, "ftjob-", id, sizeof id, &err), 0);
    assert_int_equal(strlen(id), 6 + HOST_ID_RANDOM_CHARS);
    assert_memory_equal(id, "ftjob-", 6);
    assert_int_equal(strspn(id + 6, characters), HOST_ID_RANDOM_CHARS);
    assert_int_equal(host_new_id(&fake.host, "ftjob-", other, sizeof other, &err), 0);
    assert_string_not_equal(id, other);
    assert_int_equal(host_new_id(&fake.host, "a-", tight, sizeof tight, &err), 0); /* just fits */
    assert_int_equal(strlen(tight), sizeof tight - 1);
}

static uint8_t byte_next;

/* Every byte as often as any other, and a draw of 32 begins with another one each time. */
static int random_counts(struct host *host, void *ret_bytes, size_t length, struct err *err)
{
    for (size_t i = 0; i < length; i++)
        ((uint8_t *)ret_bytes)[i] = byte_next++;
    byte_next++;
    return 0;
}

/* From uniform bytes come uniform characters: 256 is no multiple of 62. */
static void test_no_character_is_likelier(void **state)
{
    struct fake_host fake;
    struct err err = {0};
    char id[64];
    int counts[256] = {0}, total = 0;
    fake_host_init(&fake);
    struct host_ops ops = *fake.host.ops;
    ops.random = random_counts;
    fake.host.ops = &ops;
    for (int i = 0; i < 31 * 62; i++) {
        assert_int_equal(host_new_id(&fake.host, "", id, sizeof id, &err), 0);
        for (const char *c = id; *c != '\0'; c++) {
            counts[(uint8_t)*c]++;
            total++;
        }
    }
    for (const char *c = characters; *c != '\0'; c++)
        if (counts[(uint8_t)*c] < total / 62 * 9 / 10 || counts[(uint8_t)*c] > total / 62 * 11 / 10)
            fail_msg("%c: %d of %d", *c, counts[(uint8_t)*c], total);
}

static int random_fails(struct host *host, void *ret_bytes, size_t length, struct err *err)
{
    memset(ret_bytes, 'A', length);
    return err_set(err, ERR_IO, "no random bytes");
}

static void test_without_random_bytes(void **state)
{
    struct fake_host fake;
    struct err err = {0};
    char id[64] = "untouched";
    fake_host_init(&fake);
    struct host_ops ops = *fake.host.ops;
    ops.random = random_fails;
    fake.host.ops = &ops;
    assert_int_equal(host_new_id(&fake.host, "file-", id, sizeof id, &err), -ERR_IO);
    assert_string_equal(id, "untouched");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shape),
        cmocka_unit_test(test_no_character_is_likelier),
        cmocka_unit_test(test_without_random_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
