/* last_words: the sentence a dying rank leaves in <attempt folder>/last-words-<rank>, which becomes
 * the job's failure reason.
 *
 * One line, written once: the first cause wins. last_words_install() covers broken assertions
 * (must_last_words) and fatal signals; the handlers are async-signal-safe and leave the signal to
 * end the process as it would have. */
#pragma once
#include "common/wire.h"

#include <stdint.h>

/* Fills nothing but static memory; attempt_dir may be NULL: the sentence goes to stderr alone. */
void last_words_install(const char *attempt_dir, uint32_t rank);
/* What the rank is doing, for the sentences of signals. Cheap; any thread. */
void last_words_context(uint64_t step, enum wire_phase phase);
/* Writes the sentence. Async-signal-safe. */
void last_words_say(const char *sentence);
