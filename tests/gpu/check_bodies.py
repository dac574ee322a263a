#!/usr/bin/env python3
"""Compiles the bodies that a GPU is checked with, each alone and without a result, as deploy/gpu_check.sh does."""
import argparse
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", required=True)
    parser.add_argument("--cuda", required=True, help="directories of the toolkit's headers, between semicolons")
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--kernels", nargs="+", default=[])
    parser.add_argument("--core", nargs="+", default=[])
    flags = parser.parse_args()
    command = [flags.compiler, "-std=c++20", "-fsyntax-only", f"-I{flags.root}", f"-isystem{flags.root}/tests/gpu/standin",
               *(f"-isystem{folder}" for folder in flags.cuda.split(";")), f'-DHELIOS_SOURCE_DIR="{flags.root}"', "-DNDEBUG",
               "-DHELIOS_CUDA_DEVICE"]

    def compile_one(body):
        own = ["-DHELIOS_SHARED_MEMORY_TESTS"] if body in flags.kernels else []
        return subprocess.run([*command, *own, body], capture_output=True, text=True)

    failed = 0
    with ThreadPoolExecutor(2) as pool:
        for body, done in zip(flags.kernels + flags.core, pool.map(compile_one, flags.kernels + flags.core)):
            if done.returncode != 0:
                failed += 1
                print(f"{body} does not compile alone:\n{done.stderr[:4000]}")
    print(f"{len(flags.kernels + flags.core)} bodies compiled, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
