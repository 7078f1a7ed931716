"""``fit`` and ``partial_fit``: estimators of smallvar, fitted to dask collections.

First what of an estimator can be honored, then the rows of a collection as a fit needs them, then
the two functions. The sweeps over partitions are in _sweep.py.
"""

from contextlib import contextmanager
from functools import partial
from typing import Any, Literal, TypeVar

import numpy as np
from dask import delayed
from scipy.sparse import vstack
from sklearn.base import clone
from sklearn.utils import check_random_state

import smallvar
from smallvar._centers.dpmeans import RowsProblem
from smallvar._centers.sphere_problem import ERROR_SHARE, SphereProblem, as_directions
from smallvar._centers.starts import DPProblem, Start
from smallvar._centers.unit_rows import length_rounding, warn_of_zero_rows
from smallvar._core.estimator import (
    at_the_end,
    check_parameters,
    copy_of,
    fit_elsewhere,
    learn_columns,
    learned_attributes,
    warn_not_converged,
    with_learned,
)
from smallvar._core.fitted_rows import keep_sample
from smallvar._core.validation import as_weights, check_flag, check_number, check_option, some_rows
from smallvar.dask._executor import (
    Executor,
    Parts,
    check_not_split,
    checked_block,
    concatenated_names,
    current_client,
    explain_failure,
    name_partition,
    should_hold,
)
from smallvar.dask._part import (
    MAX_OPENED,
    CollectionFrame,
    gather_facts,
    merge_dicts,
    overall_mean,
)
from smallvar.dask._predict import SUPPORTED, labels_of_parts, labels_of_sets, supported
from smallvar.dask._sweep import CollectionHDPSweep, CollectionSweep

Model = TypeVar("Model", bound=Any)

CHOICE_ROWS = 200_000  # rows from which the data choose the number of clusters
# numbers in the rows from which probabilities are measured, of more than MODEL_ROWS rows
MODEL_NUMBERS, MODEL_ROWS = 1 << 20, 10_000


def check_supported(model, kind):
    """Raise a ValueError for a parameter of the model that cannot be honored for partitions."""
    check_parameters(model)
    defaults = kind().get_params(deep=False)
    for name in SUPPORTED[kind]:
        value, default = getattr(model, name), defaults[name]
        if value is not default and value != default:
            raise ValueError(f"{name} must be {default!r} for a dask collection, got {value!r}")
    for name, words in (("algorithm", ("collapsed", "merge")), ("lam", ("farthest-first",))):
        value = getattr(model, name, None)
        if isinstance(value, str) and value in words and kind is not smallvar.MiniBatchDPMeans:
            raise ValueError(f"{name} must not be {value!r} for a dask collection")
    if kind is smallvar.HDPMeans:
        for name in ("lam_local", "lam_global"):
            if isinstance(getattr(model, name), str):
                raise ValueError(
                    f"{name} must be a number > 0 for a dask collection, got "
                    f"{getattr(model, name)!r}: fit smallvar.HDPMeans to a sample of whole data "
                    f"sets and take its {name}_"
                )


# ---- the rows of a collection --------------------------------------------------------------------


def take_rows(parts, shared, each):
    """Chosen rows of each partition, their weights and data sets: a dict by partition.

    ``each`` are the indices of the rows within each partition. ``shared`` is not used.
    """
    return {
        p: (
            some_rows(block.X, rows),
            None if block.weight is None else block.weight[rows],
            None if block.sets is None else block.sets.names[block.sets.number[rows]],
        )
        for (p, block), rows in zip(parts, each, strict=True)
    }


class CollectionRows:
    """The rows of the partitions of an executor, as ``fit_elsewhere`` needs them."""

    def __init__(self, executor, facts, max_opened, spherical):
        self.executor, self.facts, self.max_opened = executor, facts, max_opened
        self.spherical = spherical
        self.n_samples, self.n_features = sum(facts.sizes.values()), facts.low.shape[1]
        self.drawn = None

    def sample(self, rng, most):
        """At most ``most`` random rows, in order, their weights (None: all 1) and data sets."""
        if self.drawn is not None:
            return self.drawn
        facts, partitions, n = self.facts, self.executor.numbers, self.n_samples
        ends = np.cumsum([facts.sizes[p] for p in partitions])
        rows = np.arange(n) if n <= most else np.sort(rng.choice(n, most, replace=False))
        chosen = np.split(rows, np.searchsorted(rows, ends[:-1]))
        # indices within each partition
        each = {
            p: part - (end - facts.sizes[p])
            for p, part, end in zip(partitions, chosen, ends, strict=True)
        }
        taken = merge_dicts(self.executor.call(take_rows, None, each))
        X, weight, sets = zip(*(taken[p] for p in partitions), strict=True)
        self.drawn = (
            vstack(X, format="csr") if facts.sparse else np.concatenate(X),
            None if facts.unit_weights else np.concatenate(weight),
            np.concatenate(sets) if facts.used else None,
        )
        return self.drawn

    def problem(self, fit, rng, n_threads):
        """The DPProblem of a fit."""
        return PartitionsProblem(fit, self, rng, n_threads)

    def sweep(self, lam_local, lam_global):
        """The sweep of the hard HDP, from the mean of all rows; sets the ``names`` of data sets."""
        executor, facts = self.executor, self.facts
        check_not_split(dict(sorted(facts.names.items())))
        frame = CollectionFrame(executor, facts)
        center = overall_mean(executor, frame)
        # number the data sets of all partitions in the order of their names
        names = [facts.used[p] for p in executor.numbers]
        sets = concatenated_names(names)
        ends = np.cumsum([len(part) for part in names])[:-1]
        numbers = dict(zip(executor.numbers, np.split(sets.number, ends), strict=True))
        self.names = sets.names
        self.hdp_sweep = CollectionHDPSweep(
            executor, frame.layout, center, numbers, lam_local, lam_global, self.max_opened
        )
        return self.hdp_sweep


class PartitionsProblem(DPProblem):
    """The rows of all partitions, as starts of DP-means need them; of length 1 if ``spherical``.

    ``sampled`` are the rows, and their weights, that the merge path is made of, if there is one.
    """

    def __init__(self, fit, rows, rng, n_threads):
        super().__init__(fit)
        self.rows, self.sampled, self.adopts = rows, (None, None), not rows.spherical
        if fit.lam is None:
            self.sampled = X, weight = rows.sample(rng, CHOICE_ROWS)[:2]
            kind = SphereProblem if rows.spherical else RowsProblem
            self.sample = kind(fit, X, weight, n_threads)
            # errors, so penalties, grow with the weight of the rows
            total = X.shape[0] if weight is None else float(weight.sum())
            self.share = rows.facts.total_weight / total if X.shape[0] < rows.n_samples else 1.0

    def start(self, point):
        """The Start at the given centers, or else at the mean or, of directions, the first row."""
        rows, facts, centers, sums = self.rows, self.rows.facts, point.centers, {}
        if rows.spherical:
            centers = facts.first[1][None] if centers is None else centers
            if self.fit.lam is None:  # centers from a path are means, of any length
                centers = as_directions(centers, *self.sampled, self.sample.n_threads)
            # sums of directions are about 0; only the type counts for the rounding of lengths
            rounding = length_rounding(np.empty(0, np.result_type(*facts.dtypes)))
            sums = {"sums_from": np.zeros(rows.n_features), "rounding": rounding}
        frame = CollectionFrame(rows.executor, facts, centers, **sums)
        are_means = centers is None
        if are_means:
            centers = overall_mean(rows.executor, frame).reshape(1, -1)
        settings = rows.n_samples, rows.max_opened, rows.spherical
        sweep = CollectionSweep(rows.executor, frame, *settings)
        share = ERROR_SHARE if rows.spherical else 1.0
        return Start(point, sweep, centers, are_means, share=share)

    def path(self, rng):
        """The merge path of the sample."""
        return self.sample.path(rng)

    def penalty(self, path):
        """The penalty of a path, for all rows."""
        return self.share * self.sample.penalty(path)


@contextmanager
def opened_rows(client, parts, model, persist, max_opened):
    """Context with the CollectionRows of ``parts``, checked as ``model`` checks rows."""
    prepare, facts = partial(checked_block, clone(model), parts.n_features), None
    if persist == "auto":
        if parts.sizes is None:  # the size of the data is known after one pass over it
            facts = gather_facts(Executor(client, parts.each, prepare, False))
        n = sum(parts.sizes if facts is None else facts.all_sizes.values())
        persist = should_hold(client, parts.collection, parts.row_bytes * n)
    executor = Executor(client, parts.each, prepare, persist)
    try:
        facts = facts or gather_facts(executor)
        executor.restrict(p for p, size in facts.sizes.items() if size)
        parts.sizes = [facts.all_sizes[p] for p in range(len(parts.each))]
        spherical = isinstance(model, smallvar.SphericalDPMeans)
        yield CollectionRows(executor, facts, max_opened, spherical)
    finally:
        executor.close()


# ---- fits ----------------------------------------------------------------------------------------


def fit(
    model: Model,
    X: Any,
    *,
    sample_weight: Any = None,
    groups: Any = None,
    persist: bool | Literal["auto"] = "auto",
    max_opened: int = MAX_OPENED,
    labels: bool = True,
) -> Model:
    """Fit an estimator of smallvar to a dask collection, with the result of one machine.

    For given penalties, labels, centers, objectives and the number of sweeps are those of
    ``model.fit`` on all rows, bit for bit, for any partitions and workers, also if workers die. It
    runs on the dask client of the process, or on threads of this process where there is none.

    Parameters
    ----------
    model : DPMeans, SphericalDPMeans, MiniBatchDPMeans, HDPMeans or ShapeMeans
        The estimator. A parameter that cannot be honored for partitions raises.
    X : dask Array or DataFrame of shape (n_samples, n_features)
        Data, in partitions of any length; dense or, in a dask array, CSR blocks. All columns in
        one chunk.
    sample_weight : dask Array or Series, or array-like, of shape (n_samples,), default=None
        Weights >= 0, not all zero; None means 1 each. A dask collection must have the partitions
        of X.
    groups : dask Array or Series, or array-like, or a column name, default=None
        For HDPMeans: the data set of each row, whole in one partition. A name is that of a column
        of a DataFrame, which is then not part of the data.
    persist : bool or "auto", default="auto"
        Whether the workers hold the data in memory during the fit. "auto": if it takes no more
        than half of their memory. Otherwise every sweep reads the data again, with the same result.
    max_opened : int, default=100_000
        Clusters that one partition may open in a sweep of DPMeans, SphericalDPMeans or HDPMeans.
        Beyond that the fit fails: the penalty is too small for so many rows.
    labels : bool, default=True
        Whether the model gets ``labels_`` (and ``local_labels_`` for HDPMeans), lazy dask arrays.
        These hold the data that X is made of: a model to be pickled is better without.

    Returns
    -------
    model : estimator
        The same object, fitted; if the fit fails it stays as it was. Its methods take arrays,
        the functions of this module dask collections.

    Raises
    ------
    ValueError, TypeError
        For data that are not finite, numeric and two-dimensional, with the number of the partition,
        and for parameters out of their bounds or that cannot be honored.
    RuntimeError
        If workers die again and again, the scheduler is lost, or too many clusters open.

    Notes
    -----
    The data choose the number of clusters (``lam="auto"``, ``n_clusters``, ShapeMeans) on a random
    sample of 200,000 rows, or on all if there are no more. MiniBatchDPMeans takes each partition as
    a batch, in order, as ``partial_fit`` does. The rows of ShapeMeans belong to the cluster of
    their nearest piece. Probabilities and outlier scores are measured on a sample, too.
    ``n_threads`` counts for work in this process; a task takes the threads of its worker.

    References
    ----------
    Pan, Gonzalez, Jegelka, Broderick & Jordan (2013), Optimistic concurrency control for
    distributed unsupervised learning.

    Examples
    --------
    >>> import dask.array as da
    >>> import smallvar.dask
    >>> from sklearn.datasets import make_blobs
    >>> rows, _ = make_blobs(3000, centers=5, random_state=3)
    >>> X = da.from_array(rows, chunks=(800, 2))
    >>> model = smallvar.dask.fit(smallvar.DPMeans(lam=40.0), X)
    >>> model.n_clusters_
    5
    >>> model.labels_[:4].compute()
    array([1, 3, 1, 2], dtype=int32)
    >>> model.predict(rows[:4])
    array([1, 3, 1, 2], dtype=int32)
    """
    kind = supported(model)
    if not isinstance(persist, bool):
        check_option(persist, "persist", ("auto",))
    check_number(max_opened, "max_opened", low=1, integer=True)
    if kind is not smallvar.HDPMeans and groups is not None:
        raise ValueError(f"groups must be None for {kind.__name__}: they are for HDPMeans")
    if kind is smallvar.HDPMeans and groups is None:
        raise ValueError(
            "groups must say which data set each row is from, got None: all rows from one "
            "are for the method fit of HDPMeans"
        )
    if kind is smallvar.MiniBatchDPMeans:
        if persist != "auto" or max_opened != MAX_OPENED:
            raise ValueError(
                "persist and max_opened must have their defaults for MiniBatchDPMeans, which reads "
                f"each partition once, got {persist!r} and {max_opened!r}"
            )
        return _fit_batches(model, X, sample_weight, labels, True)
    return _fit_rows(model, X, sample_weight, groups, persist, max_opened, labels)


def partial_fit(model: Model, X: Any, *, sample_weight: Any = None, labels: bool = True) -> Model:
    """Update a MiniBatchDPMeans with one partition of a dask collection after another.

    Parameters
    ----------
    model : MiniBatchDPMeans
        The estimator, fitted or not.
    X : dask Array or DataFrame of shape (n_samples, n_features)
        Data; a partition is a batch. The model is sent to the data, each partition is read once.
    sample_weight : dask Array or Series, or array-like, of shape (n_samples,), default=None
        Weights >= 0.
    labels : bool, default=True
        Whether the model gets ``labels_``, a lazy dask array of the labels of X.

    Returns
    -------
    model : MiniBatchDPMeans
        The same object, updated; if that fails it stays as it was.

    Examples
    --------
    >>> import dask.array as da
    >>> import numpy as np
    >>> import smallvar.dask
    >>> X = da.from_array(np.array([[0.0, 0.0], [9.0, 9.0], [0.0, 1.0], [0.0, 9.0]]), chunks=(2, 2))
    >>> model = smallvar.dask.partial_fit(smallvar.MiniBatchDPMeans(lam=4.0), X)
    >>> model.n_clusters_, model.n_steps_
    (3, 2)
    """
    if supported(model) is not smallvar.MiniBatchDPMeans:
        raise TypeError(f"model must be a MiniBatchDPMeans, got {type(model).__name__}")
    return _fit_batches(model, X, sample_weight, labels, False)


@at_the_end
def _fit_rows(model, X, sample_weight, groups, persist, max_opened, labels):
    """Fit a model, a copy of the user's, to a collection."""
    kind = supported(model)
    check_supported(model, kind)
    check_flag(labels, "labels")
    parts = Parts(X, sample_weight, groups)
    with_learned(model, {})
    with (
        current_client() as client,
        opened_rows(client, parts, model, persist, max_opened) as rows,
    ):
        rng, ended = check_random_state(model.random_state), True
        if rows.spherical:
            warn_of_zero_rows(sum(parts.sizes) - rows.n_samples)
        learn_columns(model, parts.no_rows().astype(np.result_type(*rows.facts.dtypes)))
        if kind is smallvar.ShapeMeans:
            some, weight, _ = rows.sample(rng, CHOICE_ROWS)
            model.fit(some, sample_weight=weight)
            learn_columns(model, parts.no_rows().astype(some.dtype))
            known = model.labels_, None, model.pieces_
            del model.pieces_
        else:
            ended = fit_elsewhere(model, rows)
            most = min(CHOICE_ROWS, max(MODEL_ROWS, MODEL_NUMBERS // rows.n_features))
            some, weight, names = rows.sample(rng, most)
            of_sets = (
                {"groups": names, "sample_weight": weight} if kind is smallvar.HDPMeans else {}
            )
            unnamed = copy_of(model)  # which takes arrays
            vars(unnamed).pop("feature_names_in_", None)
            known = unnamed.predict(some, **of_sets), model.cluster_centers_
        keep_sample(model, rows.facts.total_weight, (some, weight, *known))
        del model.labels_
        if kind is smallvar.HDPMeans:
            del model.local_labels_
        if labels and kind is smallvar.HDPMeans:
            model.labels_, model.local_labels_ = labels_of_sets(model, parts, rows.hdp_sweep)
        elif labels:
            model.labels_ = labels_of_parts(model, parts)
    if not ended:
        warn_not_converged(model, model.n_iter_)


def _updated(model, number, X, weight, _):
    """Copy of the model, fitted to one more partition; without weight there, the model itself.

    ``model`` stays as it was, as dask may run a task twice.
    """
    with name_partition(number):
        if weight is not None:
            weight = as_weights(weight, X.shape[0])
        if X.shape[0] == 0 or (weight is not None and not weight.any()):
            return model
        return copy_of(model).partial_fit(X, sample_weight=weight)


@at_the_end
def _fit_batches(model, X, sample_weight, labels, afresh):
    """Fit a model, a copy of the user's, to one partition after another."""
    check_supported(model, smallvar.MiniBatchDPMeans)
    check_flag(labels, "labels")
    parts = Parts(X, sample_weight)
    if afresh:
        with_learned(model, {})
    vars(model).pop("labels_", None)
    with current_client() as client:
        chain = model  # becomes the delayed result of the last call
        for p, part in enumerate(parts.each):
            chain = delayed(_updated)(chain, p, *part)
        fitted = explain_failure(client, lambda: client.compute(chain).result())
    if not hasattr(fitted, "cluster_centers_"):
        raise ValueError("X must have a row of positive weight, got none in any partition")
    with_learned(model, learned_attributes(fitted))
    keep_sample(model, float(model.cluster_weights_.sum()))
    del model.labels_
    if labels:
        model.labels_ = labels_of_parts(model, parts)
