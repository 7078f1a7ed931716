"""The kind (family of distributions) of a column, found from its type and its values."""

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import gammaln, xlogy

from smallvar._core.identifiers import ID_NAMES, identifies
from smallvar._selection.columns import COLUMN_ROWS, Values, distinct_values, filled_values, spaced

LEAST_KEY_ROWS = 20  # a column of words of fewer rows is never taken for a key or for text
LEAST_COUNT_ROWS = 100  # with fewer rows, counts cannot be told from other whole numbers
MOST_COUNTS = 1000  # distinct values of a column of counts, at most
MOST_ORDERED = 20  # distinct values of an ordered column, at most
MOST_CODES = 10  # whole numbers from 0 or 1 that may be codes of a category, at most
SHARE_OF_ROWS = 0.5  # a column of words with more distinct values than this share of rows is text
# numbers that are words because of signs, groups of three digits or a decimal comma, as $1,234.50,
# (1.50), 5% and 1,5 €. At most UNLIKE of the levels of their columns, of which CHECKED are looked
# at, are others
SIGNS = "$€£¥₹%"
WITH_SIGNS = re.compile(
    rf"\(?[-+]?[{SIGNS}]?\s?[-+]?(\d{{1,3}}([,. ]\d{{3}})+|\d+)([.,]\d+)?\s?[{SIGNS}]?\)?"
)
# addresses of computers, whose four numbers are at most 255, are no numbers
DOTTED = re.compile(r"\s*(25[0-5]|2[0-4]\d|1?\d?\d)(\.(25[0-5]|2[0-4]\d|1?\d?\d)){3}\s*")
DECIMAL_COMMA = re.compile(r"\d,(\d{1,2}|\d{4,})\D*$|\.\d+,")
UNLIKE, CHECKED = 0.1, 200
# a value becomes a flag if at least FLAG_SHARE of the rows have it, and no other value has more
# than ALIKE times as many rows
FLAG_SHARE, ALIKE = 0.2, 0.2
# Poisson, for many rows: the largest difference of variance / mean from 1, and the largest share of
# the rows by which frequencies may differ from expected ones
DISPERSION, DIFFERENT = 0.1, 0.05
# mean of a Poisson law from which on it is a normal one, but with a variance that is given: other
# numbers, such as temperatures, may have that variance by chance
LARGEST_COUNTS = 25.0
# least skewness of counts (with more, normal clusters would cut the tail to pieces) and of amounts;
# the largest share of the rows with the highest count (on a scale that ends there, more rows have
# the highest value); the least mean of amounts, in steps of their grid (on a coarser grid, steps
# decide on the likelihood)
COUNTS_SKEWED, SKEWED_AMOUNTS, HIGHEST, AMOUNT_STEPS = 1.0, 1.3, 0.02, 20.0

# least log of arithmetic over geometric mean, 0 for equal amounts: the gamma shape stays finite
LEAST_LOG_RATIO = 1e-12


@dataclass
class ColumnKind:
    """The kind found for a column, or None and the reason why the column is left out.

    ``levels``, ``step``, ``filled`` and ``positions`` are as for Column of columns.py. If many rows
    have one value, ``often``, the kind is that of the others, and whether a row has that value is a
    column of its own. ``like_codes``: ordered numbers that may be codes of a category instead,
    which the other columns must decide. ``like_counts``: if they are in order, they are counts.
    ``advice`` says how to convert words that are numbers with signs.
    """

    kind: str | None
    reason: str
    levels: tuple[Any, ...] = ()
    step: float = 0.0
    filled: tuple[float, float] | None = None
    like_codes: bool = False
    like_counts: bool = False
    often: float | None = None
    positions: bool = False
    advice: str = ""


def counted(number, thing):
    """A number and its noun."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def plain(value):
    """A level as it is shown: whole numbers without a decimal point."""
    if isinstance(value, (float, np.floating)):
        return int(value) if float(value).is_integer() else float(value)
    return value


def few_values(numbers, most):
    """The distinct values, ascending, and how often each occurs; None if they are too many."""
    value = np.unique(numbers[:: max(1, len(numbers) // COLUMN_ROWS)])
    if len(value) > most:
        return None
    place = np.searchsorted(value, numbers)
    place[place == len(value)] = 0
    apart = numbers[value[place] != numbers]
    if len(apart):
        value = np.union1d(value, np.unique(apart))
        if len(value) > most:
            return None
        place = np.searchsorted(value, numbers)
    return value, np.bincount(place, minlength=len(value))


def kind_of_levels(cells, name):
    """The ColumnKind of a column of words or of a declared category."""
    count = np.bincount(cells.codes[cells.codes >= 0], minlength=len(cells.levels))
    used = np.flatnonzero(count)
    n = int(count.sum())
    levels = tuple(cells.levels[i] for i in used)
    if len(used) == 0:
        return ColumnKind(None, "no value")
    if len(used) == 1:
        return ColumnKind(None, f"one value, {levels[0]!r}")
    if cells.ordered:
        return ColumnKind(
            "ordered", f"{counted(len(used), 'level')} in order", levels, 1.0, positions=True
        )
    if n >= LEAST_KEY_ROWS and len(used) > SHARE_OF_ROWS * n:
        found = ColumnKind(None, f"text: {len(used):,} different values in {n:,} rows")
        if len(used) == n:
            found.reason = "an identifier: another value in every row"
    else:
        what = "category: " if cells.declared else ""
        found = ColumnKind("categorical", f"{what}{counted(len(used), 'level')}", levels)
    if not cells.declared:
        _advise(found, levels, name)
    return found


def _advise(found, levels, name):
    """Add to ``found`` (INOUT) how to convert levels that are numbers with signs, if they are."""
    sampled = levels[:: max(1, len(levels) // CHECKED)]
    numbers = [v for v in sampled if isinstance(v, str) and WITH_SIGNS.fullmatch(v.strip())]
    # digits alone may well be codes
    numbers = [v for v in numbers if not v.strip().isdigit() and not DOTTED.fullmatch(v)]
    if not numbers or len(numbers) < (1.0 - UNLIKE) * len(sampled):
        return
    comma = any(DECIMAL_COMMA.search(v) for v in numbers)
    signs = [c for c in f"{SIGNS} +{'.' if comma else ','}" if c in "".join(numbers)]
    # the cell with the most of what is to be converted
    example = max(numbers, key=lambda v: ("(" in v, sum(c in v for c in signs), len(v)))
    number, steps = example.strip(), ""
    if "(" in example:
        number = number.replace("(", "-").replace(")", "")
        steps += r".str.replace(r'\((.*)\)', r'-\1', regex=True)"
    if signs:
        number = "".join(c for c in number if c not in signs)
        steps += f".str.replace('[{''.join(signs)}]', '', regex=True)"
    if comma:
        number = number.replace(",", ".")
        steps += ".str.replace(',', '.')"
    code = f"pandas.to_numeric(X[{name!r}]{steps}, errors='coerce')"
    what = f"write {example!r} as {number}" if steps else f"convert words like {example!r}"
    found.reason += f"; {what} for a column of numbers"
    found.advice = (
        f"column {name!r} of X has numbers that are read as words: {what}, in pandas by {code}"
    )


def kind_of_numbers(cells, name):
    """The ColumnKind of a column of numbers or flags."""
    numbers = cells.numbers[~np.isnan(cells.numbers)]
    if len(numbers) == 0:
        return ColumnKind(None, "no value")
    if numbers.min() == numbers.max():
        return ColumnKind(None, f"one value, {plain(numbers[0])!r}")
    if cells.flags:
        return ColumnKind("bernoulli", "true or false", (False, True))
    if reason := identifies(cells.numbers, name):
        return ColumnKind(None, f"a key: {reason}")
    filled = _filled(numbers)
    if filled is not None:
        kept = np.abs(numbers - filled[0]) > filled[1]
        share, numbers = 1.0 - kept.mean(), numbers[kept]
    found = _kind_with_flag(numbers, cells, name)
    if filled is not None and found.kind is not None:
        found.filled = filled
        found.reason += f"; {filled[0]:.6g}, in {share:.0%} of the rows, was filled in: missing"
    return found


def _filled(numbers):
    """A mean or median that fills the gaps of a column, and a tolerance; None if there is none."""
    if len(numbers) < LEAST_KEY_ROWS:
        return None
    rows = np.asarray(numbers, dtype=np.float64)[:, np.newaxis]
    with np.errstate(over="ignore", invalid="ignore"):
        return filled_values(rows, np.ones(len(rows))).get(0)


def _kind_with_flag(numbers, cells, name):
    """The ColumnKind of numbers; a value that many rows have is taken out, as ``often``."""
    often = None if len(numbers) < LEAST_COUNT_ROWS else _often(numbers)
    if often is None:
        return _kind_of_values(numbers, cells, name)
    others = numbers != often
    found = _kind_of_values(numbers[others], cells, name)
    found.often = plain(often)
    found.reason += f"; {1.0 - others.mean():.0%} of all are {found.often:g}, which is a flag"
    return found


def _often(numbers):
    """The value that many rows share, in a column of other values that are rare; None if none."""
    sampled = numbers[:: max(1, len(numbers) // COLUMN_ROWS)]
    value, count = np.unique(sampled, return_counts=True)
    if len(value) <= MOST_ORDERED:
        return None
    top = count.argmax()
    if count[top] < FLAG_SHARE * len(sampled) or np.delete(count, top).max() > ALIKE * count[top]:
        return None
    return value[top]


def _kind_of_values(numbers, cells, name):
    """The ColumnKind of numbers: few values, counts, amounts with a long tail, or normal."""
    n = len(numbers)
    whole = cells.whole or bool((numbers == np.floor(numbers)).all())
    few = few_values(numbers, MOST_ORDERED)
    if few is not None and 2 * len(few[0]) <= n:
        return _kind_of_few(*few, whole, name)
    low, high = plain(numbers.min()), plain(numbers.max())
    if whole and low >= 0:
        counts = few_values(numbers, MOST_COUNTS)
        if counts is not None and (_fits_poisson(*counts) or _like_counts(*counts)):
            return ColumnKind("poisson", f"counts, {low:,} to {high:,}", (), 1.0)
    column_kind = _normal_kind(numbers, whole)
    if low > 0 and _is_one_sided(numbers, column_kind.step):
        words = f"positive amounts with a long tail, {low:.4g} to {high:.4g}"
        return ColumnKind("exponential", words, (), column_kind.step)
    return column_kind


def _normal_kind(numbers, whole):
    """The ColumnKind of normal numbers, with the grid of a sample of them."""
    step = grid_step(numbers)
    if whole:
        reason = f"whole numbers, {plain(numbers.min()):,} to {plain(numbers.max()):,}"
    else:
        reason = f"numbers in steps of {step:.4g}" if step else "numbers"
    return ColumnKind("normal", reason, (), step)


def _kind_of_few(value, count, whole, name):
    """The ColumnKind of few values, ascending, and their counts: two, counts, or ordered."""
    levels = tuple(plain(v) for v in value)
    if len(value) == 2:
        return ColumnKind("bernoulli", f"2 values, {levels[0]} and {levels[1]}", levels)
    words = f"{len(value)} values"
    counts = whole and value[0] >= 0 and _like_counts(value, count)
    fits = whole and value[0] >= 0 and _fits_poisson(value, count)
    if len(value) > MOST_CODES and (counts or fits):
        return counts_kind(levels)
    # at most MOST_CODES values may be codes instead: ``like_codes``
    if whole and ID_NAMES.fullmatch(name):
        return ColumnKind("categorical", f"{words}, ids by their name", levels)
    step = grid_step(None, (value, count))
    column_kind = ColumnKind(
        "ordered", f"{words}, ordered", levels, step or float(np.diff(value).min())
    )
    column_kind.like_codes = (
        whole and len(value) <= MOST_CODES and value[0] in (0, 1)
        and value[-1] - value[0] <= len(value)
    )  # fmt: skip
    column_kind.like_counts = counts
    return column_kind


def counts_kind(levels):
    """The ColumnKind of counts; ``levels`` are the distinct ones, ascending."""
    return ColumnKind("poisson", f"counts, {levels[0]} to {levels[-1]}", (), 1.0)


def _fits_poisson(value, count):
    """Whether the counts of all rows have nearly a Poisson law: its variance, its frequencies."""
    n = int(count.sum())
    if n < LEAST_COUNT_ROWS:
        return False
    mean = (value * count).sum() / n
    variance = ((value - mean) ** 2 * count).sum() / n
    if mean > LARGEST_COUNTS:
        return False
    if abs(variance / mean - 1.0) > max(DISPERSION, 2.5 * np.sqrt(2.0 / n)):
        return False
    expected = np.exp(xlogy(value, mean) - mean - gammaln(value + 1.0))
    # half the sum of absolute differences, counts that do not occur included
    different = 0.5 * (np.abs(count / n - expected).sum() + 1.0 - expected.sum())
    return different <= DIFFERENT + 0.4 * np.sqrt(len(value) / n)


def _like_counts(value, count):
    """Whether whole numbers from 0 or 1 on have a long tail, like overdispersed counts."""
    n = count.sum()
    mean = (value * count).sum() / n
    centered = value - mean
    variance = (centered**2 * count).sum() / n
    skewness = (centered**3 * count).sum() / n / variance**1.5
    return bool(
        n >= LEAST_COUNT_ROWS
        and value[0] in (0, 1)
        and skewness >= COUNTS_SKEWED
        and count[-1] <= HIGHEST * n
        and grid_step(None, (value, count)) == 1.0
    )


def grid_step(numbers, few=None):
    """The step of the grid of numbers, 0 for none; ``few`` are the values and counts, if few."""
    if few is not None:
        value, count = few
        values = Values(value.astype(np.float64), count.astype(np.float64), int(count.sum()))
    else:
        sampled = np.asarray(spaced(numbers), dtype=np.float64)
        values = distinct_values(sampled, np.ones(len(sampled)))
    return float(values.step)


def _is_one_sided(numbers, step):
    """Whether positive numbers have a long tail that a gamma law fits better than a normal one."""
    sampled = np.asarray(spaced(numbers), dtype=np.float64)
    mean = sampled.mean()
    centered = sampled / mean - 1.0
    variance = (centered**2).mean()
    skewed = (centered**3).mean() >= SKEWED_AMOUNTS * variance**1.5
    if not skewed or mean < AMOUNT_STEPS * step:
        return False
    # the likeliest shape a: log(a) - digamma(a) = -mean log(x / mean), to two digits
    s = max(-np.log1p(centered).mean(), LEAST_LOG_RATIO)
    a = (3.0 - s + np.sqrt((s - 3.0) ** 2 + 24.0 * s)) / (12.0 * s)
    # mean log-likelihoods of x / mean: gamma, and normal
    gamma = a * np.log(a) - gammaln(a) - (a - 1.0) * s - a
    return bool(gamma > -0.5 * (np.log(2.0 * np.pi * variance) + 1.0))
