/* usage: who has used how much of the machine, for fair share: slot-seconds (GPU-seconds, where
 * slots are GPUs) of each user, in full and decayed.
 *
 * What was used a half-life ago counts half: used(t) = used(t0) * 2^(-(t - t0) / half_life), so one
 * number and its time are the whole history. A user is an owner's name; jobs keep the index, which
 * stays. Times are Unix milliseconds; a clock that was set back decays nothing. */
#pragma once
#include "common/err.h"
#include "common/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct usage_user {
    char name[LIMIT_NAME_BYTES + 1];
    double used_s;    /* slot-seconds as of at_ms, decayed, with penalties */
    double total_s;   /* slot-seconds ever, without penalties */
    double counted_s; /* slot-seconds that were charged here: not of the store */
    int64_t at_ms;
    bool changed; /* since it was written to the store: the owner's */
};

struct usage {
    struct usage_user *users; /* (count), owned */
    size_t count;
    size_t capacity;
    int64_t half_life_ms; /* 0: nothing decays */
};

void usage_done(struct usage *usage); /* a zeroed one, with its half-life, is empty */
/* The index of a user, who is added when new. ERR_TOO_MANY beyond LIMIT_USERS. */
int usage_find(struct usage *usage, const char *name, size_t *ret_index, struct err *err);
/* Decayed slot-seconds of a user, as of now. */
double usage_now(const struct usage *usage, size_t index, int64_t now_ms);
/* used_s is for slots that were used, penalty_s counts for the share alone. */
void usage_charge(struct usage *usage, size_t index, double used_s, double penalty_s,
                  int64_t now_ms);
