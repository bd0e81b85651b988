/* edit_distance: how far one short word is from another, for "did you mean ...?". */
#pragma once
#include <stddef.h>

enum { EDIT_DISTANCE_BYTES = 64 }; /* longer words are cut to this */

/* Edits from a to b: a byte inserted, deleted or changed, two neighbours swapped. */
size_t edit_distance(const char *a, const char *b);
/* From this many edits on, what is known is not offered for what was written. */
size_t edit_distance_too_far(const char *written);
