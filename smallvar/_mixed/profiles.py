"""What sets clusters of a table apart: a table with a row for each cluster and column."""

import numpy as np
from scipy.special import rel_entr

from smallvar._core.profiles import FIELDS, cluster_moments, shown
from smallvar._mixed.columns import CODE_KINDS

LEAST_SHOWN = 0.005  # share of a level that is named
MANY_MISSING = 0.1  # share of missing cells from which on it is said how many are there
APART_AT = FIELDS.index("apart")


def profiles(packed, labels, weight, parameters, spreads):
    """A row for each cluster and column, those first that set the cluster apart: arrays by FIELDS.

    ``parameters`` are means of the clusters by name of the column, or shares of its levels;
    ``spreads`` the spread s within clusters of the columns of numbers. In the result ``size`` is
    the number of rows, ``missing`` the share of the weight whose cell is missing; ``mean`` and
    ``spread`` are those of the cluster in a column of numbers; ``share`` is that of ``level``, in a
    column of codes the most frequent one (of two values the second), and ``overall`` the mean, or
    that share, of all rows. ``summary`` says the same in words, and of how many rows where
    more than a tenth of the cells are missing. ``apart`` is the mean gain in log likelihood, in
    nats a row, of the cluster's cells by its own parameters over those of all rows; ``saved`` is
    the column's share of what the cluster's rows gain so.
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
    lines = [line for cluster in rows for line in _with_shares(cluster, k > 1)]
    types = {"cluster": np.int64, "size": np.int64}
    types |= dict.fromkeys(("column", "kind", "summary", "level"), object)
    return {
        name: np.array(cells, dtype=types.get(name, np.float64))
        for name, cells in zip(FIELDS, zip(*lines, strict=True), strict=True)
    }


def _with_shares(lines, several):
    """The lines of a cluster, those that set it apart first, with their shares of the saved cost.

    ``apart`` is for a cell that is there. Nothing is saved unless there are ``several`` clusters.
    """
    lines = sorted(lines, key=lambda line: -line[APART_AT])
    saved = np.array([line[APART_AT] * (1.0 - line[-1]) for line in lines])
    with np.errstate(invalid="ignore"):
        shares = saved / saved.sum() if several else np.full(len(lines), np.nan)
    for line, share in zip(lines, shares, strict=True):
        yield (*line[: APART_AT + 1], share, *line[APART_AT + 1 :])


class _ProfileSums:
    """Weights of the clusters, and sums over their cells in each column.

    ``moments`` has, for each column of numbers, the weight of the cells that are there, their mean
    and their variance, for each cluster, and last for all rows. ``counts`` has, for each column of
    codes, the weight of each level in each cluster, (k, levels).
    """

    def __init__(self, packed, labels, weight, k):
        weight = np.ones(len(labels)) if weight is None else weight
        self.weights = np.bincount(labels, weights=weight, minlength=k)
        found = cluster_moments(packed.numbers, weight, labels, k)
        self.moments = {
            int(i): tuple(part[:, j] for part in found) for j, i in enumerate(packed.number_of)
        }
        self.counts = {}
        for j, i in enumerate(packed.code_of):
            size = len(packed.columns[i].levels)
            cells = labels * np.intp(size + 1) + packed.codes[:, j] + 1
            summed = np.bincount(cells, weights=weight, minlength=k * (size + 1))
            self.counts[int(i)] = summed.reshape(k, size + 1)[:, 1:]


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
        text += of_how_many(there[c], missing)
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
        text = shares_in_words(column, share) + of_how_many(there, missing)
        yield (
            text, rel_entr(share, whole).sum(), np.nan, np.nan,
            str(column.levels[first]), share[first], whole[first], missing,
        )  # fmt: skip


def of_how_many(there, missing):
    """Text of how many rows have a cell that is there, where in many it is missing; else empty."""
    return f" of {there:,.4g}" if missing > MANY_MISSING else ""


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
