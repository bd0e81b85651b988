"""GPUs that a file plays (jobs compute on the CPU): who has them, who is left alone, what is sick, over restarts too."""
import json
import os
import unittest

import ithaca_e2e as e2e

DATA = b"".join(b'{"messages":[{"role":"user","content":"Ship %d?"},{"role":"assistant","content":"Quay %d."}]}\n'
                % (i, i % 7) for i in range(12))
GIB = 1 << 30
UUIDS = ["GPU-00000000-aaaa", "GPU-11111111-bbbb"]


class Gpus:
    """The file: change a GPU and it is written."""

    def __init__(self, folder):
        self.path = os.path.join(folder, "gpus.json")
        self.gpus = [{"uuid": uuid, "name": "NVIDIA H200", "bytes": 141 * GIB, "used_bytes": 0, "xids": [],
                      "ecc_uncorrected": 0, "temperature_c": 40, "processes": []} for uuid in UUIDS]
        self.write()

    def write(self):
        with open(self.path + ".new", "w", encoding="utf-8") as file:
            json.dump({"gpus": self.gpus}, file)
        os.rename(self.path + ".new", self.path)

    def set(self, number, **fields):
        self.gpus[number].update(fields)
        self.write()


class TestGpus(unittest.TestCase):
    def setUp(self):
        self.daemon = e2e.Daemon(wait=False)
        self.daemon.kill()
        self.gpus = Gpus(self.daemon.data_dir)
        self.daemon.args = ("--gpu-file", self.gpus.path)
        self.start()
        self.file = self.client.upload(DATA)["id"]

    def tearDown(self):
        self.daemon.__exit__(None, None, None)

    def start(self):
        self.daemon.start()
        self.client = self.daemon.client()

    def gpu(self, number):
        listed = self.client.get("/v1/gpus").json()["data"]
        self.assertEqual([gpu["id"] for gpu in listed], UUIDS)
        return listed[number]

    def await_gpu(self, number, state):
        e2e.until(f"GPU {number} is {state}", 20, lambda: self.gpu(number)["state"] == state)
        return self.gpu(number)

    def submit(self, gpus, **more):
        return self.client.submit(self.file, ithaca={"gpus": gpus, "seq_len": 32, "max_steps": 3,
                                                     "batch": {"sequences": 2}, "max_restarts": 0,
                                                     "save": {"every_steps": 1}, **more})["id"]

    def run_at(self, gpus, step, **more):
        """A job that has done its steps up to one."""
        self.daemon.hold(step)
        job = self.submit(gpus, **more)
        e2e.until(f"step {step}", 60, lambda: self.client.job(job)["ithaca"]["steps_done"] == step)
        return job

    def kill_rank(self, job):
        pids = [pid for pid, command in e2e.processes_of(job) if "--rank" in command.split()]
        os.kill(min(pids), 9)

    def ithaca(self, *words):
        done = self.daemon.ithaca(*words)
        return done.returncode, done.stdout + done.stderr

    def test_steps_say_how_their_gpus_were(self):
        for number, (busy, milliwatts, celsius) in enumerate([(80, 500000, 60), (20, 100000, 35)]):
            self.gpus.set(number, busy_percent=busy, power_mw=milliwatts, temperature_c=celsius)
        e2e.until("the look at both", 20, lambda: [self.gpu(i)["utilization"] for i in (0, 1)] == [0.8, 0.2])
        job = self.run_at(2, 1)
        self.gpus.set(1, links=7)  # told by the next look, which is the next step's
        e2e.until("a look since step 1", 20, lambda: self.gpu(1)["nvlinks"] == 7)
        self.daemon.hold(None)
        self.client.wait(job, ("succeeded",))
        keys = ("gpu_utilization", "gpu_power_w", "gpu_temperature_c")
        series = self.client.get(f"/v1/fine_tuning/jobs/{job}/metrics?keys={','.join(keys)}").json()["data"]
        told = {(one["key"], one["rank"]): dict(point[:2] for point in one["points"]) for one in series}
        for rank, values in enumerate([(0.8, 500, 60), (0.2, 100, 35)]):
            for key, value in zip(keys, values):
                self.assertEqual(told[key, rank][2], value, (key, rank))

    def test_others_are_left_alone_and_what_is_given_back_is_checked(self):
        """R50."""
        self.gpus.set(1, used_bytes=3 * GIB, processes=[{"pid": 4711, "bytes": 3 * GIB}])
        self.assertIn("by process 4711", self.await_gpu(1, "foreign")["reason"])
        answer = self.client.post("/v1/fine_tuning/jobs", {"model": "tiny-llama", "training_file": self.file,
                                                           "ithaca": {"gpus": 3, "seq_len": 32}})
        self.assertEqual(answer.status, 400)
        both = self.submit(2)
        job = self.client.wait(both, ("queued",))
        self.assertIn("GPU 1 used by others: 3.0 GiB", job["ithaca"]["pending_reason"])
        self.daemon.hold(1)
        self.gpus.set(1, used_bytes=0, processes=[])
        job = self.client.wait(both, ("running",))
        self.assertEqual(job["ithaca"]["gpus"], UUIDS)
        gpu = self.gpu(0)
        self.assertEqual((gpu["state"], gpu["job_id"], gpu["owner"]), ("taken", both, "admin"))
        # The daemon dies; the next one knows whose they are.
        self.daemon.kill()
        self.start()
        self.assertEqual([self.gpu(i)["job_id"] for i in (0, 1)], [both, both])
        # One keeps memory in use after the job: it is not given out until it is empty.
        self.gpus.set(0, used_bytes=9 * GIB)
        self.daemon.hold(None)
        self.client.wait(both, ("succeeded",))
        self.await_gpu(1, "free")
        self.assertEqual(self.gpu(0)["state"], "checking")
        one = self.submit(1)
        self.assertEqual(self.client.wait(one)["ithaca"]["gpus"], [UUIDS[1]])
        self.assertEqual(self.gpu(0)["state"], "checking")
        self.gpus.set(0, used_bytes=0)
        self.await_gpu(0, "free")

    def test_sick_gpus_are_set_aside_and_named(self):
        job = self.run_at(1, 1, max_restarts=1)
        self.assertEqual(self.client.job(job)["ithaca"]["gpus"], [UUIDS[0]])
        self.gpus.set(0, xids=[79])
        e2e.until("XID is seen", 20, lambda: self.gpu(0)["reason"])
        gpu = self.gpu(0)
        self.assertEqual((gpu["state"], gpu["reason"]), ("taken", "set aside: XID 79: the GPU has fallen off the bus"))
        self.assertEqual((gpu["xid_count"], gpu["xid_last"]), (1, "79: the GPU has fallen off the bus"))
        self.kill_rank(job)
        # The job goes on elsewhere; its events say why.
        e2e.until("it goes on", 60, lambda: self.client.job(job)["ithaca"]["gpus"] == [UUIDS[1]])
        events = self.client.get(f"/v1/fine_tuning/jobs/{job}/events").json()["data"]
        self.assertTrue(any(f"({UUIDS[0]}) told XID 79" in event["message"] for event in events), events)
        # A fault of the job's own does not set a GPU aside.
        e2e.until("ranks", 60, lambda: self.client.job(job)["ithaca"]["state"] == "running")
        self.gpus.set(1, xids=[31])
        e2e.until("XID is seen", 20, lambda: self.gpu(1)["xid_count"])
        self.kill_rank(job)
        error = self.client.wait(job, ("failed",))["error"]
        self.assertEqual(error["code"], "rank_died")
        self.assertIn(f"GPU 1 ({UUIDS[1]}) told XID 31: a kernel touched memory that is not mapped", error["message"])
        self.await_gpu(1, "free")
        self.assertEqual(self.await_gpu(0, "set_aside")["job_id"], None)
        # ECC errors, and one that is gone.
        self.gpus.set(1, ecc_uncorrected=2)
        self.assertIn("2 uncorrectable ECC errors", self.await_gpu(1, "set_aside")["reason"])
        waits = self.submit(1)
        self.assertIn("2 of 2 GPUs are not given out", self.client.wait(waits, ("queued",))["ithaca"]["pending_reason"])
        # The next daemon leaves it alone, too, until an operator undrains it.
        self.daemon.stop()
        self.start()
        self.assertEqual(self.gpu(0)["state"], "set_aside")
        code, text = self.ithaca("gpus", "undrain", UUIDS[0])
        self.assertEqual(code, 0, text)
        self.daemon.hold(None)
        self.assertEqual(self.client.wait(waits, ("succeeded",))["ithaca"]["gpus"], [UUIDS[0]])

    def test_drain(self):
        job = self.run_at(1, 1)
        code, text = self.ithaca("gpus", "drain", UUIDS[0])
        self.assertEqual((code, text), (0, f"{UUIDS[0]}  0  NVIDIA H200  taken  0.0/141.0 GiB  40 C  {job} of admin  "
                                           "drained\n"))
        self.daemon.hold(None)
        self.client.wait(job, ("succeeded",))  # it goes on
        self.await_gpu(0, "drained")
        self.daemon.stop()
        self.start()
        self.assertEqual(self.gpu(0)["state"], "drained")
        self.assertEqual(self.client.wait(self.submit(1))["ithaca"]["gpus"], [UUIDS[1]])
        answer = self.client.post(f"/v1/gpus/{UUIDS[0]}/undrain")
        self.assertEqual((answer.status, answer.json()["state"]), (200, "free"))
        self.assertEqual(self.client.post("/v1/gpus/GPU-2/drain").error()["code"], "not_found")

    def test_visible_devices(self):
        """R50."""
        self.daemon.stop()
        self.daemon.env["CUDA_VISIBLE_DEVICES"] = "GPU-1"
        self.daemon.start()
        listed = self.daemon.client().get("/v1/gpus").json()["data"]
        self.assertEqual([gpu["id"] for gpu in listed], UUIDS[1:])
        self.daemon.stop()
        self.daemon.env["CUDA_VISIBLE_DEVICES"] = "MIG-1"
        self.daemon.start(wait=False)
        self.assertNotEqual(self.daemon.process.wait(20), 0)
        self.assertIn("names a slice of a GPU (MIG)", self.daemon.log())


class TestSlots(unittest.TestCase):
    def test_slots_of_the_cpu_appear_alike(self):
        with e2e.Daemon("--device", "cpu", "--cpu-slots", "2") as daemon:
            client = daemon.client()
            file = client.upload(DATA)["id"]
            daemon.hold(0)
            job = client.submit(file, ithaca={"gpus": 1, "seq_len": 32, "max_steps": 1})["id"]
            client.wait(job, ("running",))
            listed = client.get("/v1/gpus").json()["data"]
            self.assertEqual([(slot["id"], slot["kind"], slot["state"], slot["job_id"]) for slot in listed],
                             [("CPU-0", "cpu", "taken", job), ("CPU-1", "cpu", "free", None)])
            self.assertEqual(client.post("/v1/gpus/CPU-0/drain").error()["code"], "not_found")
            client.post(f"/v1/fine_tuning/jobs/{job}/cancel")


if __name__ == "__main__":
    unittest.main()
