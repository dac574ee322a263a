#!/usr/bin/env python3
"""Reads every #include and says where one crosses the room table.

A room may include itself and the rooms listed for it; third-party headers that belong to one room are listed too. The
table is the architecture: to change it is a decision, not a fix.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

# room: rooms whose headers it may include, besides its own.
ROOMS = {
    "common/base": [],
    "common/contract": ["common/base"],
    "common/wire": ["common/base", "common/contract"],
    "common/net": ["common/base"],
    "common/launch": ["common/base"],
    "kernels/base": ["common/base"],
    "kernels/logprobs": ["kernels/base", "common/base", "common/contract"],
    "kernels/sampling": ["kernels/base", "kernels/logprobs", "kernels/step", "common/base", "common/contract"],
    "kernels/step": ["kernels/base", "common/base", "common/contract"],
    "kernels/transformer": ["kernels/base", "common/base"],
    "worker/backend": ["kernels/base", "common/base"],
    "worker/collective": ["kernels/base", "common/base"],
    "worker/cuda": ["kernels", "worker/backend", "worker/collective", "worker/replay", "common/base"],
    "worker/catalog": ["common/base", "common/contract"],
    "worker/model": ["kernels", "worker/backend", "worker/collective", "common/base"],
    "worker/frames": ["worker/catalog", "worker/backend", "kernels/base", "kernels/step", "common/base",
                      "common/contract"],
    "worker/replay": ["kernels", "worker/backend", "worker/collective", "worker/catalog", "worker/model", "worker/frames",
                      "common/base", "common/contract"],
    "worker/rank": ["worker", "kernels/base", "common"],
    "worker/bench": ["worker/replay", "worker/collective", "worker/model", "kernels/base", "common/base", "common/contract",
                     "common/launch"],
    "worker": ["worker", "common"],  # main.cc and config
    "coordinator/tokenizer": ["common/base"],
    "coordinator/grammar": ["coordinator/tokenizer", "common/base"],
    "coordinator/parser": ["common/base"],
    "coordinator/template": ["common/base"],
    "coordinator/proposer": ["common/base"],
    "coordinator/scheduler": ["coordinator/proposer", "common/base", "common/contract"],
    "coordinator/submission": ["coordinator/scheduler", "common"],
    "coordinator/completion": ["common/base", "common/contract"],
    "coordinator/output": ["coordinator/completion", "coordinator/tokenizer", "common/base", "common/contract"],
    "coordinator/protocol": ["coordinator/output", "coordinator/parser", "coordinator/template", "coordinator/tokenizer",
                             "coordinator/completion", "coordinator/engine", "coordinator/grammar", "common/base",
                             "common/contract"],
    "coordinator/engine": ["coordinator/proposer", "coordinator/scheduler", "coordinator/submission",
                           "coordinator/completion", "coordinator/grammar", "common"],
    "coordinator/http": ["coordinator/protocol", "coordinator/engine", "coordinator/tokenizer", "coordinator/output",
                         "coordinator/parser", "coordinator/completion", "coordinator/grammar", "common/base",
                         "common/contract"],
    "coordinator": ["coordinator", "common"],  # main.cc and config
    "deploy/launch": ["common/base", "common/launch", "common/net"],
}

# third-party header prefix: the only rooms that may include it.
OWNERS = {
    "boost/beast": ["coordinator/http", "worker/rank"],
    "capnp/": ["common/wire"],
    "schemas/": ["common/wire"],
    "zmq": ["common/net"],
    "gloo/": ["worker/collective"],
    "nccl": ["worker/cuda"],
    "hwy/": ["kernels"],
    "spdlog/": ["common/base"],
}

INCLUDE = re.compile(r'^\s*#\s*include\s+[<"]([^>"]+)[>"]', re.MULTILINE)


def room_of(path):
    parts = path.parts
    return "/".join(parts[:2]) if len(parts) > 2 else parts[0]


def within(room, names):
    return any(room == name or room.startswith(name + "/") for name in names)


def main():
    faults, files = [], 0
    for top in ("common", "kernels", "worker", "coordinator", "deploy"):
        for path in sorted((ROOT / top).rglob("*")):
            if path.suffix not in (".h", ".cc", ".cu", ".cuh"):
                continue
            files += 1
            relative = path.relative_to(ROOT)
            room = room_of(relative)
            if room not in ROOMS:
                faults.append(f"{relative}: room {room} is not in the table")
                continue
            for header in INCLUDE.findall(path.read_text()):
                owners = next((rooms for prefix, rooms in OWNERS.items() if header.startswith(prefix)), None)
                if owners is not None and not within(room, owners):
                    faults.append(f"{relative}: {header} belongs to {', '.join(owners)}")
                if not header.startswith(("common/", "kernels/", "worker/", "coordinator/", "deploy/", "tests/")):
                    continue
                other = room_of(pathlib.Path(header))
                if other != room and not within(other, ROOMS[room]):
                    faults.append(f"{relative}: {room} may not include {header}")
    print("\n".join(faults) if faults else f"{files} files keep to the room table")
    if files == 0:
        sys.exit("no files found")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
