"""What estimators say of their clusters: ``profiles_`` and ``representatives_``.

``DescribedMixin`` computes both from the rows of the fit, when they are first asked for.
"""

from typing import Any

import numpy as np

from smallvar._core.estimator import check_fitted, copy_of
from smallvar._core.fitted_rows import KeepsRowsMixin
from smallvar._core.profiles import (
    as_table,
    cluster_moments,
    mean_differences,
    number_profiles,
    parts_of_squares,
)
from smallvar._core.validation import check_number
from smallvar._selection.representatives import Representatives, find_representatives

MOST_COLUMNS = 100  # of each cluster in ``profiles_``


class DescribedMixin(KeepsRowsMixin):
    """An estimator with ``profiles_`` and ``representatives_``.

    A subclass overrides ``_gains`` and ``_mean_cost`` where costs are no squared distances,
    ``_used_rows`` where rows are not used as they are, and ``_cluster_distances`` where it has no
    ``transform``.
    """

    n_clusters_: int
    _library: str | None

    @property
    def profiles_(self) -> Any:  # numpydoc ignore=RT01
        """A row for each cluster and column, as a new table."""
        return self.profile_clusters(max_columns=MOST_COLUMNS)

    def profile_clusters(self, *, max_columns: int | None = None) -> Any:
        """Say what sets each cluster apart: ``profiles_`` with any number of columns.

        The cost of a clustering is, for squared distances, what its centers leave of the sum of
        squares about the mean of all rows. A cluster of n rows saves n (mu_j - m_j)^2 of that sum
        in column j, with mu its center and m the mean of all rows; these add up to all that is
        saved.

        Parameters
        ----------
        max_columns : int, default=None
            Columns of each cluster in the table, those that set it apart most; None: all.
            ``profiles_`` has at most 100.

        Returns
        -------
        profiles : DataFrame, Table or dict of arrays
            A row for each cluster and column, those first that set the cluster apart, of the
            library that the data of the fit were of; else a dict:

            - ``cluster``, and its ``size`` in rows, with sample weights their weight;
            - ``column``: its name, or number;
            - ``summary``: mean and spread in words;
            - ``apart``: by how much the column makes the rows likelier with the center of the
              cluster than with the mean of all rows, in nats for each row;
            - ``saved``: the column's share of the cost that the cluster saves. The shares of a
              cluster add up to 1, and are NaN where it saves nothing, as a single cluster does;
            - ``mean`` and ``spread`` (standard deviation) of the rows of the cluster, and the
              ``overall`` mean, in the units of the data.

        Raises
        ------
        NotFittedError, AttributeError
            If there is no fit, or its rows are not known any more: after pickling, if profiles have
            not been asked for before, and for data of several machines.

        Notes
        -----
        What is saved is by the objective of the estimator: squared distances in ``metric_``, with
        the covariance of the cluster, 1 - cosine of rows of length 1, or a divergence. Distances
        that mix columns are divided among these by the rotation that changes the columns least.
        Rows in no cluster are left out.

        References
        ----------
        Garthwaite & Koch (2016), Evaluating the contributions of individual variables to a
        quadratic form, for distances that mix columns.
        """
        check_fitted(self)
        check_number(max_columns, "max_columns", low=1, integer=True, none=True)
        moments, weighted = self._moments()
        names = getattr(self, "feature_names_in_", range(moments.mean.shape[1]))
        options = {"weighted": weighted, "most": max_columns}
        gains = self._gains(moments)
        fields = number_profiles(moments, gains, self._mean_cost(moments), names, **options)
        return as_table(fields, self._library)

    @property
    def representatives_(self) -> Representatives:  # numpydoc ignore=RT01
        """The rows of the fit nearest to the centers, and beside the boundaries."""
        check_fitted(self)

        def represented(rows):
            data = rows.X, rows.weight, rows.labels, self.n_clusters_
            return find_representatives(*data, self._cluster_distances)

        return self._of_rows("representatives_", represented)

    def _moments(self):
        """The ColumnMoments of the clusters, and whether their rows have weights."""

        def moments_of(rows):
            return cluster_moments(*self._used_rows(rows), self.n_clusters_)

        return self._of_rows("profiles_", moments_of), self._fitted_rows.weighted

    def _used_rows(self, rows):
        """The rows of a fit as they are described, their weights and labels."""
        return rows.X, rows.weight, rows.labels

    def _gains(self, moments):
        """By how much a row is nearer to its own center than to the mean of all, in each column."""
        delta = mean_differences(moments)
        delta[:, self._left_out()] = 0.0
        metric = getattr(self, "metric_", None)
        if metric is None:
            return np.square(delta)
        weight = moments.weight[:-1]
        within = (weight * moments.variance[:-1]).sum(axis=0) / weight.sum(axis=0)
        return parts_of_squares(delta, metric, np.sqrt(within))

    def _left_out(self):
        """Columns in which all centers are the same, so that they do not matter for labels."""
        centers = self.cluster_centers_
        return (centers == centers[:1]).all(axis=0)

    def _mean_cost(self, moments):
        """What a row costs by its own center, on average."""
        return self.inertia_ / moments.weight[-1, 0]

    def _cluster_distances(self, X):
        """Distances of rows, of the fit or some of them, from all clusters."""
        plain = copy_of(self)
        vars(plain).pop("feature_names_in_", None)  # these rows are checked already
        return plain.transform(X.astype(np.float64))
