"""Throughput of the compiled kernels for each instruction set, next to scipy's matrix product.

    python simd.py [compiler ...]

Compiles tools/kernels.c with each compiler (default: gcc, and clang where there is one) up to each
instruction set and prints GFLOP/s of one thread, the best of several runs, measured in turn and in
CPU time; in brackets the share of v4's. What a processor can do at most goes with the width of its
vectors and the number of its multiply-add units: where 64-byte vectors have two of their own (Intel
servers), v4 can be twice as fast as v3 and at least five times as fast as v2, which has no fused
multiply-add; where they take two turns (AMD Zen 4), v3 can be as fast.
"""

import ctypes
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from scipy.linalg.blas import dgemm, sgemm
from threadpoolctl import threadpool_limits

ROOT = Path(__file__).resolve().parents[1]
SETS = {4: "v4", 3: "v3", 2: "v2"}
WORK = 2e8  # floating-point operations of a run
RUNS = 9
PANEL = 12  # centers side by side, SV_PANEL of simd.h


def load(compiler, level, folder):
    """The kernels up to one instruction set, or None where the processor has less."""
    library = str(Path(folder, f"{level}.so"))
    flags = ["-O3", "-ffp-contract=off", "-fopenmp-simd", "-shared", "-fPIC", "-w"]
    include = [f"-I{ROOT / 'smallvar' / '_sweeps'}", f"-DSMALLVAR_SIMD={level}"]
    source = str(ROOT / "tools" / "kernels.c")
    subprocess.run([compiler, *flags, *include, source, "-lm", "-o", library], check=True)
    kernels = ctypes.CDLL(library)
    kernels.set_name.restype = ctypes.c_char_p
    return kernels if kernels.set_name().decode() in (SETS[level], "neon", "portable") else None


def aligned(array):
    """A copy that starts on a cache line."""
    raw = np.empty(array.nbytes + 64, np.uint8)
    start = -raw.ctypes.data % 64
    copy = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def pointers(rows):
    """Addresses of the rows."""
    return np.array([row.ctypes.data for row in rows], np.uintp)


def cases():
    """Name, floating-point operations and arguments of every measurement."""
    rng = np.random.default_rng(0)

    def draw(*shape, dtype=float):
        return aligned(rng.standard_normal(shape).astype(dtype))

    for letter, dtype, lanes in (("f", np.float32, 16), ("d", np.float64, 8)):
        for d, k in ((2, 24), (8, 60), (32, 108), (200, 108), (768, 108)):
            tile, centers = draw(d, lanes, dtype=dtype), draw(-(-k // PANEL), d, PANEL, dtype=dtype)
            norm = aligned((centers**2).sum(axis=1).ravel())
            out = [np.empty(lanes, dtype), np.empty(lanes, dtype), np.empty(16, np.int32)]
            name = f"tile_top2_{letter}"
            yield name, f"d {d}, k {k}", 2 * lanes * d * k, (tile, d, centers, norm, k, *out)
    arguments = (draw(32), 32, draw(32, 128), 128, 100, np.empty(128))
    yield "sc_squares", "d 32, k 100", 3 * 32 * 100, arguments
    for letter, dtype in (("f", np.float32), ("d", np.float64)):
        for d in (8, 100):
            rows, z = draw(64, d, dtype=dtype), np.arange(64, dtype=np.int32) % 8
            arguments = (64, pointers(rows), z, draw(8, d), d, np.empty(64))
            yield f"sv_assigned_distances_{letter}", f"d {d}", 3 * 64 * d, (*arguments, rows)
        lanes = 64 // np.dtype(dtype).itemsize
        rows, block = draw(lanes, 100, dtype=dtype), np.empty((100, lanes), dtype)
        arguments = (pointers(rows), 100, draw(100), 0.25, block, np.empty(lanes), rows)
        yield f"sv_gather_{letter}{letter}", "d 100", 4 * lanes * 100, arguments
    x, z, at = draw(64, 8), aligned(np.ones((20, 8))), draw(64, 24)
    residual, norms, dots = np.empty((64, 8)), np.empty(8), np.empty((24, 8))
    yield "sf_residual", "d 64, k 20", 2 * 8 * 64 * 21, (64, 20, 24, x, z, at, residual, norms)
    yield "sf_dots", "d 64, k 20", 2 * 8 * 64 * 20, (64, 20, 24, x, at, dots)


def as_c(argument):
    """What ctypes passes for it."""
    if isinstance(argument, np.ndarray):
        return ctypes.c_void_p(argument.ctypes.data)
    return ctypes.c_double(argument) if isinstance(argument, float) else ctypes.c_ssize_t(argument)


def measure(libraries, name, flops, arguments):
    """GFLOP/s of each library."""
    times = max(1, int(WORK / flops / (10 if name.startswith("s") else 1)))
    best = dict.fromkeys(libraries, np.inf)
    passed = [as_c(a) for a in arguments]
    for _ in range(RUNS):
        for key, library in libraries.items():
            start = time.thread_time()
            getattr(library, f"times_{name}")(ctypes.c_long(times), *passed)
            best[key] = min(best[key], time.thread_time() - start)
    return {key: times * flops / seconds / 1e9 for key, seconds in best.items()}


def product(function, dtype):
    """GFLOP/s of scipy's matrix product on one thread."""
    a = np.asfortranarray(np.random.default_rng(0).standard_normal((800, 800)).astype(dtype))
    best = np.inf
    with threadpool_limits(1):
        for _ in range(RUNS):
            start = time.thread_time()
            function(1.0, a, a)
            best = min(best, time.thread_time() - start)
    return 2 * 800**3 / best / 1e9


def main():
    """Print the table."""
    compilers = sys.argv[1:] or ["gcc"] + ["clang"] * bool(shutil.which("clang"))
    with tempfile.TemporaryDirectory() as folder:
        libraries = {}
        for compiler in compilers:
            for level in SETS:
                place = Path(folder, Path(compiler).name)
                place.mkdir(exist_ok=True)
                kernels = load(compiler, level, place)
                if kernels:
                    libraries[compiler, level] = kernels
        print(f"{'GFLOP/s':34}" + "".join(f"{c} {SETS[n]}".rjust(17) for c, n in libraries))
        for name, shape, flops, arguments in cases():
            rates = measure(libraries, name, flops, arguments)
            line = ""
            for (compiler, level), rate in rates.items():
                full = rates.get((compiler, 4))
                share = f" ({rate / full:.2f})" if full and level < 4 else ""
                line += f"{rate:.1f}{share}".rjust(17)
            print(f"{name + ', ' + shape:34}" + line)
        for label, function, dtype in (("sgemm", sgemm, "f4"), ("dgemm", dgemm, "f8")):
            print(f"scipy's {label}: {product(function, dtype):.1f}")


if __name__ == "__main__":
    main()
