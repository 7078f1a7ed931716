"""Graphs (KJ12 section 5.2): normalized and ratio cut with a penalty.

A is a dense adjacency matrix; out is what leaves a node, size its degree (normalized cut) or 1
(ratio cut).
"""

import math
from dataclasses import dataclass

import numpy as np

from twins.exact import first_appearance, without_gaps


@dataclass
class Cut:
    """What a fit of a graph returns; labels are numbered by first appearance."""

    labels: np.ndarray
    path: list


def cut_sizes(A, cut):
    """What a node counts in its cluster's size."""
    return A.sum(axis=1) if cut == "normalized" else np.ones(len(A))


def cut_value(A, labels, cut):
    """Sum over clusters of the links that leave it, over its size."""
    total = 0.0
    for c in np.unique(labels):
        inside = labels == c
        leaving = A[inside][:, ~inside].sum()
        total += leaving / cut_sizes(A, cut)[inside].sum() if leaving else 0.0
    return total


def cut_kernel(A, shift, cut):
    """Kernel and weights for which weighted kernel k-means is the cut (Theorem 5.3)."""
    d = A.sum(axis=1)
    if cut == "normalized":
        return shift * np.diag(1 / d) + A / np.outer(d, d), d
    return shift * np.eye(len(A)) - (np.diag(d) - A), np.ones(len(A))


def cut_shift(A, cut):
    """The least shift for which that kernel is positive semi-definite."""
    d = A.sum(axis=1)
    if cut == "normalized":
        return max(0.0, -np.linalg.eigvalsh(A / np.sqrt(np.outer(d, d)))[0])
    return np.linalg.eigvalsh(np.diag(d) - A)[-1]


def cut_kernel_error(K, weights, labels):
    """Sum of weighted squared distances to the clusters' means in the kernel's space."""
    total = 0.0
    for c in np.unique(labels):
        w = weights * (labels == c)
        total += w @ np.diag(K) - w @ K @ w / w.sum()
    return total


def move(labels, free, i, neighbors, cost, alone, tie):
    """Move node i to its neighbors' cluster of least ``cost(c)``, or to a new one, for ``alone``.

    It stays where that is not dearer; ``free`` are the numbers of clusters without nodes. Returns
    whether it has moved.
    """
    own, labels[i] = labels[i], -1
    left = own in labels
    stay = cost(own) if left else alone
    costs = {c: cost(c) for c in sorted(set(labels[neighbors]) - {own})}
    best, target = min(costs.values(), default=np.inf), None
    if costs:
        target = min(c for c in costs if costs[c] <= best + tie)
    if left and alone < best - tie:
        best, target = alone, free[-1]
    if target is None or not best < stay - tie:
        labels[i] = own
        return False
    if target not in labels:
        free.pop()
    if not left:
        free.append(own)
    labels[i] = target
    return True


class _Cutting:
    """Moves of single nodes, in a graph without self-links whose nodes may be clusters."""

    def __init__(self, A, cut, lam):
        self.lam, self.path = lam, []
        links = A - np.diag(np.diag(A))
        linked = links.sum(axis=1) > 0
        ratio = links.sum(axis=1)[linked] / cut_sizes(A, cut)[linked]
        self.tie = 1e-12 * (abs(lam) + ratio.max(initial=0))

    def objective(self, links, size, labels):
        total = 0.0
        for c in np.unique(labels):
            inside = labels == c
            leaving = links[inside][:, ~inside].sum()
            total += self.lam + (leaving / size[inside].sum() if leaving else 0.0)
        return total

    def move_nodes(self, links, size, labels, order=None, few=0):
        """Sweeps until at most `few` move; returns the labels and whether anything did."""
        n, out = len(labels), links.sum(axis=1)
        labels = labels.copy()
        free = [c for c in reversed(range(n)) if c not in labels]
        sweeps = 0
        while True:
            moved = 0
            for i in range(n) if order is None else order:
                neighbors = np.flatnonzero(links[i])
                if len(neighbors) == 0:
                    continue

                def cost(c, i=i):
                    inside = labels == c
                    leaving = links[inside][:, ~inside].sum()
                    ratio = leaving / size[inside].sum()
                    return (out[i] - 2 * links[i, inside].sum() - size[i] * ratio) / (
                        size[inside].sum() + size[i]
                    )

                alone = out[i] / size[i] + self.lam
                moved += move(labels, free, i, neighbors, cost, alone, self.tie)
            self.path.append(self.objective(links, size, labels))
            sweeps += 1
            if moved <= few:
                return labels, sweeps > 1 or moved > 0


def cut_incremental(A, lam, cut, labels=None):
    """One node at a time, to where the objective is lowest; all alone at first."""
    run = _Cutting(A, cut, lam)
    labels = np.arange(len(A)) if labels is None else labels
    labels, _ = run.move_nodes(A - np.diag(np.diag(A)), cut_sizes(A, cut), labels)
    return Cut(first_appearance(labels), run.path)


def cut_multilevel(A, lam, cut, labels=None):
    """The same, then with the clusters as nodes, and so on, and back; until nothing changes."""
    run = _Cutting(A, cut, lam)
    bottom = A - np.diag(np.diag(A)), cut_sizes(A, cut)
    labels = np.arange(len(A)) if labels is None else labels
    labels, _ = run.move_nodes(*bottom, labels, few=len(A) // 32)
    merged, swept_bottom = True, False
    while merged:
        merged = False
        levels, (links, size) = [], bottom
        while True:
            fine = first_appearance(labels)
            k = fine.max() + 1
            if k == len(links):
                break
            levels.append((links, size, fine))
            Z = np.eye(k)[fine]
            links, size = Z.T @ links @ Z, Z.T @ size
            np.fill_diagonal(links, 0)
            labels, moved = run.move_nodes(links, size, np.arange(k), few=k // 32)
            if not moved:
                break
            merged = True
        for links, size, fine in reversed(levels):
            labels = labels[fine]
            if merged:
                labels, _ = run.move_nodes(links, size, labels)
        if not (merged or swept_bottom):
            labels, merged = run.move_nodes(*bottom, labels)
        swept_bottom = True
    return Cut(first_appearance(labels), run.path)


def cut_batch(A, lam, cut, labels):
    """Weighted kernel DP-means (KJ12 Algorithm 1) from given labels, with the kernel above.

    A node that is alone stays where it would open a cluster.
    """
    shift = cut_shift(A, cut)
    K, w = cut_kernel(A, shift, cut)
    threshold = lam + shift + (cut == "normalized")
    path = []
    while True:
        before = labels
        means = [w * (labels == c) / w[labels == c].sum() for c in range(labels.max() + 1)]
        labels = labels.copy()
        for i in range(len(A)):
            cost = np.array([w[i] * (K[i, i] - 2 * m @ K[i] + m @ K @ m) for m in means])
            if cost.min() > threshold + 1e-12:
                if (before == before[i]).sum() > 1:
                    labels[i] = len(means)
                    means.append(np.eye(len(A))[i])
            else:
                labels[i] = np.flatnonzero(cost <= cost.min() + 1e-12)[0]
        labels, _ = without_gaps(labels)
        path.append(cut_value(A, labels, cut) + lam * (labels.max() + 1))
        if np.array_equal(labels, before):
            return Cut(first_appearance(labels), path)


def description_length(A, labels):
    """Nats that write down the clusters, and the links given clusters and degrees."""
    links = A - np.diag(np.diag(A))
    linked = links.sum(axis=1) > 0
    links, labels = links[linked][:, linked], labels[linked]
    links = links * (links.sum() / (links**2).sum())  # equal links count one each
    same = labels[:, None] == labels
    degree = links.sum(axis=1)
    expected = np.outer(degree, degree) / links.sum()
    total = 0.0
    for pairs in (same, ~same):
        e, v = links[pairs].sum(), expected[pairs].sum()
        total -= e * math.log(e / v) / 2 if e > 0 else 0.0
    n, sizes = len(labels), np.unique(labels, return_counts=True)[1]
    total += math.lgamma(n + 1) - sum(math.lgamma(s + 1) for s in sizes)
    total += math.log(math.comb(n - 1, len(sizes) - 1)) + math.log(n)
    return total + (math.log(links.sum() / 2 + 1) if len(sizes) > 1 else 0.0)


def link_value(links, size, labels, lam):
    """Links between clusters, and lam / 2 times the sum of their squared sizes."""
    same = labels[:, None] == labels
    return links[~same].sum() / 2 + lam / 2 * np.outer(size, size)[same].sum()


def link_sweeps(A, lam, labels):
    """Labels after each sweep that lowers link_value, the first over all nodes.

    The others visit the nodes of which a neighbor in another cluster moved since their last visit.
    """
    links = A - np.diag(np.diag(A))
    size, labels, after = A.sum(axis=1), labels.copy(), []
    n = len(labels)
    free = [c for c in reversed(range(n)) if c not in labels]
    waiting = links.any(axis=1)
    while waiting.any() or not after:
        moved = 0
        for i in range(n):
            if not waiting[i]:
                continue
            waiting[i] = False

            def cost(c, i=i):
                inside = labels == c
                return lam * size[i] * size[inside].sum() - links[i, inside].sum()

            if move(labels, free, i, links[i] > 0, cost, 0.0, 1e-12):
                moved += 1
                waiting[(links[i] > 0) & (labels != labels[i])] = True
        after.append((labels.copy(), moved))
    return after
