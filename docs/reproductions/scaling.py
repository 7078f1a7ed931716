"""Time over rows, columns and clusters: every estimator beside what is used in its place.

    python docs/reproductions/scaling.py [--quick] [--figure FILE] [family ...]

takes some six minutes of one core and prints the tables of docs/reproductions/scaling.rst. The
problems and fits are those of asv_bench/benchmarks/scaling.py. If asv has run them all, its newest
results are shown:

    cd asv_bench
    asv run --bench scaling --launch-method forkserver -E existing:python \\
        --set-commit-hash $(git rev-parse HEAD)

--asv names their folder (asv_bench/.asv/results if not given; --asv "" looks at none). Else, and
with --quick or names of families, they are measured here, by the same classes: of both estimators
in turn, the median of up to three fits. --keep FILE writes what is measured to that file and takes
from it what is there, so that a family can be measured again alone. --figure draws time over rows
to FILE, and over columns and clusters beside it, with _columns and _clusters added to the name.

It is no figure of a paper: the papers say what a sweep costs, O(n d K) for DP-means and k-means
alike, and this is what fits cost. Times are seconds of the processor on one thread, as other
processes may be busy. Each estimator is given a penalty (or the true number, where its argument is
one; BPMeans, RobustDPMeans, SegmentMeans and ShapeMeans nothing), its rival the true number, but
for HDBSCAN, and both have one start. networkx, hmmlearn and kmodes are left out where they are not
installed.
"""

import argparse
import inspect
import io
import itertools
import json
import math
import statistics
import sys
import time
from pathlib import Path

import numpy as np

BENCH = Path(__file__).resolve().parents[2] / "asv_bench"
sys.path.insert(0, str(BENCH))
from benchmarks.scaling import FAMILIES, short  # noqa: E402

AXES = ("rows", "columns", "clusters")
LABELS = {
    "rows": "rows; for PenalizedCut nodes",
    "columns": "columns; for PenalizedCut links of a node",
    "clusters": "clusters; for BPMeans features",
}
METHODS = ("time_fit", "track_n_clusters", "track_quality")
REPEATS, ENOUGH = 3, 0.5  # fits; seconds after which no other one begins
LAST = 3  # sizes, from the largest down, that the exponents over rows are of
WIDE, OURS, RIVAL = 4, "C0", "C1"  # panels side by side; colors


def smaller(family):
    """The same with its fewest rows and half of them, and the two smallest other numbers."""
    sizes = {axis: getattr(family, axis)[:2] for axis in AXES}
    sizes["rows"] = (family.rows[0] // 2, family.rows[0])
    base = (sizes["rows"][-1], sizes["columns"][0], sizes["clusters"][0])
    return type(family.__name__, (family,), {**sizes, "base": base})


def measure(family, repeats=REPEATS):
    """(case, estimator) -> seconds, clusters, quality."""
    found = {}
    for case in family.cases:
        prepared = {}
        for name in family.names:
            one = family()
            try:
                one.setup(case, name)
            except NotImplementedError:
                found[case, name] = (math.nan,) * 3
            else:
                one.estimator = Keeping(one.estimator)
                prepared[name] = one
        seconds = {name: [] for name in prepared}
        for _ in range(repeats):  # in turn, so that a busy machine slows both
            for name, one in prepared.items():
                if sum(seconds[name]) < ENOUGH:
                    begin = one.timer()
                    one.time_fit(case, name)
                    seconds[name].append(one.timer() - begin)
        for name, one in prepared.items():
            one.estimator = Fitted(one.estimator.model)
            numbers = (getattr(one, method)(case, name) for method in METHODS[1:])
            found[case, name] = (statistics.median(seconds[name]), *numbers)
    return found


class Keeping:
    """An estimator that keeps what its fit returns."""

    def __init__(self, estimator):
        self.estimator = estimator

    def fit(self, X):
        """Fit, keep and return the model."""
        self.model = self.estimator.fit(X)
        return self.model


class Fitted:
    """An estimator that need not be fitted again to say what it found."""

    def __init__(self, model):
        self.model = model

    def fit(self, X):
        """Return the fitted model."""
        return self.model


def from_asv(folder, families):
    """The newest results of asv that have every family, as measure returns them; whose."""
    runs = [json.loads(path.read_text()) for path in Path(folder).glob("*/*.json")]
    runs = [run for run in runs if "results" in run and "result_columns" in run]
    for run in sorted(runs, key=lambda run: run["date"], reverse=True):
        try:
            found = {family: of_asv(run, family) for family in families}
        except LookupError:
            continue
        day = time.strftime("%Y-%m-%d", time.gmtime(run["date"] / 1000))
        return found, f"asv, {run['params']['machine']}, {run['commit_hash'][:8]}, {day}"
    return None, "measured here"


def of_asv(run, family):
    """(case, estimator) -> seconds, clusters, quality; LookupError if a fit of ours is missing."""
    found = {}
    for method in METHODS:
        entry = run["results"][f"scaling.{family.__name__}.{method}"]
        entry = dict(zip(run["result_columns"], entry, strict=False))
        names = itertools.product(*entry["params"])
        for (case, name), value in zip(names, entry["result"] or (), strict=True):
            key = case.strip("'"), name.strip("'")
            found.setdefault(key, []).append(math.nan if value is None else value)
    for case in family.cases:
        if not np.isfinite(found[case, family.names[0]]).all():
            raise LookupError(case)
    return found


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
    points = points[-LAST:] if axis == "rows" else points
    return np.polyfit(*np.log(points).T, 1)[0] if len(points) > 1 else math.nan


def table(family, found):
    """A line for each case."""
    ours, rival = family.names
    print(f"\n{ours} and {rival}: {inspect.getdoc(family).splitlines()[0]}")
    groups = (("seconds", 20), ("", 12), ("clusters", 16), (family.track_quality.unit, 16))
    print(" " * 28 + "".join(f"{word:>{width}s}" for word, width in groups))
    pair = f"{'ours':>8s}{'rival':>8s}"
    print(f"{'':28s}{'ours':>10s}{'rival':>10s}{'rival/ours':>12s}" + 2 * pair)
    for case in family.cases:
        (t, k, q), (s, c, r) = found[case, ours], found[case, rival]
        print(
            f"{case:28s}{t:10.4f}{s:10.4f}{s / t:12.2f}{k:8.0f}{c:8.0f}{q:8.3f}{r:8.3f}",
            flush=True,
        )


def summary(results):
    """Exponents and ratios."""
    print(f"\nExponents of time, over rows by the {LAST} largest numbers; and the rival's time by")
    print("ours, where both have the most rows, and the geometric mean over all cases")
    print(" " * 40 + "".join(f"{word:>16s}" for word in (*AXES, "rival/ours")))
    ends = ("ours", "rival") * len(AXES) + ("rows", "mean")
    print(" " * 40 + "".join(f"{word:>8s}" for word in ends))
    for family, found in results.items():
        slopes = [exponent(family, found, axis, name) for axis in AXES for name in family.names]
        ratios = {
            case: found[case, family.names[1]][0] / found[case, family.names[0]][0]
            for case in family.cases
        }
        finite = {case: ratio for case, ratio in ratios.items() if np.isfinite(ratio)}
        most = [math.nan, *(finite[case] for _, case in along(family, "rows") if case in finite)][
            -1
        ]
        mean = statistics.geometric_mean(finite.values()) if finite else math.nan
        print(
            f"{', '.join(family.names):40s}"
            + "".join(f"{slope:8.2f}" for slope in slopes)
            + f"{most:8.2f}{mean:8.2f}"
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
            marks = (("o-", OURS), ("s--", RIVAL))
            for place, name, (mark, color) in zip((1.12, 1.0), family.names, marks, strict=True):
                seconds = [found[case, name][0] for _, case in points]
                ax.plot(numbers, seconds, mark, color=color, ms=4, lw=1.4)
                ax.text(0.02, place, name, color=color, transform=ax.transAxes, va="bottom")
            ends = np.array([points[0][0], points[-1][0]])
            last = found[points[-1][1], family.names[0]][0]
            ax.plot(ends, last * ends / ends[-1], ":", color="0.6", lw=1.2, zorder=0)
            ax.set(xscale="log", yscale="log")
            ax.set_xticks(numbers, [short(number) for number in numbers])
            ax.minorticks_off()
            ax.yaxis.set_major_formatter("{x:g}")
            ax.grid(axis="y", color="0.9", lw=0.6)
        for ax in np.ravel(axes)[len(shown) :]:
            ax.set_axis_off()
        keys = (("o", "-", OURS, "smallvar"), ("s", "--", RIVAL, "rival"))
        keys += (("", ":", "0.6", "in proportion to the number below"),)
        lines = [
            plt.Line2D([], [], marker=marker, ls=style, color=color, label=label, ms=4)
            for marker, style, color, label in keys
        ]
        fig.legend(handles=lines, loc="outside upper center", ncols=3, frameon=False, fontsize=10)
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
    parser.add_argument("--quick", action="store_true", help="smaller problems, measured here")
    parser.add_argument("--figure", type=Path, help="draw to this file, and two beside it")
    parser.add_argument("--asv", default=BENCH / ".asv" / "results", help="folder of results")
    parser.add_argument("--keep", type=Path, help="file of what was measured")
    options = parser.parse_args()
    if unknown := set(options.family) - set(names):
        parser.error(f"no such family: {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    families = [f for f in FAMILIES if not options.family or f.__name__ in options.family]
    shown, results, source = {}, None, "measured here"
    if options.quick:
        families = [smaller(family) for family in families]
    elif not options.family and options.asv:
        results, source = from_asv(options.asv, families)
    print(f"Seconds of the processor, one thread ({source})")
    kept = json.loads(options.keep.read_text()) if options.keep and options.keep.exists() else {}
    for family in families:
        before = {tuple(key): tuple(found) for *key, found in kept.get(family.__name__, ())}
        if results:
            found = results[family]
        elif set(before) == set(itertools.product(family.cases, family.names)):
            found = before
        else:
            found = measure(family, 1 if options.quick else REPEATS)
            kept[family.__name__] = [(*key, numbers) for key, numbers in found.items()]
            if options.keep:
                options.keep.write_text(json.dumps(kept))
        table(family, found)
        shown[family] = found
    summary(shown)
    if options.figure:
        for axis in AXES:
            name = options.figure.stem + ("" if axis == "rows" else f"_{axis}")
            draw(shown, axis, options.figure.with_name(name + options.figure.suffix))


if __name__ == "__main__":
    main()
