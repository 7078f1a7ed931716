"""How likely the number of clusters that a merge path chose is right, and the warning if it is not.

The coefficients are those of logistic regressions on some 1,000 data sets whose number of clusters
is known: generated ones, round, long, overlapping and of other shapes, tables with flags, codes and
skewed columns, and real ones.
"""

import warnings
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from smallvar._core.validation import columns_in_words, level_of_caller
from smallvar._selection.scale import warn_of_scale

CLEAR_CONFIDENCE = 0.5  # confidence below which a number is not clear, so that there is a warning
CALLED_CLEAR = 0.8  # least confidence in a number that reports and pictures call clear
# of log(ratio of penalties) in the metric of the path and of the data, of log(1 + gap), and of 1
SEVERAL = (0.8, 1.2, 1.6, -4.1)
RATIOS = (0.5, 30.0)  # what a ratio of penalties counts at least and at most
# of the gap without prices times sqrt(rows), of a transform having been taken, and of 1
SINGLE = (0.085, 2.5, -0.25)
GAPS = (-10.0, 25.0)
# share that is right of the numbers that least, and most, speaks for
LEAST_RIGHT, MOST_RIGHT = 0.1, 0.98
# of Gaussian clusters: of log(1 + 10 rise / price) beyond the number, of log(K), of the same number
# with and without transforms, and of 1
SEVERAL_GAUSSIANS = (2.45, -3.08, 3.36, -2.56)
RISES = 3.0  # what a rise beyond the number counts at most, in prices of a cluster
# of the gap between one and two clusters without prices, for each row and times sqrt(rows), of a
# transform having been taken, and of 1
SINGLE_GAUSSIAN = (4.14, -0.33, 2.78, 0.26)
GAP_OF_ROW = (-2.0, 2.0)
# of states of segments: of log(1 + gap) to the next best number, of log(1 + what a state more
# saves, for each row of a state, times STATE_SCALE), and of 1
STATES = (0.69, 0.92, -3.92)
STATE_SCALE, SAVED_BY_ONE = 10.0, 10.0  # what the only state is taken to save, in its prices
# of clusters of any shape: of the lead over other numbers, of the share of clusterings that lead to
# the number, and of 1; and of a single one: of the confidence in one compact cluster, and of 1
SEVERAL_SHAPES, SINGLE_SHAPE = (3.0, 5.5, -1.8), (4.7, -0.9)
SINGLE_OF_SEVERAL = 0.5  # where the rows were several compact clusters
LEAST_LOGARITHM = 700.0  # of a share of the confidence, with the sign changed
SPREAD = 4.0  # ties by which a number must be worse to be e times less likely than another
SIMILAR = 1 / 3  # of the confidence of the chosen number: others that have as much fit as well
PIECES = 5  # of so many clusters and more some may be pieces of one that is not compact


class UnclearNumberWarning(UserWarning):
    """The number of clusters that the data were to decide on is not clear.

    ``path_.confidence`` is below 0.5. It can be silenced by ``warnings.filterwarnings("ignore",
    category=smallvar.UnclearNumberWarning)``, or by giving ``n_clusters`` or a number for ``lam``.
    """


def certainty(confidence):
    """Text for a title: clear or not, and the confidence; empty if that is None or NaN."""
    if confidence is None or np.isnan(confidence):
        return ""
    return f"{'clear' if confidence >= CALLED_CLEAR else 'not clear'} ({confidence:.2f})"


def _logistic(coefficients, *evidence):
    """The share that is right, by a regression; the last coefficient is that of 1."""
    x = np.dot(coefficients, [*evidence, 1.0])
    return float(LEAST_RIGHT + (MOST_RIGHT - LEAST_RIGHT) / (1.0 + np.exp(-x)))


def of_gaussians(number, n, rise, gap, agree, transformed):
    """The confidence in a number of Gaussian clusters of n rows.

    ``rise`` is by how much the criterion is higher at the best larger number, in prices of a
    cluster, ``gap`` that at two clusters for each row, without the price; ``agree`` whether the
    number is the same with and without transforms of columns, and ``transformed`` whether it was
    found with them.
    """
    if number > 1:
        rise = np.log1p(10.0 * min(max(rise, 0.0), RISES))
        return _logistic(SEVERAL_GAUSSIANS, rise, np.log(number), agree)
    of_row, of_all = np.clip(gap, *GAP_OF_ROW), np.clip(gap * np.sqrt(n), *GAPS)
    return _logistic(SINGLE_GAUSSIAN, of_row, of_all, transformed)


def of_states(number, n, price, fewer, more):
    """The confidence in a number of states of n rows.

    ``fewer`` and ``more`` are by how much longer the descriptions of fewer and of more states are,
    and ``price`` is the length of a center.
    """
    saved, beyond = (
        max(float(longer.min()), 0.0) if len(longer) else SAVED_BY_ONE * price
        for longer in (fewer, more)
    )
    of_state = np.log1p(STATE_SCALE * saved * number / n)
    return _logistic(STATES, np.log1p(min(saved, beyond)), of_state)


def of_shapes(number, lead, share, compact, one_compact):
    """The confidence in a number of clusters of any shape.

    ``lead`` is by how much their score is above that of the best other number, ``share`` that of
    the clusterings that lead to the same number. ``compact`` is the confidence in the number of
    compact clusters, and ``one_compact`` whether that is 1.
    """
    if number > 1:
        return _logistic(SEVERAL_SHAPES, lead, share)
    return _logistic(SINGLE_SHAPE, compact) if one_compact else SINGLE_OF_SEVERAL


@np.errstate(invalid="ignore")  # no number has a finite criterion: NaN
def weighed(counts, criterion, scores, best, tie, ratios, n_distinct, price=0.0, transformed=False):
    """The confidence in the best number, that in every number, and the gap that speaks for it.

    ``scores`` are the criteria that are compared, and ``price`` is that of a cluster, which the
    criterion has in it. ``ratios`` are those of the largest penalty for which the number is best to
    the smallest: in the metric in which the path was found, and in that of the data.
    """
    i = int(np.searchsorted(counts, best))
    if best > 1:
        gap = (np.delete(scores, i).min() - scores[i]) / tie
        # NaN is the ratio of infinite penalties
        wide = np.log(np.clip(np.nan_to_num(ratios, nan=RATIOS[0]), *RATIOS))
        confidence = _logistic(SEVERAL, *wide, np.log1p(max(gap, 0.0)))
    else:
        second = 1 + int(criterion[1:].argmin())
        gap = criterion[second] - criterion[0] - price * (counts[second] - 1)
        gap = gap / n_distinct if np.isfinite(gap) else np.inf
        confidence = _logistic(SINGLE, np.clip(gap * np.sqrt(n_distinct), *GAPS), transformed)
    return confidence, shares(scores, i, confidence, tie), gap


def shares(scores, best, confidence, tie):
    """Return the confidence in every number: the others share what is left by their criteria."""
    behind = (scores - scores[best]) / (tie if tie > 0.0 else 1.0) / SPREAD
    weight = np.exp(-np.clip(behind, 0.0, LEAST_LOGARITHM))
    weight[best] = 0.0
    total = weight.sum()
    out = (1.0 - confidence) * weight / total if total > 0.0 else weight
    out = np.minimum(out, confidence)
    out[best] = confidence if total > 0.0 else 1.0
    return out


class NumberChoice(NamedTuple):
    """A number of clusters that was chosen without a ClusterPath, for ``warn_if_unclear``.

    ``in_order`` is whether the clusters are states of rows in order.
    """

    best: int
    counts: NDArray[np.intp]
    confidence: float
    confidences: NDArray[np.float64]
    few_valued: NDArray[np.intp] = np.empty(0, dtype=np.intp)
    skewed: NDArray[np.intp] = np.empty(0, dtype=np.intp)
    in_order: bool = False

    def doubts(self):  # numpydoc ignore=RT01
        """Return why the number may be wrong."""
        remedy = "" if self.in_order else ": smallvar.ShapeMeans finds clusters of any shape"
        if self.best == 1:
            return [f"clusters that overlap, or are not compact, may look like one{remedy}"]
        return [f"some may be pieces of clusters of another shape{remedy}"]


def as_good(counts, confidences, best):
    """Return the numbers, besides the chosen one, that fit about as well."""
    least = SIMILAR * confidences[counts == best][0]
    also_good = counts[(confidences >= least) & (counts != best)]
    return also_good if len(also_good) else counts[np.argsort(-confidences, kind="stable")][:2][1:]


def warn_if_unclear(estimator, path=None):
    """Warn where the data chose the number of clusters, below any maximum, and it is not clear.

    ``path`` is what the number was chosen by: None for ``path_`` of the estimator.
    """
    path = getattr(estimator, "path_", None) if path is None else path
    warn_of_scale(estimator, path)
    if path is None or not path.confidence < CLEAR_CONFIDENCE:
        return
    most = getattr(estimator, "max_clusters", None)
    lowest = path.counts[np.argmin(getattr(path, "criterion", [0]))]
    if most is not None and max(path.best, lowest) >= most:
        return
    numbers = np.sort(as_good(path.counts, path.confidences, path.best)).tolist()
    fit = f"{', '.join(map(str, numbers[:5]))} fit{'s' if len(numbers) == 1 else ''} about as well"
    compared = numbers[0] if path.best > 1 and numbers else 2
    names = getattr(estimator, "feature_names_in_", None)
    reasons = "; ".join(_reasons(path)).format(
        labels=f"path_.labels({compared})",
        few_valued=columns_in_words(path.few_valued, names),
        skewed=columns_in_words(path.skewed, names),
    )
    warnings.warn(
        f"the number of clusters, {path.best}, is not clear (confidence {path.confidence:.2f}): "
        f"{fit}; {reasons}. With n_clusters the number is given",
        UnclearNumberWarning,
        stacklevel=level_of_caller(),
    )


def _reasons(path):
    """Texts, with fields, on why the number of a path may be wrong, and on what to try."""
    if getattr(path, "rare", False):
        return [
            "columns are many and mostly zero, as words of texts are: make some 50 of them first, "
            "by sklearn.decomposition.TruncatedSVD"
        ]
    reasons = path.doubts() if hasattr(path, "doubts") else []
    if len(path.few_valued):
        reasons.append(
            "columns with few values ({few_valued}) may be what splits the rows: "
            "compare the clusters without them"
        )
    if len(path.skewed):
        reasons.append(
            "columns are skewed ({skewed}), or have values far away: transforms of "
            "them, such as the logarithm, may be better to cluster"
        )
    return reasons + _shapes(path, bool(reasons))


def _shapes(path, explained):
    """Texts on clusters of other shapes; ``explained`` is whether there is another reason."""
    if path.best == 1:
        if not hasattr(path, "labels"):
            return []
        return [
            "clusters that overlap or are not compact may look like one: see {labels}, or "
            "smallvar.ShapeMeans for clusters of any shape"
        ]
    texts = []
    none, n = (path.without_gap() if hasattr(path, "without_gap") else None) or (0, 0)
    if none:
        boundaries = f"{none} of {n} boundaries" if n > 1 else "the boundary"
        verb = "is no gap" if none == 1 else "are no gaps"
        texts = [f"{boundaries} between clusters {verb}"]
    elif explained:
        return []
    return [
        *texts,
        "some may be pieces of clusters that are not compact: smallvar.ShapeMeans finds clusters "
        "of any shape, smallvar.MahalanobisMeans long ones"
        if path.best >= PIECES
        else "clusters overlap, or differ in shape: compare {labels}, smallvar.ShapeMeans and "
        "smallvar.MahalanobisMeans",
    ]
