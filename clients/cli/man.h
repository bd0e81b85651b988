/* man: manual pages in man(7), made of the tables: commands.def, api/settings.def,
 * api/job_fields.def, api/errors.def and their kin.
 *
 * Texts are plain English with `code` in backticks, which comes out bold; what troff would take for
 * a request is escaped. */
#pragma once
#include "common/buf.h"

#include <stddef.h>

enum { MAN_PAGE_BYTES = 1 << 20 };

struct man_page {
    const char *name; /* "ithacad" */
    int section;
    const char *doc; /* one line */
    void (*body)(struct buf *out);
};
extern const struct man_page man_pages[];
extern const size_t man_page_count;

void man_print(const struct man_page *page, struct buf *out);

/* ---- for the bodies ---- */

void man_text(const char *text, struct buf *out); /* within a line; no newline at its end */
/* With a newline: the first paragraph of a section. */
void man_text_line(const char *text, struct buf *out);
void man_section(const char *title, struct buf *out);
void man_group(const char *title, struct buf *out); /* a heading below a section's */
void man_paragraph(const char *text, struct buf *out);
/* An item of a list: its label bold, the text indented. */
void man_item(const char *label, const char *text, struct buf *out);
void man_line(const char *text, struct buf *out); /* one more of an item's or paragraph's */
void man_example(const char *lines, struct buf *out);

void man_ithaca(struct buf *out);
void man_ithacad(struct buf *out);
void man_job(struct buf *out);
void man_experiment(struct buf *out);
