/* cmd_preview: the first rows of a training file as the model will see them. */
#include "clients/cli/cli.h"
#include "clients/cli/job_body.h"
#include "common/mem.h"

#include <stdio.h>
#include <string.h>

static const char *preview_text(const json_t *row, const char *key)
{
    const char *text = json_string_value(json_object_get(row, key));
    return text != NULL ? text : "";
}

/* Control characters as escapes, so that a run is one line. */
static void preview_print_escaped(const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == '\n')
            (void)fputs("\\n", stdout);
        else if ((unsigned char)*text < 0x20 || *text == 0x7f)
            (void)printf("\\x%02x", (unsigned)(unsigned char)*text);
        else
            (void)putchar(*text);
    }
}

static void preview_print_row(const json_t *row)
{
    size_t i;
    const json_t *run, *role, *roles = json_object_get(row, "roles");
    const json_t *runs = json_object_get(row, "runs");
    if (runs == NULL) {
        (void)printf("line %lld: not used: %s: %s\n", cli_whole(row, "line"),
                     preview_text(row, "code"), preview_text(row, "message"));
        return;
    }
    (void)printf("line %lld:", cli_whole(row, "line"));
    json_array_foreach((json_t *)roles, i, role)(void)
        printf("%s %s", i > 0 ? "," : "", json_string_value(role));
    (void)printf("%s %lld tokens, %lld trained", json_array_size(roles) > 0 ? ";" : "",
                 cli_whole(row, "tokens"), cli_whole(row, "trained_tokens"));
    if (cli_whole(row, "used_tokens") < cli_whole(row, "tokens"))
        (void)printf(", cut at %lld", cli_whole(row, "used_tokens"));
    if (cli_whole(row, "sequences") > 1)
        (void)printf(", in %lld sequences", cli_whole(row, "sequences"));
    (void)putchar('\n');
    json_array_foreach((json_t *)runs, i, run) /* reads only; it wants non-const */
    {
        (void)printf("  %s %6lld  ", json_is_true(json_object_get(run, "trained")) ? "+" : " ",
                     cli_whole(run, "tokens"));
        preview_print_escaped(preview_text(run, "text"));
        (void)putchar('\n');
    }
}

static int preview_body(struct cli *cli, json_t *job, struct err *err)
{
    const char *file = cli_take_option(cli, "--training-file");
    const char *rows = cli_take_option(cli, "--rows");
    CLEANUP(mem_free_ptr) char *id = NULL;
    TRY(job_body_options(cli, job, err));
    if (file == NULL)
        file = json_string_value(json_object_get(job, "training_file"));
    if (file == NULL)
        return err_set(err, ERR_USAGE, "--training-file FILE is missing");
    TRY(cli_finish_arguments(cli, err));
    TRY(cmd_files_resolve(cli, file, &id, err));
    TRY(job_body_set_string(job, "training_file", id, err));
    if (rows == NULL)
        return 0;
    json_t *number = NULL;
    TRY(json_parse(rows, strlen(rows), "--rows", &number, err));
    return json_object_set_new(job, "rows", number) == 0 ? 0 : mem_fail(err, 0, "the request");
}

int cmd_preview(struct cli *cli, struct err *err)
{
    CLEANUP(json_unref) json_t *job = NULL;
    CLEANUP(json_unref) json_t *answer = NULL;
    TRY(job_body_start(cli, &job, err));
    TRY(preview_body(cli, job, err));
    TRY(cli_ask(cli, "POST", "/v1/fine_tuning/preview", job, &answer, err));
    if (cli->json)
        return cli_print_json(answer, err);
    size_t i;
    const json_t *row;
    const json_t *rows = json_object_get(answer, "rows");
    if (!json_is_array(rows))
        return err_set(err, ERR_PROTOCOL, "the server's answer has no rows");
    const char *template = preview_text(answer, "template");
    (void)printf("template %s; + is trained\n", template[0] != '\0' ? template : "none");
    json_array_foreach((json_t *)rows, i, row) preview_print_row(row);
    if (json_is_true(json_object_get(answer, "more")))
        (void)fputs("there are more rows: --rows N shows up to 50\n", stderr);
    return 0;
}
