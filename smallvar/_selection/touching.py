"""The number of clusters by the evidence of boundaries (boundary.py).

The criterion of a path does not know gaps. The evidence T of a boundary says whether there is one:

* a single cluster becomes two if they are likelier: with the confidence p of the criterion in one,
  the log odds of two are z = T + log((1 - p) / p), T the evidence between the two best clusters;
* the *support* of several clusters is how far they are apart from their neighbors, from 0 to 1;
  where the number is not clear, and its support is below REAL, it becomes the largest smaller one
  whose support is not.
"""

from functools import partial

import numpy as np

from smallvar._selection.boundaries import ClusterRows, boundary_between, boundary_of, touching
from smallvar._selection.confidence import CLEAR_CONFIDENCE

LEAST_EVIDENCE = 3.0  # nats
BOUNDARIES, JUDGED = 2, 48  # boundaries of a cluster, and clusters, by which support is judged
# rows of a cluster: with fewer, evidence hardly reaches LEAST_EVIDENCE, however wide the gap
JUDGED_ROWS = 10
REAL = 0.95  # support of clusters whose boundaries are gaps
# of what the criterion of the number with the lowest one is below that of a single cluster: a
# smaller number must keep this share
KEPT_FALL = 0.1
# log odds from which two clusters are chosen instead of one, and the range of p for them
ODDS_OF_TWO, PRIORS = 2.0, (0.03, 0.97)
# evidence against a boundary with which a single cluster may be surer than CLEAR_CONFIDENCE; it
# raises no confidence, as several clusters that are cut in two may look like one body, too
ONE_BODY = -2.0
# confidence in a number whose boundaries are real, of which the criterion is not sure
REAL_CONFIDENCE = 0.45
# support of two clusters without evidence that they are not one, and of several with some gaps
ONE_BODY_SUPPORT, SOME_SUPPORT = 0.5, 2 / 3
# clusters that overlap have no gap, but may be two: without support half of the confidence is left
LEAST_SUPPORT = 0.5


def support(X, weight, labels, k, step=None, least=0.0, facing=False):
    """How far clusters of rows are apart from their neighbors; see ``support_of``.

    NaN where nothing can be said; ``step`` and ``facing`` are as in ``boundary_of``.
    """
    sizes = np.bincount(labels, minlength=k)
    if not sizes.all():  # equal rows: sweeps have ended with fewer clusters
        return np.nan
    rows = ClusterRows(X, weight, labels, k)
    rows.pairs = touching(rows)[0]
    between = partial(boundary_of, rows, step=step, facing=facing)
    return support_of(rows.pairs, sizes, between, least)


def support_of(pairs, sizes, between, least=0.0):
    """How far clusters of these sizes are apart from their neighbors, from 0 to 1.

    A boundary counts as 1 for an evidence of LEAST_EVIDENCE or more, as 0 for that much against
    it, and linearly between. A cluster has the lower one of the BOUNDARIES across which most of its
    rows are, and support is the mean over clusters. ``pairs`` are those that touch, with the most
    rows across first, and ``between(a, b)`` returns a Boundary. Where some boundaries show that
    support is below ``least``, the others are not looked at. NaN where nothing can be said.
    """
    k = len(sizes)
    judged = np.unique(np.linspace(0, k - 1, JUDGED).astype(int)) if k > JUDGED else range(k)
    left, lowest = dict.fromkeys(judged, BOUNDARIES), {}
    for a, b in pairs.tolist():
        own = [c for c in (a, b) if left.get(c, 0) and min(sizes[a], sizes[b]) >= JUDGED_ROWS]
        if not own:
            continue
        boundary = between(a, b)
        if len(boundary.edges):
            share = np.clip(0.5 + 0.5 * boundary.evidence / LEAST_EVIDENCE, 0.0, 1.0)
            for c in own:
                left[c] -= 1
                lowest[c] = min(lowest.get(c, 1.0), share)
            if len(lowest) - sum(lowest.values()) > (1.0 - least) * len(judged):
                break
    return float(np.mean(list(lowest.values()))) if lowest else np.nan


def evidence_of_two(X, weight, labels, transform, step=None):
    """The evidence that two clusters are not one, of the rows as given and transformed.

    The lower one counts, each over its dispersion: a skewed cluster may look like two in the rows
    as given, and whole numbers like more when transformed.
    """
    steps = [None] if step is None or not step.any() else [None, step]
    found = [boundary_between(X, weight, labels, 0, 1, step=h) for h in steps]
    if transform.columns:
        found.append(boundary_between(transform(X)[0], weight, labels, 0, 1))
    return min(b.evidence / b.dispersion if b.evidence > 0.0 else b.evidence for b in found)


def number_by_boundaries(path, most, labels_at, X, weight, transform, step=None):
    """The number of clusters and the confidence in it, of a path that is not sure of its number.

    ``labels_at`` returns labels of the rows X for a number on the path; ``most`` is the largest
    number allowed, None: any.
    """
    best, p = path.best, path.confidence
    if best == 1:
        if 2 not in path.counts or most == 1:
            return 1, p
        T = evidence_of_two(X, weight, labels_at(2), transform, step)
        prior = float(np.log(1.0 / np.clip(p, *PRIORS) - 1.0))
        if T + prior > ODDS_OF_TWO:
            return 2, 1.0 / (1.0 + np.exp(-T - prior))
        if T <= ONE_BODY:
            return 1, p
        one = 1.0 / (1.0 + np.exp(max(T, 0.0) + prior))
        return 1, min(one, CLEAR_CONFIDENCE)

    def support_at(k, least=0.0):
        return support(X, weight, labels_at(k), k, step, least)

    return number_by_support(path, support_at)


def number_by_support(path, support_at, may_be_one=False):
    """The number of clusters and the confidence in it, by the support of several.

    ``support_at(k, least)`` is the support of k clusters of the path. The number may become 1 where
    the criterion knows no skewed bodies, or takes columns to be independent within clusters, so
    that one body is cut finer and finer: if these clusters have no more support than
    SOME_SUPPORT, and the best two look like one body.
    """
    best, p = path.best, path.confidence
    share, fall = support_at(best), path.criterion[0] - path.criterion
    kept = fall >= KEPT_FALL * fall[path.counts == best][0]
    smaller = path.counts[kept & (path.counts > 1) & (path.counts < best)].tolist()
    if p < CLEAR_CONFIDENCE and share < REAL:
        for k in smaller[::-1]:
            if support_at(k, REAL) >= REAL:
                return k, REAL_CONFIDENCE
    doubtful = may_be_one and share < SOME_SUPPORT and 2 in [*smaller, best]
    if doubtful and support_at(2) <= ONE_BODY_SUPPORT:
        return 1, REAL_CONFIDENCE
    return best, p if np.isnan(share) else p * max(share, LEAST_SUPPORT)
