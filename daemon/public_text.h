/* public_text: a sentence as the API shows it. Messages name files by their whole paths, for the
 * operator's log; users get what is below the daemon's own folders:
 *
 *     <data_dir>/jobs/<id>/checkpoints/step-4     checkpoints/step-4
 *     <data_dir>/files/x, <data_dir>              files/x, and the folder's name
 *     <model root>/tiny-llama/config.json         tiny-llama/config.json
 *     <folder of the worker>/ithaca-worker        ithaca-worker */
#pragma once

struct settings;

void public_text(const struct settings *settings, char *text); /* in place; it never grows */
