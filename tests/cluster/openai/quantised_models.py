"""Writes the demo model in every 8-bit scheme, and what float64 makes of it.

    /usr/bin/python3 tests/cluster/openai/quantised_models.py OUT

OUT/SCHEME is the model; OUT/SCHEME.json holds prompts, the log-probability of every token after the first, and a greedy
continuation with its log-probabilities and leads over the second token. Needs NumPy.
"""
import json
import os
import sys

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../../.."))
sys.path[:0] = [os.path.join(ROOT, "deploy"), os.path.join(ROOT, "deploy/demo/training")]
import numpy as np  # noqa: E402
import quantise_model  # noqa: E402
import refmodel  # noqa: E402

DEMO = os.path.join(ROOT, "deploy/demo")
PROMPTS, GREEDY = 6, 24


def golden(model, ids):
    model.reset()
    steps = refmodel.logprobs(model.forward(ids))
    out = {"ids": ids, "logprobs": [float(steps[i][t]) for i, t in enumerate(ids[1:])]}
    last, greedy = steps[-1], {"ids": [], "logprobs": [], "leads": []}
    for _ in range(GREEDY):
        token = int(np.argmax(last))
        second, first = np.sort(last)[-2:]
        greedy["ids"].append(token)
        greedy["logprobs"].append(float(first))
        greedy["leads"].append(float(first - second))
        last = refmodel.logprobs(model.forward([token]))[-1]
    return {**out, "greedy": greedy}


def main():
    out = sys.argv[1]
    with open(os.path.join(DEMO, "training/golden.json"), encoding="utf-8") as file:
        prompts = [p["token_ids"] for p in json.load(file)["prompts"] if 8 <= len(p["token_ids"]) <= 120][:PROMPTS]
    plain = refmodel.RefModel(DEMO, np.float64)
    for scheme, head in (("fp8", False), ("fp8-block", True), ("fp8-qwen", False), ("int8", True)):
        folder = os.path.join(out, scheme)
        quantised = quantise_model.quantise_model(DEMO, folder, scheme, head)
        weights = {name: quantise_model.dequantise(codes, scales, scheme) for name, (codes, scales) in quantised.items()}
        model = refmodel.RefModel(DEMO, np.float64)
        model.w = {**plain.w, **weights}
        with open(os.path.join(out, f"{scheme}.json"), "w", encoding="utf-8") as file:
            json.dump({"matrices": len(weights), "prompts": [golden(model, ids) for ids in prompts]}, file)


if __name__ == "__main__":
    main()
