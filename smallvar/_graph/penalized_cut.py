"""The penalized cut: clusters of the nodes of a graph, by normalized or ratio cut with a penalty.

The estimator ``PenalizedCut`` and the function ``cut_path`` for a range of penalties (KJ12, section
5.2). Their searches are in cuts.py.
"""

import math
import warnings
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import sparray, spmatrix
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from smallvar._core.config import one_blas_thread
from smallvar._core.estimator import FitMixin, keywords_only, warn_not_converged
from smallvar._core.fit_loop import best_of
from smallvar._core.progress import callback_for
from smallvar._core.validation import (
    as_floats,
    check_number,
    check_option,
    check_verbose,
    exact_number,
    level_of_caller,
    shown,
)
from smallvar._graph.cut_path import CutPath, choose, choose_widest
from smallvar._graph.cuts import (
    CutClustering,
    CutDescent,
    LinkDescription,
    lam_between,
    merged_to,
    penalty_chain,
    search_communities,
    spectral_labels,
    tie_of,
)
from smallvar._graph.neighbors import links_neighbors, unite
from smallvar._graph.network import check_labels, read_graph, warn_useless
from smallvar._selection.confidence import UnclearNumberWarning

if TYPE_CHECKING:
    from networkx import Graph

CUT_RULES = ("auto", "plateau")
DOUBTED_NODES = 10_000  # at most, of a graph whose connected parts may have groups all the same


class PenalizedCut(FitMixin, BaseEstimator):
    """Clusters of the nodes of a graph, their number included: a cut with a penalty.

    Minimizes, over partitions of the nodes into any number K of clusters c,

        sum_c links(c, rest) / deg(c) + lam * K         (cut="normalized")
        sum_c links(c, rest) / size(c) + lam * K        (cut="ratio")

    where links(c, rest) is the weight of the edges that leave c, deg(c) the sum of the degrees of
    its nodes and size(c) their number. For lam >= 0 one cluster is the best (its cut is 0), so
    **useful penalties are negative**: each cluster earns -lam.

    Parameters
    ----------
    lam : float, "auto", "plateau" or None, default="auto"
        Penalty of a cluster, negative, or how to find one.

        "auto" takes the clusters with the least description length of the links, which are the
        connected components if no other clusters shorten it. Then, for up to 10,000 nodes, an
        UnclearNumberWarning names the number that "plateau" finds. In a graph that links points to
        their nearest neighbors any cut of a body of points does: there it merges clusters that have
        about as many links between them as a cut through one body has (see Notes). "plateau" takes
        the clusters that are best over the widest range of log(-lam) on a path of penalties, which
        are never one. Both need ``algorithm="multilevel"``.

        A number: for the normalized cut, a cluster pays for itself if the share of its degree that
        stays within, links(c, c) / deg(c), exceeds 1 + lam: with -0.5, more than half. Useful is
        -1 - f < lam < 0, with f the largest 2 A_ij / (d_i + d_j) of an edge; below -1 only small
        tight groups remain, below -1 - f single nodes. For the ratio cut it is in units of degree:
        a cluster pays if its links to the rest, per node, are less than -lam. Outside the useful
        range there is a warning.

        None: -0.5, for the ratio cut times the mean of the nodes' links. :func:`cut_path` tries a
        range.
    n_clusters : int, "auto" or None, default=None
        The exact number of clusters, if ``lam`` is "auto": the clusters of that number with the
        least description length, or, if the search has found none, mergers of more clusters (of
        the smallest, where no links are left between them). At most the number of nodes. None or
        "auto": the links choose.
    cut : {"normalized", "ratio"}, default="normalized"
        What is cut. The normalized cut balances degrees, the ratio cut numbers of nodes.
    algorithm : {"multilevel", "incremental", "batch"}, default="multilevel"
        "incremental" moves one node at a time to the cluster, or to a new one, where the objective
        is lowest. "multilevel" does so, then moves the clusters found as if they were nodes, and so
        on, and then refines the clusters on each level on the way back. "batch" is the algorithm of
        the paper: weighted kernel DP-means, with the kernel for which its objective is the cut. It
        rarely changes the number of clusters it starts with.
    init : array-like of shape (n_nodes,), default=None
        Labels to start from, integers. With ``lam="auto"`` they are also a candidate, and with
        "plateau" a second path starts from them. None: every node on its own; for "batch", the
        rounded spectral relaxation.
    n_init : int, default=3
        Number of starts: the first visits nodes in the order given, the others in random orders
        ("batch" also rounds the relaxation ``n_init`` times). The lowest objective is kept. With
        ``lam="auto"`` the least description length is kept, of these starts and of the search; the
        starts are left out if three separate descents of the search agree on it.
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
        The penalty used. For "auto" it is halfway between the penalty above which two of the
        clusters are better as one and the one below which single nodes pay: -1 or, for the ratio
        cut, minus the least of the nodes' links. For "plateau" it is minus the geometric mean of
        the ends of the range.
    path_ : CutPath
        The clusterings found, as :func:`cut_path` returns them: for each number of clusters the one
        with the lowest cut, or for "auto" the one with the least description length. ``ranking``
        has the numbers by the width of their range in log(-lam), or by description length; ``best``
        is the first, from whose labels the cut descends, and ``lam`` its penalty. If "auto" has
        merged clusters of neighbors, theirs is the first. Absent for a given ``lam``.
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
    cut_path : Clusters over a range of penalties, and those that are best over the widest range.

    Notes
    -----
    A sweep takes time proportional to the number of edges. A node goes to a cluster that it has
    links to, or to one of its own, so at a fixed point no such move lowers the objective; with the
    ratio cut a move to another cluster may. A million edges take about a second a start on one
    core, more if it takes more sweeps, and 6 to 12 seconds with "auto". Nothing runs in parallel.

    "auto" minimizes the description length, in nats, ::

        -(e_in log(e_in / v_in) + e_out log(e_out / v_out)) / 2
            + log(n! / prod_k n_k!) + log C(n - 1, K - 1) + log n + [K > 1] log(E + 1),

    that of a planted partition with known degrees of the nodes: of E links, e_in / 2 are within
    clusters and e_out / 2 between, v_in = sum_k deg(k)^2 / 2E, v_out = 2E - v_in, n_k nodes in
    cluster k. Weights w count as w sum(w) / sum(w^2) links, so their unit does not matter;
    self-links do not count. Clusters of short description are sought by modularity, over a range of
    resolutions: descents of the cut itself seldom find them if half of a node's links leave its
    cluster. From the best of them, single nodes and clusters are moved to a fixed point of the
    penalized cut at ``lam_``. Its labels are returned.

    "auto" takes a graph for one of points and their nearest neighbors if no degree (number of
    links) is below half of the mean, as must be where each point is linked to k others, and links
    between the clusters close more than 1.5 times as many triangles as independent links would. The
    share of closed paths of two links tells the dimension D of the points, and so how many links a
    plane cuts in a cube of so many uniform points. Two clusters are merged unless they have fewer
    than 0.85 (1 - 1/D) times as many links, and fewer by two standard deviations; then a cluster
    with at least 0.85 times as many links to all of its neighbors is merged with one. So a cloud of
    points usually stays whole. Long thin clusters may be cut.

    A self-link A_ii counts once in the degree of its node and never in a cut. A node without links
    to others is always a cluster of its own, with a cut of 0.

    References
    ----------
    Kulis & Jordan (2012), Revisiting k-means: new algorithms via Bayesian nonparametrics, section
    5.2, Theorem 5.3 ("batch"). Multilevel moves: Blondel, Guillaume, Lambiotte & Lefebvre (2008),
    Fast unfolding of communities in large networks. "auto": Zhang & Peixoto (2020), Statistical
    inference of assortative community structures; Newman (2016), Equivalence between modularity
    optimization and maximum likelihood methods for community detection. Triangles and dimension:
    Dall & Christensen (2002), Random geometric graphs.

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

    _blas = staticmethod(one_blas_thread)  # bits of eigenvectors depend on the number of threads
    labels_: NDArray[np.int32]
    n_clusters_: int
    cut_: float
    objective_: float
    objective_path_: NDArray[np.float64]
    lam_: float
    path_: CutPath
    n_iter_: int
    n_features_in_: int
    feature_names_in_: NDArray[Any]

    @keywords_only
    def __init__(
        self,
        *,
        lam: float | Literal["auto", "plateau"] | None = "auto",
        n_clusters: int | Literal["auto"] | None = None,
        cut: Literal["normalized", "ratio"] = "normalized",
        algorithm: Literal["multilevel", "incremental", "batch"] = "multilevel",
        init: ArrayLike | None = None,
        n_init: int = 3,
        max_iter: int = 300,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.lam = lam
        self.n_clusters = n_clusters
        self.cut = cut
        self.algorithm = algorithm
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.random_state = random_state
        self.verbose = verbose

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
        _check_parameters(self)
        rng = check_random_state(self.random_state)
        graph = read_graph(self, X, self.cut)
        start = check_labels(self.init, graph)
        if hasattr(self, "path_"):
            del self.path_
        if isinstance(self.lam, str):
            best, lam = self._choose_penalty(graph, start, rng)
        else:
            lam = self.lam
            if lam is None:
                lam = -0.5 if self.cut == "normalized" else -0.5 * float(graph.out.mean())
            elif graph.indices.size:
                warn_useless(float(lam), graph, self.cut)
            best = _solve(self, graph, start, float(lam), rng)
        self.labels_, self.n_clusters_ = best.labels, best.k
        self.cut_, self.objective_ = best.cut, best.objective
        self.objective_path_ = np.array(best.progress.path)
        self.lam_, self.n_iter_ = float(lam), best.progress.n_iter
        if not best.converged:
            warn_not_converged(self, self.n_iter_)
        return self

    def _choose_penalty(self, graph, start, rng):
        """CutDescent for ``lam="auto"`` or "plateau", and the penalty chosen; sets ``path_``."""
        length = LinkDescription(graph)
        if self.lam == "plateau":
            # the clusters of the widest plateau, from which the cut descends once more
            self.path_ = path = self._widest(graph, start, length)
            lam = float(path.lams[-1]) if path.best is None else path.lam
            return _solve(self, graph, start, lam, rng, path.labels(path.best or path.at(lam))), lam
        number = exact_number(self.n_clusters)
        if number is not None and number > len(graph):
            raise ValueError(
                f"n_clusters must be <= {len(graph)}, the number of nodes, got {number}"
            )
        shortest = {}  # the clustering of least description length for each number of clusters
        for clustering in search_communities(self, graph, length, start, rng, number):
            before = shortest.setdefault(clustering.k, clustering)
            if clustering.length < before.length:
                shortest[clustering.k] = clustering
        if number is not None:
            return self._exactly(graph, shortest, number, length)
        best = min(sorted(shortest), key=lambda k: shortest[k].length)
        labels = shortest[best].labels
        if links_neighbors(graph, labels):
            # any cut of a body of points shortens the description: pieces of one are united
            united = CutClustering.of(graph, unite(graph, labels, length.scale), length)
            best, labels = united.k, united.labels
            shortest[best] = united
        elif best == graph.components[0] and graph.indices.size and len(graph) <= DOUBTED_NODES:
            # communities that are too few, or too small, for the description to be shorter
            wide = self._widest(graph, start, length).best
            if wide is not None:
                warnings.warn(
                    f"the number of clusters, {best}, is not clear: no groups make the links "
                    f"shorter to describe, but {wide} are best over the widest range of penalties, "
                    "see lam='plateau'",
                    UnclearNumberWarning,
                    stacklevel=level_of_caller(),
                )
        lam = lam_between(graph, labels, self.cut)
        self.path_ = choose(CutPath(shortest.values(), length), best, lam)
        return CutDescent(self, graph, lam, None).run("multilevel", labels), lam

    def _widest(self, graph, start, length):
        """CutPath over a chain of penalties, with the middle of the widest range."""
        lams, clusterings = penalty_chain(self, graph, start)
        return choose_widest(CutPath(clusterings, length, lams), graph, log=True)

    def _exactly(self, graph, shortest, number, length):
        """CutDescent with ``number`` clusters, and a penalty for them; sets ``path_``."""
        labels = merged_to(graph, shortest[min(k for k in shortest if k >= number)].labels, number)
        lam = lam_between(graph, labels, self.cut)
        # moves that lower the objective at this penalty, if they leave the number as it is
        for algorithm in ("multilevel", "incremental"):
            best = CutDescent(self, graph, lam, None).run(algorithm, labels)
            if best.k == number:
                break
        else:
            best = CutDescent(self, graph, lam, None).keep(labels)
        shortest[number] = CutClustering.of(graph, best.labels, length)
        self.path_ = choose(CutPath(shortest.values(), length), number, lam)
        return best, lam

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


def cut_path(
    X: "ArrayLike | sparray | spmatrix | Graph",
    lams: ArrayLike | None = None,
    *,
    n_lams: int = 50,
    **options: Any,
) -> CutPath:
    """Cluster a graph over a range of penalties, and find the widest range with one number K.

    For each of the penalties this minimizes

        cut + lam * K,

    as :class:`PenalizedCut` does. A clustering found for one penalty is a candidate for all others,
    so K never rises with lam, and the range of penalties for which a clustering is the best of
    those found is exact. Clusters that are best over a wide range, a plateau of K, are a good
    choice.

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
        Parameters of :class:`PenalizedCut` other than ``lam`` and ``n_clusters``.

    Returns
    -------
    path : CutPath
        Arrays ``counts``, ``error``, ``criterion``, ``lam_low``, ``lam_high``; the number of
        clusters with the widest plateau, ``best``, and the middle of that plateau, ``lam``; all
        plateaus by their width in log(-lam), ``ranking``; labels by ``path.labels(k)``. The
        criterion is the description length that ``PenalizedCut(lam="auto")`` minimizes.

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
    if "n_clusters" in options:
        raise TypeError("n_clusters must not be given: it follows from lams")
    check_number(n_lams, "n_lams", low=1, integer=True)
    model = PenalizedCut(lam=None, **options)
    _check_parameters(model)
    rng = check_random_state(model.random_state)
    graph = read_graph(model, X, model.cut)
    start = check_labels(model.init, graph)
    if lams is None:
        low = graph.least_lam(model.cut) if graph.indices.size else -1.0
        if model.cut == "ratio" and graph.indices.size:
            low = max(low, -float(graph.out.mean()))
        lams = np.linspace(low, 0.0, n_lams + 2)[1:-1]
    else:
        message = f"lams must be a sequence of finite numbers, got {lams!r}"
        try:
            lams = as_floats(lams)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{message}: {error}") from None
        if lams.ndim != 1 or not lams.size or not np.isfinite(lams).all():
            raise ValueError(message)
        lams = np.sort(lams)
    clusterings = [_solve(model, graph, start, float(lam), rng) for lam in lams]
    if not all(clustering.converged for clustering in clusterings):
        warn_not_converged(model, max(clustering.progress.n_iter for clustering in clusterings))
    return choose_widest(CutPath(clusterings, LinkDescription(graph), lams), graph, log=False)


def _check_parameters(model):
    """Raise unless the parameters of a PenalizedCut are within their bounds."""
    check_verbose(model.verbose)
    check_option(model.cut, "cut", ("normalized", "ratio"))
    auto = isinstance(model.lam, str) and model.lam == "auto"
    if exact_number(model.n_clusters) is not None and not auto:
        raise ValueError(
            "lam must be 'auto' if n_clusters is a number, got "
            f"n_clusters={model.n_clusters} and lam={shown(model.lam)}"
        )
    check_option(model.algorithm, "algorithm", ("multilevel", "incremental", "batch"))
    if isinstance(model.lam, str):
        check_option(model.lam, "lam", CUT_RULES)
        if model.algorithm != "multilevel":
            raise ValueError(
                f"lam must be a number or None with algorithm={model.algorithm!r}, got "
                f"{shown(model.lam)}: only 'multilevel' finds clusters for a range of penalties"
            )
    elif not math.isfinite(check_number(model.lam, "lam", none=True) or 0.0):
        raise ValueError(f"lam must be finite, got {shown(model.lam)}")
    check_number(model.n_init, "n_init", low=1, integer=True)
    check_number(model.max_iter, "max_iter", low=1, integer=True)


def _solve(model, graph, start, lam, rng, first=None):
    """The best of ``n_init`` descents at penalty ``lam``; the first may start at other labels."""
    if start is None and model.algorithm == "batch":
        start = spectral_labels(graph, lam, rng, model.n_init)

    def run(number):
        order = rng.permutation(len(graph)) if number else None
        labels = start if number or first is None else first
        return CutDescent(model, graph, lam, order).run(model.algorithm, labels)

    return best_of(
        map(run, range(model.n_init)),
        total=model.n_init,
        callback=callback_for(model.verbose, model),
        rounding=tie_of(graph, lam),
    )
