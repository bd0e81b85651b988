#!/usr/bin/python3
"""The dashboard's files as the daemon serves them: types, ETag, policy, no path out of the table, every file that a page
names is there, and no code in the page itself."""
import json
import os
import re
import shutil
import tempfile
import unittest

from ithaca_e2e import SOURCE_DIR, Client, Daemon, raw

FOLDER = os.path.join(SOURCE_DIR, "clients", "dashboard")
TYPES = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml",
         ".html": "text/html; charset=utf-8"}


def source(name):
    with open(os.path.join(FOLDER, name), "rb") as file:
        return file.read()


class Dashboard(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.library = tempfile.mkdtemp(prefix="ithaca-dygraphs-")
        cls.daemon = Daemon("--dygraphs-dir", cls.library)
        cls.anyone = Client(cls.daemon.port, "ithaca-nobody")

    @classmethod
    def tearDownClass(cls):
        status = cls.daemon.stop()
        shutil.rmtree(cls.library)
        shutil.rmtree(cls.daemon.data_dir)
        assert status == 0, status

    def test_01_every_file_is_served_as_it_is(self):
        for name in sorted(os.listdir(FOLDER)):
            answer = self.anyone.get(f"/dashboard/{name}")
            self.assertEqual(answer.status, 200, name)
            self.assertEqual(answer.body, source(name), name)
            self.assertEqual(answer.headers["Content-Type"], TYPES[os.path.splitext(name)[1]])
        self.assertEqual(self.anyone.get("/").body, source("index.html"))
        for name in ("job.schema.json", "openapi.json"):
            with open(os.path.join(SOURCE_DIR, "api", name), "rb") as file:
                self.assertEqual(self.anyone.get(f"/dashboard/{name}").json(), json.loads(file.read()))

    def test_02_headers(self):
        for path in ("/", "/dashboard/main.js", "/dashboard/style.css"):
            headers = self.anyone.get(path).headers
            policy = dict(rule.split(" ", 1) for rule in headers["Content-Security-Policy"].split("; "))
            self.assertEqual(policy["default-src"], "'none'")
            self.assertEqual(policy["frame-ancestors"], "'none'")
            self.assertEqual({policy[name] for name in ("script-src", "style-src", "img-src", "connect-src")}, {"'self'"})
            self.assertNotIn("unsafe", headers["Content-Security-Policy"])
            self.assertEqual(headers["X-Content-Type-Options"], "nosniff")
            self.assertEqual(headers["Referrer-Policy"], "no-referrer")
            self.assertEqual(headers.get_all("Cache-Control"), ["no-cache"])

    def test_03_a_browser_that_has_it_is_told_so(self):
        tags = {name: self.anyone.get(f"/dashboard/{name}").headers["ETag"] for name in ("main.js", "api.js")}
        self.assertNotEqual(tags["main.js"], tags["api.js"])
        request = "GET /dashboard/main.js HTTP/1.1\r\nHost: localhost\r\nIf-None-Match: {}\r\nConnection: close\r\n\r\n"
        same = raw(self.daemon.port, request.format(tags["main.js"]).encode())
        self.assertTrue(same.startswith(b"HTTP/1.1 304 "), same[:60])
        self.assertTrue(same.endswith(b"\r\n\r\n"), same)
        other = raw(self.daemon.port, request.format(tags["api.js"]).encode())
        self.assertTrue(other.startswith(b"HTTP/1.1 200 "), other[:60])

    def test_04_no_other_file(self):
        for path in ("nothing.js", ".", "..", "../api.js", "..%2fmain.js", "%2e%2e/admin.token", "main.js/", "main.js%00",
                     "/etc/passwd", "dygraph.js", "clients/main.js", ""):
            got = raw(self.daemon.port, f"GET /dashboard/{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
            self.assertTrue(got.startswith(b"HTTP/1.1 404 "), (path, got[:80]))
        self.assertEqual(self.anyone.post("/dashboard/main.js").status, 405)

    def test_05_the_chart_library_comes_from_its_folder(self):
        answer = self.anyone.get("/dashboard/dygraph.min.js")
        self.assertEqual(answer.status, 404)
        self.assertIn("libjs-dygraphs", answer.error()["message"])
        self.assertNotIn(self.library, answer.text)
        with open(os.path.join(self.library, "dygraph.min.js"), "w", encoding="utf-8") as file:
            file.write("window.Dygraph = class {};\n")
        answer = self.anyone.get("/dashboard/dygraph.min.js")
        self.assertEqual((answer.status, answer.text), (200, "window.Dygraph = class {};\n"))
        self.assertEqual(answer.headers["Content-Type"], TYPES[".js"])

    def test_06_what_the_files_name_is_there_and_nothing_is_inline(self):
        page = source("index.html").decode()
        self.assertNotRegex(page, r"<script(?![^>]*\bsrc=)|<style|\bstyle=|\bon[a-z]+=|https?:")
        named = re.findall(r'(?:src|href)="(/[^"]+)"', page)
        for name in os.listdir(FOLDER):
            text = source(name).decode()
            self.assertNotRegex(text, r"innerHTML|insertAdjacentHTML|\beval\(|new Function", name)
            named += re.findall(r'from "(/[^"]+)"', text)
        served = set(os.listdir(FOLDER)) | {"dygraph.min.js", "dygraph.min.css"}
        self.assertLessEqual({name.removeprefix("/dashboard/") for name in named}, served)

    def test_07_the_pages_are_open_and_the_data_is_not(self):
        self.assertEqual(self.anyone.get("/").status, 200)
        self.assertEqual(self.anyone.get("/v1/fine_tuning/jobs").status, 401)


if __name__ == "__main__":
    unittest.main()
