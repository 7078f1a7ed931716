"""Which clustering of a path is chosen, and one of a number that the descent has left out."""

from functools import partial

from smallvar._selection.sphere import directions, sharpest
from smallvar._selection.touching import number_by_boundaries, number_by_support


def best_clustering(problem, clusterings, criterion):
    """The clustering of the given number, the lowest objective, or the lowest criterion.

    Of directions, where that is not a single cluster, it may be the bend of the criterion, see
    ``sharpest``.
    """
    allowed = problem.allowed(clusterings)
    if problem.number is not None:
        # a path in another metric may lack the number; any will do, as it is not used then
        return allowed[0] if allowed else clusterings[0]
    best = min(allowed, key=problem.value)
    if problem.lam is None and best.k > 1 and problem.family is directions:
        found = sharpest(clusterings, criterion.price_of_cluster)
        return found if found.k < best.k else best
    return best


def completed(problem, sample, clusterings):
    """The clusterings, with one of the given number whose error is below those of fewer clusters.

    If the descent has none, it grows from the clustering with fewer clusters and the least error.
    """
    number = problem.number
    fewer = [c for c in clusterings if number is not None and c.k < number]
    if not fewer or sample.metric is not None:
        return clusterings
    base = min(fewer, key=lambda c: c.error)
    if any(c.k == number and c.error < base.error for c in clusterings):
        return clusterings
    sample.descent.grow(base.centers, number)
    more = [c for c in clusterings if c.k > number]
    return [*more, sample.clustering(True, True), *fewer]


def labels_of(path, sample, k):
    """Labels of the rows of the sample by k clusters of the path, at their fixed point."""
    centers = path.found(k)[:, path.varying]
    as_it_is = k == path.best or path.stays
    sample.error_of(centers) if as_it_is else sample.fixed_point(centers)
    return sample.plain.sweep.labels


def choose_by_boundaries(path, sample, most, transform, family):
    """Choose the number of clusters of a path again by the evidence of boundaries."""
    if hasattr(family, "boundaries"):
        support_at = family.boundaries(path, sample).support_at
        path.choose(*number_by_support(path, support_at, may_be_one=True))
        return
    plain, labels_at = sample.plain, partial(labels_of, path, sample)
    rows, step = (plain.X, plain.weight, transform), getattr(sample.criterion, "step", None)
    path.choose(*number_by_boundaries(path, most, labels_at, *rows, step))
