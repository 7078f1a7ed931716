"""The feature path: features for every K, the K that the criterion chooses, and its penalty."""

import numpy as np
from numpy.typing import NDArray

from smallvar._core.progress import ProgressEvent
from smallvar._features.starts import FeatureStarts, rows_of_Z
from smallvar._selection.columns import count_distinct
from smallvar._selection.envelope import Path, envelope, penalty_of
from smallvar._sweeps.rows import UNSOUND

PARAMETER_PRICE = 2.0  # of a parameter, in log(distinct rows)
EXACT_FIT = 1e-20  # of the sum of squares of X: a smaller error, or column, counts as zero
MORE_FEATURES = 3  # the path ends after so many numbers of features beyond the best one,
BEYOND_BEST = 3  # or best / BEYOND_BEST, if that is more
FEW_STARTS = 2  # random starts made at first, up to ``exact`` features; for more features none
EXACT_FEATURES = 8  # up to so many each row tries all 2^K combinations, which is still cheap
# "auto" uses a sample of so many numbers (rows * columns), but at least so many rows
SAMPLED_NUMBERS, SAMPLED_ROWS = 1 << 14, 500


class FeaturePath(Path):  # numpydoc ignore=PR01
    """Errors with different numbers of features, found by :func:`.feature_path`.

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
    _columns = ("n_components", "error", "criterion", "lam_low", "lam_high")

    def __init__(self, counts, error, lam_low, lam_high, criterion, best, lam):
        self.counts = np.asarray(counts, dtype=np.intp)
        self.error, self.criterion = error, criterion
        self.lam_low, self.lam_high = lam_low, lam_high
        self.best, self.lam = best, lam

    @property
    def n_components(self) -> NDArray[np.intp]:  # numpydoc ignore=RT01
        """The numbers of features, ``counts``."""
        return self.counts


class FeatureDescription:
    """Description length of the rows, given K features: the criterion, the lower, the better.

    V = u d log(error / energy) + 2 u sum_k h(p_k) + 2 K (d + 1) log u,

    twice the negative log-likelihood of Gaussian errors, up to a constant, twice the nats that code
    the rows of Z, and the price of K (d + 1) parameters. u is the number of distinct rows, d that
    of the columns with more than EXACT_FIT of the sum of squares of X (but at most u), p_k the
    share of the rows that have feature k, h(p) = -p log p - (1 - p) log(1 - p), and ``energy`` the
    error without features. ``most`` is the largest K that may be chosen.
    """

    def __init__(self, X, weight):
        self.weight, self.distinct = weight, count_distinct(X)
        squares = np.einsum("ij,ij->j", X, X, dtype=np.float64)
        self.d = min(int((squares > EXACT_FIT * squares.sum()).sum()), self.distinct)
        self.most = max(1, self.distinct // 3)  # three distinct rows for each feature

    def __call__(self, error, energy, Z):
        """V of Z and its error; infinite for more than ``most`` features."""
        k = Z.shape[1]
        if k > self.most:
            return np.inf
        if not energy > 0.0:  # all rows are zero: the fewest features are best
            return float(k)
        share = np.average(Z, axis=0, weights=self.weight) if k else np.zeros(0)
        entropy = 0.0
        for p in (share, 1.0 - share):
            entropy -= float((p * np.log(np.maximum(p, EXACT_FIT))).sum())
        fit = self.d * np.log(max(error / energy, EXACT_FIT))
        price = PARAMETER_PRICE * k * (self.d + 1) * np.log(self.distinct)
        return float(self.distinct * (fit + 2.0 * entropy) + price)


class Steps:
    """The best features found for K = 0, 1, 2, ..., one K after the other.

    By K: ``error``, ``criterion``, ``Z``, ``components``, and ``left``, the starts that are not yet
    made. Up to ``exact`` features, each row takes the best of all 2^K combinations. ``starts`` are
    FeatureStarts.
    """

    def __init__(self, starts, exact, rng):
        self.starts, self.exact, self.rng = starts, exact, rng
        self.n, d = starts.X.shape
        self.description_length = FeatureDescription(starts.X, starts.weight)
        self.n_iter, self.converged = 0, True
        energy, Z = starts.sweep("coordinate", 0.0, 0).measure(), np.zeros((self.n, 0), np.uint8)
        self.error, self.criterion = [energy], [self.description_length(energy, energy, Z)]
        self.Z, self.components = [Z], [np.zeros((0, d))]
        # for each K: random states and modes of starts not yet made, objectives of those made
        self.left = [((), (), [])]

    def go_on(self, few=False):
        """Find the features for the next K: a start from those for K - 1, and random starts.

        If ``few``, most of the random starts are left to ``complete``.
        """
        k = len(self.error)
        states, modes = self.starts.draw(self.rng)
        self.error.append(np.inf)
        for results in (self.criterion, self.Z, self.components):
            results.append(None)
        self.left.append((states, modes, []))
        self._add_feature(k - 1)
        self._run(k, few)

    def complete(self, k):
        """Run the starts that are left for K = k; if they lower its error, start K + 1 from it."""
        before = self.error[k]
        self._run(k, few=False)
        if self.error[k] < before and k + 1 < len(self.error):
            self._add_feature(k)

    def complete_best(self):
        """Run the starts that are left for the best K and for K - 1, until none are left for both.

        K - 1 may be the true number: its few starts may have missed its best features, which would
        make K look better.
        """
        while left := [k for k in (self.best - 1, self.best) if k > 0 and len(self.left[k][0])]:
            self.complete(left[0])

    def _add_feature(self, k):
        """Make a start for K = k + 1 from Z of K = k, with a feature that no row has yet."""
        Z = np.ascontiguousarray(np.pad(self.Z[k], ((0, 0), (0, 1))))
        self._keep(self.starts.run(self._sweep(k + 1), self.rng, Z))

    def _run(self, k, few):
        """Run the starts that are left for K = k, or a ``few`` of them, until enough agree."""
        states, modes, objectives = self.left[k]
        count = (FEW_STARTS if k <= self.exact else 0) if few else len(states)
        if count:
            sweep = self._sweep(k)
            # with ``few``, two that agree are enough: say, the start from K - 1 and a random one
            sweep.run(states[:count], modes[:count], self.starts.enough - few, objectives)
            count = len(states) if sweep.agreed and not few else len(sweep.objectives)
            self.left[k] = states[count:], modes[count:], objectives
            self._keep(sweep)

    def _sweep(self, k):
        """A sweep for exactly k features."""
        rule = "exact" if k <= self.exact else "coordinate"
        return self.starts.sweep(rule, 0.0, k, self.starts.swaps(path=rule == "coordinate"))

    def _keep(self, sweep):
        """Keep the features of a sweep if their error is the lowest for this number of features."""
        k = sweep.k
        if not sweep.error < np.inf:
            raise ValueError(UNSOUND)
        self.left[k][2].extend(sweep.objectives)
        self.converged &= sweep.converged
        self.n_iter = max(self.n_iter, sweep.n_iter)
        if sweep.error <= self.error[k]:
            self.error[k], self.components[k] = sweep.error, sweep.components()
            self.Z[k] = sweep.assignments().astype(np.uint8)
            self.criterion[k] = self.description_length(sweep.error, self.error[0], self.Z[k])

    @property
    def best(self):
        """The number with the lowest criterion, the smaller one at a tie."""
        return int(np.argmin(self.criterion))

    def path(self, scale=1.0):
        """The FeaturePath, with errors multiplied by ``scale``."""
        K, errors = np.arange(len(self.error)), np.array(self.error) * scale
        low, high = envelope(K, errors)
        k = self.best
        lam = penalty_of(k, (low, high), errors)
        never = ~(low < high)
        low[never] = high[never] = np.nan
        return FeaturePath(K, errors, low, high, np.array(self.criterion), k, lam)


def choose(starts, exact, most, rng, callback=None):
    """The path up to ``most`` features, and Z of all rows for the number chosen.

    ``starts`` are FeatureStarts. The path of many rows is that of a random sample; penalties and
    errors are scaled to all rows.
    """
    X, weight, sampled, scale = starts.X, starts.weight, starts, 1.0
    n, d = X.shape
    size = max(SAMPLED_ROWS, SAMPLED_NUMBERS // d)
    if n > size:
        sample = np.sort(rng.choice(n, size, replace=False))
        w = None if weight is None else weight[sample]
        scale = n / size if weight is None else float(weight.sum() / w.sum())
        rows = np.ascontiguousarray(X[sample])
        sampled = FeatureStarts(starts.model, rows, w, starts.n_threads)
    steps = Steps(sampled, max(exact, EXACT_FEATURES), rng)
    most = min(most, steps.description_length.most + 1, steps.n)
    while (
        len(steps.error) <= most
        and steps.error[-1] > EXACT_FIT * steps.error[0]
        and len(steps.error) - 1 - steps.best < max(MORE_FEATURES, steps.best // BEYOND_BEST)
    ):
        steps.go_on(few=starts.automatic)
        if callback is not None:
            k, error = len(steps.error) - 1, steps.error[-1] * scale
            message = f"{k} features: error {error:.8g}, V {steps.criterion[k]:.8g}"
            callback(ProgressEvent("features", k, message, k, error))
    steps.complete_best()
    Z = steps.Z[steps.best]
    if n > size:
        Z = rows_of_Z(X, None, steps.components[steps.best], starts.n_threads)[0].astype(np.uint8)
    return steps.path(scale), np.ascontiguousarray(Z)
