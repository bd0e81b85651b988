"""Experiments: planned, run through the queue, kept over a restart, told as tables and charts; and what is refused."""
import csv
import io
import json
import os
import shutil
import signal
import subprocess
import unittest
import xml.dom.minidom

from ithaca_e2e import ITHACA, SOURCE_DIR, Daemon, processes_of, resident_bytes, until

BASE = {"model": "tiny-llama", "ithaca": {"gpus": 2}}
PATH = "/v1/experiments"
SHIPPED = os.path.join(SOURCE_DIR, "deploy", "experiments")


def grid(**more):
    return {"base": BASE, "grid": {"seq_len": [64]}, **more}


def rss_mib(pid):
    """0 of one that has ended."""
    try:
        return resident_bytes(pid) >> 20
    except OSError:
        return 0


class Experiments(unittest.TestCase):
    def make(self, client, **body):
        answer = client.post(PATH, body)
        self.assertEqual(answer.status, 200, answer.text)
        return answer.json()

    def wait(self, client, made, seconds=120):
        def question():
            experiment = client.get(f"{PATH}/{made['id']}").json()
            return experiment if experiment["finished_at"] is not None else None
        return until("the experiment's end", seconds, question)

    def check_forms(self, client, experiment):
        """The same rows in each form, a line of three dots for each method in both charts."""
        path = f"{PATH}/{experiment['id']}/results"
        rows = client.get(path).json()["data"]
        self.assertEqual(rows, experiment["results"])
        table = list(csv.DictReader(io.StringIO(client.get(f"{path}?format=csv").text)))
        self.assertEqual([(row["label"], row["job"]) for row in table], [(row["label"], row["job"]) for row in rows])
        for told, row in zip(table, rows):
            self.assertAlmostEqual(float(told["tokens_per_s_gpu"]), row["tokens_per_s_gpu"])
        markdown = client.get(f"{path}?format=markdown").text.splitlines()
        self.assertEqual(len(markdown), 2 + len(rows))
        self.assertEqual({line.count("|") for line in markdown}, {markdown[0].count("|")})
        chart = xml.dom.minidom.parseString(client.get(f"{path}?format=svg").text)
        self.assertEqual(len(chart.getElementsByTagName("circle")), 2 * len(rows))
        self.assertEqual(client.get(f"{path}?format=pdf").error()["param"], "format")

    def check_command(self, daemon, experiment):
        chart = os.path.join(daemon.data_dir, "chart.svg")
        shown = daemon.ithaca("experiment", "show", experiment["id"]).stdout.splitlines()
        self.assertTrue(shown[0].startswith(f"{experiment['id']}  finished"), shown)
        self.assertEqual(len(shown), 2 + len(experiment["results"]))
        self.assertIn(experiment["id"], daemon.ithaca("experiment", "list").stdout)
        self.assertTrue(daemon.ithaca("experiment", "results", experiment["id"], "--format", "csv").stdout.startswith("number,"))
        done = daemon.ithaca("experiment", "results", experiment["id"], "--chart", chart)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(xml.dom.minidom.parse(chart).documentElement.tagName, "svg")

    def check_shipped(self, daemon):
        """Every shipped file is planned; each point can be a job or is told why not."""
        for name in sorted(os.listdir(SHIPPED)):
            planned = daemon.ithaca("experiment", "plan", os.path.join(SHIPPED, name)).stdout.splitlines()
            done = daemon.ithaca("--json", "experiment", "run", os.path.join(SHIPPED, name))
            self.assertEqual(done.returncode, 0, (name, done.stderr))
            made = json.loads(done.stdout)
            self.assertEqual({row["status"] for row in made["results"]} - {"waiting", "does_not_fit"}, set(), name)
            self.assertRegex(planned[-1], r"^\d+ of \d+ points fit; ")
            notes = [line for line in planned if line.startswith("#") and "does_not_fit: " in line]
            self.assertEqual(len(notes), sum(row["status"] == "does_not_fit" for row in made["results"]), planned)
            self.assertEqual(daemon.ithaca("experiment", "cancel", made["id"]).returncode, 0)

    def test_to_its_table(self):
        """3 lengths x 3 methods, one at a time; the daemon is killed and stopped on the way; each point has one job."""
        with Daemon("--cpu-slots", "2") as daemon:
            client = daemon.client()
            with open(os.path.join(SHIPPED, "tiny.json"), "rb") as file:
                made = self.make(client, **json.load(file), max_gpus=2)
            self.assertEqual((made["status"], made["points"]["all"], len(made["results"])), ("waiting", 9, 9))
            self.assertTrue(all(row["planned_device_bytes"] > 0 for row in made["results"]))
            following = subprocess.Popen([ITHACA, "--data-dir", daemon.data_dir, "experiment", "show", made["id"], "--follow"],
                                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for count, end in ((2, daemon.kill), (4, daemon.stop)):  # stopped, it pauses the job, which starts over
                until("points", 60, lambda: client.get(f"{PATH}/{made['id']}").json()["points"]["succeeded"] >= count)
                end()
                daemon.start()
                client = daemon.client()
            seen = set()

            def question():
                experiment = client.get(f"{PATH}/{made['id']}").json()
                seen.add(experiment["points"]["unfinished"])
                return experiment if experiment["status"] == "finished" else None
            experiment = until("the table", 120, question)
            self.assertLessEqual(seen, {0, 1})
            rows = experiment["results"]
            self.assertEqual([row["status"] for row in rows], ["succeeded"] * 9, rows)
            self.assertEqual([row["method"] for row in rows[::3]], ["ring", "ulysses", "upipe/1"])
            self.assertEqual([row["seq_len"] for row in rows], [64, 128, 256] * 3)
            for row in rows:
                self.assertGreater(row["tokens_per_s_gpu"], 0)
                self.assertEqual((row["device_bytes"], row["rehearsed"]), (row["planned_device_bytes"], False))
            jobs = client.get("/v1/fine_tuning/jobs?limit=100").json()["data"]
            self.assertEqual({job["id"] for job in jobs}, {row["job"] for row in rows})
            self.assertEqual({(job["ithaca"]["experiment"], job["ithaca"]["spec"]["priority"], job["fine_tuned_model"])
                              for job in jobs}, {(made["id"], -100, None)})
            shown, told = following.communicate(timeout=60)
            self.assertEqual((following.returncode, shown), (0, daemon.ithaca("experiment", "show", made["id"]).stdout), told)
            self.assertEqual(told.splitlines()[-1], "9 of 9 points")
            self.check_forms(client, experiment)
            self.check_command(daemon, experiment)
            # Results outlive the jobs; jobs do not outlive the experiment.
            self.assertEqual(client.delete(f"/v1/fine_tuning/jobs/{rows[0]['job']}").status, 200)
            self.assertEqual(client.get(f"{PATH}/{made['id']}").json()["results"], rows)
            self.assertEqual(client.delete(f"{PATH}/{made['id']}").json(),
                             {"id": made["id"], "object": "experiment", "deleted": True})
            self.assertEqual(client.get(f"{PATH}/{made['id']}").status, 404)
            until("no jobs", 20, lambda: client.get("/v1/fine_tuning/jobs").json()["data"] == [])
            self.assertEqual(client.get(PATH).json()["data"], [])

    def test_planned_and_cancelled(self):
        """Nothing runs: what cannot be is told at once, what is not there is to be rehearsed, the rest is cancelled."""
        with Daemon("--cpu-slots", "2") as daemon:
            client = daemon.client()
            self.assertEqual(client.post("/v1/admin/drain").status, 200)
            body = {"base": {"model": "llama3-8b", "ithaca": {"gpus": 8, "context_parallel": {"kind": "upipe"}}},
                    "grid": {"settings": [{}, {"name": "of three", "context_parallel": {"ulysses": 3}}, {"name": "small", "gpus": 2,
                                                                                "memory_limit_gib": 1}]}, "rehearse_layers": 1}
            body["base"]["ithaca"]["seq_len"] = 1024
            planned = client.post(f"{PATH}/estimate", body).json()["data"]
            self.assertEqual(client.get(PATH).json()["data"], [])
            headers = {"Idempotency-Key": "once"}
            answer = client.post(PATH, body, headers=headers)
            self.assertEqual(answer.status, 200, answer.text)
            again = client.post(PATH, body, headers=headers)
            self.assertEqual(again.json()["id"], answer.json()["id"])
            whole, three, small = answer.json()["results"]
            self.assertEqual([{**row, "job": None} for row in answer.json()["results"]], planned)
            self.assertEqual((whole["gpus"], whole["rehearsed"]), (8, True))
            self.assertEqual((three["status"], small["status"]), ("refused", "does_not_fit"))
            self.assertIn("3", three["note"])
            self.assertIn("GiB", small["note"])
            self.assertGreater(small["planned_device_bytes"], 1 << 30)
            tiny = self.make(client, **grid(grid={"seq_len": [64, 128]}, base={
                **BASE, "ithaca": {"gpus": 2, "context_parallel": {"kind": "ring"}}}))
            waiting = until("jobs", 20, lambda: [
                row for row in client.get(f"{PATH}/{tiny['id']}").json()["results"] if row["status"] == "queued"] or None)
            job = client.job(waiting[0]["job"])
            self.assertEqual((job["ithaca"]["spec"]["batch"]["sequences"], job["ithaca"]["spec"]["max_steps"]), (1, 3))
            self.assertEqual(client.delete(f"{PATH}/{tiny['id']}").error()["code"], "invalid_state")
            for made in (tiny, answer.json()):
                self.assertEqual(client.post(f"{PATH}/{made['id']}/cancel").status, 200)
                ended = self.wait(client, made)
                self.assertEqual((ended["status"], ended["points"]["unfinished"]), ("cancelled", 0))
            states = {job["ithaca"]["state"] for job in client.get("/v1/fine_tuning/jobs").json()["data"]}
            self.assertEqual(states, {"cancelled"})
            self.assertEqual([one["id"] for one in client.get(PATH).json()["data"]], [tiny["id"], answer.json()["id"]])
            self.assertEqual(client.post(f"{PATH}/{tiny['id']}/cancel").json()["status"], "cancelled")
            self.check_others(client, tiny)
            large = self.make(client, **grid(grid={"seq_len": list(range(64, 104))}))  # of 2 slots, and 16 that wait
            until("its jobs", 20, lambda: client.get(f"{PATH}/{large['id']}").json()["points"]["unfinished"] == 18)
            job = client.get(f"{PATH}/{large['id']}").json()["results"][0]["job"]
            self.assertEqual(client.post(f"/v1/fine_tuning/jobs/{job}/cancel").status, 200)
            points = until("the next", 20, lambda: (
                now := client.get(f"{PATH}/{large['id']}").json()["points"])["waiting"] == 21 and now)
            self.assertEqual((points["unfinished"], points["not_run"]), (18, 1))
            client.post(f"{PATH}/{large['id']}/cancel")
            self.assertEqual(self.wait(client, large)["points"]["not_run"], 40)
            self.assertEqual(client.delete(f"{PATH}/{large['id']}").status, 200)
            for _ in range(client.get("/v1/fine_tuning/limits").json()["experiments"]["unfinished"]):
                self.make(client, **grid())
            answer = client.post(PATH, grid())
            self.assertEqual((answer.status, answer.error()["code"]), (429, "too_many_requests"), answer.text)
            for made in client.get(f"{PATH}?limit=32").json()["data"]:
                self.assertEqual(client.post(f"{PATH}/{made['id']}/cancel").status, 200)
            until("their ends", 20, lambda: all(made["finished_at"] for made in client.get(f"{PATH}?limit=32").json()["data"]))
            for _ in range(17):
                self.make(client, **grid())
            page = client.get(f"{PATH}?limit=1000").json()
            self.assertEqual((len(page["data"]), page["has_more"]), (50, True))
            self.assertEqual(len(client.get(f"{PATH}?limit=1000&after={page['last_id']}").json()["data"]), 1)
            self.check_shipped(daemon)

    def check_others(self, client, made):
        ann, reader = client.user("ann"), client.user("ann", "read")
        self.assertEqual(ann.get(PATH).json()["data"], [])
        for answer in (ann.get(f"{PATH}/{made['id']}"), ann.get(f"{PATH}/{made['id']}/results"),
                       ann.post(f"{PATH}/{made['id']}/cancel"), ann.delete(f"{PATH}/{made['id']}")):
            self.assertEqual(answer.status, 404, answer.text)
        urgent = {**BASE, "ithaca": {"priority": 5}}
        for path in (PATH, f"{PATH}/estimate"):
            self.assertEqual(ann.post(path, grid(base=urgent)).status, 403)
        self.assertEqual([reader.post(path, grid()).status for path in (PATH, f"{PATH}/estimate")], [403, 200])
        file_id = client.upload(b'{"text": "of the admin"}\n')["id"]
        for named, param in (({"training_file": file_id}, "training_file"), ({"training_file": "file-none"}, "training_file"),
                             ({"ithaca": {"webhook": "https://hooks.example.com/"}}, "ithaca.webhook")):
            answer = ann.post(PATH, grid(base={**BASE, **named}))
            self.assertEqual((answer.status, answer.error()["param"]), (400, param), answer.text)

    def test_quota(self):
        """What a user may not have at once is refused as it is of other jobs; ranks that are not there are one process."""
        with Daemon("--cpu-slots", "2", "--user-slots-max", "1") as daemon:
            client = daemon.client()
            rows = self.wait(client, self.make(client, **grid(grid={"gpus": [2, 1, 4]}, steps=1, base={
                "model": "tiny-llama", "ithaca": {"seq_len": 64}})))["results"]
            self.assertEqual([(row["status"], row["rehearsed"]) for row in rows], [("refused", False), ("succeeded", False), ("succeeded", True)])
            self.assertIn("one user may have 1 at once", rows[0]["note"])
            self.assertEqual((rows[2]["gpus"], rows[2]["device_bytes"]), (4, rows[2]["planned_device_bytes"]))
            self.assertGreater(rows[2]["tokens_per_s_gpu"], 0)

    def test_refused(self):
        with Daemon("--cpu-slots", "2") as daemon:
            client = daemon.client()
            for body, code, param, words in (
                    ({**grid(), "grids": {}}, "unknown_parameter", "grids", "base and grid"),
                    (grid(grid={}), "invalid_value", "grid", "grid is empty"),
                    (grid(grid={"seq_len": []}), "invalid_value", "grid", "list of one value"),
                    (grid(grid={"seq_len": list(range(64, 321))}), "invalid_value", "grid", "more than 256 points"),
                    (grid(grid={"seq_length": [64]}), "unknown_parameter", "ithaca.seq_length", "did you mean ithaca.seq_len?"),
                    (grid(grid={"seq_len": [64, "long"]}), "invalid_value", "ithaca.seq_len", "point 1: "),
                    (grid(base={"model": "none"}), "not_found", "model", "none"),
                    (grid(base={**BASE, "ithaca": {"max_steps": 2}}), "invalid_value", "ithaca.max_steps", "steps"),
                    (grid(grid={"seq_len": [64], "gpus": [3]}, base={**BASE, "ithaca": {"context_parallel": {
                        "ulysses": 3}}}), "invalid_value", "grid", "none of the 1 points can be a job"),
                    (grid(max_gpus=1), "invalid_value", "grid", "it takes 2 slots at once, and max_gpus is 1"),
                    ({"grid": {"seq_len": [64]}}, "missing_required_parameter", "base", "base is missing")):
                answer = client.post(PATH, body)
                self.assertEqual((answer.status // 100, answer.error()["code"], answer.error()["param"]), (4, code, param), body)
                self.assertIn(words, answer.error()["message"])
                planned = client.post(f"{PATH}/estimate", body)
                if planned.status == 200:  # each point by itself
                    self.assertEqual((param, {row["status"] for row in planned.json()["data"]}), ("grid", {"refused"}), body)
                else:
                    self.assertEqual(planned.json(), answer.json())
            self.assertEqual(client.get(PATH).json()["data"], [])
            self.assertEqual(client.get(f"{PATH}/exp-none").status, 404)
            self.assertEqual(client.post(f"{PATH}/exp-none/cancel").status, 404)

    def test_first_failure_stops(self):
        """Its rank is killed; the others, waiting for a slot, are not run."""
        with Daemon("--cpu-slots", "1") as daemon:
            client = daemon.client()
            made = self.make(client, **grid(on_failure="stop", max_gpus=1, grid={"seq_len": [4096, 64]}, base={
                "model": "tiny-llama", "ithaca": {"max_restarts": 0}}))
            job = until("a job", 20, lambda: client.get(f"{PATH}/{made['id']}").json()["results"][0]["job"])
            rank = until("a rank", 30, lambda: [pid for pid, command in processes_of(job) if "--rank" in command])
            os.kill(rank[0], signal.SIGKILL)
            ended = self.wait(client, made)
            failed, left = ended["results"]
            self.assertEqual((failed["status"], left["status"], left["job"]), ("failed", "cancelled", None))
            self.assertIn("signal", failed["note"])
            self.assertIn("on_failure", left["note"])

    def test_longest(self):
        """The plan promises more than a second of running time allows: real runs find what does."""
        with Daemon("--cpu-slots", "1", "--stop-grace-s", "1") as daemon:
            client = daemon.client()
            made = self.make(client, kind="find_max_seq_len", grid={}, seq_len_min=64, seq_len_max=16384, seq_len_step=8192,
                             base={"model": "tiny-llama", "ithaca": {"time_limit_s": 1}}, steps=3)
            self.assertEqual([row["seq_len"] for row in made["results"]], [16384])
            ended = self.wait(client, made)
            rows = ended["results"]
            runs = [row["seq_len"] for row in rows if row["status"] == "succeeded"]
            fails = [row["seq_len"] for row in rows if row["status"] == "failed"]
            self.assertGreater(len(fails), 0, rows)
            self.assertLess(max(runs), min(fails))
            self.assertLessEqual(min(fails) - max(runs), 8192)
            self.assertEqual(len(rows), len(set(runs + fails)))
            self.assertEqual(ended["longest"], {"": max(runs)})
            self.assertIn(f"longest that runs: {max(runs)} (16384 was tried first)\n",
                          daemon.ithaca("experiment", "show", made["id"]).stdout)

    def test_model_that_goes(self):
        """A search whose model is removed while its first length runs ends there, and says why."""
        with Daemon("--cpu-slots", "1", "--stop-grace-s", "1") as daemon:
            client = daemon.client()
            shutil.copytree(os.path.join(daemon.data_dir, "models", "tiny-llama"), os.path.join(daemon.data_dir, "models", "leaver"))
            made = self.make(client, kind="find_max_seq_len", grid={}, seq_len_min=64, seq_len_max=16384, steps=1, base={
                "model": "leaver", "ithaca": {"gpus": 1, "time_limit_s": 1}})
            job = until("a job", 20, lambda: client.get(f"{PATH}/{made['id']}").json()["results"][0]["job"])
            until("a rank that has read its model", 30, lambda: [
                pid for pid, command in processes_of(job) if "--rank" in command and rss_mib(pid) > 256])
            shutil.rmtree(os.path.join(daemon.data_dir, "models", "leaver"))
            failed, gone = self.wait(client, made)["results"]
            self.assertEqual((failed["status"], gone["status"], gone["job"]), ("failed", "refused", None))
            self.assertIn('no model "leaver"', gone["note"])


if __name__ == "__main__":
    unittest.main()
