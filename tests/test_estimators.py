"""The contract of scikit-learn, on every estimator of the package."""

import inspect
import os
import pickle
import subprocess
import sys
import types
import typing

import numpy as np
import pytest
from helpers import learned_arrays, moved
from models import ESTIMATORS, ROWS, data, made, model_of
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import smallvar
from smallvar._core.estimator import MEANT

X = ROWS
EVERY = pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: e.__name__)


def expected_failed_checks(estimator):
    """Checks that fail for good reasons."""
    checks = expected_failed_weights(estimator)
    if hasattr(estimator, "predict_proba") and estimator.__sklearn_tags__().input_tags.sparse:
        reason = "the check takes whatever has predict_proba for a classifier of four classes"
        checks |= {f"check_estimator_sparse_{kind}": reason for kind in ("array", "matrix")}
    return checks


def expected_failed_weights(estimator):
    """A weight is a factor, not a repeat: it may open a cluster that its copies would not.

    With "auto" both are a single cluster in the data of this check. MahalanobisMeans then takes
    weights in units of their mean, so that only their ratios matter.
    """
    auto = "auto" in map(estimator.get_params().get, ("lam", "lam_global", "n_clusters"))
    if type(estimator).__name__ == "SegmentMeans":
        return {
            "check_methods_sample_order_invariance": "the state of a row depends on its neighbors",
            "check_sample_weight_equivalence_on_dense_data": "copies are neighbors without noise",
        }
    if type(estimator).__name__ == "MahalanobisMeans":
        reason = "weights are in units of their mean: what covariances are pulled to counts as rows"
        return {"check_sample_weight_equivalence_on_dense_data": reason}
    if type(estimator).__name__ == "TopicMeans":
        reason = "the first documents are drawn, others from repeated documents than from weighted"
        names = "on_dense_data", "on_sparse_data"
        return {f"check_sample_weight_equivalence_{name}": reason for name in names}
    if type(estimator).__name__ == "MixedDPMeans":
        reason = "the kind of a column is found from its values, whatever the weights of the rows"
        return {"check_sample_weight_equivalence_on_dense_data": reason}
    if getattr(estimator, "directions", False):
        return {"check_estimators_dtypes": "of its rows, as whole numbers, one has length zero"}
    if auto or type(estimator).__name__ in ("ShapeMeans", "SphericalDPMeans"):
        return {}
    reason = "a weight is a factor: the objective equals that of repeated rows, the path does not"
    return {"check_sample_weight_equivalence_on_dense_data": reason}


@parametrize_with_checks(
    [*(estimator() for estimator in ESTIMATORS), smallvar.DynamicMeans(directions=True)],
    expected_failed_checks=expected_failed_checks,
)
@pytest.mark.filterwarnings("ignore:X has [0-9]+ rows? of length zero:UserWarning")
def test_scikit_learn_contract(estimator, check):
    check(estimator)


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
    return annotation is typing.Any or isinstance(value, annotation)


@EVERY
def test_skops(estimator):
    """A fitted estimator is written and read by skops, which takes plain state only."""
    io = pytest.importorskip("skops.io")
    rows = data(estimator)
    if estimator.__name__ == "MixedDPMeans":
        pandas = pytest.importorskip("pandas")
        rows = pandas.DataFrame({"a": X[:, 0], "b": np.array(list("xyz"))[np.arange(60) % 3]})
    model = made(estimator).fit(rows)
    profiles = getattr(model, "profiles_", None)  # asked for before, it is written, too
    written = io.dumps(model)
    untrusted = io.get_untrusted_types(data=written)
    assert all(name.startswith(("smallvar.", "scipy.sparse.")) for name in untrusted)
    read = io.loads(written, trusted=untrusted)
    np.testing.assert_array_equal(groups(read), groups(model))
    if hasattr(model, "predict"):
        np.testing.assert_array_equal(read.predict(rows), model.predict(rows))
    if hasattr(model, "probabilities_"):
        np.testing.assert_array_equal(read.predict_proba(rows), model.predict_proba(rows))
        np.testing.assert_array_equal(read.outlier_scores(rows), model.outlier_scores(rows))
    for name in ("objective_", "lam_", "cluster_centers_", "features_"):
        if hasattr(model, name):
            np.testing.assert_array_equal(getattr(read, name), getattr(model, name))
    if profiles is not None:
        for name in profiles:
            np.testing.assert_array_equal(read.profiles_[name], profiles[name])


ARRAY_API = """
import array_api_strict, numpy as np, sklearn, smallvar, test_estimators as here
weight = 1.0 + np.arange(60) % 3
with sklearn.config_context(array_api_dispatch=True):
    for estimator in here.ESTIMATORS:
        X, name = here.data(estimator), estimator.__name__
        sets = {"groups": np.arange(60) % 4} if "HDP" in name else {}
        if "sample_weight" in here.inspect.signature(estimator.fit).parameters:
            sets["sample_weight"] = weight
        others = {key: array_api_strict.asarray(value) for key, value in sets.items()}
        other = array_api_strict.asarray(X)
        one, two = here.made(estimator).fit(X, **sets), here.made(estimator).fit(other, **others)
        np.testing.assert_array_equal(here.groups(two), here.groups(one), name)
        assert type(here.groups(two)) is np.ndarray
        for method in ("predict", "transform", "score"):
            if hasattr(one, method):
                expected = getattr(one, method)(X)
                np.testing.assert_array_equal(getattr(two, method)(other), expected, name)
    for function in (smallvar.cluster_path, smallvar.feature_path):
        function(array_api_strict.asarray(here.X))
device = array_api_strict.Device("device1")
try:
    smallvar.DPMeans().fit(array_api_strict.asarray(here.X, device=device))
except TypeError as error:
    assert str(error).startswith("X must convert to a numpy array, got a array_api_strict."), error
else:
    raise AssertionError("an array that numpy cannot read")
"""


def test_arrays_of_the_array_api():
    """They are converted, with scikit-learn's dispatch too, which needs SCIPY_ARRAY_API."""
    pytest.importorskip("array_api_strict")
    pytest.importorskip("array_api_compat")
    environment = os.environ | {"SCIPY_ARRAY_API": "1"}
    command = [sys.executable, "-W", "ignore", "-c", ARRAY_API]
    folder = os.path.dirname(os.path.abspath(__file__))
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@EVERY
def test_dicts_and_structured_arrays(estimator):
    """Only MixedDPMeans takes them; the others say what to do."""
    columns = {"a": X[:, 0], "b": X[:, 1]}
    record = np.rec.fromarrays(list(columns.values()), names="a,b")
    if estimator.__name__ == "MixedDPMeans":
        labels = made(estimator).fit(columns).labels_
        assert made(estimator).fit(record).labels_.tolist() == labels.tolist()
        return
    for rows, said in (
        (columns, "got a dict: use pandas"),
        (record, "got a structured array: use"),
    ):
        with pytest.raises(TypeError, match=said):
            made(estimator).fit(rows)


def positional(estimator):
    """Names of the parameters that need not be given by name."""
    parameters = inspect.signature(estimator).parameters.values()
    return [p.name for p in parameters if p.kind is not p.KEYWORD_ONLY]


WAYS = {
    "DPMeans": "lam=3 or n_clusters=3 or guess=3",
    "KernelHDPMeans": "lam_local=3 or lam_global=3",
    "SegmentMeans": "lam=3 or lam_switch=3 or n_clusters=3",
}


def ways(estimator):
    """What the message suggests for 3 in place of a name."""
    return " or ".join(
        f"{name}=3" for name in inspect.signature(estimator).parameters if name in MEANT
    )


def message(estimator, *arguments):
    """What the constructor says of positional arguments."""
    with pytest.raises(TypeError) as error:
        estimator(*arguments)
    return str(error.value)


def test_positional_penalties_are_refused_with_the_way_out():
    for estimator in ESTIMATORS:
        name = estimator.__name__
        if model_of(estimator).positional:
            assert "positional arguments but 3 were given" in message(estimator, 3, 0.5)
        else:
            expected = f"{name} takes keyword arguments only, got 3: write {ways(estimator)}"
            assert message(estimator, 3) == expected
            assert name not in WAYS or expected.endswith(f" write {WAYS[name]}")


def test_several_positional_arguments():
    expected = "HDPMeans takes keyword arguments only, got 2.0, 5.0: write lam_local=... or lam_glo"
    assert message(smallvar.HDPMeans, 2.0, 5.0).startswith(expected)
    assert message(smallvar.DPMeans, "auto", 3).startswith(
        "DPMeans takes keyword arguments only, got 'auto', 3: write lam=... or n_clusters=... or"
    )
    assert message(smallvar.DPMeans, X).startswith(
        "DPMeans takes keyword arguments only, got array("
    )
    assert ": write lam=... or n_clusters=... or" in message(
        smallvar.DPMeans, X
    )  # data belong to fit


@EVERY
class TestEstimator:
    """What scikit-learn's checks leave open."""

    def test_arguments_are_keywords_and_have_defaults(self, estimator):
        parameters = inspect.signature(estimator).parameters.values()
        assert positional(estimator) == list(model_of(estimator).positional)
        assert all(p.default is not p.empty for p in parameters)

    def test_subclasses_with_arguments_of_their_own(self, estimator):
        first = next(iter(model_of(estimator).suitable))

        class Named(estimator):
            def __init__(self, name, value):
                super().__init__(**{first: value})
                self.name, self.value = name, value

        model = Named("one", 0.5)
        assert model.name == "one" and vars(model)[first] == 0.5
        assert model.get_params() == {"name": "one", "value": 0.5}
        assert vars(clone(model)) == vars(model)

    def test_clone_of_a_fitted_estimator_is_unfitted(self, estimator):
        X = data(estimator)
        model = made(estimator).fit(X)
        copy = clone(model)
        assert vars(copy) == vars(made(estimator))
        assert np.array_equal(groups(copy.fit(X)), groups(model))
        assert getattr(copy, "objective_", None) == getattr(model, "objective_", None)

    def test_fit_leaves_the_arguments_alone(self, estimator):
        X, model = data(estimator), made(estimator)
        start = model_of(estimator).start
        init = start.copy()
        if "init" in model.get_params() and estimator.__name__ != "KernelHDPMeans":  # takes names
            model.set_params(init=init)
        before = model.get_params()
        model.fit(X)
        assert all(model.get_params()[name] is value for name, value in before.items())
        assert np.array_equal(init, start)

    def test_pickle(self, estimator):
        X = data(estimator)
        model = made(estimator).fit(X)
        copy = pickle.loads(pickle.dumps(model))
        assert vars(copy).keys() == vars(model).keys()
        assert np.array_equal(encoded(copy, X), encoded(model, X))
        assert np.array_equal(groups(copy), groups(model))
        assert getattr(copy, "objective_", None) == getattr(model, "objective_", None)
        unfitted = pickle.loads(pickle.dumps(made(estimator)))
        assert unfitted.get_params() == made(estimator).get_params()

    def test_pickle_in_a_message(self, estimator):
        """Arrays come out of it as C code reads them, where that reads what was learned."""
        X = data(estimator)
        model = made(estimator).fit(X)
        copy = moved(model)
        assert np.array_equal(encoded(copy, X), encoded(model, X))
        if estimator is not smallvar.PenalizedCut:  # has nothing more to compute
            arrays = [value for value in vars(copy).values() if isinstance(value, np.ndarray)]
            assert arrays
            assert all(array.flags.aligned for array in arrays)

    def test_in_a_pipeline(self, estimator):
        if estimator.__name__ == "PenalizedCut":
            pytest.skip("scaled columns are no graph")
        if estimator.__name__ == "TopicMeans":
            pytest.skip("scaled columns are no counts")
        wider = {"lam": 2.0, "lam_local": 2.0, "min_cosine": 0.2}
        arguments = {name: wider[name] for name in model_of(estimator).suitable if name in wider}
        pipe = make_pipeline(StandardScaler(), made(estimator, **arguments)).fit(X)
        scaled = StandardScaler().fit_transform(X)
        alone = made(estimator, **arguments).fit(scaled)
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
        model = made(estimator).fit(X)
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
        model = made(estimator).fit(X)
        doc = inspect.getdoc(estimator)
        learned = [name for name in vars(model) if name.endswith("_") and not name.startswith("_")]
        for name in [*model.get_params(), *learned]:
            assert f"{name} :" in doc, name
        for section in ("Parameters", "Attributes", "References", "Examples"):
            assert f"{section}\n---" in doc

    def test_annotations(self, estimator):
        """Learned attributes, and what methods return, are of the types they are said to be."""
        X = data(estimator)
        model = made(estimator).fit(X)
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
    path = smallvar.cluster_path(X, random_state=0)
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
        "max_clusters max_iter tol",
        "n_clusters_",
    ),
    ("BregmanDPMeans DPMeans SphericalDPMeans", "guess n_clusters", "objective_"),
    ("BregmanDPMeans DPMeans HDPMeans KernelDPMeans KernelHDPMeans", "tol verbose", "n_iter_"),
    (
        "KernelDPMeans KernelHDPMeans",
        "kernel random_state",
        # not objective_path_: KernelDPMeans labels the points once more after the last sweep
        "X_fit_ center_norms_ center_weights_ gamma_",
    ),
    (
        "HDPMeans KernelHDPMeans",
        "max_iter",
        "groups_ labels_ lam_global_ lam_local_ local_clusters_ local_labels_ n_clusters_ "
        "n_local_clusters_ objective_",
    ),
    (
        "DynamicMeans KernelDynamicMeans SpectralDynamicMeans",
        "k_tau record t_q verbose",
        "ages_ births_ deaths_ labels_ n_clusters_ n_steps_ objective_ q_ revivals_ "
        "step_objectives_ tau_ times_ weights_",
    ),
    (
        "KernelDynamicMeans SpectralDynamicMeans",
        "budget kernel lam q tau",  # gamma: their defaults differ
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


KERNELS = [e for e in ESTIMATORS if "kernel" in inspect.signature(e).parameters]
LAYOUTS = {
    "columns": np.asfortranarray,
    "gaps": lambda X: np.repeat(X, 2, axis=1)[:, ::2],
    "reversed": lambda X: X[:, ::-1].copy()[:, ::-1],
}


@pytest.mark.parametrize("estimator", KERNELS)
@pytest.mark.parametrize("kernel", ["linear", "rbf", "cosine", "precomputed"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_layouts_of_rows_change_no_bit(estimator, kernel, dtype):
    """BLAS rounds by the order in which numbers lie; the kernel estimators take one order."""
    rng = np.random.default_rng(1)
    rows = (10.0 * rng.normal(size=(4, 7))[np.arange(120) % 4] + rng.normal(size=(120, 7))).astype(
        dtype
    )
    tracks = estimator.__name__.endswith("DynamicMeans")
    if kernel == "precomputed":
        if tracks:
            pytest.skip("trackers need points of earlier steps")
        rows = np.exp(-np.square(rows[:, None] - rows).sum(axis=2) / 200).astype(dtype)
    options = {"kernel": kernel}
    if "random_state" in inspect.signature(estimator).parameters:
        options["random_state"] = 0
    expected = None
    for layout in (np.ascontiguousarray, *LAYOUTS.values()):
        data, model = layout(rows), estimator(**options)
        if tracks:
            for step in range(4):
                model.partial_fit(data[30 * step : 30 * step + 30])
        elif "HDP" in estimator.__name__:
            model.fit(data, groups=np.arange(120) % 3)
        else:
            model.fit(data)
        found = learned_arrays(model)
        methods = ["predict", "transform", "score", "kernel_matrix"]
        for method in methods[: 1 if kernel == "precomputed" else None]:
            if hasattr(model, method):
                found[method] = np.asarray(getattr(model, method)(data)).tobytes()
        expected = found if expected is None else expected
        assert found.keys() == expected.keys()
        for name, value in found.items():
            assert value == expected[name], name


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "model",
    [
        smallvar.DPMeans(lam=0.02, n_init=2),
        smallvar.MiniBatchDPMeans(lam=0.02, batch_size=64, max_iter=5),
        smallvar.BPMeans(lam=2.0, n_init=1, n_swaps=3),
        smallvar.KFeatures(4, n_init=1, n_swaps=3),
    ],
)
def test_what_is_drawn_depends_on_random_state_only(model):
    rows = np.random.default_rng(3).random((500, 3))

    def fitted(state):
        return learned_arrays(clone(model).set_params(random_state=state).fit(rows))

    shared = np.random.RandomState(0)
    first, again, other = map(fitted, (0, 0, 1))
    assert first == again != other
    assert first == fitted(shared) != fitted(shared)


FINER = {
    "HDPMeans": {"lam_local": 0.05, "lam_global": 0.1},
    "TopicMeans": {"lam_local": 0.2, "lam_global": 0.005},
    "KernelHDPMeans": {"lam_local": 0.02, "lam_global": 0.05},
}
STARTED = [e for e in ESTIMATORS if "n_init" in inspect.signature(e).parameters]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("estimator", STARTED)
def test_more_starts_are_never_worse(estimator):
    """The first start is among several, and sometimes another one is better; as often as fitted."""
    better = 0
    for seed in range(12):
        rows = np.random.default_rng(seed).random((60, 3))
        if estimator.__name__ == "PenalizedCut":
            rows = np.exp(-9 * np.square(rows[:, None] - rows).sum(axis=2))
        options = dict(FINER.get(estimator.__name__, {}))
        if "random_state" in estimator().get_params():
            options["random_state"] = seed
        one, many, again = (made(estimator, n_init=n, **options).fit(rows) for n in (1, 5, 5))
        rounding = 1e-9 * abs(one.objective_)
        assert many.objective_ <= one.objective_ + rounding
        assert again.objective_ == many.objective_
        assert np.array_equal(groups(again), groups(many))
        better += many.objective_ < one.objective_ - rounding
    assert better > 0


def test_html_links_to_the_page_of_the_estimator():
    page = "https://smallvar.readthedocs.io/en/stable/generated/smallvar."
    assert f'{page}DPMeans.html"' in smallvar.DPMeans()._repr_html_()
    for estimator in ESTIMATORS:
        assert estimator()._get_doc_link() == f"{page}{estimator.__name__}.html"

    class Own(smallvar.DPMeans):
        """A user's estimator, which has no page."""

    assert Own()._get_doc_link() == ""


@pytest.mark.parametrize(
    ("name", "parameter"),
    [("MiniBatchDPMeans", "batch_size")]
    + [(n, "n_clusters") for n in ("DPMeans", "MahalanobisMeans", "MixedDPMeans", "ShapeMeans")],
)
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_integers_of_few_bits(name, parameter):
    """np.uint8 is an integer like any other, though sums with it overflow."""
    model, X = getattr(smallvar, name)(random_state=0), np.tile(ROWS, (5, 1))
    few, same = (clone(model).set_params(**{parameter: kind(3)}).fit(X) for kind in (np.uint8, int))
    np.testing.assert_array_equal(few.labels_, same.labels_)


def test_unknown_parameters_name_the_one_that_is_meant():
    for estimator, options, meant in [
        (smallvar.DPMeans, {"k": 3}, "did you mean n_clusters"),
        (smallvar.DPMeans, {"eps": 3}, "did you mean lam, a squared distance"),
        (smallvar.MixedDPMeans, {"n_components": 3}, "did you mean n_clusters"),
        (smallvar.MahalanobisMeans, {"K": 3}, "did you mean n_clusters"),
        (smallvar.KFeatures, {"n_components": 3, "seed": 3}, "did you mean random_state"),
        (smallvar.DPMeans, {"n_cluster": 3}, "did you mean n_clusters"),
        (
            smallvar.BregmanDPMeans,
            {"metric": "cosine"},
            "did you mean divergence.*SphericalDPMeans clus",
        ),
    ]:
        with pytest.raises(TypeError, match=f"{estimator.__name__} has no parameter .*; {meant}"):
            estimator(**options)
    with pytest.raises(ValueError, match="got 'cosine'; smallvar.SphericalDPMeans clusters"):
        smallvar.DPMeans(metric="cosine").fit([[0.0], [1.0]])
    assert clone(smallvar.MahalanobisMeans(3)).get_params()["n_clusters"] == 3
