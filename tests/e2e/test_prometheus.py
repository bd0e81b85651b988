#!/usr/bin/python3
"""GET /metrics: both formats held against their rules, and, where there is a Prometheus (deploy/test.sh unpacks one
into build/tools), by promtool and by a real scrape."""
import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest
import urllib.error
import urllib.request

from ithaca_e2e import EXAMPLE_DIR, SOURCE_DIR, Daemon, DaemonTest, until

TOOLS = os.path.join(SOURCE_DIR, "build", "tools", "usr", "bin")
SAMPLE = re.compile(r'^([A-Za-z_]+)(?:\{((?:[A-Za-z_]+="(?:[^"\\]|\\.)*",?)*)\})? (NaN|[+-]Inf|-?[0-9.e+-]+)$')
LABEL = re.compile(r'([A-Za-z_]+)="((?:[^"\\]|\\.)*)"')
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
ENDINGS = {"gauge": {""}, "counter": {"_total"}, "histogram": {"_bucket", "_count", "_sum"}}


def parse(text, openmetrics):
    """{(name, labels): value}; every rule of the format that we may break is asserted."""
    samples, families, family = {}, {}, None
    lines = text.split("\n")
    assert lines.pop() == "", "it ends with a newline"
    if openmetrics:
        assert lines.pop() == "# EOF"
    for line in lines:
        if line.startswith("# HELP "):
            family = line.split(" ")[2]
            assert family not in families, f"{family} comes twice"
            families[family] = None
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name == family and families[name] is None and kind in ENDINGS, line
            families[name] = kind
        else:
            match = SAMPLE.match(line)
            assert match, line
            base = family.removesuffix("_total") if families[family] == "counter" and not openmetrics else family
            assert match[1] in {base + ending for ending in ENDINGS[families[family]]}, line
            labels = tuple(sorted(LABEL.findall(match[2] or "")))
            assert (match[1], labels) not in samples, f"{line} comes twice"
            samples[match[1], labels] = float(match[3])
    for (name, labels), value in samples.items():
        if name.endswith("_bucket") and ("le", "+Inf") in labels:
            rest = tuple(label for label in labels if label[0] != "le")
            assert value == samples[name.removesuffix("_bucket") + "_count", rest], name
            below = sorted((float(dict(other)["le"]), count) for (one, other), count in samples.items()
                           if one == name and set(rest) <= set(other))
            assert [count for _, count in below] == sorted(count for _, count in below), name
    return samples


def tool(name):
    path = os.path.join(TOOLS, name)
    return path if os.path.exists(path) else shutil.which(name)


class Prometheus(DaemonTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.daemon.hold(2)
        file = cls.client.upload(os.path.join(EXAMPLE_DIR, "train.jsonl"))
        cls.job = cls.client.submit(file["id"], ithaca={"gpus": 2, "seq_len": 128, "batch": {"sequences": 2}})["id"]
        until("the job holds", 60, lambda: cls.value("ithaca_job_step", job_id=cls.job, user="admin") == 2)

    @classmethod
    def scrape(cls, accept="text/plain"):
        answer = cls.client.get("/metrics", headers={"Accept": accept})
        assert answer.status == 200, answer.text
        return answer

    @classmethod
    def value(cls, name, **labels):
        return parse(cls.scrape().text, False).get((name, tuple(sorted(labels.items()))))

    def test_what_is_told(self):
        self.client.get("/nothing")
        answer = self.scrape()
        self.assertEqual(answer.headers["Content-Type"], "text/plain; version=0.0.4; charset=utf-8")
        samples = parse(answer.text, False)

        def value(name, **labels):
            return samples[name, tuple(sorted(labels.items()))]
        self.assertEqual(value("ithaca_jobs", state="running"), 1)
        self.assertEqual(value("ithaca_slots_taken"), 2)
        self.assertGreater(value("ithaca_job_loss", job_id=self.job, user="admin"), 1)
        for rank in "01":
            self.assertGreater(value("ithaca_job_arena_peak_bytes", job_id=self.job, user="admin", rank=rank), 1000)
            parts = {dict(labels)["part"]: seconds for (name, labels), seconds in samples.items()
                     if name == "ithaca_job_step_part_seconds" and dict(labels)["rank"] == rank}
            self.assertEqual(set(parts), {"gather_wait", "reduce_wait", "sums_wait", "compute"})
            self.assertGreater(parts["compute"], 0)
        self.assertGreater(value("ithaca_http_requests_total", route="/v1/files", method="POST", status="2xx"), 0)
        self.assertGreater(value("ithaca_http_requests_total", route="", method="", status="4xx"), 0)
        self.assertGreater(value("ithaca_store_write_duration_seconds_count", database="jobs"), 4)
        self.assertGreater(value("ithaca_store_write_duration_seconds_count", database="metrics"), 0)
        self.assertGreater(value("ithaca_http_request_duration_seconds_count", protocol="http"), 0)
        for clock in ("wall", "processor"):
            self.assertGreater(value("ithaca_loop_turn_duration_seconds_count", clock=clock), 10)
        self.assertGreater(value("ithaca_loop_turn_duration_seconds_sum", clock="wall"), 0)

    def test_openmetrics(self):
        answer = self.scrape("application/openmetrics-text;version=1.0.0,text/plain;q=0.5")
        self.assertEqual(answer.headers["Content-Type"], OPENMETRICS)
        names = {name for name, _ in parse(answer.text, True)}
        self.assertEqual(names, {name for name, _ in parse(self.scrape().text, False)})
        self.assertEqual(self.client.get("/metrics", headers={"Authorization": "Bearer x"}).status, 401)

    def test_gpus(self):
        gpu = {"name": "NVIDIA H200", "bytes": 141 << 30, "used_bytes": 1 << 30, "xids": [], "ecc_uncorrected": 0,
               "processes": []}
        with tempfile.TemporaryDirectory(prefix="ithaca-e2e-") as folder:
            path = os.path.join(folder, "gpus.json")
            with open(path, "w", encoding="utf-8") as file:
                json.dump({"gpus": [{**gpu, "uuid": "GPU-a", "temperature_c": 41, "power_mw": 345600, "busy_percent": 97},
                                    {**gpu, "uuid": "GPU-b", "used_bytes": 0}]}, file)
            with Daemon("--gpu-file", path) as daemon:
                client = daemon.client()
                client.post("/v1/gpus/GPU-b/drain")
                text = client.get("/metrics").text
                samples = parse(text, False)
                names = {name for name, _ in parse(client.get("/metrics", headers={"Accept": OPENMETRICS}).text, True)}
                self.assertEqual(names, {name for name, _ in samples})
                if tool("promtool"):
                    subprocess.run([tool("promtool"), "check", "metrics"], input=text, text=True, check=True, timeout=30)
        told = {(name, dict(labels)["gpu"]): value for (name, labels), value in samples.items()
                if "gpu" in dict(labels) and "state" not in dict(labels)}
        for name, wanted in (("memory_bytes", 141 << 30), ("memory_used_bytes", 1 << 30), ("temperature_celsius", 41),
                             ("power_watts", 345.6), ("utilization_ratio", 0.97), ("xids_total", 0)):
            self.assertAlmostEqual(told[f"ithaca_gpu_{name}", "GPU-a"], wanted, 6, name)
        for name, wanted in (("GPU_TEMP", 41), ("POWER_USAGE", 345.6), ("GPU_UTIL", 97), ("FB_USED", 1024),
                             ("FB_FREE", 140 << 10)):
            self.assertAlmostEqual(told[f"DCGM_FI_DEV_{name}", "0"], wanted, 6, name)
        self.assertIn('DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-a"} 41', text)
        self.assertNotIn(("ithaca_gpu_temperature_celsius", "GPU-b"), told)  # it does not tell
        self.assertEqual([dict(labels)["state"] for (name, labels), value in samples.items()
                          if name == "ithaca_gpu_state" and value == 1], ["foreign", "drained"])

    @unittest.skipUnless(tool("promtool"), "no promtool")
    def test_promtool(self):
        done = subprocess.run([tool("promtool"), "check", "metrics"], input=self.scrape().body, capture_output=True,
                              check=False)
        self.assertEqual((done.returncode, done.stderr), (0, b""), done.stderr.decode())

    @unittest.skipUnless(tool("prometheus"), "no prometheus")
    def test_real_scrape(self):
        with tempfile.TemporaryDirectory() as folder:
            config = {"global": {"scrape_interval": "1s"}, "scrape_configs": [{
                "job_name": "ithaca", "authorization": {"credentials": self.daemon.token},
                "static_configs": [{"targets": [f"127.0.0.1:{self.daemon.port}"]}]}]}
            path, log = os.path.join(folder, "prometheus.yml"), os.path.join(folder, "log")
            with open(path, "w", encoding="utf-8") as file:
                json.dump(config, file)
            with open(log, "wb") as file:
                process = subprocess.Popen([tool("prometheus"), f"--config.file={path}", "--web.listen-address=127.0.0.1:0",
                                            f"--storage.tsdb.path={folder}/data"], stdout=file, stderr=file)
            try:
                def port():
                    with open(log, encoding="utf-8") as file:
                        found = re.search(r"Listening on\"? address=127\.0\.0\.1:(\d+)", file.read())
                    return found and found[1]
                url = f"http://127.0.0.1:{until('prometheus listens', 30, port)}/api/v1/query?query=ithaca_job_step"
                opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

                def steps():
                    try:
                        with opener.open(url, timeout=10) as answer:
                            return json.load(answer)["data"]["result"]
                    except urllib.error.HTTPError as error:
                        assert error.code == 503, error  # it is starting
                        return None
                result = until("the job is seen", 30, steps, every=0.3)
                self.assertEqual([(one["metric"]["job_id"], one["value"][1]) for one in result], [(self.job, "2")])
            finally:
                process.kill()
                process.wait()


if __name__ == "__main__":
    unittest.main()
