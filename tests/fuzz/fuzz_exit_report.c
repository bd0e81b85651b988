/* fuzz_exit_report: exit.json of an attempt. A report that is read is the same when it is written
 * and read again. */
#include "common/exit_report.h"
#include "common/mem.h"
#include "common/must.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct exit_report report, again; /* large */
    int64_t live = mem_live();
    struct err err = {.code = ERR_NONE};
    int rc = exit_report_read(fuzz_file(data, size), &report, &err);
    if (rc == 0) {
        fuzz_taken++;
        must(report.world >= 1 && report.world <= LIMIT_RANKS);
        must(report.first_failed >= -1 && report.first_failed < (int32_t)report.world);
        must(exit_report_write(fuzz_path("exit.json"), &report, &err) == 0);
        must(exit_report_read(fuzz_path("exit.json"), &again, &err) == 0);
        must(again.world == report.world && again.first_failed == report.first_failed);
        must(strcmp(again.stopped_by, report.stopped_by) == 0);
        for (uint32_t rank = 0; rank < report.world; rank++) {
            const struct exit_rank *a = &report.ranks[rank], *b = &again.ranks[rank];
            must(a->pid == b->pid && a->exit_status == b->exit_status && a->signal == b->signal);
            must(strcmp(a->last_words, b->last_words) == 0);
            must(a->has_place == b->has_place && a->step == b->step && a->phase == b->phase);
        }
    } else {
        fuzz_refused(rc, &err);
    }
    must(mem_live() == live);
    return 0;
}
