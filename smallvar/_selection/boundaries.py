"""All boundaries of a clustering: which clusters touch, and the evidence of each boundary.

The stages are apart from each other, so that several parts of the rows can share them: moments of
clusters, contacts between clusters, directions between pairs of clusters, and counts of rows along
them. Rows are read in blocks, sorted by cluster.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.utils.random import sample_without_replacement

from smallvar._core.validation import some_rows
from smallvar._selection.boundary import (
    N_BINS,
    NOTHING,
    boundary_along,
    compare_densities,
    histogram_of,
    places_of,
    ridge,
)
from smallvar._sweeps.ranges import column_range

CONTACTS = 2  # rows, at least, across a boundary
# Weight of two clusters from which rows are not left out of the moments by which they are placed:
# all of them change w by the share d / n of its length. Their places are counted in cells.
MANY_ON_A_LINE, MANY_A_COLUMN = 1 << 15, 256
# Equal cells between REACH standard deviations on both sides of the mean; by Chebyshev's inequality
# at most 1 / REACH^2 = 1% of the rows are beyond, so that quantiles for the bins are inside.
N_CELLS, REACH = 1 << 14, 10.0
MOST_MOMENTS = 1 << 22  # numbers of all scatter matrices; of more, rows are not counted in cells
MOST_KEPT = 1 << 25  # numbers of all rows; of more, rows are read again at each stage
MOST_AT_ONCE = 1 << 18  # numbers of a block of rows, of distances, or of projections
MOST_LINES = 64  # lines on which rows are counted in cells at once
# clusters, rows and multiply-adds at most, and rows a cluster at least, where the boundaries that
# are no gaps are only counted
MOST_COUNTED, COUNTED_ROWS, COUNTED_WORK, LEAST_COUNTED = 40, 20_000, 1 << 31, 50


@dataclass(frozen=True, eq=False)
class Boundaries:
    """The m boundaries of a clustering, and what fits the rows on both sides of each.

    ``pairs`` are the clusters, (m, 2), those with most rows across first; ``weight`` that of both
    clusters; ``merge_cost`` by how much one center in place of two raises the sum of squared
    distances (Ward). ``valley`` is how deep the valley between two bells is, from 0, no valley, to
    1, no rows in it. ``edges`` and ``counts`` are as those of a Boundary; ``bells`` and ``body``
    the weights that the fitted densities have in each bin. Where nothing could be said, evidence
    and valley are 0, and the arrays NaN.
    """

    pairs: NDArray[np.intp]
    weight: NDArray[np.float64]
    merge_cost: NDArray[np.float64]
    evidence: NDArray[np.float64]
    valley: NDArray[np.float64]
    edges: NDArray[np.float64]
    counts: NDArray[np.float64]
    bells: NDArray[np.float64]
    body: NDArray[np.float64]

    @property
    def known(self):  # numpydoc ignore=RT01
        """Mask of the boundaries of which something can be said."""
        return ~np.isnan(self.counts[:, 0])


@dataclass(frozen=True, eq=False)
class ClusterMeans:
    """Weight and mean of each cluster, and a power of 2 that makes numbers about 1.

    ``means`` are less that of the first cluster that has rows, and times ``scale``.
    """

    sizes: NDArray[np.float64]
    centers: NDArray[np.float64]
    means: NDArray[np.float64]
    scale: float

    @classmethod
    def of_sums(cls, sizes, sums, origins, scale):
        """From sums of rows less the origin of their cluster and times the scale."""
        used, means = np.flatnonzero(sizes), np.zeros(sums.shape)
        means[used] = sums[used] / sizes[used, np.newaxis]
        from_first = means + (origins - origins[used[0]]) * scale
        return cls(sizes, origins + means / scale, from_first, scale)


def sort_rows(labels, weight, k):
    """Rows of positive weight by cluster, and where each cluster starts, (k + 1,).

    ``labels`` below 0 and from k on are left out; ``weight`` is None or that of each row.
    """
    kept = (labels >= 0) & (labels < k)
    rows = np.flatnonzero(kept if weight is None else kept & (weight > 0.0))
    labels = labels[rows]
    sizes = np.bincount(labels, minlength=k)
    # small integers are sorted in linear time
    order = labels.astype(np.min_scalar_type(max(k - 1, 0))).argsort(kind="stable")
    return rows[order], np.append(0, np.cumsum(sizes))


def read_rows(X, rows, scale, center):
    """These rows less a center, times scale, as dense float64."""
    found = X[rows].toarray() if issparse(X) else X.take(rows, axis=0)
    with np.errstate(invalid="ignore"):  # rows have changed since they were checked: see places_of
        out = found - center
    out *= scale
    return out


def add_rows(X, weight, labels, scale, origins, sums):
    """Add the rows of each cluster, less its origin and times scale, to its sums, (k, d)."""
    order, first = sort_rows(labels, weight, len(sums))
    size = max(1, MOST_AT_ONCE // X.shape[1])
    for c, origin in enumerate(origins):
        for start in range(first[c], first[c + 1], size):
            rows = order[start : min(start + size, first[c + 1])]
            out = read_rows(X, rows, scale, origin)
            if weight is not None:
                out *= weight[rows, np.newaxis]
            out[0] += sums[c]
            sums[c] = np.add.accumulate(out, axis=0)[-1]  # row after row, in blocks of any size


class ClusterRows:
    """Rows sorted by cluster, in blocks, less the means of their clusters and times a scale.

    ``first`` is where each cluster starts, ``weight`` that of each row, 1 without weights. ``used``
    are the clusters that have a mean, ``pairs`` those that touch, (m, 2), once they are set. With
    the ClusterMeans ``of`` all rows, contacts, scatter matrices and counts of parts of the rows add
    up to those of all.
    """

    def __init__(self, X, weight, labels, k, n_threads=1, of=None):
        self.X, self.n_threads = X, n_threads
        labels = np.ascontiguousarray(labels, dtype=np.intp)
        if weight is not None:
            weight = np.ascontiguousarray(weight, dtype=np.float64)
        self.order, self.first = sort_rows(labels, weight, k)
        self.weight = np.ones(len(self.order)) if weight is None else weight[self.order]
        of = self._means(weight, labels) if of is None else of
        self.sizes, self.centers, self.means, self.scale = of.sizes, of.centers, of.means, of.scale
        self.used = np.flatnonzero(self.sizes)
        self._kept = {} if len(self.order) * X.shape[1] <= MOST_KEPT else None
        self.pairs, self._facing = None, {}

    def _means(self, weight, labels):
        """Means of the clusters of these rows."""
        sizes = np.diff(self.first).astype(np.float64)
        origins, sums = np.zeros((2, len(sizes), self.X.shape[1]))
        used = np.flatnonzero(sizes)
        if not len(used):
            return ClusterMeans(sizes, origins, sums, 1.0)
        low, high = column_range(self.X, weight, self.n_threads)
        # squares neither over- nor underflow; a power of 2 changes no bits
        exponent = np.frexp((0.5 * high - 0.5 * low).max())[1]
        scale = float(np.ldexp(1.0, -max(int(exponent), -1000)))
        rows = some_rows(self.X, self.order[self.first[used]])
        origins[used] = rows.toarray() if issparse(self.X) else rows
        # of equal rows the mean is the row, to the last bit
        add_rows(self.X, weight, labels, scale, origins, sums)
        sizes[used] = np.add.reduceat(self.weight, self.first[used])
        return ClusterMeans.of_sums(sizes, sums, origins, scale)

    def blocks(self, cluster):
        """Return blocks of a cluster: rows less the mean, and their weights."""
        if self._kept is None:
            return self._read(cluster)
        if cluster not in self._kept:
            self._kept[cluster] = list(self._read(cluster))
        return self._kept[cluster]

    def products(self, cluster):
        """Yield products of means, less that of a cluster, and its rows, (len(used), n).

        With each part comes half the squared norms of these means, (len(used),), and the weight of
        the rows. A product less half the norm is larger where a mean is nearer to a row.
        """
        offsets = self.means[self.used] - self.means[cluster]
        half = 0.5 * np.square(offsets).sum(axis=1)
        size = max(1, MOST_AT_ONCE // max(offsets.shape))
        for R, weight in self.blocks(cluster):
            for i in range(0, len(R), size):
                yield offsets @ R[i : i + size].T, half, weight[i : i + size]

    def facing(self, cluster, neighbor):
        """Which rows of a cluster face a neighbor, (n,).

        A row does if, moved straight to the boundary between the two, it is nearer to no third
        cluster. Rows that face each other fill a part of space that is widest at the boundary. All
        rows of both clusters may fill one with a waist there, so that one body would look like two.
        """
        if cluster not in self._facing:
            neighbors = self.pairs[(self.pairs == cluster).any(axis=1)].sum(axis=1) - cluster
            own, *places = np.searchsorted(self.used, [cluster, *neighbors])
            offsets, places = self.means[self.used] - self.means[cluster], np.array(places)
            squares = np.square(offsets[places]).sum(axis=1, keepdims=True)
            ratios = offsets[places] @ offsets.T / np.where(squares > 0.0, squares, 1.0)
            found = [[] for _ in neighbors]
            for products, half, _ in self.products(cluster):
                for b, ratio, parts in zip(places, ratios, found, strict=True):
                    room = ratio[:, np.newaxis] * products[b]
                    room -= products
                    room -= (ratio * half[b] - half)[:, np.newaxis]
                    room[[own, b]] = np.inf
                    parts.append(room.min(axis=0) >= 0.0)
            found = [np.concatenate(parts) for parts in found]
            self._facing[cluster] = dict(zip(neighbors.tolist(), found, strict=True))
        return self._facing[cluster][neighbor]

    def places(self, a, b, step=None):
        """Places of the rows of two clusters, those of a first, their weights, and a step's length.

        ``step``, (d,), is that in which columns were recorded; see ``places_of``.
        """
        blocks = [block for cluster in (a, b) for block in self.blocks(cluster)]
        R, weight = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
        second = np.repeat([False, True], np.diff(self.first)[[a, b]])
        step = np.zeros(R.shape[1]) if step is None else step * self.scale
        difference = self.means[b] - self.means[a]
        places, length = places_of(R, weight, second, self.sizes[[a, b]], difference, step)
        return places, weight, length

    def rows_of(self, cluster):
        """Rows of a cluster, in their order."""
        return self.order[self.first[cluster] : self.first[cluster + 1]]

    def _read(self, cluster):
        """Yield the blocks of a cluster."""
        size, center = max(1, MOST_AT_ONCE // self.X.shape[1]), self.centers[cluster]
        stop = self.first[cluster + 1]
        for start in range(self.first[cluster], stop, size):
            rows = slice(start, min(start + size, stop))
            yield read_rows(self.X, self.order[rows], self.scale, center), self.weight[rows]


def find_boundaries(X, weight, labels, k, n_threads=1, cells=None):
    """Return the Boundaries of labels 0 to k - 1; rows with other labels are left out.

    ``X`` are dense or sparse rows, ``weight`` is None or that of each row. ``cells`` is whether
    rows are counted in cells; None: where two clusters have many rows. Rows that face each other
    are counted.
    """
    rows = ClusterRows(X, weight, labels, k, n_threads)
    pairs, d = touching(rows)[0], X.shape[1]
    rows.pairs = pairs
    in_cells = np.zeros(len(pairs), dtype=bool)
    if k * d * d <= MOST_MOMENTS:
        many = rows.sizes[pairs].sum(axis=1) >= max(MANY_ON_A_LINE, MANY_A_COLUMN * d)
        in_cells = many if cells is None else np.full(len(pairs), cells)
    placed = [(i, _facing_places(rows, *pairs[i].tolist())[:2]) for i in np.flatnonzero(~in_cells)]
    found = [(i, histogram_of(*places)) for i, places in placed]
    if in_cells.any():
        count = partial(count_on_lines, rows)
        found += by_cells(rows, scatter_matrices(rows), pairs, np.flatnonzero(in_cells), count)
    return compared(pairs, rows, found, n_threads)


def compared(pairs, clusters, histograms, n_threads=1):
    """Return the Boundaries of pairs of clusters, which are ClusterMeans or ClusterRows.

    ``histograms`` are numbers of pairs, each with the edges and counts of its rows (None: nothing
    can be said).
    """
    m = len(pairs)
    edges, counts = np.full((m, N_BINS + 1), np.nan), np.full((m, N_BINS), np.nan)
    for i, (edges_of_pair, counts_of_pair) in histograms:
        if edges_of_pair is not None:
            edges[i], counts[i] = edges_of_pair, counts_of_pair
    known, evidence, depth = ~np.isnan(counts[:, 0]), np.zeros(m), np.ones(m)
    bells, body = np.full_like(counts, np.nan), np.full_like(counts, np.nan)
    found = compare_densities(counts[known], n_threads)
    evidence[known], _, depth[known], bells[known], body[known] = found
    a, b = clusters.sizes[pairs].T
    difference = (clusters.means[pairs[:, 0]] - clusters.means[pairs[:, 1]]) / clusters.scale
    with np.errstate(over="ignore"):
        merge_cost = a / (a + b) * b * np.square(difference).sum(axis=1)
    return Boundaries(
        *(pairs, a + b, merge_cost, evidence, 1.0 - depth),
        *(edges, counts, bells, body),
    )


def count_without_gap(X, weight, labels, k, n_threads=1):
    """How many boundaries of a clustering are no gaps, and how many there are.

    The rows on both sides of them look like one body: their evidence is 0 or less. Of many rows a
    sample is looked at. None where that would take long, or rows are too few.
    """
    n, d = X.shape
    size = min(n, COUNTED_ROWS, COUNTED_WORK // (k * d * d))
    if not 1 < k <= MOST_COUNTED or size < min(n, LEAST_COUNTED * k):
        return None
    if size < n:
        rows = np.sort(sample_without_replacement(n, size, random_state=0))
        X, labels = some_rows(X, rows), labels[rows]
        weight = None if weight is None else weight[rows]
    if weight is not None and not weight.any():
        return None
    found = find_boundaries(X, weight, labels, k, n_threads)
    return int((found.known & (found.evidence <= 0.0)).sum()), len(found.pairs)


def _facing_places(rows, a, b, step=None):
    """Places and weights of the rows of two clusters that face each other; length of a step."""
    facing = np.concatenate([rows.facing(a, b), rows.facing(b, a)])
    places, weight, length = rows.places(a, b, step)
    return places[facing], weight[facing], length


def boundary_between(X, weight, labels, a, b, step=None):
    """Return the Boundary between clusters a and b of rows, all of which are counted.

    The evidence is positive for two groups of rows, negative for one that the boundary cuts. ``X``
    are rows in the metric that the labels were found in; ``weight`` is None or that of each row.
    With ``step``, (d,), values of columns are anywhere within their steps: a gap that is not wider
    is none.
    """
    low, high = min(a, b), max(a, b)
    return boundary_of(ClusterRows(X, weight, labels, high + 1), low, high, step)


def boundary_of(rows, a, b, step=None, facing=False):
    """The Boundary between clusters a and b of ClusterRows, see ``boundary_between``.

    Of all rows of both, or of those ``facing`` each other.
    """
    if not rows.sizes[[a, b]].all():
        return NOTHING
    found = _facing_places if facing else ClusterRows.places
    return boundary_along(*found(rows, a, b, step))


def touching(rows):
    """Pairs of clusters that touch, (m, 2), those with the most rows across first, and how many.

    ``rows`` are ClusterRows.
    """
    return pairs_that_touch(count_contacts(rows))


def pairs_that_touch(contacts):
    """Pairs of clusters with at least CONTACTS contacts, those with most first, and how many."""
    contacts = np.triu(contacts + contacts.T, 1)
    a, b = np.nonzero(contacts >= CONTACTS)
    found = contacts[a, b]
    by_rows = np.argsort(-found, kind="stable")
    return np.column_stack([a, b])[by_rows], found[by_rows]


def count_contacts(rows):
    """Rows (weight) of each cluster that each other one is the nearest other one of, (k, k)."""
    used = rows.used
    contacts = np.zeros((len(used), len(used)))
    for own, cluster in enumerate(used if len(used) > 1 else ()):
        for products, half, weight in rows.products(cluster):
            products -= half[:, np.newaxis]
            products[own] = -np.inf
            np.add.at(contacts[own], products.argmax(axis=0), weight)
    out = np.zeros((len(rows.sizes), len(rows.sizes)))
    out[np.ix_(used, used)] = contacts
    return out


def scatter_matrices(rows):
    """Scatter matrices of clusters about their means, (k, d, d)."""
    k, d = rows.means.shape
    out = np.zeros((k, d, d))
    for cluster in range(k):
        for R, weight in rows.blocks(cluster):
            W = np.sqrt(weight)[:, np.newaxis] * R
            out[cluster] += W.T @ W
    return out


def by_cells(rows, scatters, pairs, chosen, count):
    """Yield chosen pairs, and edges and counts of each, by the counts of rows in fine cells.

    ``rows`` are ClusterMeans or ClusterRows; ``count(pairs, w, low, step)`` counts rows by their
    places along w, in cells from ``low`` on, ``step`` in a unit.
    """
    d = scatters.shape[1]
    size = max(1, min(MOST_LINES, MOST_MOMENTS // d**2))
    for batch in (chosen[i : i + size] for i in range(0, len(chosen), size)):
        a, b = pairs[batch].T
        n, S = rows.sizes[a] + rows.sizes[b], scatters[a] + scatters[b]
        A, difference = S / n[:, np.newaxis, np.newaxis], rows.means[b] - rows.means[a]
        variance = np.trace(A, axis1=1, axis2=2)
        known = (variance > 0.0) & difference.any(axis=1)
        batch, n, S, A, difference = (x[known] for x in (batch, n, S, A, difference))
        A += ridge(variance[known], n, d)[:, np.newaxis, np.newaxis] * np.eye(d)
        w = np.linalg.solve(A, difference[..., np.newaxis])[..., 0]
        w /= np.einsum("mj,mj->m", w, difference)[:, np.newaxis]
        a, b = (rows.sizes[pairs[batch]] / n[:, np.newaxis]).T
        within = np.einsum("mi,mij,mj->m", w, S, w) / n
        reach = REACH * np.sqrt(within + a * b)
        low, step = 0.5 * (b - a) - reach, 0.5 * N_CELLS / reach
        for i, line in enumerate(count(pairs[batch], w, low, step)):
            filled = np.flatnonzero(line)
            middles = low[i] + (filled + 0.5) / step[i]
            yield batch[i], histogram_of(middles, line[filled])


def count_on_lines(rows, pairs, w, low, step):
    """The weight of rows in the cells of each pair, (m, N_CELLS)."""
    counts = np.zeros((len(pairs), N_CELLS))
    for cluster in np.unique(pairs).tolist():
        lines, sides = np.nonzero(pairs == cluster)
        # the mean of a cluster is at -1/2 or 1/2
        start, own = low[lines] - (sides - 0.5), np.zeros((len(lines), N_CELLS))
        facing = np.array([rows.facing(cluster, b) for b in pairs[lines, 1 - sides].tolist()])
        done = 0
        for R, weight in rows.blocks(cluster):
            part, done = facing[:, done : done + len(R)], done + len(R)
            cells = np.clip((R @ w[lines].T - start) * step[lines], 0.0, N_CELLS - 1.0).T
            for line, cell, is_facing in zip(own, cells.astype(np.intp), part, strict=True):
                np.add.at(line, cell[is_facing], weight[is_facing])
        counts[lines] += own
    return counts
