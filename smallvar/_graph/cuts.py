"""Searches for the clusters of a graph whose penalized cut is lowest."""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import ArpackError, eigsh
from scipy.special import gammaln

from smallvar._core.eigen import Rounding, eigen_above, yu_shi
from smallvar._core.fit_loop import LoopSettings, Progress, best_of
from smallvar._core.progress import callback_for
from smallvar._sweeps.graph import (
    BatchSweep,
    CutSweep,
    LinkSweep,
    links_leaving,
    number_labels,
)

# of abs(lam) plus the largest cut / size of a node (of modularity: of the largest sum of links):
# costs, and objectives of starts, that are closer tie
TIE = 1e-12
ARPACK_TOLERANCE = 1e-8  # of the largest eigenvalue, for the shift, to which the residual is added
DENSE = 200  # nodes up to which all eigenvalues are computed
FEW = 32  # a sweep moves few nodes if it moves no more than one in FEW
STEPS, REACH = 22, 3.5  # penalties of a chain, and the largest log of kept over cut links in it
FINEST, COARSER, COARSEST = 32, 1.5, 0.5  # resolutions tried: nodes / 32, / 1.5, ..., 0.5
FIXED = 3  # steps toward the fixed point of the resolution
AGREE = 3  # so many separate descents that end in the best clusters are enough
SAME = 1e-9  # of a description length or a resolution: it is not known better than that


def tie_of(graph, lam):
    """Costs that differ by no more are equal."""
    return TIE * (abs(lam) + graph.ratio.max())


class Descent:
    """One start: labels, and the objective after every sweep."""

    sweeps = CutSweep
    length = None  # of the description: not looked at

    def __init__(self, estimator, graph, lam, order):
        self.graph, self.lam, self.order = graph, lam, order
        self.tie = tie_of(graph, lam)
        self.ratio = estimator.cut == "ratio"
        self.max_iter = estimator.max_iter  # on each level
        callback = callback_for(estimator.verbose, estimator)
        self.progress = Progress(LoopSettings(math.inf, callback=callback), 0)
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
        self.progress.record(value, f"{n} nodes, {k} clusters, {{}}", changed=moved, n_clusters=k)

    def run(self, algorithm, start):
        """From given labels, or from every node on its own."""
        if start is None:
            start = np.arange(len(self.graph), dtype=np.int32)
        labels = getattr(self, algorithm)(start.copy())
        self.labels, self.n_clusters = number_labels(labels, None)
        self.measure()
        return self

    def measure(self):
        """Set the cut, and the last objective, from the labels themselves."""
        last = self.sweeps(self.graph.arrays, self.labels, self.lam, self.tie)
        self.progress.correct(last.objective())
        self.cut = last.cut

    def settle(self, graph, labels, order, few=0):
        """Sweep until no more than ``few`` nodes move; changes ``labels``, returns if any did."""
        sweep = self.sweeps(graph.arrays, labels, self.lam, self.tie)
        for count in range(self.max_iter):
            moved = sweep.sweep_again(order) if count else sweep.sweep(order)
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
            labels, merged = self.climb(labels)
            if not (merged or refined):
                merged = self.settle(self.graph, labels, self.order)
            refined = True
        return labels

    def climb(self, labels):
        """Clusters as nodes, and so on, and back; also returns whether any merged."""
        levels, graph, order, merged = [], self.graph, self.order, False
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
        return labels, merged

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
        v0 = np.sqrt(1 + np.arange(len(graph)))
        value, vector = eigsh(N, k=1, which="LA", tol=ARPACK_TOLERANCE, v0=v0)
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


class Clustering(NamedTuple):
    """Labels, how many clusters they are, the cut, and the description length where it is known."""

    labels: NDArray[np.int32]
    n_clusters: int
    cut: float
    length: float | None = None

    @classmethod
    def of(cls, graph, labels, length):
        """With the cut of these labels, which are 0, 1 and so on, and the length of `length`."""
        k = int(labels.max()) + 1
        out = links_leaving(graph.arrays, labels, k)
        size = np.bincount(labels, graph.size)
        cut = float((out[out > 0] / size[out > 0]).sum())
        return cls(labels, k, cut, length(labels, out))


@dataclass
class LinkCounts:
    """Links within and between clusters, and what the degrees of the clusters let expect."""

    e_in: float  # twice the links within clusters
    e_out: float  # and between
    v_in: float
    v_out: float
    sizes: NDArray[np.int64]  # nodes with links in each cluster


class DescriptionLength:
    """What it takes to write down the clusters, and the links given the clusters and degrees.

    With e_in twice the links within clusters, e_out twice those between, E their number, d_k the
    degree of cluster k, v_in = sum_k d_k^2 / 2E and v_out = 2E - v_in ::

        -(e_in log(e_in / v_in) + e_out log(e_out / v_out)) / 2 + log(n! / prod_k n_k!)
            + log C(n - 1, K - 1) + log n + [K > 1] log(E + 1)

    Weights w count for as many links as there would be of equal ones with the same relative error
    of their sum, w sum(w) / sum(w^2) each. Self-links and nodes without others take no part.
    """

    def __init__(self, graph):
        self.graph = graph
        self.linked = graph.linked
        total = graph.weight.sum()
        # of weights relative to the largest: squares neither overflow nor vanish
        largest = graph.weight.max(initial=0.0)
        relative = graph.weight / largest if largest > 0 else graph.weight
        square = relative @ relative
        self.scale = relative.sum() / square / largest if largest > 0 else 1.0
        self.ends = self.scale * total  # 2E

    def _counts(self, labels, out):
        """The links of these clusters, of which those in ``out`` leave each, if that is known."""
        if out is None:
            out = links_leaving(self.graph.arrays, labels, int(labels.max()) + 1)
        e_out = self.scale * float(out.sum())
        degree = self.scale * np.bincount(labels, self.graph.out)
        v_in = float(degree @ degree) / self.ends
        sizes = np.bincount(labels[self.linked])
        return LinkCounts(self.ends - e_out, e_out, v_in, self.ends - v_in, sizes[sizes > 0])

    def __call__(self, labels, out=None):
        """The description length of these clusters, in nats."""
        if not self.linked.any():
            return 0.0
        links = self._counts(labels, out)
        n, k = int(links.sizes.sum()), len(links.sizes)
        nats = -(_gain(links.e_in, links.v_in) + _gain(links.e_out, links.v_out)) / 2
        nats += gammaln(n + 1) - gammaln(links.sizes + 1).sum() + np.log(n)
        nats += gammaln(n) - gammaln(k) - gammaln(n - k + 1)
        return float(nats + (np.log(self.ends / 2 + 1) if k > 1 else 0.0))

    def resolution(self, labels):
        """At which modularity's gains are those of the likelihood; None where that is nowhere."""
        links = self._counts(labels, None)
        if len(links.sizes) == 1 or links.e_out <= 0:
            return None
        if links.e_in * links.v_out <= links.e_out * links.v_in:
            return None
        within, between = links.e_in / links.v_in, links.e_out / links.v_out
        return (within - between) / math.log(within / between)


def _gain(links, expected):
    """Links times the logarithm of how many times as many they are as expected."""
    return links * np.log(links / expected) if links > 0 and expected > 0 else 0.0


class LinkDescent(Descent):
    """One start of a search for high modularity, of resolution lam times the sum of degrees."""

    sweeps = LinkSweep

    def __init__(self, estimator, graph, lam, order):
        super().__init__(estimator, graph, lam, order)
        self.tie = TIE * float(graph.out.max())

    def measure(self):
        """The objective of modularity is of no interest."""


class CommunitySearch:
    """Clusterings among which the one of least description length is sought, in ``found``.

    At the resolution of the true clusters, high modularity is high likelihood (Newman 2016). It is
    not known, so: resolutions from high to low, each from the clusters before (``descend``); the
    fixed point from resolution 1 on (``approach``); and more starts at the best so far, unless
    separate descents agree on it (``repeat``).
    """

    def __init__(self, model, graph, length):
        self.model, self.graph, self.length = model, graph, length
        self.network, self.total = replace(graph, size=graph.out), float(graph.out.sum())
        self.found = []
        self.resolutions = []  # that led to them
        self.separate = []  # lengths that descents came to, each on its own

    def _lowered(self, algorithm, resolution, labels, order=None, network=None):
        """Labels of a descent from these, or from single nodes."""
        network = self.network if network is None else network
        descent = LinkDescent(self.model, network, resolution / self.total, order)
        return descent.run(algorithm, labels).labels

    def _add(self, labels, resolution):
        self.found.append(Clustering.of(self.graph, labels, self.length))
        self.resolutions.append(resolution)
        return self.found[-1]

    @property
    def best(self):
        """The place of the shortest description."""
        return min(range(len(self.found)), key=lambda i: self.found[i].length)

    def descend(self, start):
        """Ever lower resolutions: clusters merge, then single nodes move."""
        resolution = max(np.count_nonzero(self.graph.linked) / FINEST, COARSER**3)
        found = self._add(self._lowered("multilevel", resolution, start), resolution)
        coarse = self.network.contracted(found.labels, found.n_clusters)
        # as many clusters as connected parts stay for all resolutions that are lower
        while resolution >= COARSEST * COARSER and found.n_clusters > self.graph.parts[0]:
            resolution /= COARSER
            merged = self._lowered("multilevel", resolution, None, network=coarse)
            if merged.max() + 1 < found.n_clusters:
                labels = self._lowered("incremental", resolution, merged[found.labels])
                found = self._add(labels, resolution)
                coarse = self.network.contracted(labels, found.n_clusters)
        self.separate.append(self.found[self.best].length)

    def approach(self):
        """Resolutions at which modularity's gains are those of the likelihood, from 1 on."""
        resolution = 1.0
        for _ in range(FIXED):
            found = self._add(self._lowered("multilevel", resolution, None), resolution)
            self.separate.append(found.length)
            before, resolution = resolution, self.length.resolution(found.labels)
            if resolution is None or abs(resolution - before) <= SAME * before:
                break

    def repeat(self, rng):
        """Nodes in random orders, then from the best once more, unless enough descents agree."""
        for _ in range(self.model.n_init - 1):
            if self._agree():
                return
            resolution = self.resolutions[self.best]
            order = rng.permutation(len(self.graph))
            labels = self._lowered("multilevel", resolution, None, order)
            self.separate.append(self._add(labels, resolution).length)
        if self._agree():
            return
        best = self.found[self.best]
        while (resolution := self.length.resolution(best.labels)) is not None:
            found = self._add(self._lowered("multilevel", resolution, best.labels), resolution)
            if not found.length < best.length - SAME * abs(best.length):
                break
            best = found

    def _agree(self):
        least = self.found[self.best].length
        return sum(one <= least + SAME * abs(least) for one in self.separate) >= AGREE


def communities(model, graph, length, start, rng):
    """Clusterings among which is the one of the shortest description that was found."""
    search = CommunitySearch(model, graph, length)
    if graph.linked.any():
        search.descend(start)
        search.approach()
        search.repeat(rng)
    given = [graph.parts[1]] if start is None else [graph.parts[1], start]
    return [*(Clustering.of(graph, labels, length) for labels in given), *search.found]


def lam_between(graph, labels, cut):
    """A penalty at which no two of these clusters are better as one, and single nodes do not pay.

    Where there is none, that at which the first two are as good as one.
    """
    k = int(labels.max()) + 1
    whole = graph.contracted(labels, k)
    ratio, (row, column, both) = whole.ratio, whole.unions()
    most = float((both - ratio[row] - ratio[column]).min(initial=0.0))
    single = 1.0
    if graph.linked.any() and (cut == "ratio" or most == 0.0):
        single = float((graph.out[graph.linked] / graph.size[graph.linked]).min())
    return (min(-single, most) + most) / 2


def chain(model, graph, start):
    """Clusters for ascending penalties, each found from those before, and the penalties.

    They begin with single nodes, and again with the clusters given, if any.
    """
    spaced = np.linspace(REACH, -REACH, STEPS)  # closer to each other at both ends
    unit = 1.0
    if model.cut == "ratio" and graph.linked.any():
        unit = float(graph.out[graph.linked].mean())
    found, lams = [], -unit / (1 + np.exp(-spaced))
    for labels in (None,) if start is None else (None, start):
        for lam in lams:
            found.append(Descent(model, graph, float(lam), None).run("multilevel", labels))
            labels = found[-1].labels
    return lams, found
