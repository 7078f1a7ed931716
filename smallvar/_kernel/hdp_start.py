"""Where a start of the kernel HDP begins with ``init="merge"``: at clusters found by merging."""

from copy import copy

import numpy as np

# clusters that merging begins with: at least MIN_SEEDS, and SEEDS_PER_ROOT sqrt(n_samples)
MIN_SEEDS, SEEDS_PER_ROOT = 20, 4.0
SEED_SWEEPS = 3  # Lloyd sweeps before they are merged


def farthest_point_clusters(clusters, k):
    """Labels of clusters around up to ``k`` farthest-first points, and the number of clusters.

    The first point is the farthest from the mean, each other one from those before it; a point
    belongs to the nearest of them. ``clusters`` has all points in one.
    """
    seeds, distance = [], clusters.nearest()[1]
    rows = clusters.active
    for _ in range(k):
        i = rows[distance[rows].argmax()]
        distance_to_i = clusters.distances_to(i, clusters.gram.rows(np.array([i]))[0])
        if seeds and not distance[i] > 0.0:
            break
        nearer = distance_to_i < distance if seeds else np.ones(len(distance), dtype=bool)
        distance = np.where(nearer, distance_to_i, distance)
        distance[i] = 0.0
        seeds.append((i, nearer))
    label = np.zeros(len(distance), dtype=np.int32)
    for number, (i, nearer) in enumerate(seeds):
        label[nearer] = number
        label[i] = number
    return label, len(seeds)


def merge_path_start(clusters, sets, lam_local, lam_global):
    """The partition of lowest objective among those from many clusters to one, by merging.

    Each merge unites the two clusters whose union changes the objective, penalties included, by
    least. ``clusters`` has all points in one cluster.
    """
    n = len(clusters.active)
    label, k = farthest_point_clusters(
        clusters, min(n, max(MIN_SEEDS, round(SEEDS_PER_ROOT * np.sqrt(n))))
    )
    clustering = copy(clusters)
    clustering.relabel(label, k)
    for _ in range(SEED_SWEEPS):
        clustering.relabel(clustering.nearest()[0], clustering.k)
    k, label = clustering.k, clustering.label
    weight = clustering.cluster_weight / clustering.unit
    relative = clustering.weight / clustering.unit
    # sums of K over pairs of a point of the one and one of the other, in the unit of weights
    inner = np.zeros((k, k))
    for batch, sums in clustering.iterate_sums():
        inner += np.array([np.bincount(label[batch], row, k) for row in sums * relative[batch]])
    used = np.zeros((len(sets), k), dtype=np.float32)  # data sets that use each cluster
    used[sets.number, label[clusters.active]] = 1.0

    # the squared error is sum_i K_ii - sum_a inner_aa / weight_a
    def changes(a):
        """Changes of the objective if a is united with each other cluster."""
        within = inner.diagonal() / weight
        union = (inner[a, a] + 2.0 * inner[a] + inner.diagonal()) / (weight[a] + weight)
        shared = (used[:, a] @ used).astype(np.float64)  # local clusters that a union saves
        return within[a] + within - union - lam_global - lam_local * shared

    change = np.array([changes(a) for a in range(k)])
    alive, number = np.ones(k, dtype=bool), np.arange(k)
    total, lowest, best = 0.0, 0.0, number.copy()
    np.fill_diagonal(change, np.inf)
    for _ in range(k - 1):
        a, b = sorted(divmod(int(change.argmin()), k))
        total += change[a, b]
        inner[a] += inner[b]
        inner[:, a] += inner[:, b]
        weight[a] += weight[b]
        used[:, a] = np.maximum(used[:, a], used[:, b])
        number[number == b], alive[b] = a, False
        change[b], change[:, b] = np.inf, np.inf
        change[a] = change[:, a] = np.where(alive & (np.arange(k) != a), changes(a), np.inf)
        if total < lowest:
            lowest, best = total, number.copy()
    clustering.relabel(best[label].astype(np.int32), k)
    return clustering
