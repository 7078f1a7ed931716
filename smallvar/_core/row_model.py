"""How sure the cluster of a row is, and how strange the row: methods that estimators share.

``RowModelMixin`` gives an estimator ``predict_proba``, ``score_samples`` and ``outlier_scores``. It
remembers the rows of a fit (``FittedRows``) and measures a mixture on them when one of these is
first asked for, so that fits do not take longer. An estimator says in ``_made_row_model`` how rows
are compared with its clusters.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from smallvar._core.config import one_blas_thread
from smallvar._core.estimator import Estimator, check_fitted, copy_of
from smallvar._core.fitted_rows import FittedRows, KeepsRowsMixin
from smallvar._core.mixture import (
    LEAST,
    LEAST_VARIANCE,
    DenseRows,
    Form,
    Mixture,
    RowsOfCosts,
    Scatter,
    fit_mixture,
    fit_scale,
    log_density,
    log_sums,
    masses,
    squared_distances,
)
from smallvar._core.validation import Data, check_flag, learned, some_rows
from smallvar._sweeps.exact import distances_to_centers
from smallvar._sweeps.memberships import softmax, softmax_of_squares
from smallvar._sweeps.ranges import column_range

TABLED_NUMBERS = 1 << 20  # numbers in the table of a block of rows,
FEWEST_JUDGED_ROWS = 256  # which has at least so many rows
WIDEST_FREEDOM = 1.0  # degrees of freedom of rows of no known cluster: the heaviest tail


@dataclass
class RowModel:
    """A mixture, and how rows are compared with its clusters.

    ``squares(block, n_threads)`` are squared distances, or costs, in units of the scatter, (n, K).
    ``broad(block)`` is the log density of a row of no known cluster, whose share is ``unknown``.
    ``clusters`` are the clusters of the components of the mixture, None where these are the same.
    ``offset(block)`` is added to log densities, where costs leave out what all clusters share.
    ``constant`` are the columns that had one value in the fit, these values, and their rounding.
    """

    mixture: Mixture
    squares: Callable[[Any, int], NDArray[np.float64]]
    broad: Callable[[Any], NDArray[np.float64]]
    unknown: float = 0.0
    clusters: NDArray[np.int32] | None = None
    offset: Callable[[Any], NDArray[np.float64]] | None = None
    constant: tuple[NDArray[Any], ...] | None = None
    order: tuple[NDArray[np.intp], ...] = field(init=False)
    levels: Any = field(init=False, default=None)

    def __post_init__(self):
        self.order: tuple[NDArray[np.intp], ...] = ()
        if self.clusters is not None:
            order = np.argsort(self.clusters, kind="stable")
            k = int(self.clusters.max()) + 1
            self.order = order, np.searchsorted(self.clusters[order], np.arange(k))

    @property
    def n_clusters(self):
        """The number of clusters."""
        return len(self.mixture.shares) if self.clusters is None else len(self.order[1])

    def logs(self, block, n_threads, unknown=False):
        """Log of share times density of rows in clusters; with a column of ``unknown`` ones."""
        squares = self.squares(block, n_threads)
        logs = self.mixture.logs(squares, out=squares)
        if self.clusters is not None:
            logs = np.logaddexp.reduceat(logs[:, self.order[0]], self.order[1], axis=1)
        if unknown:
            logs += np.log1p(-self.unknown)
            logs = np.column_stack((logs, np.log(self.unknown) + self.broad(block)))
        return logs

    def memberships(self, block, n_threads, unknown=False, out=None):
        """Probabilities of clusters, those of each row with the sum 1."""
        shares = self.shares(unknown)
        if unknown:  # what rows that are infinitely far from all clusters belong to
            shares = (np.arange(len(shares)) == self.n_clusters).astype(np.float64)
        out = np.empty((block.shape[0], self.n_clusters + unknown)) if out is None else out
        freedom, prices = self.mixture.freedom, -0.5 * self.mixture.prices
        # Where each component is a cluster and the table has no other column, probabilities are
        # computed in place, in one pass. Logarithms of densities are not needed then.
        if not unknown and self.clusters is None:
            if np.isfinite(freedom):
                unit, power = 1.0 / freedom, 0.5 * (freedom + self.mixture.scatter.d)
            else:  # squares are linear functions but for what all have in common
                unit, power = 0.5, 0.0
                linear = self.squares.linear(block)
                if linear is not None:
                    np.matmul(block.astype(np.float64, copy=False), linear[0], out=out)
                    out += linear[1] + prices
                    softmax(out, shares, n_threads)
                    return out
            factor = self.squares.write(block, out, n_threads)
            softmax_of_squares(out, prices, unit * factor, power, shares, n_threads)
            return out
        out[:] = self.logs(block, n_threads, unknown)
        softmax(out, shares, n_threads)
        return out

    def shares(self, unknown):
        """Shares of the clusters."""
        shares = self.mixture.shares
        if self.clusters is not None:
            shares = np.bincount(self.clusters, shares)
        return np.append(shares * (1 - self.unknown), self.unknown) if unknown else shares

    def score(self, block, n_threads):
        """Log densities of rows."""
        out = log_sums(self.logs(block, n_threads))[:, 0]
        out = out if self.offset is None else out + self.offset(block)
        return np.where(np.isnan(out), -np.inf, out)  # of distances beyond float64

    def strangeness(self, block, n_threads, own=None):
        """Probabilities that a row of the mixture has a higher density than these rows.

        ``own`` are, for rows of the fit, the components that they belong to (-1: none), and the
        share of the weight of these that is not their own: a row does not vouch for itself. Without
        it the mean of the others is farther away, by the inverse of that share.
        """
        squares = self.squares(block, n_threads)
        # x - mean of the others = (x - mean of all) / rest, of which the square is compared
        if own is not None:
            label, rest = own
            row = np.flatnonzero(label >= 0)
            label, rest = label[row], rest[row]
            with np.errstate(divide="ignore", invalid="ignore"):
                squares[row, label] = np.where(rest > 0.0, squares[row, label] / rest**2, np.inf)
        logs = self.mixture.logs(squares, out=squares)
        if own is not None:
            with np.errstate(divide="ignore"):
                logs[row, label] += np.log(rest)
        if self.levels is None:
            self.levels = self.mixture.typicality()
        density, higher = self.levels
        out = log_sums(logs)[:, 0]
        return np.interp(np.where(np.isnan(out), -np.inf, out), density, higher)

    def off_constant(self, X):
        """Whether rows differ, in a column that was constant in the fit, by more than rounding."""
        if self.constant is None:
            return np.zeros(X.shape[0], dtype=bool)
        columns, value, eps = self.constant
        X = X[:, columns].toarray() if issparse(X) else X[:, columns]
        return (np.abs(X - value) > max(eps, np.finfo(X.dtype).eps) * np.abs(value)).any(axis=1)


@dataclass
class SquaredDistances:
    """Squared distances of rows, dense or sparse, from centers."""

    centers: NDArray[np.float64]

    def __call__(self, X, n_threads):
        return squared_distances(X, self.centers, n_threads)


def mean_row(X, weight):
    """The mean of dense or sparse rows, (1, d)."""
    w = np.ones(X.shape[0]) if weight is None else weight
    return np.asarray(X.T @ w / w.sum(), dtype=np.float64).reshape(1, -1)


@dataclass
class _Scaled:
    """Squared distances in units of a scatter, of the columns that varied in the fit (None: all).

    ``costs`` are given for a spherical scatter, else the scatter itself measures the distances from
    ``centers``.
    """

    scatter: Scatter
    costs: Callable[[Any, int], NDArray[np.float64]] | None = None
    centers: NDArray[np.float64] | None = None
    columns: NDArray[np.intp] | None = None

    def __call__(self, X, n_threads):
        if self.costs is not None:
            out = self.costs(X, n_threads)
            out /= self.scatter.values
            return out
        X = X if self.columns is None else X[:, self.columns]
        return self.scatter.squares(X, self.centers, n_threads)

    def write(self, X, out, n_threads):
        """Write squares, (n, K), but for factors of the clusters, which are returned."""
        near = None
        if self.costs is None and not issparse(X):
            used = X if self.columns is None else X[:, self.columns]
            near = self.scatter.euclidean(used, self.centers)
        if near is None:
            out[:] = self(X, n_threads)
            return np.ones(out.shape[1])
        rows, centers, factor = near
        distances_to_centers(rows, np.ascontiguousarray(centers), out, n_threads, True)
        return factor

    def linear(self, X):
        """What ``Scatter.linear`` has, for all columns; None: there is nothing."""
        found = None if self.costs is not None or issparse(X) else self.scatter.linear(self.centers)
        if found is None or self.columns is None:
            return found
        A = np.zeros((X.shape[1], len(self.centers)))
        A[self.columns] = found[0]
        return A, found[1]


@dataclass
class _Broad:
    """The log density of rows anywhere: the heaviest tail, about the center of all rows."""

    squares: _Scaled

    def __call__(self, X):
        scatter = self.squares.scatter
        squares = self.squares(X, 1)[:, 0]
        return log_density(squares, scatter.log_volume[0], WIDEST_FREEDOM, scatter.d)


def model_of_rows(X, weight, labels, centers, clusters=None, covariances=None):
    """The RowModel of dense rows with labels, in clusters (components) with these centers.

    ``covariances`` are those of the clusters, if they are known but for a common factor.
    """
    low, high = column_range(X, None, 1)
    columns = None
    # Constant columns tell clusters by nothing, and would make every density infinite. Where all
    # are constant one stays, so that other rows are far away.
    if not (low < high).all():
        columns = np.flatnonzero(low < high) if (low < high).any() else np.zeros(1, np.intp)
        centers = np.ascontiguousarray(centers[:, columns])
        if covariances is not None:
            covariances = covariances[:, columns][:, :, columns]
    rows = DenseRows(X, weight, centers, columns)
    if covariances is None:
        mixture = fit_mixture(rows, labels)
    else:
        mixture = fit_scale(rows, labels, Scatter(Form("full", True), covariances, rows.d))
    whole = rows.of_all(mixture.scatter.form.shape)
    if not whole.is_sound:  # fewer rows than columns
        whole = rows.of_all("columns")
    squares = _Scaled(mixture.scatter, None, centers, columns)
    broad = _Broad(_Scaled(whole, None, rows.mean[None], columns))
    return RowModel(mixture, squares, broad, clusters=clusters)


def model_of_costs(
    costs, broad_costs, rows, weight, labels, d, n_threads, kind=RowsOfCosts, **more
):
    """The RowModel of rows that have a cost, like a squared distance, in each cluster.

    ``costs(rows, n_threads)`` are those in the clusters, ``broad_costs`` in one of all rows; d is
    the number of dimensions: the mean cost is d times the unit of the cost, which RowsOfCosts
    measure. ``more`` is what RowModel has besides.
    """
    whole = broad_costs(rows, n_threads)
    total = float(np.average(whole[:, 0], weights=weight)) / d
    least = LEAST_VARIANCE * total or LEAST
    mixture = fit_mixture(kind(costs(rows, n_threads), weight, d, least), labels)
    form = Form("spherical", False)
    broad = _Broad(_Scaled(Scatter(form, np.array([total + least]), d), broad_costs))
    return RowModel(mixture, _Scaled(mixture.scatter, costs), broad, **more)


def model_of_stream(centers, shares, variance):
    """The RowModel of a stream, of whose rows only the variance within clusters is known."""
    d = centers.shape[1]
    variance = np.array([max(variance, LEAST)])
    mean = (shares @ centers)[None]
    between = float(shares @ np.square(centers - mean).mean(axis=1))
    form = Form("spherical", False)
    scatter, whole = Scatter(form, variance, d), Scatter(form, variance + between, d)
    broad = _Broad(_Scaled(whole, None, mean))
    return RowModel(Mixture(shares, scatter, np.inf), _Scaled(scatter, None, centers), broad)


def measure_mixture(estimator):
    """Measure the mixture of ``predict_proba``, which the estimator then keeps, also in pickles."""
    estimator._row_model()


class RowModelMixin(KeepsRowsMixin, Estimator):
    """An estimator that says how sure the cluster of a row is, and how strange the row."""

    n_clusters_: int
    labels_: NDArray[np.int32]

    def _judged_rows(self, X):
        """Checked new rows."""
        return self._validate(X, reset=False)

    def _made_row_model(self, fitted):
        """The RowModel, from the FittedRows."""
        X = fitted.X
        rows, weight, labels, centers = self._sample_for_model(fitted)
        clusters = vars(self).get("piece_clusters_")
        if not issparse(X):
            return model_of_rows(rows, weight, labels, centers, clusters)
        # sparse rows are compared by their squared distances alone, and stay sparse
        return self._model_of_distances(rows, weight, labels, centers, X.shape[1])

    def _model_of_distances(self, rows, weight, labels, centers, d):
        """The RowModel by squared distances in d dimensions, with a spherical scatter."""
        costs = SquaredDistances(centers), SquaredDistances(mean_row(rows, weight))
        settings = *costs, rows, weight, labels, d, self._threads()
        return model_of_costs(*settings, clusters=vars(self).get("piece_clusters_"))

    def _sample_for_model(self, fitted):
        """Measured rows for a model, their weights, their components, and the centers of these."""
        X, n_threads = fitted.X, self._threads()
        label = fitted.labels if fitted.components is None else fitted.components

        def distances():
            own = np.empty(len(label))
            size = max(FEWEST_JUDGED_ROWS, TABLED_NUMBERS // X.shape[1])
            for start in range(0, X.shape[0], size):
                rows = slice(start, start + size)
                table = squared_distances(*self._measured(some_rows(X, rows)), n_threads)
                own[rows] = table[np.arange(len(table)), label[rows]]
            return own

        taken, weight, labels = fitted.sample(1 if issparse(X) else X.shape[1], distances)
        rows, centers = self._measured(some_rows(X, taken))
        return rows, weight, labels, centers

    def _unknown_share(self, fitted):
        """The share of rows of no known cluster: one row more than there were, but for noise."""
        weight = masses(fitted.weight, len(fitted.labels))
        if fitted.before is not None:
            n = fitted.before[1]
        else:
            n = float(weight.sum()) if fitted.total is None else fitted.total
        noise = float(weight[fitted.labels < 0].sum() / weight.sum())
        return max(1.0 / (n + 1), noise)

    def _constant_columns(self, fitted):
        """The columns that had one value in the fit, these values, and the rounding of numbers."""
        X = fitted.X
        if not isinstance(X, np.ndarray) or fitted.before is not None:
            return None
        low, high = column_range(X, fitted.weight, self._threads())
        columns = np.flatnonzero(low == high)
        return (columns, low[columns], np.finfo(X.dtype).eps) if len(columns) else None

    def _row_model(self):
        """The RowModel, measured when it is first asked for."""
        fitted = self._fitted_rows
        if fitted is not None and fitted.center_sums is not None and fitted.X is not None:
            centers = learned(self, "cluster_centers_", None, self.n_features_in_)
            replaced = not np.array_equal(fitted.center_sums, centers.sum(axis=1))  # by the user
            if replaced and fitted.are_there:
                facts = fitted.X, fitted.weight, self.predict(fitted.X), centers
                self._fitted_rows = FittedRows(*facts, before=fitted.before)
                self._fitted_rows.total = fitted.total
        return self._of_rows("model of rows", self._new_row_model, of_batches=True)

    def _new_row_model(self, fitted):
        """The RowModel with the share of unknown rows."""
        # bits do not depend on the threads of BLAS; numbers overflow for rows far away
        errors = np.errstate(over="ignore", divide="ignore", invalid="ignore")
        labels = fitted.labels if fitted.components is None else fitted.components
        n_pairs = len(labels) * (int(labels.max()) + 1)
        with errors, one_blas_thread(n_pairs, self.n_features_in_):
            model = self._made_row_model(fitted)
        model.unknown, model.constant = self._unknown_share(fitted), self._constant_columns(fitted)
        return model

    def _judged(self, X, judge, width=None):
        """The results ``judge(model, block, rows, out)`` of the RowModel for blocks of rows."""
        model, n = self._row_model(), X.shape[0]
        out = np.empty(n if width is None else (n, width(model)))
        k, d = len(model.mixture.shares), X.shape[1]
        d = 1 if issparse(X) and model.constant is None else d  # rows that stay sparse
        size = max(FEWEST_JUDGED_ROWS, TABLED_NUMBERS // max(k, d))
        with np.errstate(over="ignore", invalid="ignore"), one_blas_thread(size, X.shape[1]):
            for start in range(0, n, size):
                rows = slice(start, start + size)
                part = out[rows]
                result = judge(model, self._measured(some_rows(X, rows))[0], rows, part)
                if result is not part:
                    part[:] = result
        return out

    def predict_proba(self, X: Data, *, unknown: bool = False) -> NDArray[np.float64]:
        """Return the probability of each cluster for each row.

        The labels of a fit are the limit, for noise that vanishes, of the labels of a mixture of
        Gaussians or t densities about the same centers. With the noise that the rows of the fit
        have, a row belongs to cluster k with probability ::

            p_k f(x; mu_k, S_k) / sum_j p_j f(x; mu_j, S_j),

        f being the density, and p_k the shares, that describe those rows best: see Notes.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            New data, as for ``predict``.
        unknown : bool, default=False
            Add a last column: the probability that the row belongs to no known cluster, or is
            noise where the estimator tells noise apart.

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_clusters) or (n_samples, n_clusters + 1)
            The sum over each row is 1. The largest one mostly, not always, is that of the cluster
            of ``predict``, for which the size and the spread of clusters do not count.

        Raises
        ------
        AttributeError
            If no rows are known from which the noise can be measured: a pickle has lost them
            where they had been changed before.
        ValueError
            If a number in the rows of the fit, or their weights, has been changed before the first
            call. (In a memory map, only a few rows are compared with what they were.)

        Notes
        -----
        The mixture is measured when it is first asked for, on at most 10,000 rows of the fit. Their
        scatter is the best of five forms: spherical or a full matrix, one for all clusters or one
        each, or one variance for each column, by likelihood and a price of log(n) / 2 for each
        parameter, n being the sum of the weights; spherical if most columns are flags. Degrees of
        freedom are infinite (Gaussian) or from 200 to 3. Hard labels cut off what reaches over to
        other clusters; by steps of EM, with the centers as they are, shares and scatter are those
        of the rows by their probabilities. For costs that are no distances (divergences, cosines,
        mixed columns) only the unit of the cost is measured; with categories, whose divergences are
        log likelihoods, that is 1. After batches, of which no rows are kept, the scatter is
        spherical, the same for all clusters, and with a ``half_life`` all shares are equal.

        A row of weight 2 counts as two equal rows. Weights that add up to less than the number of
        rows are scaled to that.

        Rows of no known cluster have a t density with one degree of freedom and the scatter of all
        rows, and the share of one row more than the fit had, or that of the noise.

        Examples
        --------
        >>> from sklearn.datasets import make_blobs
        >>> from smallvar import DPMeans
        >>> X, _ = make_blobs(300, centers=[[0, 0], [6, 0]], random_state=0)
        >>> model = DPMeans(random_state=0).fit(X)
        >>> order = model.cluster_centers_[:, 0].argsort()
        >>> model.predict_proba([[0.0, 0.0], [3.0, 0.0], [6.0, 0.0]])[:, order].round(2)
        array([[1.  , 0.  ],
               [0.38, 0.62],
               [0.  , 1.  ]])
        """
        check_fitted(self)
        check_flag(unknown, "unknown")
        self._row_model()  # or there are no rows to measure it by, whatever X is
        X, n_threads = self._judged_rows(X), self._threads()
        return self._judged(
            X,
            lambda model, block, _, out: model.memberships(block, n_threads, unknown, out),
            lambda model: model.n_clusters + unknown,
        )

    def score_samples(self, X: Data) -> NDArray[np.float64]:
        """Return the log density of each row under the mixture of ``predict_proba``.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            New data, as for ``predict``.

        Returns
        -------
        log_density : ndarray of shape (n_samples,), float64
            Its natural logarithm, in the columns that varied in the fit; in a ``metric_``, the
            density of the transformed rows. -inf where squared distances are beyond float64.
        """
        check_fitted(self)
        self._row_model()
        X, n_threads = self._judged_rows(X), self._threads()
        return self._judged(X, lambda model, block, *_: model.score(block, n_threads))

    def outlier_scores(self, X: Data) -> NDArray[np.float64]:
        """Return how strange each row is.

        That is the probability, under the mixture of ``predict_proba``, that a row has a higher
        density than this one. For a single cluster this is the probability that a row is nearer to
        the center. Of rows from the mixture a tenth exceed .9, whatever the number of columns.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            New data, as for ``predict``.

        Returns
        -------
        scores : ndarray of shape (n_samples,), float64
            From 0, ordinary, to 1, like no row of the fit: also where a column that was constant in
            the fit of dense rows has another value, by more than the rounding of that.

        Notes
        -----
        ``outlier_scores_`` are those of the rows of the fit, but each as if its cluster did not
        have it: a row that is alone in its cluster is not ordinary.

        Examples
        --------
        >>> from sklearn.datasets import make_blobs
        >>> from smallvar import DPMeans
        >>> X, _ = make_blobs(300, centers=[[0, 0], [6, 0]], random_state=0)
        >>> model = DPMeans(random_state=0).fit(X)
        >>> model.outlier_scores([[0.0, 1.0], [0.0, 3.0], [3.0, 6.0]]).round(3)
        array([0.34 , 0.985, 1.   ])
        """
        check_fitted(self)
        self._row_model()
        return self._strangeness(self._judged_rows(X))

    def _strangeness(self, X, own=None):
        """Outlier scores of checked rows; of those of the fit with ``own`` (see RowModel)."""
        n_threads = self._threads()

        def strange(model, block, rows, _):
            some = None if own is None else [part[rows] for part in own]
            scores = model.strangeness(block, n_threads, some)
            return np.where(model.off_constant(some_rows(X, rows)), 1.0, scores)

        return self._judged(X, strange)

    @property
    def probabilities_(self) -> NDArray[np.float64]:  # numpydoc ignore=RT01
        """The probability of its own cluster for each row of the fit; 0 for rows that are noise."""
        one = copy_of(self)  # all of the same fit, whatever other threads do
        return one._of_rows("probabilities_", one._own_probabilities, of_batches=True)

    @property
    def outlier_scores_(self) -> NDArray[np.float64]:  # numpydoc ignore=RT01
        """The outlier score of each row of the fit."""
        one = copy_of(self)
        return one._of_rows("outlier_scores_", one._own_outlier_scores, of_batches=True)

    def _own_probabilities(self, fitted):
        """The probability of its own cluster for each row of the fit."""
        n_threads = self._threads()

        def own(model, block, rows, _):
            table, label = model.memberships(block, n_threads), fitted.labels[rows]
            return np.where(label < 0, 0.0, table[np.arange(len(label)), label])

        return self._judged(fitted.X, own)

    def _own_outlier_scores(self, fitted):
        """The outlier score of each row of the fit, as if its cluster did not have it."""
        if fitted.before:  # of one batch, of many
            return self._strangeness(fitted.X)
        label = fitted.labels if fitted.components is None else fitted.components
        weight = masses(fitted.weight, len(label))
        sizes = np.bincount(label[label >= 0], weight[label >= 0])
        # a heavy row stands for several rows, of which one is left out
        one = np.minimum(weight, 1.0)
        rest = np.where(label >= 0, 1.0 - one / np.maximum(sizes[label], one), 1.0)
        return self._strangeness(fitted.X, (label, rest))

    def __getstate__(self):
        fitted = self._fitted_rows
        # a pickle leaves the rows out, so what they are needed for is computed before
        if fitted is not None and fitted.are_there:
            one = copy_of(self)
            try:
                one._threads()
            except (TypeError, ValueError):  # a parameter set since, which the next fit refuses
                one.n_threads = 1
            one._row_model()
        return super().__getstate__()
