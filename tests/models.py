"""Every estimator, and how tests make it. Tables of tests that name every estimator are made here.

A new estimator is found by itself. It needs an entry in ``MODELS`` where the defaults of ``Model``
do not suit it.
"""

import inspect
from dataclasses import dataclass, field

import numpy as np
from sklearn.base import BaseEstimator

import smallvar

ROWS = np.random.default_rng(0).random((60, 3))
GRAPH = np.exp(-4 * np.square(ROWS[:, None] - ROWS).sum(axis=2))
THIRDS = np.arange(60) % 3
IN_THIRDS = np.eye(3, dtype=int)[THIRDS]
MANY = 10**4  # starts, which take longer than any test waits
ESTIMATORS = [
    value
    for value in (getattr(smallvar, name) for name in smallvar.__all__)
    if inspect.isclass(value) and issubclass(value, BaseEstimator)
]


@dataclass(frozen=True)
class Model:
    """How tests make an estimator."""

    suitable: dict = field(default_factory=lambda: {"lam": 0.2})  # arguments for ROWS
    start: np.ndarray = field(default_factory=lambda: ROWS[:3])  # what `init` takes
    positional: tuple = ()  # parameters that may be given without a name
    # arguments with which a fit of well separated blobs has all stages that it tells callbacks of
    few: dict = field(default_factory=dict)
    stages: str = "coarse path, path, sweep"
    # arguments and shape of normal rows of a fit that takes seconds, and is interrupted
    long: dict = field(default_factory=dict)
    shape: tuple = (10**6, 8)


GIVEN = {"lam": 2.0}
MODELS = {
    "BPMeans": Model(
        {"lam": 4.0},
        IN_THIRDS,
        few={"lam": 5.0, "n_init": 2, "n_threads": 1},
        stages="sweep",
        long={"lam": 2.0, "n_init": MANY},
        shape=(10**5, 12),
    ),
    "BregmanDPMeans": Model(long={"lam": 1e-3, "n_init": MANY}, shape=(10**5, 8)),
    "DPMeans": Model(
        few={**GIVEN, "n_init": 2},
        stages="sweep, start",
        long={"lam": 0.05, "n_init": MANY},
        shape=(2 * 10**6, 3),
    ),
    "DynamicMeans": Model(
        few=GIVEN, stages="time step", long={"lam": 0.01, "n_init": MANY}, shape=(10**5, 4)
    ),
    "HDPMeans": Model(
        {"lam_local": 0.2},
        long={"lam_local": 0.1, "lam_global": 0.1, "n_init": MANY},
        shape=(10**6, 3),
    ),
    "KFeatures": Model(
        {"n_components": 3},
        IN_THIRDS,
        positional=("n_components",),
        few={"n_components": 2, "n_init": 1},
        stages="sweep",
        long={"n_components": 12, "assign": "exact", "n_init": MANY},
        shape=(10**5, 16),
    ),
    "KernelDPMeans": Model(start=THIRDS, few={"lam": 1.0}, stages="sweep"),
    "KernelDynamicMeans": Model(few={"lam": 1.0}, stages="time step"),
    "KernelHDPMeans": Model(
        {"lam_local": 0.2},
        few={"lam_local": 1.0, "lam_global": 1.0},
        stages="sweep",
    ),
    "MahalanobisMeans": Model(
        {"n_clusters": 3},
        positional=("n_clusters",),
        few={"n_clusters": 2, "n_init": 2},
        stages="sweep, start",
        long={"n_clusters": 50, "n_init": MANY},
        shape=(2 * 10**5, 12),
    ),
    "MiniBatchDPMeans": Model(few=GIVEN, stages="pass", long={"lam": 0.01}, shape=(3 * 10**6, 3)),
    "MixedDPMeans": Model(
        long={"lam": 0.01, "max_clusters": 500, "n_init": MANY},
        shape=(10**5, 4),
    ),
    "PenalizedCut": Model(
        {"lam": -0.5},
        THIRDS,
        few={"lam": -0.5, "n_init": 2},
        stages="sweep, start",
    ),
    "RobustDPMeans": Model(long={"lam": 0.02, "price": 0.1}, shape=(5 * 10**5, 3)),
    "SegmentMeans": Model(
        {"lam": 0.2, "lam_switch": 0.01},
        stages="sweep",
        long={"lam": 0.02, "lam_switch": 0.01},
        shape=(10**5, 8),
    ),
    "ShapeMeans": Model(
        {"n_clusters": 3},
        few={"n_threads": 1},
        long={"n_clusters": 30},
        shape=(2 * 10**6, 8),
    ),
    "SpectralDPMeans": Model(few={"lam": 5.0, "n_init": 2}, stages="start"),
    "SpectralDynamicMeans": Model(few={"lam": 1.0}, stages="time step"),
    "TopicMeans": Model(
        {"lam_local": 0.2},
        few={"lam_local": 20.0, "lam_global": 20.0},
        stages="sweep",
        long={"n_init": MANY},
        shape=(10**5, 20),
    ),
    "SphericalDPMeans": Model(
        {"min_cosine": 0.9},
        few={"lam": 0.5},
        stages="sweep",
        long={"lam": 0.001, "n_init": MANY},
        shape=(2 * 10**5, 8),
    ),
}
MODELS |= {e.__name__: Model() for e in ESTIMATORS if e.__name__ not in MODELS}


def model_of(estimator):
    """The entry of an estimator, of its class, or of its name."""
    if isinstance(estimator, str):
        return MODELS[estimator]
    return MODELS[(estimator if inspect.isclass(estimator) else type(estimator)).__name__]


def with_seed(estimator, **arguments):
    """An unfitted one, of a class or a name, whose random numbers are fixed if it draws any."""
    kind = getattr(smallvar, estimator) if isinstance(estimator, str) else estimator
    seed = {"random_state": 0} if "random_state" in inspect.signature(kind).parameters else {}
    return kind(**{**seed, **arguments})


def made(estimator, **arguments):
    """The same with the arguments that suit ROWS."""
    return with_seed(estimator, **{**model_of(estimator).suitable, **arguments})


def data(estimator):
    """What it clusters: rows, or a graph."""
    return GRAPH if estimator.__name__ == "PenalizedCut" else ROWS
