"""reference: an independent float64 implementation of what the worker trains, in numpy.

Forward and backward are written here from the formulas of the model families (Llama arXiv
2302.13971, grouped heads 2305.13245, rotary embeddings 2104.09864, qk-norm as Qwen3), with full score matrices and
no tiles; AdamW from arXiv 1711.05101. Nothing of the worker's code is used: safetensors files are
read here too. Precision: weights, moments and all arithmetic float64; rotary frequencies are
rounded to float32, as Hugging Face makes them.
"""
import json
import math
import struct

import numpy as np


def read_safetensors(path):
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        data = file.read()
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        assert entry["dtype"] == "F32", name
        begin, end = entry["data_offsets"]
        values = np.frombuffer(data[begin:end], dtype="<f4").astype(np.float64)
        tensors[name] = values.reshape(entry["shape"])
    return tensors


def write_safetensors(path, tensors):
    header, offset = {}, 0
    for name, value in tensors.items():
        size = value.size * 4
        header[name] = {"dtype": "F32", "shape": list(value.shape), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for value in tensors.values():
            file.write(value.astype("<f4").tobytes())


def read_tokens(path):
    """Examples of a token shard: (ids, trained flags)."""
    with open(path, "rb") as file:
        data = file.read()
    assert data[:8] == b"ITHTOK1\n"
    examples, tokens = struct.unpack("<QQ", data[8:24])
    offsets = np.frombuffer(data, "<i8", examples + 1, 64)
    ids = np.frombuffer(data, "<i4", tokens, 64 + 8 * (examples + 1))
    flags = np.frombuffer(data, "u1", tokens, 64 + 8 * (examples + 1) + 4 * tokens)
    return [(ids[a:b].astype(np.int64), flags[a:b]) for a, b in zip(offsets[:-1], offsets[1:])]


class Model:
    def __init__(self, config, weights):
        self.c = config
        self.w = dict(weights)
        self.grad = {name: np.zeros_like(value) for name, value in self.w.items()}
        self.heads = config["num_attention_heads"]
        self.kv_heads = config["num_key_value_heads"]
        self.d = config.get("head_dim") or config["hidden_size"] // self.heads
        self.eps = config["rms_norm_eps"]
        half = np.arange(0, self.d, 2, dtype=np.float32) / np.float32(self.d)
        theta = rope_theta(config)
        self.inv_freq = (np.float32(1.0) / np.power(np.float32(theta), half)).astype(np.float64)

    # Each forward returns its output and what its backward needs; each backward adds to self.grad.
    def norm(self, x, name):
        rstd = 1.0 / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps)
        return x * rstd * self.w[name], (x, rstd, name)

    def norm_back(self, dy, kept):
        x, rstd, name = kept
        w = self.w[name]
        self.grad[name] += (dy * x * rstd).reshape(-1, x.shape[-1]).sum(0)
        g = dy * w
        return rstd * g - x * rstd**3 * (g * x).mean(-1, keepdims=True)

    def linear(self, x, name, bias=None):
        y = x @ self.w[name].T
        if bias is not None and bias in self.w:
            y = y + self.w[bias]
        return y

    def linear_back(self, dy, x, name, bias=None):
        self.grad[name] += dy.T @ x
        if bias is not None and bias in self.w:
            self.grad[bias] += dy.sum(0)
        return dy @ self.w[name]

    def rotate(self, x, sign):
        """x: (tokens, heads, d), positions 0, 1, ..."""
        angle = np.arange(x.shape[0])[:, None] * self.inv_freq[None, :]
        cos, sin = np.cos(angle)[:, None, :], sign * np.sin(angle)[:, None, :]
        a, b = x[..., : self.d // 2], x[..., self.d // 2 :]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)

    def attention(self, q, k, v):
        """q: (tokens, heads, d); k, v: (tokens, kv_heads, d). Heads first inside, for matmul."""
        group = self.heads // self.kv_heads
        q = q.transpose(1, 0, 2)
        k, v = (np.repeat(x.transpose(1, 0, 2), group, 0) for x in (k, v))
        tokens = q.shape[1]
        scores = q @ k.transpose(0, 2, 1) / math.sqrt(self.d)
        scores = np.where(np.tril(np.ones((tokens, tokens), bool)), scores, -np.inf)
        p = np.exp(scores - scores.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        return (p @ v).transpose(1, 0, 2), (q, k, v, p)

    def attention_back(self, do, kept):
        q, k, v, p = kept
        do = do.transpose(1, 0, 2)
        dp = do @ v.transpose(0, 2, 1)
        ds = p * (dp - (dp * p).sum(-1, keepdims=True)) / math.sqrt(self.d)
        dq, dk, dv = ds @ k, ds.transpose(0, 2, 1) @ q, p.transpose(0, 2, 1) @ do
        group = self.heads // self.kv_heads
        fold = lambda x: x.reshape(self.kv_heads, group, -1, self.d).sum(1).transpose(1, 0, 2)
        return dq.transpose(1, 0, 2), fold(dk), fold(dv)

    def layer(self, x, layer):
        p = f"model.layers.{layer}."
        a, tokens = p + "self_attn.", x.shape[0]
        n1, kept1 = self.norm(x, p + "input_layernorm.weight")
        q = self.linear(n1, a + "q_proj.weight", a + "q_proj.bias").reshape(tokens, -1, self.d)
        k = self.linear(n1, a + "k_proj.weight", a + "k_proj.bias").reshape(tokens, -1, self.d)
        v = self.linear(n1, a + "v_proj.weight", a + "v_proj.bias").reshape(tokens, -1, self.d)
        kept_q = kept_k = None
        if a + "q_norm.weight" in self.w:
            q, kept_q = self.norm(q, a + "q_norm.weight")
            k, kept_k = self.norm(k, a + "k_norm.weight")
        o, kept_a = self.attention(self.rotate(q, 1), self.rotate(k, 1), v)
        o = o.reshape(tokens, -1)
        mid = x + self.linear(o, a + "o_proj.weight")
        n2, kept2 = self.norm(mid, p + "post_attention_layernorm.weight")
        gate, up = self.linear(n2, p + "mlp.gate_proj.weight"), self.linear(n2, p + "mlp.up_proj.weight")
        s = 1.0 / (1.0 + np.exp(-gate))
        act = gate * s * up
        y = mid + self.linear(act, p + "mlp.down_proj.weight")
        return y, (n1, kept1, kept_q, kept_k, kept_a, o, n2, kept2, gate, up, s, act)

    def layer_back(self, dy, layer, kept):
        n1, kept1, kept_q, kept_k, kept_a, o, n2, kept2, gate, up, s, act = kept
        p = f"model.layers.{layer}."
        a, tokens = p + "self_attn.", dy.shape[0]
        dact = self.linear_back(dy, act, p + "mlp.down_proj.weight")
        dgate = dact * up * s * (1.0 + gate * (1.0 - s))
        dup = dact * gate * s
        dn2 = self.linear_back(dgate, n2, p + "mlp.gate_proj.weight")
        dn2 = dn2 + self.linear_back(dup, n2, p + "mlp.up_proj.weight")
        dmid = dy + self.norm_back(dn2, kept2)
        do = self.linear_back(dmid, o, a + "o_proj.weight").reshape(tokens, -1, self.d)
        dq, dk, dv = self.attention_back(do, kept_a)
        dq, dk = self.rotate(dq, -1), self.rotate(dk, -1)
        if kept_q is not None:
            dq, dk = self.norm_back(dq, kept_q), self.norm_back(dk, kept_k)
        dn1 = 0
        for dx, kind in ((dq, "q_proj"), (dk, "k_proj"), (dv, "v_proj")):
            dn1 = dn1 + self.linear_back(dx.reshape(tokens, -1), n1, f"{a}{kind}.weight", f"{a}{kind}.bias")
        return dmid + self.norm_back(dn1, kept1)

    @property
    def head(self):
        return "model.embed_tokens.weight" if self.c["tie_word_embeddings"] else "lm_head.weight"

    def forward(self, ids):
        x = self.w["model.embed_tokens.weight"][ids]
        kept = []
        for layer in range(self.c["num_hidden_layers"]):
            x, k = self.layer(x, layer)
            kept.append(k)
        n, kept_n = self.norm(x, "model.norm.weight")
        return self.linear(n, self.head), (n, kept_n, kept)

    def document(self, ids, trained, scale):
        """Forward and backward of one document. Returns (sum of losses, hits)."""
        logits, (n, kept_n, kept) = self.forward(ids)
        logits = logits - logits.max(-1, keepdims=True)
        log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        rows = np.flatnonzero(trained[1:])
        targets = ids[rows + 1]
        dlogits = np.zeros_like(logits)
        dlogits[rows] = np.exp(log_p[rows])
        dlogits[rows, targets] -= 1.0
        dx = self.norm_back(self.linear_back(dlogits * scale, n, self.head), kept_n)
        for layer in reversed(range(self.c["num_hidden_layers"])):
            dx = self.layer_back(dx, layer, kept[layer])
        np.add.at(self.grad["model.embed_tokens.weight"], ids, dx)
        return -log_p[rows, targets].sum(), int((log_p[rows].argmax(-1) == targets).sum())


def rope_theta(config):
    return config.get("rope_theta") or config["rope_parameters"]["rope_theta"]


def rate(optimizer, step, total):
    peak, warmup = optimizer["learning_rate"], optimizer.get("warmup_steps", 0)
    if step <= warmup:
        return peak * step / warmup
    if optimizer.get("schedule", "cosine") == "constant":
        return peak
    return peak * 0.5 * (1.0 + math.cos(math.pi * (step - 1 - warmup) / (total - warmup)))


class AdamW:
    def __init__(self, model, optimizer):
        self.o = optimizer
        self.m = {name: np.zeros_like(w) for name, w in model.w.items()}
        self.v = {name: np.zeros_like(w) for name, w in model.w.items()}
        self.count = 0

    def step(self, model, lr):
        """Clips, updates, clears the gradients; returns the norm before clipping."""
        o = self.o
        norm = math.sqrt(sum((g * g).sum() for g in model.grad.values()))
        clip = o.get("clip", 1.0)
        scale = clip / norm if clip > 0 and norm > clip else 1.0
        b1, b2 = o.get("beta1", 0.9), o.get("beta2", 0.95)
        self.count += 1
        for name, w in model.w.items():
            g = model.grad[name] * scale
            self.m[name] = b1 * self.m[name] + (1 - b1) * g
            self.v[name] = b2 * self.v[name] + (1 - b2) * g * g
            m = self.m[name] / (1 - b1**self.count)
            v = self.v[name] / (1 - b2**self.count)
            decay = o.get("weight_decay", 0.0) if w.ndim == 2 else 0.0
            model.w[name] = w - lr * (m / (np.sqrt(v) + o.get("eps", 1e-8)) + decay * w)
            model.grad[name] = np.zeros_like(w)
        return norm
