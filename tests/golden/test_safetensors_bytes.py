"""The safetensors file that test_safetensors writes, read by a second reader: struct and json only."""
import json
import os
import struct
import subprocess
import tempfile
import unittest


def half(bits):
    return struct.unpack("<e", struct.pack("<H", bits))[0]


def brain(bits):
    return struct.unpack("<f", struct.pack("<I", bits << 16))[0]


class SafetensorsFile(unittest.TestCase):
    def test_values(self):
        program = os.path.join(os.environ["ITHACA_BUILD_DIR"], "tests", "test_safetensors")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "written.safetensors")
            env = dict(os.environ, ITHACA_SAFETENSORS_OUT=path)
            subprocess.run([program], env=env, check=True, capture_output=True)
            with open(path, "rb") as file:
                data = file.read()
        (length,) = struct.unpack("<Q", data[:8])
        self.assertEqual(length % 8, 0)
        header = json.loads(data[8:8 + length])
        data = data[8 + length:]
        self.assertEqual(header.pop("__metadata__"), {"format": "pt"})
        values = [0.25 * (i % 256 - 128) for i in range(50000)]
        wanted = {"odd": values[:3], "empty": [], "c.bf16": values, "a.f32": values,
                  "b.f16": values, "scalar": values[5:6]}
        shapes = {"odd": [3], "empty": [0, 7], "c.bf16": [100, 500], "a.f32": [100, 500],
                  "b.f16": [100, 500], "scalar": []}
        self.assertEqual(set(header), set(wanted))
        at = 0
        for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
            begin, end = entry["data_offsets"]
            self.assertEqual(begin, at)
            at = end
            raw = data[begin:end]
            if entry["dtype"] == "F32":
                got = [value for (value,) in struct.iter_unpack("<f", raw)]
            else:
                decode = {"F16": half, "BF16": brain}[entry["dtype"]]
                got = [decode(bits) for (bits,) in struct.iter_unpack("<H", raw)]
            self.assertEqual(entry["shape"], shapes[name])
            self.assertEqual(got, wanted[name], name)
        self.assertEqual(at, len(data))


if __name__ == "__main__":
    unittest.main()
