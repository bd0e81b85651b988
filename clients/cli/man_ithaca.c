/* man_ithaca: ithaca(1), from commands.def and api/errors.def. */
#include "clients/cli/command.h"
#include "clients/cli/man.h"
#include "common/err.h"

#include <stdio.h>

enum { MAN_TEXT_BYTES = 1024, MAN_EXITS = 128 };

/* "--limit N" */
static void man_row(const struct command_row *row, struct buf *out)
{
    char label[COMMAND_LABEL_BYTES];
    command_label(row, label);
    man_item(label, row->doc, out);
}

/* A command: its synopsis, what it does, its rows indented. */
static void man_command(const struct command_row *command, struct buf *out)
{
    man_row(command, out);
    if (!command_has(command + 1))
        return;
    buf_text(out, ".RS\n");
    for (const struct command_row *row = command + 1; command_has(row); row++) {
        if (row->kind == COMMAND_KIND_NOTE)
            man_paragraph(row->doc, out);
        else
            man_row(row, out);
    }
    buf_text(out, ".RE\n");
}

static void man_commands(struct buf *out)
{
    const struct command_row *row = NULL;
    while ((row = command_next_shown(row)) != NULL) {
        if (row->kind == COMMAND_KIND_GROUP)
            man_group(row->name, out);
        else
            man_command(row, out);
    }
}

static void man_general(enum command_kind kind, struct buf *out)
{
    for (const struct command_row *row = command_rows; command_has(row); row++) {
        if (row->kind != kind)
            continue;
        if (kind == COMMAND_KIND_NOTE)
            man_paragraph(row->doc, out);
        else
            man_row(row, out);
    }
}

/* Errors with the same status under one number. */
static void man_exits(struct buf *out)
{
    static const struct {
        int exit;
        const char *name, *doc;
    } rows[] = {
#define X(name, code, http, type, exit_code, text) {exit_code, code, text},
#include "api/errors.def"
#undef X
    };
    man_item("0", "It is done; of `watch` and `submit --follow`: the job succeeded.", out);
    for (int exit = 1; exit < MAN_EXITS; exit++) {
        bool begun = false;
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
            char label[16], text[MAN_TEXT_BYTES];
            if (rows[i].exit != exit)
                continue;
            (void)snprintf(label, sizeof label, "%d", exit);
            (void)snprintf(text, sizeof text, "`%s`: %s", rows[i].name, rows[i].doc);
            if (begun)
                man_line(text, out);
            else
                man_item(label, text, out);
            begun = true;
        }
    }
}

void man_ithaca(struct buf *out)
{
    man_section("SYNOPSIS", out);
    man_text_line("`ithaca` [options] COMMAND ...", out);
    man_section("DESCRIPTION", out);
    man_text_line(
        "`ithaca` is the command line of Ithaca, which fine-tunes language models on very long "
        "contexts on one node of GPUs. It submits jobs to the daemon `ithacad`, follows them "
        "and fetches what they made; `plan`, `ladder`, `calibrate` and `doctor` need no "
        "daemon.",
        out);
    man_general(COMMAND_KIND_NOTE, out);
    man_section("OPTIONS", out);
    man_text_line("Of all commands:", out);
    man_general(COMMAND_KIND_OPTION, out);
    man_section("COMMANDS", out);
    man_commands(out);
    man_section("ENVIRONMENT", out);
    man_general(COMMAND_KIND_VARIABLE, out);
    man_section("EXIT STATUS", out);
    man_exits(out);
    man_section("EXAMPLES", out);
    man_example("ithaca plan --model llama3-8b --seq-len 64K --gpus 8 --memory 80GB\n"
                "ithaca submit --model tiny-llama --training-file train.jsonl --set seq_len=512 "
                "--follow\n"
                "ithaca sample --job JOB --prompt \"Where do the ships anchor?\"\n",
                out);
}
