"""Checks of the compiled kernels: right results, and no vectors on the stack.

    python tools/kernels.py [--cross] [compiler ...]

For each compiler (default: gcc, and clang if installed) and each instruction set of this processor,
tools/kernels.c is compiled and run: it compares every kernel with a plain loop that computes the
same. Then the machine code is disassembled (objdump, of binutils): no innermost loop of a kernel
that multiplies may move vectors to or from the stack, which takes ten times as long as the
arithmetic.

--cross does the same for 64-bit ARM (NEON, run by qemu) and compiles for Windows with MinGW's gcc
and clang-cl. The Debian packages are gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user
gcc-mingw-w64-x86-64 clang-19 clang-tools-19.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = Path(__file__).with_suffix(".c")
FLAGS = ["-O3", "-ffp-contract=off", "-fopenmp-simd", "-Wall", "-Wno-unused-function"]
INCLUDE = f"-I{ROOT / 'smallvar' / '_sweeps'}"
KERNEL = re.compile(r"(tile_top2|tile_distances|sv|sf|sc|times)_\w+")

# the declarations of the C library that kernels.c uses, for clang-cl, which comes without headers
STUBS = {
    "stddef.h": "typedef __SIZE_TYPE__ size_t; typedef __PTRDIFF_TYPE__ ptrdiff_t;\n"
    "#define NULL ((void *)0)",
    "stdlib.h": "#include <stddef.h>\nvoid *malloc(size_t); void free(void *);",
    "string.h": "#include <stddef.h>\n"
    "void *memcpy(void *, const void *, size_t); void *memset(void *, int, size_t);",
    "math.h": "#define HUGE_VAL __builtin_huge_val()\n"
    "double fabs(double); double fmin(double, double); double fmax(double, double);"
    "double sqrt(double);",
    "stdio.h": "int printf(const char *, ...);",
    "malloc.h": "#include <stdlib.h>",
    "setjmp.h": "typedef int jmp_buf[64];",
}


def functions(listing):
    """Yield name and instructions (address, mnemonic, operands) of each function of a listing."""
    name, body = None, []
    for line in listing.splitlines():
        head = re.match(r"^[0-9a-f]+ <([^>]+)>:", line)
        if head:
            if name:
                yield name, body
            name, body = head[1], []
            continue
        code = re.match(r"^\s*([0-9a-f]+):\s+(?:bnd |notrack )?(\S+)\s*(.*)", line)
        if code:
            body.append((int(code[1], 16), code[2], code[3]))
    if name:
        yield name, body


def innermost_loops(body):
    """Address ranges (first, last) of the loops that contain no other loop."""
    start = body[0][0]
    loops = {}  # address of the head: address of the last jump back to it
    for address, mnemonic, operands in body:
        target = re.search(r"\b([0-9a-f]+) <", operands)
        if not target or not re.match(r"j|b|cb|tb", mnemonic) or mnemonic == "bl":
            continue
        if start <= int(target[1], 16) <= address:
            loops[int(target[1], 16)] = address
    return [
        (first, last)
        for first, last in loops.items()
        if not any(a != first and first <= a and b <= last for a, b in loops.items())
    ]


def moves_on_the_stack(body):
    """Vector instructions with an operand on the stack, in the innermost loops that multiply."""
    # with a frame pointer, %rbp is an address on the stack, too
    framed = any(m == "mov" and o.startswith("%rsp,%rbp") for _, m, o in body)
    stack = re.compile(r"\(%r(sp|bp)" if framed else r"\(%rsp|\[sp")
    vector = re.compile(r"%[xyz]mm|\b[qv]\d")
    single = re.compile(r"s[sd]$|broadcast|v?mov[dq]$|v?mov[lh]p|v?cvtsi|v?insert")  # one element
    moves = []
    for first, last in innermost_loops(body):
        loop = [(m, o) for address, m, o in body if first <= address <= last]
        if any(re.match(r"v?mulp|vfn?m|fml|fmul", m) and vector.search(o) for m, o in loop):
            moves += [
                f"{m} {o}"
                for m, o in loop
                if stack.search(o) and vector.search(o) and not single.search(m)
            ]
    return moves


def check_registers(objdump, library, windows=False):
    """Print the kernels that run out of registers, and return their number."""
    listing = subprocess.run(
        [objdump, "-d", "--no-show-raw-insn", library], capture_output=True, text=True, check=True
    ).stdout
    failures, n_kernels = 0, 0
    for name, body in functions(listing):
        if KERNEL.match(name) and body:
            n_kernels += 1
            moves = moves_on_the_stack(body)
            if windows and not name.endswith("_base"):
                # Windows requires functions to save these registers; wider vectors are the kernel's
                moves = [m for m in moves if not re.search(r"%xmm([6-9]|1[0-5])\b", m)]
            # sv_filter looks up seven tables by label, one by one
            if len(moves) > (3 if name.startswith("sv_filter") else 0):
                failures += 1
                print(f"    {name}: {len(moves)} vector moves on the stack, such as {moves[0]}")
    if n_kernels < 15:
        raise SystemExit(f"only {n_kernels} kernels found in the machine code of {library}")
    return failures


def check(compiler, sets=(2, 3, 4), run=(), objdump="objdump"):
    """Build, run and disassemble the kernels; returns the number of failures.

    ``sets`` are values of SMALLVAR_SIMD, ``run`` is the command of an emulator.
    """
    failures = 0
    print(" ".join(compiler))
    with tempfile.TemporaryDirectory() as folder:
        for n in sets:
            program, code = Path(folder, "kernels"), Path(folder, "kernels.o")
            build = [*compiler, *FLAGS, INCLUDE, f"-DSMALLVAR_SIMD={n}", str(SOURCE)]
            subprocess.run([*build, "-lm", "-o", str(program)], check=True)
            failures += subprocess.run([*run, str(program)], check=False).returncode != 0
        subprocess.run([*build, "-c", "-o", str(code)], check=True)
        failures += check_registers(objdump, str(code))
    return failures


def cross():
    """Check ARM in an emulator, and compile for Windows; returns the number of failures."""
    failures = check(
        ["aarch64-linux-gnu-gcc", "-static"], (4,), ["qemu-aarch64"], "aarch64-linux-gnu-objdump"
    )
    with tempfile.TemporaryDirectory() as folder:
        code = str(Path(folder, "kernels.obj"))
        print("x86_64-w64-mingw32-gcc")
        mingw = ["x86_64-w64-mingw32-gcc", *FLAGS, INCLUDE, "-c", str(SOURCE), "-o", code]
        subprocess.run(mingw, check=True)
        failures += check_registers("x86_64-w64-mingw32-objdump", code, windows=True)
        print("clang-cl-19")
        for name, text in STUBS.items():
            Path(folder, name).write_text(text + "\n")
        for target in ("x86_64-pc-windows-msvc", "aarch64-pc-windows-msvc"):
            clang = ["clang-cl-19", f"--target={target}", "/c", "/O2", "/fp:precise", "/X", "/WX"]
            files = [f"/I{folder}", INCLUDE, f"/Fo{code}", "--", str(SOURCE)]
            subprocess.run([*clang, *files], check=True)
    return failures


def main():
    """Run the checks; the exit status is 1 if any failed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("compilers", nargs="*", metavar="compiler")
    parser.add_argument("--cross", action="store_true", help="check ARM and Windows, too")
    arguments = parser.parse_args()
    compilers = arguments.compilers or ["gcc"] + ["clang"] * bool(shutil.which("clang"))
    failures = sum(check([compiler]) for compiler in compilers)
    failures += cross() if arguments.cross else 0
    print(f"{failures} failures")
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
