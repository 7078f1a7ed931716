"""Clusters of the nodes of a graph: normalized and ratio cut with a penalty."""

import math
import sys
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import eigh
from scipy.sparse import csr_array, diags_array, sparray, spmatrix
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import ArpackError, eigsh
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data

from smallvar._base import unchanged_on_error, warn_not_converged
from smallvar._eigen import Rounding, eigen_above, yu_shi
from smallvar._envelope import CutPath
from smallvar._starts import Progress, best_of
from smallvar._sweeps.graph import BatchSweep, CutSweep, contract, number_labels
from smallvar._validation import (
    as_floats,
    check_number,
    check_option,
    check_reach,
    check_symmetric,
    shown,
    within_floats,
)

if TYPE_CHECKING:
    from networkx import Graph

TIE = 1e-12  # costs this close, relative to the largest, are equal
DENSE = 200  # nodes up to which all eigenvalues are computed
FEW = 32  # a sweep moves few nodes if it moves no more than one in FEW


@dataclass
class _Graph:
    """The links between different nodes in compressed rows; each node's links and size."""

    indptr: np.ndarray
    indices: np.ndarray
    weight: np.ndarray
    out: np.ndarray  # sum of the links to other nodes
    size: np.ndarray  # degree with self-links, or number of nodes

    @property
    def arrays(self):
        """What the sweeps take."""
        return self.indptr, self.indices, self.weight, self.out, self.size

    def __len__(self):
        return len(self.out)

    @property
    def linked(self):
        """The nodes that have links."""
        return np.diff(self.indptr) > 0

    def contracted(self, labels, n_clusters):
        """The graph of the clusters."""
        return _Graph(*contract(self.arrays, labels, n_clusters))

    def least_lam(self, cut):
        """Below this lam, no two nodes are better off as one cluster."""
        row = np.repeat(np.arange(len(self)), np.diff(self.indptr))
        column, ratio = self.indices, np.zeros(len(self))
        np.divide(self.out, self.size, out=ratio, where=self.out > 0)
        both = self.out[row] + self.out[column] - 2 * self.weight
        both /= self.size[row] + self.size[column]
        gain = (ratio[row] + ratio[column] - both).max()
        if cut == "ratio":  # two without a link may gain, too
            gain = max(gain, np.partition(self.out, -2)[-2:].sum() / 2)
        return -float(gain)

    def reordered(self, order):
        """The same graph, node ``order[i]`` as node i."""
        A = self.adjacency()[order][:, order]
        return _Graph(
            A.indptr.astype(np.int64),
            A.indices.astype(np.int32),
            A.data,
            self.out[order],
            self.size[order],
        )

    def part(self, start, stop):
        """The nodes start..stop-1, which have no links to others."""
        first, last = self.indptr[start], self.indptr[stop]
        return _Graph(
            self.indptr[start : stop + 1] - first,
            self.indices[first:last] - np.int32(start),
            self.weight[first:last],
            self.out[start:stop],
            self.size[start:stop],
        )

    def adjacency(self):
        """The links as a sparse array."""
        shape = (len(self), len(self))
        return csr_array((self.weight, self.indices, self.indptr), shape=shape)

    def laplacian(self):
        """V^-1/2 (D - A) V^-1/2, V the sizes; the nodes without links have zeros."""
        root = np.zeros(len(self))
        np.divide(1.0, np.sqrt(self.size), out=root, where=self.out > 0)
        scale = diags_array(root)
        return csr_array(scale @ (diags_array(self.out) - self.adjacency()) @ scale)


def read_graph(estimator, X, cut):
    """The checked graph of an adjacency matrix or of a networkx graph."""
    networkx = sys.modules.get("networkx")  # if X is a graph of it, it was imported
    if networkx is not None and isinstance(X, networkx.Graph):
        if X.is_directed():
            raise ValueError("X must be an undirected graph, got a directed one")
        if len(X) == 0:
            raise ValueError("X must have at least 1 node, got an empty graph")
        try:
            X = networkx.to_scipy_sparse_array(X, dtype=np.float64, weight="weight", format="csr")
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"X must have numbers as its edges' weights: {error}") from None
    single = getattr(X, "dtype", None) == np.float32
    with within_floats():
        X = validate_data(
            estimator, X, accept_sparse=["csr", "csc", "coo"], dtype=np.float64, copy=False
        )
    n = X.shape[0]
    if n != X.shape[1]:
        raise ValueError(f"X must be a square adjacency matrix, got shape {X.shape}")
    if n > np.iinfo(np.int32).max:
        raise ValueError(f"X must have fewer than 2**31 nodes, got {n}")
    # by way of coordinates: a copy, and duplicates are added
    X = csr_array(X).tocoo(copy=False) if isinstance(X, np.ndarray) else X.tocoo(copy=False)
    A = csr_array((X.data, (X.row, X.col)), shape=X.shape)
    if A.nnz and A.data.min() < 0:
        raise ValueError(
            f"X must be >= 0, got {A.data.min():.6g}: Negative values in data passed to "
            f"{type(estimator).__name__}, which needs an adjacency matrix"
        )
    A.eliminate_zeros()
    check_reach(A.data)
    given = np.float32 if single else np.float64
    if check_symmetric(A, "X must be a symmetric adjacency matrix", given) > 0:
        A = csr_array((A + A.T) / 2)
    row = np.repeat(np.arange(n, dtype=np.int32), np.diff(A.indptr))
    between = row != A.indices
    row, weight = row[between], A.data[between]
    out = np.bincount(row, weight, minlength=n).astype(np.float64)  # integers if empty
    indptr = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=n))]).astype(np.int64)
    size = out + A.diagonal() if cut == "normalized" else np.ones(n)
    return _Graph(indptr, A.indices[between].astype(np.int32), weight, out, size)


def tie_of(graph, lam):
    """Costs that differ by no more are equal."""
    ratio = np.zeros(len(graph))
    np.divide(graph.out, graph.size, out=ratio, where=graph.out > 0)
    return TIE * (abs(lam) + ratio.max())


class _Descent:
    """One start: labels, and the objective after every sweep."""

    def __init__(self, estimator, graph, lam, order):
        self.graph, self.lam, self.order = graph, lam, order
        self.tie = tie_of(graph, lam)
        self.ratio = estimator.cut == "ratio"
        self.max_iter = estimator.max_iter  # on each level
        self.progress = Progress(math.inf, 0.0, 0, estimator.verbose)
        self.converged = True

    @property
    def k(self):
        """Number of clusters, at the end."""
        return self.n_clusters

    @property
    def objective(self):
        """The objective at the end."""
        return self.progress.objective

    def _record(self, value, k, n, moved):
        self.progress.record(value, f"{n} nodes, {k} clusters, {{}}", changed=moved)

    def run(self, algorithm, start):
        """From given labels, or from every node on its own."""
        if start is None:
            start = np.arange(len(self.graph), dtype=np.int32)
        labels = getattr(self, algorithm)(start.copy())
        self.labels, self.n_clusters = number_labels(labels, None)
        last = CutSweep(self.graph.arrays, self.labels, self.lam, self.tie)
        self.progress.objective, self.cut = last.objective(), last.cut
        return self

    def settle(self, graph, labels, order, few=0):
        """Sweep until no more than ``few`` nodes move; changes ``labels``, returns if any did."""
        sweep = CutSweep(graph.arrays, labels, self.lam, self.tie)
        for count in range(self.max_iter):
            moved = sweep.sweep(order)
            value = sweep.objective()
            self._record(value, sweep.k, len(graph), moved)
            if moved <= few:
                return count > 0 or moved > 0
        self.converged = False
        return True

    def incremental(self, labels):
        """Single nodes."""
        self.settle(self.graph, labels, self.order)
        return labels

    def multilevel(self, labels):
        """Single nodes, then clusters as nodes, and so on; then back; until nothing changes."""
        # on the way up a level is left once few nodes move: clusters merge faster as nodes
        self.settle(self.graph, labels, self.order, len(labels) // FEW)
        merged, refined, rounds = True, False, 0
        while merged and self.converged:
            if rounds == self.max_iter:
                self.converged = False
                break
            rounds += 1
            merged = False
            levels, graph, order = [], self.graph, self.order
            while True:
                fine, k = number_labels(labels, order)
                if k == len(graph):
                    break
                levels.append((graph, order, fine))
                graph, order = graph.contracted(fine, k), None
                labels = np.arange(k, dtype=np.int32)
                if not self.settle(graph, labels, order, k // FEW):
                    break
                merged = True
            for graph, order, fine in reversed(levels):
                labels = labels[fine]
                if merged:
                    self.settle(graph, labels, order)
            if not (merged or refined):
                merged = self.settle(self.graph, labels, self.order)
            refined = True
        return labels

    def batch(self, labels):
        """Weighted kernel DP-means with the kernel of the cut (KJ12, Theorem 5.3)."""
        shift = kernel_shift(self.graph)
        if not self.ratio:  # the paper's sigma is s - 1, and not negative
            shift = max(shift, 1.0)

        def begin(labels):
            return BatchSweep(self.graph.arrays, labels, self.lam, self.tie, shift)

        sweep = begin(labels)
        value = sweep.objective()
        for _ in range(self.max_iter):
            before, moved = labels.copy(), sweep.sweep(self.order)  # which changes labels
            _, labels = np.unique(labels, return_inverse=True)
            labels = labels.astype(np.int32)
            sweep = begin(labels)
            if sweep.objective() > value:  # by rounding alone
                labels, moved, sweep = before, 0, begin(before)
            value = sweep.objective()
            self._record(value, sweep.k, len(self.graph), moved)
            if not moved:
                return labels
        self.converged = False
        return labels


def kernel_shift(graph):
    """KJ12's sigma: the least s, up to rounding, for which s V - L is positive semi-definite."""
    N = graph.laplacian()
    if not graph.indices.size:
        return 0.0
    if len(graph) <= DENSE:
        return float(eigh(N.toarray(), eigvals_only=True)[-1])
    try:
        value, vector = eigsh(N, k=1, which="LA", tol=1e-8, v0=np.sqrt(1 + np.arange(len(graph))))
    except ArpackError:
        row = np.repeat(np.arange(len(graph)), np.diff(graph.indptr))
        ratio = (
            graph.out[row] / graph.size[row] + graph.out[graph.indices] / graph.size[graph.indices]
        )
        return float(ratio.max())
    # no closer to the largest than the residual
    return float(value[0] + np.linalg.norm(N @ vector[:, 0] - value[0] * vector[:, 0]))


def spectral_labels(graph, lam, rng, n_init):
    """Roundings of the spectral relaxation (KJ12, 5.1), one connected component at a time."""
    n_components, component = connected_components(graph.adjacency(), directed=False)
    members = np.argsort(component, kind="stable")
    whole = graph.reordered(members)
    ends = np.cumsum(np.bincount(component, minlength=n_components))
    labels, k = np.empty(len(graph), dtype=np.int32), 0
    for start, stop in zip(np.concatenate([[0], ends[:-1]]), ends, strict=True):
        found = np.zeros(stop - start, dtype=np.int32)
        if stop - start > 1:
            part = whole.part(start, stop)
            similarity = -part.laplacian()
            _, Y = eigen_above(similarity.toarray() if len(part) <= DENSE else similarity, lam, rng)
            if Y.shape[1] > 1:
                roundings = (
                    Rounding(CutSweep(part.arrays, one, lam, 0.0).objective(), one, None)
                    for one in yu_shi(Y, rng, n_init)
                )
                found = best_of(roundings).labels
        labels[members[start:stop]] = found + k
        k += int(found.max()) + 1
    return labels


class PenalizedCut(BaseEstimator):
    """Clusters of the nodes of a graph, their number included: a cut with a penalty.

    Minimizes, over partitions of the nodes into any number K of clusters c ::

        sum_c links(c, rest) / deg(c) + lam * K         (cut="normalized")
        sum_c links(c, rest) / size(c) + lam * K        (cut="ratio")

    where links(c, rest) is the weight of the edges that leave c, deg(c) the sum of the degrees of
    its nodes and size(c) their number. For lam >= 0 one cluster is the best (its cut is 0), so
    **useful penalties are negative**: each cluster earns -lam.

    Parameters
    ----------
    lam : float, default=None
        Penalty of a cluster, negative. For the normalized cut, a cluster pays for itself if the
        share of its degree that stays within, links(c, c) / deg(c), exceeds 1 + lam: with -0.5,
        more than half. Useful is -1 - f < lam < 0, with f the largest 2 A_ij / (d_i + d_j) of an
        edge; below -1 only small tight groups remain, below -1 - f single nodes. For the ratio cut
        it is in units of degree: a cluster pays if its links to the rest, per node, are less than
        -lam. Outside the useful range there is a warning. None: -0.5, for the ratio cut times the
        mean of the nodes' links. :func:`cut_path` tries a range.
    cut : {"normalized", "ratio"}, default="normalized"
        What is cut. The normalized cut balances degrees, the ratio cut numbers of nodes.
    algorithm : {"multilevel", "incremental", "batch"}, default="multilevel"
        "incremental" moves one node at a time to the cluster, or to a new one, where the objective
        is lowest. "multilevel" does so, then moves the clusters found as if they were nodes, and so
        on, and then goes back. "batch" is the paper's: weighted kernel DP-means, with the kernel
        for which its objective is the cut; it rarely leaves the number of clusters it starts with.
    init : array-like of shape (n_nodes,), default=None
        Labels to start from, integers. None: every node on its own; for "batch", the rounded
        spectral relaxation.
    n_init : int, default=3
        Number of starts: the first visits nodes in the order given, the others in random orders
        ("batch" also rounds the relaxation so many times). The lowest objective is kept.
    max_iter : int, default=300
        Largest number of sweeps on one level.
    random_state : int, RandomState instance or None, default=None
        Generator of the random orders and of the spectral relaxation.
    verbose : int, default=0
        Print a line a sweep.

    Attributes
    ----------
    labels_ : ndarray of shape (n_nodes,), int32
        Cluster of each node, numbered by first appearance.
    n_clusters_ : int
        Number of clusters.
    cut_ : float
        The cut of the clusters.
    objective_ : float
        ``cut_ + lam_ * n_clusters_``.
    objective_path_ : ndarray of shape (n_sweeps,), float64
        The objective after every sweep, on every level; it never rises.
    lam_ : float
        The penalty used.
    n_iter_ : int
        Sweeps, the last, unchanging ones included.
    n_features_in_ : int
        Number of nodes.
    feature_names_in_ : ndarray of shape (n_nodes,)
        Names of the columns of a DataFrame, if all are strings.

    Raises
    ------
    ValueError, TypeError
        From ``fit``, for a matrix that is not square, symmetric (to 1e-10 of its largest entry),
        finite and >= 0, and for parameters out of their bounds. The estimator is then as it was
        before.

    See Also
    --------
    cut_path : Clusters over a range of penalties, and the one that lasts longest.

    Notes
    -----
    A sweep takes time proportional to the number of edges. A node goes to a cluster that it has
    links to, or to one of its own, so at a fixed point no such move lowers the objective; with the
    ratio cut another one may. A million edges take about a second a start on one core, more where
    it takes more sweeps. Nothing runs in parallel.

    A self-link A_ii counts once in the degree of its node and never in a cut. A node without links
    to others is always a cluster of its own, with a cut of 0.

    References
    ----------
    Kulis & Jordan (2012), Revisiting k-means: new algorithms via Bayesian nonparametrics, section
    5.2, Theorem 5.3 ("batch"). Multilevel moves: Blondel, Guillaume, Lambiotte & Lefebvre (2008),
    Fast unfolding of communities in large networks.

    Examples
    --------
    Two triangles joined by an edge:

    >>> import numpy as np
    >>> from smallvar import PenalizedCut
    >>> A = np.zeros((6, 6))
    >>> for i, j in [(0, 1), (0, 2), (1, 2), (3, 4), (3, 5), (4, 5), (2, 3)]:
    ...     A[i, j] = A[j, i] = 1
    >>> model = PenalizedCut(lam=-0.5).fit(A)
    >>> model.labels_
    array([0, 0, 0, 1, 1, 1], dtype=int32)
    >>> round(model.cut_, 3), round(model.objective_, 3)
    (0.286, -0.714)
    """

    labels_: NDArray[np.int32]
    n_clusters_: int
    cut_: float
    objective_: float
    objective_path_: NDArray[np.float64]
    lam_: float
    n_iter_: int
    n_features_in_: int
    feature_names_in_: NDArray[Any]

    def __init__(
        self,
        lam: float | None = None,
        *,
        cut: Literal["normalized", "ratio"] = "normalized",
        algorithm: Literal["multilevel", "incremental", "batch"] = "multilevel",
        init: ArrayLike | None = None,
        n_init: int = 3,
        max_iter: int = 300,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.lam = lam
        self.cut = cut
        self.algorithm = algorithm
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.random_state = random_state
        self.verbose = verbose

    def _check_parameters(self):
        check_option(self.cut, "cut", ("normalized", "ratio"))
        check_option(self.algorithm, "algorithm", ("multilevel", "incremental", "batch"))
        if not math.isfinite(check_number(self.lam, "lam", none=True) or 0.0):
            raise ValueError(f"lam must be finite, got {shown(self.lam)}")
        check_number(self.n_init, "n_init", low=1, integer=True)
        check_number(self.max_iter, "max_iter", low=1, integer=True)

    def fit(self, X: "ArrayLike | sparray | spmatrix | Graph", y: object = None) -> Self:
        """Cluster the nodes of a graph.

        Parameters
        ----------
        X : array-like or sparse array of shape (n_nodes, n_nodes), or networkx graph
            Symmetric adjacency matrix, entries >= 0. Of a graph, the edges' "weight" is used, 1
            where there is none, and nodes are in the order of ``list(X)``.
        y : None
            Ignored.

        Returns
        -------
        self : PenalizedCut
            The fitted estimator.
        """
        with unchanged_on_error(self):
            self._check_parameters()
            rng = check_random_state(self.random_state)
            graph = read_graph(self, X, self.cut)
            start = check_labels(self.init, graph)
            lam = self.lam
            if lam is None:
                lam = -0.5 if self.cut == "normalized" else -0.5 * float(graph.out.mean())
            elif graph.indices.size:
                warn_useless(float(lam), graph, self.cut)
            best = self._solve(graph, start, float(lam), rng)
            self.labels_, self.n_clusters_ = best.labels, best.n_clusters
            self.cut_, self.objective_ = best.cut, best.objective
            self.objective_path_ = np.array(best.progress.path)
            self.lam_, self.n_iter_ = float(lam), best.progress.n_iter
            if not best.converged:
                warn_not_converged(self, self.n_iter_)
        return self

    def _solve(self, graph, start, lam, rng):
        """The best of the starts."""
        if start is None and self.algorithm == "batch":
            start = spectral_labels(graph, lam, rng, self.n_init)

        def run(number):
            order = rng.permutation(len(graph)) if number else None
            return _Descent(self, graph, lam, order).run(self.algorithm, start)

        return best_of(
            map(run, range(self.n_init)),
            total=self.n_init,
            verbose=self.verbose,
            rounding=tie_of(graph, lam),
        )

    def fit_predict(
        self, X: "ArrayLike | sparray | spmatrix | Graph", y: object = None
    ) -> NDArray[np.int32]:
        """Fit and return the labels of the nodes.

        Parameters
        ----------
        X : array-like or sparse array of shape (n_nodes, n_nodes), or networkx graph
            As for ``fit``.
        y : None
            Ignored.

        Returns
        -------
        labels : ndarray of shape (n_nodes,), int32
            ``labels_`` of the fit.
        """
        return self.fit(X).labels_

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = True
        tags.input_tags.positive_only = True
        tags.input_tags.sparse = True
        return tags


def check_labels(init, graph):
    """Given labels numbered from 0, nodes without links on their own; None for None."""
    if init is None:
        return None
    init = np.asarray(init)
    if init.shape != (len(graph),):
        raise ValueError(f"init must have shape ({len(graph)},), got {init.shape}")
    if init.dtype.kind not in "iub":
        raise TypeError(f"init must be integer labels or None, got an array of {init.dtype}")
    _, labels = np.unique(init, return_inverse=True)
    alone = ~graph.linked
    labels[alone] = len(graph) + np.arange(alone.sum())
    return np.unique(labels, return_inverse=True)[1].astype(np.int32)


def warn_useless(lam, graph, cut):
    """Warn where lam alone determines the clusters."""
    if lam >= 0:
        expect = "one cluster for each connected part of the graph"
    elif lam <= graph.least_lam(cut):
        expect = "a cluster for each node"
    else:
        return
    warnings.warn(
        f"lam={lam:.6g} is outside the useful range, {graph.least_lam(cut):.6g} < lam < 0 for this "
        f"graph and cut: expect {expect}.",
        UserWarning,
        stacklevel=3,
    )


def cut_path(
    X: "ArrayLike | sparray | spmatrix | Graph",
    lams: ArrayLike | None = None,
    *,
    n_lams: int = 50,
    **options: Any,
) -> CutPath:
    """Cluster a graph over a range of penalties, and find the middle of the longest plateau.

    For each of the penalties this minimizes

        cut + lam * K,

    as :class:`PenalizedCut` does. A clustering found for one penalty is tried for all others, so K
    never rises with lam, and the range of penalties for which it is the best of all found is known
    exactly. Clusters that are best over a wide range, a plateau of K, are a good choice.

    Parameters
    ----------
    X : array-like or sparse array of shape (n_nodes, n_nodes), or networkx graph
        As for ``PenalizedCut.fit``.
    lams : array-like of shape (n_lams,), default=None
        The penalties. None: ``n_lams`` of them, evenly spaced over the useful range, which ends at
        0; for the ratio cut it begins at minus the mean of the nodes' links, or later.
    n_lams : int, default=50
        Number of penalties where ``lams`` is None.
    **options
        Parameters of :class:`PenalizedCut` other than ``lam``.

    Returns
    -------
    path : CutPath
        Arrays ``counts``, ``error``, ``lam_low``, ``lam_high``; the number of clusters with the
        widest plateau, ``best``, and the middle of that plateau, ``lam``; labels by
        ``path.labels(k)``.

    Raises
    ------
    ValueError, TypeError
        As from ``PenalizedCut.fit``.

    See Also
    --------
    PenalizedCut : For one penalty.

    References
    ----------
    Kulis & Jordan (2012), Revisiting k-means: new algorithms via Bayesian nonparametrics, section
    5.2.

    Examples
    --------
    >>> import numpy as np
    >>> from smallvar import cut_path
    >>> A = np.kron(np.eye(3), np.ones((4, 4))) - np.eye(12)  # three groups of four,
    >>> for i, j in [(0, 4), (4, 8), (8, 0)]:  # in a ring
    ...     A[i, j] = A[j, i] = 1
    >>> path = cut_path(A)
    >>> path.best, round(path.lam, 3)
    (3, -0.693)
    >>> path.labels(3)
    array([0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2], dtype=int32)
    """
    if "lam" in options:
        raise TypeError("lam must not be given: it goes over lams")
    check_number(n_lams, "n_lams", low=1, integer=True)
    model = PenalizedCut(**options)
    model._check_parameters()
    rng = check_random_state(model.random_state)
    graph = read_graph(model, X, model.cut)
    start = check_labels(model.init, graph)
    if lams is None:
        low = graph.least_lam(model.cut) if graph.indices.size else -1.0
        if model.cut == "ratio" and graph.indices.size:
            low = max(low, -float(graph.out.mean()))
        lams = np.linspace(low, 0.0, n_lams + 2)[1:-1]
    else:
        wanted = f"lams must be a sequence of finite numbers, got {lams!r}"
        try:
            lams = as_floats(lams)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{wanted}: {error}") from None
        if lams.ndim != 1 or not lams.size or not np.isfinite(lams).all():
            raise ValueError(wanted)
        lams = np.sort(lams)
    found = [model._solve(graph, start, float(lam), rng) for lam in lams]
    if not all(f.converged for f in found):
        warn_not_converged(model, max(f.progress.n_iter for f in found))
    parts, _ = connected_components(graph.adjacency(), directed=False)
    return CutPath(lams, found, lambda k: not parts < k < len(graph))
