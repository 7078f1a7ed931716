"""Hard topics: KJ12 Algorithm 2 with documents as data sets, words as points and -log phi as cost.

Entries (d, w, x) are words w of mass x in documents d, in the order of visit. Documents are visited
one after the other; topics stay as they are, but for those that open.
"""

import numpy as np

TIE = 1e-12


def convex(counts, prior):
    """f(c) = (n + a) log(n + a) - a log a - sum [(c + a p0) log(c + a p0) - a p0 log(a p0)]."""

    def xlogx(x):
        return np.where(x > 0, x * np.log(np.where(x > 0, x, 1.0)), 0.0)

    n, a = counts.sum(), prior.sum()
    return xlogx(n + a) - xlogx(a) - (xlogx(counts + prior) - xlogx(prior)).sum()


def phi(X, z, K, weight, prior):
    """Topics (K, words): phi_k = (counts_k + a p0) / (n_k + a)."""
    counts = np.tile(prior, (K, 1))
    for d, w in zip(*np.nonzero(X), strict=True):
        counts[z[d, w], w] += weight[d] * X[d, w]
    return counts / counts.sum(axis=1, keepdims=True)


def objective(X, z, weight, prior, lam_local, lam_global):
    """The objective at the best topics for labels z (documents x words; -1 where X is 0)."""
    used = np.unique(z[z >= 0])
    total = lam_global * len(used)
    for k in used:
        total += convex((weight[:, None] * X * (z == k)).sum(axis=0), prior)
    n_local = [len(np.unique(row[row >= 0])) for row in z]
    return total + lam_local * (weight @ n_local)


def visit(x, z, C, w_d, prior, lam_local, lam_global):
    """Visit one document (INOUT its labels z); returns the costs C (topics x words) at the end."""
    words = np.flatnonzero(x)

    def opened(C, members):
        counts = w_d * np.where(np.isin(np.arange(len(x)), members), x, 0.0) + prior
        with np.errstate(divide="ignore"):
            new = np.where(counts > 0, np.log(counts.sum() / counts), 0.0)
        z[members] = len(C)
        return np.vstack([C, new])

    def pays(cost, members):
        new = lam_global + convex(np.bincount(members, w_d * x[members], len(x)), prior)
        n, a = w_d * x[members].sum(), prior.sum()
        new += TIE * (abs((n + a) * np.log(n + a)) + abs(a * np.log(a)))  # what rounding may take
        return w_d * (cost - lam_local) > new * (1 + TIE)

    for w in words:  # step 4
        others = set(z[words[words != w]])
        cost = x[w] * C[:, w] + lam_local * np.array([k not in others for k in range(len(C))])
        best = cost.argmin() if cost.min() < cost[z[w]] * (1 - TIE) else z[w]
        if pays(cost[best], np.array([w])):
            C = opened(C, np.array([w]))
        else:
            z[w] = best
    while True:  # take up topics
        own = x[words] * C[z[words], words]
        gain = np.maximum(own - x[words] * C[:, words], 0.0).sum(axis=1)
        gain[np.unique(z[words])] = -1.0
        best = gain.argmax()
        if not gain[best] > lam_local + TIE * own.sum():
            break
        z[words[C[best, words] < C[z[words], words]]] = best
    while len(used := np.unique(z[words])) > 1:  # give up topics
        D = x[words] * C[:, words][used]
        position = np.searchsorted(used, z[words])
        own = D[position, np.arange(len(words))].copy()
        D[position, np.arange(len(words))] = np.inf
        loss = np.bincount(position, D.min(axis=0) - own)
        least = loss.argmin()
        if not loss[least] < lam_local - TIE * own.sum():
            break
        z[words[position == least]] = used[D.argmin(axis=0)[position == least]]
    k = 0
    while k < len(C):  # step 5
        members = words[z[words] == k]
        if len(members):
            cost = C[:, members] @ x[members]
            cost += lam_local * np.array([p == k or p not in z[words] for p in range(len(C))])
            best = cost.argmin() if cost.min() < cost[k] * (1 - TIE) else k
            if pays(cost[best], members):
                C = opened(C, members)
            else:
                z[members] = best
        k += 1
    return C


def topic_means(X, weight, prior, lam_local, lam_global, max_iter=100):
    """Labels (documents x words) and the path of objectives, from a single topic."""
    z, path = np.where(X > 0, 0, -1), []
    for _ in range(max_iter):
        before, K = z.copy(), z.max() + 1
        with np.errstate(divide="ignore"):
            P = phi(X, z, K, weight, prior)
            C = np.where(P > 0, -np.log(P), 0.0)
        for d in range(len(X)):
            if X[d].any():
                C = visit(X[d], z[d], C, weight[d], prior, lam_local, lam_global)
        moved = (z != before).any()
        z[X > 0] = np.unique(z[X > 0], return_inverse=True)[1]
        path.append(objective(X, z, weight, prior, lam_local, lam_global))
        if not moved:
            break
    return z, path
