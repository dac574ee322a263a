#!/usr/bin/env python3
"""Follows the includes of everything that tests/gpu builds for a GPU, and names what a machine with nothing but the CUDA
toolkit and NCCL would miss. The list of sources is CMakeLists.txt's own, read as text."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent
STANDINS = {"gtest/gtest.h", "fmt/format.h", "fmt/ranges.h"}
FOREIGN = re.compile(r"^(boost|capnp|kj|zmq|gloo|hwy|spdlog|gtest|gmock|fmt|prometheus|benchmark|schemas|pcre2|utf8proc)\b")
INCLUDE = re.compile(r'^\s*#\s*include\s+[<"]([^>"]+)[>"]', re.MULTILINE)
# Headers that another device alone includes, behind a definition.
EMULATOR = re.compile(r"^tests/support/simt/")


def sources():
    text = (HERE / "CMakeLists.txt").read_text().split("return()", 1)[1]
    without = set(re.findall(r"[\w/]+\.cc", " ".join(re.findall(r"WITHOUT([^)]*)\)", text))))
    for call in re.findall(r"sources\(\w+([^)]*)\)", text)[1:]:
        for folder in call.split("WITHOUT")[0].split():
            for path in sorted((ROOT / folder).iterdir()):
                name = str(path.relative_to(ROOT))
                if path.suffix in (".cc", ".cu") and not re.search(r"_cpu\.cc$|matmul_pack\.cc$", name) and name not in without:
                    yield path
    for name in re.findall(r"\$\{ROOT\}/([\w/]+\.cc)", text):
        yield ROOT / name
    for call in re.findall(r"add_(?:library|executable)\(\w+([^)]*)\)", text):
        for name in re.findall(r"(?<![\w/}])[\w/]+\.cc", call):
            yield HERE / name


def main():
    todo, seen, faults = list(sources()), set(), []
    count = len(todo)
    while todo:
        path = todo.pop()
        if path in seen:
            continue
        seen.add(path)
        if not path.exists():
            faults.append(f"{path}: named in tests/gpu/CMakeLists.txt, but absent")
            continue
        for header in INCLUDE.findall(path.read_text()):
            if EMULATOR.match(header) or header in STANDINS:
                continue
            if FOREIGN.match(header):
                faults.append(f"{path.relative_to(ROOT)}: {header} is not there on a machine with a GPU alone")
            elif (ROOT / header).exists():
                todo.append(ROOT / header)
    print("\n".join(faults) if faults else f"{count} sources, {len(seen)} files: nothing but CUDA and NCCL")
    sys.exit(1 if faults or count < 50 else 0)


if __name__ == "__main__":
    main()
