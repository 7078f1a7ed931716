"""Weights are factors in any unit: very light and very heavy ones give the same clusters."""

from inspect import signature

import numpy as np
import pytest
from helpers import seeds
from sklearn.base import clone
from sklearn.exceptions import DataConversionWarning
from twins.exact import first_appearance

from smallvar import (
    BPMeans,
    BregmanDPMeans,
    DPMeans,
    DynamicMeans,
    HDPMeans,
    KernelDPMeans,
    KFeatures,
    MahalanobisMeans,
    MiniBatchDPMeans,
    MixedDPMeans,
    RobustDPMeans,
    SegmentMeans,
    SpectralDPMeans,
    SphericalDPMeans,
    coreset,
    feature_path,
    progress_callback,
)


def three_blobs():
    rng = np.random.default_rng(0)
    places = np.repeat([[1.0, 6.0], [6.0, 6.0], [9.0, 1.0]], 15, axis=0)
    return places + 0.1 * rng.normal(size=(45, 2))


IN_UNITS = {
    "auto": lambda unit: DPMeans(random_state=0),
    **{
        algorithm: lambda unit, algorithm=algorithm: DPMeans(
            lam=4 * unit, algorithm=algorithm, random_state=0
        )
        for algorithm in ("serial", "delayed", "collapsed", "merge")
    },
    "batches": lambda unit: MiniBatchDPMeans(lam=4 * unit, random_state=0),
    "robust": lambda unit: RobustDPMeans(lam=2 * unit, price=1.0, random_state=0),
    "cosines": lambda unit: SphericalDPMeans(lam=0.1 * unit),
    "segments": lambda unit: SegmentMeans(lam=2 * unit, lam_switch=unit),
    "found segments": lambda unit: SegmentMeans(),
    "divergence": lambda unit: BregmanDPMeans(
        lam=0.1 * unit, divergence="kl", algorithm="collapsed", random_state=0
    ),
    "kernel": lambda unit: KernelDPMeans(lam=4 * unit, kernel="linear"),
    "collapsed kernel": lambda unit: KernelDPMeans(
        lam=4 * unit, kernel="linear", algorithm="collapsed"
    ),
    "sets": lambda unit: HDPMeans(lam_local=2 * unit, lam_global=2 * unit),
    "best features": lambda unit: KFeatures(3, assign="exact", n_init=2, n_swaps=3, random_state=0),
    "features": lambda unit: BPMeans(lam=20 * unit, n_init=2, n_swaps=3, random_state=0),
}


@pytest.mark.parametrize("case", IN_UNITS)
def test_weights_of_one_column(case):
    """They are taken as a column of a table, with a warning, as groups and times are."""
    X, weight = three_blobs(), np.tile([1.0, 2.0, 4.0], 15)
    plain = IN_UNITS[case](1.0).fit(X, sample_weight=weight)
    column = IN_UNITS[case](1.0)
    with pytest.warns(DataConversionWarning, match=r"sample_weight must have shape \(45,\), got a"):
        column.fit(X, sample_weight=weight[:, None])
    assert column.objective_ == plain.objective_
    if "groups" in signature(plain.fit).parameters:
        groups = np.arange(45) % 2
        plain.fit(X, groups=groups)
        with pytest.warns(DataConversionWarning, match=r"groups must have shape \(45,\)"):
            column.fit(X, groups=groups[:, None])
        assert column.objective_ == plain.objective_
    for bad in (np.ones((45, 2)), np.ones((1, 45)), np.ones((44, 1))):
        with pytest.raises(ValueError, match=r"sample_weight must have shape \(45,\), got \(4?\d"):
            column.fit(X, sample_weight=bad)


@pytest.mark.parametrize("power", [-900, -600, 200])
@pytest.mark.parametrize("case", IN_UNITS)
def test_the_unit_of_weights_is_none_of_its_business(case, power):
    """By a power of two everything is multiplied without rounding, unless squares leave float64."""
    if "features" in case and power < 0:
        power //= 3  # the products of weights and squares are checked to stay within float64
    X, unit = three_blobs(), 2.0**power
    model_a = IN_UNITS[case](1.0).fit(X, sample_weight=np.full(len(X), 3.0))
    model_b = IN_UNITS[case](unit).fit(X, sample_weight=np.full(len(X), 3.0 * unit))
    result = "assignments_" if "features" in case else "labels_"
    assert np.array_equal(getattr(model_a, result), getattr(model_b, result))
    assert model_b.objective_ == pytest.approx(model_a.objective_ * unit, rel=1e-12)
    assert case in ("best features", "features") or model_a.n_clusters_ > 1


def test_light_batches():
    X, unit = three_blobs(), 2.0**-900
    weight = np.full(len(X), unit)
    for kind, lam in ((MiniBatchDPMeans, 4.0), (SphericalDPMeans, 0.1)):
        model_a, model_b = kind(lam=lam), kind(lam=lam * unit)
        for _ in range(2):
            model_a.partial_fit(X)
            model_b.partial_fit(X, sample_weight=weight)
        assert model_a.n_clusters_ == 3 and np.array_equal(model_a.labels_, model_b.labels_)
        assert np.array_equal(model_a.cluster_centers_, model_b.cluster_centers_)


def test_squares_that_vanish_beside_a_penalty_that_does():
    X, weight = np.array([[0.0], [1e125], [1e138]]), np.full(3, 1e-300)
    for algorithm in ("serial", "delayed"):
        assert (
            DPMeans(lam=1e-100, algorithm=algorithm).fit(X, sample_weight=weight).n_clusters_ == 3
        )


def test_score_does_not_depend_on_the_unit_of_weights():
    model = KFeatures(2, n_init=1, random_state=0).fit([[2.0, 0.0], [-1.0, 1.0], [1.0, 1.0]])
    model.components_ = np.array([[2.0, 0.0], [-1.0, 1.0]])
    for unit in (1.0, 1e27):
        assert model.score([[1.0, 1.0]], sample_weight=[unit]) == 0.0


# ---- weights times a constant, where the penalty is found ----------------------------------------


def around(places, seed=0, size=40, noise=1.0):
    rng = np.random.default_rng(seed)
    X = np.repeat(np.asarray(places, dtype=float), size, axis=0)
    return (X + noise * rng.normal(size=X.shape))[rng.permutation(len(X))]


def blobs_of(seed=0):
    return around([[-8.0, 0.0], [0.0, 9.0], [7.0, -6.0], [9.0, 8.0]], seed)


def counts():
    rng, rates = np.random.default_rng(0), np.repeat([[2, 30, 5], [40, 3, 8], [9, 9, 60]], 40, 0)
    return rng.poisson(rates).astype(float)


def positive():
    rng, means = np.random.default_rng(0), np.repeat([[1, 20, 3], [30, 1, 2], [5, 5, 90]], 40, 0)
    return means * rng.gamma(6.0, 1 / 6, size=means.shape)


def fractions():
    rng = np.random.default_rng(0)
    shares = np.repeat(rng.choice([0.1, 0.9], size=(3, 8)), 40, axis=0)
    return (rng.uniform(size=shares.shape) < shares).astype(float)


def sums_of_features(seed=0):
    rng = np.random.default_rng(seed)
    Z, A = rng.integers(0, 2, size=(100, 3)), 4 * rng.normal(size=(3, 6))
    return Z @ A + 0.3 * rng.normal(size=(100, 6))


def record():
    rng = np.random.default_rng(0)
    states = np.array([[0.0, 0.0], [6.0, 0.0], [0.0, 7.0]])[np.repeat([0, 1, 2, 0, 2, 1, 0], 20)]
    return states + rng.normal(size=states.shape)


DIRECTIONS = [[3.0, 0.0, 0.0], [0.0, 3.0, 0.0], [-2.0, -2.0, 1.0], [0.0, 0.0, 3.0]]
FOUND = {
    **{
        f"{kind.__name__} {lam}": (kind(lam=lam, random_state=0), data, {})
        for kind, data in (
            (DPMeans, blobs_of()),
            (MiniBatchDPMeans, blobs_of()),
            (SphericalDPMeans, around(DIRECTIONS, noise=0.3)),
            (SpectralDPMeans, blobs_of()),
        )
        for lam in ("auto", "farthest-first")
    },
    **{
        f"DPMeans {algorithm} {lam}": (
            DPMeans(lam=lam, algorithm=algorithm, random_state=0),
            np.round(blobs_of()),
            {},
        )
        for algorithm in ("delayed", "collapsed", "merge")
        for lam in ("auto", "farthest-first")
    },
    **{
        f"{divergence} {lam}": (
            BregmanDPMeans(lam=lam, divergence=divergence, random_state=0),
            data,
            {},
        )
        for divergence, data in (
            ("squared_euclidean", blobs_of()),
            ("kl", counts()),
            ("itakura_saito", positive()),
            ("logistic", fractions()),
        )
        for lam in ("auto", "farthest-first")
    },
    **{
        f"HDPMeans {lam}": (
            HDPMeans(lam_local=lam, lam_global=lam, random_state=0),
            np.round(blobs_of()),
            {"groups": np.arange(160) % 3},
        )
        for lam in ("auto", "farthest-first")
    },
    **{
        f"DynamicMeans {lam}": (
            DynamicMeans(lam=lam, random_state=0),
            blobs_of(),
            {"times": np.arange(160) // 40},
        )
        for lam in ("auto", "farthest-first")
    },
    **{
        f"BPMeans {lam}": (BPMeans(lam=lam, n_init=3, random_state=0), sums_of_features(), {})
        for lam in ("auto", "farthest-first")
    },
    "KFeatures": (KFeatures("auto", n_init=3, random_state=0), sums_of_features(), {}),
    "MixedDPMeans": (MixedDPMeans(random_state=0), blobs_of(), {}),
    "MixedDPMeans n_clusters": (MixedDPMeans(n_clusters=5, random_state=0), blobs_of(), {}),
    "KernelDPMeans": (KernelDPMeans(guess=4), blobs_of(), {}),
    "KernelDPMeans collapsed": (KernelDPMeans(algorithm="collapsed"), blobs_of(), {}),
    "RobustDPMeans": (RobustDPMeans(random_state=0), np.round(blobs_of()), {}),
    "RobustDPMeans price": (RobustDPMeans(price=9.0, random_state=0), blobs_of(), {}),
    "SpectralDPMeans spectrum": (SpectralDPMeans(lam="spectrum", random_state=0), blobs_of(), {}),
    "MahalanobisMeans": (MahalanobisMeans(n_init=3, random_state=0), blobs_of(), {}),
    "MahalanobisMeans known": (
        MahalanobisMeans(covariances=np.eye(2), n_init=3, random_state=0),
        blobs_of(),
        {},
    ),
    "SegmentMeans": (SegmentMeans(), record(), {}),
}
PENALTIES = ["lam_", "lam_local_", "lam_global_", "lam_switch_"]
REPORTED = [*PENALTIES, "objective_", "inertia_", "reg_covar_", "bound_"]


def some_weights(kind, n):
    rng = np.random.default_rng(1)
    return {
        "equal": lambda: np.ones(n),
        "whole": lambda: rng.integers(1, 6, size=n).astype(float),
        "real": lambda: rng.uniform(0.3, 3.0, size=n),
        "with zeros": lambda: rng.integers(0, 4, size=n).astype(float),
    }[kind]()


def result_of(model):
    return model.assignments_ if hasattr(model, "assignments_") else model.labels_


@pytest.mark.parametrize("kind", ["equal", "whole", "real", "with zeros"])
@pytest.mark.parametrize("case", FOUND)
def test_weights_times_a_constant(case, kind):
    """They change no label, and multiply penalties and objectives."""
    model, X, options = FOUND[case]
    weight = some_weights(kind, len(X))
    model_a = clone(model).fit(X, sample_weight=weight, **options)
    reported = [name for name in REPORTED if getattr(model_a, name, None) is not None]
    assert "objective_" in reported or hasattr(model_a, "assignments_")
    for c in (0.01, 0.1, 10.0, 100.0, 1e-6, 3.0):
        model_b = clone(model).fit(X, sample_weight=c * weight, **options)
        assert np.array_equal(result_of(model_b), result_of(model_a))
        for name in reported:
            np.testing.assert_allclose(
                getattr(model_b, name), c * getattr(model_a, name), rtol=1e-9
            )
        if hasattr(model_a, "path_"):
            np.testing.assert_allclose(model_b.path_.lam, c * model_a.path_.lam, rtol=1e-9)
            np.testing.assert_allclose(model_b.path_.error, c * model_a.path_.error, 1e-9, 1e-9 * c)
    if kind == "equal" and result_of(model_a).ndim == 1:
        assert len(np.unique(result_of(model_a))) > 1
        assert np.array_equal(result_of(model_a), result_of(clone(model).fit(X, **options)))


@pytest.mark.parametrize("case", FOUND)
def test_rows_of_weight_zero_count_for_nothing(case):
    """Nor does a column that only they vary in, where their divergence from means is infinite."""
    model, X, options = FOUND[case]
    weight = some_weights("real", len(X))
    weight[::5] = 0.0
    used = weight > 0.0
    constant = 1.0 if case.startswith("itakura_saito") else 0.0
    if case != "MahalanobisMeans known":  # of two columns
        X = np.column_stack([X, np.where(used, constant, 0.5 + 0.5 * (X[:, 0] > 0.0))])
    with_them = clone(model).fit(X, sample_weight=weight, **options)
    options = {name: value[used] for name, value in options.items()}
    alone = clone(model).fit(X[used], sample_weight=weight[used], **options)
    for name in REPORTED:
        if getattr(alone, name, None) is not None:
            np.testing.assert_allclose(getattr(with_them, name), getattr(alone, name), rtol=1e-7)
    results = result_of(with_them)[used], result_of(alone)
    number, number_alone = (np.unique(r, axis=0, return_inverse=True)[1].ravel() for r in results)
    assert np.array_equal(first_appearance(number), first_appearance(number_alone))


# The power of the unit of rows that penalties have, where it is not that of squared distances.
POWERS = {"kl": 1, "itakura_saito": 0, "SphericalDPMeans": 0, "Kernel": 0, "Spectral": 0}
POWERS |= {"Mahalanobis": 0, "MixedDPMeans": 0}
# of one unit: numbers given, and rows from 0 to 1
ONE_UNIT = "MahalanobisMeans known", "RobustDPMeans price", "logistic"


@pytest.mark.parametrize("case", [case for case in FOUND if not case.startswith(ONE_UNIT)])
@pytest.mark.parametrize("unit", [2.0**-20, 2.0**10])
def test_other_units_of_rows(case, unit):
    """They change no label, and multiply penalties by their power."""
    model, X, options = FOUND[case]
    model_a = clone(model).fit(X, **options)
    model_b = clone(model).fit(unit * X, **options)
    assert np.array_equal(result_of(model_b), result_of(model_a))
    power = next((POWERS[name] for name in POWERS if case.startswith(name)), 2)
    for name in (*PENALTIES, "price_"):
        if getattr(model_a, name, None) is not None:
            expected = unit**power * getattr(model_a, name)
            np.testing.assert_allclose(getattr(model_b, name), expected, rtol=1e-12)


@pytest.mark.parametrize(
    "model",
    [
        DPMeans(lam=1e30),
        RobustDPMeans(lam=60.0, price=12.0, random_state=0),
        SegmentMeans(lam=40.0, lam_switch=15.0),
        MahalanobisMeans(3),
        MahalanobisMeans(3, volume="clusters"),
    ],
)
@seeds(8)
def test_weights_are_repeated_rows(model, seed):
    """Also of weight zero, from given centers where none opens, or where rows alone decide."""
    X = record() if isinstance(model, SegmentMeans) else blobs_of(seed)
    weight = np.random.default_rng(seed).integers(0, 4, size=len(X))
    if "init" in model.get_params():
        model.set_params(init=X[:3])
    weighted = clone(model).fit(X, sample_weight=weight)
    repeated = clone(model).fit(X.repeat(weight, axis=0))
    assert len(np.unique(repeated.labels_)) > 1
    assert np.array_equal(weighted.labels_.repeat(weight), repeated.labels_)
    names = ["cluster_centers_", "objective_"]
    if not isinstance(model, SegmentMeans):  # whose rows have the labels of their neighbors
        assert np.array_equal(weighted.labels_, weighted.predict(X))
        names.append("objective_path_")
    for name in names:
        found, expected = (getattr(m, name) for m in (weighted, repeated))
        np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize(
    "case", ["DPMeans auto", "RobustDPMeans", "BPMeans farthest-first", "HDPMeans auto"]
)
def test_objectives_told_are_in_the_unit_of_weights(case):
    model, X, options = FOUND[case]
    events = []
    with progress_callback(events.append):
        fitted = clone(model).fit(X, sample_weight=np.full(len(X), 0.37), **options)
    told = [event for event in events if event.stage == "sweep"]
    if hasattr(fitted, "assignments_"):
        assert min(e.objective for e in told) == pytest.approx(fitted.objective_, rel=1e-9)
    else:
        last = fitted.objective_ if case != "HDPMeans auto" else told[-1].objective
        assert told[-1].objective == pytest.approx(last, rel=1e-9)
    assert all(f"{event.objective:.8g}" in event.message for event in told)


@pytest.mark.parametrize("kind", ["whole", "real"])
def test_objectives_are_those_of_the_weights_given(kind):
    X, weight = blobs_of(), 0.1 * some_weights(kind, 160)
    for model in (DPMeans(random_state=0), DPMeans(lam="farthest-first"), HDPMeans(random_state=0)):
        model.fit(X, sample_weight=weight)
        own = np.square(X - model.cluster_centers_[model.labels_]).sum(axis=1)
        np.testing.assert_allclose(model.inertia_, weight @ own, rtol=1e-12)
        np.testing.assert_allclose(model.objective_path_[-1], model.objective_, rtol=1e-12)
    for model in (MahalanobisMeans(random_state=0), RobustDPMeans(random_state=0)):
        model.fit(X, sample_weight=weight)
        score = model.score(X, sample_weight=weight)
        np.testing.assert_allclose(score, -model.objective_, rtol=1e-9)


def test_batches_of_weights_times_a_constant():
    X, weight = blobs_of(), some_weights("whole", 160)
    for lam in ("auto", "farthest-first"):
        models = [MiniBatchDPMeans(lam=lam, random_state=0) for _ in range(2)]
        cosines = [SphericalDPMeans(lam=lam, random_state=0) for _ in range(2)]
        for part in np.split(np.arange(160), 4):
            for pair in (models, cosines):
                for model, c in zip(pair, (1.0, 10.0), strict=True):
                    model.partial_fit(X[part], sample_weight=c * weight[part])
        for model_a, model_b in (models, cosines):
            assert np.array_equal(model_a.predict(X), model_b.predict(X))
            assert model_b.lam_ == pytest.approx(10.0 * model_a.lam_)
        assert cosines[1].min_cosine_ == pytest.approx(cosines[0].min_cosine_)


def test_a_coreset_and_a_feature_path_of_weights_times_a_constant():
    X, weight = blobs_of(), some_weights("whole", 160)
    for c in (0.1, 100.0, 1e-6):
        one, other = (
            coreset(X, 40, 50.0 * unit, sample_weight=weight * unit, random_state=0)
            for unit in (1.0, c)
        )
        assert np.array_equal(one[0], other[0])
        np.testing.assert_allclose(other[1], c * one[1], rtol=1e-9)
    X, weight = sums_of_features(), some_weights("whole", 100)
    one, other = (
        feature_path(X, 4, sample_weight=weight * c, n_init=2, random_state=0) for c in (1.0, 0.1)
    )
    assert one.best == other.best
    np.testing.assert_allclose(other.error, 0.1 * one.error, rtol=1e-9)
    np.testing.assert_allclose(other.lam, 0.1 * one.lam, rtol=1e-9)


def test_a_given_penalty_is_compared_with_weights_times_distances():
    X, weight = np.array([[0.0], [1.0], [9.0]]), np.array([1.0, 1.0, 0.1])
    for lam, k in ((7.0, 1), (6.0, 2)):  # 0.1 * (9 - mean)^2 = 6.6
        model = DPMeans(lam=lam).fit(X, sample_weight=weight)
        assert model.lam_ == lam and model.n_clusters_ == k
        assert DPMeans(lam=lam).fit(X, sample_weight=10 * weight).n_clusters_ > 1


def test_global_penalty_of_a_single_cluster():
    X = np.random.default_rng(0).normal(size=(200, 2))
    groups = np.arange(200) % 3
    model, scaled = (HDPMeans(random_state=0).fit(c * X, groups=groups) for c in (1.0, 10.0))
    assert model.n_clusters_ == scaled.n_clusters_ == 1
    assert scaled.lam_global_ == pytest.approx(100.0 * model.lam_global_, rel=1e-9)
    heavy = HDPMeans(random_state=0).fit(X, groups=groups, sample_weight=np.full(200, 0.7))
    assert heavy.lam_global_ == pytest.approx(0.7 * model.lam_global_, rel=1e-9)
