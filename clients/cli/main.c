/* main: `ithaca`, the command line. Picks the command, prints the error, ends with its status. */
#include "clients/cli/cli.h"
#include "clients/cli/client.h"

#include <curl/curl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct cli_command cli_commands[] = {
    {.name = "submit",
     .usage = "submit [JOB.json] [options]",
     .summary = "submit a fine-tuning job",
     .details = "  --model NAME             base model (required unless in JOB.json)\n"
                "  --training-file FILE     a local file (uploaded first) or a file id\n"
                "  --validation-file FILE   likewise\n"
                "  --set FIELD=VALUE        any field of `ithaca`, e.g. --set batch.sequences=8 "
                "(see `ithaca "
                "fields`)\n"
                "  --follow                 watch the job to its end\n",
     .run = cmd_submit},
    {.name = "resubmit",
     .usage = "resubmit JOB [options]",
     .summary = "submit a job again, with changes",
     .details = "Options of `ithaca submit`: what they name is changed, e.g. --set gpus=4,\n"
                "--set lora=null. Fields that were \"auto\" then are chosen anew. max_steps takes\n"
                "the place of the older job's epochs.\n",
     .run = cmd_resubmit},
    {.name = "preview",
     .usage = "preview [JOB.json] --model NAME --training-file FILE [--rows N]",
     .summary = "the first rows of a file as the model will see them",
     .details =
         "  --model NAME             base model (required unless in JOB.json)\n"
         "  --training-file FILE     a local file (uploaded first) or a file id\n"
         "  --rows N                 5 where not given, at most 50\n"
         "  --set FIELD=VALUE        e.g. --set seq_len=32768, --set data.overlength=chunk\n",
     .run = cmd_preview},
    {.name = "ls", .usage = "ls [--limit N]", .summary = "list jobs, newest first", .run = cmd_ls},
    {.name = "show", .usage = "show JOB", .summary = "show one job", .run = cmd_show},
    {.name = "watch",
     .usage = "watch JOB",
     .summary = "follow a job to its end",
     .details = "Ends with the job's status: 0 when it succeeded.\n",
     .run = cmd_watch},
    {.name = "events",
     .usage = "events JOB [--limit N]",
     .summary = "events of a job, oldest first",
     .run = cmd_events},
    {.name = "logs",
     .usage = "logs JOB [--rank R] [--attempt N]",
     .summary = "print the end of a rank's output (64 KiB)",
     .run = cmd_logs},
    {.name = "cancel", .usage = "cancel JOB", .summary = "cancel a job", .run = cmd_cancel},
    {.name = "rm",
     .usage = "rm JOB",
     .summary = "delete a job that has ended, with its model, checkpoints and metrics",
     .run = cmd_rm},
    {.name = "pause",
     .usage = "pause JOB",
     .summary = "write a checkpoint and free the job's slots",
     .run = cmd_pause},
    {.name = "resume",
     .usage = "resume JOB [--checkpoint ID]",
     .summary = "queue a paused or failed job again",
     .details = "  --checkpoint ID          go on from this one (see `ithaca checkpoints`); newer "
                "ones are given up\n"
                "A job that failed can be resumed when it has a checkpoint; time_limit_s and\n"
                "max_restarts are then counted from zero.\n",
     .run = cmd_resume},
    {.name = "hold", .usage = "hold JOB", .summary = "keep a job from starting", .run = cmd_hold},
    {.name = "release",
     .usage = "release JOB",
     .summary = "let a job that is held start",
     .run = cmd_release},
    {.name = "update",
     .usage = "update JOB --set FIELD=VALUE ...",
     .summary = "change a job that has not ended",
     .details = "Fields: priority, time_limit_s, max_restarts, preemptible, hold, depends_on, "
                "tags.\n",
     .run = cmd_update},
    {.name = "queue",
     .usage = "queue [drain | undrain]",
     .summary = "what runs and what waits, why and until when",
     .details = "drain: no job starts until undrain, whatever daemon runs; running jobs go on.\n",
     .run = cmd_queue},
    {.name = "checkpoints",
     .usage = "checkpoints JOB",
     .summary = "list a job's checkpoints, newest first",
     .run = cmd_checkpoints},
    {.name = "download",
     .usage = "download JOB [--checkpoint ID] --output DIR",
     .summary = "fetch the tuned model, or a checkpoint",
     .details = "DIR becomes a Hugging Face folder; it appears when it is whole.\n",
     .run = cmd_download},
    {.name = "sample",
     .usage = "sample (--job JOB | --model NAME) --prompt TEXT [--system TEXT] [--max-tokens N]",
     .summary = "ask a tuned or a base model",
     .run = cmd_sample},
    {.name = "models",
     .usage = "models",
     .summary = "list base and tuned models",
     .run = cmd_models},
    {.name = "files",
     .usage = "files (upload PATH | ls | show ID | get ID [--output PATH] | rm ID)",
     .summary = "training files",
     .run = cmd_files},
    {.name = "tokens",
     .usage = "tokens (create --user NAME [options] | list | revoke ID)",
     .summary = "API tokens of users (for admins)",
     .details = "  --user NAME              whose jobs and files the token sees and makes\n"
                "  --scope SCOPE            read, submit (default) or admin, which sees all\n"
                "  --name TEXT              what it is for\n"
                "  --days N                 ends after N days; else never\n"
                "The secret is shown once. Its user sets ITHACA_TOKEN to it.\n",
     .run = cmd_tokens},
    {.name = "whoami",
     .usage = "whoami",
     .summary = "user and scope of the token",
     .run = cmd_whoami},
    {.name = "gpus",
     .usage = "gpus [drain ID | undrain ID]",
     .summary = "what jobs run on, who has it, and how it is",
     .details = "drain: it is given to no further job; undrain: it is given out again, also one "
                "that\nwas set aside because it failed.\n",
     .run = cmd_gpus},
    {.name = "plan",
     .usage =
         "plan [JOB.json] [--model NAME|DIR] [--seq-len N] [--gpus N] [--memory CARD] [options]",
     .summary = "what a job takes of memory and time (no daemon needed)",
     .details =
         "  --model NAME|DIR         llama3-8b, qwen3-32b ..., tiny-llama, or a model's folder\n"
         "  --seq-len N              tokens; 512K and 3M are understood\n"
         "  --memory CARD            80GB, 141GB ... or a number of GiB: whether it fits\n"
         "  --host-memory GIB        of the machine, for all ranks together\n"
         "  --set FIELD=VALUE        any field of `ithaca`; what is not served yet is planned "
         "too\n"
         "  --backend NAME           cuda (attention through cuDNN), cuda_own (kernels without\n"
         "                           its buffers) or cpu\n"
         "  --auto                   the fastest settings that fit, of those left \"auto\"\n"
         "  --run [--steps N]        run N steps (3, at most 100) here, with random weights: time "
         "and memory\n"
         "  --max-seq-len            the longest sequence that fits\n"
         "  --document-tokens N      documents of N tokens are packed; else one fills a sequence\n"
         "  --buffers                with --json: every buffer\n",
     .run = cmd_plan},
    {.name = "ladder",
     .usage = "ladder --model NAME|DIR --seq-len N --gpus N [--memory CARD] [--run]",
     .summary = "what each technique saves of a job's memory",
     .details =
         "  --run                    measure each bar that fits on this machine: short runs\n"
         "                           of a few steps, one sequence a rank (--set\n"
         "                           batch.sequences=N for more); let nothing else run\n"
         "Options of `ithaca plan` say what model and machine.\n",
     .run = cmd_ladder},
    {.name = "calibrate",
     .usage = "calibrate [--seconds N] [--ranks N] [--backend cpu|cuda]",
     .summary = "measure this machine, for predicted times (no daemon needed)",
     .details = "  --seconds N              to take, about; 40 unless given\n"
                "  --ranks N                for jobs of N ranks; else of 1, 2, 4 ...\n"
                "Into calibration.json in the data folder (--data-dir), where `ithaca plan` and\n"
                "the daemon find it. Let nothing else run meanwhile.\n",
     .run = cmd_calibrate},
    {.name = "doctor",
     .usage = "doctor",
     .summary = "what this machine offers to training, on one page (no daemon needed)",
     .details = "GPUs, driver and libraries, shared memory, limits, the disk of the data folder\n"
                "(--data-dir). Ends with 0 where nothing will make jobs fail.\n",
     .run = cmd_doctor},
    {.name = "fields",
     .usage = "fields",
     .summary = "list every field of a job with default and range",
     .run = cmd_fields},
};
const size_t cli_command_count = sizeof cli_commands / sizeof cli_commands[0];

static void main_help(FILE *out)
{
    (void)fprintf(
        out,
        "ithaca %s: fine-tune language models on very long contexts\n\n"
        "usage: ithaca [--url URL] [--data-dir DIR] [--cacert FILE] [--json] COMMAND ...\n\n",
        ITHACA_VERSION);
    for (size_t i = 0; i < cli_command_count; i++)
        (void)fprintf(out, "  %-11s %s\n", cli_commands[i].name, cli_commands[i].summary);
    (void)fprintf(
        out, "\n`ithaca COMMAND --help` shows a command's options.\n"
             "The daemon is found by --url, ITHACA_URL, or the file `url` in its data directory;\n"
             "the token by ITHACA_TOKEN or `admin.token` there. --url unix:PATH is its Unix\n"
             "socket, which needs no token; --cacert (ITHACA_CACERT) trusts a certificate.\n");
}

static void main_command_help(const struct cli_command *command)
{
    (void)printf("usage: ithaca %s\n\n%s\n", command->usage, command->summary);
    if (command->details != NULL)
        (void)printf("\n%s", command->details);
}

static void main_report(const struct cli *cli, const struct err *err)
{
    if (!cli->json) {
        (void)fprintf(stderr, "ithaca: %s\n", err->text);
        return;
    }
    json_t *error =
        json_pack("{s:{s:s, s:s, s:s?, s:s}}", "error", "message", err->text, "type",
                  err_code_type(err->code), "param", err->field[0] != '\0' ? err->field : NULL,
                  "code", err_code_name(err->code));
    char *text = json_dumps(error, JSON_COMPACT);
    (void)fprintf(stderr, "%s\n", text != NULL ? text : err->text);
    free(text);
    json_decref(error);
}

static int main_run(struct cli *cli, struct err *err)
{
    TRY(cli_take_option(cli, "--url", &cli->url, err));
    TRY(cli_take_option(cli, "--data-dir", &cli->data_dir, err));
    TRY(cli_take_option(cli, "--cacert", &cli->cacert, err));
    cli->json = cli_take_flag(cli, "--json");
    if (cli->url == NULL)
        cli->url = cli_environment("ITHACA_URL");
    if (cli->data_dir == NULL)
        cli->data_dir = cli_environment("ITHACA_DATA_DIR");
    if (cli->cacert == NULL)
        cli->cacert = cli_environment("ITHACA_CACERT");
    if (cli_take_flag(cli, "--version")) {
        (void)printf("ithaca %s\n", ITHACA_VERSION);
        return 0;
    }
    bool help = cli_take_flag(cli, "--help");
    if (cli->argc == 0 && help) {
        main_help(stdout);
        return 0;
    }
    const char *name = NULL;
    TRY(cli_take_argument(cli, "a command (see `ithaca --help`)", &name, err));
    const struct cli_command *command = cli_command_find(name);
    if (command == NULL)
        return err_set(err, ERR_USAGE, "unknown command %s (see `ithaca --help`)", name);
    if (help) {
        main_command_help(command);
        return 0;
    }
    int rc = command->run(cli, err);
    if (rc == -ERR_USAGE)
        return err_wrap(err, rc, "%s: ", command->name);
    return rc;
}

int main(int argc, char **argv)
{
    struct cli cli = {.argc = argc - 1, .argv = argv + 1};
    struct err err = {.code = ERR_NONE};
    (void)signal(SIGPIPE, SIG_DFL); /* a closed pipe ends us quietly, as it does other filters */
    (void)curl_global_init(CURL_GLOBAL_DEFAULT);
    int rc = main_run(&cli, &err);
    if ((fflush(stdout) != 0 || ferror(stdout)) && rc == 0)
        rc = err_set(&err, ERR_IO, "standard output cannot be written");
    if (rc != 0)
        main_report(&cli, &err);
    client_free(cli.client);
    curl_global_cleanup();
    return rc == 0 ? 0 : err_code_exit(err.code);
}
