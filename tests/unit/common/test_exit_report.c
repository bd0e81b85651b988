/* exit_report: a round trip with every kind of end, and files that are not ours. */
#include "common/exit_report.h"
#include "common/io.h"
#include "common/mem.h"
#include "common/wire.h"
#include "tests/lib/folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char test_path[96];

static int setup(void **state)
{
    if (folder_open(state) != 0)
        return -1;
    (void)snprintf(test_path, sizeof test_path, "%s/exit.json", folder);
    return 0;
}

static void test_round_trip(void **state)
{
    struct err err;
    struct exit_report report = {
        .world = LIMIT_RANKS, .first_failed = 3, .stopped_by = "keeper_limit"};
    memset(report.collective, '"', EXIT_COLLECTIVE_BYTES - 1);
    for (int rank = 0; rank < LIMIT_RANKS; rank++)
        report.ranks[rank] = (struct exit_rank){.pid = 1000 + rank, .exit_status = rank};
    report.ranks[1].exit_status = -1;
    report.ranks[1].signal = 9;
    report.ranks[1].has_place = report.ranks[2].has_place = true;
    report.ranks[1].step = INT64_MAX;
    report.ranks[1].phase = WIRE_PHASE_DONE;
    memset(report.ranks[2].last_words, '\x01',
           LIMIT_LAST_WORDS_BYTES - 1); /* the longest in JSON */
    struct exit_report back;
    memset(&back, 0xee, sizeof back);
    assert_int_equal(exit_report_write(test_path, &report, &err), 0);
    assert_int_equal(exit_report_read(test_path, &back, &err), 0);
    assert_int_equal(back.world, LIMIT_RANKS);
    assert_int_equal(back.first_failed, 3);
    assert_string_equal(back.stopped_by, "keeper_limit");
    assert_string_equal(back.collective, report.collective);
    for (int rank = 0; rank < LIMIT_RANKS; rank++) {
        assert_int_equal(back.ranks[rank].pid, report.ranks[rank].pid);
        assert_int_equal(back.ranks[rank].exit_status, report.ranks[rank].exit_status);
        assert_int_equal(back.ranks[rank].signal, report.ranks[rank].signal);
        assert_int_equal(back.ranks[rank].has_place, report.ranks[rank].has_place);
        assert_int_equal(back.ranks[rank].step, report.ranks[rank].step);
        assert_int_equal(back.ranks[rank].phase, report.ranks[rank].phase);
        assert_string_equal(back.ranks[rank].last_words, report.ranks[rank].last_words);
    }
}

static void test_nothing_failed(void **state)
{
    struct err err;
    struct exit_report report = {.world = 1, .first_failed = -1};
    struct exit_report back;
    assert_int_equal(exit_report_write(test_path, &report, &err), 0);
    struct buf text;
    buf_init(&text, 4096);
    assert_int_equal(io_read_file(test_path, 4096, &text, &err), 0);
    assert_non_null(strstr(buf_str(&text), "\"first_failed\": null"));
    assert_non_null(strstr(buf_str(&text), "\"stopped_by\": null"));
    buf_done(&text);
    assert_int_equal(exit_report_read(test_path, &back, &err), 0);
    assert_int_equal(back.first_failed, -1);
    assert_string_equal(back.stopped_by, "");
    assert_int_equal(back.ranks[0].exit_status, 0);
}

static void test_last_words_of_any_bytes(void **state)
{
    struct err err;
    struct exit_report report = {.world = 1, .first_failed = 0};
    memcpy(report.ranks[0].last_words, "caf\xe9", 5);
    struct exit_report back;
    assert_int_equal(exit_report_write(test_path, &report, &err), 0);
    assert_int_equal(exit_report_read(test_path, &back, &err), 0);
    assert_string_equal(back.ranks[0].last_words, "caf?");
}

static void test_hostile_files(void **state)
{
#define RANK "\"rank\":0,\"pid\":1,\"exit\":0,\"signal\":null"
    static const struct {
        const char *text;
        enum err_code code;
    } cases[] = {
        {"", ERR_BAD_JSON},
        {"[]", ERR_CORRUPT},
        {"{}", ERR_CORRUPT},
        {"{\"ranks\":[],\"first_failed\":null,\"stopped_by\":null}", ERR_CORRUPT},
        {"{\"ranks\":[7],\"first_failed\":null,\"stopped_by\":null}", ERR_CORRUPT},
        {"{\"ranks\":[{" RANK "}],\"first_failed\":null,\"stopped_by\":null}", ERR_CORRUPT},
        {"{\"ranks\":[{" RANK ",\"last_words\":null,\"step\":1}],\"first_failed\":null,"
         "\"stopped_by\":null}",
         ERR_CORRUPT},
        {"{\"ranks\":[{" RANK ",\"last_words\":null,\"phase\":\"load\"}],\"first_failed\":null,"
         "\"stopped_by\":null}",
         ERR_CORRUPT},
        {"{\"ranks\":[{" RANK ",\"last_words\":null,\"step\":1,\"phase\":\"resting\"}],"
         "\"first_failed\":null,\"stopped_by\":null}",
         ERR_CORRUPT},
        {"{\"ranks\":[{" RANK ",\"last_words\":null,\"step\":-1,\"phase\":\"load\"}],"
         "\"first_failed\":null,\"stopped_by\":null}",
         ERR_CORRUPT},
        {"{\"ranks\":[{" RANK ",\"last_words\":null}],\"first_failed\":1,\"stopped_by\":null}",
         ERR_CORRUPT},
        {"{\"ranks\":[{" RANK ",\"last_words\":null}],\"first_failed\":null,\"stopped_by\":"
         "\"0123456789abcdef\"}",
         ERR_CORRUPT},
        {"{\"ranks\":[{" RANK ",\"last_words\":null,\"x\":1}],\"first_failed\":null,"
         "\"stopped_by\":null}",
         ERR_CORRUPT},
        {"{\"ranks\":[{\"rank\":1,\"pid\":1,\"exit\":0,\"signal\":null,\"last_words\":null}],"
         "\"first_failed\":null,\"stopped_by\":null}",
         ERR_CORRUPT},
        {"{\"ranks\":[{\"rank\":0,\"pid\":99999999999,\"exit\":0,\"signal\":null,"
         "\"last_words\":null}],\"first_failed\":null,\"stopped_by\":null}",
         ERR_CORRUPT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct err err;
        struct exit_report report = {.world = 77};
        assert_int_equal(io_write_file(test_path, cases[i].text, strlen(cases[i].text), 0600, &err),
                         0);
        int rc = exit_report_read(test_path, &report, &err);
        if (rc != -(int)cases[i].code)
            fail_msg("%s: %d %s", cases[i].text, rc, rc != 0 ? err.text : "");
        assert_non_null(strstr(err.text, test_path));
        assert_int_equal(report.world, 77);
    }
    assert_int_equal(mem_live(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_nothing_failed),
        cmocka_unit_test(test_last_words_of_any_bytes),
        cmocka_unit_test(test_hostile_files),
    };
    return cmocka_run_group_tests(tests, setup, folder_close);
}
