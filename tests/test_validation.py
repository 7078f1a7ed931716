"""Words of messages, guesses that nobody made, and the one check of symmetry."""

import numpy as np
import pytest
from helpers import moved
from scipy.sparse import csr_array

import smallvar
from smallvar._core.validation import _csr, check_symmetric, realigned

X = np.random.default_rng(0).normal(size=(30, 2))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            smallvar.DPMeans(lam=np.float64(-1)),
            r"lam must be > 0, or 0 if max_clusters is given, got -1\.0$",
        ),
        (smallvar.DPMeans(verbose="abc"), "verbose must be an integer, got 'abc'$"),
        (smallvar.RobustDPMeans(verbose=-1), "verbose must be >= 0, got -1$"),
        (smallvar.DynamicMeans(verbose=1.0), r"verbose must be an integer, got 1\.0$"),
        (smallvar.PenalizedCut(verbose=None), "verbose must be an integer, got None$"),
        (smallvar.DPMeans(max_clusters=np.int64(0)), "max_clusters must be >= 1, got 0$"),
        (
            smallvar.DPMeans(lam=1.0, n_clusters=np.float64(2)),
            r"n_clusters must be an integer or None, got 2\.0$",
        ),
        (smallvar.DPMeans(shuffle=np.int64(3)), "shuffle must be True or False, got 3$"),
        (smallvar.BPMeans(lam=np.float64("inf")), "lam must be finite, got inf$"),
        (smallvar.KernelDPMeans(gamma=np.float64("inf")), "gamma must be finite, got inf$"),
        (smallvar.DynamicMeans(q=np.float64(1)), r"got q=1\.0$"),
        (smallvar.DynamicMeans(q=1.0, tau=np.float64("inf")), "tau must be finite, got inf$"),
        (
            smallvar.MahalanobisMeans(volume="clusters", lam=np.float64(-99)),
            r"got lam=-99\.0 and lam_eff",
        ),
        (smallvar.PenalizedCut(lam=np.float64("inf")), "lam must be finite, got inf$"),
    ],
)
def test_numbers_are_shown_as_such(model, message):
    with pytest.raises((TypeError, ValueError), match=message):
        model.fit(X @ X.T if isinstance(model, smallvar.PenalizedCut) else X)


def test_weights_are_shown_as_such():
    with pytest.raises(ValueError, match=r"sample_weight must be >= 0, got -1\.0$"):
        smallvar.DPMeans(lam=1.0).fit(X, sample_weight=-np.ones(30))


@pytest.mark.parametrize(
    ("estimator", "name"),
    [
        (smallvar.BPMeans, "n_components"),
        (smallvar.BregmanDPMeans, "guess"),
        (smallvar.DPMeans, "guess"),
        (smallvar.KernelDPMeans, "guess"),
        (smallvar.MiniBatchDPMeans, "guess"),
        (smallvar.SpectralDPMeans, "guess"),
    ],
)
def test_a_guess_that_nobody_made_is_cut(estimator, name):
    few, options = np.abs(X[:5]), {"random_state": 0}
    if estimator is smallvar.BregmanDPMeans:
        options["divergence"] = "kl"
    found = estimator(lam="farthest-first", **options).fit(few)
    assert found.lam_ == estimator(lam="farthest-first", **options, **{name: 5}).fit(few).lam_
    with pytest.raises(ValueError, match=f"{name} must be <= n_samples=5, got {name}=9"):
        estimator(lam="farthest-first", **options, **{name: 9}).fit(few)


@pytest.mark.parametrize("form", [np.asarray, csr_array])
def test_symmetry_is_asked_for_up_to_rounding(form):
    A = X @ X.T
    A = (A + A.T) / 2
    assert check_symmetric(form(A), "A") == 0
    A[1, 2] += 1e-11 * np.abs(A).max()
    assert check_symmetric(form(A), "A") > 0
    A[1, 2] += 1e-8 * np.abs(A).max()
    with pytest.raises(ValueError, match="A must be, got entries .* apart, more than 1e-10 of"):
        check_symmetric(form(A), "A must be")
    assert check_symmetric(form(A), "A", np.float32) > 0
    assert check_symmetric(form(A.astype(np.float32)), "A") > 0
    assert check_symmetric(form(np.zeros((2, 2))), "A") == 0


def test_what_comes_out_of_a_message_is_aligned():
    """In containers and objects of ours; what is aligned stays the same object."""
    rows = csr_array(np.eye(3))
    value = {"a": [np.arange(3.0), (X, "b")], "c": _csr, "rows": rows}
    assert realigned(value) is value
    came = moved({name: value[name] for name in ("a", "rows")})
    assert not came["a"][0].flags.aligned
    assert not came["rows"].data.flags.aligned
    there = realigned(came)
    assert there["a"][0].flags.aligned
    assert there["a"][1][0].flags.aligned
    assert there["rows"].data.flags.aligned
    assert there["rows"].indices.flags.aligned
    assert np.array_equal(there["a"][1][0], X)
    assert np.array_equal(there["rows"].toarray(), np.eye(3))


def test_unaligned_rows():
    """What is read as numbers is a copy: sparse rows, weights, centers."""
    rows = csr_array(X)
    model = smallvar.DPMeans(lam=1.0, init=X[:2]).fit(rows, sample_weight=np.ones(30))
    other = smallvar.DPMeans(lam=1.0, init=moved(X[:2])).fit(
        moved(rows), sample_weight=moved(np.ones(30))
    )
    assert np.array_equal(other.cluster_centers_, model.cluster_centers_)
    other.cluster_centers_ = moved(model.cluster_centers_)
    assert np.array_equal(other.predict(moved(X)), model.labels_)
