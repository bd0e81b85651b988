/* json_python: JSON as Python's json.dumps(value, ensure_ascii=False) prints it, which is what the
 * filter `tojson` of chat templates gives: ", " and ": " between things, keys in their order. */
#pragma once
#include "common/buf.h"
#include "common/json.h"

/* Appends the value. indent 0: on one line; else lines indented by so many spaces a level. A
 * failure sticks in `out`. */
void json_python_print(const json_t *value, int indent, struct buf *out);
