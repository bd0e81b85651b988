"""Manual pages say all that the programs know, and are clean by mandoc's and groff's rules where these are installed."""
import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest

from ithaca_e2e import BUILD_DIR, ITHACA, ITHACAD, SOURCE_DIR

PAGES = ("ithaca", "ithacad", "ithaca-job", "ithaca-experiment")
REQUESTS = {".TH", ".SH", ".SS", ".TP", ".PP", ".RS", ".RE", ".nf", ".fi", ".br", '.\\"'}


def run(*words, **more):
    return subprocess.run(words, capture_output=True, encoding="utf-8", timeout=30, check=False, **more)


class Man(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.pages = {name: run(ITHACA, "man", name).stdout for name in PAGES}

    def plain(self, name):
        """The text without fonts and escapes."""
        text = re.sub(r"\\f[A-Z]", "", self.pages[name])
        return text.replace("\\-", "-").replace("\\(aq", "'").replace("\\(dq", '"').replace("\\e", "\\")

    def test_only_known_requests(self):
        for name, page in self.pages.items():
            self.assertTrue(page.startswith('.\\" Printed by: ithaca man\n.TH '), name)
            for line in page.splitlines():
                if line.startswith((".", "'")):
                    self.assertIn(line.split(" ")[0], REQUESTS, (name, line))

    def test_commands_and_options(self):
        commands = re.findall(r"^  ([a-z]+) ", run(ITHACA, "--help").stdout, re.M)
        self.assertIn("submit", commands)
        page = self.plain("ithaca")
        for command in commands:
            self.assertRegex(page, rf"\n\.TP\n{command}( .*)?\n", command)
            for option in re.findall(r"^  (--[a-z-]+)", run(ITHACA, command, "--help").stdout, re.M):
                self.assertRegex(page, rf"\n{option}( .*)?\n", (command, option))

    def test_settings(self):
        flags = re.findall(r"^  (--[a-z-]+)", run(ITHACAD, "--help").stdout, re.M)
        self.assertGreater(len(flags), 40)
        for flag in flags:
            self.assertIn(f"\n{flag} ", self.plain("ithacad"), flag)

    def test_fields_of_a_job(self):
        with open(os.path.join(SOURCE_DIR, "api", "job.schema.json"), encoding="utf-8") as file:
            schema = json.load(file)["properties"]
        fields = [line.split()[0] for line in run(ITHACA, "fields").stdout.splitlines()]
        self.assertIn("lora.r", fields)
        for field in [*schema, *fields]:
            self.assertIn(f"\n.TP\n{field}\n", self.plain("ithaca-job"), field)
        self.assertIn("One of auto, none, ring, ulysses, upipe.", self.plain("ithaca-job"))

    def test_fields_of_an_experiment(self):
        with open(os.path.join(SOURCE_DIR, "api", "openapi.json"), encoding="utf-8") as file:
            schemas = json.load(file)["components"]["schemas"]
        page = self.plain("ithaca-experiment")
        for name in ("ExperimentCreate", "ExperimentResult"):
            for field, schema in schemas[name]["properties"].items():
                self.assertIn(f"\n.TP\n{field}\n{schema['description']}.", page)
        self.assertIn(" 1 to 64 ranks, or null. Default: null.", page)

    @unittest.skipUnless(shutil.which("mandoc"), "no mandoc")
    def test_mandoc(self):
        for page in self.pages.values():
            done = run("mandoc", "-T", "lint", "-W", "warning", input=page)
            self.assertEqual((done.returncode, done.stdout), (0, ""))

    @unittest.skipUnless(shutil.which("groff"), "no groff")
    def test_groff(self):
        for name, page in self.pages.items():
            done = run("groff", "-man", "-ww", "-Tutf8", input=page)
            self.assertEqual((done.returncode, done.stderr), (0, ""), name)
            self.assertIn("SEE ALSO", re.sub(r"\x1b\[[0-9;]*m|.\x08", "", done.stdout))

    def test_they_are_installed(self):
        """Where man and the shells look."""
        made = os.path.join(BUILD_DIR, "clients", "ithaca.1")
        if not shutil.which("cmake") or not os.path.exists(made) or os.path.getmtime(made) < os.path.getmtime(ITHACA):
            self.skipTest("the programs alone were built")
        with tempfile.TemporaryDirectory() as place:
            done = run("cmake", f"-DCMAKE_INSTALL_PREFIX={place}", "-P",
                       os.path.join(BUILD_DIR, "clients", "cmake_install.cmake"))
            self.assertEqual(done.returncode, 0, done.stderr)
            for path, words in (("man/man1/ithaca.1", ("man", "ithaca")), ("man/man8/ithacad.8", ("man", "ithacad")),
                                ("man/man5/ithaca-job.5", ("man", "ithaca-job")),
                                ("man/man5/ithaca-experiment.5", ("man", "ithaca-experiment")),
                                ("bash-completion/completions/ithaca", ("completion", "bash")),
                                ("zsh/site-functions/_ithaca", ("completion", "zsh")),
                                ("fish/vendor_completions.d/ithaca.fish", ("completion", "fish"))):
                with open(os.path.join(place, "share", path), encoding="utf-8") as file:
                    self.assertEqual(file.read(), run(ITHACA, *words).stdout, path)


if __name__ == "__main__":
    unittest.main()
