/* step_gate: a test holds a run before a step, however fast the machine is.
 *
 * ITHACA_WORKER_STEP_GATE names a file that holds a decimal number: no step above it begins. While
 * a run is held it still answers the daemon (pause, checkpoint, cancel). No variable, no file, no
 * number in it: the gate is open. The file is replaced by rename, and may be changed at any time.
 */
#pragma once
#include <stdint.h>

int64_t step_gate_last(void); /* the last step that may begin; INT64_MAX when open */
