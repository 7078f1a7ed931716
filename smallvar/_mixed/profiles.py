"""What sets clusters apart: a table with a row for each cluster and column."""

import importlib
import sys

import numpy as np
from scipy.sparse import csc_array
from scipy.special import rel_entr

from smallvar._mixed.columns import CODE_KINDS

PROFILE_ROWS = 1 << 16  # rows at a time
LEAST_SHOWN = 0.005  # share of a level that is named
NO_SPREAD = 1e-12  # of the spread of a column: means and spreads in a cluster below are rounding
FIELDS = (
    *("cluster", "size", "column", "kind", "summary", "apart"),
    *("mean", "spread", "level", "share", "overall", "missing"),
)


def profiles(packed, labels, weight, parameters, spreads):
    """A row for each cluster and column, those first that set the cluster apart: arrays by FIELDS.

    ``parameters`` are means of the clusters by name of the column, or shares of its levels;
    ``spreads`` the spread s within clusters of the columns of numbers. In the result ``size`` is
    the number of rows, ``missing`` the share of the weight whose cell is missing; ``mean`` and
    ``spread`` are those of the cluster in a column of numbers; ``share`` is that of ``level``, in a
    column of codes the most frequent one (of two values the second), and ``overall`` the mean, or
    that share, of all rows. ``summary`` says the same in words. ``apart`` is the mean gain in log
    likelihood, in nats a row, of the cluster's cells by its own parameters over those of all rows.
    """
    k = len(next(iter(parameters.values())))
    size = np.bincount(labels, minlength=k)
    sums = _ProfileSums(packed, labels, weight, k)
    rows = [[] for _ in range(k)]
    for i, column in enumerate(packed.columns):
        if column.kind in CODE_KINDS:
            lines = _of_codes(column, sums.counts[i], sums.weights)
        else:
            s = spreads[column.name]
            lines = _of_numbers(column, *sums.moments[i], sums.weights, parameters[column.name], s)
        for cluster, line in enumerate(lines):
            rows[cluster].append((cluster, int(size[cluster]), column.name, column.kind, *line))
    apart = FIELDS.index("apart")
    lines = [line for cluster in rows for line in sorted(cluster, key=lambda row: -row[apart])]
    types = {"cluster": np.int64, "size": np.int64}
    types |= dict.fromkeys(("column", "kind", "summary", "level"), object)
    return {
        name: np.array(cells, dtype=types.get(name, np.float64))
        for name, cells in zip(FIELDS, zip(*lines, strict=True), strict=True)
    }


class _ProfileSums:
    """Weights of the clusters, and sums over their cells in each column.

    ``moments`` has, for each column of numbers, the weight of the cells that are there, their mean
    and their variance, for each cluster, and last for all rows. ``counts`` has, for each column of
    codes, the weight of each level in each cluster, (k, levels).
    """

    def __init__(self, packed, labels, weight, k):
        n = len(labels)
        weight = np.ones(n) if weight is None else weight
        self.weights = np.bincount(labels, weights=weight, minlength=k)
        p = packed.numbers.shape[1]
        origin = np.zeros(p)  # squares of what is far from zero would cancel
        for j in range(p):
            sampled = packed.numbers[:: -(-n // PROFILE_ROWS), j]
            sampled = sampled[~np.isnan(sampled)]
            origin[j] = sampled.mean(dtype=np.float64) if len(sampled) else 0.0
        there, total, square = np.zeros((k, p)), np.zeros((k, p)), np.zeros((k, p))

        def parts():
            for start in range(0, n if p else 0, PROFILE_ROWS):
                rows = slice(start, start + PROFILE_ROWS)
                x = packed.numbers[rows].astype(np.float64) - origin
                facts = weight[rows], labels[rows], np.arange(len(x) + 1)
                yield x, ~np.isnan(x), labels[rows], csc_array(facts, shape=(k, len(x)))

        for x, seen, _, members in parts():
            there += members @ seen.astype(np.float64)
            total += members @ np.where(seen, x, 0.0)
        mean = np.divide(total, there, out=np.zeros((k, p)), where=there > 0.0)
        # about the mean of each cluster: the spread of equal cells is then 0 but for rounding
        for x, seen, label, members in parts():
            square += members @ np.where(seen, x - mean[label], 0.0) ** 2
        self.moments = {
            int(i): _mean_and_variance(there[:, j], mean[:, j], square[:, j], origin[j])
            for j, i in enumerate(packed.number_of)
        }
        self.counts = {}
        for j, i in enumerate(packed.code_of):
            size = len(packed.columns[i].levels)
            cells = labels * np.intp(size + 1) + packed.codes[:, j] + 1
            summed = np.bincount(cells, weights=weight, minlength=k * (size + 1))
            self.counts[int(i)] = summed.reshape(k, size + 1)[:, 1:]


def _mean_and_variance(weights, mean, square, origin):
    """Weights, means and variances of the clusters, and last of all rows; rounding is 0."""
    with np.errstate(invalid="ignore", divide="ignore"):
        whole = weights @ mean / weights.sum()
        total = square.sum() + weights @ (mean - whole) ** 2
        weights, square = np.append(weights, weights.sum()), np.append(square, total)
        mean, variance = np.where(weights > 0.0, np.append(mean, whole), np.nan), square / weights
    least = NO_SPREAD * np.sqrt(variance[-1])
    variance[variance <= least**2] = 0.0
    mean = mean + origin
    mean[np.abs(mean) <= least] = 0.0
    return weights, mean, variance


def _of_numbers(column, there, mean, variance, weights, fitted, s):
    """What the lines of a column of numbers say, for each cluster."""
    spread = np.sqrt(variance)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = fitted / mean[-1]
        if column.kind == "poisson":
            apart = (fitted * np.log(ratio) - fitted + mean[-1]) / s**2
            apart = np.where(fitted == 0.0, mean[-1] / s**2, apart)
        elif column.kind == "exponential":
            apart = (ratio - np.log(ratio) - 1.0) / s**2
        else:
            apart = 0.5 * ((fitted - mean[-1]) / s) ** 2
    for c in range(len(fitted)):
        if there[c] == 0.0:
            yield "no value", 0.0, np.nan, np.nan, "", np.nan, mean[-1], 1.0
            continue
        level, text = "", f"{shown(mean[c], spread[c])} ± {shown(spread[c])}"
        if column.positions:
            level = str(column.levels[int(np.clip(np.round(mean[c]), 0, len(column.levels) - 1))])
            text = f"about {level}"
        missing = 1.0 - there[c] / weights[c] if weights[c] else 0.0
        yield text, apart[c], mean[c], spread[c], level, np.nan, mean[-1], max(missing, 0.0)


def _of_codes(column, counts, weights):
    """What the lines of a column of codes say, for each cluster."""
    whole = counts.sum(axis=0) / counts.sum()
    for c, count in enumerate(counts):
        there = count.sum()
        if there == 0.0:
            yield "no value", 0.0, np.nan, np.nan, "", np.nan, np.nan, 1.0
            continue
        share = count / there
        first = 1 if column.kind == "bernoulli" else int(share.argmax())
        missing = max(1.0 - there / weights[c], 0.0)
        yield (
            shares_in_words(column, share), rel_entr(share, whole).sum(), np.nan, np.nan,
            str(column.levels[first]), share[first], whole[first], missing,
        )  # fmt: skip


def shares_in_words(column, share, most=3):
    """The largest shares, and how many others there are; of two values the share of the second."""

    def name_of(level):
        name = column.levels[level]
        return f"{name}{'' if isinstance(name, (str, bool)) else ':'} {share[level]:.0%}"

    if column.kind == "bernoulli":
        return name_of(1)
    order = np.argsort(-share, kind="stable")
    seen = [i for i in order[:most] if share[i] >= LEAST_SHOWN]
    others = int((share > 0.0).sum()) - len(seen)
    return ", ".join([*map(name_of, seen), *([f"{others} more"] if others else [])])


def shown(value, spread=None):
    """A number with as many digits as its spread gives a meaning to."""
    scale = abs(value) if spread is None or not spread > 0.0 else spread
    if not np.isfinite(value) or scale == 0.0:
        return f"{value:g}"
    digits = int(max(1 - np.floor(np.log10(scale)), 0))
    value = round(float(value), digits) + 0.0  # not -0.0
    if abs(value) >= 1e6 or digits > 6:
        return f"{value:.3g}"
    return f"{value:{',' if abs(value) >= 1e4 else ''}.{digits}f}"


def library_of(X):
    """Name of the library of a table, pandas, polars or pyarrow; None for all else."""
    kinds = {"pandas": ["DataFrame"], "polars": ["DataFrame"], "pyarrow": ["Table", "RecordBatch"]}
    for name, types in kinds.items():
        library = sys.modules.get(name)  # a table of a library means that it is imported
        if library is not None and isinstance(X, tuple(getattr(library, t) for t in types)):
            return name
    return None


def as_table(fields, library):
    """The fields as a table of a library, by its name; a copy as a dict for None."""
    if library is None:
        return dict(fields)
    module = importlib.import_module(library)
    if library == "pandas":
        return module.DataFrame(fields)
    make = module.DataFrame if library == "polars" else module.table
    return make({name: cells.tolist() for name, cells in fields.items()})
