"""boundary_evidence: any labels, the table, errors."""

import numpy as np
import pytest
from scipy.sparse import csr_array, csr_matrix
from sklearn.cluster import KMeans
from sklearn.datasets import make_moons

from smallvar import boundary_evidence, cluster_path
from smallvar._selection.boundaries import find_boundaries

MOONS, TRUTH = make_moons(2000, noise=0.1, random_state=0)
SIX = KMeans(6, n_init=5, random_state=0).fit_predict(MOONS)


def same(table, other):
    """All but the names of clusters."""
    for name in ("n_rows", "evidence", "valley", "edges", "counts", "bells", "body"):
        np.testing.assert_allclose(getattr(table, name), getattr(other, name), atol=1e-6)
    np.testing.assert_array_equal(table.verdict, other.verdict)


def test_boundaries_within_and_between_two_moons():
    table = boundary_evidence(MOONS, SIX)
    moon = np.array([np.bincount(TRUTH[c == SIX]).argmax() for c in range(6)])
    between = moon[table.clusters[:, 0]] != moon[table.clusters[:, 1]]
    assert between.sum() == 5 and len(table) == 9
    np.testing.assert_array_equal(table.verdict, np.where(between, "gap", "none"))
    assert (table.valley[between] > 0.8).all() and (table.valley[~between] < 0.6).all()
    assert (np.diff(table.clusters @ [6, 1]) > 0).all()
    np.testing.assert_array_equal(table.n_rows, np.bincount(SIX)[table.clusters].sum(axis=1))
    assert table.n_rows.dtype.kind == "i"


def test_equal_to_the_boundaries_by_number():
    table, found = boundary_evidence(MOONS, SIX), find_boundaries(MOONS, None, SIX, 6)
    for (a, b), evidence in zip(found.pairs, found.evidence, strict=True):
        assert table.evidence[table.index_of(a, b)] == evidence
        assert table.index_of(b, a) == table.index_of(a, b)


def test_kinds_of_labels_and_rows():
    pandas = pytest.importorskip("pandas")
    table = boundary_evidence(MOONS, SIX)
    names = np.array(["a", "b", "c", "d", "e", "f"])
    for labels in (names[SIX], list(names[SIX]), pandas.Series(names[SIX], dtype="category")):
        named = boundary_evidence(MOONS, labels)
        same(named, table)
        np.testing.assert_array_equal(named.clusters, names[table.clusters])
        assert named.index_of("c", "a") == table.index_of(2, 0)
    for labels in (
        3 * SIX + 2,
        SIX.astype(float),
        SIX.astype(np.uint8),
        SIX.tolist(),
    ):
        same(boundary_evidence(MOONS, labels), table)
    for rows in (
        pandas.DataFrame(MOONS, columns=["x", "y"]),
        MOONS.tolist(),
        csr_array(MOONS),
        csr_matrix(MOONS),
        np.asfortranarray(MOONS),
    ):
        same(boundary_evidence(rows, SIX), table)


def test_noise_and_weights():
    table = boundary_evidence(MOONS, SIX)
    far = np.vstack([MOONS, MOONS[:50] + 7.0])
    for noise in (-1, -2.0):
        same(boundary_evidence(far, np.append(SIX, np.full(50, noise))), table)
    weight = np.repeat([1.0, 0.0], [2000, 50])
    same(boundary_evidence(far, np.append(SIX, np.full(50, 3)), sample_weight=weight), table)
    weight = np.random.default_rng(0).integers(0, 3, 2000)
    repeated = boundary_evidence(MOONS.repeat(weight, axis=0), SIX.repeat(weight))
    same(boundary_evidence(MOONS, SIX, sample_weight=weight), repeated)
    two = boundary_evidence(MOONS, SIX, n_threads=2)
    np.testing.assert_array_equal(two.evidence, table.evidence)


def test_few_clusters_and_few_rows():
    for labels in (np.zeros(2000, dtype=int), np.full(2000, -1)):
        table = boundary_evidence(MOONS, labels)
        assert len(table) == 0 and table.clusters.shape == (0, 2)
        assert (
            repr(table) == f"0 boundaries of {len(table.labels)} cluster{'s' * int(labels[0] < 0)}"
        )
    table = boundary_evidence([[0.0], [0.0], [1.0], [1.0]], ["x", "x", "y", "y"])
    assert len(table) == 1 and np.isnan(table.evidence[0]) and np.isnan(table.valley[0])
    assert table.verdict.tolist() == ["unclear"]
    assert str(table).splitlines()[-1] == "x | y        4           1       nan     nan  unclear"
    assert len(boundary_evidence([[3.0]], [0])) == 0


@pytest.mark.parametrize("unit", [1.0, 1e-7, 1e9])
@pytest.mark.parametrize("weighted", [False, True])
def test_merge_cost(unit, weighted):
    """By how much the sum of squares about the means grows, from its definition."""

    def squares(rows):
        X, w = unit * MOONS[rows], weight[rows]
        return w @ np.square(X - w @ X / w.sum()).sum(axis=1)

    weight = np.random.default_rng(0).integers(1, 4, 2000).astype(float)
    if not weighted:
        weight = np.ones(2000)
    table = boundary_evidence(unit * MOONS, SIX, sample_weight=weight if weighted else None)
    assert len(table) > 5
    for (a, b), cost in zip(table.clusters, table.merge_cost, strict=True):
        grown = squares((a == SIX) | (b == SIX)) - squares(a == SIX) - squares(b == SIX)
        np.testing.assert_allclose(cost, grown, rtol=1e-9)
    assert table.to_frame()["merge_cost"].tolist() == table.merge_cost.tolist()


def test_merge_cost_is_the_penalty_at_which_a_path_merges():
    path = cluster_path([[0.0], [0.2], [1.0], [1.3], [9.0], [9.5]])
    for k in (2, 3):
        table = boundary_evidence([[0.0], [0.2], [1.0], [1.3], [9.0], [9.5]], path.labels(k))
        cost = (
            path.inertia[list(path.counts).index(k - 1)] - path.inertia[list(path.counts).index(k)]
        )
        np.testing.assert_allclose(table.merge_cost.min(), cost)


@pytest.mark.parametrize(("gap", "verdict"), [(0.0, "none"), (2.8, "unclear"), (5.0, "gap")])
def test_verdicts(gap, verdict):
    rng = np.random.default_rng(3)
    x = np.append(rng.normal(size=300), gap + rng.normal(size=300))[:, None]
    table = boundary_evidence(x, (x[:, 0] > gap / 2).astype(int))
    assert table.verdict.tolist() == [verdict]
    assert (table.evidence[0] > 0) == (verdict != "none")
    assert (table.evidence[0] >= 3) == (verdict == "gap")


def test_the_printed_table():
    lines = str(boundary_evidence(MOONS, np.array(["left", "r"])[TRUTH])).splitlines()
    assert lines[0] == "1 boundary of 2 clusters"
    assert lines[1] == "clusters   rows  merge cost  evidence  valley  verdict"
    assert lines[2].startswith("left | r  2,000 ") and lines[2].endswith("  none")
    many = KMeans(40, n_init=1, random_state=0).fit_predict(MOONS)
    table = boundary_evidence(MOONS, many)
    lines = str(table).splitlines()
    assert len(lines) == 43 and lines[-1] == f"... {len(table) - 40} more"
    assert repr(table) == str(table)


def test_frame():
    pytest.importorskip("pandas")
    table = boundary_evidence(MOONS, SIX)
    frame = table.to_frame()
    assert list(frame) == [
        "first",
        "second",
        "n_rows",
        "merge_cost",
        "evidence",
        "valley",
        "verdict",
    ]
    np.testing.assert_array_equal(frame[["first", "second"]], table.clusters)
    np.testing.assert_array_equal(frame["evidence"], table.evidence)
    assert (frame.query("verdict == 'gap'")["evidence"] >= 3).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((MOONS, SIX[:-1]), r"labels must have shape \(2000,\)"),
        ((MOONS, np.where(SIX == 0, np.nan, SIX)), "labels must not be missing, got nan"),
        ((MOONS, [None] * 2000), "labels must not be missing"),
        ((MOONS[:2], [[1], [2, 3]]), "labels must have shape"),
        ((MOONS, np.zeros((2000, 2))), "labels must have shape"),
        ((np.full((10, 2), np.nan), np.zeros(10)), "NaN"),
        ((MOONS[0], SIX[:2]), "2D array"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        boundary_evidence(*arguments)


def test_bad_options():
    with pytest.raises(ValueError, match="n_threads"):
        boundary_evidence(MOONS, SIX, n_threads=0)
    with pytest.raises(ValueError, match="sample_weight must be >= 0"):
        boundary_evidence(MOONS, SIX, sample_weight=-np.ones(2000))
    table = boundary_evidence(MOONS, SIX)
    with pytest.raises(ValueError, match="9 is none of the 6 clusters"):
        table.index_of(0, 9)
    with pytest.raises(ValueError, match="clusters 0 and 1 do not touch"):
        table.index_of(0, 1)
