"""The rows of a fit, kept for what is computed when it is first asked for."""

import mmap

import numpy as np

from smallvar._core.estimator import copy_of
from smallvar._core.validation import learned
from smallvar._sweeps.rows import fingerprint

PROBED = 8  # rows, about, by which a change of a memory map is noticed
ARRAYS = "data", "indices", "indptr", "numbers", "codes"  # of sparse rows, and of tables
# of rows that are used to measure something: at most so many rows, and numbers in them, but at
# least FEWEST_SAMPLED rows
MOST_SAMPLED, NUMBERS_SAMPLED, FEWEST_SAMPLED = 10_000, 1 << 22, 1000

# what to call for attributes that need all rows of the fit, where these are in partitions
INSTEAD = {
    "probabilities_": "smallvar.dask.predict_proba",
    "outlier_scores_": "smallvar.dask.outlier_scores",
    **dict.fromkeys(("profiles_", "representatives_"), "its method fit with a sample of the rows"),
}


def is_mapped(array):
    """Whether an array lies in a memory map."""
    while isinstance(array, np.ndarray):
        array = array.base
    return isinstance(array, mmap.mmap)


class FittedRows:
    """The rows of a fit, their weights (None: 1 each) and labels.

    Rows and weights are not copied. Their fingerprints tell whether a number is changed before they
    are used; of memory maps, which may be larger than memory, those of a few rows. ``results``
    keeps what has been computed, by name. A pickled one has no rows any more, but these results.

    ``centers`` are those of the fit, of which sums are kept; ``components`` the parts of clusters
    that the rows belong to, if there are any. Of a stream, the rows are the last batch: ``before``
    are the sums, over all batches, of squared distances and of weights. ``total`` is the weight of
    all rows of a fit that are in the partitions of a dask collection, of which these are a sample.
    """

    total: float | None = None

    def __init__(self, X, weight, labels, centers=None, components=None, before=None):
        self.X, self.weight, self.labels = X, weight, labels.copy()
        self.components = None if components is None else components.copy()
        # by their sums it is noticed if a user replaces the centers
        with np.errstate(over="ignore"):
            self.center_sums = None if centers is None else centers.sum(axis=1)
        self.before, self.weighted, self.results = before, weight is not None, {}
        self._marks = self._marked()

    def _marked(self):
        """The fingerprints of the arrays that the rows and weights are in."""
        X, marks = self.X, []
        arrays = [X] if isinstance(X, np.ndarray) else [getattr(X, a, None) for a in ARRAYS]
        for array in filter(lambda array: array is not None, [*arrays, self.weight]):
            step = max(1, len(array) // PROBED) if is_mapped(array) else 1
            marks.append(fingerprint(array[::step]))
        return marks

    @property
    def are_there(self):
        """Whether the rows are there and as they were."""
        return self.X is not None and self._marked() == self._marks

    def result(self, name, compute, owner):
        """What ``compute(self)`` returns, or has returned under this name."""
        if name not in self.results:
            if self.X is None:
                raise AttributeError(
                    f"this {owner} has no {name}: it was pickled or copied, which leaves out the "
                    f"rows of the fit; ask for {name} before, and it is kept"
                )
            if not self.are_there:
                raise ValueError(
                    f"X and sample_weight must be as they were in fit when {name} is first asked "
                    "for, but they have been changed: ask for it before, or fit copies"
                )
            self.results[name] = compute(self)
        return self.results[name]

    def sample(self, numbers, distances):
        """Some rows: their numbers, weights and components; few if ``numbers`` in each are many.

        They divide the rows of each component, in the order of ``distances()``, into equal parts,
        so that the sample does not depend on the order of the rows.
        """
        label = self.labels if self.components is None else self.components
        used = label >= 0
        if self.weight is not None:
            used &= self.weight > 0.0
        rows = np.flatnonzero(used)
        most = min(MOST_SAMPLED, max(FEWEST_SAMPLED, NUMBERS_SAMPLED // max(1, numbers)))
        if len(rows) <= most:
            rows = slice(None) if len(rows) == len(label) else rows  # all are not copied
            return rows, None if self.weight is None else self.weight[rows], label[rows]
        rows = rows[np.lexsort((distances()[rows], label[rows]))]
        step = -(-len(rows) // most)
        taken = rows[step // 2 :: step]
        # each component counts as much as all of its rows
        weight = np.ones(len(label)) if self.weight is None else self.weight
        k = int(label.max()) + 1
        total = np.bincount(label[rows], weight[rows], k)
        some = np.bincount(label[taken], weight[taken], k)
        weight = (
            weight[taken] * np.divide(total, some, out=np.ones(k), where=some > 0.0)[label[taken]]
        )
        return taken, weight * (len(taken) / weight.sum()), label[taken]

    def __getstate__(self):
        return vars(self) | dict.fromkeys(("X", "weight", "labels", "components", "_marks"))


class KeepsRowsMixin:
    """An estimator that keeps the rows of its fit, by reference."""

    _fitted_rows: FittedRows | None = None

    def _measured(self, X):
        """Rows and centers in the coordinates in which distances between them are measured."""
        return X, learned(self, "cluster_centers_", None, X.shape[1])

    def _remember_rows(self, X, weight, **options):
        """Keep the rows of a fit, at its end."""
        centers = vars(self).get("cluster_centers_")
        self._fitted_rows = FittedRows(X, weight, self.labels_, centers, **options)

    def _of_rows(self, name, compute, of_batches=False):
        """What ``compute(rows)`` makes of the rows of the fit, kept under a name."""
        rows, kind = self._fitted_rows, type(self).__name__
        if rows is not None and rows.total is not None and name in INSTEAD:
            raise AttributeError(
                f"this {kind} has no {name}, as its rows are in the partitions of a dask "
                f"collection: call {INSTEAD[name]}"
            )
        if rows is None or (rows.before is not None and not of_batches):
            raise AttributeError(
                f"this {kind} has no {name}: it keeps no rows, as its last data were a batch or "
                "of several machines"
            )
        return rows.result(name, compute, kind)


def keep_sample(estimator, total, sample=None):
    """Let an estimator know that its rows are in partitions; their weights add up to ``total``.

    ``sample`` are the arguments of FittedRows (None: it has kept what it needs of the rows).
    """
    if sample is not None:
        estimator._fitted_rows = FittedRows(*sample)
    estimator._fitted_rows.total = total


def without_rows(estimator, *names):
    """A copy of an estimator without the rows of its fit, and learned attributes of these names."""
    copy = copy_of(estimator)
    for name in ("_fitted_rows", *names):
        vars(copy).pop(name, None)
    return copy
