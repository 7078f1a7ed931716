"""Graphs that link points to their neighbors: how to tell them, and which clusters are one body.

A block model takes links to be independent, given the clusters. In a graph of neighboring points
they are not: a cut of a body of points has links along the cut alone, so any cut shortens the
description. ``links_neighbors`` tells such a graph by its degrees and triangles, ``dimension``
estimates the dimension of the points, and ``unite`` merges clusters that have as many links between
them as a cut through a single body of points.
"""

import heapq
import math

import numpy as np
from scipy.optimize import brentq
from scipy.sparse import csr_array
from scipy.special import betainc, gammaln

SAMPLED_LINKS = 1 << 14  # links whose common neighbors are counted, at most
# links between clusters close this many times as many triangles as independent links, or more: 1.8
# to 8 in graphs of the ten nearest neighbors of uniform, Gaussian and t clouds in up to 30
# dimensions, 0.5 to 1.2 in block models and football
LOCAL = 1.5
# A cluster is apart from all of its neighbors if it has fewer links to them than this part of those
# expected of a cut through one body; from a single neighbor if it has fewer than this part times
# 1 - 1 / dimension, and by so many standard deviations fewer than expected. The factor: clusters of
# one body may share a part of a face only, and in a single dimension, where the cut does not grow
# with the body, few links mean nothing. Chosen on clouds and tables: 1 and 0.75, or 2.5 standard
# deviations, find nearly the same
APART, DEVIATIONS = 0.85, 2.0
HIGHEST_DIMENSION = 100.0
QUANTILES = (np.arange(256) + 0.5) / 256


def links_neighbors(graph, labels):
    """Whether a graph seems to link points to their k nearest neighbors, given clusters of it.

    If each of n points is linked to k others, no degree is below k, and the mean is at most 2 k,
    since there are at most n k links. And links between clusters close more triangles than
    independent ones would: with probabilities d_i d_j M_ab of links between nodes i, j in clusters
    a, b, these have d_i d_j sum_c M_ac S_c M_cb common neighbors on average, M_ab = links(a, b) /
    (deg(a) deg(b)) and S_c the sum of squared degrees in c. Links count once, for any weight.
    """
    degree = np.diff(graph.indptr).astype(np.float64)
    if 2.0 * degree.min() < degree.mean():
        return False
    row, column = graph.ends
    links = graph.adjacency().sign()
    i, j = _sampled(row, column, labels[row] != labels[column])
    if not len(i):
        return False
    k = int(labels.max()) + 1
    members = csr_array((np.ones(len(graph)), labels, np.arange(len(graph) + 1)), (len(graph), k))
    total = np.maximum(np.bincount(labels, degree, k), 1.0)
    M = csr_array(members.T @ links @ members)
    M.data /= np.repeat(total, np.diff(M.indptr)) * total[M.indices]
    to_first = M[labels[i]] * np.bincount(labels, degree**2, k)
    paths = np.asarray(to_first.multiply(M[labels[j]]).sum(axis=1)).ravel()
    expected = float((degree[i] * degree[j] * paths).sum())
    return float(_common_neighbors(links, i, j).sum()) > LOCAL * expected


def dimension(graph):
    """Dimension of uniform points whose graph of neighbors closes as many paths of two links.

    Points at a distance of r times the largest one of neighbors share the part
    I((D + 1) / 2, 1 / 2; 1 - r^2 / 4) of their neighbors, with I the regularized incomplete beta
    function; the D-th power of r is uniform from 0 to 1. Infinite if fewer paths are closed than in
    HIGHEST_DIMENSION.
    """
    row, column = graph.ends
    i, j = _sampled(row, column, np.ones(len(row), dtype=bool))
    degree = np.diff(graph.indptr).astype(np.float64)
    closed = float(_common_neighbors(graph.adjacency().sign(), i, j).mean()) * len(row)
    share = closed / max(1.0, float((degree * (degree - 1)).sum()))

    def excess(D):
        r = QUANTILES ** (1.0 / D)
        return float(betainc((D + 1) / 2, 0.5, 1 - r**2 / 4).mean()) - share

    if excess(1.0) <= 0.0:
        return 1.0
    return brentq(excess, 1.0, HIGHEST_DIMENSION) if excess(HIGHEST_DIMENSION) < 0.0 else math.inf


def _sampled(row, column, mask):
    """Ends of the links in the mask, evenly spaced ones where there are more than SAMPLED_LINKS."""
    links = np.flatnonzero(mask)
    links = links[:: max(1, -(-len(links) // SAMPLED_LINKS))]
    return row[links], column[links]


def _common_neighbors(links, i, j):
    """Numbers of common neighbors of nodes i and j."""
    return np.asarray(links[i].multiply(links[j]).sum(axis=1)).ravel()


class _Bodies:
    """Clusters of a graph of points, their numbers of links, and the links expected of a cut.

    A ball with kappa of n uniform points in a unit cube has the volume kappa / n. Of links to
    points in the ball, the part r D / (D + 1) E|u| crosses a plane through the cube, r being the
    radius and u a coordinate of a random unit vector. A cut that takes the share alpha < 1/2 of the
    cube has at least (2 alpha)^(1 - 1/D) of the face of a cut in halves. A point near the cut has
    kappa / 2 D / (D + 1) E|u| links across on average, which multiply the variance.

    ``scale`` is the number of equal links that a weight of 1 stands for.
    """

    def __init__(self, graph, labels, scale, D):
        k = int(labels.max()) + 1
        merged = graph.contracted(labels, k)
        self.D, self.size = D, np.bincount(labels, minlength=k).astype(np.float64)
        self.links = [{} for _ in range(k)]  # of each cluster to its neighbors
        row, column = merged.ends
        links = zip(row.tolist(), column.tolist(), (scale * merged.weight).tolist(), strict=True)
        for a, b, count in links:
            self.links[a][b] = count
        self.within = scale * (np.bincount(labels, graph.out, k) - merged.out) / 2
        kappa = len(graph.indices) / int(graph.linked.sum())
        log_volume = D / 2 * math.log(math.pi) - gammaln(D / 2 + 1)
        log_u = gammaln(D / 2) - gammaln((D + 1) / 2) - math.log(math.pi) / 2
        crossing = D / (D + 1) * math.exp(log_u)
        self.part = math.exp((math.log(kappa) - log_volume) / D) * crossing
        self.deviations = DEVIATIONS * math.sqrt(1 + kappa / 2 * crossing)

    def _expected(self, links, size, rest, within):
        """Links expected of a cut through one body, into clusters of these numbers of points."""
        n, shape = size + rest, 1 - 1 / self.D
        part = min(0.5, self.part / n ** (1 / self.D)) * (2 * min(size, rest) / n) ** shape
        return part * (within + links)

    def ratio(self, a, b):
        """Links between two clusters, as a part of those expected, and whether they are apart."""
        links, within = self.links[a][b], self.within[a] + self.within[b]
        expected = self._expected(links, self.size[a], self.size[b], within)
        few = links < expected - self.deviations * math.sqrt(expected)
        return links / expected, few and links < APART * (1 - 1 / self.D) * expected

    def ratio_around(self, a):
        """Links of a cluster to all of its neighbors, as a part of those expected."""
        around = self.links[a]
        within = self.within[a] + sum(self.within[b] for b in around)
        within += sum(self.links[b][c] for b in around for c in self.links[b] if c in around) / 2
        rest = sum(self.size[b] for b in around)
        links = sum(around.values())
        return links / self._expected(links, self.size[a], rest, within)

    def unite(self, a, b):
        """Merge cluster b into cluster a."""
        self.size[a] += self.size[b]
        self.within[a] += self.within[b] + self.links[a].pop(b)
        del self.links[b][a]
        for c, links in self.links[b].items():
            del self.links[c][b]
            self.links[a][c] = self.links[c][a] = self.links[a].get(c, 0.0) + links
        self.links[b] = {}


class _Mergers:
    """Mergers of the clusters of a graph of points, those with the most links first."""

    def __init__(self, bodies):
        self.bodies, self.queue, self.around = bodies, [], {}
        self.target = np.arange(len(bodies.size))  # the cluster that each is part of
        for a, around in enumerate(bodies.links):
            for b in around:
                if a < b:
                    self._offer(a, b)

    def _offer(self, a, b):
        """Queue this pair, unless it is apart."""
        ratio, apart = self.bodies.ratio(a, b)
        if not apart:
            size = self.bodies.size
            heapq.heappush(self.queue, (-ratio, min(a, b), max(a, b), size[a] + size[b]))

    def _merge(self, a, b):
        bodies = self.bodies
        bodies.unite(a, b)
        self.target[self.target == b] = a
        self.around.pop(b, None)
        for c in [a, *bodies.links[a]]:
            self.around.pop(c, None)
        for c in bodies.links[a]:
            self._offer(a, c)

    def merge_pairs(self):
        """Merge pairs of clusters until all are apart."""
        size = self.bodies.size
        while self.queue:
            _, a, b, n = heapq.heappop(self.queue)
            if b in self.bodies.links[a] and n == size[a] + size[b]:  # else it has changed since
                self._merge(a, b)

    def merge_surrounded(self):
        """Merge the cluster with the most links to all of its neighbors; returns whether any."""
        bodies, around = self.bodies, self.around
        for a, links in enumerate(bodies.links):
            if links and a not in around:
                around[a] = bodies.ratio_around(a)
        a = max(around, key=around.get, default=None)
        if a is None or around[a] < APART:
            return False
        b = max(bodies.links[a], key=lambda c: bodies.ratio(a, c)[0])
        self._merge(min(a, b), max(a, b))
        return True


def unite(graph, labels, scale):
    """Labels after mergers of clusters that have as many links between them as one body would.

    ``scale`` is the number of equal links that a weight of 1 stands for.
    """
    D = dimension(graph)
    if math.isinf(D):
        return labels
    mergers = _Mergers(_Bodies(graph, labels, scale, D))
    mergers.merge_pairs()
    while mergers.merge_surrounded():
        mergers.merge_pairs()
    return np.unique(mergers.target[labels], return_inverse=True)[1].astype(np.int32)
