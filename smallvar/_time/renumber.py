"""Ids of clusters that last from fit to fit: ``renumber``, and its table of transitions.

The clusters of a new fit are linked to those of an earlier one by the linear program of D-Means
(Campbell, Kulis & How 2017, equation 51), as in ``match_clusters``.
"""

import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from scipy.special import chdtri
from sklearn.base import BaseEstimator

from smallvar._core.estimator import (
    IDS_RECORD,
    Estimator,
    check_fitted,
    copy_of,
    rows_as_fitted,
)
from smallvar._core.validation import check_number, check_weights
from smallvar._time.exchange import match
from smallvar._time.summary import Clusters, Comparison, summarize

if TYPE_CHECKING:
    from pandas import DataFrame

# A link saves the price of a cluster that dies and one that is born, NEW_PRICE. It costs the square
# of the move over the largest one, less the agreement of the labels; NO_LINK is never chosen
NEW_PRICE, NO_LINK = 1.0, 4.0
# Cohen's medium effect: a cluster has moved if its center has by so many standard deviations, and
# by more than the means of so many rows differ but once in 1 / CHANCE tables
MOVED, CHANCE = 0.5, 1e-3
# How much clusters that stay as they are change from one table to the next: their size by this
# factor, on a scale of logarithms; their center by one standard deviation
SIZE_CHANGE = 0.5
NO_WEIGHT = 1e-9  # of all weight: the weight of a cluster without any, for logarithms
EVENTS = ("same", "moved", "split", "merged", "returned", "new", "died")
COLUMNS = (
    *("cluster", "event", "others", "n_before", "n_after", "share_before", "share_after"),
    *("distance", "distance_in_spreads"),
)


@dataclass(frozen=True)
class Links:
    """What has become of the old clusters, and where the new ones come from; -1 stands for none."""

    old: NDArray[np.int64]  # the old cluster that each new one continues
    parent: NDArray[np.int64]  # the one from which a new one without such has split off
    heir: NDArray[np.int64]  # the new one into which an old one that is not continued has merged


@dataclass(frozen=True, eq=False, repr=False)
class Renumbering:
    """Ids of the clusters of a fit, and what has become of those of an earlier one.

    :func:`.renumber` returns one. ``print`` shows the table of transitions, which has a line for
    each cluster of either fit, in the order of their ids; ``len`` is the number of lines.

    Attributes
    ----------
    ids : ndarray of shape (n_clusters,), int64
        The id of each cluster of the model: ``ids[k]`` is that of label k, and so of row k of
        ``cluster_centers_`` and of column k of ``transform``.
    labels : ndarray of shape (n_samples,), int64
        The ids of the rows of the fit: those of ``labels_``. Noise, -1, stays -1.
    cluster : ndarray of shape (n_lines,), int64
        The id of the cluster of each line of the table.
    event : ndarray of shape (n_lines,), str
        "same" and "moved" for a cluster that goes on; "split" for one that has split, and for the
        parts with new ids; "merged" for one that others have joined, and for these; "died", "new",
        and "returned" for a new one at the place of an earlier one that had died, whose id it gets.
    others : tuple of tuples of int, of length n_lines
        For "split" and "merged" the ids of all clusters that a line is about, but its own.
    n_before, n_after : ndarray of shape (n_lines,), float64
        Rows (weights) of the cluster in the earlier and in the new table; 0 where it is not there.
    share_before, share_after : ndarray of shape (n_lines,), float64
        The same as shares of all rows of their table.
    distance : ndarray of shape (n_lines,), float64
        How far the center has moved, in the units of the data; for directions the chord, for tables
        with categories in standard deviations of each column. NaN for clusters that are in one
        table only.
    distance_in_spreads : ndarray of shape (n_lines,), float64
        The same in standard deviations of the cluster along the way of its center.
    flow : ndarray of shape (n_before, n_clusters), float64, or None
        Rows (weights) of the new table by the label that the earlier model predicts, and their new
        label; rows that either calls noise are left out. None without ``X``.
    model : estimator
        A copy of the model, which stays as it is if the model is fitted again.
    record : Clusters
        What the next ``renumber`` needs: centers, spreads, weights and ids of all clusters, those
        that are gone included.
    """

    ids: NDArray[np.int64]
    labels: NDArray[np.int64]
    cluster: NDArray[np.int64]
    event: NDArray[np.str_]
    others: tuple[tuple[int, ...], ...]
    n_before: NDArray[np.float64]
    n_after: NDArray[np.float64]
    share_before: NDArray[np.float64]
    share_after: NDArray[np.float64]
    distance: NDArray[np.float64]
    distance_in_spreads: NDArray[np.float64]
    flow: NDArray[np.float64] | None
    model: Any
    record: Clusters

    def __len__(self) -> int:
        return len(self.cluster)

    def __repr__(self) -> str:
        counts = [(int((self.event == event).sum()), event) for event in EVENTS]
        lines = [("id", "event", "before", "after", "share", "moved", "spreads", "")]
        for i in range(len(self)):
            sizes = [f"{n:,.6g}" if n else "-" for n in (self.n_before[i], self.n_after[i])]
            share = f"{self.share_before[i]:.0%} to {self.share_after[i]:.0%}"
            moves = self.distance[i], self.distance_in_spreads[i]
            moved, spreads = ("-" if np.isnan(move) else f"{move:.3g}" for move in moves)
            others = ", ".join(map(str, self.others[i]))
            others = f"with {others}" if others else ""
            name, event = str(self.cluster[i]), str(self.event[i])
            lines.append((name, event, sizes[0], sizes[1], share, moved, spreads, others))
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        text = [", ".join(f"{count} {event}" for count, event in counts if count)]
        for line in lines:
            cells = [cell.rjust(width) for cell, width in zip(line, widths, strict=True)]
            cells[1], cells[7] = line[1].ljust(widths[1]), line[7]
            text.append("  ".join(cells).rstrip())
        return "\n".join(text)

    def to_frame(self) -> "DataFrame":
        """Return the table of transitions as a data frame of pandas.

        Returns
        -------
        frame : pandas.DataFrame
            A line for each cluster, with the columns "cluster", "event", "others", "n_before",
            "n_after", "share_before", "share_after", "distance" and "distance_in_spreads".
        """
        import pandas

        fields = {name: getattr(self, name) for name in COLUMNS}
        return pandas.DataFrame(fields | {"others": list(self.others)})

    def relabel(self, labels: ArrayLike) -> NDArray[np.int64]:
        """Return the ids of labels of the model.

        Parameters
        ----------
        labels : array-like of shape (n_samples,), int
            Labels as of ``labels_`` and ``predict``: from 0 to n_clusters - 1, or -1 for noise.

        Returns
        -------
        ids : ndarray of shape (n_samples,), int64
            Their ids; -1 stays -1.
        """
        numbers = np.asarray(labels)
        if numbers.dtype.kind not in "iu" and numbers.size:
            raise TypeError(f"labels must be integers, got {numbers.dtype}")
        if numbers.size and not (numbers.min() >= -1 and numbers.max() < len(self.ids)):
            raise ValueError(
                f"labels must be from -1 to {len(self.ids) - 1}, got {numbers.min()} to "
                f"{numbers.max()}"
            )
        return np.append(self.ids, -1)[numbers.astype(np.intp)]

    def predict(self, X: Any) -> NDArray[np.int64]:
        """Return the ids of new rows: those of the labels that the model predicts.

        Parameters
        ----------
        X : array-like or table of shape (n_samples, n_features)
            New rows.

        Returns
        -------
        ids : ndarray of shape (n_samples,), int64
            The id of the cluster of each row, -1 for noise.
        """
        return self.relabel(self.model.predict(X))


def renumber(
    model: BaseEstimator,
    X: Any = None,
    *,
    like: BaseEstimator | Renumbering | None = None,
    sample_weight: ArrayLike | None = None,
    max_move: float | None = None,
    max_gone: int | None = None,
) -> Renumbering:
    """Find the ids of clusters that go on from an earlier fit, and what became of the others.

    A fit numbers its clusters anew. This finds out which of them continue clusters of the earlier
    model, by the linear program of D-Means: over xi >= 0 with sum_l xi_kl <= 1 and
    sum_k xi_kl <= 1 it minimizes

        sum_k (1 - sum_l xi_kl) + sum_kl xi_kl (||mu_k - mu_l||^2 / m_kl^2 - a_kl),

    where 1 is the price of a cluster that dies and another that is new, m_kl how far a cluster may
    move, and a_kl the agreement of the labels of both models, if ``X`` is given: of the rows that
    one of them has in cluster l or the other in k, the share that are in both.

    Nothing of the model changes but that it remembers the ids, as ``cluster_ids_``, until it is
    fitted again.

    Parameters
    ----------
    model : estimator
        A fitted estimator with centers: ``DPMeans``, ``MiniBatchDPMeans``, ``RobustDPMeans``,
        ``MahalanobisMeans``, ``SphericalDPMeans``, ``HDPMeans``, ``BregmanDPMeans``, ``ShapeMeans``
        or ``MixedDPMeans``.
    X : array-like or table of shape (n_samples, n_features), default=None
        The rows that it was fitted to. With them the spreads of all clusters are known, and how the
        earlier model would label the rows. None: spreads are what the model tells of them.
    like : estimator or Renumbering, default=None
        The earlier model, of any of these classes and with the same columns, or what ``renumber``
        returned for it. Its clusters have the ids that it was given, else those of its labels.
        None: the ids are the labels, and all clusters are new.
    sample_weight : array-like of shape (n_samples,), default=None
        The weights of the fit of ``model``.
    max_move : float, default=None
        The largest distance by which a cluster can have moved, in the units of the data. None: as
        far as two normal clusters with the spreads of both just touch (1 row in 100 on the other's
        side, 5.2 standard deviations for equal ones), or half of the distance to their nearest
        neighbors, if that is more.
    max_gone : int, default=None
        A cluster returns only if it was missing in fewer tables than this; each brings its new
        place nearer to what counts as a return, by 1 / max_gone of the price. None: it returns at
        any time. Ids of clusters that died are never given to others.

    Returns
    -------
    renumbering : Renumbering
        ``ids`` of the clusters, ``labels`` of the rows, ``predict`` for new rows, and the table of
        transitions.

    Raises
    ------
    ValueError, TypeError
        If a model is not fitted, has no centers, or if the columns of both are not the same.

    See Also
    --------
    match_clusters : The linear program, for costs of your own.
    DynamicMeans : Fits all time steps as one model.

    Notes
    -----
    A new cluster without a link is a part of the old cluster l from which most of its rows come
    (without ``X``: of the nearest, in spreads), if it is within reach of it, m_kl, and l together
    with it looks more like before than l alone: let k be the cluster that continues l, n its
    weight, and s the spread of l; of

        ||mu - mu_l||^2 / s^2 + (log(n / (g n_l)) / 0.5)^2

    the value for both clusters together is below that of k alone. g is the growth of the table, the
    median over all links. Old clusters that nobody continues have merged into a new one by the same
    rule, with old and new exchanged; else they have died.

    A cluster that died is kept in mind with its last center, and new clusters that continue none
    of those of the earlier model may be its return, at no other distances than these.

    References
    ----------
    Campbell, Kulis & How (2017), Dynamic clustering algorithms via small-variance analysis of
    Markov chain mixture models, section 5.4, equation 51.

    Examples
    --------
    >>> import numpy as np
    >>> from smallvar import DPMeans, renumber
    >>> may = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [9.0, 9.0], [9.0, 8.0], [8.0, 9.0]])
    >>> june = np.array([[20.0, 0.0], [20.0, 1.0], [21.0, 0.0], [0.5, 0.5], [0.5, 1.5], [1.5, 0.5]])
    >>> first = DPMeans(lam=9.0).fit(may)
    >>> second = DPMeans(lam=9.0).fit(june)
    >>> first.labels_.tolist(), second.labels_.tolist()
    ([0, 0, 0, 1, 1, 1], [0, 0, 0, 1, 1, 1])
    >>> ids = renumber(second, june, like=first)
    >>> ids.labels.tolist()
    [2, 2, 2, 0, 0, 0]
    >>> ids.predict([[1.0, 1.0]]).tolist()
    [0]
    """
    check_number(max_move, "max_move", low=0, low_open=True, none=True)
    check_number(max_gone, "max_gone", low=1, integer=True, none=True)
    check_model(model, "model")
    labels = np.asarray(model.labels_)
    weight = check_weights(sample_weight, len(labels))
    rows = None if X is None else checked_rows(model, X, len(labels))
    clusters, flow = summarize(model, rows, weight), None
    if like is None:
        record = replace(clusters.only(slice(0)), next_id=0)
    else:
        earlier, record = earlier_record(like)
        check_columns(clusters, record)
        if rows is not None:
            flow = flow_of(earlier, X, weight, labels, len(clusters), len(record.present))
    compared = Comparison(clusters, record, max_move)
    links = linked(compared, flow, max_gone)
    kept = record_after(clusters, record, links)
    model.cluster_ids_ = kept.ids[: len(clusters)].copy()
    setattr(model, IDS_RECORD, kept)
    return described(model, labels, kept, compared, links, flow)


def check_model(model, name):
    """Raise unless a model is a fitted estimator with centers."""
    if not isinstance(model, Estimator):
        raise TypeError(f"{name} must be an estimator of smallvar, got {type(model).__name__}")
    check_fitted(model)
    centers = ("cluster_centers_", "piece_centers_", "cluster_parameters_")
    if not hasattr(model, "predict") or not any(hasattr(model, name) for name in centers):
        raise TypeError(
            f"{name} must be an estimator with cluster_centers_, got {type(model).__name__}"
        )
    if hasattr(model, "cluster_ids_") and IDS_RECORD not in vars(model):
        raise TypeError(f"{name} has ids of its own, cluster_ids_, got {type(model).__name__}")
    if getattr(model, "labels_", None) is None:
        raise ValueError(f"{name} must have the labels_ of its fit, got None")


def checked_rows(model, X, n):
    """The rows of the fit of a model, checked, as an array; raise unless there are n."""
    is_mixed = hasattr(model, "cluster_parameters_")
    rows = model.predict(X) if is_mixed else rows_as_fitted(model, X)
    if rows.shape[0] != n:
        raise ValueError(
            f"X must have the {n} rows that the model was fitted to, one for each of labels_, got "
            f"{rows.shape[0]}"
        )
    return rows


def earlier_record(like):
    """The earlier model, and its Clusters, with the ids that they were given or their labels."""
    if isinstance(like, Renumbering):
        return like.model, like.record
    check_model(like, "like")
    record = vars(like).get(IDS_RECORD)
    return like, summarize(like) if record is None else record


def check_columns(clusters, record):
    """Raise unless clusters can be compared with earlier ones."""
    space, names, before = record.space, clusters.feature_names, record.feature_names
    if space != clusters.space:
        what = {"rows": "centers", "directions": "directions", "tables": "parameters of columns"}
        raise ValueError(
            f"like must have {what[clusters.space]} as the model has, got {what[space]}: fit both "
            "with the same kind of estimator"
        )
    if None not in (names, before) and names != before:
        lost = [name for name in before if name not in names] or "none"
        added = [name for name in names if name not in before] or "none"
        got = f"{lost} instead of {added}"
        if lost == added:  # in tables the order does not matter
            got = None if space == "tables" else "the same in another order"
        if got is not None:
            raise ValueError(f"like must have the columns of the model, got {got}")
    if clusters.n_features != record.n_features:
        raise ValueError(
            f"like must have the {clusters.n_features} columns of the model, got "
            f"{record.n_features}"
        )


def flow_of(earlier, X, weight, labels, k, k_before):
    """The weight of the rows by the labels that an earlier model predicts, and their own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of levels that only the new table has
        before = np.asarray(earlier.predict(X))
    used = np.flatnonzero((before >= 0) & (labels >= 0))
    w = np.ones(len(used)) if weight is None else weight[used]
    return csr_array((w, (before[used], labels[used])), shape=(k_before, k)).toarray()


def agreement(flow):
    """Rows in both of two clusters, as a share of those in one or the other, (K, n_old)."""
    either = flow.sum(axis=0) + flow.sum(axis=1, keepdims=True) - flow
    return np.divide(flow, either, out=np.zeros(flow.shape), where=either > 0).T


def linked(compared, flow, max_gone):
    """The Links of new clusters to old ones."""
    away, present, n = compared.old.away, compared.old.present, len(compared.new)
    with np.errstate(divide="ignore", invalid="ignore"):
        cost = np.where(compared.distance > 0, np.square(compared.distance / compared.reach), 0.0)
    cost = np.where(cost <= NEW_PRICE, cost, NO_LINK)
    old = np.full(n, -1)
    if len(present):
        gain = np.zeros((n, len(present))) if flow is None else agreement(flow)
        link_cheapest(old, np.arange(n), present, cost, -gain)
    # those that continue none may be returns, where no living cluster is as near
    gone, free = np.flatnonzero(away), np.flatnonzero(old < 0)
    if len(gone) and len(free):
        nearest = compared.apart[np.ix_(free, present)].min(axis=1, initial=np.inf, keepdims=True)
        waited = 0.0 if max_gone is None else away[gone] / max_gone
        is_nearer = compared.apart[np.ix_(free, gone)] < nearest
        link_cheapest(old, free, gone, cost, np.where(is_nearer, waited, np.inf))
    went_on = np.full(len(away), -1)
    went_on[old[old >= 0]] = np.flatnonzero(old >= 0)
    parent, heir = relatives(compared, old, went_on, flow)
    return Links(old, parent, heir)


def link_cheapest(old, new_clusters, old_clusters, cost, more):
    """Set ``old`` (INOUT) of some new clusters to those of some old ones at the least cost.

    ``cost`` is that of each link of all clusters, ``more`` what a link of these costs besides.
    """
    price = cost[np.ix_(new_clusters, old_clusters)]
    price = np.where(price < NO_LINK, np.minimum(price + more, NO_LINK), NO_LINK)
    link = match(np.full(len(new_clusters), NEW_PRICE), price)
    old[new_clusters[link >= 0]] = old_clusters[link[link >= 0]]


def relatives(compared, old, went_on, flow):
    """The old cluster each unlinked new one is a part of, and the heir of each unlinked old one.

    ``old`` is the old cluster that each new one continues, ``went_on`` the new one of each old one.
    """
    in_old, in_new = (compared.distance <= reach for reach in compared.parts_reach)
    part_of, joins, present = np.full(len(old), -1), np.full(len(went_on), -1), compared.old.present
    for k in np.flatnonzero(old < 0) if len(present) else ():
        has_flow = flow is not None and flow[:, k].any()
        nearest = present[flow[:, k].argmax() if has_flow else compared.apart[k, present].argmin()]
        if in_old[k, nearest] and went_on[nearest] >= 0:
            part_of[k] = nearest
    for i in present[went_on[present] < 0]:
        nearest = compared.apart[:, i].argmin()
        if in_new[nearest, i] and old[nearest] >= 0:
            joins[i] = nearest
    new, before, apart, spreads = compared.new, compared.old, compared.apart, compared.spreads
    growth = growth_of(compared, old)
    return (
        accepted(part_of, before, new, went_on, apart, spreads, growth),
        accepted(joins, new, before, old, apart.T, spreads.T, 1.0 / growth),
    )


def growth_of(compared, old):
    """The factor by which tables grow: the median over clusters that go on."""
    before, now = (sizes(clusters) for clusters in (compared.old, compared.new))
    on = np.flatnonzero(old >= 0)
    if len(on) == 0:
        return compared.new.total / compared.old.total
    return float(np.median(now[on] / before[old[on]]))


def sizes(clusters):
    """Weights, those of clusters without rows a small number instead of 0."""
    return np.maximum(clusters.weights, NO_WEIGHT * clusters.total)


def accepted(part_of, wholes, parts, link, apart, spreads, growth):
    """``part_of`` each whole, -1 where a part does not make the whole look more as it was.

    ``link`` is the part that each whole is linked to; parts are added to it one by one, the nearest
    first. ``apart`` and ``spreads`` are those of parts (rows) and wholes (columns).
    """
    found, weights = np.full(len(part_of), -1), sizes(parts)
    for whole in np.unique(part_of[part_of >= 0]):
        size, center = growth * sizes(wholes)[whole], wholes.centers[whole]

        def change(union, spread, size=size, center=center):
            centers = np.nan_to_num(parts.centers[union] - center)  # 0 where one is not known
            step = np.average(centers, axis=0, weights=weights[union])
            with np.errstate(over="ignore", divide="ignore"):
                square = np.square(step / (spread or 1.0)).sum()
            return square + (np.log(weights[union].sum() / size) / SIZE_CHANGE) ** 2

        members, union = np.flatnonzero(part_of == whole), [link[whole]]
        for k in members[np.argsort(apart[members, whole], kind="stable")]:
            if change([*union, k], spreads[k, whole]) < change(union, spreads[k, whole]):
                union.append(k)
                found[k] = whole
    return found


def record_after(clusters, record, links):
    """The Clusters after a fit: its clusters with their ids, and all that are gone."""
    ids = np.where(links.old >= 0, record.ids[links.old] if len(record.ids) else -1, -1)
    new = np.flatnonzero(ids < 0)
    ids[new] = record.next_id + np.arange(len(new))
    gone = record.only(np.setdiff1d(np.arange(len(record)), links.old))
    return replace(
        replace(clusters, ids=ids).joined(replace(gone, away=gone.away + 1)),
        next_id=record.next_id + len(new),
        feature_names=clusters.feature_names or record.feature_names,
    )


def described(model, labels, kept, compared, links, flow):
    """The Renumbering: a line for each new cluster, and each that was there before and is gone."""
    n, record = len(links.old), compared.old
    gone = np.setdiff1d(record.present, links.old)
    id_of = np.append(kept.ids[:n], record.ids[gone])
    order = np.argsort(id_of)
    before = np.append(links.old, gone)[order]
    now = np.append(np.arange(n), np.full(len(gone), -1))[order]
    lines = zip(id_of[order].tolist(), before, now, strict=True)
    event_of = {id_: event_of_line(i, k, compared, links) for id_, i, k in lines}
    others = {id_: set() for id_ in event_of}
    for event, members in families_of(kept, record, links):
        event_of[members[0]] = event
        for id_ in members:
            others[id_].update(set(members) - {id_})
    both = (before >= 0) & (now >= 0)
    moves = np.full((2, len(order)), np.nan)
    moves[0, both] = compared.distance[now[both], before[both]]
    with np.errstate(divide="ignore", invalid="ignore"):
        moves[1, both] = moves[0, both] / compared.spreads[now[both], before[both]]
    moves[1, moves[0] == 0.0] = 0.0
    # what returns was not in the earlier table
    weight_before = np.append(np.where(record.away == 0, record.weights, 0.0), 0.0)
    n_before = np.where(before >= 0, weight_before[before], 0.0)
    n_after = np.where(now >= 0, kept.weights[now], 0.0)
    return Renumbering(
        ids=kept.ids[:n].copy(),
        labels=np.append(kept.ids[:n], -1)[labels],
        cluster=id_of[order],
        event=np.array(list(event_of.values())),
        others=tuple(tuple(sorted(ids)) for ids in others.values()),
        n_before=n_before,
        n_after=n_after,
        share_before=n_before / record.total,
        share_after=n_after / kept.total,
        distance=moves[0],
        distance_in_spreads=moves[1],
        flow=flow,
        model=copy_of(model),
        record=kept,
    )


def families_of(kept, record, links):
    """What has become of each cluster that has split or merged, its id, and those of its parts."""
    families = {}
    for ids, parts, wholes, event in (
        (kept.ids, links.parent, record.ids, "split"),
        (record.ids, links.heir, kept.ids, "merged"),
    ):
        for i in np.flatnonzero(parts >= 0):
            whole = int(wholes[parts[i]])
            families.setdefault(whole, (event, [whole]))[1].append(int(ids[i]))
    return families.values()


def event_of_line(old, new, compared, links):
    """What has become of an old cluster, or what a new one is (-1: there is none)."""
    if new < 0:
        return "died" if links.heir[old] < 0 else "merged"
    if old < 0:
        return "new" if links.parent[new] < 0 else "split"
    if compared.old.away[old]:
        return "returned"
    return "moved" if has_moved(compared, new, old) else "same"


def has_moved(compared, k, old):
    """Whether a center has moved by what can be seen, and by more than means differ by chance."""
    distance, spread = compared.distance[k, old], compared.spreads[k, old]
    if not distance > MOVED * spread:
        return False
    variances = sum(
        clusters.variances[i] / max(clusters.counts[i], 1.0)
        for clusters, i in ((compared.new, k), (compared.old, old))
    )
    # The square of the move of a mean is a sum of v_j chi^2_1, near v chi^2_f / f with the mean and
    # variance of it (Satterthwaite). Relative to the move, and to their sum, as the fourth power of
    # either may leave float64.
    variances = variances / distance / distance
    total = variances.sum()
    if not total > 0.0:
        return True
    freedom = 1.0 / np.square(variances / total).sum()
    return bool(total * chdtri(freedom, CHANCE) / freedom < 1.0)
