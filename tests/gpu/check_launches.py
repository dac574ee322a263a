#!/usr/bin/env python3
"""Every kernel of the CUDA sources is launched by the emulated tests, in every instantiation that was compiled.

usage: check_launches.py PROGRAM=LOG...   LOG is what the program's tests launched (HELIOS_SIMT_LAUNCHES): place in the
program, threads of a block, dynamic shared memory. The emulator itself refuses launches that no GPU would take.
"""
import pathlib
import re
import subprocess
import sys

KERNEL = re.compile(r"^(?:void )?helios::(?:\w+::)?\(anonymous namespace\)::(\w+_kernel(?:<[^(]*>)?)\(")


def kernels_of(program):
    found = {}
    for line in subprocess.run(["nm", "-C", program], capture_output=True, text=True, check=True).stdout.splitlines():
        place, _, rest = line.partition(" ")
        kernel = KERNEL.match(rest[2:]) if rest[:1] in "tTwW" else None
        if kernel and place:
            found[int(place, 16)] = kernel.group(1)
    return found


def main():
    compiled, launched, shapes = {}, set(), set()
    for argument in sys.argv[1:]:
        program, log = argument.split("=")
        if not pathlib.Path(log).exists():
            sys.exit(f"{log}: {program} has left no log")
        kernels = kernels_of(program)
        for name in kernels.values():
            compiled.setdefault(name, pathlib.Path(program).name)
        for line in pathlib.Path(log).read_text().splitlines():
            place, threads, shared = line.split()
            name = kernels.get(int(place, 16))
            if name:
                launched.add(name)
                shapes.add((name, threads, shared))
    missing = sorted(set(compiled) - launched)
    for name in missing:
        print(f"{name}: no emulated test launches it (in {compiled[name]})")
    print(f"{len(compiled)} kernels, {len(launched)} launched, {len(shapes)} of block size and shared memory")
    sys.exit(1 if missing or len(compiled) < 40 else 0)


if __name__ == "__main__":
    main()
