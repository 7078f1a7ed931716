"""The C functions dp_means_d and nearest_centers_d beside DPMeans, which gives the same bits."""

import ctypes

import numpy as np

from smallvar import DPMeans, cython_api

from . import Comparison

SIZE, NUMBER = ctypes.c_ssize_t, ctypes.c_double
NUMBERS, INTEGERS = ctypes.POINTER(NUMBER), ctypes.POINTER(ctypes.c_int)
ROWS = (NUMBERS, SIZE, SIZE, SIZE)


def function(name, *types):
    """The C function of that name, from its capsule."""
    capsule, api = ctypes.py_object(cython_api.__pyx_capi__[name]), ctypes.pythonapi
    api.PyCapsule_GetName.restype, api.PyCapsule_GetName.argtypes = (
        ctypes.c_char_p,
        [ctypes.py_object],
    )
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    address = api.PyCapsule_GetPointer(capsule, api.PyCapsule_GetName(capsule))
    return ctypes.CFUNCTYPE(ctypes.c_int, *types)(address)


NEAREST = function("nearest_centers_d", *ROWS, NUMBERS, SIZE, INTEGERS, NUMBERS)
DP_MEANS = function(
    "dp_means_d",
    *(*ROWS, NUMBERS, NUMBER, ctypes.c_int, SIZE, ctypes.c_int),
    *(INTEGERS, NUMBERS, SIZE, ctypes.POINTER(SIZE), NUMBERS, INTEGERS),
)


def rows(X):
    """The arguments for rows."""
    return X.ctypes.data_as(NUMBERS), *X.shape, X.shape[1]


def nearest_centers(X, centers):
    """Labels by the C function."""
    labels, k = np.empty(len(X), dtype=np.intc), len(centers)
    centers = centers.ctypes.data_as(NUMBERS)
    assert NEAREST(*rows(X), centers, k, labels.ctypes.data_as(INTEGERS), None) == 0
    return labels


def dp_means(X, lam, most=2000):
    """Labels by the C function."""
    labels, centers = np.empty(len(X), dtype=np.intc), np.empty((most, X.shape[1]))
    found, out = SIZE(), labels.ctypes.data_as(INTEGERS)
    places = (out, centers.ctypes.data_as(NUMBERS), most, ctypes.byref(found), None, None)
    assert DP_MEANS(*rows(X), None, lam, 0, 0, 300, *places) in (0, 1)
    return labels


def comparisons():
    """Yield them, with one thread; the quality is the number of clusters and the sum of labels."""
    for n, d, k, lam, bound in (
        (50, 4, 3, 60.0, 1.0),
        (10_000, 16, 20, 160.0, 1.2),
        (100_000, 16, 60, 160.0, 1.2),
        (100_000, 16, 350, 160.0, 1.2),
        (100_000, 128, 50, 900.0, 1.2),
    ):
        rng = np.random.default_rng(0)
        centers = rng.normal(size=(k, d)) * 3.0
        X = centers[rng.integers(k, size=n)] + rng.normal(size=(n, d))
        model = DPMeans(lam=lam, n_threads=1).fit(X)
        size = f"{n} x {d}, K {model.n_clusters_}"
        quality = lambda labels: f"K {labels.max() + 1}, {int(labels.sum())}"  # noqa: E731
        yield Comparison(
            f"C function dp_means {size}",
            lambda X=X, lam=lam: dp_means(X, lam),
            {"DPMeans": lambda X=X, lam=lam: DPMeans(lam=lam, n_threads=1).fit(X).labels_},
            quality,
            bound,
            calls=100 if n == 50 else 1,
        )
        yield Comparison(
            f"C function nearest_centers {size}",
            lambda X=X, model=model: nearest_centers(X, model.cluster_centers_),
            {"predict": lambda X=X, model=model: model.predict(X)},
            quality,
            bound,
            calls=100 if n == 50 else 1,
        )
