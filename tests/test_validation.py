"""Words of messages, guesses that nobody made, and the one check of symmetry."""

import warnings

import numpy as np
import pytest
from helpers import moved
from scipy.sparse import csr_array
from sklearn.utils.validation import validate_data

import smallvar
from smallvar._core.validation import _csr, check_symmetric, explained, is_plain, realigned

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
    model = estimator(lam="farthest-first", **options).fit(few)
    assert model.lam_ == estimator(lam="farthest-first", **options, **{name: 5}).fit(few).lam_
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
    other_model = smallvar.DPMeans(lam=1.0, init=moved(X[:2])).fit(
        moved(rows), sample_weight=moved(np.ones(30))
    )
    assert np.array_equal(other_model.cluster_centers_, model.cluster_centers_)
    other_model.cluster_centers_ = moved(model.cluster_centers_)
    assert np.array_equal(other_model.predict(moved(X)), model.labels_)


def misaligned(array):
    return (
        np.frombuffer(b"x" + array.tobytes(), dtype=np.uint8)[1:]
        .view(array.dtype)
        .reshape(array.shape)
    )


def with_entry(value, dtype=np.float64):
    Y = X.astype(dtype)
    Y[3, 1] = value
    return Y


class Subclass(np.ndarray):
    """Another array."""


ARRAYS = {
    "float64": (X, True),
    "float32": (X.astype(np.float32), True),
    "Fortran order": (np.asfortranarray(X), True),
    "strided": (np.repeat(X, 2, axis=1)[::-2, ::2], True),
    "read-only": (np.broadcast_to(X[:1], (30, 2)), True),
    "large": (with_entry(1e308), True),
    "of infinite sum": (np.full((30, 2), 1e308), False),
    "of infinite sum in float32": (np.full((30, 2), 1e38, dtype=np.float32), False),
    "no rows": (X[:0], False),
    "no columns": (X[:, :0], False),
    "one number": (X[0, 0], False),
    "one row": (X[0], False),
    "three dimensions": (X[None], False),
    "NaN": (with_entry(np.nan), False),
    "infinity": (with_entry(np.inf), False),
    "both infinities": (np.array([[np.inf, -np.inf]], dtype=np.float32), False),
    "list": (X.tolist(), False),
    "integers": (np.arange(60).reshape(30, 2), False),
    "bool": (X > 0, False),
    "float16": (X.astype(np.float16), False),
    "long double": (X.astype(np.longdouble), False),
    "complex": (X + 0j, False),
    "object": (X.astype(object), False),
    "text": (X.astype(str), False),
    "byte order": (X.astype(">f8"), False),
    "misaligned": (misaligned(X), False),
    "subclass": (X.view(Subclass), False),
    "masked": (np.ma.array(X, mask=X > 0), False),
    "one column": (X[:, :1].copy(), True),
}


@pytest.mark.parametrize("reset", [True, False])
@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("name", ARRAYS)
def test_plain_arrays_are_what_scikit_learn_lets_pass(name, named, reset):
    """Both ways give the same array, the same attributes, or the same error and warnings."""
    array, plain = ARRAYS[name]
    assert is_plain(array) == plain

    def outcome(validate):
        model = smallvar.DPMeans()
        model.n_features_in_ = 2
        if named:
            model.feature_names_in_ = np.array(["a", "b"], dtype=object)
        with warnings.catch_warnings(record=True) as told, np.errstate(invalid="ignore"):
            warnings.simplefilter("always")
            try:
                found = validate(model)
            except (TypeError, ValueError) as error:
                return str(error), [str(one.message) for one in told]
        facts = {key: np.array(value).tolist() for key, value in vars(model).items()}
        aside = facts.pop("_dtype", None)
        assert aside is None or aside == found.dtype
        same = found is array
        return (
            same or not plain,
            found.dtype,
            found.tobytes(),
            facts,
            [str(m.message) for m in told],
        )

    def theirs(model):
        with explained(array):
            return validate_data(
                model, array, reset=reset, dtype=[np.float64, np.float32], order=None
            )

    if name != "byte order":
        assert outcome(lambda model: model._validate(array, reset=reset)) == outcome(theirs)


def test_as_few_rows_as_there_must_be():
    assert is_plain(X[:2], least=2)
    assert not is_plain(X[:2], least=3)
    assert is_plain(X.astype(np.float16), dtypes=(np.float64, np.float16))
