"""The functions of smallvar.cython_api, called through ctypes on arrays."""

import ctypes

import numpy as np

from smallvar import cython_api

OUTCOME = cython_api.Outcome
SIZE, INT, LONG, DOUBLE, ADDRESS = (
    *(ctypes.c_ssize_t, ctypes.c_int, ctypes.c_int64, ctypes.c_double),
    ctypes.c_void_p,
)
ROWS = (ADDRESS, SIZE, SIZE, SIZE)  # x, n, d, stride
SIGNATURES = {
    "nearest_centers": (INT, *ROWS, ADDRESS, SIZE, ADDRESS, ADDRESS),
    "means_of_labels": (INT, *ROWS, ADDRESS, ADDRESS, SIZE, ADDRESS, ADDRESS),
    "dp_means": (
        *(INT, *ROWS, ADDRESS, DOUBLE, INT, SIZE, INT, ADDRESS, ADDRESS, SIZE),
        *(ADDRESS, ADDRESS, ADDRESS),
    ),
    "dynamic_means_new": (ADDRESS, SIZE, DOUBLE, DOUBLE, DOUBLE),
    "dynamic_means_free": (None, ADDRESS),
    "dynamic_means_step": (
        *(INT, ADDRESS, ADDRESS, SIZE, SIZE, ADDRESS, LONG, INT),
        *(ADDRESS, ADDRESS, ADDRESS),
    ),
    "dynamic_means_clusters": (SIZE, ADDRESS, SIZE, ADDRESS, ADDRESS, ADDRESS, ADDRESS),
}


def capsule_of(name):
    """The name of a capsule, which is the C signature, and the address in it."""
    capsule = cython_api.__pyx_capi__[name]
    get_name = ctypes.pythonapi.PyCapsule_GetName
    get_name.restype, get_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.restype = ctypes.c_void_p
    get_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    signature = get_name(capsule)
    return signature.decode(), get_pointer(capsule, signature)


def function(name, single=None):
    """A function as a ctypes one; ``single``: that for float32 or for float64."""
    full = name if single is None else f"{name}_{'f' if single else 'd'}"
    return ctypes.CFUNCTYPE(*SIGNATURES[name])(capsule_of(full)[1])


def address(array):
    """The address of an array's first element; None for None."""
    return None if array is None else array.ctypes.data


def rows_of(X):
    """The arguments for the rows of X, whose rows lie in one piece each."""
    return address(X), *X.shape, X.strides[0] // X.itemsize


def nearest_centers(X, centers):
    """Outcome, labels and squared distances."""
    labels, squares = np.empty(len(X), np.int32), np.empty(len(X))
    call = function("nearest_centers", X.dtype == np.float32)
    outcome = call(*rows_of(X), address(centers), len(centers), address(labels), address(squares))
    return outcome, labels, squares


def means_of_labels(X, labels, k, weight=None):
    """Outcome, means and weights."""
    means, weights = np.empty((k, X.shape[1])), np.empty(k)
    call = function("means_of_labels", X.dtype == np.float32)
    labels = np.ascontiguousarray(labels, dtype=np.int32)
    arrays = (address(labels), k, address(means), address(weights))
    return call(*rows_of(X), address(weight), *arrays), means, weights


def dp_means(X, lam, *, delayed=False, cap=0, max_iter=300, weight=None, capacity=None):
    """Outcome, labels, centers, objective and number of sweeps."""
    capacity = len(X) if capacity is None else capacity
    labels, centers = np.empty(len(X), np.int32), np.empty((capacity, X.shape[1]))
    k, objective, n_iter = np.zeros(1, np.intp), np.zeros(1), np.zeros(1, np.int32)
    outcome = function("dp_means", X.dtype == np.float32)(
        *(*rows_of(X), address(weight), lam, int(delayed), cap, max_iter),
        *(address(labels), address(centers), capacity, address(k)),
        *(address(objective), address(n_iter)),
    )
    return outcome, labels, centers[: k[0]], objective[0], n_iter[0]


class DynamicMeans:
    """A state of D-Means and its steps."""

    def __init__(self, d, lam, q, tau):
        self.d = d
        self.state = function("dynamic_means_new")(d, lam, q, tau)

    def step(self, X, weight=None, elapsed=1, max_iter=300):
        """Outcome, ids, objective and number of sweeps."""
        ids, objective, n_iter = np.empty(len(X), np.int64), np.zeros(1), np.zeros(1, np.int32)
        x, n, _, stride = rows_of(X)
        outcome = function("dynamic_means_step", X.dtype == np.float32)(
            *(self.state, x, n, stride, address(weight), elapsed, max_iter),
            *(address(ids), address(objective), address(n_iter)),
        )
        return outcome, ids, objective[0], n_iter[0]

    def clusters(self, capacity=None):
        """Ids, centers, weights and ages."""
        call = function("dynamic_means_clusters")
        k = call(self.state, 0, None, None, None, None) if capacity is None else capacity
        arrays = np.empty(k, np.int64), np.empty((k, self.d)), np.empty(k), np.empty(k, np.int64)
        call(self.state, k, *map(address, arrays))
        return arrays

    def free(self):
        """Free the state."""
        function("dynamic_means_free")(self.state)
        self.state = None
