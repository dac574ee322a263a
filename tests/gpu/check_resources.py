#!/usr/bin/env python3
"""What ptxas gave each kernel, from a build's log (nvcc --resource-usage), against what every architecture has.

usage: check_resources.py LOG [--table]. Prints one line, or the faults, and with --table every kernel. The launches' side is
the emulator's to refuse (tests/support/simt): at most 256 threads a block and 48 KB of dynamic shared memory.
"""
import pathlib
import re
import sys

THREADS = 256  # of the largest block
REGISTERS = 65536  # of an SM of sm_80, sm_90, sm_100 and sm_120, given out by 8 a thread
DEFAULT_SHARED = 48 << 10  # of a block that asks for no more, static and dynamic together; an SM has 100 KB at least
DYNAMIC = {"tensor_attention_kernel": 48 << 10, "merge_partitions_kernel": 48 << 10}  # the most that a launch asks for
STACK = 1 << 10  # bytes a thread; more is a kernel that keeps in memory what belongs in registers


def number(pattern, line):
    found = re.search(pattern, line)
    return int(found.group(1)) if found else 0


def main():
    rows, faults, entry, stack, spills = {}, [], None, 0, 0
    for line in pathlib.Path(sys.argv[1]).read_text(errors="replace").splitlines():
        if found := re.search(r"Compiling entry function '(\S+)' for '(sm_\w+)'", line):
            symbol, arch = found.groups()
            name = re.search(r".*\d([a-z][a-z0-9_]*_kernel)", symbol)
            entry, stack, spills = (arch, name.group(1) if name else symbol, symbol), 0, 0
        elif entry and "stack frame" in line:
            stack, spills = number(r"(\d+) bytes stack frame", line), number(r"(\d+) bytes spill stores", line)
        elif entry and (found := re.search(r"Used (\d+) registers", line)):
            rows[entry] = (int(found.group(1)), stack, spills, number(r"(\d+) bytes smem", line))
            entry = None
    for (arch, name, _), (registers, stack, spills, shared) in sorted(rows.items()):
        dynamic = DYNAMIC.get(name, 0)
        if "--table" in sys.argv:
            print(f"{arch:7} {name:32} {registers:3} registers, {stack:4} stack, {spills:4} spilled, {shared:5} + {dynamic:5} shared")
        if -(-registers // 8) * 8 * THREADS > REGISTERS:
            faults.append(f"{arch} {name}: {registers} registers x {THREADS} threads")
        if shared + dynamic > DEFAULT_SHARED:
            faults.append(f"{arch} {name}: {shared} + {dynamic} bytes of shared memory")
        if stack > STACK:
            faults.append(f"{arch} {name}: {stack} bytes of stack, {spills} of them spilled")
    most = max((row[0] for row in rows.values()), default=0)
    spilling = sum(row[2] > 0 for row in rows.values())
    print("\n".join(faults) if faults else
          f"{len(rows)} kernels of {', '.join(sorted({r[0] for r in rows}))}: {most} registers at most, {spilling} spill")
    sys.exit(1 if faults or not rows else 0)


if __name__ == "__main__":
    main()
