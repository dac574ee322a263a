"""Held-out answers by family: the part of the documents whose every answer token is the model's first choice.

    python3 probe.py --checkpoint build/checkpoint.pt
"""
import cpu  # noqa: F401
import argparse
import collections
import os
import random
import sys
import torch
import bpe
import template
from chat import make_chat
from model import CONFIG, Model, batch_mask
from prepare_data import OPEN, weights


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--checkpoint", default="build/checkpoint.pt")
    ap.add_argument("--model", default="build/model")
    ap.add_argument("--n", type=int, default=600)
    ap.add_argument("--seed", type=int, default=999)
    ap.add_argument("--show", default="", help="print misses of this family")
    a = ap.parse_args()
    torch.set_num_threads(1)
    tk = bpe.Tokenizer(os.path.join(a.model, "tokenizer.json"))
    tpl, rng = template.load(), random.Random(a.seed)
    m = Model(CONFIG)
    m.load_state_dict(torch.load(a.checkpoint)["model"])
    docs = []
    while len(docs) < a.n:
        kind, msgs, tools, think = make_chat(rng)
        if kind in OPEN or (a.show and kind != a.show):
            continue
        ids = tk.encode(template.render(tpl, msgs, tools))
        if len(ids) <= 256:
            last = max(i for i, t in enumerate(ids) if t == tk.added["<|im_start|>"])
            docs.append((len(ids), last, kind, think, ids))
    docs.sort()
    good = collections.defaultdict(lambda: [0, 0])
    for i in range(0, len(docs), 16):
        part = docs[i:i + 16]
        T = part[-1][0]
        ids = torch.zeros(len(part), T, dtype=torch.long)
        doc = torch.full((len(part), T), -1)
        for r, (n, _, _, _, x) in enumerate(part):
            ids[r, :n] = torch.tensor(x)
            doc[r, :n] = 0
        with torch.no_grad():
            best = m(ids, batch_mask(doc)).argmax(-1)
        for r, (n, last, kind, think, x) in enumerate(part):
            w = weights(x, tk)
            bad = [j for j in range(last, n) if w[j] == 1 and best[r, j - 1] != x[j]]
            good[kind, think][0] += not bad
            good[kind, think][1] += 1
            if bad and kind == a.show:
                j = bad[0]
                want, got = tk.decode([x[j]]), tk.decode([int(best[r, j - 1])])
                print(repr(tk.decode(x[max(last - 40, 0):j])), "| want", repr(want), "got", repr(got))
    for k in sorted({k for k, _ in good}):
        parts = [f"{'thinking' if t else 'plain'} {good[k, t][0]:3d} of {good[k, t][1]:3d}" for t in (False, True) if good[k, t][1]]
        print(f"{k:14s} " + "  ".join(parts))
    s = [sum(v[i] for v in good.values()) for i in (0, 1)]
    print(f"all            {s[0]} of {s[1]}")


if __name__ == "__main__":
    main()
