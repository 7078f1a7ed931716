"""Fits beside busy processes: all threads against one.

Usage::

    python asv_bench/busy.py [--busy 2] [--repeats 9] [--quick] [--limit 1.3]

A processor that has other work delays whoever waits for it, so more threads can be slower than one.
For each problem, fits with n_threads=1 and with the default take turns in one process, beside as
many endless loops as --busy says (0: an idle machine). Printed are the medians and their ratio.
With --limit the exit status is 1 if a ratio is larger.
"""

import argparse
import statistics
import subprocess
import sys
import time
import warnings
from contextlib import contextmanager

import numpy as np

from smallvar import (
    BPMeans,
    DPMeans,
    DynamicMeans,
    HDPMeans,
    KernelDPMeans,
    MiniBatchDPMeans,
    show_config,
)

# rows, columns, clusters
SHAPES = [
    (100, 2, 5),
    (266, 35, 8),
    (300, 30, 5),
    (1_000, 8, 12),
    (5_000, 8, 12),
    (20_000, 2, 20),
    (20_000, 8, 20),
    (100_000, 2, 20),
    (200_000, 16, 50),
    (100_000, 8, 50),
    (30_000, 16, 300),
    (20_000, 100, 30),
    (10_000, 768, 50),
    (20_000, 384, 1_000),
    (1_000_000, 4, 20),
]


def blobs(n, d, k):
    """Rows (float32) around k centers, and the centers."""
    rng = np.random.default_rng(0)
    centers = rng.random((k, d))
    X = centers[rng.integers(k, size=n)] + 0.05 * rng.standard_normal((n, d))
    return X.astype(np.float32), centers


def problems(quick):
    """Pairs of a name and a function from n_threads to a fit."""
    for n, d, k in SHAPES[:9] if quick else SHAPES:
        X, centers = blobs(n, d, k)

        def fit(t, X=X, centers=centers):
            return DPMeans(lam=1e30, init=centers, max_iter=8, n_threads=t).fit(X)

        yield f"DPMeans {n} x {d}, K {k}", fit
    options = {"max_iter": 4, "random_state": 0}
    X = blobs(40_000, 6, 12)[0]
    few, many, times = X[:300], X[:2_000], np.repeat(np.arange(4), 10_000)
    yield "DPMeans 40000 x 6, lam", lambda t: DPMeans(lam=0.3, n_threads=t, **options).fit(X)
    starts = {"n_swaps": 0, **options}
    yield "BPMeans 300 x 6", lambda t: BPMeans(lam=5, n_threads=t, n_init=8, **starts).fit(few)
    yield "BPMeans 40000 x 6", lambda t: BPMeans(lam=500, n_threads=t, n_init=1, **starts).fit(X)
    lams = {"lam_local": 0.5, "lam_global": 1}
    yield "HDPMeans", lambda t: HDPMeans(**lams, n_threads=t, max_iter=4).fit(X, groups=times)
    yield "DynamicMeans", lambda t: DynamicMeans(lam=0.5, n_threads=t).fit(X, times=times)
    yield "MiniBatchDPMeans", lambda t: MiniBatchDPMeans(lam=0.5, n_threads=t, **options).fit(X)
    # has no threads of its own; BLAS has
    yield "KernelDPMeans", lambda t: KernelDPMeans(lam=0.5, max_iter=4).fit(many)


@contextmanager
def busy(count):
    """So many processes that do nothing useful; they end with this one, however it ends."""
    script = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: sum(range(10**5))"
    processes = [subprocess.Popen([sys.executable, "-c", script]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def seconds(fit, threads, count):
    """Time of one of ``count`` fits."""
    start = time.perf_counter()
    for _ in range(count):
        fit(threads)
    return (time.perf_counter() - start) / count


def measure(fit, repeats, batch):
    """Median times of one thread and of the default, in turns of about ``batch`` seconds each."""
    fit(None)
    count = max(1, int(batch / seconds(fit, 1, 1)))
    times = {1: [], None: []}
    for turn in range(repeats):
        for threads in (1, None) if turn % 2 else (None, 1):
            times[threads].append(seconds(fit, threads, count))
    return statistics.median(times[1]), statistics.median(times[None])


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--busy", type=int, default=2, help="busy processes (default 2)")
    parser.add_argument("--repeats", type=int, default=9, help="turns of each problem (default 9)")
    parser.add_argument("--quick", action="store_true", help="small problems, few turns")
    parser.add_argument("--limit", type=float, help="largest ratio that is not a failure")
    args = parser.parse_args()
    repeats, batch = (9, 0.05) if args.quick else (args.repeats, 0.2)
    warnings.simplefilter("ignore")
    show_config()
    print(f"\n{args.busy} busy processes\n{'':28}{'1 thread':>12}{'default':>12}{'ratio':>8}")
    worst = 0.0
    with busy(args.busy):
        for name, fit in problems(args.quick):
            one, default = measure(fit, repeats, batch)
            worst = max(worst, default / one)
            print(
                f"{name:28}{1e3 * one:9.2f} ms{1e3 * default:9.2f} ms{default / one:8.2f}",
                flush=True,
            )
    print(f"worst ratio {worst:.2f}")
    return int(args.limit is not None and worst > args.limit)


if __name__ == "__main__":
    sys.exit(main())
