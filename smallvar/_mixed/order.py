"""Whether small whole numbers are in order, or number the levels of a category."""

from itertools import permutations

import numpy as np

LISTED_LEVELS = 6  # levels up to which all their orders are compared
ORDERS = 1000  # orders that are drawn where there are more
FEWEST_ROWS = 5  # rows of a level, and share of all rows: those with fewer are not compared
LEAST_ROW_SHARE = 0.01
ASSOCIATED = 1.5  # times the variance between levels that chance would give: least for evidence
MOST_FEATURES = 400
# log ratio of the density of a rank where there is an order, proportional to u ** -0.7 (1 - u) **
# 2 on (0, 1), to the density 1 where there is none, within bounds; and those of all other columns
LOW, HIGH, MOST_OF_OTHERS = -2.0, 2.0, 3.0
# least log odds: an order where there is none costs more than a category where there is one
LEAST_LOG_ODDS = 0.5
LENGTH_ROUNDING = 1e-9  # of the largest distance: lengths that are closer are the same


def features_of(values):
    """Standardized columns for the sample of one column: itself, or an indicator of each level."""
    levels, codes = values
    if levels is None:
        there = ~np.isnan(codes)
        x = np.where(there, codes - codes[there].mean(), 0.0)[:, np.newaxis]
    else:
        x = np.zeros((len(codes), levels))
        x[codes >= 0, codes[codes >= 0]] = 1.0
        x -= x.mean(axis=0)
    spread = np.sqrt((x**2).mean(axis=0))
    return x[:, spread > 0.0] / spread[spread > 0.0]


def evidence(codes, levels, features):
    """Log odds that the levels of a column are in order, as other columns tell; 0: not at all.

    Where they are, levels next to each other are alike in the other columns. The sum of the squared
    distances of their means there, from each level to the next, is compared with those of all other
    orders of the levels. ``codes`` (n,) are from 0, -1 where missing; ``features`` (n, f) are the
    other columns, standardized.
    """
    count = np.bincount(codes[codes >= 0], minlength=levels)
    kept = np.flatnonzero(count >= max(FEWEST_ROWS, LEAST_ROW_SHARE * len(codes)))
    if len(kept) < 3 or not features.shape[1]:
        return 0.0
    mean = np.stack([features[codes == c].mean(axis=0) for c in kept])
    share = 1.0 / count[kept]
    between = ((mean - np.average(mean, axis=0, weights=count[kept])) ** 2).sum(axis=1) / share
    if between.sum() < ASSOCIATED * features.shape[1] * (len(kept) - 1):
        return 0.0
    product = mean @ mean.T
    square = np.diagonal(product)
    apart = square[:, np.newaxis] + square - 2.0 * product
    apart -= features.shape[1] * (share[:, np.newaxis] + share)  # what chance gives
    if len(kept) <= LISTED_LEVELS:
        orders = np.array(list(permutations(range(len(kept)))))
    else:
        every = np.tile(np.arange(len(kept)), (ORDERS, 1))
        orders = np.random.default_rng(0).permuted(every, axis=1)
    length = apart[orders[:, :-1], orders[:, 1:]].sum(axis=1)
    in_order = apart[np.arange(len(kept) - 1), np.arange(1, len(kept))].sum()
    same = np.abs(length - in_order) <= LENGTH_ROUNDING * np.abs(apart).max()
    rank = ((length < in_order) & ~same).mean() + 0.5 * same.mean()
    rank = np.clip(rank, 0.01, 0.99)
    return float(np.clip(np.log(0.93) - 0.7 * np.log(rank) + 2.0 * np.log1p(-rank), LOW, HIGH))


def are_in_order(samples, asked):
    """Whether columns are in order, and whether that was found from other columns: pairs of bools.

    ``samples`` has, for each column, the number of levels and codes, or None and numbers; ``asked``
    are the positions of the columns that are asked for.
    """
    every = [features_of(sample) for sample in samples]
    width = sum(f.shape[1] for f in every)
    step = -(-width // MOST_FEATURES) if width else 1
    log_odds = []
    for j in asked:
        rest = [f for i, f in enumerate(every) if i != j]
        features = np.hstack(rest)[:, ::step] if rest else np.zeros((len(every[j]), 0))
        levels, codes = samples[j]
        log_odds.append(evidence(codes, levels, features))
    total = sum(log_odds)
    answers = []
    for odds in log_odds:
        rest = np.clip(total - odds, -MOST_OF_OTHERS, MOST_OF_OTHERS)
        told = bool(odds + rest != 0.0)
        answers.append((not told or bool(odds + rest >= LEAST_LOG_ODDS), told))
    return answers
