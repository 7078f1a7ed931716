"""The number of clusters by the evidence of boundaries (boundary.py).

The boundary of two clusters is real if its evidence is at least LEAST_EVIDENCE. The evidence
says what the criterion of a path does not know: whether there is a gap between clusters. So

* a single cluster becomes two if they are likelier: with the confidence p of the criterion in one,
  the log odds of two are z = T + log((1 - p) / p), T the evidence between the two best clusters;
* where the number is not clear, and not all boundaries are real, it becomes the largest one on the
  path, up to MOST_REAL, for which all are.
"""

import numpy as np

from smallvar._selection.boundaries import ClusterRows, touching
from smallvar._selection.boundary import SHARES, boundary_between
from smallvar._selection.confidence import CLEAR_CONFIDENCE

LEAST_EVIDENCE = 3.0  # nats
LOOKED_AT = 8  # boundaries, of the most rows, by which a clustering is judged
MOST_REAL = 9  # clusters
# log odds from which two clusters are chosen instead of one, and the range of p for them
ODDS_OF_TWO, PRIORS = 2.0, (0.03, 0.97)
MOST_OF_TWO = 0.8  # confidence in two clusters at most: a gap does not say that there is one only
# evidence against a boundary with which a single cluster may be surer than CLEAR_CONFIDENCE; it
# raises no confidence, as several clusters that are cut in two may look like one body, too
ONE_BODY = -2.0
# confidence in a number whose boundaries are real, of which the criterion is not sure
REAL_CONFIDENCE = 0.45
# clusters that overlap have no gap, but may be two: without support half of the confidence is left
LEAST_SUPPORT = 0.5


def evidences(X, weight, labels, k):
    """Yield the evidence of each boundary, those across which most rows are first.

    Boundaries of which nothing can be said, as there are few rows or few values, are left out.
    """
    X = np.asarray(X, dtype=np.float64)
    sizes = np.bincount(labels, minlength=k)
    if not sizes.all():  # equal rows: sweeps have ended with fewer clusters
        return
    for a, b in touching(ClusterRows(X, None, labels, k))[0]:
        if min(sizes[a], sizes[b]) >= SHARES:
            boundary = boundary_between(X, weight, labels, a, b)
            if len(boundary.edges):
                yield boundary.evidence


def all_real(X, weight, labels, k):
    """Whether all boundaries of a clustering are real, and there is one."""
    n = 0
    for evidence in evidences(X, weight, labels, k):
        if evidence < LEAST_EVIDENCE:
            return False
        n += 1
    return n > 0


def support(X, weight, labels, k):
    """How far the boundaries with the most rows across are real, from 0 to 1; NaN without any.

    That is the mean, over the boundaries, of the evidence over LEAST_EVIDENCE, from 0 to 1.
    """
    found = [e for e, _ in zip(evidences(X, weight, labels, k), range(LOOKED_AT), strict=False)]
    return float(np.clip(np.array(found) / LEAST_EVIDENCE, 0.0, 1.0).mean()) if found else np.nan


def evidence_of_two(X, weight, labels, transform):
    """The evidence that two clusters are not one, of the rows as given and transformed.

    The lower one counts, each over its dispersion: a skewed cluster may look like two in the rows
    as given, and whole numbers like more when transformed.
    """
    kinds = [X, transform(X)[0]] if transform.columns else [X]
    found = [boundary_between(rows, weight, labels, 0, 1) for rows in kinds]
    return min(b.evidence / b.dispersion if b.evidence > 0.0 else b.evidence for b in found)


def number_by_boundaries(path, most, labels_at, X, weight, transform):
    """The number of clusters and the confidence in it, of a path that is not sure of its number.

    ``labels_at`` returns labels of the rows X for a number on the path; ``most`` is the largest
    number allowed, None: any.
    """
    best, p = path.best, path.confidence
    if best == 1:
        if 2 not in path.counts or most == 1:
            return 1, p
        T = evidence_of_two(X, weight, labels_at(2), transform)
        prior = float(np.log(1.0 / np.clip(p, *PRIORS) - 1.0))
        if T + prior > ODDS_OF_TWO:
            return 2, min(1.0 / (1.0 + np.exp(-T - prior)), MOST_OF_TWO)
        if T <= ONE_BODY:
            return 1, p
        one = 1.0 / (1.0 + np.exp(max(T, 0.0) + prior))
        return 1, min(one, CLEAR_CONFIDENCE)
    share = support(X, weight, labels_at(best), best)
    if not share < 1.0:
        return best, p
    if p < CLEAR_CONFIDENCE:
        for k in path.counts[::-1].tolist():
            if 1 < k <= min(MOST_REAL, best - 1) and all_real(X, weight, labels_at(k), k):
                return k, REAL_CONFIDENCE
    return best, p * max(share, LEAST_SUPPORT)
