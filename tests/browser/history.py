"""A job's points as its ranks would have sent them, put into a daemon's metrics.db while it is stopped: long histories
cost no training. What is drawn of them is known: value() says it."""
import math
import os
import sqlite3

NOT_FINITE = {700: ("loss", math.nan), **dict.fromkeys(range(1500, 1510), ("loss", math.inf))}
GIB = 1 << 30


def value(name, rank, step, steps):
    """Of a metric, as a curve that looks like one."""
    done, wave = step / steps, math.sin(step * 0.37 + rank) + math.sin(step * 0.011)
    if "loss_pos_" in name:
        return 3.2 - 0.9 * done - 0.05 * int(name[-1]) * (1 + 2 * done)
    return {"loss": 2 + 6 * math.exp(-6 * done) + 0.12 * wave, "valid_loss": 2.1 + 6 * math.exp(-6 * done), "grad_norm": 1.4 + 0.4 * wave,
            "learning_rate": 2e-5 * (0.5 + 0.5 * math.cos(math.pi * done)), "tokens_per_s": 18000 + 900 * wave,
            "mfu_causal": 0.44 + 0.01 * wave, "mfu_full": 0.62 + 0.01 * wave, "compute_s": 50 + wave, "gather_wait_s": 1.5 + 0.3 * wave,
            "reduce_wait_s": 2 + 0.4 * wave, "exchange_wait_s": 4 + wave, "sums_wait_s": 0.2, "device_bytes": (71 + rank) * GIB,
            "arena_bytes": 66 * GIB, "arena_peak_bytes": 66 * GIB, "host_bytes": (30 + rank + done) * GIB,
            "gpu_utilization": min(1, 0.95 + 0.02 * wave), "gpu_power_w": 640 + 30 * wave, "gpu_temperature_c": 62 + 3 * wave,
            "peak_states_bytes": 16 * GIB, "peak_gathered_bytes": 9 * GIB, "peak_residual_bytes": 12 * GIB, "peak_attention_bytes": 18 * GIB,
            "peak_tiles_bytes": 7 * GIB, "peak_workspace_bytes": 1 * GIB, "peak_communication_bytes": 2 * GIB}[name]


OF_JOB = ("loss", "grad_norm", "learning_rate", "tokens_per_s", "mfu_causal", "mfu_full", *(f"loss_pos_{i}" for i in range(8)))
OF_RANKS = ("compute_s", "gather_wait_s", "reduce_wait_s", "exchange_wait_s", "sums_wait_s", "device_bytes", "arena_bytes",
            "arena_peak_bytes", "host_bytes", "gpu_utilization", "gpu_power_w", "gpu_temperature_c")
ONCE = ("peak_states_bytes", "peak_gathered_bytes", "peak_residual_bytes", "peak_attention_bytes", "peak_tiles_bytes",
        "peak_workspace_bytes", "peak_communication_bytes")
EVALUATED = ("valid_loss", *(f"valid_loss_pos_{i}" for i in range(8)))
EVAL_STEPS = 250


def points(steps, ranks):
    """(step, rank, metric) of a whole run, in the order in which it would have sent them."""
    for step in range(1, steps + 1):
        for rank in range(ranks):
            names = [*(OF_JOB if rank == 0 else ()), *OF_RANKS, *(ONCE if step == 1 else ()),
                     *(EVALUATED if rank == 0 and step % EVAL_STEPS == 0 else ())]
            for name in names:
                yield step, rank, name


def write(data_dir, job_id, steps, ranks, broken=True):
    """The points of a job of a daemon that is stopped. broken: the values of NOT_FINITE among them."""
    database = sqlite3.connect(os.path.join(data_dir, "metrics.db"))
    with database:
        numbers = dict(database.execute("SELECT name, number FROM metric_names"))
        number = database.execute("INSERT INTO jobs (id) VALUES (?)", (job_id,)).lastrowid
        rows = []
        for step, rank, name in points(steps, ranks):
            what = value(name, rank, step, steps)
            if broken and NOT_FINITE.get(step, ("",))[0] == name:
                what = NOT_FINITE[step][1]
            finite = math.isfinite(what)
            rows.append((number, 1, step, rank, numbers[name], what if finite else None,
                         None if finite else "nan" if math.isnan(what) else "inf", 1.7e9 + 60.0 * step))
        database.executemany("INSERT INTO points (job, attempt, step, rank, metric, value, kind, wall_s) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
    database.close()
    return len(rows)
