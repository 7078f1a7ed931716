"""The base class of all estimators, and functions on estimators.

``keywords_only`` and ``named_parameters`` decorate ``__init__``; ``FitMixin`` makes a fit change
its estimator at the end, in one step; ``Estimator`` checks data and holds threads, units of weight
and settings of the loop.
"""

import difflib
import functools
import inspect
import os
import reprlib
import threading
import warnings
from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from numbers import Real
from typing import Any, ParamSpec

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from smallvar._core.config import resolve_threads
from smallvar._core.fit_loop import LoopSettings
from smallvar._core.profiles import library_of
from smallvar._core.progress import (
    CallbackMixin,
    as_root_task,
    callback_for,
    callbacks_wanted,
    in_unit,
)
from smallvar._core.tables import GAPS_ALLOWED, opened, types_of
from smallvar._core.validation import (
    DTYPES,
    aligned,
    check_number,
    check_sparse,
    check_verbose,
    explained,
    is_plain,
    level_of_caller,
    mean_weight,
    realigned,
    relative_weights,
    sparse_rows,
    taken_by,
)

P = ParamSpec("P")

# What a positional number may have meant: the error of ``keywords_only`` names those there are.
MEANT = (
    "min_cosine", "lam", "lam_switch", "lam_local", "lam_global", "price", "n_clusters", "guess",
    "n_components",
)  # fmt: skip

# What other programs call a parameter: the error for it names the first of these that there is.
SYNONYMS = {
    **dict.fromkeys(
        [
            "k",
            "K",
            "n_components",
            "n_cluster",
            "num_clusters",
            "nclusters",
            "clusters",
            "n_classes",
        ],
        ("n_clusters", "n_components", "guess"),
    ),
    **dict.fromkeys(["max_k", "k_max", "max_n_clusters"], ("max_clusters", "max_features")),
    **dict.fromkeys(
        ["eps", "epsilon", "radius", "threshold", "distance_threshold"],
        ("lam", "lam_local", "min_cluster_size"),
    ),
    **dict.fromkeys(
        ["lambda_", "lambd", "lmbda", "penalty", "alpha", "delta", "cutoff"], ("lam", "lam_local")
    ),
    **dict.fromkeys(["min_samples", "min_size", "minsize"], ("min_cluster_size",)),
    **dict.fromkeys(["seed", "random_seed", "rng"], ("random_state",)),
    **dict.fromkeys(["n_jobs", "num_threads", "threads"], ("n_threads",)),
    **dict.fromkeys(["n_iter", "max_iterations", "iterations"], ("max_iter",)),
    **dict.fromkeys(["metric", "distance", "affinity"], ("metric", "divergence", "kernel")),
    **dict.fromkeys(["cov", "covariance_type"], ("covariances",)),
}
RADII = ("eps", "epsilon", "radius", "threshold", "distance_threshold")  # distances; lam is not

FITS = "fit", "partial_fit"
IDS_RECORD = "_ids_record"  # the attribute that `renumber` sets, together with cluster_ids_
_changing: dict[int, list[int]] = {}  # id of an estimator being fitted: [id of the thread]
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_changing.clear)  # the child has none of these threads


def keywords_only(init: Callable[P, None]) -> Callable[P, None]:
    """Return an ``__init__`` whose error for positional arguments names keywords for them."""
    names = [name for name in inspect.signature(init).parameters if name in MEANT]
    init = named_parameters(init)

    @functools.wraps(init)  # inspect.signature, help and get_params see the true signature
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
        if len(args) > 1:
            given = [reprlib.repr(value) for value in args[1:]]
            plain = len(given) == 1 and isinstance(args[1], (Real, str))
            ways = [f"{name}={given[0] if plain else '...'}" for name in names]
            raise TypeError(
                f"{type(args[0]).__name__} takes keyword arguments only, got {', '.join(given)}: "
                f"write {' or '.join(ways)}"
            )
        init(*args, **kwargs)

    return wrapped


def named_parameters(init: Callable[P, None]) -> Callable[P, None]:
    """Return an ``__init__`` whose error for an unknown keyword names the one that is meant."""
    known = list(inspect.signature(init).parameters)[1:]

    @functools.wraps(init)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
        for name in kwargs:
            if name not in known:
                raise TypeError(
                    f"{type(args[0]).__name__} has no parameter {name!r}{meant_by(name, known)}"
                    f"{'' if 'kernel' in known else taken_by(kwargs[name])}"
                )
        init(*args, **kwargs)

    return wrapped


def meant_by(name, known):
    """Text: the parameter that a name which is not known may mean; empty if none is like it."""
    near = [word for word in SYNONYMS.get(name, ()) if word in known]
    near += difflib.get_close_matches(name, known, n=1)
    if not near:
        return f", but {', '.join(known)}"
    squared = ", a squared distance" if name in RADII and near[0].startswith("lam") else ""
    return f"; did you mean {near[0]}{squared}?"


def copy_of(estimator):
    """An estimator with the same attributes, not copied: a fit replaces them, as a rule."""
    copy = object.__new__(type(estimator))
    vars(copy).update(vars(estimator))
    return copy


@contextmanager
def working_copy(estimator):
    """Context with a copy of an estimator, which takes over the attributes of the copy at the end.

    They are replaced in one step, so that other threads see all of a fit or nothing. If the block
    fails or is interrupted, the estimator stays as it was. An estimator that is being fitted cannot
    be fitted by anyone else: each would undo the changes of the other.
    """
    thread = [threading.get_ident()]
    try:  # Ctrl-C may come right after the entry is made
        holder = _changing.setdefault(id(estimator), thread)
        if holder is not thread:
            where, each = "in another thread", "thread"
            if holder == thread:
                where, each = "by the fit that calls this callback", "fit"
            raise RuntimeError(
                f"this {type(estimator).__name__} is being fitted {where}; "
                f"use sklearn.base.clone to have one for each {each}"
            )
        before, copy = dict(vars(estimator)), copy_of(estimator)
        yield copy
        # parameters that a callback or another thread has set meanwhile stay
        meanwhile = {
            name: value
            for name, value in vars(estimator).items()
            if name not in before or before[name] is not value
        }
        estimator.__dict__ = vars(copy) | meanwhile
    finally:
        if _changing.get(id(estimator)) is thread:
            _changing.pop(id(estimator), None)


def at_the_end(fit):
    """The method ``fit`` or ``partial_fit``, by which an estimator changes at the end only.

    Also a function of an estimator and data, such as those of ``smallvar.dask``.
    """

    @functools.wraps(fit)
    def changed_at_the_end(self, *args, **options):
        if fit.__name__ != "partial_fit" and callbacks_wanted(self):
            return as_task(self, *args, **options)
        with self._blas(), working_copy(self) as copy:
            if IDS_RECORD in vars(copy):  # ids of `renumber`, for the clusters of one fit
                del copy.cluster_ids_, vars(copy)[IDS_RECORD]
            fit(copy, *args, **options)
        return self

    as_task = as_root_task(changed_at_the_end)
    # functools.wraps of a user copies the mark, but not what it points to
    changed_at_the_end.changes_at_the_end = changed_at_the_end
    return changed_at_the_end


def _of_one_fit(method):
    """A method that reads learned attributes: all of the same fit, whatever other threads do."""

    @functools.wraps(method)
    def with_one_fit(self, *args, **options):
        with self._blas():
            return method(copy_of(self), *args, **options)

    with_one_fit.is_of_one_fit = True
    return with_one_fit


class FitMixin(CallbackMixin):
    """An estimator whose fits change it at their end, in one step, and call all callbacks.

    These are those of ``progress_callback``, and those that scikit-learn 1.9 and newer set on it.
    In notebooks the HTML representation of the estimator has a link to its page.
    """

    _doc_link_module = "smallvar"
    _doc_link_template = (
        "https://smallvar.readthedocs.io/en/stable/generated/"
        "{estimator_module}.{estimator_name}.html"
    )

    _blas = staticmethod(nullcontext)  # the context in which fits and other methods use BLAS

    def __init_subclass__(cls, **options):
        super().__init_subclass__(**options)
        for name in FITS:  # also those of bases that are no estimators
            fit = getattr(cls, name, None)
            if fit is not None and getattr(fit, "changes_at_the_end", None) is not fit:
                setattr(cls, name, at_the_end(fit))
        for name in dir(cls):  # a subclass of a user may keep what its methods set
            method = inspect.getattr_static(cls, name)
            ours = inspect.isfunction(method) and method.__module__.startswith("smallvar.")
            if ours and not name.startswith(("_", *FITS)) and not hasattr(method, "is_of_one_fit"):
                setattr(cls, name, _of_one_fit(method))


def warn_not_converged(estimator, n_iter, where="", cause="", remedy=""):
    """Warn that ``max_iter`` ended the loop; ``n_iter`` counts all sweeps, the texts are added."""
    most = estimator.max_iter
    note = f" ({n_iter} with those that opened clusters or features)" if n_iter > most else ""
    warnings.warn(
        f"{type(estimator).__name__} did not converge in max_iter={most} sweeps{where}{note}"
        f"{cause}; increase max_iter{' or tol' if hasattr(estimator, 'tol') else ''}{remedy}.",
        ConvergenceWarning,
        stacklevel=level_of_caller(),
    )


def usable_rows(estimator, X):
    """Checked rows of a fit that an estimator can use, and their numbers (None: all)."""
    return estimator._usable_rows(estimator._validate(X, reset=True))


def rows_as_fitted(estimator, X):
    """Checked rows with the columns of the fit of an estimator."""
    return estimator._validate(X, reset=False)


def check_parameters(estimator):
    """Raise if a parameter of an estimator is out of its bounds."""
    estimator._check_parameters()


def learn_columns(estimator, X):
    """Set the number of columns of an estimator, and their names if they have any."""
    estimator._validate(X, reset=True, least=0)


def check_columns(estimator, X):
    """Raise if the columns of X, which may have no rows, are not those of the fit."""
    estimator._validate(X, reset=False, least=0)


def fit_elsewhere(estimator, rows):
    """Fit an estimator to rows that are not in memory; returns whether its sweeps ended.

    ``rows`` has ``n_samples`` and ``n_features``, and makes what the fit needs of the rows: the
    ``problem`` of starts of DP-means, or ``names`` and ``sweep`` of data sets.
    """
    return estimator._fit_elsewhere(rows)


def callback_of(estimator):
    """The callback for every step of the fit of an estimator; None if there is none."""
    return estimator._callback()


def check_fitted(estimator):
    """Raise if an estimator is not fitted; faster than ``check_is_fitted`` if it is."""
    if "n_features_in_" not in vars(estimator):
        check_is_fitted(estimator)


def learned_attributes(estimator):
    """The attributes that ``fit`` has set: all except parameters and callbacks."""
    parameters, callbacks = estimator.get_params(deep=False), ("_skl_", "_callback_", "_parent_")
    return {
        name: attribute
        for name, attribute in vars(estimator).items()
        if name not in parameters and not name.startswith(callbacks)
    }


def with_learned(estimator, attributes):
    """The estimator, its learned attributes replaced by these."""
    for name in learned_attributes(estimator):
        delattr(estimator, name)
    vars(estimator).update(attributes)
    return estimator


class Estimator(FitMixin, BaseEstimator):
    """Base of all estimators: checks of data, threads, units of weight, settings of starts."""

    n_features_in_: int
    feature_names_in_: NDArray[Any]
    _dtypes: tuple[type, ...] = DTYPES  # of data that are not converted
    _dtype: type[np.floating] | None = None  # of the data of the last fit; None: is not kept
    _gaps_advice = GAPS_ALLOWED  # what the error for a missing value says
    _error_share = 1.0  # factor of a squared distance in the objective

    _takes_sparse = False
    _unit = 1.0  # the fit is computed with weights divided by this unit
    _varying: NDArray[np.bool_] | None = None  # mask of the columns used; None: all
    _library: str | None = None  # of the table that was fitted; None: an array

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self._takes_sparse
        return tags

    def __setstate__(self, state):
        super().__setstate__(state)
        # arrays that were pickled may lie at other addresses than compiled code needs
        vars(self).update(realigned(vars(self)))

    def _validate(self, X: Any, *, reset: bool, least: int = 1) -> NDArray[np.floating]:
        """Checked data, at least so many rows; of a fit, which sets the columns, if ``reset``."""
        if reset:
            self._note_library(X)
        # arrays as they should be skip scikit-learn's checks, which take longer than small fits
        if not (is_plain(X, self._dtypes, least) and self._takes_columns(X.shape[1], reset)):
            X = check_sparse(opened(X), type(self).__name__, self._takes_sparse)
            with explained(X, self._gaps_advice):
                X = validate_data(
                    self,
                    X,
                    reset=reset,
                    dtype=types_of(X, self._dtypes),
                    accept_sparse="csr" if self._takes_sparse else False,
                    order=None,
                    copy=False,
                    ensure_min_samples=least,
                )
            X = sparse_rows(X) if issparse(X) else aligned(X)
        if reset and self._dtype is not None:
            self._dtype = X.dtype.type
        return X

    def _note_library(self, X):
        """Set the library of the table that is fitted, which tables of results are of, too."""
        self._forget("_library")
        library = None if type(X) is np.ndarray else library_of(X)
        if library is not None:
            self._library = library

    def _usable_rows(self, X):
        """The rows that can be used, and their numbers; None where these are all."""
        return X, None

    def _takes_columns(self, count, reset):
        """Set the number of columns (no names); if not ``reset``, whether the fit had as many."""
        attributes = vars(self)
        if not reset:
            same = attributes.get("n_features_in_") == count
            return same and "feature_names_in_" not in attributes
        attributes.pop("feature_names_in_", None)
        self.n_features_in_ = count
        return True

    def _threads(self):
        """The number of threads, from the checked parameter; 1 if there is none."""
        return resolve_threads(getattr(self, "n_threads", 1))

    def _rng(self):
        """The random generator of ``random_state``."""
        return check_random_state(self.random_state)

    def _callback(self):
        """The callback for every step of the fit; None if there is none."""
        return in_unit(callback_for(self.verbose, self), self._unit)

    def _relative(self, weight, relative=True, *, to_mean=False, **options):
        """The weights in units of the lightest or, ``to_mean``, of their mean; sets ``_unit``."""
        self._forget("_unit")
        if relative:
            weight, unit = relative_weights(weight, **options)
            if to_mean and weight is not None:
                mean = mean_weight(weight)
                weight, unit = weight / mean, mean * unit
            if unit != 1.0:
                self._unit = unit  # objective and penalty are multiplied by it after the fit
        return weight

    def _forget(self, *names):
        """Delete learned attributes, those there are."""
        for name in names:
            vars(self).pop(name, None)

    def _columns(self, X):
        """The columns that are used, of rows, centers or features."""
        return X if self._varying is None else np.ascontiguousarray(X[:, self._varying])

    def _multiply(self, *names):
        """Multiply learned attributes, those there are, by the unit of weight of the fit."""
        unit = self._unit
        for name in names if unit != 1.0 else ():
            if not hasattr(self, name):
                continue
            value = getattr(self, name)
            setattr(self, name, value._in_unit(unit) if name == "path_" else value * unit)
            if name.startswith("objective") and not np.isfinite(getattr(self, name)).all():
                raise ValueError(
                    "sample_weight must not take the objective beyond the range of float64, got "
                    f"weights from {unit:.3g} on: rescale them"
                )

    def _learn_common(self, fitted):
        """Set what all fits by starts of DP-means learn, with the weights that were given."""
        self.labels_, self.n_clusters_ = fitted.labels, fitted.n_clusters
        self.inertia_, self.objective_ = fitted.inertia, fitted.objective
        self.objective_path_ = fitted.objective_path
        self.lam_, self.n_iter_ = fitted.lam, fitted.n_iter
        self._forget("path_")
        if fitted.path is not None:
            self.path_ = fitted.path.seen()
        self._multiply("inertia_", "objective_", "objective_path_", "lam_", "path_")

    def _loop(self):
        """The settings that say when the sweeps of a start end."""
        return LoopSettings(self.max_iter, float(self.tol), self._callback())

    def _check_starts(self):
        """Raise unless the parameters of starts and sweeps that there are are within bounds."""
        check_verbose(self.verbose)
        for name in ("max_clusters", "n_init", "max_iter"):
            if hasattr(self, name):
                most, value = name == "max_clusters", getattr(self, name)
                check_number(value, name, low=1, integer=True, none=most)
        check_number(self.tol, "tol", low=0)


class LabelsMixin(ClusterMixin):
    """An estimator whose ``fit`` sets ``labels_``."""

    def fit_predict(
        self, X: Any, y: object = None, sample_weight: ArrayLike | None = None, **others: Any
    ) -> NDArray[np.int32]:
        """Fit and return the labels of the data.

        Parameters
        ----------
        X : array-like or table of shape (n_samples, n_features)
            Data, as for ``fit``.
        y : None
            Ignored.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights, as for ``fit``.
        **others : dict
            ``must_link`` and ``cannot_link``, or ``groups``, where ``fit`` takes them.

        Returns
        -------
        labels : ndarray of shape (n_samples,), int32
            ``labels_`` of the fit.
        """
        return self.fit(X, sample_weight=sample_weight, **others).labels_
