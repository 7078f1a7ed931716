"""Words of messages, guesses that nobody made, and the one check of symmetry."""

import numpy as np
import pytest
from scipy.sparse import csr_array

import smallvar
from smallvar._validation import check_symmetric

X = np.random.default_rng(0).normal(size=(30, 2))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (smallvar.DPMeans(np.float64(-1)), r"lam must be >= 0, got -1\.0$"),
        (smallvar.DPMeans(max_clusters=np.int64(0)), "max_clusters must be >= 1, got 0$"),
        (
            smallvar.DPMeans(1.0, n_clusters=np.float64(2)),
            r"n_clusters must be an integer, got 2\.0$",
        ),
        (smallvar.DPMeans(shuffle=np.int64(3)), "shuffle must be True or False, got 3$"),
        (smallvar.BPMeans(np.float64("inf")), "lam must be finite, got inf$"),
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
        smallvar.DPMeans(1.0).fit(X, sample_weight=-np.ones(30))


@pytest.mark.parametrize(
    ("estimator", "name"),
    [
        (smallvar.BPMeans, "n_components"),
        (smallvar.BregmanDPMeans, "n_clusters"),
        (smallvar.DPMeans, "n_clusters"),
        (smallvar.KernelDPMeans, "n_clusters"),
        (smallvar.MiniBatchDPMeans, "n_clusters"),
        (smallvar.SpectralDPMeans, "n_clusters"),
    ],
)
def test_a_guess_that_nobody_made_is_cut(estimator, name):
    few, options = np.abs(X[:5]), {"random_state": 0}
    if estimator is smallvar.BregmanDPMeans:
        options["divergence"] = "kl"
    found = estimator("farthest-first", **options).fit(few)
    assert found.lam_ == estimator("farthest-first", **options, **{name: 5}).fit(few).lam_
    with pytest.raises(ValueError, match=f"{name} must be <= n_samples=5, got {name}=9"):
        estimator("farthest-first", **options, **{name: 9}).fit(few)


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
