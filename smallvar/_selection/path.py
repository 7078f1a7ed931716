"""The merge path: clusterings into every number of clusters, and the penalties that suit each."""

from copy import copy
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import issparse
from sklearn.utils import check_random_state

from smallvar._core.config import one_blas_thread, resolve_threads
from smallvar._core.progress import callback_for
from smallvar._core.validation import (
    Data,
    check_data,
    check_number,
    check_verbose,
    check_weights,
)
from smallvar._selection.cluster_path import ClusterPath, MergePath
from smallvar._selection.column_selection import differing_columns, selection_price
from smallvar._selection.columns import BLOCK_ROWS, PowerTransform
from smallvar._selection.descent import Metric, check_distinct
from smallvar._selection.least_size import LargeClusterings
from smallvar._selection.sample import DENSE_BYTES, PathClustering, PathProblem, squared_euclidean
from smallvar._selection.scale import FEWEST_WORDS, NONE_WIDE, mostly_zero, wide_columns
from smallvar._selection.search import (
    SELECTED,
    SURER_CONFIDENCE,
    TRANSFORMED,
    PathSearch,
    find_in_metrics,
    fine_rows,
    is_sure,
    judge,
)
from smallvar._selection.touching import number_by_boundaries, number_by_support, support

# of the error of a single cluster: columns that make up less of it hide no clusters
NOISE_SHARE = 1 / 2
SELECTION_ROUNDS = 3  # at most: columns are selected again by the clusters found in them


def dense_bytes(X):
    """Bytes of the rows that a path is found on, as a dense array, and of square matrices."""
    n, d = X.shape
    rows = min(n, fine_rows(d))
    return 8 * (rows * d + 4 * min(rows, d) ** 2)


def find_path(
    X,
    weight,
    rng,
    n_threads,
    *,
    lam=None,
    most=None,
    number=None,
    init=None,
    coarse_rows=None,
    callback=None,
    family=squared_euclidean,
    in_metric=False,
    transforms=True,
    select=False,
    gaps=True,
    least=None,
):
    """The merge path of checked data, with the number of clusters chosen.

    The number has the lowest criterion or, for a given ``lam``, the lowest objective, of those up
    to ``most``. A given ``number`` is the one chosen, and the path is found around it.

    If the clusters found are long, all in the same directions, further descents measure distances
    in the metric that makes them round, and the best descent gives the path.

    Where no ``lam`` is given, the clusterings are brought to fixed points of plain sweeps: those
    that the penalty depends on at once, the others when the path is asked for them. For a given
    ``lam`` all are brought there when asked for.

    - ``init``: the centers at which the descent begins, None: seeds.
    - ``coarse_rows``: number of rows of the first descent, None: COARSE_PATH_ROWS at most.
    - ``callback``: called after every descent, unless it is None.
    - ``family``: makes the criterion and the descent: ``squared_euclidean`` or that of divergences.
    - ``in_metric``: if the best path is in another metric, the fixed points and all of the path are
      in that metric, too.
    - ``transforms``: one-sided columns are transformed where that describes the rows better, for
      squared distances.
    - ``select``: all clusters have the same mean in some columns where that describes the rows
      better.
    - ``gaps``: the evidence of boundaries may change the number.
    - ``least``: the least weight of a cluster, see least_size.py; not together with ``lam`` and
      ``in_metric``. The result is None where the ``number`` cannot be had.
    """
    if issparse(X) and dense_bytes(X) > DENSE_BYTES:
        raise ValueError(
            "lam must be a number (or 'farthest-first') for sparse X of this shape: the merge path "
            f"behind 'auto' would hold {dense_bytes(X)} bytes of dense rows and matrices "
            f"for {X.shape[1]} columns, more than {DENSE_BYTES}; or make fewer columns by "
            "sklearn.decomposition.TruncatedSVD"
        )
    # with a least size, the largest number bounds what the path leads to, not the path
    searched = most if least is None else None
    problem = PathProblem(X, weight, n_threads, family, lam, searched, number)
    problem.least = least
    if not problem.varying.any():
        check_distinct(1, number)
        single = PathClustering(1, problem.constant[None], criterion=0.0, error=0.0)
        return MergePath(problem, [single], single, [], 0.0, problem.n)
    with one_blas_thread(min(X.shape[0], BLOCK_ROWS), X.shape[1]):
        free = problem.free and init is None
        by_squares = family is squared_euclidean
        # the search is all of the fit but for its sweeps
        told = X.shape[0] if free and select and not in_metric and by_squares else None
        search = PathSearch(rng, init, coarse_rows, callback, told)
        found, transform = find_in_metrics(search, problem), None
        if transforms and by_squares and free:
            found, transform = _find_in_other_rows(search, problem, found, select)
        if least is not None:
            found = _with_least_size(search, problem, found, (most, number))
            if found is None:
                return None
        path, sample, metric = found.path, found.sample, found.metric
        unsure = len(path.counts) > 1 and not is_sure(path, SURER_CONFIDENCE)
        if gaps and free and unsure and not (by_squares and transform is None):
            _choose_by_boundaries(path, sample, most, transform, family)
        rare = free and X.shape[1] >= FEWEST_WORDS and mostly_zero(X)
        path.finish(_wide(path, sample) if by_squares else NONE_WIDE, rare)
        if metric is None or not in_metric or sample.raw is not None:
            path.improve(sample, found.plain)
            return path
        # the metric of all columns: constant ones have the factor 0
        matrix, origin = np.zeros((X.shape[1], metric.matrix.shape[1])), problem.constant.copy()
        matrix[path.varying], origin[path.varying] = metric.matrix, metric.origin
        return path.in_metric(Metric(matrix, origin), X, weight, sample)


def _labels(path, sample, k):
    """Labels of the rows of the sample by k clusters of the path, at their fixed point."""
    centers = path.found(k)[:, path.varying]
    as_it_is = k == path.best or path.stays
    sample.error_of(centers) if as_it_is else sample.fixed_point(centers)
    return sample.plain.sweep.labels


def _choose_by_boundaries(path, sample, most, transform, family):
    """Choose the number of clusters of a path again by the evidence of boundaries."""
    rows, labels_at = (sample.plain.X, sample.plain.weight), partial(_labels, path, sample)
    if transform is not None:
        step = sample.criterion.step
        path.choose(*number_by_boundaries(path, most, labels_at, *rows, transform, step))
    elif hasattr(family, "boundaries"):
        support_at = family.boundaries(path, sample).support_at
        path.choose(*number_by_support(path, support_at, family.may_be_one))
    else:  # the density of directions knows no skewed bodies

        def support_at(k, least=0.0):
            return support(*rows, labels_at(k), k, least=least, facing=True)

        path.choose(*number_by_support(path, support_at, may_be_one=True))


def _wide(path, sample):
    """The wide columns of the rows of a sample."""
    rows = sample.plain.X, sample.plain.weight, sample.rows is None
    wide = wide_columns(*rows)
    if len(wide.columns) and path.best > 1:
        wide = wide_columns(*rows, _labels(path, sample, path.best))
    return wide._replace(columns=np.flatnonzero(path.varying)[wide.columns])


def _find_in_other_rows(search, problem, found, select):
    """The path of transformed rows, or of some columns, if it describes the rows better."""
    few_valued = found.sample.criterion.few_valued
    transform = PowerTransform(found.sample.plain.X, found.sample.plain.weight)
    if not is_sure(found.path) and transform.columns:
        search.begin(TRANSFORMED)
        problem.transform = transform
        new = find_in_metrics(search, problem, compared=True)
        # densities compare only if they are of equally many directions
        same = new.sample.criterion.rank == found.sample.criterion.rank
        if same and new.path.value_per_row < found.path.value_per_row and new.path.plausible:
            found = replace(new, plain=found.plain)
        else:
            problem.transform = None
    if select:
        search.begin(SELECTED)
        found = _find_in_columns(search, problem, found)
    problem.transform = None
    columns = np.flatnonzero(problem.varying)
    found.path.skewed = columns[transform.columns]
    found.path.few_valued = columns[few_valued]
    return found, transform


def _with_least_size(search, problem, found, bounds):
    """The path of clusters that have the least weight; None if it has none of the given number.

    ``bounds`` are the largest number of clusters, and the number that is given.
    """
    large = LargeClusterings(found.path, found.sample, problem.least)
    path = large.chosen(bounds)
    if path is None:
        if problem.number is None:
            return None
        # some of the clusters around this number are too small: from many to one, with all steps
        problem = copy(problem)
        problem.number = None
        return _with_least_size(search, problem, find_in_metrics(search, problem), bounds)
    own = large.best[path.best].own
    if path.best == path.counts[-1] and bounds[1] is None and own is not None:
        # rows far away have been apart on the whole way: a path of the others has more clusters
        rest = find_in_metrics(search, problem.of_rows(found.sample.rows, own))
        large.add(rest.path, path.best)
        path = large.chosen(bounds)
    if bounds[1] is None and not is_sure(path, SURER_CONFIDENCE):
        judge(path, found.sample)
    return replace(found, path=path)


def _find_in_columns(search, problem, found):
    """The path of some columns, if clusters in these describe the rows better.

    Columns are selected by the clusterings of the path, and then by those found in them.
    """
    criterion, whole = found.sample.criterion, found.path
    d, tie = criterion.X.shape[1], criterion.tie / criterion.distinct
    if not 1 < d == criterion.rank or is_sure(whole, SURER_CONFIDENCE):
        return found
    tried, path = [None], found.path
    for _ in range(SELECTION_ROUNDS):
        labelings = [(c.labels, c.k) for c in path.clusterings if c.labels is not None]
        selected = differing_columns(criterion, labelings)
        if any(np.array_equal(selected, before) for before in tried):
            break
        tried.append(selected)
        fewer = problem.in_columns(selected)
        if fewer.noise_error < NOISE_SHARE * whole.found_error[0]:
            break
        new = find_in_metrics(search, fewer, compared=True)
        path, same = new.path, new.sample.criterion.rank == len(selected)
        # the clusters, not the division of columns, must be what describes the rows better
        price = selection_price(len(selected), d - len(selected)) / criterion.distinct
        gain = (path.criterion[0] - path.value) / new.sample.criterion.distinct
        better = gain > price + tie and path.value_per_row < found.path.value_per_row - tie
        if path.best > 1 and same and better:
            found = new
    return found


def cluster_path(
    X: Data,
    *,
    sample_weight: ArrayLike | None = None,
    max_clusters: int | None = None,
    random_state: int | np.random.RandomState | None = None,
    n_threads: int | None = None,
    verbose: int = 0,
) -> ClusterPath:
    """Find clusterings into every number of clusters, and the number the data speak for.

    For every K from 1 on this minimizes the k-means objective

        S(K) = sum_i w_i ||x_i - mu_{z_i}||^2

    by merging the pair of clusters that raises it least, (w_a w_b / (w_a + w_b)) ||mu_a - mu_b||^2,
    from many clusters down to one, with k-means sweeps after every merger, and at last to a fixed
    point for every K. So the K for which S(K) + lam K is least is known for all lam at once. Among
    all K the one is chosen that minimizes a description length, the ``criterion``: see Notes.

    Parameters
    ----------
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        Data; float32 and float64 are used as they are. Of sparse data the rows that are used become
        dense: refused where these, and square matrices of as many rows as there are columns, or of
        rows used if these are fewer, take more than 1 GiB.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights >= 0, not all zero; None means 1 each.
    max_clusters : int, default=None
        Never choose more clusters than this.
    random_state : int, RandomState instance or None, default=None
        Generator of the first clusters, and of the rows used where there are many: more than
        5,000, with many columns 2,500.
    n_threads : int, default=None
        Threads; None means all that this process may use. The result does not depend on it.
    verbose : int, default=0
        Print how the search goes on.

    Returns
    -------
    path : ClusterPath
        Arrays ``counts``, ``error``, ``criterion``, ``lam_low``, ``lam_high``, ``ranking``,
        ``linkage``; the number chosen, ``best``, how likely it is right, ``confidence``, and a
        penalty for it, ``lam``; centers and labels by ``path.centers(k)`` and ``path.labels(k)``.

    Raises
    ------
    ValueError, TypeError
        If ``X`` is not a finite, numeric, two-dimensional array, or a parameter is out of bounds.

    See Also
    --------
    DPMeans : With ``lam="auto"``, the clusters of the number chosen.

    Notes
    -----
    With u distinct rows, n the sum of weights and p_k the share of cluster k, the criterion is ::

        (u / n) (-2 sum_i w_i log f(x_i; mu_{z_i}) - 2 n sum_k p_k log p_k)
            + log(u) (1.6 (K - 1) d + 3 (K - 1) + 2 d + 2 (parameters of f)),

    f being the best of a few densities that all clusters share: t (with 3 to 200 degrees of
    freedom) or Gaussian, round, or long in q directions (probabilistic principal components). d is
    the number of directions in which the rows vary at all: columns that are linear combinations
    of others add none. In two columns each cluster may have a covariance of its own. Where d is the
    number of columns, a single cluster may also be a uniform box; each of its ends costs 4 log(u),
    as rows tell of it at the rate n.

    *Own shapes.* Unless the number is sure (a confidence above .97), clusterings up to three more
    than the best are judged again, by a covariance S_k of each cluster, averaged with the pooled
    one as if the cluster had d + 2 more rows of that, at 1.6 log(u) a parameter of each further
    one; and by one variance for each column.

    *Columns of noise.* A cluster pays for a mean in each column. Where columns in which the means
    do not differ by more than that price make up half of the squared error or more, the path is
    found again in the t other columns, and decides if its criterion, plus that of one cluster in
    the columns of noise and 2 log((d + 1) C(d, t)), is lower. All centers then have the mean of the
    rows in the ``noise_columns``, for every K. Not for a given ``init``.

    *Boundaries.* The criterion does not know gaps. Along the direction that tells two clusters
    apart, their rows look like two bells or like one body; T is the difference of the log
    likelihoods of the two densities. A single cluster becomes two where T + log((1 - p) / p)
    exceeds 2, p being the confidence in one. The support of several is the mean over clusters of
    (T + 3) / 6, between 0 and 1, for the lower T of two boundaries of each. Where the number is not
    clear (below .5) and its support is below .95, it becomes the largest one below with that
    support that keeps a tenth of the fall of the criterion, if there is one.

    *Values recorded in steps.* A column recorded in steps of h (flags, years, counts, rounded
    measurements) tells nothing finer: h**2 / 12, the variance within a step, is added to its
    variance in f. So cutting rows by the m values of a column gains log(m) a row, which is what the
    labels cost. In a column of numbers where many rows share one value, h is the distance of the
    others from it; for categories in one-hot coding it is such that m levels gain log(m). Where all
    columns are recorded in steps, u is the number of rows. Values that differ by less than 1e-5 of
    the spread are one, but where most rows are as near to another one in all columns: these are
    tight groups.

    *Columns that follow from each other.* Where the condition of the correlations exceeds 300, the
    variance that other columns do not determine, at most .01 of that of the column, is added to its
    variance in f.

    *One-sided columns.* If columns are skewed by more than 1, and the number is not clear, the path
    is found again with their Yeo-Johnson transforms. It decides on the number if its criterion,
    with the Jacobian, two parameters and .3 u for each such column, is lower. Centers, errors,
    labels and penalties are those of the rows as given.

    *Long clusters.* The descent is taken again in the metric that makes clusters round, from the
    same clusters, and decides if its criterion is lower by more than 2 log(u), the price of a
    parameter; errors and labels are those of plain sweeps from its clusters into the number chosen,
    and for other numbers from those of the way before where these are better.

    *Rows.* Rows of weight zero and constant columns take no part, nor do rows in which a gap seems
    to be filled: by the mean or median of a column, a value that 3% of the rows and more share, but
    that is off the grid of the others, or the only one that is shared. At most a third as many
    clusters as distinct rows are chosen (all, where all columns are recorded in steps). Up to 2,000
    rows are merged from single rows on, so that the number does not depend on ``random_state``.
    More rows begin at some 4 sqrt(n) of them, drawn far apart: of 5,000, and where no more than two
    clusters are found, of 20,000 (in more than 512 columns of 5,000 first). Of more than 20,000
    rows a random sample is used, and in more than 26 columns a smaller one: 524,288 numbers, but at
    least 2,500 rows, and 20 for each cluster in any case (of more than 3,500 columns 5,000 rows at
    most where no more than two clusters are found). Penalties and inertia are those of all rows.

    *Many columns.* Where there are eight columns and more for each cluster, distances on the way
    down, after its first sweeps, are those in the space of the centers that it begins at.

    References
    ----------
    Ward (1963), Hierarchical grouping to optimize an objective function. Biernacki, Celeux &
    Govaert (2000), Assessing a mixture model for clustering with the integrated completed
    likelihood. Tipping & Bishop (1999), Mixtures of probabilistic principal component analyzers.
    Yeo & Johnson (2000), A new family of power transformations to improve normality or symmetry.
    Raftery & Dean (2006), Variable selection for model-based clustering. The penalty is that of
    Kulis & Jordan (2012), Revisiting k-means, section 3.

    Examples
    --------
    >>> from sklearn.datasets import make_blobs
    >>> from smallvar import cluster_path
    >>> X, _ = make_blobs(300, centers=4, random_state=2)
    >>> path = cluster_path(X, random_state=0)
    >>> path.best, path.ranking[:3].tolist()
    (4, [4, 3, 5])
    >>> path.lam_low[3].round(), path.lam_high[3].round()
    (np.float64(66.0), np.float64(369.0))
    >>> path.centers(4).shape, path.labels(2).max()
    ((4, 2), np.int32(1))
    """
    check_verbose(verbose)
    check_number(max_clusters, "max_clusters", low=1, integer=True, none=True)
    X = check_data(X, sparse=True)
    weight = check_weights(sample_weight, X.shape[0])
    rng = check_random_state(random_state)
    threads = resolve_threads(n_threads)
    callback = callback_for(verbose)
    options = {"most": max_clusters, "callback": callback, "select": True}
    return find_path(X, weight, rng, threads, **options).seen()
