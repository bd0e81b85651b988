/* store_schema: the tables, and how older files become today's.
 *
 * A migration is a row of the table below: number n turns version n - 1 into n, in one transaction
 * with the new user_version, after a copy of the file was made (store_backup.c). Rows are appended,
 * never changed. Version 0 is an empty file.
 *
 * jobs.db
 *   jobs         one row a job; `state` holds the name; the spec is JSON, resolved
 *   job_events   what users see happen, in the order of `row`; rows are never reused
 *   files        uploaded files and results; the bytes are in <data_dir>/files/<id>
 *   uploads      uploads in parts; the parts are in <data_dir>/uploads/<id>/
 *   attempts     starts of a job, with the identity of the keeper and how it went
 *   attempts_held   a view: what each held of the machine
 *   attempts_gone   the same of jobs that were deleted
 *   tokens       API tokens and the sessions opened with them, as keyed hashes only
 *   replays      answers to requests that may be sent again
 *   gpus         GPUs that are drained or set aside
 *   usage        slot-seconds of each user (daemon/usage.h)
 *   queue        one row: whether it is drained
 *   experiments  one row an experiment
 *   experiment_points   its points: plan, job, and what was measured, which outlives the job
 *   webhooks     messages that have not been delivered, in the order of each job's events
 *   webhook_cursor   one row: the events up to this one have become messages, where there are any
 *   webhook_secrets  which secret of a user's is in force: the first, the second, ...
 *   gone         where deleted rows stood: a list goes on after one, whoever pages through it
 * metrics.db
 *   metric_names  number -> name, unit: rows of api/metrics.def, renewed at each open
 *   jobs          job number <-> id: a point then takes 8 bytes less per character
 *   points        one row a value; NULL with `kind` 'nan', 'inf', '-inf' when it is not finite;
 *                 (job, attempt, step, rank, metric) is unique */
#include "common/must.h"
#include "daemon/store_sql.h"

#include <stdio.h>

/* Notes the rows that are deleted of a table; of all tables the newest 65536. */
#define STORE_GONE(table)                                                        \
    "CREATE TRIGGER " table "_gone AFTER DELETE ON " table " BEGIN"              \
    " INSERT INTO gone (kind, id, place) VALUES ('" table "', old.id, old.row);" \
    " DELETE FROM gone WHERE row <= (SELECT max(row) FROM gone) - 65536; END;"

static const char *const store_migrations_jobs[] = {
    /* 1 */
    "CREATE TABLE jobs ("
    " row INTEGER PRIMARY KEY AUTOINCREMENT,"
    " id TEXT NOT NULL UNIQUE,"
    " created_ms INTEGER NOT NULL,"
    " started_ms INTEGER NOT NULL DEFAULT 0,"
    " finished_ms INTEGER NOT NULL DEFAULT 0,"
    " state TEXT NOT NULL CHECK (state IN ("
#define X(id, name, public_status, is_end) "'" name "',"
#include "api/job_states.def"
#undef X
    " '')),"
    " reason TEXT NOT NULL DEFAULT '',"
    " reason_text TEXT NOT NULL DEFAULT '',"
    " owner TEXT NOT NULL,"
    " spec_json TEXT NOT NULL,"
    " model TEXT NOT NULL,"
    " model_dir TEXT NOT NULL,"
    " training_file TEXT NOT NULL,"
    " validation_file TEXT NOT NULL,"
    " fine_tuned_model TEXT NOT NULL DEFAULT '',"
    " priority INTEGER NOT NULL,"
    " ranks INTEGER NOT NULL,"
    " attempt INTEGER NOT NULL DEFAULT 0,"
    " steps_done INTEGER NOT NULL DEFAULT 0,"
    " steps_total INTEGER NOT NULL DEFAULT 0,"
    " trained_tokens INTEGER NOT NULL DEFAULT 0"
    ") STRICT;"
    "CREATE INDEX jobs_state ON jobs (state);"
    "CREATE INDEX jobs_result ON jobs (fine_tuned_model) WHERE fine_tuned_model <> '';"
    "CREATE TABLE job_events ("
    " row INTEGER PRIMARY KEY AUTOINCREMENT,"
    " id TEXT NOT NULL UNIQUE,"
    " job_id TEXT NOT NULL REFERENCES jobs (id),"
    " created_ms INTEGER NOT NULL,"
    " level TEXT NOT NULL CHECK (level IN ('info', 'warn', 'error')),"
    " type TEXT NOT NULL,"
    " message TEXT NOT NULL,"
    " data_json TEXT NOT NULL"
    ") STRICT;"
    "CREATE INDEX job_events_job ON job_events (job_id);"
    "CREATE TABLE files ("
    " row INTEGER PRIMARY KEY AUTOINCREMENT,"
    " id TEXT NOT NULL UNIQUE,"
    " created_ms INTEGER NOT NULL,"
    " filename TEXT NOT NULL,"
    " purpose TEXT NOT NULL,"
    " bytes INTEGER NOT NULL,"
    " status TEXT NOT NULL CHECK (status IN ('uploaded', 'processed', 'error')),"
    " status_details TEXT NOT NULL,"
    " hash TEXT NOT NULL,"
    " owner TEXT NOT NULL"
    ") STRICT;"
    "CREATE TABLE attempts ("
    " job_id TEXT NOT NULL REFERENCES jobs (id),"
    " number INTEGER NOT NULL,"
    " started_ms INTEGER NOT NULL,"
    " ended_ms INTEGER NOT NULL,"
    " keeper_pid INTEGER NOT NULL,"
    " keeper_start_time INTEGER NOT NULL,"
    " boot_id TEXT NOT NULL,"
    " outcome TEXT NOT NULL,"
    " PRIMARY KEY (job_id, number)"
    ") STRICT, WITHOUT ROWID;"
    "CREATE TABLE tokens ("
    " name TEXT NOT NULL PRIMARY KEY,"
    " hash BLOB NOT NULL UNIQUE,"
    " scopes TEXT NOT NULL,"
    " created_ms INTEGER NOT NULL"
    ") STRICT, WITHOUT ROWID;",
    /* 2: pause, resume, restarts */
    "ALTER TABLE jobs ADD COLUMN prepared INTEGER NOT NULL DEFAULT 0;"
    "UPDATE jobs SET prepared = 1 WHERE state <> 'validating';"
    "ALTER TABLE jobs ADD COLUMN restarts INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE jobs ADD COLUMN ran_ms INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE jobs ADD COLUMN resumed_step INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE attempts ADD COLUMN outcome_text TEXT NOT NULL DEFAULT '';",
    /* 3: users. Only the admin's token was ever in the old table; it is put again at each start */
    "DROP TABLE tokens;"
    "CREATE TABLE tokens ("
    " row INTEGER PRIMARY KEY AUTOINCREMENT,"
    " id TEXT NOT NULL UNIQUE,"
    " parent TEXT NOT NULL,"
    " prefix TEXT NOT NULL UNIQUE,"
    " hash BLOB NOT NULL CHECK (length(hash) = 32),"
    " name TEXT NOT NULL,"
    " user TEXT NOT NULL,"
    " scope TEXT NOT NULL CHECK (scope IN ('read', 'submit', 'admin')),"
    " created_ms INTEGER NOT NULL,"
    " expires_ms INTEGER NOT NULL,"
    " last_used_ms INTEGER NOT NULL DEFAULT 0,"
    " revoked_ms INTEGER NOT NULL DEFAULT 0"
    ") STRICT;"
    "CREATE TABLE replays ("
    " row INTEGER PRIMARY KEY AUTOINCREMENT,"
    " caller TEXT NOT NULL,"
    " target TEXT NOT NULL,"
    " key TEXT NOT NULL,"
    " hash TEXT NOT NULL,"
    " expires_ms INTEGER NOT NULL,"
    " made TEXT NOT NULL DEFAULT '',"
    " status INTEGER NOT NULL DEFAULT 0,"
    " body TEXT NOT NULL DEFAULT ''"
    ") STRICT;"
    "CREATE UNIQUE INDEX replays_key ON replays (caller, target, key) WHERE key <> '';"
    "CREATE INDEX replays_hash ON replays (caller, target, hash) WHERE key = '';"
    "CREATE INDEX replays_end ON replays (expires_ms);"
    "CREATE INDEX files_owner ON files (owner);",
    /* 4: GPUs by UUID */
    "ALTER TABLE attempts ADD COLUMN gpus TEXT NOT NULL DEFAULT '';"
    "CREATE TABLE gpus ("
    " uuid TEXT NOT NULL PRIMARY KEY,"
    " drained INTEGER NOT NULL,"
    " aside TEXT NOT NULL,"
    " changed_ms INTEGER NOT NULL"
    ") STRICT, WITHOUT ROWID;",
    /* 5: uploads in parts, files that expire, result files */
    "ALTER TABLE files ADD COLUMN expires_ms INTEGER NOT NULL DEFAULT 0;"
    "CREATE INDEX files_expires ON files (expires_ms) WHERE expires_ms > 0;"
    "ALTER TABLE jobs ADD COLUMN result_file TEXT NOT NULL DEFAULT '';"
    "CREATE INDEX jobs_result_file ON jobs (result_file) WHERE result_file <> '';"
    "CREATE TABLE uploads ("
    " id TEXT NOT NULL PRIMARY KEY,"
    " created_ms INTEGER NOT NULL,"
    " expires_ms INTEGER NOT NULL,"
    " filename TEXT NOT NULL,"
    " purpose TEXT NOT NULL,"
    " bytes INTEGER NOT NULL,"
    " file_lifetime_s INTEGER NOT NULL,"
    " status TEXT NOT NULL CHECK (status IN ('pending', 'completed', 'cancelled', 'expired')),"
    " file_id TEXT NOT NULL,"
    " owner TEXT NOT NULL"
    ") STRICT, WITHOUT ROWID;"
    "CREATE INDEX uploads_expires ON uploads (expires_ms);",
    /* 6: the queue */
    "ALTER TABLE jobs ADD COLUMN predicted_step_s REAL NOT NULL DEFAULT 0;"
    "CREATE TABLE usage ("
    " owner TEXT NOT NULL PRIMARY KEY,"
    " used_s REAL NOT NULL,"
    " total_s REAL NOT NULL,"
    " at_ms INTEGER NOT NULL"
    ") STRICT, WITHOUT ROWID;"
    "CREATE TABLE queue (drained INTEGER NOT NULL) STRICT;"
    "INSERT INTO queue (drained) VALUES (0);",
    /* 7: jobs that are submitted again */
    "ALTER TABLE jobs ADD COLUMN asked_json TEXT NOT NULL DEFAULT '';",
    /* 8: experiments */
    "ALTER TABLE jobs ADD COLUMN experiment TEXT NOT NULL DEFAULT '';"
    "CREATE INDEX jobs_experiment ON jobs (experiment) WHERE experiment <> '';"
    "CREATE TABLE experiments ("
    " row INTEGER PRIMARY KEY AUTOINCREMENT,"
    " id TEXT NOT NULL UNIQUE,"
    " created_ms INTEGER NOT NULL,"
    " owner TEXT NOT NULL,"
    " name TEXT NOT NULL,"
    " spec_json TEXT NOT NULL,"
    " ended_ms INTEGER NOT NULL DEFAULT 0,"
    " cancelled INTEGER NOT NULL DEFAULT 0,"
    " deleted INTEGER NOT NULL DEFAULT 0"
    ") STRICT;"
    "CREATE INDEX experiments_open ON experiments (row) WHERE ended_ms = 0;"
    "CREATE TABLE experiment_points ("
    " experiment_id TEXT NOT NULL REFERENCES experiments (id),"
    " number INTEGER NOT NULL,"
    " status TEXT NOT NULL,"
    " note TEXT NOT NULL,"
    " facts_json TEXT NOT NULL,"
    " body_json TEXT NOT NULL,"
    " job_id TEXT NOT NULL DEFAULT '',"
    " measured_json TEXT NOT NULL DEFAULT '',"
    " PRIMARY KEY (experiment_id, number)"
    ") STRICT, WITHOUT ROWID;",
    /* 9: webhooks. A job may be deleted before its last message has come, so it is no parent */
    "CREATE TABLE webhooks ("
    " row INTEGER PRIMARY KEY AUTOINCREMENT,"
    " id TEXT NOT NULL,"
    " job_id TEXT NOT NULL,"
    " owner TEXT NOT NULL,"
    " url TEXT NOT NULL,"
    " body TEXT NOT NULL,"
    " created_ms INTEGER NOT NULL,"
    " tries INTEGER NOT NULL DEFAULT 0,"
    " next_ms INTEGER NOT NULL"
    ") STRICT;"
    "CREATE INDEX webhooks_line ON webhooks (job_id, url, row);"
    "CREATE INDEX webhooks_next ON webhooks (next_ms);"
    "CREATE INDEX webhooks_owner ON webhooks (owner);"
    "CREATE TABLE webhook_cursor (event_row INTEGER NOT NULL) STRICT;"
    "INSERT INTO webhook_cursor SELECT coalesce(max(row), 0) FROM job_events;"
    "CREATE TABLE webhook_secrets ("
    " owner TEXT NOT NULL PRIMARY KEY,"
    " edition INTEGER NOT NULL"
    ") STRICT, WITHOUT ROWID;",
    /* 10: lists go on after a row that was deleted meanwhile */
    "CREATE TABLE gone ("
    " row INTEGER PRIMARY KEY,"
    " kind TEXT NOT NULL,"
    " id TEXT NOT NULL UNIQUE,"
    " place INTEGER NOT NULL"
    ") STRICT;" STORE_GONE("jobs") STORE_GONE("files") STORE_GONE("experiments"),
    /* 11: usage. What older attempts trained is not known: step is -1 */
    "ALTER TABLE attempts ADD COLUMN from_step INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE attempts ADD COLUMN step INTEGER NOT NULL DEFAULT -1;"
    "ALTER TABLE attempts ADD COLUMN tokens INTEGER NOT NULL DEFAULT 0;"
    "CREATE TABLE attempts_gone ("
    " job_id TEXT NOT NULL,"
    " number INTEGER NOT NULL,"
    " owner TEXT NOT NULL,"
    " model TEXT NOT NULL,"
    " state TEXT NOT NULL,"
    " started_ms INTEGER NOT NULL,"
    " ended_ms INTEGER NOT NULL,"
    " slots INTEGER NOT NULL,"
    " has_gpus INTEGER NOT NULL,"
    " outcome TEXT NOT NULL,"
    " from_step INTEGER NOT NULL,"
    " step INTEGER NOT NULL,"
    " kept_step INTEGER NOT NULL,"
    " tokens INTEGER NOT NULL,"
    " PRIMARY KEY (job_id, number)"
    ") STRICT, WITHOUT ROWID;"
    /* An attempt that is open runs only as its job's newest; else its end was never written. */
    "CREATE VIEW attempts_held AS SELECT a.job_id AS job_id, a.number AS number, j.owner AS owner,"
    " j.model AS model, j.state AS state, a.started_ms AS started_ms,"
    " iif(a.ended_ms > 0 OR (a.number = j.attempt AND j.state IN ('starting', 'running', 'pausing',"
    " 'preempting', 'cancelling')), a.ended_ms, a.started_ms) AS ended_ms,"
    " j.ranks AS slots, a.gpus <> '' AS has_gpus, a.outcome AS outcome,"
    " a.from_step AS from_step, a.step AS step,"
    " coalesce((SELECT min(n.from_step) FROM attempts AS n WHERE n.job_id = a.job_id AND"
    " n.number > a.number), -1) AS kept_step, a.tokens AS tokens"
    " FROM attempts AS a JOIN jobs AS j ON j.id = a.job_id;",
    /* 12: how far experiments are, for their list */
    "CREATE INDEX experiment_points_status ON experiment_points (experiment_id, status);",
    /* 13: what deleted jobs held, to be forgotten by age */
    "CREATE INDEX attempts_gone_ended ON attempts_gone (ended_ms);",
};

static const char *const store_migrations_metrics[] = {
    /* 1 */
    "CREATE TABLE metric_names ("
    " number INTEGER PRIMARY KEY,"
    " name TEXT NOT NULL UNIQUE,"
    " unit TEXT NOT NULL"
    ") STRICT;"
    "CREATE TABLE jobs ("
    " number INTEGER PRIMARY KEY,"
    " id TEXT NOT NULL UNIQUE"
    ") STRICT;"
    "CREATE TABLE points ("
    " row INTEGER PRIMARY KEY AUTOINCREMENT,"
    " job INTEGER NOT NULL,"
    " attempt INTEGER NOT NULL,"
    " step INTEGER NOT NULL,"
    " rank INTEGER NOT NULL,"
    " metric INTEGER NOT NULL,"
    " value REAL,"
    " kind TEXT CHECK ((value IS NULL) = (kind IS NOT NULL)),"
    " wall_s REAL NOT NULL"
    ") STRICT;"
    "CREATE INDEX points_job ON points (job);",
    /* 2: a point that a rank sends again after a reconnect is the same point */
    "DELETE FROM points WHERE row NOT IN (SELECT min(row) FROM points"
    " GROUP BY job, metric, rank, step, attempt);"
    "CREATE UNIQUE INDEX points_key ON points (job, metric, rank, step, attempt);",
};

static int store_migrate_one(sqlite3 *database, const char *sql, int64_t version, struct err *err)
{
    char set_version[64];
    (void)snprintf(set_version, sizeof set_version, "PRAGMA user_version = %lld",
                   (long long)version);
    SQL_TRY(database, sqlite3_exec(database, "BEGIN IMMEDIATE", NULL, NULL, NULL));
    int code = sqlite3_exec(database, sql, NULL, NULL, NULL);
    if (code == SQLITE_OK)
        code = sqlite3_exec(database, set_version, NULL, NULL, NULL);
    if (code == SQLITE_OK)
        code = sqlite3_exec(database, "COMMIT", NULL, NULL, NULL);
    if (code == SQLITE_OK)
        return 0;
    int rc = store_fail(database, code, "migration", err);
    (void)sqlite3_exec(database, "ROLLBACK", NULL, NULL, NULL); /* the migration's error counts */
    return rc;
}

static int store_read_version(void *ret_version, int columns, char **values, char **names)
{
    (void)names;
    must(columns == 1 && values[0] != NULL);
    long long version = 0;
    must(sscanf(values[0], "%lld", &version) == 1);
    *(int64_t *)ret_version = version;
    return 0;
}

int store_schema_migrate(sqlite3 *database, enum store_database which, const char *path,
                         struct err *err)
{
    const char *const *migrations =
        which == STORE_JOBS ? store_migrations_jobs : store_migrations_metrics;
    const int64_t newest =
        which == STORE_JOBS
            ? (int64_t)(sizeof store_migrations_jobs / sizeof store_migrations_jobs[0])
            : (int64_t)(sizeof store_migrations_metrics / sizeof store_migrations_metrics[0]);
    int64_t version = 0;
    SQL_TRY(database,
            sqlite3_exec(database, "PRAGMA user_version", store_read_version, &version, NULL));
    if (version < 0 || version > newest)
        return err_set(
            err, ERR_CORRUPT,
            "%s has version %lld, this daemon knows up to %lld: start a newer ithacad, or "
            "put back the copy that it made before (%s.v...)",
            path, (long long)version, (long long)newest, path);
    if (version > 0 && version < newest)
        TRY(store_backup(database, path, version, err));
    for (; version < newest; version++)
        TRY(store_migrate_one(database, migrations[version], version + 1, err));
    return 0;
}
