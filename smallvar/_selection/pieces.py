"""Clusters of any shape as unions of pieces, by the evidence of the boundaries between these.

Clusterings of a merge path cut clusters that are long, bent or hollow into pieces. Two pieces merge
unless there is a gap between them. That is done for several clusterings, finer and finer, and of
the clusters that they lead to, those are taken that the boundaries of all clusterings support.
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from smallvar._selection.boundaries import Boundaries, find_boundaries
from smallvar._selection.boundary import SHARES
from smallvar._selection.confidence import CLEAR_CONFIDENCE, of_shapes
from smallvar._selection.least_size import small
from smallvar._selection.touching import LEAST_EVIDENCE

# Nats. Evidence of different boundaries adds up, as their rows are different ones: two clusters
# stay apart if that of all boundaries between them is at least LEAST_GAP, a prior of e^5 to 1.
LEAST_GAP = 5.0
# Evidence of a boundary within a single group of rows: three quarters are below it (normal,
# uniform, exponential and t clouds of 2 to 11 columns, cut into 2 to 64 pieces)
WITHIN = 0.5
# numbers of pieces that are tried: the number of clusters times FACTOR, and NUMBERS above it
FACTOR, NUMBERS = 1.5, (2, 4, 8, 12, 20, 32, 48)
FEW_COMPACT = 40  # of more, only FACTOR is tried
PATH_NUMBER = 48  # the path of finer clusterings is finest below it, or below twice the clusters
ROWS_A_PIECE = 8  # on average, at least
SURE_NUMBER = 0.8  # confidence in compact clusters from which these are taken as they are
PURE = 0.9  # of the rows of a piece: with less in one cluster, its boundaries do not count
# of the nats for and against all boundaries: what agreement with all other clusterings is worth
WORTH_OF_AGREEMENT = 0.1
TIE, LEAST_NATS = 1e-9, 1e-300  # of scores, shares of nats; and so that no share divides by 0


def merge_order(pairs, evidence, k):
    """The mergers of k pieces down to one, (k - 1, 2), and the evidence between each two, (k - 1,).

    ``pairs`` (m, 2) are those that touch, ``evidence`` (m,) is that of their boundaries. The two
    clusters with the least sum of evidence over the boundaries between their pieces merge first;
    ties go to the lowest numbers. Clusters that do not touch merge last, with infinite evidence
    between them. A merged cluster has the lower number of the two.
    """
    between = defaultdict(float)
    for a, b, T in zip(*np.sort(pairs).T.tolist(), evidence.tolist(), strict=True):
        if a < b:
            between[a, b] += T
    mergers, sums, left = [], [], list(range(k))
    while len(left) > 1:
        # without any boundary left, clusters that do not touch
        pair = min(between, key=lambda p: (between[p], p)) if between else (left[0], left[1])
        mergers.append(pair)
        sums.append(between.pop(pair, np.inf))
        kept, gone = pair
        left.remove(gone)
        # the boundaries of the one that is gone become those of the other
        for p in [p for p in between if gone in p]:
            other = sum(p) - gone
            between[min(kept, other), max(kept, other)] += between.pop(p)
    return np.array(mergers, dtype=np.intp).reshape(-1, 2), np.array(sums)


def after_mergers(mergers, k):
    """The cluster of each of k pieces after these mergers, numbered by their first pieces."""
    cluster = np.arange(k)
    for kept, gone in mergers:
        cluster[cluster == gone] = kept
    return np.unique(cluster, return_inverse=True)[1]


@dataclass(eq=False)
class Clustering:
    """A clustering into pieces, its boundaries, and the order in which pieces merge.

    ``labels`` are the pieces of the rows.
    """

    centers: NDArray[np.float64]
    labels: NDArray[np.int32]
    boundaries: Boundaries
    mergers: NDArray[np.intp]
    evidence: NDArray[np.float64]

    @property
    def k(self):
        """Number of pieces."""
        return len(self.centers)

    def clusters(self):
        """The cluster of each piece after all mergers before the first one across a gap."""
        gaps = np.flatnonzero(np.append(self.evidence, np.inf) >= LEAST_GAP)
        return after_mergers(self.mergers[: gaps[0]], self.k)

    def with_least_size(self, clusters, weights, least):
        """The cluster of each piece, after those lighter than ``least`` have joined others.

        ``weights`` are those of the pieces. The lightest cluster joins the one with the nearest
        piece, and so on: there may be gaps on all of its sides.
        """
        cluster = clusters
        while cluster.max() > 0:
            sizes = np.bincount(cluster, weights)
            out = int(sizes.argmin())
            if not small(sizes[out], least):
                break
            distance = cdist(self.centers[cluster == out], self.centers[cluster != out])
            into = int(cluster[cluster != out][distance.min(axis=0).argmin()])
            cluster = np.unique(np.where(cluster == out, into, cluster), return_inverse=True)[1]
        return cluster

    def merged_to(self, clusters, number):
        """The cluster of each piece, after mergers of clusters down to this number."""
        k, pairs = int(clusters.max()) + 1, clusters[self.boundaries.pairs]
        mergers, _ = merge_order(pairs, self.boundaries.evidence, k)
        return after_mergers(mergers[: k - number], k)[clusters]

    def support(self, labels, weight):
        """Nats for clusters of the rows less those against, and the nats of all boundaries.

        A boundary between pieces of two clusters adds its evidence less WITHIN, one between pieces
        of one cluster the opposite. Boundaries of pieces that are not PURE add nothing, but are
        among all.
        """
        n, m = self.k, int(labels.max()) + 1
        share = np.bincount(self.labels * m + labels, weight, n * m).reshape(n, m)
        own, pure = share.argmax(axis=1), share.max(axis=1) >= PURE * share.sum(axis=1)
        a, b = self.boundaries.pairs.T
        nats = self.boundaries.evidence - WITHIN
        signed = np.where(own[a] != own[b], nats, -nats)[pure[a] & pure[b]]
        return signed.sum(), np.abs(nats).sum()


def find_pieces(X, weight, labels, centers, n_threads):
    """The Clustering of rows with these labels; pieces without rows are left out."""
    used, number = np.unique(labels, return_inverse=True)
    if len(used) < len(centers):
        labels, centers = number.astype(np.int32), centers[used]
    boundaries = find_boundaries(X, weight, labels, len(centers), n_threads)
    order = merge_order(boundaries.pairs, boundaries.evidence, len(centers))
    return Clustering(centers, labels, boundaries, *order)


def is_clear(pieces, confidence):
    """Whether compact clusters are taken as they are, by the confidence in their number.

    A prior of p in their number adds its log odds to the evidence of each boundary. Where nothing
    can be said of any boundary, as there are few distinct rows, they also stay.
    """
    if confidence >= SURE_NUMBER or pieces.k == 1:
        return confidence >= SURE_NUMBER
    odds = np.log(confidence / (1.0 - confidence))
    known = pieces.boundaries.evidence[pieces.boundaries.known]
    gaps = bool((known >= LEAST_EVIDENCE - odds).all())
    return not len(known) or (confidence >= CLEAR_CONFIDENCE and gaps)


def numbers_of_pieces(k, n, n_distinct, number=None):
    """Numbers of pieces to try for k clusters of n rows (weight), of which so many are distinct.

    With a ``number``, not fewer.
    """
    found = {int(FACTOR * k), *(NUMBERS if k <= FEW_COMPACT else ())}
    if number is not None:
        found = {max(q, number) for q in found} | {number, int(FACTOR * number)}
    most = max(min(max(n // ROWS_A_PIECE, 2), n_distinct), number or 0)
    return sorted(q for q in found if (q > k or number is not None) and q <= most)


class ShapeChoice(NamedTuple):
    """Pieces, the cluster of each, and the confidence in the number of clusters."""

    pieces: Clustering
    clusters: NDArray[np.intp]
    confidence: float


def choose(found, weight, compact, confidence, number=None, least=0.0):
    """Choose clusters by several Clusterings into pieces; returns a ShapeChoice.

    The candidates are all rows as one, what each clustering leads to and, if ``compact``, the first
    clustering as it is; with a ``number``, those of so many clusters. Their score is the sum of the
    nats that the boundaries of all clusterings have for them, less those against, as a share of
    all, plus WORTH_OF_AGREEMENT times the mean adjusted Rand index between them and what the
    clusterings lead to. At a tie more clusters are taken (of SHARES rows), as there are gaps where
    pieces do not even touch. ``confidence`` is that in the number of compact clusters.

    Clusters lighter than ``least`` join others before, see ``Clustering.with_least_size``. None if
    then none of the clusterings has the given number.
    """

    def large(pieces, clusters):
        weights = np.bincount(pieces.labels, weight, pieces.k)
        return pieces.with_least_size(clusters, weights, least)

    led_to = [(pieces, large(pieces, pieces.clusters())) for pieces in found]
    as_they_are = [(pieces, large(pieces, np.arange(pieces.k))) for pieces in found]
    if number is None:
        one = found[0], np.zeros(found[0].k, dtype=np.intp)
        candidates = [one, *(as_they_are[:1] if compact else []), *led_to]
    else:
        candidates = [(p, p.merged_to(c, number)) for p, c in as_they_are if c.max() + 1 >= number]
        if not candidates:
            return None
    rows = [clusters[pieces.labels] for pieces, clusters in candidates]
    others = [clusters[pieces.labels] for pieces, clusters in led_to]
    shares = []
    for labels in rows:
        nats = np.sum([pieces.support(labels, weight) for pieces in found], axis=0)
        agreement = np.mean([rand_index(labels, other, weight) for other in others])
        shares.append(nats[0] / max(nats[1], LEAST_NATS) + WORTH_OF_AGREEMENT * agreement)
    k, shares = np.array([clusters.max() + 1 for _, clusters in candidates]), np.array(shares)
    large_ones = [(np.bincount(labels, weight) >= SHARES).sum() for labels in rows]
    ties = np.flatnonzero(shares >= shares.max() - TIE)
    best = max(ties.tolist(), key=lambda c: (large_ones[c], -k[c]))
    if number is not None:
        return ShapeChoice(*candidates[best], np.nan)
    rest = shares[k != k[best]]
    lead = float(shares[best] - rest.max()) if len(rest) else 1.0
    same = float(np.mean(k[1:] == k[best]))
    confidence = of_shapes(int(k[best]), lead, same, confidence, not compact)
    return ShapeChoice(*candidates[best], confidence)


def rand_index(one, other, weight):
    """The adjusted Rand index of two labelings, in which a row of weight w is w rows."""
    joint = one * (int(other.max()) + 1) + other
    numbers = (np.bincount(labels, weight) for labels in (joint, one, other))
    # pairs of rows; none of rows whose weights sum to less than one
    both, first, second = (np.maximum(n * (n - 1.0), 0.0).sum() for n in numbers)
    n = float(len(joint) if weight is None else weight.sum())
    by_chance = first * second / max(n * (n - 1.0), first, second, LEAST_NATS)
    most = 0.5 * (first + second)
    # else all rows are one cluster in both, or each is one of its own
    return (both - by_chance) / (most - by_chance) if most > by_chance else 1.0
