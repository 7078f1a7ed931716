"""Ids of clusters that last from fit to fit: ``renumber``, and its table of transitions.

The clusters of a new fit are linked to those of an earlier one by the linear program of D-Means
(Campbell, Kulis & How 2017, equation 51), as in ``match_clusters``.
"""

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from scipy.special import chdtri

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


@dataclass(frozen=True)
class ClusterRecord:
    """The clusters of a fit, and those of earlier ones that are gone, with their ids.

    ``away`` (n,) is the number of tables since each was last seen, 0 for those of the fit, which
    come first, in the order of its labels. ``next_id`` was never given to a cluster.
    """

    clusters: Clusters
    ids: NDArray[np.int64]
    away: NDArray[np.int64]
    next_id: int
    n_features: int
    feature_names: tuple[Any, ...] | None

    @property
    def present(self):
        """Numbers of the clusters of the fit itself."""
        return np.flatnonzero(self.away == 0)


@dataclass(frozen=True)
class Links:
    """What has become of the old clusters, and where the new ones come from.

    ``old`` (K,) is the old cluster that each new one continues, -1 for none; ``parent`` (K,) the
    one from which a new one without such has split off; ``heir`` (n_old,) the new cluster into
    which an old one that is not continued has merged. -1 stands for none.
    """

    old: NDArray[np.int64]
    parent: NDArray[np.int64]
    heir: NDArray[np.int64]


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
    record : ClusterRecord
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
    record: ClusterRecord

    def __len__(self) -> int:
        return len(self.cluster)

    def __repr__(self) -> str:
        numbers = [(event, int((self.event == event).sum())) for event in EVENTS]
        first = ", ".join(f"{number} {event}" for event, number in numbers if number)
        names = "id", "event", "before", "after", "share", "moved", "spreads", ""
        lines: list[tuple[str, ...]] = [names]
        for i in range(len(self)):
            size = [
                f"{n:,.6g}" if n else "-" for n in (float(self.n_before[i]), float(self.n_after[i]))
            ]
            shares = [f"{s:.0%}" for s in (self.share_before[i], self.share_after[i])]
            move = [
                "-" if np.isnan(d) else f"{d:.3g}"
                for d in (self.distance[i], self.distance_in_spreads[i])
            ]
            others = ", ".join(map(str, self.others[i]))
            others = f"with {others}" if others else ""
            line = str(self.cluster[i]), str(self.event[i]), *size, " to ".join(shares), *move
            lines.append((*line, others))
        widths = [max(len(line[j]) for line in lines) for j in range(8)]
        text = [
            "  ".join(
                [line[0].rjust(widths[0]), line[1].ljust(widths[1])]
                + [line[j].rjust(widths[j]) for j in range(2, 7)]
                + [line[7]]
            ).rstrip()
            for line in lines
        ]
        return "\n".join([first, *text])

    def to_frame(self) -> "DataFrame":
        """Return the table of transitions as a data frame of pandas.

        Returns
        -------
        frame : pandas.DataFrame
            A line for each cluster, with the columns "cluster", "event", "others", "n_before",
            "n_after", "share_before", "share_after", "distance" and "distance_in_spreads".
        """
        import pandas

        fields: dict[str, Any] = {name: getattr(self, name) for name in ("cluster", "event")}
        fields["others"] = list(self.others)
        for name in ("n_before", "n_after", "share_before", "share_after"):
            fields[name] = getattr(self, name)
        for name in ("distance", "distance_in_spreads"):
            fields[name] = getattr(self, name)
        return pandas.DataFrame(fields)

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
    model: Estimator,
    X: Any = None,
    *,
    like: Estimator | Renumbering | None = None,
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
    clusters = summarize(model, rows, weight)
    if like is None:
        record, flow = nothing_before(model, clusters), None
    else:
        earlier, record = earlier_record(like)
        check_columns(model, clusters, record)
        flow = None if rows is None else flow_of(earlier, X, weight, labels, clusters, record)
    compared, links = linked(clusters, record, flow, max_move, max_gone)
    kept = after(model, clusters, record, links)
    model.cluster_ids_ = kept.ids[: len(clusters)].copy()
    setattr(model, IDS_RECORD, kept)
    return described(model, labels, kept, record, compared, links, flow)


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


def names_of(model):
    """The names of the columns of a model; None if it has none."""
    names = getattr(model, "feature_names_in_", None)
    return None if names is None else tuple(names)


def nothing_before(model, clusters):
    """The ClusterRecord before the first fit: no clusters, and ids that begin at 0."""
    none = clusters.only(np.zeros(0, dtype=np.intp))
    no_ids = np.zeros(0, dtype=np.int64)
    return ClusterRecord(none, no_ids, no_ids, 0, model.n_features_in_, names_of(model))


def earlier_record(like):
    """The earlier model, and its ClusterRecord: that of its ids, or else of its labels as ids."""
    if isinstance(like, Renumbering):
        return like.model, like.record
    check_model(like, "like")
    record = vars(like).get(IDS_RECORD)
    if record is None:
        clusters = summarize(like)
        ids = np.arange(len(clusters))
        columns = like.n_features_in_, names_of(like)
        record = ClusterRecord(clusters, ids, np.zeros_like(ids), len(ids), *columns)
    return like, record


def check_columns(model, clusters, record):
    """Raise unless the clusters of a model can be compared with those of a ClusterRecord."""
    space = record.clusters.space
    if space != clusters.space:
        what = {"rows": "centers", "directions": "directions", "tables": "parameters of columns"}
        raise ValueError(
            f"like must have {what[clusters.space]} as the model has, got {what[space]}: fit both "
            "with the same kind of estimator"
        )
    names, before = names_of(model), record.feature_names
    if names is not None and before is not None:
        differ = set(names) != set(before) if space == "tables" else names != before
        if differ:
            order = " in another order" if set(names) == set(before) else ""
            lost = [name for name in before if name not in names]
            added = [name for name in names if name not in before]
            raise ValueError(
                "like must have the columns of the model, got "
                + (
                    f"the same{order}"
                    if order
                    else f"{lost or 'none'} instead of {added or 'none'}"
                )
            )
    if model.n_features_in_ != record.n_features:
        raise ValueError(
            f"like must have the {model.n_features_in_} columns of the model, got "
            f"{record.n_features}"
        )


def flow_of(earlier, X, weight, labels, clusters, record):
    """The weight of the rows by the labels that an earlier model predicts, and their own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of levels that only the new table has
        before = np.asarray(earlier.predict(X))
    used = np.flatnonzero((before >= 0) & (labels >= 0))
    w = np.ones(len(used)) if weight is None else weight[used]
    shape = len(record.present), len(clusters)
    return csr_array((w, (before[used], labels[used])), shape=shape).toarray()


def agreement(flow):
    """Rows in both of two clusters, as a share of those in one or the other, (K, n_old)."""
    either = flow.sum(axis=0) + flow.sum(axis=1, keepdims=True) - flow
    return np.divide(flow, either, out=np.zeros(flow.shape), where=either > 0).T


def linked(clusters, record, flow, max_move, max_gone):
    """The Comparison of new clusters with those of a ClusterRecord, and their Links."""
    present = record.present
    compared = Comparison(clusters, record.clusters, present, max_move)
    with np.errstate(divide="ignore", invalid="ignore"):
        cost = np.where(compared.distance > 0, np.square(compared.distance / compared.reach), 0.0)
    allowed = cost <= NEW_PRICE
    old = np.full(len(clusters), -1)
    if len(present):
        gain = 0.0 if flow is None else agreement(flow)
        price = np.where(allowed[:, present], cost[:, present] - gain, NO_LINK)
        link = match(np.full(len(clusters), NEW_PRICE), price)
        old[link >= 0] = present[link[link >= 0]]
    # those that continue none may be returns, where no living cluster is as near
    gone, free = np.flatnonzero(record.away), np.flatnonzero(old < 0)
    if len(gone) and len(free):
        apart = compared.apart[free]
        nearest = apart[:, present].min(axis=1, initial=np.inf)
        waited = 0.0 if max_gone is None else record.away[gone] / max_gone
        nearer = apart[:, gone] < nearest[:, None]
        price = np.where(nearer & allowed[np.ix_(free, gone)], cost[np.ix_(free, gone)], NO_LINK)
        link = match(
            np.full(len(free), NEW_PRICE), np.where(price < NO_LINK, price + waited, price)
        )
        old[free[link >= 0]] = gone[link[link >= 0]]
    parent, heir = kin(compared, record, old, flow)
    return compared, Links(old, parent, heir)


def kin(compared, record, old, flow):
    """The old cluster each unlinked new one is a part of, and the heir of each unlinked old one."""
    n, m = compared.distance.shape
    present = record.present
    growth = growth_of(compared, old)
    went_on = np.full(m, -1)
    went_on[old[old >= 0]] = np.flatnonzero(old >= 0)
    parent, heir = np.full(n, -1), np.full(m, -1)
    split, merged = (compared.distance <= reach for reach in compared.parts_reach)
    parts: dict[int, list[int]] = {}
    for k in np.flatnonzero(old < 0):
        if len(present):
            some = flow is not None and flow[:, k].any()
            at = flow[:, k].argmax() if some else compared.apart[k, present].argmin()
            if split[k, present[at]] and went_on[present[at]] >= 0:
                parts.setdefault(present[at], []).append(k)
    for one, members in parts.items():
        for k in accepted(
            compared.old,
            one,
            compared.new,
            went_on[one],
            members,
            compared.apart[:, one],
            compared.spreads[:, one],
            growth,
        ):
            parent[k] = one
    joining: dict[int, list[int]] = {}
    for one in present[went_on[present] < 0]:
        if n:
            k = compared.apart[:, one].argmin()
            if merged[k, one] and old[k] >= 0:
                joining.setdefault(int(k), []).append(one)
    for k, members in joining.items():
        for one in accepted(
            compared.new,
            k,
            compared.old,
            old[k],
            members,
            compared.apart[k],
            compared.spreads[k],
            1.0 / growth,
        ):
            heir[one] = k
    return parent, heir


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


def accepted(whole, one, parts, first, members, apart, spreads, growth):
    """The members that, with ``first``, look more like the cluster ``one`` than without them."""
    center, size = whole.centers[one], growth * sizes(whole)[one]
    weights, chosen = sizes(parts), []

    def change(union, spread):
        centers = np.nan_to_num(parts.centers[union] - center)  # 0 where one is not known
        step = np.average(centers, axis=0, weights=weights[union])
        with np.errstate(over="ignore", divide="ignore"):
            square = np.square(step / (spread or 1.0)).sum()
        return square + (np.log(weights[union].sum() / size) / SIZE_CHANGE) ** 2

    for k in sorted(members, key=lambda k: apart[k]):
        spread = spreads[k]
        if change([first, *chosen, k], spread) < change([first, *chosen], spread):
            chosen.append(k)
    return chosen


def after(model, clusters, record, links):
    """The ClusterRecord after a fit: its clusters with their ids, and all that are gone."""
    ids = np.where(links.old >= 0, record.ids[links.old] if len(record.ids) else -1, -1)
    new = np.flatnonzero(ids < 0)
    ids[new] = record.next_id + np.arange(len(new))
    gone = np.setdiff1d(np.arange(len(record.ids)), links.old)
    away = np.append(np.zeros(len(ids), dtype=np.int64), record.away[gone] + 1)
    everything = clusters.joined(record.clusters.only(gone))
    next_id = record.next_id + len(new)
    columns = model.n_features_in_, names_of(model) or record.feature_names
    return ClusterRecord(everything, np.append(ids, record.ids[gone]), away, next_id, *columns)


def described(model, labels, kept, record, compared, links, flow):
    """The Renumbering: a line for each new cluster, and each that was there before and is gone."""
    n = len(links.old)
    relatives: dict[int, tuple[list[int], str]] = {}  # by id: those of a split or a merger
    for k in range(n):
        if links.parent[k] >= 0:
            relatives.setdefault(int(record.ids[links.parent[k]]), ([], "split"))[0].append(
                int(kept.ids[k])
            )
    for one, k in enumerate(links.heir):
        if k >= 0:
            relatives.setdefault(int(kept.ids[k]), ([], "merged"))[0].append(int(record.ids[one]))
    lines = [line_of(k, kept, record, compared, links) for k in range(n)]
    went_on = set(links.old.tolist())
    for one in record.present:
        if one not in went_on:
            event = "died" if links.heir[one] < 0 else "merged"
            lines.append((int(record.ids[one]), event, one, -1))
    event_of = {line[0]: line[1] for line in lines}
    others: dict[int, set[int]] = {id_: set() for id_ in event_of}
    for id_, (members, event) in relatives.items():
        event_of[id_] = event
        for a in (id_, *members):
            others[a] |= {id_, *members} - {a}
    lines.sort()
    before = np.array([line[2] for line in lines], dtype=np.intp)
    now = np.array([line[3] for line in lines], dtype=np.intp)
    both = (before >= 0) & (now >= 0)
    moves = np.full((2, len(lines)), np.nan)
    moves[0, both] = compared.distance[now[both], before[both]]
    with np.errstate(divide="ignore", invalid="ignore"):
        moves[1, both] = moves[0, both] / compared.spreads[now[both], before[both]]
    moves[1, moves[0] == 0.0] = 0.0
    there = before >= 0
    there[there] = record.away[before[there]] == 0  # what returns was not in the earlier table
    n_before = np.where(there, np.append(record.clusters.weights, 0.0)[before], 0.0)
    n_after = np.where(now >= 0, np.append(kept.clusters.weights[:n], 0.0)[now], 0.0)
    return Renumbering(
        ids=kept.ids[:n].copy(),
        labels=np.append(kept.ids[:n], -1)[labels],
        cluster=np.array([line[0] for line in lines], dtype=np.int64),
        event=np.array([event_of[line[0]] for line in lines]),
        others=tuple(tuple(sorted(others[line[0]])) for line in lines),
        n_before=n_before,
        n_after=n_after,
        share_before=n_before / record.clusters.total,
        share_after=n_after / kept.clusters.total,
        distance=moves[0],
        distance_in_spreads=moves[1],
        flow=flow,
        model=copy_of(model),
        record=kept,
    )


def line_of(k, kept, record, compared, links):
    """Id, event, old number and label of a new cluster; before splits and mergers are told."""
    old, id_ = links.old[k], int(kept.ids[k])
    if old < 0:
        return id_, "new" if links.parent[k] < 0 else "split", -1, k
    if record.away[old]:
        return id_, "returned", old, k
    return id_, "moved" if has_moved(compared, k, old) else "same", old, k


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
