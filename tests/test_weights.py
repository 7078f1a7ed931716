"""Weights are masses in any unit: very light and very heavy ones give the same clusters."""

import numpy as np
import pytest

from smallvar import (
    BPMeans,
    BregmanDPMeans,
    DPMeans,
    HDPMeans,
    KernelDPMeans,
    KFeatures,
    MiniBatchDPMeans,
    RobustDPMeans,
    SegmentMeans,
    SphericalDPMeans,
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


@pytest.mark.parametrize("power", [-900, -600, 200])
@pytest.mark.parametrize("case", IN_UNITS)
def test_the_unit_of_weights_is_none_of_its_business(case, power):
    """By a power of two everything is multiplied without rounding, unless squares leave float64."""
    if "features" in case and power < 0:
        power //= 3  # the products of weights and squares are checked to stay within float64
    X, unit = three_blobs(), 2.0**power
    one = IN_UNITS[case](1.0).fit(X, sample_weight=np.full(len(X), 3.0))
    other = IN_UNITS[case](unit).fit(X, sample_weight=np.full(len(X), 3.0 * unit))
    result = "assignments_" if "features" in case else "labels_"
    assert np.array_equal(getattr(one, result), getattr(other, result))
    assert other.objective_ == pytest.approx(one.objective_ * unit, rel=1e-12)
    assert case in ("best features", "features") or one.n_clusters_ > 1


def test_light_batches():
    X, unit = three_blobs(), 2.0**-900
    weight = np.full(len(X), unit)
    for kind, lam in ((MiniBatchDPMeans, 4.0), (SphericalDPMeans, 0.1)):
        one, other = kind(lam=lam), kind(lam=lam * unit)
        for _ in range(2):
            one.partial_fit(X)
            other.partial_fit(X, sample_weight=weight)
        assert one.n_clusters_ == 3 and np.array_equal(one.labels_, other.labels_)
        assert np.array_equal(one.cluster_centers_, other.cluster_centers_)


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
