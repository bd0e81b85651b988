"""Many jobs without the time that they take: copies of one job's row in the store of a daemon that is stopped."""
import os
import sqlite3


def job_copies(data_dir, job, changes):
    """A row for each of `changes`, like that of the job but for the columns in it: an id of its own, and what else differs."""
    store = sqlite3.connect(os.path.join(data_dir, "jobs.db"))
    store.row_factory = sqlite3.Row
    with store:
        row = dict(store.execute("SELECT * FROM jobs WHERE id = ?", (job,)).fetchone())
        del row["row"]
        store.executemany(f"INSERT INTO jobs ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})",
                          (list({**row, **change}.values()) for change in changes))
    store.close()
