"""Writes evaluation.jsonl: multiple-choice items about the demo model's world, scored in float64.

    python3 tests/cluster/openai/evaluation_items.py

Run it again whenever the demo model or its tokenizer changes. Needs NumPy and regex (Debian: python3-numpy,
python3-regex) and some minutes of one core. The first line names the model; every other line is an item: the context,
the choices that may follow it, and for each choice the sum of its tokens' log-probabilities and whether each of its
tokens is the likeliest ("1", "0", or "?" where two are as good as equal); or a text with the sum over all of its tokens.
"""
import hashlib
import json
import os
import random
import sys

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../../.."))
sys.path.insert(0, os.path.join(ROOT, "deploy/demo/training"))
import numpy as np  # noqa: E402
import bpe  # noqa: E402
import lexicon as L  # noqa: E402
import refmodel  # noqa: E402
from stories import make_story  # noqa: E402

DEMO = os.path.join(ROOT, "deploy/demo")
OUT = os.path.join(os.path.dirname(__file__), "evaluation.jsonl")
TIE = 1e-3  # nats


def facts():
    """(subject, question, sentence before the answer, answer, its category)"""
    for country, city in L.CAPITALS.items():
        yield f"What is the capital of {country}?", f"The capital of {country} is", city, sorted(set(L.CAPITALS.values()))
    for thing, colour in L.COLOURS.items():
        yield f"What colour is {thing}?", f"{thing[0].upper()}{thing[1:]} is", colour, L.COLOUR_NAMES
    for a, b in L.OPPOSITES:
        yield f"What is the opposite of {a}?", f"The opposite of {a} is", b, [w for pair in L.OPPOSITES for w in pair if w != a]
    for animal, (sound, young, _, _, food) in L.ANIMALS.items():
        yield f"What does a {animal} eat?", f"A {animal} eats", food, sorted({v[4] for v in L.ANIMALS.values()})
        yield f"What is a young {animal} called?", f"A young {animal} is called a", young, sorted({v[1] for v in L.ANIMALS.values()})
    for one, many in L.PLURALS:
        yield f"What is the plural of {one}?", f"The plural of {one} is", many, [p for _, p in L.PLURALS]
    for now, before in L.PAST:
        yield f"What is the past of {now}?", f"The past of {now} is", before, [p for _, p in L.PAST]
    for job, work in L.JOBS:
        yield f"What does a {job} do?", f"A {job}", work, [w for _, w in L.JOBS]


def items():
    rng = random.Random(11)
    every = list(facts())
    shots = [f"Question: {question}\nAnswer: {answer}\n\n" for question, _, answer, _ in every]
    for question, sentence, answer, category in every:
        choices = rng.sample(sorted(set(category) - {answer}), rng.choice((1, 2, 3, 3))) + [answer]
        rng.shuffle(choices)
        kind = rng.randrange(3)
        if kind == 0:
            context, ending = f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n{sentence}", "."
        elif kind == 1:  # some with examples before them, as tasks have
            context, ending = "".join(rng.sample(shots, rng.choice((0, 0, 1, 5)))) + f"Question: {question}\nAnswer:", ""
        else:
            context, ending = sentence, "."
        yield context, [f" {choice}{ending}" for choice in choices]


class Scorer:
    def __init__(self):
        self.tokenizer = bpe.Tokenizer(os.path.join(DEMO, "tokenizer.json"))
        self.model = refmodel.RefModel(DEMO, np.float64)

    def score(self, text, context):
        """Sum over the tokens behind the context's, and whether each of them is the likeliest."""
        ids, begin = self.tokenizer.encode(text), len(self.tokenizer.encode(context))
        self.model.reset()
        values = refmodel.logprobs(self.model.forward(ids[:-1]))[begin - 1:]
        rest = np.asarray(ids[begin:])
        chosen = values[np.arange(len(rest)), rest]
        others = values.copy()
        others[np.arange(len(rest)), rest] = -np.inf
        lead = (chosen - others.max(-1)).min()
        return round(float(chosen.sum()), 7), "?" if abs(lead) < TIE else "1" if lead > 0 else "0"


def main():
    scorer = Scorer()
    with open(os.path.join(DEMO, "model.safetensors"), "rb") as file:
        lines = [{"model": hashlib.sha256(file.read()).hexdigest()}]
    for context, choices in items():
        sums, greedy = zip(*(scorer.score(context + choice, context) for choice in choices))
        lines.append({"context": context, "choices": choices, "sums": sums, "greedy": "".join(greedy)})
    rng = random.Random(12)
    for _ in range(8):
        text = make_story(rng)[0]
        first = scorer.tokenizer.encode(text)[:1]
        total, _ = scorer.score(text, bytes(scorer.tokenizer.token_bytes(first[0])).decode())
        lines.append({"text": text, "sum": total})
    with open(OUT, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n" for line in lines)
    print(f"{OUT}: {len(lines) - 9} items, {len(lines) - 1 - (len(lines) - 9)} texts")


if __name__ == "__main__":
    main()
