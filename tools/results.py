"""Record what every estimator and function returns on some 6,000 problems, and compare two records.

To show that a change of the code changes no result, compare a record made before with one made
after, on the same machine with the same versions of all other packages::

    python tools/results.py record before.json --jobs 2
    python tools/results.py record after.json --jobs 2      # with the other build installed
    python tools/results.py compare before.json after.json

A record has, for each problem, the fitted attributes and the results of methods, or the error that
was raised. ``compare`` prints which fields are not the same bit for bit and by how much, relative
to the range of the old values, in centers to that of the column; "inf" where shapes, types or texts
differ. It exits with 1 if a field differs by more than its tolerance, or if the records have no
problem in common. ``--tolerance centers 1e-12`` adds a line to the table ``TOLERANCES``.

``--threads 7`` has seven threads in BLAS and in all loops that are long enough: no bit may change.
``--every 10`` records every tenth problem, ``--only "KernelDPMeans("`` those whose names contain
that, and ``--no-dask`` leaves out those on a dask cluster, whose names begin with ``dask:``.

Only public names are used, but for threads, and parameters are given by name. A problem is defined
by its name: the call, the data with their type and layout, and the weights. The name also seeds the
random numbers.

In order: data, parameters, problems, results, and the two commands.
"""

import argparse
import hashlib
import json
import logging
import multiprocessing
import os
import re
import sys
import time
import warnings
import zlib
from base64 import b64decode, b64encode
from collections import Counter, defaultdict
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from inspect import signature
from itertools import pairwise
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
import scipy.sparse

import smallvar
from smallvar._sweeps import parallel

# The largest difference allowed in fields where "problem: field" has a match of the expression;
# others are to be the same bit for bit
TOLERANCES = {r"\.message$": np.inf}

# Data ---------------------------------------------------------------------------------------
# Python expressions, "|" between them: n is a small number of rows, rng a generator, seed an int.


def blobs(rng, n, d, k=5, spacing=10.0):
    """Normal points around k uniform centers."""
    return spacing * rng.random((k, d))[rng.integers(k, size=n)] + rng.normal(size=(n, d))


def levels(rng, n, d):
    """A time series whose rows stay near one of four levels for about 12 steps each."""
    lasting = np.repeat(rng.integers(0, 4, size=n // 12 + 1), 12)[:n]
    return 8.0 * rng.random((4, d))[lasting] + rng.normal(size=(n, d))


def features(rng, n, d):
    """Rows that are sums of random subsets of four features, with noise."""
    return rng.integers(0, 2, size=(n, 4)) @ rng.normal(size=(4, d)) + 0.1 * rng.normal(size=(n, d))


POINTS = """
    blobs(n, 1) | blobs(n, 2) | blobs(n, 3) | blobs(n, 8) | blobs(n, 30) | blobs(15, 40)
    | blobs(n, 2) + 1e6 | blobs(n, 2) * 1e100 | blobs(n, 2) * 1e-8 | blobs(n, 4) * [1e3, 1, 1, 1e-3]
    | rng.integers(-4, 5, (n, 1)) | rng.integers(0, 5, (n, 2)) | rng.integers(-1, 2, (n, 4))
    | blobs(n // 8, 3)[rng.integers(n // 8, size=n)] | np.repeat(rng.random((1, 2)), 20, axis=0)
    | np.insert(blobs(n, 2), 1, 3.7, axis=1) | np.hstack([blobs(n, 2), rng.integers(0, 2, (n, 3))])
    | rng.lognormal(sigma=1.5, size=(n, 3)) | rng.normal(size=(n, 3)) | blobs(n, 2).round(1)
    | blobs(n, 6) * (rng.random((n, 6)) < 0.3) | features(n, 6) | levels(n, 1) | levels(n, 3)
    | blobs(n, 2) + np.linspace(0, 3, n)[:, None] | blobs(1, 3) | blobs(2, 2) | blobs(5, 2)
"""
MIDDLE = "blobs(600, 3) | levels(600, 2) | rng.integers(0, 9, (600, 2))"
LARGE = """
    blobs(6000, 2, 12, 30) | blobs(5000, 8, 9, 30) | blobs(20500, 3, 7, 30) | levels(9000, 2)
    | rng.integers(0, 20, (5000, 2))
"""
GRAPHS = """
    nx.ring_of_cliques(5, 6) | nx.planted_partition_graph(4, 15, 0.5, 0.05, seed=seed)
    | nx.planted_partition_graph(3, 20, 0.08, 0.01, seed=seed) | nx.gnp_random_graph(50, 0.7, seed)
    | nx.karate_club_graph() | nx.les_miserables_graph() | nx.grid_2d_graph(6, 7) | nx.star_graph(9)
    | nx.disjoint_union(nx.ring_of_cliques(3, 4), nx.cycle_graph(9)) | nx.empty_graph(6)
    | nx.empty_graph(1) | nx.planted_partition_graph(5, 60, 0.3, 0.01, seed=seed)
    | nx.planted_partition_graph(12, 80, 0.15, 0.003, seed=seed)
"""
ON_DASK = "blobs(n, 2) | blobs(n, 8) + 1e6 | rng.integers(0, 5, (n, 2)) | blobs(9000, 3)"
FORMS = "float64 C | float64 C | float64 C | float64 F | float32 C | float32 F"
WEIGHTS = {
    "unweighted": lambda rng, n: None,
    "random weights": lambda rng, n: rng.gamma(1.0, size=n) + 1e-3,
    "weights with zeros": lambda rng, n: np.r_[1.0, rng.random(n - 1) * (rng.random(n - 1) < 0.7)],
    "powers of two": lambda rng, n: 2.0 ** rng.integers(-2, 3, size=n),
}


def mean_square(X):
    """The mean squared distance of rows from their mean; 1 if that is 0."""
    return float(np.square(X - X.mean(axis=0)).sum(axis=1).mean()) or 1.0


# For problems whose names contain the key: a function that brings the data into the domain, and one
# that returns the unit of a penalty.
DOMAINS = {
    "'kl'": (np.abs, lambda X: float(np.abs(X).mean()) or 1.0),
    "'itakura_saito'": (lambda X: np.abs(X) + 0.1 * np.abs(X).max(), lambda X: X.shape[1]),
    "'logistic'": (lambda X: np.abs(X) / (np.abs(X).max() or 1.0), lambda X: 0.2 * X.shape[1]),
    "'chi2'": (np.abs, mean_square),
    "TopicMeans": (lambda X: np.abs(X).round(), mean_square),
    "'precomputed'": (lambda X: np.einsum("ij,kj", X, X), mean_square),  # without threads
    "Spherical": (lambda X: np.where(X.any(axis=1, keepdims=True), X, 1.0), mean_square),
}


def cauchy(A, B):
    """The Cauchy kernel between all rows of A and B, as an example of a callable kernel."""
    return 1.0 / (1.0 + np.square(A[:, None] - B).sum(axis=2))


def formed(X, form):
    """The data in the type and layout that ``form`` names."""
    if form == "frame":
        return pd.DataFrame(X, columns=[f"column {j}" for j in range(X.shape[1])])
    if form == "networkx":
        return nx.from_numpy_array(X)
    kind, layout = form.split()
    X = X.astype(kind)
    return scipy.sparse.csr_array(X) if layout == "csr" else np.asarray(X, order=layout)


# Parameters ---------------------------------------------------------------------------------
# Expressions as above; one may contain further parameters. X are the data as dense float64, n and d
# their shape, v is the unit of a penalty, and chunk the number of rows of a partition on dask.


@dataclass(frozen=True)
class Subject:
    """The parameters and data of an estimator or function; the last fields count problems."""

    always: dict  # parameters of every problem
    sometimes: dict  # parameters of a quarter of the problems
    takes: str = "random_state sample_weight"  # which of these and csr it accepts
    methods: str = "fit"  # empty for a function
    fit: str = ""  # arguments of fit besides X
    partial_fit: str = ""  # arguments of partial_fit besides X
    rows: int = 200  # largest number of rows of small data
    points: int = 0  # problems for each of POINTS; likewise for the tables below
    middle: int = 0
    large: int = 0
    graphs: int = 0
    on_dask: int = 0


# fmt: off
GUESSED = "'auto' | 'auto' | 'farthest-first'"
LAM = {"lam": f"{GUESSED} | 0.05*v | 0.2*v | 0.5*v | 2*v | 0.1*n*v"}
LAM_0 = {"lam": LAM["lam"] + " | 'auto', n_clusters=3 | 'auto', n_clusters=7 | 0, max_clusters=4"}
MOST = {"tol": "1e-3 | 0.1", "max_iter": "1 | 3 | 20"}
CAP = {**MOST, "max_clusters": "3 | 4 | 8"}
CLUSTERS = {**CAP, "guess": "1 | 3 | 5", "init": "X[:1] | X[:3]"}
STARTS = {**CLUSTERS, "n_init": "2 | 3"}
PLAIN = {**STARTS, "algorithm": "'serial' | 'delayed' | 'collapsed' | 'merge'"}
ALL = "random_state sample_weight csr"
BATCHES = "fit | fit | partial_fit | fit+partial_fit"
GROUPS = "np.arange(n) % 3 | np.arange(n) * 5 // n | rng.choice(['a', 'b'], n) | X[:, 0] < X[0, 0]"
BY_GROUP = "groups=" + GROUPS.replace("| ", "| groups=")
HDP = {**MOST, "n_init": "2 | 3"}
FEATURES = {**MOST, "n_swaps": "0 | 1 | 4", "init": "'mean' | 'data'"}
KERNELS = (
    "'rbf', gamma=0.5/v | 'laplacian' | 'poly' | cauchy | 'linear'"
    " | 'sigmoid', gamma=0.1 | 'cosine' | 'chi2', gamma=0.1")
GRAMS = {"kernel": f"{KERNELS} | 'precomputed' | 'precomputed'", "max_memory": "2e4 | 1e6"}
KERNEL_LAM = "'farthest-first' | 0.05 | 0.2 | 0.5 | 0.3*v, kernel='linear'"
MOVING = {
    "t_q": "2.5, k_tau=1.5 | np.inf, k_tau=1.0 | None, q=0.1*v, tau=0.5 | None, q=0, tau=0",
    "n_init": "1 | 5", "record": "True"}
KERNEL_MOVING = {**MOVING, "kernel": KERNELS, "budget": "1 | 5"}
MOVES = {
    "methods": "fit | partial_fit", "rows": 80, "partial_fit": "elapsed=1 | elapsed=2",
    "fit": "times=np.arange(n) * 6 // n | times=rng.integers(0, 5, n) | times=np.arange(n) // 9"
    " | times=rng.integers(0, 5, n) * 4, step=2 | times=None"}
CUT = {
    "cut": "'normalized' | 'ratio'", "algorithm": "'multilevel' | 'incremental' | 'batch'",
    "init": "np.arange(n) % 3 | np.arange(n)", "n_init": "1 | 2", "max_iter": "1 | 3"}
SAMPLED = {**MOST, "init": "X[:3]", "algorithm": "'delayed'", "max_clusters": "3"}
HELD = "persist=True | persist='auto' | persist=False"

SUBJECTS = {
    "DPMeans": Subject(
        {"lam": LAM_0["lam"] + " | 'auto', metric='auto' | 'auto', n_clusters=4, metric='auto'"},
        PLAIN, ALL, points=18, large=18),
    "BregmanDPMeans": Subject(
        {"divergence": "'kl' | 'itakura_saito' | 'logistic' | 'squared_euclidean'", **LAM_0},
        PLAIN, rows=120, points=16, middle=12, large=2),
    "MixedDPMeans": Subject(
        {"lam": "'auto' | 'auto', n_clusters=3 | 'auto', n_clusters=7 | 0.5 | 2 | 8"
         " | 0, max_clusters=4"},
        {**CAP, "init": "X[:1] | X[:3]", "n_init": "2 | 3",
         "algorithm": "'serial' | 'delayed' | 'collapsed' | 'merge'"},
        rows=120, points=10, middle=6, large=2),
    "SphericalDPMeans": Subject(
        {"min_cosine": "0.5 | 0.9 | -0.3 | None, lam='auto' | None, lam=0.2 | None, lam=0.02"
         " | None, lam='farthest-first' | None, lam=0, max_clusters=4 | None"
         " | None, lam='auto', n_clusters=3"},
        {**STARTS, "algorithm": "'serial' | 'delayed'"}, ALL, BATCHES, points=13, large=10),
    "MiniBatchDPMeans": Subject(
        LAM_0, {**CLUSTERS, "batch_size": "7 | 30 | 1000"}, ALL, BATCHES, points=12, large=12),
    "MahalanobisMeans": Subject(
        {"n_clusters": "'auto' | 'auto' | 'auto', init=X[:6] | 'auto', lam=2 | 2 | 3, init='merge'"
         " | 'auto', scale=1, reg_covar='auto', covariances=v*np.eye(d) | 2, init=X[:2]"
         " | 2, scale=1, reg_covar='auto', covariances=v*np.stack([np.eye(d), 2*np.eye(d)])"
         " | 3, init='k-means++' | 3, volume='clusters' | 2, volume='clusters', init=X[:2]"
         " | 3, volume='clusters', lam=0.5, scale=1.0, reg_covar=np.exp(-1)"
         " | 2, volume='clusters', lam=0.1*n, covariances=v*np.eye(d), reg_covar=v",
         "n_init": "1 | 2 | 4"},
        {**MOST, "scale": "0.5 | 3", "reg_covar": "0.1*v | n*v"}, points=12, middle=8, large=2),
    "RobustDPMeans": Subject(
        {"lam": "'auto' | 'auto' | 0.1*n*v | 2*v", "price": "'auto' | 'auto' | 0.1*v | v"},
        {**CAP, "init": "X[:1] | X[:3]"}, points=9, large=6),
    "HDPMeans": Subject(
        {"lam_local": f"{GUESSED} | 0.1*v | v", "lam_global": f"{GUESSED} | 0.2*v | v | n*v"},
        HDP, fit=BY_GROUP, points=12, large=6),
    "SegmentMeans": Subject(
        {"lam": "'auto' | 'auto' | 0.1*v | 2*v | 0.1*n*v | 0, max_clusters=3",
         "lam_switch": "'auto' | 'auto' | 0 | 0.2*v | v"},
        {**CAP, "n_init": "1 | 3"}, "sample_weight",
        fit=f"{BY_GROUP} | groups=None | groups=None", points=9, middle=6, large=4),
    "BPMeans": Subject(
        {"lam": f"{GUESSED} | v | 3*v | 0.1*n*v | v, init=rng.integers(0, 2, (n, 2))",
         "n_init": "1 | 2"},
        {**FEATURES, "algorithm": "'sweep' | 'collapsed' | 'stepwise'", "n_components": "1 | 3",
         "max_features": "2 | 3"}, rows=60, points=10, middle=6, large=2),
    "KFeatures": Subject(
        {"n_components": "'auto' | 'auto' | 1 | 2 | 3 | 2, init=rng.integers(0, 2, (n, 2))",
         "n_init": "1 | 2"}, {**FEATURES, "assign": "'coordinate' | 'exact'"},
        rows=60, points=8, middle=6, large=2),
    "DynamicMeans": Subject(
        LAM, {**MOVING, "guess": "1 | 4", "max_iter": "1 | 2"}, **MOVES,
        points=12, middle=6, large=5),
    "KernelDPMeans": Subject(
        {"lam": f"{KERNEL_LAM} | 0, max_clusters=3"},
        {**STARTS, **GRAMS, "algorithm": "'serial' | 'collapsed'", "init": "np.arange(n) % 3"},
        rows=120, points=12, middle=6),
    "KernelHDPMeans": Subject(
        {"lam_local": "'farthest-first' | 0.05 | 0.3 | 0.1*v, kernel='linear'",
         "lam_global": "'points' | 'farthest-first' | 0.3 | 0.3*v"},
        {**MOST, **GRAMS, "n_init": "2 | 3", "init": "'mean' | 'merge'"}, "random_state",
        fit=BY_GROUP, rows=100, points=9, middle=4),
    "KernelDynamicMeans": Subject(
        {"lam": KERNEL_LAM}, {**KERNEL_MOVING, "max_iter": "1 | 2"}, "random_state", **MOVES,
        points=8, middle=2),
    "SpectralDynamicMeans": Subject(
        {"lam": f"{KERNEL_LAM} | 3.0"}, KERNEL_MOVING, "random_state", **MOVES, points=7, middle=2),
    "SpectralDPMeans": Subject(
        {"lam": "'auto' | 'auto' | 'spectrum' | 'farthest-first' | 2.0 | 0.1*n*v, kernel='linear'"
         " | 'spectrum', max_memory=1e6 | 0.1*n, max_memory=1e6"
         " | 0.1*n*v, kernel='precomputed', max_memory=1e6",
         "n_init": "1 | 3"},
        {"kernel": GRAMS["kernel"], "guess": "1 | 3 | 5", "rounding": "'yu-shi' | 'kmeans'"},
        "random_state sample_weight csr", rows=120, points=10, middle=12),
    "PenalizedCut": Subject(
        {"lam": "'auto' | 'auto' | 'plateau' | None | -0.3 | -0.9 | -1.5, algorithm='multilevel'"
         " | -0.5, algorithm='batch' | -0.3, algorithm='batch' | -0.6, algorithm='incremental'"},
        CUT, "random_state csr", graphs=20),
    "cut_path": Subject(
        {"n_lams": "2 | 4 | 3, lams=[-0.8, -0.5, -0.2]"}, CUT, "random_state csr", "", graphs=8),
    "cluster_path": Subject({}, {"max_clusters": "1 | 3"}, ALL, "", points=7, large=6),
    "feature_path": Subject(
        {"max_components": "1 | 3 | 4", "n_init": "1 | 2"}, {**FEATURES, "assign": "'exact'"},
        "random_state sample_weight", "", rows=60, points=5, middle=4, large=2),
    "farthest_first_lambda": Subject(
        {"n_clusters": "1 | 2 | 5 | 20"}, {"count_alone": "True"}, "csr", "",
        points=4, large=4),
    "hdp_lambdas": Subject(
        {"groups": GROUPS, "n_local": "1 | 3", "n_global": "1 | 5 | 20"}, {"count_alone": "True"},
        "", "", points=4, large=4),
    "coreset": Subject(
        {"n_rows": "1 | 20 | 60 | 500", "lam": "0 | 0.1*v | n*v"}, {}, ALL, "", points=5, large=6),
    "match_clusters": Subject(
        {"new_costs": "X[:, 0] | np.ones(n) | 0.01*v*rng.random(n)",
         "old_costs": "X | X[:, 1:] | X @ X.T | v*rng.random((n, 9)) | rng.integers(0, 2, (n, n))"},
        {}, "", "", rows=40, points=3),
    "dask:DPMeans": Subject(
        {"lam": "'auto' | 'auto' | 0.05*v | 0.2*v | v | 0, max_clusters=4"}, SAMPLED, fit=HELD,
        on_dask=5),
    "dask:SphericalDPMeans": Subject(
        {"lam": "'auto' | 0.3 | 0.05 | None, min_cosine=0.9"}, SAMPLED, fit=HELD, on_dask=4),
    "dask:MiniBatchDPMeans": Subject(LAM_0, {"init": "X[:3]"}, methods=BATCHES, on_dask=4),
    "dask:HDPMeans": Subject(
        {"lam_local": "0.05*v | 0.3*v", "lam_global": "0.2*v | v"}, MOST, "sample_weight",
        fit="groups=np.arange(n) // chunk, persist=False"
        " | groups=np.arange(n) // chunk + (X[:, 0] > X[0, 0]) / 2",
        on_dask=3),
}
# fmt: on


def estimator_by_default(name):
    """The subject of an estimator that is not in the table."""
    kind = getattr(smallvar, name)
    names = {*signature(kind).parameters, *signature(kind.fit).parameters}
    options = {option: values for option, values in STARTS.items() if option in names}
    return Subject(
        {}, options, " ".join({*ALL.split()} & names), rows=100, points=8, middle=2, large=1
    )


SUBJECTS |= {
    name: estimator_by_default(name)
    for name in smallvar.__all__
    if name not in SUBJECTS and hasattr(getattr(smallvar, name), "fit")
}


# Problems -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Problem:
    """A call, with its data as expressions."""

    subject: str
    options: str
    method: str
    call: str  # arguments of the method besides X
    data: str
    form: str
    weight: str

    @property
    def name(self):
        """The text that defines the problem."""
        method = f".{self.method}({self.call})" if self.method else ""
        return f"{self.subject}({self.options}){method}: {self.data}, {self.form}, {self.weight}"


def split(text):
    """The expressions in a text, which "|" separates."""
    return [part.strip() for part in text.split("|")]


def generator(text):
    """A random generator seeded by a text."""
    return np.random.default_rng(int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big"))


def draw(subject, data, number):
    """The problem with this number, of a subject with these data; parameters are drawn."""
    about, rng = SUBJECTS[subject], generator(f"{subject}, {data}, {number}")

    def pick(values):
        """A random one of the values."""
        return values[rng.integers(len(values))]

    options = ", ".join(f"{name}={pick(split(values))}" for name, values in about.always.items())
    for name, values in about.sometimes.items():
        if rng.random() < 0.25 and not re.search(rf"\b{name}=", options):
            options += f", {name}={pick(split(values))}"
    if "random_state" in about.takes:
        options += f", random_state={rng.integers(1, 4)}"
    method = pick(split(about.methods))
    call = pick(split(getattr(about, method))) if method in ("fit", "partial_fit") else ""
    forms = split(FORMS) + ["frame"] * (not subject.startswith("dask:"))
    if "csr" in about.takes and not re.search("merge|collapsed|metric", options):
        forms += ["float64 csr", "float64 csr", "float32 csr"]
    forms += ["networkx"] * (about.graphs > 0)
    weight = pick(list(WEIGHTS)) if "sample_weight" in about.takes else "unweighted"
    return Problem(subject, options.removeprefix(", "), method, call, data, pick(forms), weight)


def all_problems():
    """All problems, without duplicates."""
    tables = {"points": POINTS, "middle": MIDDLE, "large": LARGE, "graphs": GRAPHS}
    tables["on_dask"] = ON_DASK
    drawn = (
        draw(subject, data, number)
        for subject, about in SUBJECTS.items()
        for table, texts in tables.items()
        for data in split(texts)
        for number in range(getattr(about, table))
    )
    return list({problem.name: problem for problem in drawn}.values())


# Results ------------------------------------------------------------------------------------


def failure(error):
    """The fields of an error."""
    return {"error": type(error).__name__, "message": str(error)}


def of_value(value, name):
    """Yield the fields of a value: names, each with type, shape and bytes of an array."""
    if hasattr(value, "dask"):
        value = value.compute()
    parts = value.to_dict() if hasattr(value, "to_dict") else value
    if isinstance(parts, (list, tuple)):
        try:
            parts = np.asarray(parts)
        except ValueError:  # of several shapes
            parts = dict(enumerate(parts))
    if isinstance(parts, dict):
        for part, item in parts.items():
            yield from of_value(item, f"{name}.{part}")
    elif parts is None or isinstance(parts, (bool, int, float, str, np.generic, np.ndarray)):
        array = np.asarray(parts)
        array = array.astype(str) if array.dtype.hasobject else array
        data = b64encode(zlib.compress(array.tobytes())).decode()
        yield name, [array.dtype.str, array.shape, data]
    if parts is value or not hasattr(value, "counts"):  # not a path
        return
    for part in (
        *("best", "lam", "ranking", "linkage", "lams", "longest", "n_samples"),
        *("confidence", "confidences", "metric"),
    ):
        if hasattr(value, part):
            yield from of_value(getattr(value, part), f"{name}.{part}")
    kept = [int(k) for k in value.counts if k <= getattr(value, "longest", np.inf)]
    for part in ("labels", "centers"):
        if hasattr(value, part):
            for k in {*kept[:3], kept[len(kept) // 2], value.best} - {None}:
                yield from of_call(f"{name}.{part}({k})", getattr(value, part), k)


def of_call(name, function, *args, **options):
    """Yield the fields of the result of a function, or of the error that it raises."""
    try:
        value = function(*args, **options)
    except Exception as error:
        value = failure(error)
    yield from of_value(value, name)


def called(model, name, X):
    """The method of this name, for dask arrays the function of smallvar.dask; None if neither."""
    if hasattr(X, "dask"):
        import smallvar.dask

        function = getattr(smallvar.dask, name, None)
        return function and partial(function, model)
    return getattr(model, name, None)


def of_model(model, X, given):
    """Yield the fields of a fitted estimator: public attributes, and results of methods."""
    for name in dir(model):
        if name.endswith("_") and not name.startswith("_") and hasattr(model, name):
            yield from of_value(getattr(model, name), name)
    groups = {name: given[name] for name in given if name == "groups"}
    arguments = {"predict": groups, "transform": {}, "score": given}
    for name, options in arguments.items():
        if hasattr(model, name):
            yield from of_call(name, called(model, name, X), X, **options)
    if hasattr(model, "inverse_transform"):
        yield from of_call("inverse_transform", model.inverse_transform, model.assignments_)
    if "Spherical" in type(model).__name__ and not hasattr(X, "dask"):
        yield from of_call("cosines", model.predict, X, return_cosines=True)


def in_batches(model, X, method, call, rng):
    """Fit batch after batch; return labels, number of clusters and objective after each."""
    steps = {"labels_": [], "n_clusters_": [], "objective_": []}
    fit = called(model, method.partition("+")[0], X)
    for start, stop in pairwise(np.unique([0, X.shape[0], *rng.integers(0, X.shape[0], size=4)])):
        part = {name: rows[start:stop] if np.ndim(rows) else rows for name, rows in call.items()}
        fit(X[start:stop], **part)
        fit = called(model, "partial_fit", X)
        for name, values in steps.items():
            values.append(getattr(model, name))
    return steps


def results(problem):
    """Yield the fields of a problem."""
    rng, about = generator(problem.name), SUBJECTS[problem.subject]
    names = {"np": np, "nx": nx, "cauchy": cauchy, "rng": rng, "seed": int(rng.integers(1000))}
    names["n"] = int(rng.integers(about.rows // 2, about.rows + 1))
    names |= {function.__name__: partial(function, rng) for function in (blobs, levels, features)}
    X = eval(problem.data, names)
    X = nx.to_numpy_array(X) if isinstance(X, nx.Graph) else X.astype(float)
    domain = (change for word, change in DOMAINS.items() if word in problem.name)
    change, unit = next(domain, (np.copy, mean_square))
    v, X = unit(X), change(X)
    (n, d), chunk = X.shape, -(-len(X) // 4)
    names |= {"X": X, "n": n, "d": d, "v": v, "chunk": chunk}
    options, call = (eval(f"dict({text})", names) for text in (problem.options, problem.call))
    weight = WEIGHTS[problem.weight](rng, n)
    weight = {} if weight is None else {"sample_weight": weight}
    X = formed(X, problem.form)
    if not about.methods:
        function = getattr(smallvar, problem.subject)
        data = () if problem.subject == "match_clusters" else (X,)
        yield from of_value(function(*data, **options, **weight), "result")
        return
    call = {**call, **weight}
    if problem.subject.startswith("dask:"):
        import dask.array as da

        X = da.from_array(X, chunks=(chunk, d))
        call = {
            name: da.from_array(rows, chunks=chunk) if np.ndim(rows) else rows
            for name, rows in call.items()
        }
    model = getattr(smallvar, problem.subject.removeprefix("dask:"))(**options)
    if problem.method == "fit":
        called(model, "fit", X)(X, **call)
    else:
        yield from of_value(in_batches(model, X, problem.method, call, rng), "steps")
    yield from of_model(model, X, {k: call[k] for k in ("groups", "sample_weight") if k in call})


def cluster():
    """The client of a new dask cluster of two threads in this process."""
    from distributed import Client

    local = dict.fromkeys(("dashboard_address", "worker_dashboard_address"), "127.0.0.1:0")
    options = {"processes": False, "n_workers": 2, "threads_per_worker": 1}
    return Client(**options, **local, silence_logs=logging.CRITICAL)


def prepare():
    """Suppress the warnings of a worker process, and use threads also on busy processors."""
    warnings.simplefilter("ignore")
    parallel.guard_loops(False)


def solve(problems):
    """The fields of problems, by their names; either all problems or none are on dask."""
    fields = {}
    with cluster() if problems[0].subject.startswith("dask:") else nullcontext():
        for problem in problems:
            try:
                fields[problem.name] = dict(results(problem))
            except Exception as error:
                fields[problem.name] = dict(of_value(failure(error), "fit"))
    return fields


# Commands -----------------------------------------------------------------------------------


def subject_of(name):
    """The estimator or function in the name of a problem."""
    return name.partition("(")[0]


def record(options):
    """Solve the selected problems and write their fields; the exit status."""
    began = time.monotonic()
    problems = [problem for problem in all_problems() if options.only in problem.name]
    parts = {True: [], False: []}
    for problem in problems[:: options.every]:
        parts[problem.subject.startswith("dask:")].append(problem)
    chunks = [parts[True]] if parts[True] and options.dask else []
    chunks += [parts[False][i : i + 20] for i in range(0, len(parts[False]), 20)]
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    context, solved = multiprocessing.get_context("spawn"), {}
    with ProcessPoolExecutor(options.jobs, context, initializer=prepare) as pool:
        for fields_by_name in pool.map(solve, chunks):
            solved.update(fields_by_name)
    options.file.write_text(json.dumps(solved))
    errors = Counter(subject_of(name) for name, fields in solved.items() if "fit.error" in fields)
    for subject, count in Counter(map(subject_of, solved)).items():
        print(f"{subject}: {count} problems, {errors[subject]} of them errors")
    print(f"{len(solved)} problems in {time.monotonic() - began:.0f} s")
    return 0


def difference(field, old, new):
    """The largest difference of two arrays by the range of the old; inf if there is none."""
    if None in (old, new) or old[:2] != new[:2] or "U" in old[0]:
        return np.inf
    old, new = (
        np.ndarray(shape, kind, zlib.decompress(b64decode(data))).astype(float)
        for kind, shape, data in (old, new)
    )
    axis, finite = 0 if "centers" in field else None, np.ma.masked_invalid(old)
    span, size = np.ma.ptp(finite, axis=axis), abs(finite).max(axis=axis)
    unit = np.ma.filled(np.ma.where(span > 0, span, size), 0.0)  # of one value its size
    same = (old == new) | (np.isnan(old) & np.isnan(new))
    with np.errstate(all="ignore"):
        far = np.where(same, 0.0, abs(new - old) / unit)
    return float(np.nan_to_num(far, nan=np.inf).max())


def compare(options):
    """Print the differences of two records; the exit status."""
    old, new = (json.loads(path.read_text()) for path in (options.old, options.new))
    tolerances = TOLERANCES | dict(options.tolerance)
    columns = ("equal", "tolerated", "differ", "only in old", "only in new")
    counts = defaultdict(Counter)
    where = defaultdict(lambda: defaultdict(list))  # differences by subject and field
    for name in {**old, **new}:
        subject, outcomes = subject_of(name), ["equal"]
        if name not in old or name not in new:
            counts[subject]["only in new" if name in new else "only in old"] += 1
            continue
        for field in {**old[name], **new[name]}:
            before, after = (side[name].get(field) for side in (old, new))
            if before == after:
                continue
            far = difference(field, before, after)
            most = [t for regex, t in tolerances.items() if re.search(regex, f"{name}: {field}")]
            fits = far <= max(map(float, most), default=-1.0)
            outcomes.append("tolerated" if fits else "differ")
            where[subject][field].append((far, outcomes[-1], name))
        counts[subject][max(outcomes, key=columns.index)] += 1
    for subject, count in counts.items():
        print(f"{subject}: " + ", ".join(f"{count[column]} {column}" for column in columns))
        for field, found in where[subject].items():
            print(f"    {field}: {len(found)} not the same")
            for far, outcome, name in sorted(found, reverse=True)[:3]:
                print(f"        by {far:.1e}, {outcome}: {name}")
    total = sum(counts.values(), Counter())
    print("in all: " + ", ".join(f"{total[column]} {column}" for column in columns))
    return int(total["differ"] > 0 or total["equal"] + total["tolerated"] == 0)


def main():
    """Parse the command line and run the command; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(required=True)
    record_parser = commands.add_parser("record", help="solve the problems and write their fields")
    record_parser.add_argument("file", type=Path)
    record_parser.add_argument("--jobs", type=int, default=1, help="processes at the same time")
    record_parser.add_argument("--threads", type=int, default=1, help="threads of every loop")
    record_parser.add_argument(
        "--every", type=int, default=1, help="record every N-th problem only"
    )
    record_parser.add_argument("--only", default="", help="only problems whose names contain this")
    record_parser.add_argument(
        "--no-dask", dest="dask", action="store_false", help="leave out problems on dask"
    )
    record_parser.set_defaults(run=record)
    compare_parser = commands.add_parser("compare", help="print the differences of two records")
    compare_parser.add_argument("old", type=Path)
    compare_parser.add_argument("new", type=Path)
    compare_parser.add_argument(
        "--tolerance", nargs=2, action="append", default=[], metavar=("FIELD", "NUMBER")
    )
    compare_parser.set_defaults(run=compare)
    options = parser.parse_args()
    return options.run(options)


if __name__ == "__main__":
    sys.exit(main())
