"""Compare two builds by the twelve fits of asv_bench/benchmarks/fits.py, one of each family.

    python tools/regressions.py [--limit RATIO] BEFORE AFTER

runs the fits with the smallvar in the folder BEFORE and with that in AFTER, in turns, each time in
a new process on one thread, and prints a table of CPU time, peak memory and quality. The exit
status is 1 where a fit has become slower: where the least CPU time of AFTER is more than RATIO
(LIMIT) times that of BEFORE in each of ROUNDS rounds. A fit that is within the limit in one round
is not run in the next: noise does not make it fail. A fit that BEFORE does not have, or cannot do,
is named and passed over.

``.ci/run`` calls it with the commit before and the present one, and, with a lower limit, with the
last release and the present one: several commits may each add a little. See docs/benchmarks.rst.
"""

import argparse
import functools
import importlib
import json
import os
import statistics
import subprocess
import sys
import time
import tracemalloc
import warnings
from pathlib import Path

LIMIT = 1.5  # ratio of the least CPU times from which a fit counts as slower, by default
ROUNDS, TURNS, REPEATS = 3, 3, 3  # rounds; processes of each build in a round; fits of each in one
LEAST = 0.02  # seconds that a measurement lasts at least: shorter fits are repeated within it


def benchmarks():
    """The module with the fits, in asv_bench."""
    sys.path.append(str(Path(__file__).resolve().parents[1] / "asv_bench"))
    return importlib.import_module("benchmarks.fits")


def seconds(fit):
    """The least CPU time of a fit."""
    begin, number = time.process_time(), 0
    while number == 0 or time.process_time() - begin < LEAST:
        fit()
        number += 1
    times = [(time.process_time() - begin) / number]
    for _ in range(REPEATS - 1):
        begin = time.process_time()
        for _ in range(number):
            fit()
        times.append((time.process_time() - begin) / number)
    return min(times)


def measure(names, full):
    """Measure these fits in this process: a dictionary, with a text for what fails.

    ``full``: memory and quality, too.
    """
    warnings.simplefilter("ignore")
    results, fits = {}, benchmarks()
    for name in names:
        try:
            X, _, estimator = fits.FAMILIES[name]()
            fit = functools.partial(estimator.fit, X)
            model = fit()  # what is made once is made now
            results[name] = {"seconds": seconds(fit), "quality": fits.quality(model)}
            if full:
                tracemalloc.start()
                fit()
                results[name]["memory"] = tracemalloc.get_traced_memory()[1]
                tracemalloc.stop()
        except Exception as error:
            results[name] = {"error": f"{type(error).__name__}: {error}"}
    return results


def run(folder, names, full):
    """``measure`` in a new process, with the smallvar of a folder."""
    one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    done = subprocess.run(
        [sys.executable, __file__, "--measure", json.dumps([names, full])],
        env={**os.environ, **one, "PYTHONPATH": os.path.abspath(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(f"{folder}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def compare(before, after, names, run=run, limit=LIMIT):
    """Names of the fits that have become slower, those not in ``before``, and the first results.

    ``run`` measures: ``run(folder, names, full)``.
    """
    results = {}
    missing, left = {}, list(names)
    for number in range(ROUNDS):
        least = {}
        for turn in range(TURNS):
            for folder in (before, after):
                full = number == turn == 0
                for name, result in run(folder, left, full).items():
                    if "error" in result:
                        missing[name, folder] = result["error"]
                        continue
                    key = name, folder
                    least[key] = min(least.get(key, float("inf")), result["seconds"])
                    if full:
                        results[key] = result
            broken = {name for name, folder in missing if folder == after}
            if broken:
                raise SystemExit(
                    "\n".join(f"{name}: {missing[name, after]}" for name in sorted(broken))
                )
            left = [name for name in left if (name, before) not in missing]
        if number == 0:
            for key, value in least.items():
                results[key]["seconds"] = value
        left = [name for name in left if least[name, after] > limit * least[name, before]]
        if not left:
            break
    return left, {name: text for (name, _), text in missing.items()}, results


def table(before, after, names, results):
    """Lines of a table: seconds, memory and quality of both builds; the mean of the ratios."""
    yield f"{'fit':16s}{'before':>10s}{'after':>10s}{'ratio':>8s}{'memory':>9s}  quality"
    ratios = []
    for name in names:
        if (name, before) not in results or (name, after) not in results:
            continue
        old, new = results[name, before], results[name, after]
        ratio, memory = new["seconds"] / old["seconds"], new["memory"] / old["memory"]
        ratios.append(ratio)
        same = old["quality"] == new["quality"]
        words = "the same" if same else f"{old['quality']} -> {new['quality']}"
        times = "".join(f"{1e3 * result['seconds']:7.2f} ms" for result in (old, new))
        yield f"{name:16s}{times}{ratio:8.2f}{memory:9.2f}  {words}"
    if ratios:
        yield f"{'geometric mean':36s}{statistics.geometric_mean(ratios):8.2f}"


def main():
    """Compare the builds named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    parser.add_argument("--limit", type=float, default=LIMIT, metavar="RATIO", help=f"{LIMIT}")
    parser.add_argument("folders", nargs="*", metavar="FOLDER", help="BEFORE and AFTER")
    arguments = parser.parse_args()
    if arguments.measure:
        names, full = json.loads(arguments.measure)
        print(json.dumps(measure(names, full)))
        return
    if len(arguments.folders) != 2:
        parser.error("two folders are needed: BEFORE and AFTER")
    before, after = arguments.folders
    sys.path.insert(0, after)
    names = list(benchmarks().FAMILIES)
    slower, missing, results = compare(before, after, names, limit=arguments.limit)
    print("\n".join(table(before, after, names, results)))
    for name, text in missing.items():
        print(f"{name}: not in {before} ({text})")
    if slower:
        print(f"More than {arguments.limit} times slower, {ROUNDS} times over: {', '.join(slower)}")
        sys.exit(1)


if __name__ == "__main__":
    main()
