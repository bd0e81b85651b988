/* time_rates: lookup and the calibration file; see time_rates.h. Tables are in time_rates_table.c.
 */
#include "common/time_rates.h"

#include "common/clock.h"
#include "common/io.h"
#include "common/mem.h"
#include "common/mem_report.h"
#include "common/must.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { RATES_VERSION = 1, RATES_DAY_S = 86400 };

/* Points [*ret_first, *ret_end) of the width nearest to the one asked for. */
static void rates_at_width(const struct time_point *points, int32_t count, double width,
                           int32_t *ret_first, int32_t *ret_end)
{
    int32_t best = 0;
    for (int32_t i = 1; i < count; i++)
        if (fabs(points[i].width - width) < fabs(points[best].width - width))
            best = i;
    int32_t end = best;
    while (end < count && points[end].width == points[best].width)
        end++;
    *ret_first = best;
    *ret_end = end;
}

static double rates_between(const struct time_point *low, const struct time_point *high,
                            double size)
{
    double share = log(size / low->size) / log(high->size / low->size);
    return low->rate + share * (high->rate - low->rate);
}

double time_rates_seconds(const struct time_rates *rates, enum time_op op, double size,
                          double width, double work)
{
    must((unsigned)op < TIME_OP_COUNT);
    enum time_op known = rates->counts[op] > 0 ? op : time_op_like(op);
    const struct time_point *points = rates->points[known];
    int32_t first, end;
    if (rates->counts[known] == 0 || work <= 0)
        return 0;
    rates_at_width(points, rates->counts[known], width, &first, &end);
    if (size <= points[first].size)
        return work / (points[first].rate * size / points[first].size);
    int32_t at = first;
    while (at + 1 < end && points[at + 1].size < size)
        at++;
    if (at + 1 == end)
        return work / points[at].rate;
    return work / rates_between(&points[at], &points[at + 1], size);
}

void time_rates_add(struct time_rates *rates, enum time_op op, struct time_point point)
{
    must((unsigned)op < TIME_OP_COUNT && rates->counts[op] < TIME_POINTS_MAX);
    must(point.size > 0 && point.rate > 0);
    struct time_point *points = rates->points[op];
    int32_t at = rates->counts[op]++;
    while (at > 0 && (points[at - 1].width > point.width ||
                      (points[at - 1].width == point.width && points[at - 1].size > point.size))) {
        points[at] = points[at - 1];
        at--;
    }
    points[at] = point;
}

static json_t *rates_points_json(const struct time_rates *rates)
{
    json_t *all = json_object();
    int bad = all == NULL;
    for (int op = 0; op < TIME_OP_COUNT; op++) {
        json_t *list = rates->counts[op] > 0 ? json_array() : NULL;
        for (int32_t i = 0; i < rates->counts[op]; i++) {
            const struct time_point *p = &rates->points[op][i];
            bad |= json_array_append_new(list, json_pack("[f, f, f]", p->size, p->width, p->rate));
        }
        if (rates->counts[op] > 0)
            bad |= json_object_set_new(all, time_op_name((enum time_op)op), list);
    }
    if (bad == 0)
        return all;
    json_decref(all);
    return NULL;
}

json_t *time_rates_json(const struct time_rates *rates)
{
    return json_pack("{s:s, s:I, s:I, s:s, s:b, s:f, s:o}", "backend",
                     mem_backend_name(rates->backend), "ranks", (json_int_t)rates->ranks, "threads",
                     (json_int_t)rates->threads, "device", rates->device, "beside",
                     (int)rates->beside, "peak_flops", rates->peak_flops, "rates",
                     rates_points_json(rates));
}

static int rates_take_points(const json_t *list, enum time_op op, struct time_rates *rates,
                             struct err *err)
{
    size_t count = json_array_size(list);
    for (size_t i = 0; i < count; i++) {
        double numbers[3] = {0};
        const json_t *point = json_array_get(list, i);
        for (size_t n = 0; n < 3; n++)
            numbers[n] = json_number_value(json_array_get(point, n));
        bool good = i < TIME_POINTS_MAX && isfinite(numbers[0]) && isfinite(numbers[2]) &&
                    numbers[0] > 0 && numbers[1] > 0 && numbers[2] > 0;
        if (!good)
            return err_set(err, ERR_CORRUPT, "\"%s\": %zu is not a size, a width and a rate",
                           time_op_name(op), i);
        time_rates_add(
            rates, op,
            (struct time_point){.size = numbers[0], .width = numbers[1], .rate = numbers[2]});
    }
    return 0;
}

static int rates_take_backend(const json_t *set, enum mem_backend *ret, struct err *err)
{
    const char *name;
    TRY(json_get_string(set, "backend", ERR_CORRUPT, &name, err));
    for (int i = 0; i < MEM_BACKEND_COUNT; i++)
        if (strcmp(name, mem_backend_name((enum mem_backend)i)) == 0) {
            *ret = (enum mem_backend)i;
            return 0;
        }
    return err_set(err, ERR_CORRUPT, "\"backend\" is none that is known");
}

int time_rates_parse(const json_t *set, struct time_rates *ret, struct err *err)
{
    struct time_rates rates = {.measured = true};
    const char *device;
    TRY(rates_take_backend(set, &rates.backend, err));
    TRY(json_get_i64(set, "ranks", ERR_CORRUPT, &rates.ranks, err));
    TRY(json_get_i64(set, "threads", ERR_CORRUPT, &rates.threads, err));
    TRY(json_get_string(set, "device", ERR_CORRUPT, &device, err));
    TRY(json_get_bool(set, "beside", ERR_CORRUPT, &rates.beside, err));
    TRY(json_get_f64(set, "peak_flops", ERR_CORRUPT, &rates.peak_flops, err));
    if (rates.ranks < 1 || rates.ranks > LIMIT_RANKS)
        return err_set(err, ERR_CORRUPT, "\"ranks\" must be from 1 to %d", LIMIT_RANKS);
    (void)snprintf(rates.device, sizeof rates.device, "%s", device);
    const json_t *points = json_object_get(set, "rates");
    for (int op = 0; op < TIME_OP_COUNT; op++)
        TRY(rates_take_points(json_object_get(points, time_op_name((enum time_op)op)),
                              (enum time_op)op, &rates, err));
    *ret = rates;
    return 0;
}

/* The folder's calibration; *ret NULL when there is none. */
static int rates_read(const char *data_dir, json_t **ret, struct err *err)
{
    *ret = NULL;
    CLEANUP(mem_free_ptr) char *path = io_join(data_dir, "calibration.json");
    if (path == NULL)
        return mem_fail(err, strlen(data_dir), "a path");
    if (!io_exists(path))
        return 0;
    CLEANUP(json_unref) json_t *file = NULL;
    TRY(json_parse_own_file(path, TIME_FILE_BYTES, &file, err));
    if (json_integer_value(json_object_get(file, "version")) != RATES_VERSION ||
        !json_is_array(json_object_get(file, "sets")))
        return err_set(err, ERR_CORRUPT,
                       "%s is no calibration of this version; delete it and run `ithaca "
                       "calibrate`",
                       path);
    *ret = json_incref(file);
    return 0;
}

static double rates_distance(int64_t a, int64_t b)
{
    return fabs(log((double)a / (double)b));
}

/* The set for the backend nearest to `ranks`; ranks 0 stays when there is none. */
static int rates_nearest(const json_t *file, enum mem_backend backend, int64_t ranks,
                         struct time_rates *best, struct err *err)
{
    size_t i;
    const json_t *set;
    json_array_foreach(json_object_get(file, "sets"), i, set)
    {
        struct time_rates rates;
        int rc = time_rates_parse(set, &rates, err);
        if (rc != 0)
            return err_wrap(err, rc, "calibration.json, set %zu: ", i);
        if (rates.backend != backend)
            continue;
        if (best->ranks == 0 ||
            rates_distance(rates.ranks, ranks) < rates_distance(best->ranks, ranks))
            *best = rates;
    }
    return 0;
}

/* On the CPU ranks share the cores: as many more of them are as much slower. */
static void rates_share(struct time_rates *rates, int64_t ranks)
{
    double share = (double)rates->ranks / (double)ranks;
    for (int op = 0; op < TIME_OP_COUNT; op++)
        for (int32_t i = 0; i < rates->counts[op]; i++)
            rates->points[op][i].rate *= share;
    rates->peak_flops *= share;
}

int time_rates_find(const char *data_dir, enum mem_backend backend, int64_t ranks,
                    const char *device, struct time_rates *ret, struct err *err)
{
    CLEANUP(json_unref) json_t *file = NULL;
    struct time_rates found = {.ranks = 0};
    if (data_dir != NULL)
        TRY(rates_read(data_dir, &file, err));
    if (file != NULL)
        TRY(rates_nearest(file, backend, ranks, &found, err));
    if (found.ranks == 0 || !time_rates_same_card(found.device, device)) {
        time_rates_table(backend, device, ranks, ret);
        return 0;
    }
    int64_t created = json_integer_value(json_object_get(file, "created"));
    int64_t days = (clock_wall_ms() / 1000 - created) / RATES_DAY_S;
    (void)snprintf(found.source, sizeof found.source, "calibrated here %lld days ago, %lld ranks",
                   (long long)(days > 0 ? days : 0), (long long)found.ranks);
    if (backend == MEM_BACKEND_CPU)
        rates_share(&found, ranks);
    *ret = found;
    return 0;
}

int64_t time_rates_peak(const char *data_dir, enum mem_backend backend, int64_t ranks,
                        const char *device)
{
    struct time_rates rates;
    struct err ignored;
    double card = time_rates_card_peak(device);
    if (backend != MEM_BACKEND_CPU && card > 0)
        return (int64_t)card;
    bool found = time_rates_find(data_dir, backend, ranks, device, &rates, &ignored) == 0;
    return found && rates.measured ? (int64_t)rates.peak_flops : 0;
}

/* The file's sets but for the ones that the new one replaces. New reference. */
static json_t *rates_others(const json_t *file, const struct time_rates *rates)
{
    json_t *sets = json_array();
    size_t i;
    json_t *set;
    json_array_foreach(json_object_get(file, "sets"), i, set)
    {
        const char *backend = json_string_value(json_object_get(set, "backend"));
        bool same = backend != NULL && strcmp(backend, mem_backend_name(rates->backend)) == 0 &&
                    json_integer_value(json_object_get(set, "ranks")) == rates->ranks;
        if (!same && json_array_size(sets) + 1 < TIME_SETS_MAX)
            (void)json_array_append(sets, set); /* fewer sets, at worst */
    }
    return sets;
}

int time_rates_store(const char *data_dir, const struct time_rates *rates, struct err *err)
{
    CLEANUP(json_unref) json_t *file = NULL;
    CLEANUP(mem_free_ptr) char *path = io_join(data_dir, "calibration.json");
    char host[TIME_NAME_BYTES] = "";
    TRY(rates_read(data_dir, &file, err));
    json_t *sets = rates_others(file, rates);
    if (path == NULL || json_array_append_new(sets, time_rates_json(rates)) != 0) {
        json_decref(sets);
        return mem_fail(err, TIME_FILE_BYTES, "the calibration");
    }
    (void)gethostname(host, sizeof host - 1); /* "" then */
    CLEANUP(json_unref)
    json_t *next = json_pack("{s:s, s:i, s:I, s:s, s:s, s:o}", "object", "calibration", "version",
                             RATES_VERSION, "created", (json_int_t)(clock_wall_ms() / 1000), "host",
                             host, "ithaca", ITHACA_VERSION, "sets", sets);
    return next == NULL ? mem_fail(err, TIME_FILE_BYTES, "the calibration")
                        : json_write_file(path, next, 0644, err);
}
