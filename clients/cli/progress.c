/* progress: see progress.h. Rates are smoothed with a weight of 0.1 for the newest step. */
#include "clients/cli/progress.h"

#include "common/clock.h"

#include <math.h>
#include <unistd.h>

enum { PROGRESS_BAR_CELLS = 24, PROGRESS_PIPE_EVERY_MS = 5000 };

void progress_init(struct progress *progress, FILE *out)
{
    *progress = (struct progress){
        .out = out,
        .terminal = isatty(fileno(out)) == 1,
        .loss = NAN,
        .valid_loss = NAN,
        .tokens_per_s = NAN,
        .step_time_s = NAN,
        .printed_ms = clock_monotonic_ms(),
    };
}

static double progress_smooth(double old, double now)
{
    if (isnan(now))
        return old;
    return isnan(old) ? now : 0.9 * old + 0.1 * now;
}

void progress_step(struct progress *progress, int64_t step, double loss, double tokens_per_s,
                   double step_time_s)
{
    progress->step = step;
    if (!isnan(loss))
        progress->loss = loss;
    progress->tokens_per_s = progress_smooth(progress->tokens_per_s, tokens_per_s);
    progress->step_time_s = progress_smooth(progress->step_time_s, step_time_s);
}

static void progress_bar(FILE *out, double done)
{
    (void)fputc('[', out);
    for (int cell = 0; cell < PROGRESS_BAR_CELLS; cell++)
        (void)fputc(cell < (int)(done * PROGRESS_BAR_CELLS) ? '#' : '-', out);
    (void)fputc(']', out);
}

static void progress_line(const struct progress *progress)
{
    FILE *out = progress->out;
    if (progress->steps_total > 0) {
        progress_bar(out, (double)progress->step / (double)progress->steps_total);
        (void)fprintf(out, "  %lld/%lld", (long long)progress->step,
                      (long long)progress->steps_total);
    } else {
        (void)fprintf(out, "step %lld", (long long)progress->step);
    }
    if (!isnan(progress->loss))
        (void)fprintf(out, "  loss %.4f", progress->loss);
    if (!isnan(progress->valid_loss))
        (void)fprintf(out, "  valid %.4f", progress->valid_loss);
    if (!isnan(progress->tokens_per_s))
        (void)fprintf(out, "  %.1fk tok/s", progress->tokens_per_s / 1000);
    int64_t left = progress->steps_total - progress->step;
    if (left > 0 && !isnan(progress->step_time_s)) {
        int64_t eta_s = (int64_t)((double)left * progress->step_time_s + 0.5);
        (void)fprintf(out, "  eta %lld:%02lld", (long long)(eta_s / 60), (long long)(eta_s % 60));
    }
}

void progress_show(struct progress *progress)
{
    if (progress->terminal) {
        (void)fputs("\r\033[K", progress->out);
        progress_line(progress);
        progress->open = true;
    } else {
        int64_t now_ms = clock_monotonic_ms();
        if (progress->step > 1 && now_ms - progress->printed_ms < PROGRESS_PIPE_EVERY_MS)
            return;
        progress->printed_ms = now_ms;
        progress_line(progress);
        (void)fputc('\n', progress->out);
    }
    (void)fflush(progress->out);
}

void progress_check(struct progress *progress, double done, const char *text)
{
    const int64_t now_ms = clock_monotonic_ms();
    const bool first = progress->checked_ms == 0;
    if (!progress->terminal && !first && now_ms - progress->checked_ms < PROGRESS_PIPE_EVERY_MS)
        return;
    progress->checked_ms = now_ms;
    if (progress->terminal)
        (void)fputs("\r\033[K", progress->out);
    progress_bar(progress->out, done);
    (void)fprintf(progress->out, "  %s%s", text, progress->terminal ? "" : "\n");
    progress->open = progress->terminal;
    (void)fflush(progress->out);
}

void progress_checked(struct progress *progress)
{
    if (progress->open)
        (void)fputs("\r\033[K", progress->out);
    progress->open = false;
}

void progress_say(struct progress *progress, const char *sentence)
{
    if (progress->open)
        (void)fputs("\r\033[K", progress->out);
    (void)fprintf(progress->out, "%s\n", sentence);
    if (progress->open)
        progress_line(progress);
    (void)fflush(progress->out);
}

void progress_finish(struct progress *progress)
{
    if (progress->terminal && progress->open)
        (void)fputc('\n', progress->out);
    if (!progress->terminal && progress->step > 0) {
        progress_line(progress);
        (void)fputc('\n', progress->out);
    }
    progress->open = false;
    (void)fflush(progress->out);
}
