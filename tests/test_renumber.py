"""renumber: ids that last, transitions between two tables, and chains of tables."""

import pickle

import numpy as np
import pytest
import twins.renumber
from helpers import seeds
from scipy.sparse import csr_matrix
from sklearn.base import clone

from smallvar import (
    BPMeans,
    BregmanDPMeans,
    DPMeans,
    DynamicMeans,
    HDPMeans,
    KernelDPMeans,
    MahalanobisMeans,
    MiniBatchDPMeans,
    MixedDPMeans,
    RobustDPMeans,
    ShapeMeans,
    SphericalDPMeans,
    renumber,
)

FOUR = {"a": (0, 0), "b": (12, 0), "c": (0, 15), "d": (20, 15)}


def table(groups, n=100, seed=0, spread=1.0, sizes=None):
    """Rows of normal clusters around these points, and the name of each."""
    rng = np.random.default_rng(seed)
    rows, names = [], []
    for name, center in groups.items():
        size = n if sizes is None else sizes.get(name, n)
        rows.append(np.asarray(center) + spread * rng.normal(size=(size, len(center))))
        names += [name] * size
    return np.vstack(rows), np.array(names)


def fitted(groups, **options):
    """A fit, its rows and the id of each group after renumbering."""
    X, names = table(groups, **options)
    return DPMeans(n_clusters=len(groups), random_state=0).fit(X), X, names


def events(ids, name_of):
    """The events by the names of the groups, from the name of each id."""
    return {name_of[c]: e for c, e in zip(ids.cluster.tolist(), ids.event.tolist(), strict=True)}


def names_of(model, names):
    """The name of the group of most rows of each label."""
    rows = [names[model.labels_ == k].tolist() for k in range(model.n_clusters_)]
    return {k: max(sorted(set(some)), key=some.count) for k, some in enumerate(rows)}


MODELS = {
    "DPMeans": DPMeans(random_state=0),
    "metric": DPMeans(metric="auto", random_state=0),
    "MiniBatchDPMeans": MiniBatchDPMeans(random_state=0),
    "RobustDPMeans": RobustDPMeans(random_state=0),
    "MahalanobisMeans": MahalanobisMeans(random_state=0),
    "SphericalDPMeans": SphericalDPMeans(random_state=0),
    "HDPMeans": HDPMeans(random_state=0),
    "BregmanDPMeans": BregmanDPMeans(divergence="kl", n_clusters=4, random_state=0),
    "ShapeMeans": ShapeMeans(random_state=0),
    "MixedDPMeans": MixedDPMeans(random_state=0),
}


@pytest.mark.parametrize("name", MODELS)
def test_permuted_rows_keep_all_ids(name):
    """Another fit of the same rows, in another order: all rows have the id that they had."""
    X, _ = table({key: (*center, 5, 5) for key, center in FOUR.items()})
    X = np.abs(X - X.min() + 1.0) if name == "BregmanDPMeans" else X
    order = np.random.default_rng(1).permutation(len(X))
    more = {"groups": np.arange(len(X)) % 2} if name == "HDPMeans" else {}
    first, second = (clone(MODELS[name]).fit(Y, **more) for Y in (X, X[order]))
    needs_rows = name in ("ShapeMeans", "BregmanDPMeans")
    for rows in [X[order]] if needs_rows else [X[order], None]:
        ids = renumber(second, rows, like=first)
        assert np.array_equal(ids.labels, first.labels_[order])
        assert set(ids.event) == {"same"}
        assert np.array_equal(ids.predict(X[order]), ids.relabel(second.predict(X[order])))
        assert np.array_equal(second.cluster_ids_, ids.ids)
    again = renumber(first, X, like=ids)
    assert np.array_equal(again.labels, first.labels_)
    if needs_rows:
        fresh = clone(MODELS[name]).fit(X), clone(MODELS[name]).fit(X)
        with pytest.raises(ValueError, match="X must be given"):
            renumber(fresh[0], like=fresh[1])


def moved_pair(seed):
    """A pair of tables with known events: rows, names of groups, and what became of each group."""
    rng = np.random.default_rng(seed)
    d, k = int(rng.integers(2, 8)), int(rng.integers(3, 7))
    apart, taken = rng.uniform(9, 13), []

    def free(room=0.0):
        box = apart * k
        while True:
            point = rng.uniform(-box, box, d)
            if all(np.linalg.norm(point - other) > apart + room for other in taken):
                taken.append(point)
                return point

    before, now, want = {}, {}, {}
    for g in range(k):
        event = str(rng.choice(["same", "moved", "split", "merged", "died"])) if g else "same"
        name, half = f"g{g}", rng.normal(size=d)
        half *= rng.uniform(3.6, 4.2) / np.linalg.norm(half)
        center = free(10.0)
        if event in ("same", "moved", "died", "split"):
            before[name] = center
        if event in ("same", "moved", "merged"):
            now[name] = center + (event == "moved") * half * 0.5
        parts = now if event == "split" else before
        if event in ("split", "merged"):
            parts |= {f"{name}+": center + half, f"{name}-": center - half}
        want[name] = event
    for g in range(int(rng.integers(0, 3))):
        now[f"new{g}"] = free(2.0)
        want[f"new{g}"] = "new"
    return before, now, want


@seeds(24)
@pytest.mark.parametrize("rows", ["both", "second", "none"])
def test_known_transitions(seed, rows):
    before, now, want = moved_pair(100 + seed)
    first, X, old = fitted(before, n=150, seed=seed)
    second, Y, new = fitted(now, n=150, seed=seed + 1)
    like = renumber(first, X) if rows == "both" else first
    ids = renumber(second, None if rows == "none" else Y, like=like)
    id_before = {name: k for k, name in names_of(first, old).items()}
    id_now = {name: int(ids.ids[k]) for k, name in names_of(second, new).items()}
    lines = {
        c: (e, others)
        for c, e, others in zip(ids.cluster.tolist(), ids.event.tolist(), ids.others, strict=True)
    }
    for name, event in want.items():
        if event == "split":
            parts = {id_now[f"{name}+"], id_now[f"{name}-"]}
            assert id_before[name] in parts
            assert all(lines[p] == ("split", tuple(parts - {p})) for p in parts)
        elif event == "merged":
            parts = {id_before[f"{name}+"], id_before[f"{name}-"]}
            assert id_now[name] in parts
            assert all(lines[p] == ("merged", tuple(parts - {p})) for p in parts)
        else:
            at = id_now[name] if event == "new" else id_before[name]
            assert lines[at] == (event, ())
            assert event in ("new", "died") or id_now[name] == at
    assert len(lines) == len(set(id_before.values()) | set(id_now.values()))


@seeds(24)
def test_links_cost_least(seed):
    """Against all ways to link the clusters: dense clusters, of which several are within reach."""
    rng = np.random.default_rng(seed)
    k, m, d = (int(rng.integers(2, high)) for high in (6, 6, 4))
    box = rng.choice([3.0, 6.0, 20.0])
    old, new = rng.uniform(0, box, (m, d)), rng.uniform(0, box, (k, d))
    X, Y = (np.repeat(c, 30, axis=0) + rng.normal(size=(30 * len(c), d)) for c in (old, new))
    first, second = (DPMeans(lam=np.inf, init=c).fit(rows) for c, rows in ((old, X), (new, Y)))
    ids = renumber(second, Y, like=renumber(first, X))
    _, v_old = twins.renumber.describe(X, first.labels_, first.cluster_centers_)
    _, v_new = twins.renumber.describe(Y, second.labels_, second.cluster_centers_)
    flow = np.zeros((first.n_clusters_, second.n_clusters_))
    np.add.at(flow, (first.predict(Y), second.labels_), 1)
    assert np.array_equal(ids.flow, flow)
    cost = twins.renumber.costs(second.cluster_centers_, v_new, first.cluster_centers_, v_old, flow)
    link = twins.renumber.cheapest(cost)
    assert [i if i < first.n_clusters_ else -1 for i in ids.ids.tolist()] == link


def test_numbers_of_the_table():
    """Rows, shares and distances, by hand: two clusters of known spread."""
    X = np.array([[-1.0, 0.0], [1.0, 0.0], [-1.0, 100.0], [1.0, 100.0], [0.0, 100.0], [0.0, 50.0]])
    first = DPMeans(lam=100.0).fit(X)
    Y = np.tile(X[:5] + np.array([2.0, 0.0]), (2, 1))
    second = DPMeans(lam=100.0).fit(Y)
    ids = renumber(second, Y, like=renumber(first, X))
    at = {name: k for k, name in enumerate(ids.cluster.tolist())}
    a, b, c = (at[int(i)] for i in first.labels_[[0, 2, 5]])
    assert ids.n_before[[a, b, c]].tolist() == [2, 3, 1]
    assert ids.n_after[[a, b, c]].tolist() == [4, 6, 0]
    np.testing.assert_allclose(ids.share_before[[a, b, c]], [2 / 6, 3 / 6, 1 / 6])
    np.testing.assert_allclose(ids.share_after[[a, b, c]], [0.4, 0.6, 0.0])
    np.testing.assert_allclose(ids.distance[[a, b]], [2.0, 2.0])
    assert np.isnan(ids.distance[c]) and ids.event[c] == "died"
    # variances along the first column, averaged with (2 + 2) / 6 as for 3 rows more
    own, pooled = np.array([1.0, 2 / 3]), 4 / 6
    n = np.array([2, 3])
    spread = np.sqrt((n * own + 3 * pooled) / (n + 3))
    np.testing.assert_allclose(ids.distance_in_spreads[[a, b]], 2.0 / spread)
    frame = ids.to_frame()
    assert frame["event"].tolist() == ids.event.tolist()
    assert len(repr(ids).splitlines()) == 2 + len(ids) == 5


def test_weeks_with_deaths_and_returns():
    """Ids last, those of the dead are reserved, and a cluster that returns has its own."""
    weeks = ["abcd", "abc", "abce", "bce", "bcde", "abcdef", "acdf", "abcdef"]
    places = FOUR | {"e": (-15, 5), "f": (30, -10)}
    id_of, last, models = {}, None, None
    for week, present in enumerate(weeks):
        groups = {g: np.add(places[g], 0.1 * week) for g in present}
        model, X, names = fitted(groups, seed=week)
        last = renumber(model, X if week % 2 else None, like=last)
        models = renumber(clone(model).fit(X), like=None if models is None else models.model)
        for k, name in names_of(model, names).items():
            assert id_of.setdefault(name, int(last.ids[k])) == last.ids[k]
        assert np.array_equal(models.ids, last.ids)  # the models remember them, too
        seen, earlier = set("".join(weeks[:week])), set(weeks[week - 1] if week else "")
        expected = {
            name: "same" if name in earlier else "returned" if name in seen else "new"
            for name in present
        }
        expected |= dict.fromkeys(earlier - set(present), "died")
        known = {i: name for name, i in id_of.items()}
        assert events(last, known) == expected
    assert len(set(id_of.values())) == 6


def test_max_gone_and_max_move():
    a, X, _ = fitted(FOUR)
    b, Y, _ = fitted({g: FOUR[g] for g in "abc"}, seed=1)
    without = renumber(b, Y, like=renumber(a, X))
    back, Z, names = fitted(FOUR, seed=2)
    d = next(k for k, name in names_of(back, names).items() if name == "d")
    assert sorted(renumber(back, Z, like=without).ids) == [0, 1, 2, 3]
    assert renumber(back, Z, like=without, max_gone=1).ids[d] == 4
    assert renumber(back, Z, like=without, max_gone=2).ids[d] < 4
    far, W, names = fitted({g: np.add(FOUR[g], (4, 0)) for g in FOUR}, seed=3)
    assert sorted(renumber(far, W, like=renumber(a, X)).ids) == [0, 1, 2, 3]
    assert sorted(renumber(far, W, like=renumber(a, X), max_move=2.0).ids) == [4, 5, 6, 7]
    near, V, _ = fitted({"a": (0, 0), "b": (100, 0)})
    away, U, _ = fitted({"a": (0, 0), "b": (160, 0)})
    assert sorted(renumber(away, U, like=renumber(near, V)).ids)[1] == 2
    assert sorted(renumber(away, U, like=renumber(near, V), max_move=70.0).ids) == [0, 1]


def test_no_unit_matters():
    """Units of the data and of the weights, and repeated rows for weights."""
    before, now, _ = moved_pair(3)
    X, _ = table(before, n=60)
    Y, _ = table(now, n=60, seed=1)
    w = np.random.default_rng(0).integers(1, 4, size=len(Y)).astype(float)

    def table_of(scale, unit, repeat=False):
        first = DPMeans(n_clusters=len(before), random_state=0).fit(scale * X)
        rows, weight = scale * Y, unit * w
        if repeat:
            rows, weight = np.repeat(rows, w.astype(int), axis=0), None
        init = {"init": scale * np.array(list(now.values())), "lam": np.inf}
        second = DPMeans(**init).fit(rows, sample_weight=weight)
        return renumber(second, rows, like=renumber(first, scale * X), sample_weight=weight)

    one = table_of(1.0, 1.0)
    for other in (table_of(1.0, 1.0, repeat=True), table_of(1e6, 1.0), table_of(1e-6, 64.0)):
        assert np.array_equal(one.ids, other.ids)
        assert np.array_equal(one.event, other.event)
        np.testing.assert_allclose(one.share_after, other.share_after)
        np.testing.assert_allclose(one.distance_in_spreads, other.distance_in_spreads, rtol=1e-9)
    assert table_of(1.0, 64.0).n_after.sum() == 64 * w.sum()


def test_noise_stays_minus_one():
    X, _ = table(FOUR)
    noisy = np.vstack([X, [[500.0, 500.0], [-700.0, 90.0]]])
    first, second = RobustDPMeans(random_state=0).fit(X), RobustDPMeans(random_state=0).fit(noisy)
    ids = renumber(second, noisy, like=first)
    assert ids.labels[-2:].tolist() == [-1, -1]
    assert np.array_equal(ids.labels[:-2], first.labels_)
    assert ids.relabel([-1, 0]).tolist() == [-1, ids.ids[0]]
    assert ids.share_after.sum() == pytest.approx(400 / 402)


def test_models_of_several_kinds():
    """Another estimator, another penalty, sparse rows, and a mixed table with its words."""
    X, names = table(FOUR)
    first = DPMeans(random_state=0).fit(X)
    for model in (
        RobustDPMeans(),
        MahalanobisMeans(random_state=0),
        DPMeans(lam=60.0),
        ShapeMeans(),
    ):
        assert np.array_equal(renumber(model.fit(X), X, like=first).labels, first.labels_)
    sparse = csr_matrix(X[::-1])
    backward = DPMeans(random_state=0).fit(sparse)
    assert np.array_equal(renumber(backward, sparse, like=first).labels, first.labels_[::-1])
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=["x", "y"]).assign(
        word=np.where(np.isin(names, ["a", "b"]), "u", "v")
    )
    mixed = [MixedDPMeans(random_state=0).fit(f) for f in (frame, frame[::-1][["word", "y", "x"]])]
    ids = renumber(mixed[1], like=mixed[0])
    assert np.array_equal(ids.labels, mixed[0].labels_[::-1])
    assert set(ids.event) == {"same"}


def test_a_column_that_is_left_out_for_a_week():
    """A cluster that died when a column was there returns when it is there again."""
    pd = pytest.importorskip("pandas")
    last, id_of = None, {}
    for week, present in enumerate(["abcd", "abc", "abcd"]):
        X, names = table({g: (*FOUR[g], 7 * (g == "d")) for g in present}, seed=week)
        frame = pd.DataFrame(X, columns=["x", "y", "z"])
        frame["word"] = np.where(np.isin(names, ["a", "b"]), "u", np.where(names == "c", "v", "w"))
        if week == 1:
            frame["z"] = 0.0
        model = MixedDPMeans(n_clusters=len(present), random_state=0).fit(frame)
        assert ("z" in model.left_out_) == (week == 1)
        last = renumber(model, frame, like=last)
        for k, name in names_of(model, names).items():
            assert id_of.setdefault(name, int(last.ids[k])) == last.ids[k]
    assert sorted(last.event) == ["returned", "same", "same", "same"]


def test_stream_counts_all_its_rows():
    X, _ = table(FOUR)
    model = MiniBatchDPMeans(lam=50.0)
    for start in range(4):
        model.partial_fit(X[start::4])
    ids = renumber(model)
    assert sorted(ids.n_after) == [100, 100, 100, 100]
    assert ids.share_after.sum() == 1.0


def test_ids_are_forgotten_by_a_fit():
    X, _ = table(FOUR)
    model = DPMeans(random_state=0).fit(X)
    other = DPMeans(random_state=0).fit(X[::-1])
    ids = renumber(other, X[::-1], like=model)
    kept = pickle.loads(pickle.dumps(ids))
    loaded = pickle.loads(pickle.dumps(other))
    assert np.array_equal(loaded.cluster_ids_, ids.ids)
    assert np.array_equal(renumber(model, X, like=kept).ids, np.arange(4))
    assert np.array_equal(renumber(model, X, like=loaded).ids, np.arange(4))
    other.fit(X)
    assert not hasattr(other, "cluster_ids_")
    stream = MiniBatchDPMeans(lam=50.0).partial_fit(X)
    renumber(stream, like=model)
    assert not hasattr(stream.partial_fit(X), "cluster_ids_")
    # the result has the model as it was
    assert np.array_equal(ids.predict(X[::-1]), ids.labels)


def test_wrong_input():
    X, _ = table(FOUR)
    model = DPMeans(random_state=0).fit(X)
    with pytest.raises(ValueError, match="not fitted"):
        renumber(DPMeans(), like=model)
    with pytest.raises(ValueError, match="not fitted"):
        renumber(model, like=DPMeans())
    with pytest.raises(TypeError, match="model must be an estimator of smallvar, got ndarray"):
        renumber(X, like=model)
    with pytest.raises(TypeError, match="like must be an estimator of smallvar, got int"):
        renumber(model, like=3)
    with pytest.raises(TypeError, match="like must be an estimator with cluster_centers_, got Ker"):
        renumber(model, like=KernelDPMeans(lam=1.0).fit(X))
    with pytest.raises(TypeError, match="model has ids of its own, cluster_ids_, got DynamicMeans"):
        renumber(DynamicMeans(lam=100.0).partial_fit(X), like=model)
    with pytest.raises(TypeError, match="model must be .* with cluster_centers_, got BPM"):
        renumber(BPMeans(lam=100.0).fit(X[:20]), like=model)
    with pytest.raises(ValueError, match="like must have the 2 columns of the model, got 1"):
        renumber(model, like=DPMeans(random_state=0).fit(X[:, :1]))
    with pytest.raises(ValueError, match="X must have the 400 rows"):
        renumber(model, X[:10], like=model)
    for other in (X, csr_matrix(X)):  # whose squares are beyond float64
        with pytest.raises(ValueError, match="X must be finite, and must not change"):
            renumber(model, other * 1e200)
    with pytest.raises(ValueError, match="like must have centers as the model has, got directions"):
        renumber(model, like=SphericalDPMeans(random_state=0).fit(X))
    with pytest.raises(ValueError, match="max_move must be > 0"):
        renumber(model, like=model, max_move=0.0)
    with pytest.raises(ValueError, match="max_gone must be >= 1"):
        renumber(model, like=model, max_gone=0)
    with pytest.raises(ValueError, match="sample_weight"):
        renumber(model, like=model, sample_weight=[1.0])
    with pytest.raises(ValueError, match="labels must be from -1 to 3, got 0 to 4"):
        renumber(model).relabel([0, 4])
    with pytest.raises(TypeError, match="labels must be integers"):
        renumber(model).relabel([0.5])


def test_names_of_columns():
    pd = pytest.importorskip("pandas")
    X, _ = table(FOUR)
    frame = pd.DataFrame(X, columns=["x", "y"])
    model = DPMeans(random_state=0).fit(frame)
    assert np.array_equal(renumber(model, frame, like=DPMeans().fit(frame)).labels, model.labels_)
    other = DPMeans(random_state=0).fit(frame.rename(columns={"y": "z"}))
    with pytest.raises(
        ValueError, match=r"like must have the columns .* \['z'\] instead of \['y'\]"
    ):
        renumber(model, frame, like=other)
    swapped = DPMeans(random_state=0).fit(frame[["y", "x"]])
    with pytest.raises(ValueError, match="got the same in another order"):
        renumber(model, like=swapped)


@pytest.mark.parametrize("width", [1e80, 1e130])
def test_squares_of_variances_leave_no_float64(width):
    """A column so wide that its variance squared is infinite: a move it may hide is by chance."""
    X, _ = table({"a": (0, 0)})
    X = (X - X.mean(axis=0)) * [1.0, width]
    later = X + np.array([100.0, 0.0])
    first, second = (DPMeans(lam=1e290).fit(rows) for rows in (X, later))
    ids = renumber(second, later, like=renumber(first, X), max_move=1e6)
    assert ids.event.tolist() == ["same"]
    assert ids.distance.tolist() == pytest.approx([100.0])
