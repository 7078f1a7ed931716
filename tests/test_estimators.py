"""The contract of scikit-learn, on every estimator of the package."""

import inspect
import pickle
import types
import typing

import numpy as np
import pytest
from helpers import moved
from sklearn.base import BaseEstimator, clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import smallvar

ESTIMATORS = [
    value
    for value in (getattr(smallvar, name) for name in smallvar.__all__)
    if inspect.isclass(value) and issubclass(value, BaseEstimator)
]

X = np.random.default_rng(0).random((60, 3))


def expected_failed_checks(estimator):
    """A weight is a mass, not a repeat: it may open a cluster that its copies would not.

    With "auto" both are a single cluster in the data of this check, but for D-Means: where that is
    what its path finds, it goes by a guess.
    """
    auto = "auto" in map(estimator.get_params().get, ("lam", "lam_global", "n_clusters"))
    if type(estimator).__name__ == "SegmentMeans":
        return {
            "check_clustering": "rows in a random order are no record: neighbors are not alike",
            "check_sample_weight_equivalence_on_dense_data": "copies are neighbors without noise",
        }
    if type(estimator).__name__ == "SphericalDPMeans":
        reason = "a row of zeros, or without entries, has no direction"
        names = (
            "estimators_dtypes",
            *("estimator_sparse_" + s for s in ("tag", "array", "matrix")),
        )
        return {f"check_{name}": reason for name in names}
    if auto and type(estimator).__name__ != "DynamicMeans":
        return {}
    reason = "a weight is a mass: the objective equals that of repeated rows, the path does not"
    return {"check_sample_weight_equivalence_on_dense_data": reason}


@parametrize_with_checks(
    [estimator() for estimator in ESTIMATORS], expected_failed_checks=expected_failed_checks
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def test_all_estimators_are_found():
    names = {
        "BPMeans",
        "BregmanDPMeans",
        "DPMeans",
        "KFeatures",
        "KernelDPMeans",
        "KernelHDPMeans",
        "MahalanobisMeans",
        "MiniBatchDPMeans",
        "SegmentMeans",
        "SphericalDPMeans",
    }
    assert names <= {estimator.__name__ for estimator in ESTIMATORS}


# A first argument that suits X, and a start, where they are not a penalty and centers.
ASSIGNMENTS = np.eye(3, dtype=int)[np.arange(60) % 3]
FIRST = {
    "BPMeans": 4.0,
    "KFeatures": 3,
    "MahalanobisMeans": 3,
    "PenalizedCut": -0.5,
    "SphericalDPMeans": 0.9,
}
MORE = {"SegmentMeans": {"lam_switch": 0.01}}  # so that noise has several states
STARTS = {
    "BPMeans": ASSIGNMENTS,
    "KFeatures": ASSIGNMENTS,
    "KernelDPMeans": np.arange(60) % 3,
    "PenalizedCut": np.arange(60) % 3,
}


def data(estimator):
    """What it clusters: rows, or a graph."""
    if estimator.__name__ != "PenalizedCut":
        return X
    return np.exp(-4 * np.square(X[:, None] - X).sum(axis=2))


def first(estimator):
    """An argument for the estimator."""
    return FIRST.get(estimator.__name__, 0.2)


def made(estimator, *arguments):
    """An unfitted one, whose random numbers are fixed if it draws any."""
    random = "random_state" in inspect.signature(estimator).parameters
    options = {"random_state": 0} if random else {}
    return estimator(*arguments, **options, **MORE.get(estimator.__name__, {}))


def groups(model):
    """What a fit found for the rows: labels or assignments."""
    return model.labels_ if hasattr(model, "labels_") else model.assignments_


def encoded(model, X):
    """What the model makes of rows: labels or assignments."""
    if hasattr(model, "predict"):
        return model.predict(X)
    return model.transform(X) if hasattr(model, "transform") else model.fit_predict(X)


def fits(value, annotation):
    """Whether a value is of the type that an annotation says."""
    kind, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if kind in (typing.Union, types.UnionType):
        return any(fits(value, one) for one in inner)
    if kind is list:
        return isinstance(value, list) and all(fits(item, *inner) for item in value)
    if kind is typing.ClassVar:
        return fits(value, *inner)
    if kind is tuple and inner[-1] is ...:
        return isinstance(value, tuple) and all(fits(item, inner[0]) for item in value)
    if kind is tuple:
        return isinstance(value, tuple) and [*map(fits, value, inner)] == [True] * len(inner)
    if kind is dict:
        key, item = inner
        pairs = value.items() if isinstance(value, dict) else [(None, None)]
        return all(fits(k, key) and fits(v, item) for k, v in pairs)
    if kind is np.ndarray:
        (scalar,) = typing.get_args(inner[1])
        of_any = scalar is typing.Any
        return isinstance(value, kind) and (of_any or issubclass(value.dtype.type, scalar))
    return isinstance(value, annotation)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: e.__name__)
class TestEstimator:
    """What scikit-learn's checks leave open."""

    def test_arguments_are_keywords_after_the_first(self, estimator):
        parameters = list(inspect.signature(estimator).parameters.values())
        others = parameters[2:] if "HDPMeans" in estimator.__name__ else parameters[1:]
        assert parameters[0].name in (
            "lam",
            "lam_local",
            "min_cosine",
            "n_clusters",
            "n_components",
        )
        assert all(p.kind is p.KEYWORD_ONLY for p in others)
        assert all(p.default is not p.empty for p in parameters)

    def test_clone_of_a_fitted_estimator_is_unfitted(self, estimator):
        X = data(estimator)
        model = made(estimator, first(estimator)).fit(X)
        copy = clone(model)
        assert vars(copy) == vars(made(estimator, first(estimator)))
        assert np.array_equal(groups(copy.fit(X)), groups(model))
        assert copy.objective_ == model.objective_

    def test_fit_leaves_the_arguments_alone(self, estimator):
        X, model = data(estimator), made(estimator, first(estimator))
        start = STARTS.get(estimator.__name__, X[:3])
        init = start.copy()
        if "init" in model.get_params():
            model.set_params(init=init)
        before = model.get_params()
        model.fit(X)
        assert all(model.get_params()[name] is value for name, value in before.items())
        assert np.array_equal(init, start)

    def test_pickle(self, estimator):
        X = data(estimator)
        model = made(estimator, first(estimator)).fit(X)
        copy = pickle.loads(pickle.dumps(model))
        assert vars(copy).keys() == vars(model).keys()
        assert np.array_equal(encoded(copy, X), encoded(model, X))
        assert np.array_equal(groups(copy), groups(model))
        assert copy.objective_ == model.objective_
        unfitted = pickle.loads(pickle.dumps(estimator(first(estimator))))
        assert unfitted.get_params() == estimator(first(estimator)).get_params()

    def test_pickle_in_a_message(self, estimator):
        """Arrays come out of it as C code reads them, where that reads what was learned."""
        X = data(estimator)
        model = made(estimator, first(estimator)).fit(X)
        copy = moved(model)
        assert np.array_equal(encoded(copy, X), encoded(model, X))
        if estimator is not smallvar.PenalizedCut:  # has nothing more to compute
            arrays = [value for value in vars(copy).values() if isinstance(value, np.ndarray)]
            assert arrays
            assert all(array.flags.aligned for array in arrays)

    def test_in_a_pipeline(self, estimator):
        if estimator.__name__ == "PenalizedCut":
            pytest.skip("scaled columns are no graph")
        argument = 3 if estimator.__name__ in ("KFeatures", "MahalanobisMeans") else 2.0
        argument = 0.2 if estimator.__name__ == "SphericalDPMeans" else argument
        pipe = make_pipeline(StandardScaler(), made(estimator, argument)).fit(X)
        scaled = StandardScaler().fit_transform(X)
        alone = made(estimator, argument).fit(scaled)
        assert np.array_equal(groups(pipe[-1]), groups(alone))
        assert np.array_equal(encoded(pipe, X), encoded(alone, scaled))
        # a rounded partition need not be that of the nearest centers
        if hasattr(alone, "labels_") and estimator.__name__ != "SpectralDynamicMeans":
            rounded = estimator.__name__ == "SpectralDPMeans"
            expected = alone.predict(scaled) if rounded else alone.labels_
            assert np.array_equal(pipe.predict(X), expected)

    def test_feature_names_out(self, estimator):
        """Only checked where it is offered: one name per cluster or feature."""
        X = data(estimator)
        model = made(estimator, first(estimator)).fit(X)
        if not hasattr(model, "get_feature_names_out"):
            pytest.skip("this estimator offers no output names")
        names = model.get_feature_names_out()
        prefix = estimator.__name__.lower()
        count = model.n_clusters_ if hasattr(model, "n_clusters_") else model.n_components_
        assert count > 1
        assert names.tolist() == [f"{prefix}{k}" for k in range(count)]
        assert model.transform(X).shape == (60, count)

    def test_docstring(self, estimator):
        """Every parameter and every learned attribute is documented."""
        X = data(estimator)
        model = made(estimator, first(estimator)).fit(X)
        doc = inspect.getdoc(estimator)
        learned = [name for name in vars(model) if name.endswith("_") and not name.startswith("_")]
        for name in [*model.get_params(), *learned]:
            assert f"{name} :" in doc, name
        for section in ("Parameters", "Attributes", "References", "Examples"):
            assert f"{section}\n---" in doc

    def test_annotations(self, estimator):
        """Learned attributes, and what methods return, are of the types they are said to be."""
        X = data(estimator)
        model = made(estimator, first(estimator)).fit(X)
        hints = typing.get_type_hints(estimator)
        for name, value in vars(model).items():
            if name.endswith("_") and not name.startswith("_"):
                assert fits(value, hints[name]), (name, hints[name], value)
        results = {}
        for name in ("fit", "fit_predict", "predict", "transform", "score"):
            method = getattr(model, name, None)
            if method and method.__module__.startswith("smallvar."):  # not scikit-learn's
                results[name] = method, method(X)
        for name, value in inspect.getmembers(estimator, lambda m: isinstance(m, property)):
            if not name.startswith("_"):
                results[name] = value.fget, getattr(model, name)
        for name, (function, result) in results.items():
            annotation = inspect.signature(function).return_annotation
            wanted = estimator if annotation is typing.Self else annotation
            assert fits(result, wanted), (name, wanted, result)


def test_annotations_of_a_path():
    path = smallvar.lambda_path(X, random_state=0)
    hints = typing.get_type_hints(type(path))
    assert {"best", "linkage", "lam_low"} <= set(hints)
    for name, annotation in hints.items():
        assert fits(getattr(path, name), annotation), (name, annotation)
    assert not fits(path.best, float)
    assert not fits(path.inertia, hints["counts"])
    for method, result in [(path.centers, path.centers(2)), (path.labels, path.labels(2))]:
        assert fits(result, inspect.signature(method).return_annotation)


# Classes, and the parameters and attributes that mean the same in all of them.
SHARED = [
    (
        "BPMeans DPMeans DynamicMeans HDPMeans KFeatures MiniBatchDPMeans",
        "n_threads",
        "feature_names_in_ n_features_in_",
    ),
    (
        "BregmanDPMeans DPMeans KernelDPMeans SphericalDPMeans",
        "max_clusters max_iter shuffle tol",
        "n_clusters_",
    ),
    ("BregmanDPMeans DPMeans HDPMeans KernelDPMeans KernelHDPMeans", "tol verbose", "n_iter_"),
    (
        "KernelDPMeans KernelHDPMeans",
        "kernel kernel_params random_state",
        "X_fit_ center_norms_ center_weights_ gamma_ objective_path_",
    ),
    (
        "HDPMeans KernelHDPMeans",
        "max_iter n_global n_local",
        "groups_ labels_ lam_global_ lam_local_ local_clusters_ local_labels_ n_clusters_ "
        "n_local_clusters_ objective_",
    ),
    (
        "DynamicMeans KernelDynamicMeans SpectralDynamicMeans",
        "k_tau record t_q tau verbose",
        "ages_ births_ deaths_ labels_ n_clusters_ n_steps_ objective_ q_ revivals_ "
        "step_objectives_ tau_ times_ weights_",
    ),
    (
        "KernelDynamicMeans SpectralDynamicMeans",
        "budget gamma kernel kernel_params lam q",
        "cluster_ids_ kept_coefficients_ kept_points_ tracks_",
    ),
    ("BPMeans KFeatures", "random_state tol", "assignments_ n_iter_"),
]


@pytest.mark.parametrize(("classes", "parameters", "attributes"), SHARED)
def test_shared_words_are_explained_alike(classes, parameters, attributes):
    docscrape = pytest.importorskip("numpydoc.docscrape")
    docs = {name: docscrape.ClassDoc(getattr(smallvar, name)) for name in classes.split()}
    for section, words in [("Parameters", parameters), ("Attributes", attributes)]:
        for word in words.split():
            said = {
                name: [(one.type, " ".join(one.desc)) for one in doc[section] if one.name == word]
                for name, doc in docs.items()
            }
            first = next(iter(said.values()))
            assert len(first) == 1 and all(one == first for one in said.values()), (word, said)
