"""One training step of model.py without autograd: BF16 matrix products and the fused loops of kernels.c.

Loss and gradients agree with model.py to BF16 precision (python3 fast.py compares them) in about half the time.
"""
import cpu  # noqa: F401
import ctypes
import os
import subprocess
import sys
import torch
from model import CONFIG, Model, batch_mask, product, rope_tables

HERE = os.path.dirname(os.path.abspath(__file__))


def build(folder):
    """Compiles kernels.c; to be called once, before the workers start."""
    path = os.path.join(folder, "kernels.so")
    flags = ["-O3", "-march=native", "-ffast-math", "-shared", "-fPIC"]
    subprocess.run([os.environ.get("CC", "cc"), *flags, os.path.join(HERE, "kernels.c"), "-o", path, "-lmvec", "-lm"],
                   check=True)
    return path


class Kernels:
    """Calls by name; tensors become pointers, int is long and float is float."""

    def __init__(self, path):
        self.lib = ctypes.CDLL(os.path.abspath(path))

    def __getattr__(self, name):
        fn = getattr(self.lib, name)

        def call(*args):
            fn(*[ctypes.c_void_p(x.data_ptr() if isinstance(x, torch.Tensor) else None)
                 if x is None or isinstance(x, torch.Tensor) else
                 ctypes.c_long(x) if isinstance(x, int) else ctypes.c_float(x) for x in args])
        setattr(self, name, call)
        return call


def empty(*shape):
    return torch.empty(shape, dtype=torch.bfloat16)


class Step:
    def __init__(self, model, path):
        self.m, self.c, self.k = model, model.c, Kernels(path)
        cos, sin = rope_tables(self.c["max_position_embeddings"], self.c["head_dim"], self.c["rope_theta"])
        half = self.c["head_dim"] // 2
        self.cos, self.sin = cos[:, :half].contiguous(), sin[:, :half].contiguous()

    def __call__(self, ids, doc, lw, total, grads):
        """Adds to grads (parameter -> float tensor); returns the loss and the weight of the tokens that have one."""
        m, c, k = self.m, self.c, self.k
        B, T = ids.shape
        d, hd, f = c["hidden_size"], c["head_dim"], c["intermediate_size"]
        nh, nkv = c["num_attention_heads"], c["num_key_value_heads"]
        M, eps, scale, H = B * T, c["rms_norm_eps"], hd ** -0.5, nh
        ids = ids.contiguous()
        pick = torch.nn.functional.pad(lw, (0, 1)).reshape(-1).nonzero()[:, 0]
        w, target = lw[lw > 0].contiguous(), ids.reshape(-1)[pick + 1].contiguous()
        new = torch.ones_like(doc, dtype=torch.bool)
        new[:, 1:] = doc[:, 1:] != doc[:, :-1]
        first = (torch.arange(T) * new).cummax(1)[0].int().contiguous()
        x, y, saved = m.embed.index_select(0, ids.reshape(-1)), None, []
        for b in m.layers:
            wq, wo, wg, wd = (p.bfloat16() for p in (b.qkv, b.o, b.gu, b.down))
            x0, r0, h0 = torch.empty_like(x), torch.empty(M), empty(M, d)
            k.add_norm(M, d, x, y, b.n1, eps, x0, r0, h0)
            qkv = product(h0, wq.t())
            q, kk, v = empty(B * nkv, nh // nkv * T, hd), empty(B * nkv, T, hd), empty(B * nkv, T, hd)
            rq = torch.empty(M * (nh + nkv))
            k.split_heads(B, T, nh, nkv, hd, qkv, b.qn, b.kn, eps, self.cos, self.sin, q, kk, v, rq)
            p = torch.bmm(q, kk.transpose(1, 2))
            k.softmax(B, H, T, first, scale, p)
            a = torch.bmm(p, v).view(B, H, T, hd).transpose(1, 2).reshape(M, H * hd)
            y = product(a, wo.t())
            x1, r1, h1 = torch.empty_like(x), torch.empty(M), empty(M, d)
            k.add_norm(M, d, x0, y, b.n2, eps, x1, r1, h1)
            gu = product(h1, wg.t())
            act = empty(M, f)
            k.swiglu(M, f, gu, act)
            y = product(act, wd.t())
            x = x1
            saved.append((wq, wo, wg, wd, x0, r0, h0, qkv, q, kk, v, rq, p, a, x1, r1, h1, gu, act))
        n = len(pick)
        xl = (x + y).index_select(0, pick)
        rl, hl = torch.empty(n), empty(n, d)
        k.add_norm(n, d, xl, None, m.norm, eps, xl, rl, hl)
        wh = m.head.bfloat16()
        logits, loss = product(hl, wh.t()), torch.empty(n)
        k.cross_entropy(n, c["vocab_size"], logits, target, w, 1.0 / total, loss)

        grads[m.head] += product(logits.t(), hl)
        gh = product(logits, wh)
        gl, gx, gy = torch.zeros(n, d), torch.zeros(M, d), empty(M, d)
        k.norm_back(n, d, gh, xl, rl, m.norm, gl, grads[m.norm], empty(n, d))
        gx.index_copy_(0, pick, gl)
        gy = gx.bfloat16()
        for b, s in zip(reversed(m.layers), reversed(saved)):
            wq, wo, wg, wd, x0, r0, h0, qkv, q, kk, v, rq, p, a, x1, r1, h1, gu, act = s
            grads[b.down] += product(gy.t(), act)
            g = product(gy, wd)
            dgu = empty(M, 2 * f)
            k.swiglu_back(M, f, g, gu, dgu)
            grads[b.gu] += product(dgu.t(), h1)
            k.norm_back(M, d, product(dgu, wg), x1, r1, b.n2, gx, grads[b.n2], gy)
            grads[b.o] += product(gy.t(), a)
            g = product(gy, wo).view(B, T, H, hd).transpose(1, 2).reshape(B * nkv, -1, hd)
            gv = torch.bmm(p.transpose(1, 2), g)
            ds = torch.bmm(g, v.transpose(1, 2))
            k.softmax_back(B, H, T, first, scale, p, ds)
            gq, gk, gqkv = torch.bmm(ds, kk), torch.bmm(ds.transpose(1, 2), q), empty(M, (nh + 2 * nkv) * hd)
            k.split_heads_back(B, T, nh, nkv, hd, qkv, b.qn, b.kn, self.cos, self.sin, gq, gk, gv, rq, gqkv,
                               grads[b.qn], grads[b.kn])
            grads[b.qkv] += product(gqkv.t(), h0)
            k.norm_back(M, d, product(gqkv, wq), x0, r0, b.n1, gx, grads[b.n1], gy)
        k.embed_back(M, d, ids, gx, grads[m.embed])
        return loss, w


def main():
    import time
    import train
    torch.set_num_threads(1)
    torch.manual_seed(3)
    m = Model(CONFIG)
    B, T = 12, 128
    ids, doc = torch.randint(0, 1500, (B, T)), (torch.arange(T) // 50).expand(B, T).contiguous()
    lw = torch.rand(B, T - 1) * (torch.rand(B, T - 1) < 0.6) * (doc[:, 1:] == doc[:, :-1])
    params = list(m.parameters())
    step = Step(m, build(sys.argv[1] if len(sys.argv) > 1 else "build"))
    for _ in range(3):
        t = time.process_time()
        nll, w = train.loss_of(m, ids, doc, lw)
        want = torch.autograd.grad((nll * w).sum() / lw.sum(), params)
        t1 = time.process_time()
        grads = {p: torch.zeros_like(p) for p in params}
        with torch.no_grad():
            loss, w = step(ids, doc, lw, lw.sum().item(), grads)
        t2 = time.process_time()
    print(f"autograd {1e3 * (t1 - t):.0f} ms, fused {1e3 * (t2 - t1):.0f} ms; "
          f"largest difference of a loss {(loss - nll).abs().max():.4f}")
    for (name, p), g in zip(m.named_parameters(), want):
        print(f"{name:18s} relative difference {((grads[p] - g).norm() / g.norm()).item():.4f}")


if __name__ == "__main__":
    main()
