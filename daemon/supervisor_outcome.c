/* supervisor_outcome: how an attempt went, from frames, exit.json and the keeper's own end. When
 * one rank dies the others fail too, in collectives that are aborted or time out: those are
 * consequences and speak only when nothing else does. */
#include "common/exit_report.h"
#include "common/io.h"
#include "common/mem.h"
#include "common/must.h"
#include "daemon/measurement.h"
#include "daemon/supervisor.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

static bool supervisor_is_consequence(enum err_code code)
{
    return code == ERR_COLL_ABORTED || code == ERR_COLL_TIMEOUT || code == ERR_CANCELLED;
}

/* The first rank that said FAILED; -1: none did. */
static int supervisor_first_failed(const struct supervisor *supervisor)
{
    int first = -1;
    for (uint32_t i = 0; i < supervisor->plan.world; i++) {
        const struct supervisor_rank *rank = &supervisor->ranks[i];
        if (rank->failed &&
            (first < 0 || rank->failure_order < supervisor->ranks[first].failure_order))
            first = (int)i;
    }
    return first;
}

/* "in step 12, backward" */
static void supervisor_where(uint64_t step, uint32_t phase, char *ret_text, size_t bytes)
{
    const char *name = wire_phase_name((enum wire_phase)phase);
    if (step == 0)
        (void)snprintf(ret_text, bytes, "before the first step, %s", name);
    else
        (void)snprintf(ret_text, bytes, "in step %llu, %s", (unsigned long long)step, name);
}

static int supervisor_tell_failed(const struct supervisor *supervisor, int number, struct err *err)
{
    const struct supervisor_rank *rank = &supervisor->ranks[number];
    char where[64];
    supervisor_where(rank->step, rank->phase, where, sizeof where);
    return err_set(err, rank->failure_code, "rank %d %s: %s", number, where, rank->failure_text);
}

void supervisor_take_failed(struct supervisor *supervisor, uint32_t number,
                            const struct wire_failed *failed)
{
    struct supervisor_rank *rank = &supervisor->ranks[number];
    if (rank->failed)
        return;
    rank->failed = true;
    rank->failure_code = (enum err_code)failed->code;
    rank->failure_order = ++supervisor->failures;
    rank->step = failed->step;
    rank->phase = failed->phase;
    (void)snprintf(rank->failure_text, sizeof rank->failure_text, "%s", failed->text);
    if (supervisor->told.code == ERR_NONE && !supervisor_is_consequence(rank->failure_code))
        (void)supervisor_tell_failed(supervisor, (int)number, &supervisor->told);
}

/* The kernel killed for memory: whom, and what it says of the group. */
static int supervisor_tell_oom(const struct supervisor *supervisor, const char *whom,
                               struct err *err)
{
    const struct cgroup_memory *memory = &supervisor->memory;
    const double gib = 1024.0 * 1024.0 * 1024.0;
    char limit[96] = "the machine's memory, or that of a group around it, ran out", peak[64] = "";
    if (memory->limit >= 0 && memory->full > 0)
        (void)snprintf(limit, sizeof limit, "its limit of %.2f GiB (memory.max) was reached",
                       (double)memory->limit / gib);
    if (memory->peak >= 0)
        (void)snprintf(peak, sizeof peak, "; the job took %.2f GiB at most",
                       (double)memory->peak / gib);
    return err_set(err, ERR_HOST_OOM, "host out of memory: the kernel killed %s; %s%s", whom, limit,
                   peak);
}

static int supervisor_tell_exit(const struct supervisor *supervisor,
                                const struct exit_report *report, int number, struct err *err)
{
    const struct exit_rank *ended = &report->ranks[number];
    const struct supervisor_rank *heard = &supervisor->ranks[number]; /* a second ago */
    char where[64], how[96];
    supervisor_where(ended->has_place ? ended->step : heard->step,
                     ended->has_place ? ended->phase : heard->phase, where, sizeof where);
    if (ended->signal == SIGKILL && supervisor->memory.kills > 0) {
        (void)snprintf(how, sizeof how, "rank %d %s", number, where);
        return supervisor_tell_oom(supervisor, how, err);
    }
    if (ended->signal != 0) {
        const char *name = sigabbrev_np(ended->signal);
        (void)snprintf(how, sizeof how, "was ended by signal %d (SIG%s)", ended->signal,
                       name != NULL ? name : "?");
    } else if (ended->pid <= 0) {
        (void)snprintf(how, sizeof how, "could not be started");
    } else {
        (void)snprintf(how, sizeof how, "ended with exit status %d", ended->exit_status);
    }
    enum err_code code = ended->pid <= 0 ? ERR_RANK_START : ERR_RANK_DIED;
    return err_set(err, code, "rank %d %s %s%s%s", number, how, where,
                   ended->last_words[0] != '\0' ? ": " : "", ended->last_words);
}

/* What the keeper's own end says when it left no report. */
static int supervisor_tell_keeper(const struct supervisor *supervisor, struct err *err)
{
    const struct host_exit *ended = &supervisor->keeper_exit;
    bool killed = ended->signal == SIGKILL || (ended->status < 0 && ended->signal == 0);
    if (supervisor->memory.kills > 0 && killed)
        return supervisor_tell_oom(supervisor, "the keeper, its ranks with it", err);
    if (supervisor->keeper == NULL)
        return err_set(err, ERR_COORDINATOR_LOST,
                       "the daemon ended while the job ran, and so did the job's processes");
    if (ended->status < 0 && ended->signal == 0) /* not our child: nobody knows how */
        return err_set(err, ERR_RANK_DIED, "the keeper ended without a report, its ranks with it");
    if (ended->signal != 0)
        return err_set(err, ERR_RANK_DIED, "the keeper was ended by signal %d, its ranks with it",
                       ended->signal);
    return err_set(err, ERR_RANK_START, "the keeper ended with exit status %d and left no report",
                   ended->status);
}

static bool supervisor_read_report(const struct supervisor *supervisor,
                                   struct exit_report *ret_report)
{
    struct err unread; /* killed keepers leave none: that is what is told then */
    CLEANUP(mem_free_ptr)
    char *path =
        supervisor->attempt_dir != NULL ? io_join(supervisor->attempt_dir, "exit.json") : NULL;
    return path != NULL && exit_report_read(path, ret_report, &unread) == 0 &&
           ret_report->world == supervisor->plan.world;
}

/* A rank exits with 0 only after DONE or PAUSED, which an earlier daemon may have got. */
static bool supervisor_all_well(const struct supervisor *supervisor,
                                const struct exit_report *report)
{
    for (uint32_t i = 0; i < supervisor->plan.world; i++)
        if (report->ranks[i].exit_status != 0 ||
            !(supervisor->ranks[i].done || supervisor->adopted))
            return false;
    return true;
}

/* All went well: did the ranks stop on the way? The model is there before any of them is DONE. */
static int supervisor_tell_well(const struct supervisor *supervisor, bool *ret_paused,
                                struct err *err)
{
    bool paused = false, done = true;
    for (uint32_t i = 0; i < supervisor->plan.world; i++) {
        paused |= supervisor->ranks[i].paused;
        done &= supervisor->ranks[i].done;
    }
    if (!paused && !done) {
        CLEANUP(mem_free_ptr) char *model = io_join(supervisor->plan.job_dir, "model");
        if (model == NULL)
            return mem_fail(err, strlen(supervisor->plan.job_dir), "a path");
        paused = !io_exists(model) && !measurement_is_there(supervisor->plan.job_dir);
    }
    *ret_paused = paused;
    return 0;
}

/* What this daemon saw, unless a rank or the keeper may know better: a rank that died is silent
 * too, and may have been found silent before its keeper had told. */
static bool supervisor_is_final(enum err_code code)
{
    return code != ERR_NONE && code != ERR_RANK_HUNG && code != ERR_RANK_START;
}

static int supervisor_repeat(const struct err *failure, struct err *err)
{
    *err = *failure;
    return -(int)err->code;
}

/* Whoever died, hung or waited in vain: the ranks' records know in which collective that was. */
static void supervisor_add_collective(const struct exit_report *report, struct err *err)
{
    bool about = err->code == ERR_RANK_DIED || err->code == ERR_HOST_OOM ||
                 err->code == ERR_RANK_HUNG || supervisor_is_consequence(err->code);
    struct err failed = *err;
    if (about && report->collective[0] != '\0')
        (void)err_set(err, failed.code, "%s; %s", failed.text, report->collective);
}

static int supervisor_judge(const struct supervisor *supervisor, const struct exit_report *report,
                            bool known, bool *ret_paused, struct err *err)
{
    const struct err *seen = &supervisor->failure;
    if (supervisor->told.code != ERR_NONE && !supervisor_is_final(seen->code))
        return supervisor_repeat(&supervisor->told, err);
    if (known && seen->code == ERR_NONE && supervisor_all_well(supervisor, report))
        return supervisor_tell_well(supervisor, ret_paused, err);
    int first = known ? report->first_failed : -1;
    int consequence = supervisor_first_failed(supervisor);
    bool unexplained = first >= 0 && !supervisor->ranks[first].failed;
    if (unexplained && !supervisor_is_final(seen->code))
        return supervisor_tell_exit(supervisor, report, first, err);
    if (seen->code != ERR_NONE)
        return supervisor_repeat(seen, err);
    if (consequence >= 0)
        return supervisor_tell_failed(supervisor, consequence, err);
    if (!known)
        return supervisor_tell_keeper(supervisor, err);
    return err_set(err, ERR_RANK_DIED, "the ranks ended without having finished the job");
}

int supervisor_outcome(const struct supervisor *supervisor, bool *ret_paused, struct err *err)
{
    must(supervisor->over);
    CLEANUP(mem_free_ptr) struct exit_report *report = mem_new(1, sizeof *report);
    if (report == NULL)
        return mem_fail(err, sizeof *report, "an exit report");
    bool known = supervisor_read_report(supervisor, report);
    int rc = supervisor_judge(supervisor, report, known, ret_paused, err);
    if (rc != 0 && known)
        supervisor_add_collective(report, err);
    return rc;
}
