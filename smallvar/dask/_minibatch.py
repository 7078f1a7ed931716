"""Mini-batch DP-means on dask collections, each partition a batch.

The fit is a chain of ``partial_fit`` calls, one for each partition: the model of one call is the
input of the next, and moves between workers. Only the last model returns to the driver.
"""

import copy
from typing import Any, Literal, Self

import numpy as np
from dask import delayed
from numpy.typing import ArrayLike, NDArray

import smallvar
from smallvar._core.estimator import (
    check_parameters,
    keywords_only,
    learned_attributes,
    with_learned,
)
from smallvar._core.validation import as_weights, check_flag
from smallvar.dask._collection import CollectionParts
from smallvar.dask._executor import current_client, explain_failure, name_partition
from smallvar.dask._lazy import LazyMethods, lazy_result


def _updated(model, number, X, weight):
    """Copy of the model, fitted to one more partition; without weight there, the model itself.

    ``model`` stays as it was, as dask may run a task twice.
    """
    if weight is not None:
        with name_partition(number):
            weight = as_weights(weight, X.shape[0])
    if X.shape[0] == 0 or (weight is not None and not weight.any()):
        return model
    model = copy.copy(model)
    with name_partition(number):
        return model.partial_fit(X, sample_weight=weight)


class MiniBatchDPMeans(LazyMethods, smallvar.MiniBatchDPMeans):
    """DP-means from the partitions of dask collections, one after another: a single pass.

    Follows the objective of :class:`smallvar.DPMeans`,

        sum_i w_i ||x_i - mu_{z_i}||^2 + lam * K,

    one partition at a time, in their order. The result is, bit for bit, that of
    ``smallvar.MiniBatchDPMeans.partial_fit`` called with one partition after another. The model is
    sent to the data, each partition is read once, and none has to stay in memory. One worker is
    busy at a time; :class:`smallvar.dask.DPMeans` keeps all of them busy, and reaches a fixed
    point.

    Runs on the dask client of the process, or on threads of this process where there is none.

    Parameters
    ----------
    lam : float, "auto" or "farthest-first", default="auto"
        Penalty for each cluster, in squared data units, > 0 (0 is allowed together with
        ``max_clusters``): the squared distance at which a cluster opens. "auto" and
        "farthest-first" derive it from the first partition with rows. "auto" chooses it again from
        later ones, as :class:`smallvar.MiniBatchDPMeans` does, while none has shown several
        clusters; otherwise the others keep it.
    n_clusters : int, "auto" or None, default=None
        The exact number of clusters, if ``lam`` is "auto": the merge path of the first partition
        with rows is cut there, and no later row opens another cluster. At most ``max_clusters`` and
        the number of distinct rows of that partition. None or "auto": the merge path chooses the
        number, and later rows may open clusters.
    guess : int, default=8
        Guess of the number of clusters for ``lam="farthest-first"``.
    max_clusters : int, default=None
        Never have more clusters than this.
    half_life : float, default=None
        The weight of later rows after which a row counts half; those of a partition are of the same
        age, as for ``partial_fit`` of :class:`smallvar.MiniBatchDPMeans`. None: all rows count the
        same.
    init : "mean" or array-like of shape (n_centers, n_features), default="mean"
        Starting centers; "mean" is the mean of the first partition. They carry no weight.
    random_state : int, RandomState instance or None, default=None
        Generator of the path of ``lam="auto"``.
    verbose : int, default=0
        Passed on to the path of ``lam="auto"``, which prints where the workers print.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (n_clusters, n_features), float64
        Running means of the clusters, in order of creation.
    cluster_weights_ : ndarray of shape (n_clusters,), float64
        Total weight of the rows each center was given so far; with ``half_life``, what is left of
        it.
    labels_ : dask Array of shape (n_samples,), int32
        Nearest center of each row of the collection. Lazy.
    n_clusters_ : int
        Number of clusters.
    inertia_ : float
        Weighted sum of squared distances of the last partition.
    objective_ : float
        ``inertia_ + lam_ * n_clusters_``.
    lam_ : float
        The penalty used.
    n_steps_ : int
        Partitions seen, those without rows (or weight) not counted.
    n_iter_ : int
        1.
    path_ : ClusterPath
        The merge path behind ``lam="auto"``, with that only: of the partition from which the
        penalty was chosen.
    n_features_in_ : int
        Number of columns of the data.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the columns of a DataFrame, if all are strings.

    Raises
    ------
    ValueError, TypeError
        As from :class:`smallvar.MiniBatchDPMeans`, with the number of the partition.
    RuntimeError
        If workers die again and again, or the scheduler is lost. The estimator is then as it was
        before.

    See Also
    --------
    smallvar.MiniBatchDPMeans : Random batches of data on one machine, in several passes.
    smallvar.dask.DPMeans : All partitions at once, to a fixed point.

    References
    ----------
    As for :class:`smallvar.MiniBatchDPMeans`.

    Examples
    --------
    >>> import dask.array as da
    >>> import numpy as np
    >>> from smallvar.dask import MiniBatchDPMeans
    >>> X = np.array([[0.0, 0.0], [9.0, 9.0], [0.0, 1.0], [0.0, 9.0]])
    >>> model = MiniBatchDPMeans(lam=4.0).fit(da.from_array(X, chunks=(2, 2)))
    >>> model.n_clusters_, model.n_steps_
    (3, 2)
    >>> model.labels_.compute()
    array([0, 1, 0, 2], dtype=int32)
    """

    _local = smallvar.MiniBatchDPMeans
    cluster_weights_: NDArray[np.float64]

    @keywords_only
    def __init__(
        self,
        *,
        lam: float | Literal["auto", "farthest-first"] = "auto",
        n_clusters: int | Literal["auto"] | None = None,
        guess: int = 8,
        max_clusters: int | None = None,
        half_life: float | None = None,
        init: Literal["mean"] | ArrayLike = "mean",
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.lam = lam
        self.n_clusters = n_clusters
        self.guess = guess
        self.max_clusters = max_clusters
        self.half_life = half_life
        self.init = init
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: object = None, sample_weight: Any = None) -> Self:
        """Cluster the data in one pass over the partitions, from scratch.

        Parameters
        ----------
        X : dask Array or DataFrame of shape (n_samples, n_features)
            Data; a partition is a batch. All columns in one chunk.
        y : None
            Ignored.
        sample_weight : dask Array or Series, or array-like, of shape (n_samples,), default=None
            Weights >= 0. A dask collection must have the partitions of X.

        Returns
        -------
        self : MiniBatchDPMeans
            The fitted estimator.
        """
        return self._fit_partitions(self._as_local(), X, sample_weight)

    def partial_fit(self, X: Any, y: object = None, sample_weight: Any = None) -> Self:
        """Go on with one pass over the partitions of more data.

        Parameters
        ----------
        X : dask Array or DataFrame of shape (n_samples, n_features)
            Data; a partition is a batch.
        y : None
            Ignored.
        sample_weight : dask Array or Series, or array-like, of shape (n_samples,), default=None
            Weights >= 0.

        Returns
        -------
        self : MiniBatchDPMeans
            The updated estimator.
        """
        fitted = hasattr(self, "cluster_centers_")
        return self._fit_partitions(
            self.to_local(labels=False) if fitted else self._as_local(), X, sample_weight
        )

    def predict_proba(self, X: Any, *, unknown: bool = False) -> Any:
        """Return the probability of each cluster for each row, as that of one machine does.

        Parameters
        ----------
        X : dask Array or DataFrame, or array-like, of shape (n_samples, n_features)
            New data.
        unknown : bool, default=False
            Add a last column: the probability that the row belongs to no known cluster.

        Returns
        -------
        probabilities : dask Array of shape (n_samples, n_clusters) or (n_samples, n_clusters + 1)
            Lazy; an ndarray if X is not a dask collection.
        """
        check_flag(unknown, "unknown")
        return self._mapped("predict_proba", X, unknown=unknown)

    def score_samples(self, X: Any) -> Any:
        """Return the log density of each row under the mixture of ``predict_proba``.

        Parameters
        ----------
        X : dask Array or DataFrame, or array-like, of shape (n_samples, n_features)
            New data.

        Returns
        -------
        log_density : dask Array of shape (n_samples,), float64
            Lazy; an ndarray if X is not a dask collection.
        """
        return self._mapped("score_samples", X)

    def outlier_scores(self, X: Any) -> Any:
        """Return how strange each row is, as that of one machine does.

        Parameters
        ----------
        X : dask Array or DataFrame, or array-like, of shape (n_samples, n_features)
            New data.

        Returns
        -------
        scores : dask Array of shape (n_samples,), float64
            Lazy; an ndarray if X is not a dask collection.
        """
        return self._mapped("outlier_scores", X)

    def _fit_partitions(self, model, X, sample_weight):
        """Fit a local estimator to one partition after another, and take over its attributes."""
        check_parameters(model)
        parts = CollectionParts(X, sample_weight)
        with current_client() as client:
            chain = model  # becomes the delayed result of the last call
            pairs = zip(parts.rows, parts.weights, strict=True)
            for p, (rows, weight) in enumerate(pairs):
                chain = delayed(_updated)(chain, p, rows, weight)
            model = explain_failure(client, lambda: client.compute(chain).result())
        if not hasattr(model, "cluster_centers_"):
            raise ValueError("X must have a row of positive weight, got none in any partition")
        with_learned(self, learned_attributes(model))
        self.labels_ = lazy_result(self.to_local(labels=False), "predict", parts)
        return self
