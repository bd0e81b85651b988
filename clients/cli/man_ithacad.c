/* man_ithacad: ithacad(8), from api/settings.def. */
#include "clients/cli/man.h"

#include <stdio.h>

enum { MAN_SETTING_BYTES = 1024 };

/* "--port N", what it says, its default and range, its other names. */
static void man_setting(const char *flag, const char *takes, const char *key, const char *variable,
                        const char *doc, const char *rest, struct buf *out)
{
    char label[128], text[MAN_SETTING_BYTES];
    (void)snprintf(label, sizeof label, "%s %s", flag, takes);
    (void)snprintf(text, sizeof text, "%s.%s (`%s`, `%s`)", doc, rest, key, variable);
    man_item(label, text, out);
}

static void man_setting_text(const char *flag, const char *key, const char *variable,
                             const char *doc, const char *initial, struct buf *out)
{
    char rest[256] = "";
    if (initial[0] != '\0')
        (void)snprintf(rest, sizeof rest, " Default: %s.", initial);
    man_setting(flag, "TEXT", key, variable, doc, rest, out);
}

static void man_setting_number(const char *flag, const char *key, const char *variable,
                               const char *doc, const long long values[3], const char *unit,
                               struct buf *out)
{
    char rest[256];
    (void)snprintf(rest, sizeof rest, " Default: %lld%s%s; %lld to %lld.", values[0],
                   unit[0] != '\0' ? " " : "", unit, values[1], values[2]);
    man_setting(flag, "N", key, variable, doc, rest, out);
}

static void man_settings(struct buf *out)
{
    man_item("--settings FILE",
             "A JSON object of settings, by the names in parentheses below. Default: "
             "settings.json in the data directory, where it is there. (`ITHACA_SETTINGS`)",
             out);
#define SETTING_TEXT(name, def, flag, env, doc) man_setting_text(flag, #name, env, doc, def, out);
#define SETTING_INT(name, def, min, max, unit, flag, env, doc) \
    man_setting_number(flag, #name, env, doc, (const long long[]){def, min, max}, unit, out);
#define SETTING_LIST(name, flag, env, doc) man_setting(flag, "A,B,...", #name, env, doc, "", out);
#define SETTING_MAP(name, flag, env, doc) man_setting(flag, "A=B,...", #name, env, doc, "", out);
#include "api/settings.def"
#undef SETTING_TEXT
#undef SETTING_INT
#undef SETTING_LIST
#undef SETTING_MAP
}

void man_ithacad(struct buf *out)
{
    man_section("SYNOPSIS", out);
    man_text_line("`ithacad` [`run`] [OPTION VALUE] ...", out);
    man_line("`ithacad schema` [`openapi` | `job`]", out);
    man_section("DESCRIPTION", out);
    man_text_line(
        "`ithacad` takes fine-tuning jobs over an HTTP API shaped as OpenAI's, queues them, "
        "starts a process for each rank, and keeps what they say in a SQLite database. It "
        "serves a dashboard at `/`, and metrics for Prometheus at `/metrics`.",
        out);
    man_paragraph("`schema` prints the API's OpenAPI document, or the JSON schema of a job.", out);
    man_section("OPTIONS", out);
    man_text_line(
        "Each is also a key of the settings file and a variable of the environment. Flags go "
        "before variables, variables before the file.",
        out);
    man_settings(out);
    man_section("SIGNALS", out);
    man_item("SIGTERM, SIGINT",
             "Stop: running jobs are paused with a checkpoint and go on at the next start "
             "(setting `on_stop`).",
             out);
    man_item("SIGHUP",
             "Read the TLS certificate and its key again, for connections that come from then on.",
             out);
    man_section("FILES", out);
    man_text_line("In the data directory:", out);
    man_item("url", "the address, while a daemon serves", out);
    man_item("admin.token", "the first token, made at the first start", out);
    man_item("settings.json", "settings", out);
    man_item("calibration.json", "how fast this machine is (`ithaca calibrate`)", out);
    man_item("jobs/", "checkpoints, output and results of each job", out);
}
