"""Random calls of everything public, and what must hold whatever comes in.

    python tests/fuzz.py --cases 2000            # from seed 0; ends with 1 if there are findings
    python tests/fuzz.py --cases 100000 --workers 2 --seed 500000
    python tests/fuzz.py --case 1234             # prints the program of a case, then runs it here

A case is a short program, made from its seed alone: data of an odd type, layout or size, an
estimator with odd parameters, calls in an odd order. Cases run in worker processes, so that a crash
or a hang is a finding too, and is known by its seed. It is a finding if

- a call ends the process, takes longer than ``--limit`` or more than GROWTH bytes;
- it raises anything but a ValueError, TypeError or MemoryError that was raised on purpose (in a
  ``raise`` of this package, or by scikit-learn's checks);
- after an exception, or after a call that only reads, an attribute of the estimator differs by a
  bit; or a call writes to its input, or fit to a parameter;
- a warning is neither a UserWarning nor comes from another package;
- labels are out of range, clusters empty, centers equal, the objective is not that of the labels,
  not finite, or rises; predict puts a row of a converged fit in a cluster that is not its nearest;
- another number of threads, or the same fit again, gives other bits.
"""

import argparse
import collections
import contextlib
import datetime
import faulthandler
import io
import json
import linecache
import os
import pickle
import random
import re
import resource
import selectors
import signal
import struct
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
import scipy.sparse
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import ConvergenceWarning

import smallvar
from smallvar._core.fitted_rows import FittedRows
from smallvar._selection.cluster_path import ClusterPath

GROWTH = 2 * 10**9
# Known at the edge of float64, and no finding: running means are sums from zero, so that they may be
# off by 2^-52 of the largest value; of values beyond this, the square of that may have no float64.
LARGEST_MEAN = 1e140
# Of classes only estimators are called. Displays draw what these have fitted: their bad input is in
# test_plot.py.
PUBLIC = {
    name: value
    for name in smallvar.__all__
    if not isinstance(value := getattr(smallvar, name), type) or issubclass(value, BaseEstimator)
}
PRELUDE = """\
import copy, pickle, tempfile
from decimal import Decimal
from fractions import Fraction
import networkx as nx
import numpy as np
import pandas as pd
import scipy.sparse
from sklearn.base import clone
from smallvar import *
"""

# Parameters ---------------------------------------------------------------------------------
# Programs are text, so values are too. A parameter has good values, mostly taken, and bad ones.

WRONG = ["None", "'x'", "b'x'", "[1]", "{}", "1j", "np.array([1, 2])", "np.zeros(0)", "object"]
NO_NUMBER = [*WRONG, "np.nan", "-1", "-np.inf", "Decimal('0.5')", "True", "np.datetime64('2020')"]
NO_COUNT = [*NO_NUMBER, "0", "1.5", "np.inf", "-10**30", "np.float64(2)", "Fraction(1, 2)"]

LAM = ["0.01", "0.5", "0.5", "2.0", "4", "4.0", "30.0", "1000.0", "np.float32(0.25)", "np.int64(3)"]
LAM_ODD = [
    *NO_NUMBER, "0", "0.0", "-0.0", "np.inf", "1e300", "1e-300", "5e-324", "10**30", "10**400",
    "Fraction(1, 2)", "Fraction(1, 10**400)", "np.float16(0.5)", "np.longdouble('0.5')",
    "np.longdouble('1e-4000')", "np.longdouble('1e4000')", "np.array(0.5)", "'auto'", "1e-13",
]  # fmt: skip
COUNT = (["1", "2", "3", "5"], [*NO_COUNT, "40", "10**30", "np.uint8(3)", "np.int64(2)", "300"])
NUMBER = ([*["None"] * 6, "'auto'", "1", "2", "3"], NO_COUNT[1:])
CAP = (["None", "1", "2", "3", "5", "10**30", "np.int32(4)"], NO_COUNT[1:])
FEW = (["1", "1", "2", "3"], [*NO_COUNT, "np.int8(2)"])  # what is repeated so many times
SWEEPS = (["300", "1", "2", "7", "10**30", "np.int16(20)"], NO_COUNT)
TOL = (["0.0", "0", "1e-4", "0.1", "np.float32(0.01)", "Fraction(1, 10)"], [*NO_NUMBER, "10**400"])
SEED = (["0", "1", "7", "0"], ["None", "np.random.RandomState(0)", "-1", "'x'", "10**30", "1.5"])
THREADS = (["None", "1", "2", "3"], [*NO_COUNT[1:], "100", "100000", "10**30", "np.int64(2)"])
VERBOSE = (["0", "0", "1"], ["True", "'x'", "None"])
FLAG = (["True", "False"], ["None", "1", "'yes'", "np.True_"])
KERNEL = (
    ["'rbf'", "'rbf'", "'linear'", "'laplacian'", "'poly'", "'cosine'", "'sigmoid'", "'precomputed'"],
    [
        "'chi2'", "'additive_chi2'", "'x'", "None", "3", "lambda A, B: A @ B.T",
        "lambda A, B: np.exp(-np.abs(A[:, :1] - B[:, 0]))", "lambda A, B: None",
        "lambda A, B: A[:, :1]", "lambda A, B: np.nan * (A @ B.T)", "lambda A: A", "lambda A, B: 1 / 0",
        "lambda A, B: (A @ B.T).astype(complex)", "lambda A, B: (A @ B.T).tolist()",
        "lambda A, B: (A @ B.T).astype(np.float16)", "lambda A, B: scipy.sparse.csr_array(A @ B.T)",
        "lambda A, B: -(A @ B.T)", "lambda A, B: np.zeros((len(A), len(B)), dtype=bool)",
    ],
)  # fmt: skip
GAMMA = (["None", "0.5", "1.0", "np.float32(2)", "0"], [*NO_NUMBER, "1e300", "1e-300", "10**400"])
KERNELS = {"kernel": KERNEL, "gamma": GAMMA}
LOOP = {"n_init": FEW, "random_state": SEED, "verbose": VERBOSE}
CLUSTER = {
    **LOOP, "n_clusters": NUMBER, "guess": COUNT, "max_clusters": CAP, "max_iter": SWEEPS, "tol": TOL,
    "n_threads": THREADS,
}  # fmt: skip
PLAIN = (
    ["'serial'", "'delayed'", "'collapsed'", "'merge'"],
    ["None", "'x'", "3", "np.array(['serial', 'merge'])"],
)
METRIC = (["'euclidean'", "'euclidean'", "'auto'"], ["None", "'x'", "3", "np.array(['auto'])"])
PENALTY = ([*LAM, "'farthest-first'"], LAM_ODD)
AUTO = ([*LAM, *LAM, "'farthest-first'", "'auto'"], LAM_ODD)
START = (
    ["'mean'", "'mean'", "X[:2]", "X[:3]", "X[-1:]", "np.asarray(X)[:4].astype(np.float32)"],
    [
        "X", "'x'", "None", "3", "[]", "X[:0]", "np.zeros((2, 99))", "X[:2].tolist()", "np.zeros(3)",
        "np.full((2, d), np.nan)", "np.full((1, d), 1e300)", "np.zeros((2, d))", "np.ones((1, d), bool)",
        "[['a'] * d]",
    ],
)  # fmt: skip
LABELS = (
    ["'mean'", "np.arange(n) % 2", "np.zeros(n, dtype=np.int8)", "list(range(n))"],
    [
        "np.arange(n) % 3 - 1", "np.zeros(n)", "np.zeros(n + 1, dtype=int)", "'x'", "None", "3",
        "np.full(n, 10**18)", "np.arange(n).astype(np.uint64) + 2**63", "np.zeros((n, 1), dtype=int)",
    ],
)  # fmt: skip
BITS = (
    ["'alternate'", "'mean'", "'data'", "np.arange(2 * n).reshape(n, 2) % 2"],
    [
        "np.eye(n, dtype=bool)", "np.zeros((n, 2))", "np.ones((n, 3), dtype=int)", "np.zeros((n, 0))",
        "'x'", "None", "np.zeros((n + 1, 2))", "np.full((n, 2), 2)", "np.full((n, 2), np.nan)",
    ],
)  # fmt: skip
GAP = (["1", "1", "2", "3", "np.int8(5)"], [*NO_COUNT, "10**30", "2**31 - 1", "2**31"])
FEATURES = {
    **LOOP, "n_components": COUNT, "max_iter": SWEEPS, "tol": TOL, "n_threads": THREADS, "init": BITS,
    "n_swaps": (["0", "'auto'", "1", "3"], NO_COUNT),
}  # fmt: skip
ASSIGN = (["'coordinate'", "'exact'"], ["None", "'x'"])
CUT = {
    "cut": (["'normalized'", "'ratio'"], WRONG),
    "algorithm": (["'multilevel'", "'incremental'", "'batch'"], WRONG),
    "init": (["None", *LABELS[0][1:]], LABELS[1]),
    "max_iter": SWEEPS,
    **LOOP,
}
# Values by the name of a parameter, and those that an estimator has for itself.
VALUES = {
    **CLUSTER, **KERNELS, "lam": AUTO, "algorithm": PLAIN, "init": START, "metric": METRIC,
    "noise": FLAG, "link_penalty": (["np.inf", "0.5", "np.float32(2)"], [*NO_NUMBER, "0", "-1.0"]),
    "min_cluster_size": (["None", "None", "None", "1", "2", "3", "0.2", "np.int64(4)"], [*NO_COUNT[1:], "40", "1.0"]),
    "record": FLAG, "budget": (["100", "1", "2", "5"], NO_COUNT),
    "lam_local": PENALTY, "lam_global": PENALTY, "max_features": CAP, "n_swaps": FEATURES["n_swaps"],
    "max_memory": (["2e9", "1e9", "100.0", "1", "4000"], [*NO_NUMBER, "0", "np.inf", "10**400"]),
    "t_q": (["None", "None", "2", "3.5", "np.inf"], [*NO_NUMBER, "1", "1e300", "10**400"]),
    "k_tau": (["None", "None", "1.5", "1", "4"], [*NO_NUMBER, "0.5", "np.inf", "1e300", "10**400"]),
    "q": (["None", "None", "0.5", "0"], [*NO_NUMBER, "np.inf", "1e300", "1e-300"]),
    "tau": (["None", "None", "0.5", "0", "2"], [*NO_NUMBER, "np.inf", "1e300", "10**400"]),
    "directions": FLAG,
    "divergence": (["'squared_euclidean'", "'kl'", "'itakura_saito'", "'logistic'"], ["'x'", "None"]),
    "price": ([*LAM, "'auto'"], LAM_ODD), "batch_size": (["4096", "1", "2", "5", "10**30"], NO_COUNT),
    "min_cosine": (["None", "0.5", "0.9", "-0.5", "np.float32(0.7)"], ["1", "-1.0", "'auto'", *NO_NUMBER]),
    "lam_switch": ([*LAM, "'auto'", "'auto'", "0", "0.0"], LAM_ODD),
    "volume": (["'points'", "'clusters'"], ["'x'", "None"]),
    "scale": (["1.0", "0.5", "3"], [*NO_NUMBER, "0", "np.inf", "1e300", "1e-300", "10**400"]),
    "reg_covar": (["'auto'", "0", "0.1", "3.0"], [*NO_NUMBER, "np.inf", "1e300", "1e-300"]),
    "covariances": (
        ["None", "None", "np.eye(d)", "np.diag(np.arange(1.0, d + 1))"],
        ["np.eye(d + 1)", "-np.eye(d)", "np.zeros((d, d))", "np.full((d, d), np.nan)", "3", "'x'",
         "np.stack([np.eye(d)] * 2)", "1e300 * np.eye(d)", "1e-300 * np.eye(d)",
         "np.arange(d * d).reshape(d, d)"],
    ),
    "rounding": (["'yu-shi'", "'kmeans'"], ["None", "'x'"]),
    "columns": (
        ["'auto'", "{0: 'normal'}", "{0: 'categorical'}", "{0: 'auto', 1: None}", "{'c0': 'ordered'}", "{0: 'poisson'}"],
        ["None", "'x'", "{0: 'x'}", "{99: None}", "{'nope': 'normal'}", "3", "{0: 3}", "{None: None}"],
    ),
}  # fmt: skip
OWN = {
    "MixedDPMeans": {
        "lam": ([*LAM, *LAM, "'auto'", "'auto'"], [*LAM_ODD, "'farthest-first'"]),
        "init": (["'mean'", "'mean'", "X[:2]", "np.asarray(X)[:3]"], START[1]),
    },
    "SphericalDPMeans": {
        "lam": ([*AUTO[0], "None", "0.3", "1.2"], AUTO[1]),
        "algorithm": (["'serial'", "'delayed'"], ["'collapsed'", "'merge'", "None", "'x'"]),
        "init": (["'first'", "'first'", *START[0][2:]], ["'mean'", *START[1]]),
    },
    "MiniBatchDPMeans": {
        "max_iter": (["100", "1", "3"], NO_COUNT),
        "half_life": (["None", "None", "3.0", "50", "1e-3"], ["0", "-1.0", "'1'", "np.nan"]),
    },
    "RobustDPMeans": {
        "lam": ([*LAM, "'auto'"], LAM_ODD),
        "init": (["'path'", "'path'", *START[0][2:]], ["'mean'", *START[1]]),
    },
    "MahalanobisMeans": {
        "n_clusters": (["'auto'", *COUNT[0]], COUNT[1]),
        "lam": (["None", "None", "0.5", "-3.0", "-10", "1.5"], LAM_ODD),
        "init": (["'auto'", "'merge'", "'k-means++'", *START[0][2:]], START[1]),
    },
    "HDPMeans": {"lam_local": AUTO, "lam_global": AUTO},
    "TopicMeans": dict.fromkeys(("lam_local", "lam_global"), ([*LAM, "'auto'", "'auto'"], LAM_ODD)),
    "SegmentMeans": {"lam": ([*LAM, "'auto'", "'auto'"], LAM_ODD)},
    "KernelHDPMeans": {
        "lam_global": ([*PENALTY[0], "'points'"], PENALTY[1]),
        "init": (["'auto'", "'mean'", "'merge'"], ["None", "'x'"]),
    },
    "KernelDPMeans": {
        "lam": PENALTY, "algorithm": (["'serial'", "'collapsed'"], ["'merge'", "None", "'x'"]),
        "init": LABELS,
    },
    "SpectralDPMeans": {"lam": ([*PENALTY[0], "'auto'", "'spectrum'"], PENALTY[1])},
    "BPMeans": {
        **FEATURES,
        "algorithm": (["'sweep'", "'collapsed'", "'stepwise'"], ["None", "'x'"]),
        "assign": (["'auto'", *ASSIGN[0]], ASSIGN[1]),
    },
    "KFeatures": {
        **FEATURES, "n_components": ([*COUNT[0], "'auto'"], [*COUNT[1], "'x'"]), "assign": ASSIGN,
    },
    "KernelDynamicMeans": {"lam": PENALTY},
    "SpectralDynamicMeans": {"lam": PENALTY},
    "PenalizedCut": {
        **CUT,
        "lam": (
            ["None", "-0.5", "-0.3", "-0.9", "-1.2", "-2", "'auto'", "'plateau'"],
            [*(odd for odd in LAM_ODD if odd != "'auto'"), "0", "1"],
        ),
    },
}  # fmt: skip


def values_of(name):
    """Values of all parameters of an estimator; the default, where nothing is said of one."""
    own = {**VALUES, **OWN.get(name, {})}
    return {
        p: own.get(p, ([repr(value)], WRONG)) for p, value in PUBLIC[name]().get_params().items()
    }


PARAMETERS = {
    **{name: values_of(name) for name, value in PUBLIC.items() if isinstance(value, type)},
    "cluster_path": {"max_clusters": CAP, "random_state": SEED, "n_threads": THREADS, "verbose": VERBOSE},
    "farthest_first_lambda": {"count_alone": FLAG, "n_threads": THREADS},
    "hdp_lambdas": {"count_alone": FLAG, "n_threads": THREADS},
    "hdp_bound": {"kernel": (["'linear'"], ["'rbf'", "None"])},
    "coreset": {"random_state": SEED, "n_threads": THREADS},
    "boundary_evidence": {"n_threads": THREADS},
    "feature_path": {
        **{name: values for name, values in FEATURES.items() if name != "n_components"},
        "max_components": (["2", "3", "5"], [*NO_COUNT, "10**30"]),
        "assign": ASSIGN, "nope": ([], ["1"]),
    },
    "cut_path": {
        **CUT, "n_lams": (["5", "3", "1"], NO_COUNT), "lam": ([], ["-0.5"]), "nope": ([], ["1"]),
        "lams": (["[-0.5, -0.2]", "np.linspace(-1, 0, 4)"], [*NO_NUMBER, "[]", "[[1]]", "[np.nan]", "1e300"]),
    },
    "match_clusters": {},
    "renumber": {
        "max_move": (["None", "None", "0.5", "1e3"], ["0", "-1", "'x'", "np.nan", "True"]),
        "max_gone": (["None", "1", "5"], NO_COUNT), "nope": ([], ["1"]),
    },
    "tune_dynamic": {
        "lam": (["0.5", "[0.1, 1.0]"], [*LAM_ODD, "[]"]), "t_q": (["3", "[2, 5.0]"], ["1", "[0.5]", "'x'", "None"]),
        "k_tau": (["1", "[1, 1.2]"], ["0.5", "[[1]]", "np.nan"]), "n_init": FEW, "step": (["None", "1"], ["0", "1.5"]),
        "random_state": SEED, "n_threads": THREADS, "verbose": VERBOSE,
    },
    "show_config": {},
    "progress_callback": {},
    "get_include": {},
}  # fmt: skip
# How often a class or function is the subject of a case.
SHARE = {"DPMeans": 6, "BPMeans": 3, "HDPMeans": 3, "DynamicMeans": 3, "MiniBatchDPMeans": 3,
         "show_config": 0.02, "progress_callback": 0.02, "get_include": 0.02,
         "SpectralDynamicMeans": 0.5, "KernelDynamicMeans": 0.5}  # fmt: skip
# Parameters for the length of time that they cost, or so that something is reached, taken where
# the case does not choose others.
DEFAULTS = {
    "DPMeans": {"lam": LAM}, "BregmanDPMeans": {"lam": LAM}, "MiniBatchDPMeans": {"lam": LAM},
    "SphericalDPMeans": {"lam": ["None", "0.3"]},
    "KFeatures": {"n_components": ["1", "2", "3"], "n_init": ["1", "2"]},
    "BPMeans": {"lam": LAM, "n_init": ["1", "2"]}, "MahalanobisMeans": {"n_clusters": ["'auto'", "1", "2", "3"]},
    "KernelDPMeans": {"lam": ["0.1", "0.5", "2.0"]}, "SpectralDPMeans": {"lam": LAM, "n_init": ["2"]},
    "KernelDynamicMeans": {"lam": ["0.1", "0.5", "2.0"]}, "SpectralDynamicMeans": {"lam": LAM},
    "tune_dynamic": {"lam": ["0.5", "[0.1, 1.0]"], "t_q": ["3", "[2, 5]"], "k_tau": ["1.05"]},
    "DynamicMeans": {"lam": LAM}, "feature_path": {"max_components": ["2", "3"], "n_init": ["1"]},
    "cut_path": {"n_lams": ["4"], "n_init": ["1"]},
}  # fmt: skip
HAVE_NOISE = "RobustDPMeans", "ShapeMeans", "SphericalDPMeans", "TopicMeans"  # label -1
READS = {
    "predict", "predict_proba", "score_samples", "outlier_scores", "transform", "score", "impute", "inverse_transform", "get_feature_names_out", "get_params",
    "to_sklearn_kmeans", "other",
}  # fmt: skip


class Case:
    """The program of a seed: steps of text, and for calls what they are about."""

    def __init__(self, seed):
        self.seed, self.r, self.steps = seed, random.Random(seed), []
        names = list(PARAMETERS)
        self.name = self.r.choices(names, [SHARE.get(name, 1) for name in names])[0]
        # a calm case has hardly anything odd, so that the deeper code is reached
        self.odd = self.r.choice([0.0, 0.02, 0.02, 0.08, 0.3])
        self.graph = self.name in ("PenalizedCut", "cut_path")
        self.scale = "1.0"
        self.set("rng", f"np.random.default_rng({self.r.randrange(10**6)})")
        self.chosen = {}
        calls = {
            "show_config": "show_config()", "progress_callback": "progress_callback(str)",
            "get_include": "get_include()",
        }  # fmt: skip
        if self.name == "match_clusters" or self.name in calls:
            self.call(calls[self.name], "other") if self.name in calls else self.costs()
            return
        if self.name == "renumber":
            self.data("X")
            self.fits()
            return
        self.choose()
        self.data("X")
        if (
            issubclass(PUBLIC[self.name], BaseEstimator)
            if isinstance(PUBLIC[self.name], type)
            else False
        ):
            self.estimator()
        else:
            self.function()

    def set(self, name, value):
        """A step that makes data; if it cannot be done, it is left out."""
        self.steps.append(("set", f"{name} = {value}", {}))

    def do(self, text):
        """The same, for a statement."""
        self.steps.append(("set", text, {}))

    def call(self, text, op, **about):
        """A call that is watched."""
        self.steps.append(("call", f"out = {text}", {"op": op, **about}))

    def pick(self, *choices):
        """One of these."""
        return self.r.choice(choices)

    def chance(self, p):
        """True with this probability."""
        return self.r.random() < p

    def strange(self, times=1.0):
        """True where this case does something odd."""
        return self.chance(self.odd * times)

    # parameters

    def value(self, name, good, bad):
        """The text of a parameter."""
        value = self.r.choice(bad if bad and (self.strange() or not good) else good)
        known = name in ("lam", "lam_local", "lam_global", "q", "scale", "reg_covar")
        if known and value in good and self.scale != "1.0" and value[0] in "0123456789n":
            return f"float({value}) * {self.scale} ** 2"
        return value

    def choose(self):
        """Which parameters are not the default."""
        table = PARAMETERS[self.name]
        for name, values in DEFAULTS.get(self.name, {}).items():
            if self.chance(0.85):
                self.chosen[name] = self.r.choice(values)
        for name in table:
            if self.chance(0.2) and (table[name][0] or self.strange()):
                self.chosen[name] = None  # the value is chosen where the data are known
        if self.name == "BPMeans" and self.chance(0.1):  # "exact" is refused without the others
            most = self.pick("2", "5", "12")
            self.chosen |= {"algorithm": "'collapsed'", "assign": "'exact'", "max_features": most}
        if "random_state" in table and not self.strange():
            self.chosen["random_state"] = self.pick("0", "1", "2")
        pairs = [("t_q", "k_tau"), ("q", "tau")]
        if "q" in table and not self.strange():
            both = self.pick(None, *pairs)
            for name in ("t_q", "k_tau", "q", "tau"):
                self.chosen.pop(name, None)
                if both and name in both:
                    self.chosen[name] = self.r.choice(table[name][0][2:])

    def arguments(self):
        """Text of all parameters chosen."""
        table = PARAMETERS[self.name]
        parts = []
        for name, value in self.chosen.items():
            if value is None:
                value = self.chosen[name] = self.value(name, *table[name])
            elif name == "lam" and self.scale != "1.0" and value[0] in "0123456789n":
                value = f"float({value}) * {self.scale} ** 2"
            parts.append(f"{name}={value}")
        return ", ".join(parts)

    # data

    def size(self):
        """Numbers of rows and columns."""
        n = self.r.choices(
            [1, 2, 3, 5, 7, 12, 20, 33, 130, 2600], [2, 3, 6, 9, 9, 9, 9, 5, 1, 0.15]
        )[0]
        slow = self.name in (
            "SpectralDynamicMeans",
            "KernelDynamicMeans",
            "feature_path",
            "BPMeans",
            "KFeatures",
        )
        return (
            min(n, 40)
            if slow or self.graph or "Kernel" in self.name or "Spectral" in self.name
            else n
        )

    def data(self, name):
        """Steps that make the data of a first fit."""
        n, d = self.size(), self.r.choices([1, 2, 3, 5, 8, 17], [4, 8, 6, 3, 2, 1])[0]
        if self.graph:
            self.graph_of(name, n)
            return
        if n >= 1000:
            d = min(d, 3)
        self.set("n, d", f"{n}, {d}")
        form = self.pick(
            "blobs", "blobs", "grid", "grid", "normal", "bits", "copies", "constant", "line"
        )
        text = {
            "blobs": "rng.normal(size=(n, d)) + 6 * rng.integers(0, 4, size=(n, 1))",
            "grid": f"rng.integers(0, {self.pick(2, 3, 4)}, size=(n, d)).astype(float)",
            "normal": "rng.normal(size=(n, d))",
            "bits": "rng.integers(0, 2, size=(n, 3)) @ rng.normal(size=(3, d))",
            "copies": "rng.normal(size=(3, d))[rng.integers(0, 3, size=n)]",
            "constant": f"np.full((n, d), {self.pick('0.0', '1.0', '0.1', '-3.7', '1e8')})",
            "line": "np.outer(np.arange(n), np.ones(d))",
        }[form]
        self.set(name, text)
        self.domain(name)
        if self.name == "MixedDPMeans" and self.chance(0.7):
            self.table_of(name)
            return
        if self.chance(0.25):
            change, scale = self.pick(
                ("{0} + 1e8", None), ("{0} * 1e8", "1e8"), ("{0} * 1e-8", "1e-8"), ("{0} + 1e4", None),
                ("{0} * 1e100", "1e100"), ("{0} * 1e-100", "1e-100"),
                ("np.where(rng.random((n, d)) < 0.5, 0.0, {0})", None),
                ("{0} * np.r_[np.full(n - 1, 1.0), 1e14][:, None]", None),
                ("{0} * np.r_[np.zeros(d - 1), 1.0]", None), ("{0} - 1e8", None),
                ("np.repeat({0}, 2, axis=0)[:n]", None), ("np.round({0}, 1)", None),
                ("{0} * 10.0 ** rng.integers(-6, 6, size=d)", None), ("{0} + 1e15", None),
                ("{0} * 10.0 ** rng.integers(-9, 9, size=(n, 1))", None), ("-0.0 * {0}", None),
            )  # fmt: skip
            self.set(name, change.format(name))
            if scale:
                self.scale = scale
        if self.strange(2):
            self.set(
                name,
                self.pick(
                    "{0} * 1e300", "{0} * 1e-300", "{0} * 5e-324", "{0} * 1e150", "{0} * 1e-150",
                    "{0} * 1e139", "{0} * 1e-139", "np.where(np.arange(n)[:, None] == n - 1, np.nan, {0})",
                    "np.where({0} > 1, np.inf, {0})", "np.where(np.arange(n)[:, None] == 0, -np.inf, {0})",
                    "np.where(np.arange(n)[:, None] == 0, 1e300, {0})", "{0} * 1e200",
                    "np.where(np.arange(n)[:, None] == 0, 5e-324, {0})", "{0} * 1e38", "{0} * 1e-40",
                ).format(name),
            )  # fmt: skip
        kernel = self.chosen.get("kernel", "")
        if "kernel" in PARAMETERS[self.name] and "kernel" in self.chosen and kernel is None:
            kernel = self.chosen["kernel"] = self.value("kernel", *PARAMETERS[self.name]["kernel"])
        if kernel == "'precomputed'" and not self.strange():
            self.set(name, f"{name} @ {name}.T")
            self.set("d", "n")
        if kernel in ("'chi2'", "'additive_chi2'") and not self.strange():
            self.set(name, f"np.abs({name})")
        self.dress(name)

    def table_of(self, name):
        """A table of columns of several kinds, with gaps."""
        columns = [
            f"rng.choice(['red', 'green', 'blue', {self.pick(None, 'chr(0)', 'str(1)')!s}], size=n)",
            "rng.integers(0, 2, size=n).astype(bool)",
            "rng.poisson(3, size=n)",
            "rng.exponential(size=n)",
            "pd.Categorical(rng.choice(list('abc'), size=n), ordered=True)",
            "pd.Series(rng.choice([True, False, None], size=n), dtype='boolean')",
            "pd.array(rng.choice([1, 2, 3, None], size=n), dtype='Int64')",
            "np.arange(n)",
            "[f'row {i}' for i in range(n)]",
            "pd.date_range('2020', periods=n)",
            "rng.normal(size=n).astype(np.float32)",
            "np.full(n, np.nan)",
            "np.where(rng.random(n) < 0.6, 0.0, rng.exponential(size=n))",
            "rng.integers(1, 6, size=n)",
        ]
        if self.strange(3):
            columns += [
                "[1, 'a', None, 2.5] * n", "np.full(n, np.inf)", "[[1, 2]] * n", "[object()] * n",
                "rng.normal(size=n) * 1j", "rng.normal(size=n) * 1e200", "[10**400] * n",
            ]  # fmt: skip
        chosen = self.r.sample(columns, self.pick(1, 2, 3, 5))
        parts = ", ".join(
            f"'c{j}': pd.Series({text}).iloc[:n].reset_index(drop=True)"
            for j, text in enumerate(chosen)
        )
        self.set(name, f"pd.DataFrame({name}).assign(**{{{parts}}})")
        self.set(name, f"{name}.rename(columns=str)")
        if self.chance(0.5):
            self.set(name, f"{name}.mask(rng.random({name}.shape) < {self.pick(0.1, 0.5)})")
        if self.chance(0.2):
            self.set(name, f"{{name: np.asarray(x) for name, x in {name}.items()}}")

    def domain(self, name):
        """Data where a divergence is defined."""
        if "divergence" in self.chosen and self.chosen["divergence"] is None:
            self.chosen["divergence"] = self.value(
                "divergence", *PARAMETERS[self.name]["divergence"]
            )
        change = {
            "'kl'": self.pick("np.abs({0})", "np.round(np.abs({0}))"),
            "'itakura_saito'": "np.abs({0}) + 0.1",
            "'logistic'": self.pick("np.clip(np.abs({0}) / 9, 0, 1)", "({0} > 1) * 1.0"),
        }.get(self.chosen.get("divergence"))
        if self.name == "TopicMeans":
            change = self.pick("np.abs({0})", "np.round(np.abs({0}))")
        if change and not self.strange():
            self.set(name, change.format(name))

    def dress(self, name, p=0.3):
        """Another type or layout of the same data."""
        if self.chance(p):
            dtype = self.pick(
                "np.float32", "np.float32", "np.float32", "np.float16", "np.int8", "np.int64", "np.uint64", "bool",
                "np.longdouble", "object", "'>f8'", "'>f4'", "np.int32", "np.uint8",
            )  # fmt: skip
            if dtype in ("np.float32", "'>f8'") or self.chance(0.6):
                self.set(name, f"{name}.astype({dtype})")
        if self.strange():
            dtype = self.pick("complex", "str", "bytes", "'M8[s]'", "'m8[D]'")
            # from text to dates numpy itself may crash
            number = ".astype(float)" if "8" in dtype else ""
            self.set(name, f"{name}{number}.astype({dtype})")
        if self.chance(p):
            layout = self.pick(
                "np.asfortranarray({0})", "{0}[::-1, ::-1]", "np.repeat({0}, 2, axis=0)[::2]", "{0}.T.copy().T",
                "np.broadcast_to({0}[:1], {0}.shape)", "np.broadcast_to({0}[:, :1], {0}.shape)",
                "np.ascontiguousarray(np.repeat({0}, 3, axis=1)[:, ::-3])", "np.repeat({0}, 3, axis=1)[:, ::-3]",
                "{0}.tolist()", "[tuple(row) for row in {0}]", "np.ma.masked_array({0})", "np.matrix({0})",
                "READONLY", "MEMMAP", "PACKED", "{0}[:]", "pd.DataFrame({0})",
                "pd.DataFrame({0}, columns=[f'c{{j}}' for j in range({0}.shape[1])])",
                "pd.DataFrame({0}).astype('Float64')", "np.lib.stride_tricks.as_strided({0}, {0}.shape, (0, 0))",
            )  # fmt: skip
            if layout == "READONLY":
                self.do(f"{name}.setflags(write=False)")
            elif layout == "MEMMAP":
                self.set(
                    "store",
                    f"np.memmap(tempfile.TemporaryFile(), {name}.dtype, 'w+', shape={name}.shape)",
                )
                self.do(f"store[:] = {name}")
                self.set(name, "store")
            elif layout == "PACKED":
                self.set(
                    "record",
                    f"np.zeros(len({name}), dtype=[('a', 'i1'), ('x', {name}.dtype, {name}.shape[1:])])",
                )
                self.do(f"record['x'] = {name}")
                self.set(name, "record['x']")
            else:
                self.set(name, layout.format(name))
        takes_sparse = (
            *("DPMeans", "MiniBatchDPMeans", "farthest_first_lambda", "coreset"),
            *("boundary_evidence", "ShapeMeans"),
        )
        if self.name in takes_sparse and self.chance(0.15):
            kind = self.pick("csr", "csc", "coo", "lil", "bsr")
            self.set(name, f"scipy.sparse.{kind}_{self.pick('array', 'matrix')}({name})")
        if self.strange(0.7):
            shape = self.pick(
                "{0}[:, 0]", "{0}[0]", "np.asarray({0}).ravel()[0]", "np.asarray({0})[None]", "{0}[:0]", "{0}[:, :0]",
                "{0}[:0, :0]", "scipy.sparse.csr_array({0})", "scipy.sparse.coo_matrix({0})", "pd.Series({0}[:, 0])",
                "[]", "[[]]", "None", "'text'", "3.0", "{{}}", "[[1.0, 2.0], [3.0]]", "iter([])", "{0}[:1]",
                "pd.DataFrame({0}).astype('category')", "np.array([[{{}}, 1], [2, 3]], dtype=object)",
                "[['a', 'b'], ['c', 'd']]", "[[None, 1.0], [2.0, 3.0]]", "[[10**400, 1], [2, 3]]", "range(5)",
                "[[Fraction(1, 2)] * 2] * 3", "np.empty(({0}.shape[0], 0))", "np.zeros((0, 0))",
            )  # fmt: skip
            self.set(name, shape.format(name))

    def graph_of(self, name, n):
        """A graph, as a matrix or otherwise."""
        self.set("n, d", f"{n}, {n}")
        self.set(
            name,
            self.pick(
                "1.0 * (rng.random((n, n)) < 0.3)", "rng.random((n, n))", "rng.integers(0, 3, size=(n, n))",
                "np.kron(np.eye(n), np.ones((n, n)))[:n, :n] + 0.01", "np.zeros((n, n))", "np.eye(n)",
                "rng.random((n, n)) * (rng.random((n, n)) < 0.2)", "10.0 ** rng.integers(-8, 8, size=(n, n))",
                "(rng.random((n, n)) < 0.3).astype(np.float32)", "rng.random((n, n)) < 0.3",
            ),
        )  # fmt: skip
        if not self.strange():
            self.set(name, f"np.triu({name}, {self.pick(1, 1, 0)})")
            self.set(name, f"{name} + {name}.T")
        if self.strange(2):
            self.set(
                name,
                self.pick("{0} * 1e300", "{0} * 1e-300", "-{0}", "{0} * np.nan", "{0} * 5e-324", "{0} * np.inf")
                .format(name),
            )  # fmt: skip
        if self.chance(0.4):
            sparse = self.pick("csr", "csc", "coo", "lil", "dok", "bsr")
            self.set(name, f"scipy.sparse.{sparse}_{self.pick('array', 'matrix')}({name})")
        elif self.chance(0.2):
            self.set(name, f"nx.from_numpy_array(np.asarray({name}), create_using=nx.{self.pick('Graph', 'Graph', 'MultiGraph', 'DiGraph')})")  # fmt: skip
        else:
            self.dress(name)

    def other(self, name):
        """Data for a second call: mostly like the first, or part of them."""
        if self.graph:
            self.set(name, "X")
            return
        text = self.pick(
            "X", "X", "np.asarray(X)[:3]", "np.asarray(X)[::-1]", "np.asarray(X)[:1]",
            "rng.normal(size=(4, d))", "np.asarray(X) + 0.5", "np.asarray(X) * 2.0",
        )  # fmt: skip
        if self.strange():
            text = self.pick(
                "np.asarray(X)[:0]", "rng.normal(size=(4, d + 1))", "rng.normal(size=(3, max(d - 1, 0)))",
                "np.asarray(X) * 1e200", "np.full((2, d), np.nan)", "np.asarray(X).T", "np.zeros((2, d))",
                "np.asarray(X) * 1e-200", "np.full((1, d), 1e139)", "np.full((3, d), -1e30)",
            )  # fmt: skip
        self.set(name, text)
        self.dress(name, p=0.12)

    def weight(self, name, of):
        """Weights of rows, or None; returns whether there are any."""
        if not self.chance(0.35):
            return False
        m = f"np.shape({of})[0]"
        text = self.pick(
            f"rng.random({m})", f"rng.integers(1, 4, size={m})", f"np.ones({m})", f"rng.integers(0, 2, size={m}) + 0.0",
            f"10.0 ** rng.integers(-3, 3, size={m})", f"[1.0] * {m}", f"np.full({m}, 1e-6)", "2",
            f"rng.random(2 * {m})[::2].astype(np.float32)", f"pd.Series(rng.random({m}))",
            f"np.broadcast_to(2.0, {m})",
        )  # fmt: skip
        if self.strange(2):
            text = self.pick(
                f"np.zeros({m})", f"-np.ones({m})", f"np.full({m}, np.nan)", f"np.full({m}, np.inf)", "'x'",
                f"10.0 ** rng.uniform(-10, 10, size={m})", f"10.0 ** rng.integers(-150, 150, size={m})",
                f"np.ones({m} + 1)", f"np.ones(({m}, 1))", f"np.ones({m}, dtype=bool)", "np.nan", "-1", "0", "[]",
                f"np.full({m}, 1e300)", f"np.full({m}, 1e-300)", f"np.full({m}, 5e-324)", f"['a'] * {m}", "1e300",
                f"np.ones({m}, dtype=complex)", f"np.r_[np.ones({m} - 1), -1e-300]", f"np.full({m}, 10**400)",
                f"np.ones({m}, dtype='M8[s]')", f"np.r_[1e20, np.ones({m} - 1)]", f"[None] * {m}",
                f"np.r_[1.0, np.zeros({m} - 1)]", f"np.ones({m}, dtype=object)", "scipy.sparse.eye(3)",
            )  # fmt: skip
        self.set(name, text)
        return True

    def groups(self, name, of):
        """Data sets or times of rows."""
        m = f"np.shape({of})[0]"
        text = self.pick(
            f"rng.integers(0, 3, size={m})", f"rng.choice(['a', 'b', 'c'], size={m})", f"np.arange({m}) // 3", "None",
            f"np.arange({m})", f"rng.integers(0, 3, size={m}) * 0.5", f"rng.integers(0, 3, size={m}).tolist()",
            f"pd.Series(rng.choice(['u', 'v'], size={m}))", f"rng.integers(0, 3, size={m}).astype('M8[D]')",
            f"rng.integers(-9, 9, size={m}).astype(np.int8)", f"np.zeros({m}, dtype=bool)",
        )  # fmt: skip
        if self.strange(2):
            text = self.pick(
                f"np.full({m}, np.nan)", f"np.zeros({m} + 1)", f"np.zeros(({m}, 2))", f"[None] * {m}", "3", "'x'", "[]",
                f"np.full({m}, np.inf)", f"['a', 1, None, 2.5] * {m}", f"np.full({m}, 'NaT', dtype='M8[s]')",
                f"[(1, 2)] * {m}", f"[10**400] * {m}", f"['a'] * ({m} - 1) + [1]", f"np.ones({m}, dtype=complex)",
                f"pd.Series(pd.Categorical(['u'] * {m}))", f"np.arange({m}).astype(np.uint64) + np.uint64(2**63)",
                f"[Fraction(1, 3)] * {m}", f"rng.integers(0, 2, size={m}).astype('S')",
                f"rng.integers(0, 2, size={m}).astype('m8[s]')", f"np.full({m}, -0.0)", f"[[]] * {m}",
            )  # fmt: skip
        self.set(name, text)

    def costs(self):
        """Clusters to match."""
        k, old = self.pick(0, 1, 2, 3, 5), self.pick(0, 1, 2, 4)
        self.set(
            "a", self.pick(f"rng.random({k})", f"rng.integers(0, 3, size={k})", f"np.ones({k})")
        )
        self.set(
            "b", self.pick(f"rng.random(({k}, {old}))", f"rng.integers(0, 3, size=({k}, {old}))")
        )
        for name in "ab":
            if self.chance(0.3):
                self.set(
                    name,
                    self.pick(
                        "{0} * 1e300", "{0} * 1e-300", "{0} * np.nan", "{0} - 1e8", "{0}.tolist()", "{0}[::-1]",
                        "{0}.astype(object)", "{0}[:1]", "None", "3", "{0} * 1e200", "-{0}", "{0}.astype(str)",
                        "{0} * 10.0 ** rng.integers(-30, 30, size={0}.shape)", "{0}.astype(complex)", "{0} * 5e-324",
                    ).format(name),
                )  # fmt: skip
        self.call("match_clusters(a, b)", "match_clusters")

    def fits(self):
        """Fits whose clusters are renumbered, one after another."""
        kinds = [
            "DPMeans()", "DPMeans(lam=0.1)", "RobustDPMeans()", "MiniBatchDPMeans(lam=0.5)", "MixedDPMeans()",
            "ShapeMeans()", "SphericalDPMeans()", "MahalanobisMeans(n_clusters=2)", "HDPMeans(lam_local=1, lam_global=2)",
        ]  # fmt: skip
        kind = self.pick(*kinds)
        self.set("first, second", "None, None")
        self.set("first", f"{kind}.fit(X)")
        for _ in range(3):
            if self.strange():
                kind = self.pick(*kinds, "BPMeans(lam=1.0)", "KernelDPMeans(lam=1.0)", "DPMeans")
            self.set(
                "Y", self.pick("X[::-1]", "X + 0.1", "X[: len(X) // 2 + 1]", "2 * X", "X[:, :1]")
            )
            self.set("second", f"{kind}.fit(Y)")
            rows = self.pick("Y, ", "Y, ", "", self.pick("X, ", "None, ", "3, "))
            more = self.arguments()
            self.call(f"renumber(second, {rows}like=first{', ' if more else ''}{more})", "renumber")
            self.set("first", self.pick("out", "out", "second"))

    # calls

    def function(self):
        """A call of a function, and what one may do with its result."""
        more = self.arguments()
        comma = ", " if more else ""
        weighted = (
            "cluster_path",
            "feature_path",
            "coreset",
            "boundary_evidence",
            "tune_dynamic",
            "hdp_bound",
        )
        if self.name in weighted and self.weight("w", "X"):
            more, comma = more + comma + "sample_weight=w", ", "
        if self.name == "farthest_first_lambda":
            self.call(f"{self.name}(X, {self.value('', *COUNT)}{comma}{more})", self.name)
        elif self.name == "hdp_lambdas":
            self.groups("g", "X")
            counts = f"{self.value('', *COUNT)}, {self.value('', *COUNT)}"
            self.call(f"{self.name}(X, g, {counts}{comma}{more})", self.name)
        elif self.name == "hdp_bound":
            self.groups("g", "X")
            lams = f"{self.value('', LAM, LAM_ODD)}, {self.value('', LAM, LAM_ODD)}"
            self.call(f"{self.name}(X, g, {lams}{comma}{more})", self.name)
        elif self.name == "coreset":
            n_rows = self.pick("2", "10", "40", "100", self.value("", *COUNT))
            lam = self.value("lam", [*LAM, "0"], LAM_ODD)
            self.call(f"coreset(X, {n_rows}, {lam}{comma}{more})", self.name)
        elif self.name in ("boundary_evidence", "tune_dynamic"):
            self.groups("g", "X")
            self.call(f"{self.name}(X, g{comma}{more})", self.name)
        else:
            self.call(f"{self.name}(X{comma}{more})", self.name)
        if self.name == "cluster_path":
            self.set("path", "out")
            k = self.value(
                "",
                ["1", "2", "path.best", "path.longest"],
                [*NO_COUNT, "10**30", "path.longest + 1"],
            )
            self.call(f"path.{self.pick('centers', 'labels')}({k})", "other", path=True)
            self.call("(path.linkage, path.ranking, path.lam_low, repr(path))", "other", path=True)

    def fit(self, data="X", op="fit"):
        """A call of fit, fit_predict, fit_transform or partial_fit."""
        about, more = {"X": data, "threads": self.chance(0.15)}, ""
        name = self.name
        if (
            name in ("HDPMeans", "KernelHDPMeans", "SegmentMeans")
            and op == "fit"
            and self.chance(0.8)
        ):
            self.groups("g", data)
            more, about["groups"] = ", groups=g", "g"
        elif "Dynamic" in name:
            if op != "partial_fit" and self.chance(0.6):
                self.groups("t", data)
                more, about["groups"] = ", times=t", "t"
            if self.chance(0.2):
                gap = "elapsed" if op == "partial_fit" else "step"
                more += f", {gap}={self.value('', *GAP)}"
        if "sample_weight" in self.takes(op) and self.weight("w", data):
            more, about["weight"] = f"{more}, sample_weight=w", "w"
        self.call(f"m.{op}({data}{more})", op, **about)

    def takes(self, op):
        """Names of the parameters of a method."""
        function = getattr(PUBLIC[self.name], op)
        return (
            function.__code__.co_varnames[: function.__code__.co_argcount]
            if hasattr(function, "__code__")
            else ()
        )

    def use(self):
        """A call of something that reads the fit."""
        offered = [op for op in sorted(READS - {"other"}) if hasattr(PUBLIC[self.name], op)]
        op = self.r.choice([*offered, "other"])
        if op == "other":
            self.call(
                self.pick("repr(m)", "m._repr_html_()", "clone(m)", "copy.deepcopy(m)", "pickle.loads(pickle.dumps(m))",
                          "dir(m)", "m.__sklearn_tags__()", "[getattr(m, a, 0) for a in dir(m)]"),
                "other",
            )  # fmt: skip
            if self.chance(0.3):
                self.set(
                    "m",
                    self.pick("copy.deepcopy(m)", "pickle.loads(pickle.dumps(m))", "copy.copy(m)"),
                )
            return
        if op in ("get_params", "get_feature_names_out"):
            self.call(f"m.{op}()", op)
        elif op == "to_sklearn_kmeans":
            dtype = self.pick("", "np.float32", "np.float64")
            if self.strange():
                dtype = self.pick("int", "'x'", "3", "[1]", "np.float16", "m")
            self.call(f"m.{op}({dtype})", op)
        elif op == "inverse_transform":
            self.set("Z", self.pick("m.transform(X)", "m.assignments_[:2]", "rng.random((2, m.n_components_))", "m.assignments_.tolist()"))  # fmt: skip
            if self.strange():
                self.set("Z", self.pick("[[1]]", "np.zeros((2, 9))", "[['a']]", "np.full((1, m.n_components_), np.nan)", "None"))  # fmt: skip
            self.call("m.inverse_transform(Z)", op)
        else:
            self.other("Y")
            more = ""
            if op in ("predict", "score") and "HDP" in self.name and self.chance(0.5):
                self.groups("g", "Y")
                more = ", groups=g"
                if "sample_weight" in self.takes(op) and self.weight("v", "Y"):
                    more += ", sample_weight=v"
            elif "sample_weight" in self.takes(op) and self.weight("v", "Y"):
                more = ", sample_weight=v"
            self.call(f"m.{op}(Y{more})", op, Y="Y")

    def replace(self):
        """A fitted attribute that is no longer what it was."""
        change = self.pick(
            "m.{0}[:1]", "m.{0}[:, :1]", "np.vstack([m.{0}, m.{0}])", "m.{0}[:0]", "m.{0}.tolist()", "None",
            "m.{0}.astype(np.float32)", "np.hstack([m.{0}] * 3)", "m.{0}.T", "m.{0} * np.nan", "m.{0}[::-1]",
            "m.{0}.astype(object)", "np.asfortranarray(m.{0})", "m.{0} + 10**6", "m.{0} - 100", "'x'", "m.{0}[0]",
            "m.{0} * 1e200", "m.{0}.astype(np.int32)", "m.{0}.copy()", "np.zeros(0)", "np.zeros((99, 99))",
            "m.{0} + 1",
        )  # fmt: skip
        names = re.findall(r"^ +(\w+_) : .*ndarray", PUBLIC[self.name].__doc__, flags=re.M)
        name = self.r.choice(names)
        self.steps.append(("replace", f"m.{name} = {change.format(name)}", {}))

    def estimator(self):
        """An estimator, and a life of it."""
        fits = [
            op
            for op in ("fit", "fit", "fit", "fit_predict", "fit_transform")
            if hasattr(PUBLIC[self.name], op)
        ]
        partial = hasattr(PUBLIC[self.name], "partial_fit")
        self.call(f"{self.name}({self.arguments()})", "init")
        self.set("m", "out")
        if self.chance(0.05):
            self.use()  # before any fit
        if partial and self.chance(0.6):
            self.fit("X", "partial_fit")
            for _ in range(self.pick(1, 2, 4)):
                self.other("Y")
                if self.chance(0.1):
                    self.set("Y", "np.asarray(X)[:0]")
                self.fit("Y", "partial_fit")
                if self.chance(0.2):
                    self.use()
        else:
            self.fit("X", self.r.choice(fits))
        for _ in range(self.pick(1, 1, 2, 3)):
            what = self.r.random()
            if what < 0.6:
                self.use()
            elif what < 0.7:
                self.fit("X", self.r.choice(fits))
            elif what < 0.8:
                name = self.r.choice(list(PARAMETERS[self.name]))
                self.call(
                    f"m.set_params({name}={self.value(name, *PARAMETERS[self.name][name])})",
                    "set_params",
                )
                self.use() if self.chance(0.5) else self.fit("X", self.r.choice(fits))
            elif what < 0.87:
                self.other("Y")
                self.fit(
                    "Y", "partial_fit" if partial and self.chance(0.5) else self.r.choice(fits)
                )
            elif what < 0.95:
                self.replace()
                self.use()
                if partial:
                    self.fit("X", "partial_fit")
            else:
                self.set("m", "clone(m)")
                self.fit("X", "fit")

    def program(self):
        """The text of it all."""
        return PRELUDE + "\n".join(text for _, text, _ in self.steps) + "\n"


# What must hold ------------------------------------------------------------------------------


# Made anew each time a table of them is read, so that their identity tells nothing.
BY_VALUE = (complex, Fraction, Decimal, datetime.date, datetime.timedelta, type(pd.NaT))


def freeze(value, depth=0):
    """Something that is equal exactly if every bit of the value is."""
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            return (
                "objects",
                value.shape,
                tuple(freeze(x, depth + 1) for x in value.ravel().tolist()),
            )
        if value.dtype.char in "gG":  # 6 of its 16 bytes mean nothing
            return (value.dtype.str, value.shape, tuple(value.astype("U").ravel().tolist()))
        return (value.dtype.str, value.shape, value.tobytes())
    if isinstance(value, float):
        return ("float", struct.pack("d", value))
    if value is None or isinstance(value, (str, bytes, int, type)):
        return (type(value).__name__, value)
    if isinstance(value, np.generic):
        return freeze(np.asarray(value), depth + 1)
    if depth > 8:
        return ("deep",)
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, tuple(freeze(x, depth + 1) for x in value))
    if isinstance(value, (set, frozenset)):
        return (type(value).__name__, frozenset(freeze(x, depth + 1) for x in value))
    if isinstance(value, dict):
        return (
            "dict",
            tuple((freeze(k, depth + 1), freeze(v, depth + 1)) for k, v in value.items()),
        )
    if isinstance(value, np.random.RandomState):
        return ("RandomState", freeze(value.get_state(legacy=False), depth + 1))
    if isinstance(value, (pd.DataFrame, pd.Series)):
        return ("pandas", str(value.dtypes), freeze(value.to_numpy(), depth + 1))
    if scipy.sparse.issparse(value):
        entries = value.copy().tocoo()
        return (
            type(value).__name__,
            value.shape,
            freeze((entries.data, entries.row, entries.col), depth + 1),
        )
    if isinstance(value, nx.Graph):
        return ("graph", repr(list(value.nodes)), repr(list(value.edges(data=True))))
    if isinstance(value, ClusterPath):
        # as it is pickled: what is computed when it is first asked for is no change
        same = object.__new__(ClusterPath)
        vars(same).update(vars(value))
        return (type(value).__name__, freeze(same.__getstate__(), depth + 1))
    if isinstance(value, FittedRows):  # what is computed when it is first asked for is no change
        return (type(value).__name__, freeze(vars(value) | {"results": None}, depth + 1))
    if type(value).__module__.startswith("smallvar") and hasattr(value, "__dict__"):
        return (type(value).__name__, freeze(vars(value), depth + 1))
    return (
        type(value).__name__,
        repr(value) if isinstance(value, BY_VALUE) else id(value),
    )


def frozen_state(model, skip=()):
    """All attributes of an estimator; a generator of the user's may move on."""
    return {
        name: freeze(value)
        for name, value in vars(model).items()
        if name not in skip
        and not (name == "random_state" and isinstance(value, np.random.RandomState))
    }


def differing(one, two):
    """Names of what differs."""
    return sorted(name for name in {*one, *two} if one.get(name) != two.get(name))


class Finding(Exception):
    """Something that should not be."""


OURS = str(Path(smallvar.__file__).parent)
CHECKS = ("sklearn" + os.sep, "<case>")
CALLING = ("unexpected keyword argument", "got multiple values", "positional argument")


def of_ours(filename):
    """Whether a file is the package's (compiled modules give relative names)."""
    return filename.startswith(OURS) or filename.startswith("smallvar" + os.sep)


def check_exception(error, op, replaced):
    """Raise a Finding unless this is an error that a user can be shown."""
    if isinstance(error, MemoryError):
        return
    frames = traceback.extract_tb(error.__traceback__)
    last = frames[-1]
    where = f"{type(error).__name__}: {str(error)[:200]} ({Path(last.filename).name}:{last.lineno})"
    if isinstance(error, pickle.PicklingError) and "lambda" in str(error):
        return
    if op == "init" or (last.filename == "<case>" and len(frames) > 2):
        return  # an argument that cannot be made, or the user's own function
    if op == "set_params" and not any(of_ours(frame.filename) for frame in frames):
        return  # the same: only some sparse matrices have rows that can be taken out
    if replaced and isinstance(error, Exception):
        return  # anything but a crash is an answer
    if not isinstance(error, (ValueError, TypeError)) or isinstance(error, np.linalg.LinAlgError):
        if isinstance(error, AttributeError) and type(error).__name__ == "NotFittedError":
            return
        raise Finding(f"exception {where}")
    if not str(error).strip():
        raise Finding(f"empty message {where}")
    if any(word in str(error) for word in CALLING):
        return
    if any(CHECKS[0] in frame.filename for frame in frames):
        return
    line = linecache.getline(last.filename, last.lineno).strip() or last.line or ""
    if of_ours(last.filename) and (line.startswith("raise") or not line):
        return
    block = [linecache.getline(last.filename, last.lineno - back).strip() for back in range(4)]
    if of_ours(last.filename) and any(line.startswith("raise") for line in block):
        return
    raise Finding(f"not raised on purpose {where}")


def check_warnings(caught):
    """Raise a Finding for a warning that tells the user nothing."""
    for one in caught:
        if not issubclass(one.category, UserWarning) and of_ours(one.filename):
            where = f"{Path(one.filename).name}:{one.lineno}"
            raise Finding(f"warning {one.category.__name__}: {str(one.message)[:100]} ({where})")
        if issubclass(one.category, RuntimeWarning) and not any(x in one.filename for x in CHECKS):
            raise Finding(
                f"warning {one.category.__name__}: {str(one.message)[:100]} ({one.filename})"
            )


def as_data(X):
    """Data as a float64 matrix, as the checks understand them."""
    if scipy.sparse.issparse(X) and X.ndim == 2 and max(X.shape) < 10_000:
        X = X.toarray()
    if scipy.sparse.issparse(X) or isinstance(X, nx.Graph):
        return None
    if isinstance(X, dict):
        X = pd.DataFrame(X)
    try:
        with np.errstate(all="ignore"):
            return np.asarray(X, dtype=np.float64)
    except (TypeError, ValueError):  # a table of words
        return np.full(np.shape(X), np.nan)


def need(holds, what):
    """Raise a Finding if it does not."""
    if not holds:
        raise Finding(what)


class Run:
    """One case on its way; findings are raised."""

    def __init__(self, case):
        self.case, self.space, self.replaced = case, {"PUBLIC": PUBLIC}, False
        exec(PRELUDE + "X = Y = Z = w = v = g = t = a = b = n = d = None\n", self.space)
        self.warned = False

    def all(self):
        """Every step."""
        for kind, text, about in self.case.steps:
            if kind in ("set", "replace"):
                self.replaced |= self.set(text) and kind == "replace"
            else:
                try:
                    if not self.call(text, about):
                        return
                except Finding as finding:
                    raise Finding(f"{self.case.name}.{about['op']}: {finding}") from None

    def set(self, text):
        """A step that makes data; what cannot be had so stays what it is."""
        with warnings.catch_warnings(), np.errstate(all="ignore"), contextlib.suppress(Exception):
            warnings.simplefilter("ignore")
            exec(compile(text, "<case>", "exec"), self.space)
            return True
        return False

    def inputs(self):
        """Everything that a call may be given."""
        return {
            name: freeze(value)
            for name, value in self.space.items()
            if name in ("X", "Y", "w", "v", "g", "t", "Z", "a", "b")
        }

    def call(self, text, about):
        """One call with all that must hold; returns whether to go on."""
        op, space = about["op"], self.space
        m = space.get("m") if op not in ("init", "other") or "m" in text else None
        if text.startswith("out = m.") and m is None:
            return False
        before = frozen_state(m) if isinstance(m, BaseEstimator) else None
        params = (
            freeze({**m.get_params(deep=False), "random_state": None})
            if before is not None
            else None
        )
        inputs = self.inputs()
        error = None
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                with contextlib.redirect_stdout(io.StringIO()):
                    exec(compile(text, "<case>", "exec"), space)
            except Exception as caught_error:
                error = caught_error
        if VERBOSE_RUN:
            print(
                f">>> {text}\n    {type(error).__name__ + ': ' + str(error)[:300] if error else 'ok'}",
                flush=True,
            )
        changed = differing(inputs, self.inputs())
        need(not changed, f"input changed: {changed}")
        if error is not None:
            check_exception(error, op, self.replaced)
            if before is not None and op != "set_params":
                # fit_transform is a fit, and a transform that may be refused
                frames = traceback.extract_tb(error.__traceback__)
                fitted = op == "fit_transform" and any(
                    frame.name == "transform" for frame in frames
                )
                changed = [] if fitted else differing(before, frozen_state(m))
                need(
                    not changed,
                    f"state changed by {type(error).__name__} {str(error)[:80]}: {changed}",
                )
            return op != "init" and op not in FUNCTIONS
        if not self.replaced:
            check_warnings(caught)
        if before is None or m is None:
            if op in FUNCTIONS and error is None:
                FUNCTIONS[op](space["out"], self)
            return True
        if op in READS:
            changed = differing(before, frozen_state(m))
            need(not changed, f"state changed by reading: {changed}")
        if op in ("fit", "fit_predict", "fit_transform", "partial_fit"):
            now = freeze({**m.get_params(deep=False), "random_state": None})
            need(now == params, "a parameter changed")
            converged = not any(issubclass(one.category, ConvergenceWarning) for one in caught)
            if not self.replaced or op != "partial_fit":
                self.replaced = False
                self.check_fit(m, op, about, converged)
            if about.get("threads") and op == "fit" and not self.replaced:
                self.check_again(m, text)
        elif op == "predict" and not self.replaced:
            out, Y = space["out"], as_data(space["Y"])
            rows = len(Y) if Y is not None else space["Y"].shape[0]  # sparse
            need(out.shape == (rows,), f"predict has shape {out.shape}")
            if len(out):
                labels = m.cluster_ids_ if "Dynamic" in self.case.name else np.arange(m.n_clusters_)
                none = [-1] if self.case.name in HAVE_NOISE else []
                need(np.isin(out, [*labels, *none]).all(), "predict gives labels that are none")
            if self.case.name == "SphericalDPMeans" and Y is not None:
                zero = ~Y.any(axis=1)
                need(np.array_equal(out < 0, zero), "label -1 is not that of rows of length zero")
        elif op == "to_sklearn_kmeans" and not self.replaced:
            out = space["out"]
            rows = out.predict(out.cluster_centers_)
            need(out.n_clusters == m.n_clusters_, "to_sklearn_kmeans has other clusters")
            need(rows.max() < m.n_clusters_, "to_sklearn_kmeans predicts what is no cluster")
        elif op in ("predict_proba", "outlier_scores") and not self.replaced:
            out = space["out"]
            need(((out >= 0.0) & (out <= 1.0)).all(), f"{op} is not in [0, 1]")
            if op == "predict_proba" and hasattr(m, "n_clusters_"):
                need(out.shape[1] == m.n_clusters_, f"probabilities of {out.shape[1]} clusters")
                need(np.allclose(out.sum(axis=1), 1.0, atol=1e-12), "probabilities add up to less")
        elif op == "score_samples" and not self.replaced:
            need(not np.isnan(space["out"]).any(), "a log density is NaN")
            need((space["out"] < np.inf).all(), "a log density is infinite")
        elif op in ("transform", "score", "inverse_transform") and not self.replaced:
            out = space["out"]
            if op == "score" and not np.isfinite(prices(m)).all():
                return True
            infinite = self.case.name in ("BregmanDPMeans", "MixedDPMeans", "HDPMeans")
            fine = ~np.isnan(out) if infinite else np.isfinite(out)
            need(np.all(fine), f"{op} is not finite")
        return True

    def check_pieces(self, m):
        """What pieces promise: those of a cluster are its rows, and centers of pieces differ."""
        used = m.pieces_ >= 0
        need(np.array_equal(used, m.labels_ >= 0), "noise has pieces")
        need(
            np.array_equal(m.piece_clusters_[m.pieces_[used]], m.labels_[used]),
            "labels_ are not those of pieces_",
        )
        k = len(m.piece_clusters_)
        need(m.piece_centers_.shape == (k, m.n_features_in_), "piece_centers_ have another shape")
        need(np.isfinite(m.piece_centers_).all(), "piece_centers_ are not finite")
        need(np.array_equal(np.unique(m.piece_clusters_), np.arange(m.n_clusters_)), "no pieces")
        need(m.merge_evidence_.shape == (k - 1,), "merge_evidence_ has another length")

    def check_again(self, m, text):
        """The same fit with another number of threads."""
        seed = m.get_params().get("random_state")
        if not isinstance(seed, (int, np.integer)):
            return
        again = clone(m)
        if "n_threads" in again.get_params():
            again.set_params(n_threads=1 if m.n_threads == 2 else 2)
        space = {**self.space, "m": again}
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            exec(compile(text, "<case>", "exec"), space)
        skip = ("n_threads", *m.get_params(deep=False))
        changed = differing(frozen_state(m, skip), frozen_state(again, skip))
        need(
            not changed, f"other bits with n_threads={getattr(again, 'n_threads', None)}: {changed}"
        )

    def check_mixed(self, m, X, about):
        """What a fit of a table promises, except for data whose means are rounded visibly."""
        need(np.isfinite(m.objective_), f"objective_ is {m.objective_}")
        worst, first = np.diff(m.objective_path_).max(initial=0.0), abs(m.objective_path_[0])
        slack = 1e-9 * first + self.rounding_of_means(as_data(X), about, first)
        need(worst <= slack, f"objective rises by {worst:.3g} from {first:.3g}, slack {slack:.3g}")
        used = np.isin(np.arange(m.n_clusters_), m.labels_)
        need(used.all() and m.labels_.max() < m.n_clusters_, "labels_ are not 0, 1, ...")
        need(set(m.cluster_parameters_) == {c.name for c in m.columns_}, "columns_ do not match")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if m.algorithm != "collapsed":
                need((m.predict(X) == m.labels_).all(), "predict gives other labels")

    def check_fit(self, m, op, about, converged):
        """What a fit promises."""
        name = self.case.name
        X = self.space[about["X"]]
        if name == "MixedDPMeans":
            if np.isfinite(prices(m)).all():  # else nothing is worth a cluster, as below
                self.check_mixed(m, X, about)
            return
        n = X.number_of_nodes() if isinstance(X, nx.Graph) else np.shape(X)[0]
        need(
            m.n_features_in_ == (n if self.case.graph else np.shape(X)[1]),
            "n_features_in_ is wrong",
        )
        out = self.space["out"]
        if op in ("fit", "partial_fit"):
            need(out is m, f"{op} does not return the estimator")
        objective = getattr(m, "objective_", 0.0)
        if not np.isfinite(prices(m)).all():  # a user's own wish: nothing is worth a cluster
            return
        if name == "MiniBatchDPMeans" and np.abs(m.cluster_centers_).max() > LARGEST_MEAN:
            return
        need(np.isfinite(objective), f"objective_ is {objective}")
        path = getattr(m, "objective_path_", None)
        slack = self.slack(m, X, about)
        if path is not None:
            need(np.isfinite(path).all(), "objective_path_ is not finite")
            # where there is no squared distance nothing is promised
            if getattr(m, "kernel", None) == "sigmoid" or indefinite(m, X):
                slack = np.inf
            worst = np.diff(path).max(initial=0.0)
            need(
                worst <= slack,
                f"objective rises by {worst:.3g} at {abs(objective):.3g}, slack {slack:.3g}",
            )
            need(
                not len(path) or abs(path[-1] - objective) <= slack,
                "objective_ is not the end of its path",
            )
        if name in ("BPMeans", "KFeatures"):
            self.check_features(m, X, about, slack)
            return
        labels = m.labels_
        need(labels.shape == (n,), f"labels_ have shape {labels.shape}")
        if op == "fit_predict":
            need(np.array_equal(out, labels), "fit_predict is not labels_")
        if "Dynamic" in name:
            need(
                len(m.cluster_ids_) == m.n_clusters_ == len(m.weights_) == len(m.ages_),
                "lengths differ",
            )
            need(
                (m.weights_ > 0).all() and (m.ages_ >= 1).all(),
                "weights_ or ages_ are out of range",
            )
            return
        K = m.n_clusters_
        lowest = -1 if name in HAVE_NOISE else 0
        need(
            labels.dtype == np.int32 and labels.min() >= lowest and labels.max() < K,
            "labels_ out of range",
        )
        if name == "SphericalDPMeans" and as_data(X) is not None:
            zero = ~as_data(X).any(axis=1)
            need(np.array_equal(labels < 0, zero), "label -1 is not that of rows of length zero")
        weighted = "weight" in about
        if not weighted and op != "partial_fit":
            few = name == "MahalanobisMeans" and (
                len(np.unique(as_data(X), axis=0)) < K
                or m.n_iter_ == m.max_iter
                or m.tol > 0  # ended before its labels were a fixed point, too
            )
            need(
                # a topic need not be the main one of a document
                few or name == "TopicMeans" or len(np.unique(labels[labels >= 0])) == K,
                f"{K - len(np.unique(labels))} of {K} clusters are empty",
            )
        if name == "ShapeMeans":
            self.check_pieces(m)
        if not hasattr(m, "cluster_centers_"):
            return
        C = m.cluster_centers_
        need(
            C.shape == (K, m.n_features_in_) and np.isfinite(C).all(), "cluster_centers_ are wrong"
        )
        if name in ("DPMeans", "HDPMeans") and isinstance(getattr(m, "init", "mean"), str):
            need(len(np.unique(C + 0.0, axis=0)) == K, "two centers are equal")
        if name not in ("DPMeans", "MiniBatchDPMeans", "HDPMeans", "RobustDPMeans"):
            return
        if (
            getattr(m, "metric_", None) is not None
            or m.get_params().get("divergence", "s")[0] != "s"
        ):
            return  # distances are not squared, or not those of the data
        X = as_data(X)
        shift = C.mean(axis=0)
        distance = (
            np.square((X - shift)[:, None] - (C - shift)).sum(axis=2)
            if X.size * K < 10**6
            else None
        )
        if distance is None:
            return
        w = self.weights(about, n)
        own = np.where(labels < 0, 0.0, distance[np.arange(n), labels])
        need(
            abs(w @ own - m.inertia_) <= slack,
            f"inertia_ is {m.inertia_!r}, that of labels {w @ own!r}",
        )
        price = (
            m.lam_ * K
            if name != "HDPMeans"
            else m.lam_local_ * m.n_local_clusters_.sum() + m.lam_global_ * K
        )
        if name == "RobustDPMeans":
            price += m.price_ * m.noise_weight_
        need(
            abs(m.inertia_ + price - objective) <= slack + 1e-12 * price,
            "objective_ is not inertia_ and penalties",
        )
        if name == "RobustDPMeans":
            need(
                abs(w[labels < 0].sum() - m.noise_weight_) <= 1e-9 * w.sum(),
                "noise_weight_ is not that of labels",
            )
        if name == "DPMeans" and converged and not m.tol:
            beyond = (w * (own - distance.min(axis=1))).max()
            need(
                beyond <= slack,
                f"a row of a converged fit is {beyond:.3g} farther than the nearest center",
            )

    def weights(self, about, n):
        """Weights of the rows of a fit."""
        if "weight" not in about or self.space.get(about["weight"]) is None:
            return np.ones(n)
        weight = np.asarray(self.space[about["weight"]], dtype=np.float64)
        # one column of weights is taken as a vector
        return np.broadcast_to(weight.reshape(-1) if weight.ndim > 1 else weight, n)

    def slack(self, m, X, about):
        """What rounding may do to an objective: relative, and that of distances of such data."""
        X = as_data(X)
        objective = getattr(m, "objective_", 0.0)
        path = np.abs(getattr(m, "objective_path_", [objective])).max(initial=abs(objective))
        if X is None or not X.size:
            return 1e-9 * path
        with np.errstate(all="ignore"):
            weight_sum = self.weights(about, len(X)).sum() if "weight" in about else len(X)
            middle = X.mean(axis=0)
            largest = float(np.abs(X).max())
            reach = float(np.abs(X - middle).max())
            if hasattr(m, "cluster_centers_"):
                largest = max(largest, np.abs(m.cluster_centers_).max(initial=0.0))
                reach = max(reach, np.abs(m.cluster_centers_ - middle).max(initial=0.0))
            grain = largest * 2.0**-48
            if self.case.name not in (
                "DPMeans",
                "MiniBatchDPMeans",
                "HDPMeans",
                "BPMeans",
                "KFeatures",
            ):
                reach += largest
                return 1e-8 * (path + weight_sum * max(1.0, reach, reach * reach) ** 1.0)
            if self.case.name in ("BPMeans", "KFeatures"):
                reach = largest
            return (
                1e-9 * path
                + 1e-12 * weight_sum * X.shape[1] * reach * (reach + grain)
                + weight_sum * X.shape[1] * (grain * reach + grain * grain)
            )

    def rounding_of_means(self, X, about, squares):
        """What means off by half a step of float64 cost where the variance of a column is 1.

        ``squares`` is the sum of those of residuals: rows and means, of both of two objectives that
        are compared, are rounded to such steps.
        """
        with np.errstate(all="ignore"):
            step = 0.5 * np.spacing(np.abs(X).max(axis=0)) / X.std(axis=0)
        step = step[np.isfinite(step)]
        n = self.weights(about, len(X)).sum() if "weight" in about else len(X)
        return n * np.square(step).sum() + 8.0 * np.sqrt(n * squares) * step.sum()

    def check_features(self, m, X, about, slack):
        """Features and who has them."""
        Z, A, X = m.assignments_, m.components_, as_data(X)
        need(
            Z.shape == (len(X), m.n_components_) and A.shape == (m.n_components_, X.shape[1]),
            "shapes are wrong",
        )
        need(
            np.isin(Z, (0, 1)).all() and np.isfinite(A).all(),
            "assignments_ or components_ are wrong",
        )
        w = self.weights(about, len(X))
        squares = np.square(X - Z @ A)
        if isinstance(getattr(m, "lam", m.n_components), str):  # constant columns take no part
            used = X[w > 0]
            varying = used.min(axis=0) < used.max(axis=0)
            squares = squares[:, varying] if varying.any() else squares
        error = float(w @ squares.sum(axis=1))
        have = m.reconstruction_err_**2
        need(
            abs(error - have) <= slack,
            f"error of the features is {error!r}, reconstruction_err_ ** 2 {have!r}",
        )


def indefinite(m, X):
    """Whether a Gram matrix that was given is none, as of integers that wrap around."""
    if getattr(m, "kernel", None) != "precomputed":
        return False
    K = scipy.sparse.csr_array(X).toarray() if scipy.sparse.issparse(X) else X
    K = np.asarray(K, dtype=float)
    K = K - K.mean(axis=0)
    e = np.linalg.eigvalsh(K - K.mean(axis=1, keepdims=True))
    return e[0] < -1e-6 * np.abs(e).max()


def prices(m):
    """The penalties of a fitted estimator."""
    names = ("lam_", "lam_local_", "lam_global_", "lam_eff_")
    return [getattr(m, name, None) or 0.0 for name in names]


def check_match(link, run):
    """No old cluster twice."""
    old = np.shape(run.space["b"])[1]
    need(
        link.dtype == np.int64 and link.shape == np.shape(run.space["a"]), "link has the wrong form"
    )
    need(
        len(set(link[link >= 0])) == (link >= 0).sum() and link.max(initial=-1) < old,
        "an old cluster twice",
    )


def check_tuning(tuning, run):
    """The parameters are those of the lowest criterion, and the estimator has them."""
    tried, model = tuning.tried, tuning.estimator
    need(tuning.criterion == np.min(tried["criterion"]), "not the lowest criterion")
    need(model.lam == tuning.lam and model.t_q == tuning.t_q, "parameters are wrong")
    need(len(model.labels_) == np.shape(run.space["X"])[0], "labels are wrong")


def check_ids(table, run):
    """No id twice, and each cluster of both fits in one line."""
    second = run.space["second"]
    need(
        len(set(table.ids)) == second.n_clusters_ == (table.n_after > 0).sum(), "clusters are lost"
    )
    need(
        len(set(table.cluster)) == len(table) and set(table.ids) <= set(table.cluster),
        "ids are wrong",
    )
    need(len(table.labels) == len(second.labels_), "labels are wrong")
    need(np.nan_to_num(table.distance).min(initial=0.0) >= 0, "a distance is negative")
    need(isinstance(repr(table), str), "no table")


def check_positive(lam, run):
    """Penalties are positive and finite."""
    need(np.all(np.greater(lam, 0)) and np.isfinite(lam).all(), f"penalty {lam!r}")


def check_coreset(drawn, run):
    """Distinct rows in their order, with finite weights."""
    index, weight = drawn
    need(len(index) == len(weight) > 0 and (np.diff(index) > 0).all(), f"rows {index!r}")
    need((weight > 0).all() and np.isfinite(weight).all(), f"weights {weight!r}")


def check_boundaries(table, run):
    """Pairs of clusters in order, with numbers that agree."""
    a, b = np.searchsorted(table.labels, table.clusters).T
    need((a < b).all() and (np.diff(a * len(table.labels) + b) > 0).all(), "pairs are not in order")
    known = ~np.isnan(table.evidence)
    need(np.isfinite(table.evidence[known]).all(), f"evidence {table.evidence!r}")
    need(
        ((table.valley[known] >= 0) & (table.valley[known] <= 1)).all(), f"valley {table.valley!r}"
    )
    need((table.counts[known] > -1e-6).all() and len(repr(table)) > 0, "counts are negative")


def check_path(path, run):
    """Arrays of a path agree."""
    n = len(path.n_clusters)
    need(len(path.inertia) == n == len(path.criterion) == len(path.lam_low), "lengths differ")
    need(
        path.best in path.n_clusters and np.isfinite(path.inertia).all() and path.lam > 0,
        "path is wrong",
    )
    need((path.inertia >= 0).all(), "inertia is negative")


def check_errors(path, run):
    """Errors fall."""
    need(np.isfinite(path.error).all() and (path.error >= 0).all(), "error is wrong")
    need(
        np.diff(path.error).max(initial=0.0) <= 1e-9 * path.error[0], "error rises with the number"
    )
    need(
        path.best in path.n_components and path.lam > 0 and not np.isnan(path.criterion).any(),
        "the number chosen is wrong",
    )


def check_cuts(path, run):
    """K never rises with lam."""
    best = [path.at(lam) for lam in path.lams]
    need(np.isfinite(path.cut).all() and (np.diff(best) <= 0).all(), "path is wrong")


FUNCTIONS = {
    "match_clusters": check_match, "farthest_first_lambda": check_positive, "hdp_lambdas": check_positive,
    "hdp_bound": check_positive,
    "cluster_path": check_path, "feature_path": check_errors, "cut_path": check_cuts, "coreset": check_coreset,
    "boundary_evidence": check_boundaries, "renumber": check_ids,
    "tune_dynamic": check_tuning,
}  # fmt: skip
VERBOSE_RUN = False


def run_case(seed):
    """What is wrong with a case, or None."""
    np.random.seed(seed % 2**32)  # noqa: NPY002 - what random_state=None draws from
    try:
        Run(Case(seed)).all()
    except Finding as finding:
        return str(finding)
    return None


# Workers -------------------------------------------------------------------------------------


def work(first, last, limit):
    """Run cases first to last - 1; before and after each one a line to the parent."""
    report = os.fdopen(os.dup(1), "w", buffering=1)
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    os.dup2(sys.stdout.fileno(), 1)
    faulthandler.enable()  # or nobody knows where a crash was
    for seed in range(first, last):
        print(json.dumps([seed, "begin"]), file=report)
        faulthandler.dump_traceback_later(limit, exit=True)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        try:
            found = run_case(seed)
        except Exception:
            found = "fuzz itself: " + traceback.format_exc(limit=-3)
        faulthandler.cancel_dump_traceback_later()
        grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak)
        if found is None and grown > GROWTH:
            found = f"memory grew by {grown:.3g} bytes"
        print(json.dumps([seed, found]), file=report)


class Worker:
    """A process that runs cases; another takes over where it ends early."""

    def __init__(self, first, last, limit):
        self.next, self.last, self.limit, self.seed = first, last, limit, None
        self.start()

    def start(self):
        """Begin, or go on after the case that ended the last process."""
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115
        environment = {
            **os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive",
            "PYTHONPATH": os.pathsep.join([str(Path(smallvar.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]),
        }  # fmt: skip
        command = [
            sys.executable,
            __file__,
            "--work",
            str(self.next),
            str(self.last),
            "--limit",
            str(self.limit),
        ]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=self.errors, stdin=subprocess.DEVNULL, text=True,
            env=environment, start_new_session=True,
        )  # fmt: skip
        self.since = time.monotonic()

    def take(self, line):
        """A line of the process; returns a finished case as (seed, finding) or None."""
        seed, what = json.loads(line)
        self.since = time.monotonic()
        if what == "begin":
            self.seed = seed
            return None
        self.seed, self.next = None, seed + 1
        return seed, what

    def ended(self):
        """Why the process is gone, if that is a finding; starts another if there is more to do."""
        code = self.process.wait()
        finding = None
        if self.seed is not None or code:
            self.errors.seek(0)
            told = self.errors.read().decode(errors="replace")
            # the hang's own trace names the place, the crash's the signal
            lines = [
                line.strip()
                for line in told.splitlines()
                if "File" in line and "fuzz.py" not in line
            ]
            place = lines[0] if lines else told[-200:].strip()
            cause = signal.Signals(-code).name if code < 0 else f"exit {code}"
            kind = "hang" if "Timeout" in told else "crash"
            finding = self.next, f"{kind} ({cause}) {place}"
            self.next += 1
        self.seed = None
        self.close()
        if self.next < self.last:
            self.start()
        return finding

    def close(self):
        """No more is read."""
        self.process.stdout.close()
        self.errors.close()

    def stop(self):
        """End the process group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)


def short(finding):
    """A finding without its numbers, to count how often it is."""
    words = finding.split()
    return " ".join(word for word in words if not any(c.isdigit() for c in word) or ".py" in word)[
        :150
    ]


def campaign(first, count, workers, limit, seconds=None, out=sys.stdout):
    """Run cases; returns a list of (seed, finding)."""
    selector, crew, findings, done = selectors.DefaultSelector(), [], [], 0
    began = told = time.monotonic()
    for i in range(workers):
        low, high = first + count * i // workers, first + count * (i + 1) // workers
        if low < high:
            crew.append(Worker(low, high, limit))
            selector.register(crew[-1].process.stdout, selectors.EVENT_READ, crew[-1])

    def note(finding):
        findings.append(finding)
        print(f"seed {finding[0]}: {finding[1]}", file=out, flush=True)

    try:
        while selector.get_map() and (seconds is None or time.monotonic() < began + seconds):
            for key, _ in selector.select(timeout=1.0):
                worker = key.data
                line = key.fileobj.readline()
                if line:
                    case = worker.take(line)
                    done += case is not None
                    if case and case[1]:
                        note(case)
                    continue
                selector.unregister(key.fileobj)
                finding = worker.ended()
                if finding:
                    done += 1
                    note(finding)
                if worker.process.returncode is None:
                    selector.register(worker.process.stdout, selectors.EVENT_READ, worker)
            for worker in crew:
                if (
                    time.monotonic() > worker.since + 2 * limit + 30
                    and worker.process.poll() is None
                ):
                    worker.stop()  # its own watch failed
            if time.monotonic() > told + 60:
                told = time.monotonic()
                print(
                    f"{done} cases, {len(findings)} findings, {told - began:.0f} s",
                    file=out,
                    flush=True,
                )
    finally:
        for worker in crew:
            if worker.process.poll() is None:
                worker.stop()
                worker.process.wait()
                worker.close()
    print(
        f"{done} cases from seed {first}, {len(findings)} findings, {time.monotonic() - began:.0f} s",
        file=out,
    )
    for text, times in collections.Counter(short(what) for _, what in findings).most_common():
        print(f"{times:7d} x {text}", file=out)
    return findings, done


def main():
    """The command line."""
    global VERBOSE_RUN
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cases", type=int, default=2000, help="how many")
    parser.add_argument("--seed", type=int, default=0, help="of the first case; the others follow")
    parser.add_argument("--workers", type=int, default=1, help="processes at the same time")
    parser.add_argument("--limit", type=float, default=20.0, help="seconds that a case may take")
    parser.add_argument("--seconds", type=float, help="stop after so many")
    parser.add_argument("--case", type=int, help="print the program of this one and run it here")
    parser.add_argument("--work", type=int, nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(*options.work, options.limit)
        return 0
    if options.case is not None:
        print(Case(options.case).program(), flush=True)
        VERBOSE_RUN = True
        faulthandler.enable()
        faulthandler.dump_traceback_later(options.limit, exit=True)
        found = run_case(options.case)
        print(found or "as it should be")
        return int(found is not None)
    findings, _ = campaign(
        options.seed, options.cases, options.workers, options.limit, options.seconds
    )
    return int(bool(findings))


if __name__ == "__main__":
    sys.exit(main())
