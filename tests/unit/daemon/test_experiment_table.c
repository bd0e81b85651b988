/* experiment_table, experiment_chart: rows from what is stored, and each form of them. */
#include "daemon/experiment_table.h"

#include "common/mem.h"
#include "daemon/experiment_chart.h"
#include "tests/lib/cmocka.h"

#include <string.h>

static struct err err;

#define FACTS                                                                                 \
    "{\"series\":0,\"slots\":2,\"label\":\"a | \\\"b\\\", "                                   \
    "<c>\",\"model\":\"m\",\"seq_len\":131072,"                                               \
    "\"gpus\":2,\"rehearsed\":false,\"method\":\"ring\",\"planned_device_bytes\":2147483648," \
    "\"planned_host_bytes\":0,\"planned_step_s\":1.5,"                                        \
    "\"planned_tokens_per_s_gpu\":1000,\"planned_run_s\":3}"
#define MEASURED                                                                          \
    "{\"tokens_per_s_gpu\":1234.5678,\"mfu_causal\":0.25,\"mfu_full\":null,\"step_s\":1," \
    "\"predicted_step_s\":2,\"device_bytes\":7,\"taken_bytes\":1073741824,\"host_bytes\":0}"

static json_t *row_of(const char *facts, const char *measured, const char *status,
                      const char *job_state)
{
    const struct store_point_row point = {.number = 3,
                                          .status = status,
                                          .note = "two\nlines",
                                          .facts_json = facts,
                                          .body_json = "{}",
                                          .job_id = "",
                                          .measured_json = measured};
    json_t *row = NULL;
    if (experiment_table_row(&point, job_state, &row, &err) != 0)
        return NULL;
    return row;
}

static double number(const json_t *row, const char *column)
{
    return json_number_value(json_object_get(row, column));
}

static void test_row(void **state)
{
    CLEANUP(json_unref) json_t *row = row_of(FACTS, MEASURED, "succeeded", "");
    assert_non_null(row);
    assert_true(number(row, "number") == 3 && number(row, "tokens_per_s_gpu") == 1234.5678);
    assert_true(number(row, "step_s") == 2);            /* with the network */
    assert_true(number(row, "device_bytes") == 0x1p30); /* of the whole device */
    assert_true(json_is_null(json_object_get(row, "mfu_full")));
    assert_true(json_is_null(json_object_get(row, "job")));
    assert_null(json_object_get(row, "series")); /* no column */
    CLEANUP(json_unref)
    json_t *cpu = row_of(FACTS, "{\"device_bytes\":7,\"taken_bytes\":0}", "submitted", "running");
    assert_true(number(cpu, "device_bytes") == 7);
    assert_string_equal(json_string_value(json_object_get(cpu, "status")), "running");
    CLEANUP(json_unref) json_t *waits = row_of(FACTS, "", "waiting", "");
    assert_true(json_is_null(json_object_get(waits, "step_s")));
    assert_true(number(waits, "planned_step_s") == 1.5);
    assert_int_equal(json_object_size(waits), json_object_size(row));
    assert_null(row_of("{", "", "waiting", ""));
    assert_int_equal(err.code, ERR_BAD_JSON);
    CLEANUP(json_unref) json_t *schema = experiment_table_schema();
    assert_int_equal(json_object_size(json_object_get(schema, "properties")),
                     json_object_size(row));
}

static json_t *two_rows(void)
{
    json_t *rows = json_array();
    assert_int_equal(json_array_append_new(rows, row_of(FACTS, MEASURED, "succeeded", "")), 0);
    assert_int_equal(json_array_append_new(rows, row_of(FACTS, "", "waiting", "")), 0);
    return rows;
}

static void test_tables(void **state)
{
    CLEANUP(json_unref) json_t *rows = two_rows();
    struct buf out;
    buf_init(&out, 1 << 20);
    experiment_table_csv(rows, &out);
    assert_int_equal(buf_error(&out, &err), 0);
    assert_memory_equal(buf_str(&out), "number,model,seq_len,label,", 27);
    assert_non_null(strstr(buf_str(&out),
                           "\r\n3,m,131072,\"a | \"\"b\"\", <c>\",ring,2,false,succeeded,"
                           "1234.5678,1000,0.25,,2,1.5,3,1073741824,2147483648,0,0,,"
                           "\"two\nlines\"\r\n"));
    buf_clear(&out);
    experiment_table_markdown(rows, &out);
    assert_int_equal(buf_error(&out, &err), 0);
    assert_non_null(strstr(buf_str(&out), "| a \\| \"b\", <c> | ring | 2 |  | succeeded | 1234.6 | "
                                          "25.0 % |  | 2 | 1 | 2 | 0 | 0 |  | two lines |\n"));
    size_t lines = 0, bars = 0;
    for (const char *at = buf_str(&out); *at != '\0'; at++) {
        lines += *at == '\n';
        bars += *at == '|' && (at == buf_str(&out) || at[-1] != '\\');
    }
    assert_int_equal(lines, 4);
    assert_int_equal(bars % lines, 0); /* as many cells in each */
    buf_done(&out);
}

static size_t count_of(const char *text, const char *what)
{
    size_t count = 0;
    while ((text = strstr(text, what)) != NULL) {
        count++;
        text++;
    }
    return count;
}

/* A dot a measured value, escaped words, no figures without numbers. */
static void test_chart(void **state)
{
    CLEANUP(json_unref) json_t *rows = two_rows();
    CLEANUP(json_unref) json_t *none = json_array();
    struct buf out;
    buf_init(&out, 1 << 20);
    experiment_chart_svg(rows, &out);
    assert_int_equal(buf_error(&out, &err), 0);
    assert_int_equal(count_of(buf_str(&out), "<circle"), 2); /* speed, memory */
    assert_int_equal(count_of(buf_str(&out), "<title>"), 3);
    assert_non_null(strstr(buf_str(&out), "a | \"b\", &#60;c&#62;, 128K: 1234.6"));
    assert_null(strstr(buf_str(&out), "nan"));
    buf_clear(&out);
    experiment_chart_svg(none, &out);
    assert_int_equal(buf_error(&out, &err), 0);
    assert_null(strstr(buf_str(&out), "nan"));
    assert_null(strstr(buf_str(&out), "inf"));
    buf_done(&out);
}

/* What cannot run does not press the rest to the ground; alone it has a scale of its own. */
static void test_scale(void **state)
{
    const char *large = "{\"label\":\"\",\"model\":\"m\",\"seq_len\":262144,"
                        "\"planned_device_bytes\":322122547200}"; /* 300 GiB */
    CLEANUP(json_unref) json_t *rows = two_rows();
    CLEANUP(json_unref) json_t *alone = json_array();
    struct buf out;
    buf_init(&out, 1 << 20);
    json_t *row = row_of(large, "", STORE_POINT_NO_ROOM, "");
    assert_int_equal(json_array_append(rows, row) | json_array_append_new(alone, row), 0);
    experiment_chart_svg(rows, &out);
    assert_int_equal(buf_error(&out, &err), 0);
    assert_non_null(strstr(buf_str(&out), ">2.5</text>"));
    assert_null(strstr(buf_str(&out), ">100</text>"));
    assert_int_equal(count_of(buf_str(&out), "clip-path"), 2);
    buf_clear(&out);
    experiment_chart_svg(alone, &out);
    if (strstr(buf_str(&out), ">100</text>") == NULL)
        fail_msg("%s", buf_str(&out));
    buf_done(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_row),
        cmocka_unit_test(test_tables),
        cmocka_unit_test(test_chart),
        cmocka_unit_test(test_scale),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
