"""The Debian package that CPack makes of this build: what is in it, what it depends on, that nothing of the machine that built it
is, and that its programs find each other wherever they are unpacked."""
import os
import re
import shutil
import subprocess
import tempfile
import unittest

import ithaca_e2e as e2e

WANTED = {  # path -> mode
    "etc/ithaca/ithacad.json": 0o644,
    "usr/bin/ithaca": 0o755,
    "usr/bin/ithacad": 0o755,
    "usr/lib/systemd/system/ithacad.service": 0o644,
    "usr/lib/systemd/system/ithacad.socket": 0o644,
    "usr/libexec/ithaca/ithaca-worker": 0o755,
    "usr/share/bash-completion/completions/ithaca": 0o644,
    "usr/share/doc/ithaca/INSTALL.md": 0o644,
    "usr/share/doc/ithaca/RUNBOOK.md": 0o644,
    "usr/share/doc/ithaca/changelog.gz": 0o644,
    "usr/share/doc/ithaca/copyright": 0o644,
    "usr/share/ithaca/api/openapi.json": 0o644,
    "usr/share/ithaca/example/job.json": 0o644,
    "usr/share/man/man1/ithaca.1.gz": 0o644,
    "usr/share/man/man8/ithacad.8.gz": 0o644,
}


def run(*words, **more):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", timeout=100, check=False,
                          **more)
    assert done.returncode == 0, f"{' '.join(words)}: {done.returncode}\n{done.stdout}"
    return done.stdout


@unittest.skipUnless(os.path.exists(os.path.join(e2e.BUILD_DIR, "deploy", "ithacad.service")), "built without ITHACA_SERVICE")
@unittest.skipUnless(shutil.which("cpack") and shutil.which("dpkg-shlibdeps"), "no cpack or no dpkg-dev")
class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="ithaca-e2e-")
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        run("cpack", "-G", "DEB", "-B", cls.folder, "-D", "CPACK_DEBIAN_COMPRESSION_TYPE=none", cwd=e2e.BUILD_DIR)
        packages = [name for name in os.listdir(cls.folder) if name.endswith(".deb")]
        assert len(packages) == 1, packages
        cls.package = os.path.join(cls.folder, packages[0])
        cls.root = os.path.join(cls.folder, "root")
        cls.control = os.path.join(cls.folder, "control")
        run("dpkg-deb", "-x", cls.package, cls.root)
        run("dpkg-deb", "-e", cls.package, cls.control)

    def paths(self):
        for base, _, names in os.walk(self.root):
            for name in names:
                yield os.path.relpath(os.path.join(base, name), self.root)

    def test_has_all_parts(self):
        for path, mode in WANTED.items():
            with self.subTest(path):
                info = os.stat(os.path.join(self.root, path))
                self.assertEqual(info.st_mode & 0o7777, mode)
                self.assertGreater(info.st_size, 0)
        strays = [path for path in self.paths() if not re.match(r"(usr/(bin|lib|libexec/ithaca|share)|etc/ithaca)/", path)]
        self.assertEqual(strays, [])
        listed = run("dpkg-deb", "-c", self.package).splitlines()
        self.assertEqual([line for line in listed if " root/root " not in line], [])

    def test_depends_on_what_it_is_linked_with_and_on_no_gpu(self):
        depends = run("dpkg-deb", "-f", self.package, "Depends")
        for name in ("libc6", "libmicrohttpd12", "libsqlite3-0", "libopenblas0-openmp", "libjansson4", "adduser"):
            self.assertRegex(depends, rf"(^|, ){name}[a-z0-9]*( |,|$)")
        self.assertNotRegex(depends, r"cud|nccl|cublas|nvidia")

    def test_has_nothing_of_the_machine_that_built_it(self):
        places = [place.encode() for place in (e2e.SOURCE_DIR, e2e.BUILD_DIR)]
        for path in self.paths():
            with open(os.path.join(self.root, path), "rb") as file:
                data = file.read()
            with self.subTest(path):
                if data.startswith(b"\x7fELF"):  # the preset `package` maps the names of sources that failed checks tell
                    told = run("readelf", "-d", os.path.join(self.root, path))
                    paths = re.findall(r"\((?:RPATH|RUNPATH)\).*\[(.*)\]", told)
                    self.assertLessEqual(set(paths), {"/usr/local/cuda/lib64"})
                else:
                    self.assertEqual([place for place in places if place in data], [])

    def test_unit_starts_what_is_installed(self):
        with open(os.path.join(self.root, "usr/lib/systemd/system/ithacad.service"), encoding="utf-8") as file:
            start = re.search(r"^ExecStart=(\S+) --settings (\S+)$", file.read(), re.M)
        for path in start.groups():
            self.assertTrue(os.path.exists(self.root + path), path)

    def test_scripts_are_sound(self):
        with open(os.path.join(self.control, "conffiles"), encoding="utf-8") as file:
            self.assertEqual(file.read().split(), ["/etc/ithaca/ithacad.json"])
        for name in ("postinst", "prerm", "postrm"):
            path = os.path.join(self.control, name)
            with self.subTest(name):
                run("sh", "-n", path)
                self.assertEqual(os.stat(path).st_mode & 0o777, 0o755)

    def test_programs_find_each_other(self):
        env = {"PATH": os.environ["PATH"], "HOME": self.folder}
        data = os.path.join(self.folder, "data")
        version = run(os.path.join(self.root, "usr/bin/ithaca"), "--version", env=env).split()[1]
        self.assertEqual(version, run("dpkg-deb", "-f", self.package, "Version").strip())
        # The worker answers, which is found beside the program and nowhere else.
        told = subprocess.run([os.path.join(self.root, "usr/bin/ithaca"), "doctor", "--data-dir", data], env=env, timeout=60,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", check=False).stdout
        self.assertIn("/dev/shm", told)


if __name__ == "__main__":
    unittest.main()
