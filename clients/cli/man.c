/* man: the few requests of man(7) that are needed (groff_man(7)), and how text is escaped. */
#include "clients/cli/man.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

const struct man_page man_pages[] = {
    {.name = "ithaca",
     .section = 1,
     .doc = "fine-tune language models on very long contexts: the command line",
     .body = man_ithaca},
    {.name = "ithacad",
     .section = 8,
     .doc = "fine-tune language models on very long contexts: the daemon",
     .body = man_ithacad},
    {.name = "ithaca-job", .section = 5, .doc = "a fine-tuning job of Ithaca", .body = man_job},
    {.name = "ithaca-experiment",
     .section = 5,
     .doc = "a grid of settings and context lengths that Ithaca measures",
     .body = man_experiment},
};
const size_t man_page_count = sizeof man_pages / sizeof man_pages[0];

/* One character, so that it comes out as itself, and a hyphen can be copied. */
static void man_char(char c, struct buf *out)
{
    static const struct {
        char c;
        const char *escaped;
    } specials[] = {{'\\', "\\e"},  {'-', "\\-"},   {'\'', "\\(aq"},
                    {'"', "\\(dq"}, {'^', "\\(ha"}, {'~', "\\(ti"}};
    for (size_t i = 0; i < sizeof specials / sizeof specials[0]; i++)
        if (specials[i].c == c) {
            buf_text(out, specials[i].escaped);
            return;
        }
    buf_char(out, c);
}

void man_text(const char *text, struct buf *out)
{
    bool code = false;
    if (text[0] == '.')
        buf_text(out, "\\&"); /* else it would be a request */
    for (; *text != '\0'; text++) {
        if (*text == '`') {
            buf_text(out, code ? "\\fR" : "\\fB");
            code = !code;
        } else {
            man_char(*text, out);
        }
    }
    if (code)
        buf_text(out, "\\fR");
}

static void man_heading(const char *request, const char *title, struct buf *out)
{
    buf_printf(out, ".%s \"", request);
    man_text(title, out);
    buf_text(out, "\"\n");
}

void man_section(const char *title, struct buf *out)
{
    man_heading("SH", title, out);
}

void man_group(const char *title, struct buf *out)
{
    man_heading("SS", title, out);
}

void man_text_line(const char *text, struct buf *out)
{
    man_text(text, out);
    buf_char(out, '\n');
}

void man_paragraph(const char *text, struct buf *out)
{
    buf_text(out, ".PP\n");
    man_text_line(text, out);
}

void man_item(const char *label, const char *text, struct buf *out)
{
    buf_text(out, ".TP\n\\fB");
    man_text(label, out);
    buf_text(out, "\\fR\n");
    man_text_line(text, out);
}

void man_line(const char *text, struct buf *out)
{
    buf_text(out, ".br\n");
    man_text_line(text, out);
}

void man_example(const char *lines, struct buf *out)
{
    buf_text(out, ".RS 4\n.nf\n");
    while (*lines != '\0') {
        const size_t length = strcspn(lines, "\n");
        if (lines[0] == '.')
            buf_text(out, "\\&");
        for (size_t i = 0; i < length; i++)
            man_char(lines[i], out);
        buf_char(out, '\n');
        lines += length + (lines[length] == '\n');
    }
    buf_text(out, ".fi\n.RE\n");
}

static void man_title(const struct man_page *page, struct buf *out)
{
    buf_text(out, ".\\\" Printed by: ithaca man\n.TH ");
    for (const char *c = page->name; *c != '\0'; c++)
        man_char((char)toupper((unsigned char)*c), out);
    buf_printf(out, " %d " ITHACA_VERSION_DATE " \"ithaca " ITHACA_VERSION "\"\n", page->section);
}

void man_print(const struct man_page *page, struct buf *out)
{
    man_title(page, out);
    man_section("NAME", out);
    man_text(page->name, out);
    buf_text(out, " \\- ");
    man_text_line(page->doc, out);
    page->body(out);
    man_section("SEE ALSO", out);
    const char *gap = "";
    for (size_t i = 0; i < man_page_count; i++) {
        if (&man_pages[i] == page)
            continue;
        buf_printf(out, "%s\\fB", gap);
        man_text(man_pages[i].name, out);
        buf_printf(out, "\\fR(%d)", man_pages[i].section);
        gap = ", ";
    }
    buf_char(out, '\n');
}
