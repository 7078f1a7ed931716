"""The feature path: features of every number, which number the data speak for, and its penalty."""

import numpy as np
from numpy.typing import NDArray

from smallvar._core.progress import ProgressEvent
from smallvar._features.feature_estimator import (
    draw_starts,
    enough_starts,
    new_sweep,
    rows_of_Z,
    run_starts,
    swaps_of,
)
from smallvar._selection.columns import count_distinct
from smallvar._selection.envelope import Path, envelope, penalty_within

PRICE = 2.0  # of a parameter, in log(distinct rows)
EXACT_FIT = 1e-20  # of the square of the data: an error, or a column, that counts as none
BEYOND = 3  # numbers of features tried beyond the best one,
BEYOND_PART = 3  # or this part of the best one, if that is more
FEW = 2  # random starts at first, where rows choose exactly; else none
EXACT = 8  # features up to which rows choose exactly, which then costs little
NUMBERS, ROWS = 1 << 14, 500  # numbers in the rows that "auto" looks at, but at least so many rows


class FeaturePath(Path):
    """Errors with different numbers of features, found by :func:`feature_path`.

    Attributes
    ----------
    counts : ndarray of shape (n_path,), intp
        The numbers of features K: 0, 1, 2 and so on. ``n_components`` is another name for it.
    error : ndarray of shape (n_path,), float64
        The squared error, in squared data units.
    criterion : ndarray of shape (n_path,), float64
        The description length, in nats; infinite for more features than may be chosen.
    lam_low, lam_high : ndarray of shape (n_path,), float64
        The penalties between which this K has the lowest objective; NaN for a K that is best for
        none.
    best : int
        The K with the lowest criterion.
    lam : float
        A penalty for it.
    """

    count_name = "number of features"
    error_name = "squared error, in squared data units"
    columns = ("n_components", "error", "criterion", "lam_low", "lam_high")

    def __init__(self, counts, error, lam_low, lam_high, criterion, best, lam):
        self.counts = np.asarray(counts, dtype=np.intp)
        self.error, self.criterion = error, criterion
        self.lam_low, self.lam_high = lam_low, lam_high
        self.best, self.lam = best, lam

    @property
    def n_components(self) -> NDArray[np.intp]:  # numpydoc ignore=RT01
        """The numbers of features, ``counts``."""
        return self.counts


class DescriptionLength:
    """What the rows cost when told by their features: the lower, the better.

    V = u d log(error / energy) + 2 u sum_k h(p_k) + 2 K (d + 1) log u,

    u the number of distinct rows, d that of the columns whose squares are more than EXACT_FIT of
    the data's (but at most u), p_k the share of the rows that have feature k, and h the entropy of
    a bit, in nats.
    """

    def __init__(self, X, weight):
        self.weight, self.distinct = weight, count_distinct(X)
        squares = np.einsum("ij,ij->j", X, X, dtype=np.float64)
        self.d = min(int((squares > EXACT_FIT * squares.sum()).sum()), self.distinct)
        self.most = max(1, self.distinct // 3)  # features that may be chosen

    def __call__(self, error, energy, Z):
        """V of these rows of Z; infinite for too many features."""
        k = Z.shape[1]
        if k > self.most:
            return np.inf
        if not energy > 0.0:
            return float(k)
        share = np.average(Z, axis=0, weights=self.weight) if k else np.zeros(0)
        entropy = 0.0
        for p in (share, 1.0 - share):
            entropy -= float((p * np.log(np.maximum(p, EXACT_FIT))).sum())
        fit = self.d * np.log(max(error / energy, EXACT_FIT))
        price = PRICE * k * (self.d + 1) * np.log(self.distinct)
        return float(self.distinct * (fit + 2.0 * entropy) + price)


class Steps:
    """The features found for K = 0, 1, 2, ...: errors, rows of Z, and whether all converged.

    Rows choose exactly, of all 2^K, up to so many features as ``exact`` says.
    """

    def __init__(self, model, X, weight, exact, rng, n_threads):
        self.model, self.X, self.weight, self.exact = model, X, weight, exact
        self.rng, self.n_threads = rng, n_threads
        self.judge = DescriptionLength(X, weight)
        self.n_iter, self.converged = 0, True
        sweep = new_sweep(model, X, weight, "coordinate", 0.0, 0, 0, n_threads)
        energy = sweep.measure()
        Z = np.zeros((len(X), 0), dtype=np.uint8)
        self.error, self.criterion = [energy], [self.judge(energy, energy, Z)]
        self.Z, self.components = [Z], [np.zeros((0, X.shape[1]))]
        self.left = [
            ((), (), [])
        ]  # starts not yet run for each number, and objectives of the others

    def go_on(self, few=False):
        """One feature more: a start from the features there are, and random ones.

        Where they are to be ``few``, most of the random ones are left to ``complete``.
        """
        k = len(self.error)
        states, modes = draw_starts(self.model, self.rng)
        self.error.append(np.inf)
        for found in (self.criterion, self.Z, self.components):
            found.append(None)
        self.left.append((states, modes, []))
        self._add_feature(k - 1)
        self._run(k, few)

    def complete(self, k):
        """Run the starts that are left for K features; of more features begin with those found."""
        before = self.error[k]
        self._run(k, few=False)
        if self.error[k] < before and k + 1 < len(self.error):
            self._add_feature(k)

    def complete_best(self):
        """Run the starts that are left for the best number of features, and for the one before.

        Where the true number is one less, its few starts may have missed what that one has found.
        """
        while left := [k for k in (self.best - 1, self.best) if k > 0 and len(self.left[k][0])]:
            self.complete(left[0])

    def _add_feature(self, k):
        """A start with K + 1 features from the K there are."""
        more = np.zeros((len(self.X), 1), dtype=np.uint8)
        sweep = self._sweep(k + 1)
        run_starts(self.model, sweep, self.rng, np.ascontiguousarray(np.hstack([self.Z[k], more])))
        self._keep(sweep)

    def _run(self, k, few):
        """Random starts that are left for K features, or a ``few`` of them, until enough agree."""
        states, modes, known = self.left[k]
        enough = enough_starts(self.model)
        count = (FEW if k <= self.exact else 0) if few else len(states)
        if count:
            sweep = self._sweep(k)
            # the start from fewer features and a random one that agree are few
            sweep.run(states[:count], modes[:count], enough - few, known)
            count = len(states) if sweep.agreed and not few else len(sweep.objectives)
            self.left[k] = states[count:], modes[count:], known
            self._keep(sweep)

    def _sweep(self, k):
        rule = "exact" if k <= self.exact else "coordinate"
        swaps = swaps_of(self.model, self.X, path=rule == "coordinate")
        return new_sweep(self.model, self.X, self.weight, rule, 0.0, k, swaps, self.n_threads)

    def _keep(self, sweep):
        """Take what a sweep has found, where that is the best for its number of features."""
        k = sweep.k
        self.left[k][2].extend(sweep.objectives)
        self.converged &= sweep.converged
        self.n_iter = max(self.n_iter, sweep.n_iter)
        if sweep.error <= self.error[k]:
            self.error[k], self.components[k] = sweep.error, sweep.components()
            self.Z[k] = sweep.assignments().astype(np.uint8)
            self.criterion[k] = self.judge(sweep.error, self.error[0], self.Z[k])

    @property
    def best(self):
        """The number with the lowest criterion, the smaller one at a tie."""
        return int(np.argmin(self.criterion))

    def path(self, scale=1.0):
        """What ``feature_path`` returns, with errors times ``scale``."""
        K, errors = np.arange(len(self.error)), np.array(self.error) * scale
        low, high = envelope(K, errors)
        k = self.best
        lam = penalty_within(low[k], high[k], 2.0 * errors[0] or 1.0)
        never = ~(low < high)
        low[never] = high[never] = np.nan
        return FeaturePath(K, errors, low, high, np.array(self.criterion), k, lam)


def choose(model, X, weight, exact, most, rng, n_threads, callback=None):
    """The path of at most so many features, and rows of Z for the number chosen.

    Of many rows a random sample is looked at; penalties and errors are scaled to all rows.
    """
    n, d = X.shape
    rows, w, scale = X, weight, 1.0
    size = max(ROWS, NUMBERS // d)
    if n > size:
        sample = np.sort(rng.choice(n, size, replace=False))
        rows, w = np.ascontiguousarray(X[sample]), None if weight is None else weight[sample]
        scale = n / size if weight is None else float(weight.sum() / w.sum())
    steps = Steps(model, rows, w, max(exact, EXACT), rng, n_threads)
    most = min(most, steps.judge.most + 1, len(rows))
    while (
        len(steps.error) <= most
        and steps.error[-1] > EXACT_FIT * steps.error[0]
        and len(steps.error) - 1 - steps.best < max(BEYOND, steps.best // BEYOND_PART)
    ):
        steps.go_on(few=isinstance(model.n_init, str))
        if callback is not None:
            k, error = len(steps.error) - 1, steps.error[-1] * scale
            message = f"{k} features: error {error:.8g}, V {steps.criterion[k]:.8g}"
            callback(ProgressEvent("features", k, message, k, error))
    steps.complete_best()
    Z = steps.Z[steps.best]
    if n > size:
        Z = rows_of_Z(X, None, steps.components[steps.best], n_threads)[0].astype(np.uint8)
    return steps.path(scale), np.ascontiguousarray(Z)
