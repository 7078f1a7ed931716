"""How sure the number of clusters is: confidence, its warning, stability, and sums of squares."""

import functools
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from generated import (
    CLOUDS,
    flags,
    jittered,
    latent_classes,
    one_hot,
    questionnaire,
    round_clusters,
    two_moons,
    zero_inflated,
)
from helpers import seeds
from sklearn import datasets
from sklearn.metrics import adjusted_rand_score, roc_auc_score
from sklearn.preprocessing import scale

import smallvar
from smallvar import (
    BregmanDPMeans,
    DPMeans,
    MiniBatchDPMeans,
    RobustDPMeans,
    SphericalDPMeans,
    UnclearNumberWarning,
    boundary_evidence,
    cluster_path,
)

MOONS = two_moons(np.random.default_rng(0), 500)[0]
FIVE = round_clusters(np.random.default_rng(0), 5)[0]
OVERLAPPING = round_clusters(np.random.default_rng(1), 3, 300, 2, 2.6)[0]
WARNING_MODELS = [DPMeans, BregmanDPMeans, MiniBatchDPMeans, RobustDPMeans, SphericalDPMeans]


def pair_of_blobs(rng, n, d, separation):
    labels = rng.permutation(np.arange(n) % 2)
    return rng.normal(size=(n, d)) + np.outer(labels, np.r_[separation, np.zeros(d - 1)])


def unclear(work):
    """The warnings of an unclear number, and what the work returns."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = work()
    return [w for w in caught if issubclass(w.category, UnclearNumberWarning)], result


def message_of(X, **options):
    found, model = unclear(lambda: DPMeans(random_state=0, **options).fit(X))
    assert len(found) == 1
    return str(found[0].message), model.path_


# confidence


@functools.cache
def some_tables():
    rng = np.random.default_rng(0)
    blobs = round_clusters(rng, 4)[0]
    return {
        "five": FIVE,
        "moons": MOONS,
        "cloud": rng.normal(size=(500, 3)),
        "skewed": np.hstack([blobs, np.exp(rng.normal(size=(1000, 2)))]),
        "flags": scale(np.hstack([blobs, flags(rng, 1000)])),
        "lognormal": CLOUDS["lognormal"](rng, 800, 4),
        "codes": one_hot(latent_classes(rng, 3)[0], 5),
        "iris": datasets.load_iris().data,
        "repeated": np.repeat(rng.normal(size=(7, 2)), 30, axis=0),
        "equal": np.ones((20, 2)),
        "one row": np.ones((1, 2)),
        "two rows": np.eye(2),
        "few": rng.normal(size=(5, 2)),
    }


@pytest.mark.parametrize("table", some_tables())
@pytest.mark.parametrize("most", [None, 2])
def test_confidences_are_shares(table, most):
    path = DPMeans(random_state=0, max_clusters=most).fit(some_tables()[table]).path_
    assert 0.0 <= path.confidence <= 1.0
    assert path.confidences.shape == path.counts.shape
    assert np.all(path.confidences >= 0.0) and path.confidences.sum() <= 1.0 + 1e-12
    assert path.confidences[path.counts == path.best] == path.confidence
    copy = pickle.loads(pickle.dumps(path))
    assert copy.confidence == path.confidence
    assert copy.confidences.tobytes() == path.confidences.tobytes()
    other = cluster_path(some_tables()[table], random_state=0, max_clusters=most)
    assert (other.best, other.confidence) == (path.best, path.confidence)


def test_well_separated_is_sure_and_overlapping_is_not():
    rng = np.random.default_rng(0)
    sure = DPMeans(random_state=0).fit(FIVE).path_
    assert sure.best == 5 and sure.confidence > 0.9
    unsure = [
        DPMeans(random_state=0).fit(pair_of_blobs(rng, 300, 2, 3.0)).path_.confidence
        for _ in range(5)
    ]
    assert np.median(unsure) < 0.6


@pytest.mark.parametrize("divergence", ["kl", "itakura_saito"])
def test_confidence_by_divergences(divergence):
    rng, X = np.random.default_rng(0), 10.0 * np.exp(0.2 * FIVE)
    one = np.exp(0.3 * rng.normal(size=(900, 5)) @ rng.normal(size=(5, 5)))  # dependent, skewed
    found, model = unclear(lambda: BregmanDPMeans(divergence=divergence, random_state=0).fit(X))
    assert not found and model.n_clusters_ == 5 and model.path_.confidence > 0.8
    _, model = unclear(lambda: BregmanDPMeans(divergence=divergence, random_state=0).fit(one))
    # clusters that differ in scale have no gaps: the number stays, and is unsure
    assert model.n_clusters_ == 1 or divergence == "itakura_saito"
    assert model.path_.confidence < 0.8


@pytest.mark.parametrize("name", ["iris", "cancer"])
def test_confidence_where_labels_are_in_the_metric_of_the_clusters(name):
    X = stable_tables()[name]
    path, other = (DPMeans(metric=m, random_state=0).fit(X).path_ for m in ("euclidean", "auto"))
    assert other.metric is not None and path.metric is None
    assert (other.best, other.confidence) == (path.best, path.confidence)
    assert np.array_equal(other.skewed, path.skewed)
    warned = unclear(lambda: DPMeans(metric="auto", random_state=0).fit(X))[0]
    assert len(warned) == (path.confidence < 0.5)


@pytest.mark.parametrize("algorithm", ["delayed", "collapsed", "merge"])
def test_confidence_is_that_of_the_path_for_all_algorithms(algorithm):
    path = DPMeans(random_state=0).fit(MOONS).path_
    found, model = unclear(lambda: DPMeans(algorithm=algorithm, random_state=0).fit(MOONS))
    assert len(found) == 1
    assert model.path_.confidence == path.confidence


# the warning


def test_the_class_of_the_warning():
    assert issubclass(UnclearNumberWarning, UserWarning)
    assert UnclearNumberWarning is not UserWarning
    assert smallvar.UnclearNumberWarning is UnclearNumberWarning
    assert "UnclearNumberWarning" in smallvar.__all__


@pytest.mark.parametrize("model", WARNING_MODELS, ids=lambda model: model.__name__)
@pytest.mark.parametrize("method", ["fit", "fit_predict"])
def test_estimators_warn_at_the_line_of_the_call(model, method):
    cloud = np.random.default_rng(0).normal(size=(500, 2))  # directions are uniform
    X = cloud if model is SphericalDPMeans else MOONS
    found, _ = unclear(lambda: getattr(model(random_state=0), method)(X))
    assert len(found) == 1
    assert found[0].filename == __file__
    silent, _ = unclear(lambda: model(random_state=0).fit(FIVE))
    assert not silent


def test_partial_fit_warns_at_the_line_of_the_call():
    model = MiniBatchDPMeans(random_state=0)
    found, _ = unclear(lambda: model.partial_fit(MOONS))
    assert len(found) == 1
    assert found[0].filename == __file__
    found, _ = unclear(lambda: model.partial_fit(MOONS))  # the number was chosen before
    assert not found


@pytest.mark.parametrize("name", ["moons", "pair", "overlapping", "cancer"])
def test_the_warning_names_numbers(name):
    X = {
        "moons": MOONS,
        "pair": pair_of_blobs(np.random.default_rng(0), 300, 8, 2.5),
        "overlapping": OVERLAPPING,
        "cancer": scale(datasets.load_breast_cancer().data),
    }[name]
    message, path = message_of(X)
    assert path.confidence < 0.5
    start = f"the number of clusters, {path.best}, is not clear (confidence {path.confidence:.2f})"
    assert message.startswith(start)
    assert message.endswith("With n_clusters the number is given")
    numbers = message.partition("): ")[2].partition(" fit")[0]
    numbers = [int(number) for number in numbers.split(", ")]
    assert numbers == sorted(set(numbers)) and path.best not in numbers
    likeliest = path.counts[path.counts != path.best]
    likeliest = likeliest[path.confidences[path.counts != path.best].argmax()]
    assert likeliest in numbers


def test_the_warning_names_what_may_help():
    message, path = message_of(MOONS)
    assert path.best >= 5 and "smallvar.ShapeMeans" in message and "MahalanobisMeans" in message
    verdict = boundary_evidence(MOONS, path.labels(path.best)).verdict
    none, n = int((verdict == "none").sum()), len(verdict)
    assert 1 < none < n and f"; {none} of {n} boundaries between clusters are no gaps; " in message
    message, path = message_of(pair_of_blobs(np.random.default_rng(0), 300, 8, 2.5))
    assert path.best == 1 and "smallvar.ShapeMeans" in message and "path_.labels(2)" in message
    assert ": 2 fits about as well" in message
    message, path = message_of(OVERLAPPING)
    assert path.best == 2 and "overlap" in message and "path_.labels(1)" in message


def test_the_warning_names_columns():
    data = datasets.load_breast_cancer(as_frame=True).data
    names = list(data.columns)
    scaled = pd.DataFrame(scale(data), columns=names)
    message, path = message_of(scaled)
    skewed = [repr(names[j]) for j in path.skewed[:5]]
    assert "'area error'" in [repr(names[j]) for j in path.skewed]
    assert f"skewed ({', '.join(skewed)}, ...)" in message and "logarithm" in message
    assert "with few values" not in message
    message, path = message_of(scaled.to_numpy())
    assert f"skewed ({', '.join(map(str, path.skewed[:5]))}, ...)" in message
    frame = pd.DataFrame(round_clusters(np.random.default_rng(5), 3, 150, 3, 3.0)[0])
    frame.columns = list("abc")
    frame.insert(1, "ok", np.random.default_rng(0).random(len(frame)) < 0.3)
    message, path = message_of(frame)
    assert path.few_valued.tolist() == [1] and not len(path.skewed)
    assert "columns with few values ('ok') may be what splits the rows" in message


@pytest.mark.parametrize(
    "options",
    [{"lam": 2.0}, {"lam": "farthest-first"}, {"n_clusters": 3}, {"max_clusters": 2}],
    ids=str,
)
def test_no_warning_where_the_number_is_given(options):
    found, _ = unclear(lambda: DPMeans(random_state=0, **options).fit(MOONS))
    assert not found


def test_no_warning_where_the_maximum_binds():
    best = DPMeans(random_state=0).fit(MOONS).n_clusters_
    found, model = unclear(lambda: DPMeans(random_state=0, max_clusters=best).fit(MOONS))
    assert model.n_clusters_ == best and not found


def test_numbers_beyond_the_maximum_are_not_named():
    """Only numbers that were allowed fit about as well."""
    for most in (2, 3, 4, 5, 6, 7):
        found, _ = unclear(lambda most=most: DPMeans(random_state=0, max_clusters=most).fit(MOONS))
        for warning in found:
            numbers = str(warning.message).partition("): ")[2].partition(" fit")[0]
            assert max(map(int, numbers.split(", "))) <= most


def test_no_warning_of_a_path():
    found, path = unclear(lambda: cluster_path(MOONS, random_state=0))
    assert not found and path.confidence < 0.5


@seeds(10)
def test_no_warning_of_well_separated_blobs(seed):
    rng = np.random.default_rng(seed)
    X, _ = round_clusters(rng, 5, d=[2, 4, 8][seed % 3], separation=8.0)
    found, model = unclear(lambda: DPMeans(random_state=0).fit(X))
    assert not found and model.n_clusters_ == 5


def warned_of_ten(table, k):
    """For how many of ten seeds the number is right, or a warning says that it is not clear."""
    total = 0
    for seed in range(10):
        X = table(seed)
        found, model = unclear(lambda X=X: DPMeans(random_state=0).fit(X))
        total += model.n_clusters_ == k or len(found) == 1
    return total


def test_warning_of_moons():
    assert warned_of_ten(lambda s: datasets.make_moons(500, noise=0.05, random_state=s)[0], 2) >= 9


@pytest.mark.parametrize(("n", "d", "separation"), [(200, 8, 2.5), (200, 2, 3.0)])
def test_warning_of_two_blobs_that_overlap(n, d, separation):
    """A mixture of two has a second mode from 2 standard deviations on.

    Of more rows, or nearer, they are taken for one without a warning: the guide says so.
    """
    rngs = [np.random.default_rng(seed) for seed in range(10)]
    assert warned_of_ten(lambda seed: pair_of_blobs(rngs[seed], n, d, separation), 2) >= 7


def calibration_sets(rng):
    """Small tables of many kinds, and the number of clusters of each."""
    heavy = lambda n, d: rng.standard_t(3, size=(n, d))  # noqa: E731
    for _ in range(6):
        k, d = int(rng.integers(2, 8)), int(rng.choice([2, 4, 8]))
        for separation in (2.5, 3.0, 3.5, 4.0, 5.0, 7.0):
            X, _ = round_clusters(rng, k, 400, d, separation)
            yield X, k
        X, labels = round_clusters(rng, k, 600, d, 6.0)
        yield scale(np.hstack([X, flags(rng, 600)])), k
        yield scale(np.hstack([X, one_hot(rng.integers(5, size=(600, 1)), 5)])), k
        yield np.hstack([X, zero_inflated(rng, 600, X.std())]), k
        yield np.hstack([X, np.exp(rng.normal(size=(600, 1)))]), k
        means = np.array([X[labels == c].mean(axis=0) for c in range(k)])[labels]
        yield means + heavy(600, d), k
        yield X @ np.diag(np.geomspace(1.0, 6.0, d)), k
        yield rng.normal(size=(400, d)), 1
        yield heavy(600, d), 1
        yield rng.random((400, d)), 1
        yield CLOUDS["lognormal"](rng, 500, d), 1
        yield CLOUDS["exponential"](rng, 500, d), 1
        for noise in (0.05, 0.1):
            yield two_moons(rng, 400, noise)[0], 2
        yield datasets.make_circles(400, noise=0.05, factor=0.4, random_state=0)[0], 2
        k = int(rng.integers(2, 7))
        yield one_hot(latent_classes(rng, k, 500, 6, 4, 0.6)[0], 4), k
        yield one_hot(latent_classes(rng, k, 500)[0], 5), k
        yield questionnaire(rng, min(k, 5), 500, spread=0.8)[0], min(k, 5)
        yield rng.normal(size=(40, 2)) + 5.0 * rng.integers(2, size=(40, 1)), 2


@pytest.mark.long
def test_calibration():
    results = []
    for X, k in calibration_sets(np.random.default_rng(0)):
        path = DPMeans(random_state=0).fit(X).path_
        results.append((path.confidence, path.best == k))
    confidence, right = np.array(results).T
    assert len(results) >= 140 and 0.3 < right.mean() < 0.9
    assert roc_auc_score(right, confidence) >= 0.85
    assert right[confidence >= 0.8].mean() >= 0.8
    assert right[confidence < 0.5].mean() <= 0.5


# stability


@functools.cache
def stable_tables():
    return {
        "iris": datasets.load_iris().data,
        "wine": scale(datasets.load_wine().data),
        "cancer": scale(datasets.load_breast_cancer().data),
        "five": FIVE,
    }


def changed(X, rng, how):
    """A copy of the table that should make no difference, and random_state."""
    if how == "jitter":
        return jittered(rng, X, 10.0 ** rng.uniform(-15.0, -6.0)), 0
    if how == "one row less":
        return np.delete(X, rng.integers(len(X)), axis=0), 0
    if how == "order":
        return rng.permutation(X), 0
    return X, int(rng.integers(1, 2**31))


def n_changes(name, how, fits):
    """In how many fits of a changed table the number of clusters is another one."""
    X, rng = stable_tables()[name], np.random.default_rng(0)
    number = DPMeans(random_state=0).fit(X).n_clusters_
    tables = (changed(X, rng, how) for _ in range(fits))
    return sum(DPMeans(random_state=s).fit(Y).n_clusters_ != number for Y, s in tables)


HOW = pytest.mark.parametrize("how", ["jitter", "one row less", "order", "random_state"])
TABLE = pytest.mark.parametrize("name", ["iris", "wine", "cancer", "five"])


@pytest.mark.parametrize("fits", [6, pytest.param(50, marks=pytest.mark.long)])
@HOW
@TABLE
def test_the_number_is_stable(name, how, fits):
    assert n_changes(name, how, fits) <= 1


@functools.cache
def tables_of_two_thousand():
    rng = np.random.default_rng(0)
    X, _ = round_clusters(rng, 4, 2000)
    return {
        **stable_tables(),
        "moons": MOONS,
        "flags": scale(np.hstack([X, flags(rng, 2000)])),
        "skewed": np.hstack([X, np.exp(rng.normal(size=(2000, 1)))]),
        "zeros": np.hstack([X, zero_inflated(rng, 2000, X.std())]),
        "codes": one_hot(latent_classes(rng, 4, 2000)[0], 5),
        "questionnaire": questionnaire(rng, 4, 2000)[0],
        "lognormal": CLOUDS["lognormal"](rng, 2000, 4),
        "repeated": np.repeat(rng.normal(size=(9, 3)), 40, axis=0),
    }


@pytest.mark.parametrize("name", tables_of_two_thousand())
@seeds(3)
def test_labels_do_not_depend_on_the_order_of_rows(name, seed):
    X = tables_of_two_thousand()[name]
    order = np.random.default_rng(seed).permutation(len(X))
    plain, model = (DPMeans(random_state=0).fit(rows) for rows in (X, X[order]))
    assert model.n_clusters_ == plain.n_clusters_
    assert adjusted_rand_score(model.labels_, plain.labels_[order]) == 1.0
    np.testing.assert_allclose(model.path_.confidence, plain.path_.confidence, atol=0.01)


# threads, sums of squares, labels of the path


def test_the_last_number_of_a_path_can_be_clear():
    """There are no more clusters than distinct rows."""
    X = np.repeat([[1.0, 1.0], [5.0, 9.0], [12.0, 3.0]], 20, axis=0)
    path = DPMeans(random_state=0).fit(X).path_
    assert path.best == path.counts[-1] == 3 and path.lam_low[-1] == 0.0
    assert path.confidence > 0.9
