"""Searches for the clusters of a graph with the lowest penalized cut.

In this order: ``CutDescent``, a start that moves nodes, or weighted kernel DP-means of KJ12,
Theorem 5.3 ("batch"), and the spectral relaxation where that starts; ``LinkDescription``, the
criterion of ``lam="auto"``, and ``CommunitySearch``, which seeks clusters of short description by
modularity; and at the end a penalty for given clusters, and the penalties and clusters of
``lam="plateau"``.
"""

import heapq
import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.sparse.linalg import ArpackError, eigsh
from scipy.special import gammaln

from smallvar._core.fit_loop import LoopSettings, Progress, RecordedStart, best_of
from smallvar._core.linear_algebra import RoundedLabels, eigen_above, yu_shi
from smallvar._core.progress import callback_for
from smallvar._sweeps.graph import (
    BatchSweep,
    CutSweep,
    LinkSweep,
    number_labels,
)

# Costs, and objectives of starts, tie if they differ by less than this times abs(lam) plus the
# largest cut of a node (for modularity: times the largest sum of a node's links)
CUT_TIE = 1e-12
ARPACK_TOLERANCE = 1e-8  # relative, for the largest eigenvalue; the residual is added to it
ALL_EIGENVALUES_NODES = 200  # nodes up to which all eigenvalues are computed
FEW_MOVES = 32  # a sweep moves few nodes if it moves at most one in FEW_MOVES
# number of penalties of a chain, and the largest log of the ratio of kept to cut links among them
CHAIN_LENGTH, CHAIN_REACH = 22, 3.5
FINEST, COARSER, COARSEST = 32, 1.5, 0.5  # resolutions: number of nodes / 32, / 1.5, ..., 0.5
FIXED_POINT_STEPS = 3  # largest number of steps to the fixed point of the resolution
ENOUGH_DESCENTS = 3  # the search ends when so many separate descents found the best clusters
LENGTH_TOLERANCE = 1e-9  # relative rounding error of description lengths and resolutions


def tie_of(graph, lam):
    """Difference up to which costs at this penalty are equal."""
    return CUT_TIE * (abs(lam) + graph.ratio.max())


class CutDescent(RecordedStart):
    """One start: labels, and the objective after every sweep.

    ``order`` is the order in which nodes are visited, None for that of the graph.
    """

    sweeps = CutSweep
    length = None  # description length, as in CutClustering: not computed

    def __init__(self, estimator, graph, lam, order):
        self.graph, self.lam, self.order = graph, lam, order
        self.tie = tie_of(graph, lam)
        self.ratio = estimator.cut == "ratio"
        self.max_iter = estimator.max_iter  # on each level
        callback = callback_for(estimator.verbose, estimator)
        self.progress = Progress(LoopSettings(math.inf, callback=callback), 0)
        self.converged = True

    def _record(self, value, k, n, moved):
        self.progress.record(value, f"{n} nodes, {k} clusters, {{}}", changed=moved, n_clusters=k)

    def run(self, algorithm, start):
        """Descend from labels ``start`` (None: every node on its own) by the named algorithm."""
        if start is None:
            start = np.arange(len(self.graph), dtype=np.int32)
        labels = getattr(self, algorithm)(start.copy())
        self.labels, self.k = number_labels(labels, None)
        self.update_cut()
        return self

    def keep(self, labels):
        """Take these labels as they are, without a move."""
        self.labels, self.k = number_labels(labels.copy(), None)
        self._record(0.0, self.k, len(self.graph), moved=0)
        self.update_cut()
        return self

    def update_cut(self):
        """Set the cut, and the last objective, computed from the labels."""
        last = self.sweeps(self.graph.arrays, self.labels, self.lam, self.tie)
        self.progress.correct(last.objective())
        self.cut = last.cut

    def sweep_to_fixed_point(self, graph, labels, order, max_moved=0):
        """Sweep until at most ``max_moved`` nodes move; returns whether any moved.

        ``labels`` are changed.
        """
        sweep = self.sweeps(graph.arrays, labels, self.lam, self.tie)
        for count in range(self.max_iter):
            moved = sweep.sweep_again(order) if count else sweep.sweep(order)
            value = sweep.objective()
            self._record(value, sweep.k, len(graph), moved)
            if moved <= max_moved:
                return count > 0 or moved > 0
        self.converged = False
        return True

    def incremental(self, labels):
        """Labels after sweeps that move single nodes."""
        self.sweep_to_fixed_point(self.graph, labels, self.order)
        return labels

    def multilevel(self, labels):
        """Labels after moves of single nodes, then of clusters as nodes, until nothing changes.

        As in the Louvain method (Blondel et al., 2008), but after the highest level the clusters
        are refined on each lower one again.
        """
        # on the way up a level ends when few nodes move: clusters merge faster as nodes
        self.sweep_to_fixed_point(self.graph, labels, self.order, len(labels) // FEW_MOVES)
        merged, refined, rounds = True, False, 0
        while merged and self.converged:
            if rounds == self.max_iter:
                self.converged = False
                break
            rounds += 1
            labels, merged = self.sweep_levels(labels)
            if not (merged or refined):
                merged = self.sweep_to_fixed_point(self.graph, labels, self.order)
            refined = True
        return labels

    def sweep_levels(self, labels):
        """Move clusters as nodes, on higher and higher levels, then nodes on each level downwards.

        Returns the labels, and whether any clusters merged.
        """
        levels, graph, order, merged = [], self.graph, self.order, False
        while True:
            members, k = number_labels(labels, order)
            if k == len(graph):
                break
            levels.append((graph, order, members))
            graph, order = graph.contracted(members, k), None
            labels = np.arange(k, dtype=np.int32)
            if not self.sweep_to_fixed_point(graph, labels, order, k // FEW_MOVES):
                break
            merged = True
        for graph, order, members in reversed(levels):
            labels = labels[members]
            if merged:
                self.sweep_to_fixed_point(graph, labels, order)
        return labels, merged

    def batch(self, labels):
        """Labels of weighted kernel DP-means with the kernel of the cut (KJ12, Theorem 5.3)."""
        shift = kernel_shift(self.graph)
        if not self.ratio:  # the paper's sigma is s - 1, and not negative
            shift = max(shift, 1.0)

        def make_sweep(labels):
            return BatchSweep(self.graph.arrays, labels, self.lam, self.tie, shift)

        sweep = make_sweep(labels)
        value = sweep.objective()
        for _ in range(self.max_iter):
            previous, moved = labels.copy(), sweep.sweep(self.order)  # which changes labels
            _, labels = np.unique(labels, return_inverse=True)
            labels = labels.astype(np.int32)
            sweep = make_sweep(labels)
            if sweep.objective() > value + self.tie:  # by rounding alone
                labels, moved, sweep = previous, 0, make_sweep(previous)
            value = sweep.objective()
            self._record(value, sweep.k, len(self.graph), moved)
            if not moved:
                return labels
        self.converged = False
        return labels


def kernel_shift(graph):
    """The shift sigma of KJ12: the least s for which s V - L is positive semi-definite.

    It is the largest eigenvalue of V^-1/2 L V^-1/2, or a little larger, by rounding.
    """
    N = graph.laplacian()
    if not graph.indices.size:
        return 0.0
    if len(graph) <= ALL_EIGENVALUES_NODES:
        return float(eigh(N.toarray(), eigvals_only=True)[-1])
    try:
        v0 = np.sqrt(1 + np.arange(len(graph)))
        value, vector = eigsh(N, k=1, which="LA", tol=ARPACK_TOLERANCE, v0=v0)
    except ArpackError:  # a bound: the largest sum of out_i / v_i and out_j / v_j over links
        return float(sum(graph.ratio[nodes] for nodes in graph.ends).max())
    # the error of an eigenvalue is at most the norm of the residual
    return float(value[0] + np.linalg.norm(N @ vector[:, 0] - value[0] * vector[:, 0]))


def spectral_labels(graph, lam, rng, n_init):
    """Labels by the spectral relaxation (KJ12, section 5.1), one connected component at a time."""
    component = graph.components[1]
    labels, k = np.empty(len(graph), dtype=np.int32), 0
    ends = np.cumsum(np.bincount(component))[:-1]
    for nodes in np.split(np.argsort(component, kind="stable"), ends):
        component_labels = np.zeros(len(nodes), dtype=np.int32)
        if len(nodes) > 1:
            part = graph.part(nodes)
            similarity = -part.laplacian()
            dense = len(part) <= ALL_EIGENVALUES_NODES
            _, Y = eigen_above(similarity.toarray() if dense else similarity, lam, rng)
            if Y.shape[1] > 1:
                roundings = (
                    RoundedLabels(
                        CutSweep(part.arrays, rounded, lam, 0.0).objective(), rounded, None
                    )
                    for rounded, _ in yu_shi(Y, rng, n_init)
                )
                component_labels = best_of(roundings).labels
        labels[nodes] = component_labels + k
        k += int(component_labels.max()) + 1
    return labels


class CutClustering(NamedTuple):
    """Labels, their number of clusters and cut, and their description length if it is known."""

    labels: NDArray[np.int32]
    k: int
    cut: float
    length: float | None = None

    @classmethod
    def of(cls, graph, labels, length):
        """CutClustering of labels 0, 1, ... with their cut and their description length.

        ``length`` is a LinkDescription.
        """
        k = int(labels.max()) + 1
        out = graph.contracted(labels, k).out
        size = np.bincount(labels, graph.size)
        cut = float((out[out > 0] / size[out > 0]).sum())
        return cls(labels, k, cut, length(labels, out))


@dataclass
class LinkCounts:
    """Numbers of links within and between clusters, and those expected from the degrees."""

    e_in: float  # twice the links within clusters
    e_out: float  # twice the links between clusters
    v_in: float  # expected e_in, by degrees
    v_out: float  # expected e_out
    sizes: NDArray[np.int64]  # nodes with links in each cluster


class LinkDescription:
    """Description length of clusters of a graph, and of its links given clusters and degrees.

    That of a degree-corrected planted partition (Zhang & Peixoto, 2020).

    With e_in twice the links within clusters, e_out twice those between, E their number, d_k the
    degree of cluster k, v_in = sum_k d_k^2 / 2E and v_out = 2E - v_in ::

        -(e_in log(e_in / v_in) + e_out log(e_out / v_out)) / 2 + log(n! / prod_k n_k!)
            + log C(n - 1, K - 1) + log n + [K > 1] log(E + 1)

    A link of weight w counts as w sum(w) / sum(w^2) links: as many links of equal weight would have
    the same relative error of their sum. Self-links and nodes without links are left out.
    """

    def __init__(self, graph):
        self.graph = graph
        self.linked = graph.linked
        total = graph.weight.sum()
        # weights are divided by the largest, so that squares neither overflow nor underflow
        largest = graph.weight.max(initial=0.0)
        relative = graph.weight / largest if largest > 0 else graph.weight
        square = relative @ relative
        self.scale = relative.sum() / square / largest if largest > 0 else 1.0
        self.ends = self.scale * total  # 2E

    def _counts(self, labels, out):
        """LinkCounts of these labels; ``out`` are the links that leave each cluster, if known."""
        if out is None:
            out = self.graph.contracted(labels, int(labels.max()) + 1).out
        e_out = self.scale * float(out.sum())
        degree = self.scale * np.bincount(labels, self.graph.out)
        v_in = float(degree @ degree) / self.ends
        sizes = np.bincount(labels[self.linked])
        return LinkCounts(self.ends - e_out, e_out, v_in, self.ends - v_in, sizes[sizes > 0])

    def __call__(self, labels, out=None):
        """Description length of these labels, in nats."""
        if not self.linked.any():
            return 0.0
        links = self._counts(labels, out)
        n, k = int(links.sizes.sum()), len(links.sizes)
        nats = -(_gain(links.e_in, links.v_in) + _gain(links.e_out, links.v_out)) / 2
        nats += gammaln(n + 1) - gammaln(links.sizes + 1).sum() + np.log(n)
        nats += gammaln(n) - gammaln(k) - gammaln(n - k + 1)
        return float(nats + (np.log(self.ends / 2 + 1) if k > 1 else 0.0))

    def resolution(self, labels):
        """Resolution of modularity whose gains are those of the likelihood (Newman, 2016).

        (within - between) / log(within / between), with the ratios of links to expected links
        within and between clusters. None for one cluster, or if within <= between.
        """
        links = self._counts(labels, None)
        if len(links.sizes) == 1 or links.e_out <= 0:
            return None
        if links.e_in * links.v_out <= links.e_out * links.v_in:
            return None
        within, between = links.e_in / links.v_in, links.e_out / links.v_out
        return (within - between) / math.log(within / between)


def _gain(links, expected):
    """links * log(links / expected), 0 if either is 0."""
    return links * np.log(links / expected) if links > 0 and expected > 0 else 0.0


class LinkDescent(CutDescent):
    """One start of a search for high modularity, at the resolution lam * (sum of degrees)."""

    sweeps = LinkSweep

    def __init__(self, estimator, graph, lam, order):
        super().__init__(estimator, graph, lam, order)
        self.tie = CUT_TIE * float(graph.out.max())

    def update_cut(self):
        """Do nothing: neither the cut nor the last objective is needed."""


class CommunitySearch:
    """Search for the clusters with the least description length, by modularity.

    At the resolution of the true clusters, high modularity is high likelihood (Newman, 2016). This
    resolution is not known, so three searches follow each other: resolutions from high to low, each
    starting from the clusters before (``lower_resolutions``); the fixed point of the resolution,
    starting at 1 (``iterate_resolution``); and more starts at the best resolution so far, unless
    separate descents agree (``run_more_starts``). ``clusterings`` are pairs of a clustering and the
    resolution at which it was found.
    """

    def __init__(self, model, graph, length):
        self.model, self.graph, self.length = model, graph, length
        self.network, self.total = replace(graph, size=graph.out), float(graph.out.sum())
        self.clusterings = []
        self.separate = []  # description lengths of descents that do not start at each other's end

    def _descend(self, algorithm, resolution, labels, order=None, network=None):
        """Labels of a descent at this resolution from ``labels`` (None: from single nodes)."""
        network = self.network if network is None else network
        descent = LinkDescent(self.model, network, resolution / self.total, order)
        return descent.run(algorithm, labels).labels

    def _add(self, labels, resolution):
        """Record the clustering of these labels, found at this resolution, and return it."""
        clustering = CutClustering.of(self.graph, labels, self.length)
        self.clusterings.append((clustering, resolution))
        return clustering

    @property
    def best(self):
        """The clustering with the least description length, and its resolution."""
        return min(self.clusterings, key=lambda pair: pair[0].length)

    def lower_resolutions(self, start):
        """Descend at lower and lower resolutions: clusters merge, then single nodes move."""
        resolution = max(np.count_nonzero(self.graph.linked) / FINEST, COARSER**3)
        current = self._add(self._descend("multilevel", resolution, start), resolution)
        coarse = self.network.contracted(current.labels, current.k)
        # once clusters are the connected components, lower resolutions do not change them
        while resolution >= COARSEST * COARSER and current.k > self.graph.components[0]:
            resolution /= COARSER
            merged = self._descend("multilevel", resolution, None, network=coarse)
            if merged.max() + 1 < current.k:
                labels = self._descend("incremental", resolution, merged[current.labels])
                current = self._add(labels, resolution)
                coarse = self.network.contracted(labels, current.k)
        self.separate.append(self.best[0].length)

    def iterate_resolution(self):
        """Descend at resolution 1, then at the resolution of the clusters found, and so on."""
        resolution = 1.0
        for _ in range(FIXED_POINT_STEPS):
            current = self._add(self._descend("multilevel", resolution, None), resolution)
            self.separate.append(current.length)
            before, resolution = resolution, self.length.resolution(current.labels)
            if resolution is None or abs(resolution - before) <= LENGTH_TOLERANCE * before:
                break

    def run_more_starts(self, rng):
        """Descend with nodes in random orders, then from the best, unless enough descents agree."""
        for _ in range(self.model.n_init - 1):
            if self._enough_agree():
                return
            resolution, order = self.best[1], rng.permutation(len(self.graph))
            labels = self._descend("multilevel", resolution, None, order)
            self.separate.append(self._add(labels, resolution).length)
        if self._enough_agree():
            return
        best = self.best[0]
        while (resolution := self.length.resolution(best.labels)) is not None:
            refined = self._add(self._descend("multilevel", resolution, best.labels), resolution)
            if not refined.length < best.length - LENGTH_TOLERANCE * abs(best.length):
                break
            best = refined

    def add_finer(self, number):
        """Descend at higher and higher resolutions, until there are ``number`` clusters or more."""
        resolution = max(resolution for _, resolution in self.clusterings)
        while max(clustering.k for clustering, _ in self.clusterings) < number:
            resolution *= 2.0
            self._add(self._descend("multilevel", resolution, None), resolution)

    def _enough_agree(self):
        """Whether enough separate descents found clusters as good as the best."""
        least = self.best[0].length
        limit = least + LENGTH_TOLERANCE * abs(least)
        return sum(length <= limit for length in self.separate) >= ENOUGH_DESCENTS


def search_communities(model, graph, length, start, rng, number=None):
    """Clusterings of a search for the least description length.

    The connected components and the given labels ``start`` (None: none) are among them, and, where
    a ``number`` of clusters is given, one of that many clusters or more.
    """
    search = CommunitySearch(model, graph, length)
    if graph.linked.any():
        search.lower_resolutions(start)
        search.iterate_resolution()
        search.run_more_starts(rng)
        if number is not None:
            search.add_finer(number)
    given = [graph.components[1]] if start is None else [graph.components[1], start]
    clusterings = [CutClustering.of(graph, labels, length) for labels in given]
    return clusterings + [clustering for clustering, _ in search.clusterings]


def lam_between(graph, labels, cut):
    """A penalty at which these clusters should not merge, and single nodes do not become clusters.

    Penalties are <= 0. Merging two clusters changes the objective by (cut of the union) - (cuts of
    both) - lam, and lowers it if lam is above the least of these differences, ``highest``. A node
    that becomes a cluster adds its own cut and lam, and lowers the objective if lam is below minus
    its cut. The result is halfway between both penalties, or ``highest`` if that is lower.
    """
    k = int(labels.max()) + 1
    merged = graph.contracted(labels, k)
    ratio, (row, column, union) = merged.ratio, merged.unions()
    highest = float((union - ratio[row] - ratio[column]).min(initial=0.0))
    # the cut of a node: 1 for the normalized cut without self-links; for the ratio cut, or if the
    # clusters have no links to each other, the least one
    single = 1.0
    if graph.linked.any() and (cut == "ratio" or highest == 0.0):
        single = float((graph.out[graph.linked] / graph.size[graph.linked]).min())
    return (min(-single, highest) + highest) / 2


def merged_to(graph, labels, number):
    """Labels after mergers of clusters to ``number``, always of pairs that cost least.

    Pairs are clusters with links to each other; a merger costs (cut of the union) - (cuts of both).
    Half of the mergers that are left are made at once, of different clusters, so that many take a
    time in proportion to the links. Where no links are left between clusters, the two with the
    fewest nodes merge.
    """
    labels, k = number_labels(labels.copy(), None)
    merged = graph.contracted(labels, k)
    while k > number and merged.indices.size:
        ratio, (row, column, union) = merged.ratio, merged.unions()
        target, left = np.arange(k, dtype=np.int32), max((k - number) // 2, 1)
        free = np.ones(k, dtype=bool)
        for pair in np.argsort(union - ratio[row] - ratio[column], kind="stable"):
            a, b = row[pair], column[pair]
            if a < b and free[a] and free[b]:  # each pair stands there twice
                target[b] = a
                free[a] = free[b] = False
                left -= 1
                if left == 0:
                    break
        target, k = number_labels(target, None)
        labels, merged = target[labels], merged.contracted(target, k)
    target = np.arange(k, dtype=np.int32)
    fewest = [(int(count), cluster) for cluster, count in enumerate(np.bincount(labels))]
    heapq.heapify(fewest)
    while len(fewest) > number:
        (first, a), (second, b) = heapq.heappop(fewest), heapq.heappop(fewest)
        target[b] = a
        heapq.heappush(fewest, (first + second, a))
    while (target != target[target]).any():  # a cluster that b joined may have joined another
        target = target[target]
    return number_labels(target[labels], None)[0]


def penalty_chain(model, graph, start):
    """Ascending penalties, and descents for each of them, from the clusters of the one before.

    The first descent starts with single nodes. There is a second chain from the clusters ``start``,
    if they are given.
    """
    # penalties -1 / (1 + exp(-t)) for equally spaced t are closer to each other at both ends
    spaced = np.linspace(CHAIN_REACH, -CHAIN_REACH, CHAIN_LENGTH)
    unit = 1.0
    if model.cut == "ratio" and graph.linked.any():
        unit = float(graph.out[graph.linked].mean())
    descents, lams = [], -unit / (1 + np.exp(-spaced))
    for labels in (None,) if start is None else (None, start):
        for lam in lams:
            descents.append(CutDescent(model, graph, float(lam), None).run("multilevel", labels))
            labels = descents[-1].labels
    return lams, descents
