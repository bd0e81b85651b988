/* cmd_ladder: what each technique saves of a job's memory, and costs of its time. */
#include "clients/cli/local_measure.h"
#include "clients/cli/plan_command.h"
#include "common/mem.h"
#include "common/mem_ladder.h"

#include <stdio.h>

/* A step of each bar that fits, in turn. One sequence a rank, unless more are asked for. */
static int ladder_measure(const struct cli *cli, const struct plan_command *command,
                          struct mem_ladder *ladder, struct err *err)
{
    for (int i = 0; i < MEM_LADDER_BARS; i++) {
        struct mem_ladder_bar *bar = &ladder->bars[i];
        if (!bar->legal)
            continue;
        if (!cli->json)
            (void)fprintf(stderr, "measuring %d of %d: %s\n", i + 1, MEM_LADDER_BARS, bar->name);
        TRY(local_measure(&command->ask, &bar->estimate, command->steps, &bar->measured, err));
    }
    return 0;
}

static int ladder_run(struct cli *cli, struct plan_command *command, struct err *err)
{
    CLEANUP(mem_ladder_done) struct mem_ladder ladder = {0};
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, PLAN_TEXT_BYTES);
    TRY(plan_command_read(cli, command, err));
    const json_t *batch = json_object_get(json_object_get(command->job, "ithaca"), "batch");
    if (command->run && json_object_get(batch, "sequences") == NULL)
        command->spec.sequences = command->spec.gpus;
    TRY(mem_ladder_make(&command->ask, &ladder, err));
    if (command->run)
        TRY(ladder_measure(cli, command, &ladder, err));
    if (cli->json) {
        CLEANUP(json_unref) json_t *json = mem_ladder_json(&ladder);
        return json == NULL ? mem_fail(err, 0, "the ladder") : cli_print_json(json, err);
    }
    mem_ladder_text(&ladder, &text);
    return cli_print_text(&text, err);
}

int cmd_ladder(struct cli *cli, struct err *err)
{
    CLEANUP(plan_command_done) struct plan_command command = {0};
    return ladder_run(cli, &command, err);
}
