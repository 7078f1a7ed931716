"""Pieces that merge, what speaks for clusters, and which are chosen: all pairs, again and again."""

from itertools import combinations

import numpy as np
from sklearn.metrics import adjusted_rand_score


def evidence_across(evidence, one, other):
    """Sum over pairs of pieces that touch, one of each cluster; None if none do."""
    found = [evidence[pair] for pair in evidence if len({*pair} & one) == 1 == len({*pair} & other)]
    return sum(found) if found else None


def merged(evidence, k, number=None, least_gap=5.0):
    """The cluster of each of k pieces, when ``number`` are left or, None, all have gaps between."""
    clusters = [{piece} for piece in range(k)]
    while len(clusters) > (number or 1):
        pairs = []
        for i, j in combinations(range(len(clusters)), 2):
            nats = evidence_across(evidence, clusters[i], clusters[j])
            pairs.append((np.inf if nats is None else nats, i, j))
        least, i, j = min(pairs)
        if number is None and least >= least_gap:
            break
        clusters[i] |= clusters.pop(j)
    return np.array([next(i for i, c in enumerate(clusters) if piece in c) for piece in range(k)])


def support(labels, pieces, evidence, within=0.5, pure=0.9):
    """Nats for clusters less those against, of pieces nearly all in one, and those of all."""
    cluster = {}
    for piece in np.unique(pieces):
        count = np.bincount(labels[pieces == piece])
        if count.max() >= pure * count.sum():
            cluster[piece] = count.argmax()
    balance = total = 0.0
    for (a, b), T in evidence.items():
        total += abs(T - within)
        if a in cluster and b in cluster:
            balance += (T - within) * (1 if cluster[a] != cluster[b] else -1)
    return balance, total


def choose(found, compact, number=None, worth=0.1, shares=7):
    """Labels of the clusters chosen, of [(pieces of the rows, evidence by pair), ...]."""

    def of_rows(pieces, evidence, number=None):
        return merged(evidence, pieces.max() + 1, number)[pieces]

    led_to = [of_rows(*one) for one in found]
    if number is not None:
        candidates = [of_rows(*one, number) for one in found if one[0].max() + 1 >= number]
    else:
        candidates = [np.zeros_like(led_to[0]), *([found[0][0]] if compact else []), *led_to]
    scores = []
    for labels in candidates:
        nats = np.sum([support(labels, *one) for one in found], axis=0)
        agreement = np.mean([adjusted_rand_score(labels, other) for other in led_to])
        scores.append((nats[0] / nats[1] if nats[1] else 0.0) + worth * agreement)
    tied = [c for c, score in zip(candidates, scores, strict=True) if score >= max(scores) - 1e-9]
    return max(tied, key=lambda c: ((np.bincount(c) >= shares).sum(), -len(np.unique(c))))
