/* cmd_completion: the scripts that shells read, and `ithaca complete`, which the scripts ask. A
 * daemon that does not answer within a second, or none, means no ids: a key was pressed, nobody
 * wants to read an error. */
#include "clients/cli/cli.h"
#include "clients/cli/client.h"
#include "clients/cli/complete.h"
#include "common/mem.h"

#include <stdio.h>
#include <string.h>

enum { COMPLETION_ANSWER_MS = 1000, COMPLETION_TEXT_BYTES = 4 << 20 };

/* bash splits words at '=' and ':' and puts a candidate after the last of them, so the line is
 * split here, and of a candidate comes what is after the last one. */
static const char completion_bash[] =
    "# bash completion of ithaca, printed by: ithaca completion bash\n"
    "_ithaca() {\n"
    "    local line=${COMP_LINE:0:COMP_POINT} candidate doc typed before\n"
    "    local -a words\n"
    "    read -ra words <<< \"$line\"\n"
    "    [[ $line == *[[:space:]] ]] && words+=(\"\")\n"
    "    typed=${words[${#words[@]}-1]}\n"
    "    before=${typed%\"${typed##*[=:]}\"}\n"
    "    COMPREPLY=()\n"
    "    while IFS=$'\\t' read -r candidate doc; do\n"
    "        case $candidate in\n"
    "        :files) compopt -o filenames 2> /dev/null\n"
    "            while IFS= read -r doc; do COMPREPLY+=(\"$doc\"); done \\\n"
    "                < <(compgen -f -- \"${typed#--*=}\") ;;\n"
    "        :folders) compopt -o filenames 2> /dev/null\n"
    "            while IFS= read -r doc; do COMPREPLY+=(\"$doc\"); done \\\n"
    "                < <(compgen -d -- \"${typed#--*=}\") ;;\n"
    "        *) [[ $candidate == *= ]] && compopt -o nospace 2> /dev/null\n"
    "            COMPREPLY+=(\"${candidate#\"$before\"}\") ;;\n"
    "        esac\n"
    "    done < <(\"$1\" complete -- \"${words[@]:1}\" 2> /dev/null)\n"
    "}\n"
    "complete -F _ithaca ithaca\n";

static const char completion_zsh[] =
    "#compdef ithaca\n"
    "# zsh completion of ithaca, printed by: ithaca completion zsh\n"
    "_ithaca() {\n"
    "    local line candidate\n"
    "    local -a described\n"
    "    for line in \"${(@f)$(${words[1]} complete -- \"${(@)words[2,CURRENT]}\" 2> "
    "/dev/null)}\"; do\n"
    "        candidate=${line%%$'\\t'*}\n"
    "        case $candidate in\n"
    "        '') ;;\n"
    "        :files) _files ;;\n"
    "        :folders) _files -/ ;;\n"
    "        *=) compadd -S '' -- \"$candidate\" ;;\n"
    "        *) described+=(\"${candidate//:/\\\\:}:${line#*$'\\t'}\") ;;\n"
    "        esac\n"
    "    done\n"
    "    (( ${#described} )) && _describe ithaca described\n"
    "}\n"
    "if [[ ${funcstack[1]} == _ithaca ]]; then _ithaca \"$@\"; else compdef _ithaca ithaca; fi\n";

static const char completion_fish[] =
    "# fish completion of ithaca, printed by: ithaca completion fish\n"
    "function __ithaca_complete\n"
    "    set -l words (commandline -opc)\n"
    "    set -l token (commandline -ct)\n"
    "    for line in (command $words[1] complete -- $words[2..-1] \"$token\" 2> /dev/null)\n"
    "        switch $line\n"
    "            case :files\n"
    "                __fish_complete_path \"$token\"\n"
    "            case :folders\n"
    "                __fish_complete_directories \"$token\"\n"
    "            case '*'\n"
    "                echo $line\n"
    "        end\n"
    "    end\n"
    "end\n"
    "complete -c ithaca -f -a '(__ithaca_complete)'\n";

int cmd_completion(struct cli *cli, struct err *err)
{
    const char *shell = NULL;
    TRY(cli_take_verb(cli, &shell, err));
    TRY(cli_finish_arguments(cli, err));
    (void)fputs(strcmp(shell, "bash") == 0  ? completion_bash
                : strcmp(shell, "zsh") == 0 ? completion_zsh
                                            : completion_fish,
                stdout);
    return 0;
}

/* ---- what a daemon knows ---- */

static const struct completion_list {
    const char *path; /* of a list; NULL: there is none */
    const char *doc;  /* member of an item that says what it is */
} completion_lists[COMMAND_VALUE_COUNT] = {
    [COMMAND_VALUE_JOB] = {.path = "/v1/fine_tuning/jobs?limit=200", .doc = "status"},
    [COMMAND_VALUE_MODEL] = {.path = "/v1/models", .doc = "object"},
    [COMMAND_VALUE_GPU] = {.path = "/v1/gpus", .doc = "state"},
    [COMMAND_VALUE_FILE_ID] = {.path = "/v1/files?limit=200", .doc = "filename"},
    [COMMAND_VALUE_EXPERIMENT] = {.path = "/v1/experiments?limit=200", .doc = "name"},
    [COMMAND_VALUE_TOKEN] = {.path = "/v1/tokens?limit=200", .doc = "user"},
};

static int completion_fetch(struct cli *cli, const struct complete_line *line,
                            enum command_value value, json_t **ret, struct err *err)
{
    struct client *client = NULL;
    CLEANUP(mem_free_ptr) char *path = NULL;
    if (value == COMMAND_VALUE_CHECKPOINT && line->argument != NULL)
        path = client_path("/v1/fine_tuning/jobs/", line->argument, "/checkpoints?limit=200");
    else if (completion_lists[value].path != NULL)
        path = mem_strdup(completion_lists[value].path);
    if (path == NULL)
        return err_set(err, ERR_NOT_FOUND, "there is nothing to ask for");
    cli->url = line->url != NULL ? line->url : cli->url;
    cli->data_dir = line->data_dir != NULL ? line->data_dir : cli->data_dir;
    cli->cacert = line->cacert != NULL ? line->cacert : cli->cacert;
    TRY(cli_client(cli, &client, err));
    client_set_limit(client, COMPLETION_ANSWER_MS);
    return client_json(client, NULL, path, NULL, ret, err);
}

static void completion_ask(void *context, const struct complete_line *line,
                           enum command_value value, struct complete_out *out)
{
    struct err unsaid;
    CLEANUP(json_unref) json_t *list = NULL;
    if (completion_fetch(context, line, value, &list, &unsaid) != 0)
        return;
    size_t i;
    const json_t *item;
    json_array_foreach(json_object_get(list, "data"), i, item)
    {
        const char *id = json_string_value(json_object_get(item, "id"));
        const char *doc = completion_lists[value].doc;
        if (id != NULL && strpbrk(id, "\t\n") == NULL)
            complete_offer(out, id,
                           doc != NULL ? json_string_value(json_object_get(item, doc)) : NULL);
    }
}

int cmd_complete(struct cli *cli, struct err *err)
{
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, COMPLETION_TEXT_BYTES);
    complete_words(cli->argv, (size_t)cli->argc, completion_ask, cli, &text);
    return cli_print_text(&text, err);
}
