"""Time over rows, columns and clusters: every estimator beside what is used in its place.

    python docs/reproductions/scaling.py [--quick] [--figure FILE] [family ...]

takes some hours of one core and prints the tables of docs/reproductions/scaling.rst. The problems
are those of asv_bench/benchmarks/scaling.py, with 1,000 to 10,000,000 rows and 10 to 1,000
clusters; where all pairs of rows are needed, as many as there. Each problem has a process of its
own with one thread, in which short fits are repeated; seconds are those of the processor, as other
processes may be busy. A series ends at the first fit that takes more than 60 seconds or 8 GB, and
before data of more than 2 GB. --keep FILE writes what is measured to that file and takes from it
what is there, so that a family can be measured again alone, and several at the same time. --figure
draws time over rows to FILE, and over columns and clusters beside it, with _columns and _clusters
added to the name. --quick takes small problems.

It is no figure of a paper: the papers say what a sweep costs, O(n d K) for DP-means and k-means
alike, and this is what fits cost. The first of a family is given a penalty (or the true number,
where its argument is one; those of the second kind, "()", nothing), its rival the true number, but
for HDBSCAN, and both have one start. networkx, hmmlearn and kmodes are left out where they are not
installed.
"""

import argparse
import inspect
import io
import json
import math
import multiprocessing
import statistics
import sys
import time
from pathlib import Path

import numpy as np

BENCH = Path(__file__).resolve().parents[2] / "asv_bench"
sys.path.insert(0, str(BENCH))
from benchmarks.data import Bound  # noqa: E402
from benchmarks.scaling import FAMILIES, short  # noqa: E402

AXES = ("rows", "columns", "clusters")
LABELS = {
    "rows": "rows; for PenalizedCut nodes",
    "columns": "columns; for PenalizedCut links of a node",
    "clusters": "clusters; for BPMeans features",
}
ROWS = (1000, 10_000, 100_000, 1_000_000, 10_000_000)
CLUSTERS = (10, 30, 100, 300, 1000)
MIDDLE = (100_000, None, 30)  # rows and clusters where another number varies
ENOUGH = 0.3  # seconds of the fits of a problem after which no other one begins
SECONDS, BYTES = 60, 8e9  # of the last fit of a series
LARGEST = 2e9  # bytes of the data
LEAST = 10_000  # rows, from which on the exponents over them are taken
DEFAULTS = (
    "Points",
    "Batches",
    "Directions",
    "Divergence",
    "Shapes",
    "Tables",
    "DataSets",
    "Steps",
    "Graphs",
)
KEPT = ("random_state", "n_threads", "divergence", "columns", "max_iter")  # not defaults
WIDE, COLORS = 4, ("C0", "C2", "C1")  # panels side by side; ours given a penalty, not, the rival
NOTHING = (math.nan,) * 4


def larger(family):
    """The same with as many rows and clusters as users have, and with what is told nothing."""
    sizes = {}
    if family.base[0] >= LEAST:  # else it needs all pairs of rows
        few = family.clusters[-1] <= 20 or family.rival_from == "networkx"
        clusters = family.clusters if few else CLUSTERS
        middle = family.base[2] if few else MIDDLE[2]
        rows = tuple(n for n in ROWS if 8 * n * family.base[1] <= LARGEST)
        sizes = {"rows": rows, "clusters": clusters, "base": (MIDDLE[0], family.base[1], middle)}
    return with_default(type(family.__name__, (family,), {**sizes, "rival_rows": ROWS[-1]}))


def smaller(family):
    """The same with its fewest rows and half of them, and the two smallest other numbers."""
    sizes = {axis: getattr(family, axis)[:2] for axis in AXES}
    sizes["rows"] = (family.rows[0] // 2, family.rows[0])
    base = (sizes["rows"][-1], sizes["columns"][0], sizes["clusters"][0])
    return with_default(type(family.__name__, (family,), {**sizes, "base": base}))


def with_default(family):
    """The family, and between the two names that of the estimator without arguments."""
    if family.__name__ not in DEFAULTS:
        return family

    def setup(self, case, name):
        ours = self.names[0]
        family.setup(self, case, ours if name == f"{ours}()" else name)
        if name == f"{ours}()":
            self.estimator = without_arguments(self.estimator)

    ours, rival = family.names
    names = (ours, f"{ours}()", rival)
    return type(family.__name__, (family,), {"setup": setup, "names": names})


def without_arguments(estimator):
    """The estimator without what it could be told of the clusters."""
    if isinstance(estimator, Bound):
        return Bound(without_arguments(estimator.model), **estimator.given)
    given = estimator.get_params()
    return type(estimator)(**{name: given[name] for name in KEPT if name in given})


def measure(family, name, enough=ENOUGH):
    """(case, estimator) -> seconds, clusters, quality, bytes beside the data."""
    found = {}
    for axis in AXES:
        ended = False
        for _, case in along(family, axis):
            if (case, name) not in found:
                work = (family, case, name, enough)
                found[case, name] = NOTHING if ended else in_a_process(fitted, *work)
            seconds, *_, memory = found[case, name]
            ended = ended or not seconds <= SECONDS or memory > BYTES
    return found


def in_a_process(work, *arguments):
    """What a function returns in a process of its own; NOTHING if that is killed."""
    if "fork" not in multiprocessing.get_all_start_methods():
        return work(*arguments)
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=lambda: sender.send(work(*arguments)), daemon=True)
    process.start()
    sender.close()
    try:
        return receiver.recv()
    except EOFError:
        return NOTHING
    finally:
        process.join()


def fitted(family, case, name, enough):
    """Seconds, clusters, quality, bytes beside the data, of one problem."""
    one = family()
    try:
        one.setup(case, name)
    except NotImplementedError:
        return NOTHING
    one.estimator = Keeping(one.estimator)
    before = resident(reset=True)
    limit_time_and_memory(before)
    try:
        seconds = seconds_of(one, case, name)
        memory = resident() - before
        if seconds < enough:  # the first fit may import something
            fits, begin = 0, one.timer()
            while one.timer() - begin < enough:
                one.time_fit(case, name)
                fits += 1
            seconds = (one.timer() - begin) / fits
    except MemoryError:
        return NOTHING
    one.estimator = Fitted(one.estimator.fitted)
    numbers = (float(getattr(one, m)(case, name)) for m in ("track_n_clusters", "track_quality"))
    return seconds, *numbers, memory


def seconds_of(one, case, name):
    """Seconds of a fit."""
    begin = one.timer()
    one.time_fit(case, name)
    return one.timer() - begin


def limit_time_and_memory(before):
    """Let the system end this process where a series ends."""
    try:
        import resource
    except ImportError:
        return
    used = math.ceil(time.process_time() + 1.2 * SECONDS)
    resource.setrlimit(resource.RLIMIT_CPU, (used, used))
    most = int(before + 1.2 * BYTES)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def resident(reset=False):
    """The most bytes of memory that this process had since a reset; NaN where Linux is not."""
    try:
        if reset:
            Path("/proc/self/clear_refs").write_text("5")
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return math.nan
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


class Keeping:
    """An estimator that keeps what its fit returns."""

    def __init__(self, estimator):
        self.estimator = estimator

    def fit(self, X):
        """Fit, keep and return the model."""
        self.fitted = self.estimator.fit(X)
        return self.fitted


class Fitted:
    """An estimator that need not be fitted again to say what it found."""

    def __init__(self, model):
        self.model = model

    def fit(self, X):
        """Return the fitted model."""
        return self.model


def along(family, axis):
    """The cases in which that number varies: it, and the name."""
    column = AXES.index(axis)
    rest = [n for i, n in enumerate(family.base) if i != column]
    same = {
        size[column]: case
        for case, size in family.cases.items()
        if [n for i, n in enumerate(size) if i != column] == rest
    }
    return sorted(same.items())


def exponent(family, found, axis, name):
    """The slope of log time over the log of that number, by least squares."""
    points = [(n, found[case, name][0]) for n, case in along(family, axis)]
    points = [point for point in points if np.isfinite(point[1])]
    if axis == "rows" and family.rows[-1] > LEAST:
        points = [point for point in points if point[0] >= LEAST]
    return np.polyfit(*np.log(points).T, 1)[0] if len(points) > 1 else math.nan


def table(family, found):
    """A line for each case."""
    names = family.names
    print(f"\n{', '.join(names)}: {inspect.getdoc(family).splitlines()[0]}")
    groups = ("seconds", "clusters", family.track_quality.unit, "memory beside the data, MB")
    print(" " * 28 + "".join(f"{word:>{10 * len(names)}s}" for word in groups))
    print(" " * 28 + "".join(f"{name[:9]:>10s}" for name in names) * len(groups))
    for case in family.cases:
        numbers = [found[case, name] for name in names]
        print(
            f"{case:28s}"
            + "".join(f"{seconds:10.4f}" for seconds, *_ in numbers)
            + "".join(f"{k:10.0f}" for _, k, *_ in numbers)
            + "".join(f"{quality:10.3f}" for _, _, quality, _ in numbers)
            + "".join(f"{memory / 1e6:10.1f}" for *_, memory in numbers),
            flush=True,
        )


def summary(results):
    """Exponents and ratios."""
    print(f"\nExponents of time, over rows from {LEAST:,} on, over columns and clusters; time by")
    print("that of the rival, where both have the most rows, and the geometric mean over all cases")
    ends = (*AXES, "most rows", "mean")
    print(" " * 24 + "".join(f"{word:>12s}" for word in ends))
    for family, found in results.items():
        *_, rival = family.names
        for name in family.names:
            slopes = [exponent(family, found, axis, name) for axis in AXES]
            ratios = {case: found[case, name][0] / found[case, rival][0] for case in family.cases}
            finite = {case: ratio for case, ratio in ratios.items() if np.isfinite(ratio)}
            rows = [finite[case] for _, case in along(family, "rows") if case in finite]
            mean = statistics.geometric_mean(finite.values()) if finite else math.nan
            print(
                f"{name:24s}" + "".join(f"{slope:12.2f}" for slope in slopes),
                f"{[math.nan, *rows][-1]:11.2f}{mean:12.2f}",
            )


def draw(shown, axis, file):
    """Time over that number, a panel for each family."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from PIL import Image  # matplotlib needs it anyway

    style = {"axes.spines.top": False, "axes.spines.right": False, "font.size": 9}
    with plt.rc_context(style):
        height = math.ceil(len(shown) / WIDE)
        fig, axes = plt.subplots(
            *(height, WIDE), figsize=(2.4 * WIDE, 2.2 * height), layout="constrained", sharey=True
        )
        for ax, (family, found) in zip(np.ravel(axes), shown.items(), strict=False):
            points = along(family, axis)
            numbers = [number for number, _ in points]
            colors = COLORS if len(family.names) > 2 else COLORS[::2]
            for name, color in zip(family.names, colors, strict=True):
                seconds = [found[case, name][0] for _, case in points]
                mark = "s--" if color == COLORS[-1] else "o-"
                ax.plot(numbers, seconds, mark, color=color, ms=4, lw=1.4)
            for place, name in ((1.12, family.names[0]), (1.0, family.names[-1])):
                color = COLORS[0 if name == family.names[0] else -1]
                ax.text(0.02, place, name, color=color, transform=ax.transAxes, va="bottom")
            ends = np.array([points[0][0], points[-1][0]])
            last = max(
                (n, found[case, family.names[0]][0])
                for n, case in points
                if np.isfinite(found[case, family.names[0]][0])
            )
            ax.plot(ends, last[1] * ends / last[0], ":", color="0.6", lw=1.2, zorder=0)
            ax.set(xscale="log", yscale="log")
            ax.set_xticks(numbers, [short(number) for number in numbers])
            ax.minorticks_off()
            ax.yaxis.set_major_formatter("{x:g}")
            ax.grid(axis="y", color="0.9", lw=0.6)
        for ax in np.ravel(axes)[len(shown) :]:
            ax.set_axis_off()
        keys = (
            ("o", "-", COLORS[0], "smallvar, given a penalty or the number"),
            ("o", "-", COLORS[1], "told nothing"),
            ("s", "--", COLORS[2], "rival"),
            ("", ":", "0.6", "in proportion to the number below"),
        )
        lines = [
            plt.Line2D([], [], marker=marker, ls=style, color=color, label=label, ms=4)
            for marker, style, color, label in keys
        ]
        fig.legend(handles=lines, loc="outside upper center", ncols=4, frameon=False, fontsize=10)
        fig.supxlabel(LABELS[axis], fontsize=10)
        fig.supylabel("seconds of the processor", fontsize=10)
        drawn = io.BytesIO()
        fig.savefig(drawn, dpi=130)
    Image.open(drawn).convert("RGB").quantize(128).save(file, optimize=True)


def main():
    """Print the tables; draw."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    names = [family.__name__ for family in FAMILIES]
    parser.add_argument("family", nargs="*", help=", ".join(names))
    parser.add_argument("--quick", action="store_true", help="smaller problems")
    parser.add_argument("--figure", type=Path, help="draw to this file, and two beside it")
    parser.add_argument("--keep", type=Path, help="file of what was measured")
    options = parser.parse_args()
    if unknown := set(options.family) - set(names):
        parser.error(f"no such family: {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    families = [f for f in FAMILIES if not options.family or f.__name__ in options.family]
    families = [(smaller if options.quick else larger)(family) for family in families]
    print("Seconds of the processor, one thread")
    shown = {}
    for family in families:
        found = measured(family, options.keep, ENOUGH / 10 if options.quick else ENOUGH)
        table(family, found)
        shown[family] = found
    summary(shown)
    if options.figure:
        for axis in AXES:
            name = options.figure.stem + ("" if axis == "rows" else f"_{axis}")
            draw(shown, axis, options.figure.with_name(name + options.figure.suffix))


def measured(family, file, enough):
    """What measure finds, each series from that file if it is there."""
    found = {}
    for name in family.names:
        key = f"{family.__name__} {name}"
        series = {(case, name): tuple(numbers) for case, numbers in kept(file).get(key, {}).items()}
        if set(series) != {(case, name) for case in family.cases}:
            series = measure(family, name, enough)
            if file:
                file.write_text(
                    json.dumps({**kept(file), key: {c: n for (c, _), n in series.items()}})
                )
        found |= series
    return found


def kept(file):
    """Family and estimator -> case -> numbers, of a file of what was measured."""
    return json.loads(file.read_text()) if file and file.exists() else {}


if __name__ == "__main__":
    main()
