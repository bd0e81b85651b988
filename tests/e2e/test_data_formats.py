#!/usr/bin/python3
"""Training files in the formats that people have, through the API: previewed, then trained on or refused."""
import gzip
import json
import os
import re
import unittest

from ithaca_e2e import SOURCE_DIR, DaemonTest

CHAT = {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "answer"}]}
ALPACA = [{"instruction": "add", "input": "1 1", "output": "2"}, {"instruction": "hi", "input": "", "output": "ho"}]
SHAREGPT = {"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}], "system": "s"}
FILES = {  # name -> bytes
    "chat.jsonl": json.dumps(CHAT).encode(),
    "array.json": json.dumps(ALPACA, indent=2).encode(),
    "sharegpt.jsonl.gz": gzip.compress(json.dumps(SHAREGPT).encode()),
    "completion.jsonl": b'{"prompt": "a", "completion": "b"}\n',
    "book.txt": b"A long story.\n" * 40,
    "ids.jsonl": b'{"input_ids": [65, 66, 67, 260]}\n',
}


class DataFormats(DaemonTest):

    def preview(self, file_id, **more):
        return self.client.post("/v1/fine_tuning/preview",
                                {"model": "tiny-llama", "training_file": file_id, **more})

    def test_formats_are_trained_on(self):
        for name, data in FILES.items():
            with self.subTest(name):
                file_id = self.client.upload(data, name)["id"]
                answer = self.preview(file_id, ithaca={"seq_len": 128})
                self.assertEqual(answer.status, 200, answer.text)
                preview = answer.json()
                self.assertEqual((preview["object"], preview["template"]), ("fine_tuning.preview", "tiny"))
                self.assertTrue(preview["rows"])
                for row in preview["rows"]:
                    self.assertTrue(row["kept"], row)
                    self.assertEqual(sum(run["tokens"] for run in row["runs"]), row["tokens"])
                    self.assertGreater(row["trained_tokens"], 0)
                job = self.client.submit(file_id, ithaca={"seq_len": 128, "max_steps": 1,
                                                          "data": {"overlength": "chunk"}})
                job = self.client.wait(job["id"])
                self.assertEqual(job["status"], "succeeded", job)
                data_report = job["ithaca"]["data"]
                self.assertEqual(data_report["kept"], len(preview["rows"]))
                self.assertEqual(sum(count for _, count in data_report["histogram"]), data_report["kept"])
                self.assertEqual(data_report["overlength_share"], 1 if name == "book.txt" else 0)

    def test_rows_of_the_readme(self):
        """Each row of README.md's table of formats is one that is kept."""
        with open(os.path.join(SOURCE_DIR, "README.md"), encoding="utf-8") as file:
            table = file.read().split("| format | a row |")[1].split("\n\n")[0]
        rows = re.findall(r"`(\{.*?\})`", table)
        self.assertEqual(len(rows), 6)
        for key, value in (("input_ids", "[65, 66]"), ("labels", "[-100, 66]"), ("tools", "[]")):
            rows = [row.replace(f'"{key}": [...]', f'"{key}": {value}') for row in rows]
        previewed = self.preview(self.client.upload("\n".join(rows).encode())["id"], rows=50).json()["rows"]
        self.assertEqual([(row["kept"], row.get("message")) for row in previewed], [(True, None)] * len(rows))

    def test_preview_shows_mask_and_cut(self):
        file_id = self.client.upload(FILES["chat.jsonl"] + b"\n{bad\n", "chat.jsonl")["id"]
        rows = self.preview(file_id, ithaca={"seq_len": 8}).json()["rows"]
        self.assertEqual(rows[0]["roles"], ["user", "assistant"])
        self.assertEqual([(run["trained"], run["text"]) for run in rows[0]["runs"]],
                         [(False, "<|begin|><|user|>q<|end|><|assistant|>"), (True, "answer<|end|>")])
        self.assertEqual((rows[0]["tokens"], rows[0]["used_tokens"], rows[0]["trained_tokens"]), (12, 8, 3))
        self.assertEqual((rows[1]["kept"], rows[1]["code"], rows[1]["line"]), (False, "invalid_json", 2))
        preview = self.preview(file_id, rows=1).json()
        self.assertEqual((len(preview["rows"]), preview["more"]), (1, True))

    def test_preview_refuses(self):
        for body, status, param in (({"rows": 0}, 400, "rows"), ({"rows": 51}, 400, "rows"),
                                    ({"training_file": "file-none"}, 404, "training_file"),
                                    ({"model": "ghost"}, 404, "model")):
            file_id = self.client.upload(FILES["chat.jsonl"])["id"]
            answer = self.client.post("/v1/fine_tuning/preview",
                                      {"model": "tiny-llama", "training_file": file_id, **body})
            self.assertEqual((answer.status, answer.error()["param"]), (status, param), answer.text)

    def test_a_file_is_not_blamed_for_a_job(self):
        """What another model or other settings would take leaves the file as it is; what nobody could does not."""
        file_id = self.client.upload(FILES["chat.jsonl"])["id"]
        for ithaca, word in (({"seq_len": 8, "data": {"overlength": "refuse"}}, "the example has 12 tokens, seq_len is 8"),
                             ({"seq_len": 4}, "0 trained tokens after truncation to 4"), ({"seq_len": 64}, None)):
            job = self.client.submit(file_id, ithaca={"max_steps": 1, **ithaca})
            job = self.client.wait(job["id"])
            if word is None:
                self.assertEqual(job["status"], "succeeded", job["error"])
            else:
                self.assertIn(word, job["error"]["message"])
            self.assertEqual(self.client.get("/v1/files/" + file_id).json()["status"], "processed")
        file_id = self.client.upload(FILES["chat.jsonl"] + b"\n{bad\n")["id"]
        self.client.wait(self.client.submit(file_id)["id"])
        self.assertEqual(self.client.get("/v1/files/" + file_id).json()["status"], "error")
        answer = self.client.post("/v1/fine_tuning/jobs", {"model": "tiny-llama", "training_file": file_id})
        self.assertEqual((answer.status, answer.error()["code"]), (400, "invalid_data"))
        self.assertIn("line 2 column 4: invalid_json", answer.error()["message"])

    def test_what_is_no_training_data_is_refused_by_name(self):
        for line, word in ((b'{"prompt": "a", "chosen": "b", "rejected": "c"}', "preference data"),
                           (b'{"messages": [], "images": ["x.png"]}', "multimodal"),
                           (b'[{"instruction": "a", "output": "b"}', '"]" is missing'),
                           (b"PK\x03\x04 zip", "zip file")):
            job = self.client.submit(self.client.upload(line)["id"], ithaca={"seq_len": 64})
            job = self.client.wait(job["id"])
            self.assertEqual((job["status"], job["error"]["code"]), ("failed", "invalid_data"))
            self.assertIn(word, job["error"]["message"])


if __name__ == "__main__":
    unittest.main()
