"""Links of the clusters of two fits: the least cost over all ways to link them, tried one by one.

A link of new cluster k to old cluster l costs (distance / m_kl)^2 - a_kl and is allowed up to the
distance m_kl; a cluster without a link costs 1.
"""

import itertools

import numpy as np

TOUCH, POOLED_ROWS = 2.576, 3.0


def describe(X, labels, centers):
    """Sizes, and variances of the columns about the center of each cluster, pooled a little."""
    n = np.bincount(labels, minlength=len(centers))
    own = np.array([((X[labels == k] - c) ** 2).mean(axis=0) for k, c in enumerate(centers)])
    pooled = (n[:, None] * own).sum(axis=0) / n.sum()
    return n, (n[:, None] * own + POOLED_ROWS * pooled) / (n[:, None] + POOLED_ROWS)


def gap(centers, k):
    """Distance of a center from the nearest other one."""
    others = [np.linalg.norm(centers[k] - c) for i, c in enumerate(centers) if i != k]
    return min(others, default=0.0)


def costs(new, new_variances, old, old_variances, flow):
    """Cost of each link; infinite where it is not allowed."""
    cost = np.full((len(new), len(old)), np.inf)
    for k, one in itertools.product(range(len(new)), range(len(old))):
        step = new[k] - old[one]
        distance = np.linalg.norm(step)
        line = step / distance
        width = sum(
            np.sqrt(line**2 @ variances) for variances in (new_variances[k], old_variances[one])
        )
        most = max(TOUCH * width, 0.5 * min(gap(new, k), gap(old, one)))
        either = flow[one].sum() + flow[:, k].sum() - flow[one, k]
        if distance <= most:
            cost[k, one] = (distance / most) ** 2 - (flow[one, k] / either if either else 0.0)
    return cost


def cheapest(cost):
    """The old cluster of each new one, -1 for none, at the least total cost."""
    n, m = cost.shape
    best, least = None, np.inf
    for link in itertools.product(range(-1, m), repeat=n):
        used = [one for one in link if one >= 0]
        if len(set(used)) < len(used):
            continue
        total = sum(1.0 if one < 0 else cost[k, one] for k, one in enumerate(link))
        if total < least:
            best, least = link, total
    return list(best)
