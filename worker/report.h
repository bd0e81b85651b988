/* report: a rank's line to the daemon: frames out, commands in, without ever making training wait.
 *
 * A helper thread owns the socket. The training thread only appends frames to a bounded ring; the
 * thread sends them, keeps them until the daemon says SEEN, and after a lost connection reconnects
 * with back-off and sends again what was not seen. When the ring is full, metrics and events are
 * dropped and counted; READY, CHECKPOINTED, PAUSED, DONE and FAILED always fit. HELLO and
 * heartbeats are of the moment: they carry sequence number 0, are not kept, and the heartbeat goes
 * out every second however long a step lasts. It says step, phase and collectives begun, so that a
 * rank whose training thread stands still is seen from outside.
 *
 * Commands: CANCEL ends the process at once (exit status of ERR_CANCELLED) after aborting the
 * communicator; PAUSE, CHECKPOINT and PROFILE are left for the step loop to take. A PLAN that is
 * not the one this rank was started with ends it too (ERR_PROTOCOL).
 *
 * With launch_plan.socket "" there is no daemon: metrics and events are lines on stdout. */
#pragma once
#include "common/err.h"
#include "common/launch_plan.h"
#include "common/wire.h"
#include "worker/coll.h"

#include <stdbool.h>
#include <stdint.h>

struct report;

enum report_command { REPORT_COMMAND_PAUSE = 1, REPORT_COMMAND_CHECKPOINT = 2 };

/* The plan must outlive the report. Starts the thread; does not wait for the daemon. */
int report_open(const struct launch_plan *plan, uint32_t rank, struct report **ret,
                struct err *err);
/* Ends the thread. NULL is fine. Frames not delivered are lost: report_flush() first. */
void report_close(struct report *report);
/* Waits until the daemon has seen all frames, at most limit_ms (and 10 s while it is connected);
 * what it has not seen by then is kept. */
void report_flush(struct report *report, int64_t limit_ms);
/* Writes the frames that the daemon has not seen to <attempt folder>/unsent-R: the daemon reads
 * them when the attempt has ended, and knows those it has had. With a checkpoint, so that no step
 * before it lacks its metrics, whoever is killed. */
int report_keep(struct report *report, struct err *err);

/* The communicator whose progress heartbeats tell and which CANCEL aborts; NULL takes it back. */
void report_watch(struct report *report, struct coll *coll);
void report_phase(struct report *report, uint64_t step, enum wire_phase phase);

void report_ready(struct report *report, int64_t steps_total);
void report_metrics(struct report *report, const struct wire_metrics *metrics);
/* level: 0 info, 1 warn, 2 error */
void report_event(struct report *report, int level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* A checkpoint has appeared. From rank 0. */
void report_checkpointed(struct report *report, int64_t step, int64_t bytes);
/* The last frame instead of DONE. */
void report_paused(struct report *report, int64_t step, int64_t trained_tokens);
void report_done(struct report *report, const struct wire_done *done);
void report_failed(struct report *report, const struct err *reason);

/* Commands since the last call, REPORT_COMMAND_ bits. */
unsigned report_take_commands(struct report *report);
/* Steps that are to be profiled, asked for since the last call; 0: none. */
int64_t report_take_profile(struct report *report);
/* No daemon for longer than the plan's orphan limit. */
bool report_orphaned(const struct report *report);
