"""The starts of a fit of features: how many, from where, with how many swaps; checks for them."""

import numpy as np

from smallvar._core.estimator import callback_of
from smallvar._core.progress import ProgressEvent
from smallvar._core.validation import as_floats, shown
from smallvar._sweeps.features.starts import MOST_TRIED, FeatureSweep

FEATURE_INITS = ("alternate", "mean", "data")
# absolute bounds on weights, and on weights times the largest square in X: sums stay in float64
SMALLEST_WEIGHTED, LARGEST_WEIGHTED = 1e-280, 1e280
# bits to which relative weights are rounded: several starts reach the same features in different
# orders, and rounding decides which start is kept; it must be the same for all multiples of weights
WEIGHT_BITS = 32
# n_swaps="auto": SWAPS after a start (PATH_SWAPS on a path), but at most SWAP_NUMBERS / X.size, as
# each swap passes over X; at least FEW_SWAPS
SWAPS, PATH_SWAPS, FEW_SWAPS, SWAP_NUMBERS = 20, 50, 2, 1 << 24
# n_init="auto": at most STARTS; they end when ENOUGH_EQUAL of them have found the lowest objective
STARTS, ENOUGH_EQUAL = 10, 3


def check_named(init, where):
    """Raise if ``init`` is an array; ``where`` names the setting that allows only named starts."""
    if not isinstance(init, str):
        raise ValueError(
            f"init must be one of {', '.join(map(repr, FEATURE_INITS))} with {where}, "
            f"got an array of shape {np.shape(init)}"
        )


def check_weight_range(X, weight):
    """Raise if weights, or weighted squares of X, would leave the range of float64."""
    reach = max(abs(float(X.max())), abs(float(X.min()))) or 1.0
    low, high = weight[weight > 0].min(), weight.max()
    least, most = min(low, low * reach**2), max(high, high * reach**2)
    if least < SMALLEST_WEIGHTED or most > LARGEST_WEIGHTED:
        raise ValueError(
            "sample_weight must be such that weights, and weights times the largest square in X, "
            f"are above 1e-280 and below 1e280, got {low:.3g} to {high:.3g}; rescale them"
        )


def check_exact(k, name, remedy=""):
    """Raise if k features (None: any number) are too many for assign="exact", which tries 2^k rows.

    ``remedy`` ends the message.
    """
    if k is None or k > MOST_TRIED:
        raise ValueError(
            f"{name} must be <= {MOST_TRIED} where assign is 'exact' (it tries 2^{name} rows), "
            f"got {name}={k}{remedy}"
        )


def check_assignments(init, n_samples, width, name, active):
    """The ``active`` rows (None: all) of the user's ``init``, uint8; an error if it is not binary.

    ``name`` is the parameter that bounds the number of columns, and ``width`` its value: the exact
    number for "n_components", else the largest.
    """
    try:
        Z = as_floats(init)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"init must be one of {', '.join(map(repr, FEATURE_INITS))} or a binary array: {error}"
        ) from None
    fits = Z.ndim == 2 and Z.shape[0] == n_samples
    if not fits or (Z.shape[1] != width if name == "n_components" else Z.shape[1] > width):
        relation = "" if name == "n_components" else "at most "
        raise ValueError(
            f"init must have shape (n_samples, n_features) = ({n_samples}, {relation}"
            f"{name}={width}), got {Z.shape}"
        )
    invalid = ~np.isin(Z, (0.0, 1.0))
    if invalid.any():
        raise ValueError(f"init must hold only 0 and 1, got {shown(Z[invalid][0])}")
    return np.ascontiguousarray(Z if active is None else Z[active], dtype=np.uint8)


def reporter(callback):
    """The function that the compiled starts call after each sweep; None if there is no callback."""
    if callback is None:
        return None

    def report(start, n_iter, k, objective, changed, created):
        message = (
            f"start {start}, sweep {n_iter}: {k} features, objective {objective:.8g}, "
            f"{changed} rows changed, {created} features created"
        )
        callback(ProgressEvent("sweep", n_iter, message, k, objective))

    return report


class FeatureStarts:
    """The starts that an estimator makes on rows of these weights: how many, from where, swaps."""

    def __init__(self, model, X, weight, n_threads):
        self.model, self.X, self.weight, self.n_threads = model, X, weight, n_threads
        self.report = reporter(callback_of(model))
        self.automatic = isinstance(model.n_init, str)
        self.enough = ENOUGH_EQUAL if self.automatic else 0  # that agree; 0: all are run

    def swaps(self, *, given=False, path=False):
        """Number of swaps after each start.

        For n_swaps="auto" it depends on the size of X alone, not on time, so that the result is the
        same on any machine. ``given``: the start is the user's, and "auto" then makes no swaps.
        ``path``: the sweep is one of a path.
        """
        n_swaps = self.model.n_swaps
        if not isinstance(n_swaps, str):
            return min(n_swaps, 2**31 - 1)
        most = PATH_SWAPS if path else SWAPS
        return 0 if given else max(FEW_SWAPS, min(most, SWAP_NUMBERS // self.X.size))

    def sweep(self, rule, lam, cap, n_swaps=0, most_tried=MOST_TRIED):
        """A FeatureSweep over the rows.

        ``rule`` and ``most_tried`` are as there: "sweep" or "collapsed" for a penalty ``lam``,
        "coordinate" or "exact" for a fixed number of features; ``cap`` is the largest number.
        """
        return FeatureSweep(
            self.X,
            self.weight,
            rule,
            lam,
            min(cap, self.X.shape[0]),
            min(self.model.max_iter, 2**31 - 1),
            self.model.tol,
            n_swaps,
            self.n_threads,
            self.report,
            most_tried,
        )

    def draw(self, rng, count=None):
        """Random states of the starts, and where each begins: 0 at the mean, 1 at the data."""
        if count is None:
            count = STARTS if self.automatic else self.model.n_init
        states = rng.randint(2**63 - 1, size=count, dtype=np.int64).astype(np.uint64)
        init = self.model.init if isinstance(self.model.init, str) else FEATURE_INITS[0]
        modes = {"mean": [0], "data": [1], "alternate": [0, 1]}[init]  # as FeatureSweep.run has it
        return states, np.resize(np.array(modes, dtype=np.intc), count)

    def run(self, sweep, rng, Z=None):
        """Run the starts of a sweep, or one start from given Z; returns the sweep with the best."""
        if Z is None:
            states, modes = self.draw(rng)
            sweep.run(states, modes, self.enough)
        else:
            sweep.run_given(Z, int(self.draw(rng, 1)[0][0]))
        return sweep


def rows_of_Z(X, weight, components, n_threads):
    """Rows of Z for given features, and their weighted squared error.

    They are the best of all combinations, unless the search of a row is cut short: see
    ``FeatureEstimator.transform``.
    """
    k = len(components)
    sweep = FeatureSweep(X, weight, "coordinate", 0.0, k, 1, 0.0, 0, n_threads, None)
    return sweep.encode(components)
