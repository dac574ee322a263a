#!/usr/bin/env python3
"""Streams one completion from a Helios server and prints it as a table: token, logprob, probability, alternatives.

usage: stream_table.py URL [PROMPT] [--max-tokens N] [--top N] [--temperature T]

Standard library only. The numbers are the server's own, unrounded until they are printed.
"""
import argparse
import json
import math
import sys
import urllib.error
import urllib.request

DEMO_PROMPT = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
BAR = 20


def visible(text):
    """A token on one line: control characters as escapes, spaces as they are, quotes around it."""
    return json.dumps(text, ensure_ascii=False)


def bar(probability):
    filled = round(probability * BAR)
    return "█" * filled + "·" * (BAR - filled)


def rows(chunk):
    for choice in chunk.get("choices", []):
        entries = choice.get("logprobs")
        if not entries:
            continue
        for token, logprob, top in zip(entries["tokens"], entries["token_logprobs"], entries["top_logprobs"]):
            yield token, logprob, top


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("url", help="base URL, as in http://127.0.0.1:8000")
    parser.add_argument("prompt", nargs="?", help="default: a question that the demo model can answer")
    parser.add_argument("--max-tokens", type=int, default=16)
    parser.add_argument("--top", type=int, default=3, help="alternatives a token")
    parser.add_argument("--temperature", type=float, default=0.0)
    options = parser.parse_args()

    with urllib.request.urlopen(options.url + "/v1/models", timeout=10) as reply:
        model = json.load(reply)["data"][0]["id"]
    prompt = options.prompt if options.prompt is not None else DEMO_PROMPT
    body = {"model": model, "prompt": prompt, "max_tokens": options.max_tokens, "temperature": options.temperature,
            "logprobs": options.top, "stream": True, "stream_options": {"include_usage": True}}
    request = urllib.request.Request(options.url + "/v1/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    print(f"model  {model}\nprompt {visible(prompt)}\n")
    print(f"{'token':<16} {'logprob':>11} {'prob':>7}  {'':<{BAR}}  alternatives")
    text, finish, usage = "", None, None
    try:
        with urllib.request.urlopen(request, timeout=120) as stream:
            for line in stream:
                line = line.decode().strip()
                if not line.startswith("data: ") or line == "data: [DONE]":
                    continue
                chunk = json.loads(line[len("data: "):])
                if "error" in chunk:
                    sys.exit(f"the server reports: {chunk['error']['message']}")
                for token, logprob, top in rows(chunk):
                    others = "  ".join(f"{visible(t)} {math.exp(l):.3f}" for t, l in top.items() if t != token)
                    probability = math.exp(logprob)
                    print(f"{visible(token):<16} {logprob:>11.6f} {probability:>7.4f}  {bar(probability)}  {others}",
                          flush=True)
                for choice in chunk.get("choices", []):
                    text += choice["text"]
                    finish = choice["finish_reason"] or finish
                usage = chunk.get("usage") or usage
    except urllib.error.HTTPError as error:
        sys.exit(f"the server answers {error.code}: {json.load(error)['error']['message']}")
    print(f"\ntext   {visible(text)}")
    print(f"finish {finish}, {usage['prompt_tokens']} prompt tokens, {usage['completion_tokens']} generated")


if __name__ == "__main__":
    main()
