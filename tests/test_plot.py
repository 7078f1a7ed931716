"""Displays: what is in the artists, axes that are given, many points and clusters, bad input."""

import inspect
import re
import sys
from functools import partial

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

import smallvar
from smallvar import (
    ClusterDisplay,
    DPMeans,
    DynamicMeans,
    FeatureDisplay,
    KernelDPMeans,
    KernelDynamicMeans,
    KFeatures,
    MixedDPMeans,
    PathDisplay,
    ProfileDisplay,
    TrackDisplay,
    cluster_path,
    cut_path,
    feature_path,
)
from smallvar._plot.base import cluster_colors

pytest.importorskip("matplotlib")
import matplotlib

matplotlib.use("agg")
from matplotlib import pyplot

RNG = np.random.default_rng(0)
X3 = np.repeat([[0.0, 0.0], [20.0, 0.0], [0.0, 20.0]], 30, axis=0) + RNG.normal(size=(90, 2))
TRUTH = np.repeat([0, 1, 2], 30)
CLIQUES = np.kron(np.eye(3), np.ones((5, 5))) - np.eye(15)
CLIQUES[0, 5] = CLIQUES[5, 0] = CLIQUES[5, 10] = CLIQUES[10, 5] = 1.0


@pytest.fixture(autouse=True)
def closed():
    pyplot.close("all")
    yield
    pyplot.close("all")


# two clusters that move; the second ends after step 1 and is forgotten in step 3
STEPS = [
    *((t, t, y) for t in range(6) for y in (0.0, 0.2)),
    *((t, 50 + t / 5, t) for t in (0, 0, 1, 1)),
]
TIMES, X2 = np.array(STEPS)[:, 0].astype(int), np.array(STEPS)[:, 1:]
MOVING = DynamicMeans(lam=10.0, t_q=2.0, k_tau=2.0).fit(X2, times=TIMES)
PATH = cluster_path(X3, random_state=0)
BINARY = KFeatures(2, n_init=1, random_state=0).fit(X3)
MIXED = MixedDPMeans(n_clusters=2, random_state=0).fit(X3)
DRAW = {  # one call for each display
    "clusters": partial(ClusterDisplay.from_predictions, X3, TRUTH),
    "path": partial(PathDisplay.from_path, PATH),
    "features": partial(FeatureDisplay.from_estimator, BINARY),
    "tracks": partial(TrackDisplay.from_estimator, MOVING, X2, times=TIMES),
    "profiles": partial(ProfileDisplay.from_estimator, MIXED),
}


@pytest.mark.parametrize("display", [name for name in smallvar.__all__ if name.endswith("Display")])
def test_docstring_has_the_parameters(display):
    """They are fields of a data class, which numpydoc's linter does not see."""
    docscrape, display = pytest.importorskip("numpydoc.docscrape"), getattr(smallvar, display)
    described = [
        name for one in docscrape.ClassDoc(display)["Parameters"] for name in one.name.split(", ")
    ]
    assert described == list(inspect.signature(display).parameters)


@pytest.mark.parametrize("draw", DRAW.values(), ids=DRAW)
def test_axes_are_made_or_used(draw):
    display = draw()
    assert pyplot.get_fignums() == [display.figure_.number]
    assert display.ax_.get_figure() is display.figure_
    display.figure_.canvas.draw()
    figure, (left, right) = pyplot.subplots(1, 2, layout="constrained")
    display = draw(ax=right)
    assert display.ax_ is right and display.figure_ is figure
    assert not left.has_data()
    assert display.plot(left) is display and display.ax_ is left
    figure.canvas.draw()
    place = right.get_subplotspec().get_position(figure)
    for axes in getattr(display, "axes_", []):  # again, in the place of the left axes
        assert axes.get_position().x1 <= place.x0 + 0.02
    assert len(pyplot.get_fignums()) == 2


@pytest.mark.parametrize("draw", DRAW.values(), ids=DRAW)
def test_axes_that_are_none_and_matplotlib_that_is_not_there(draw, monkeypatch):
    with pytest.raises(TypeError, match="ax must be Axes of matplotlib or None, got"):
        draw(ax="here")
    for module in [m for m in sys.modules if m.partition(".")[0] == "matplotlib"]:
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=r"Display needs matplotlib \(pip install matplotlib\)"):
        draw()


def predicted(**options):
    return ClusterDisplay.from_predictions(**{"X": X3, "labels": TRUTH} | options)


CLUSTERS, FEATURES = ClusterDisplay.from_estimator, FeatureDisplay.from_estimator
TRACKS, PATHS = TrackDisplay.from_estimator, PathDisplay.from_path
GRAM = KernelDPMeans(lam=5.0, kernel="precomputed").fit(np.eye(4))
KERNEL = KernelDynamicMeans(lam=10.0).fit(X3, times=TRUTH)
FLAT = DynamicMeans(lam=1.0).fit(X2[:, :1], times=TIMES)
ONE = {"components": np.ones((1, 2)), "assignments": np.ones((3, 2))}
LINE = {"tracks": {0: np.array([[0, 1.0], [1, 2.0]])}, "times": np.arange(2)}


@pytest.mark.parametrize(
    ("message", "draw"),
    [
        ("labels must be of shape (90,), one for each row", lambda: predicted(labels=[0] * 5)),
        ("labels must be integers, got float64", lambda: predicted(labels=TRUTH / 2)),
        ("centers must be of shape (n_clusters, 2)", lambda: predicted(centers=X3[:3, :1])),
        ("labels must be < 2, the number of centers", lambda: predicted(centers=X3[:2])),
        ("centers must be finite", lambda: predicted(centers=X3[:3] * np.inf)),
        ("feature_names must be 2 names, one a column", lambda: predicted(feature_names=["a"])),
        ("Expected 2D array", lambda: predicted(X=X3[0])),
        ("NaN", lambda: predicted(X=X3 * np.nan)),
        ("this DPMeans has no labels_", lambda: CLUSTERS(DPMeans(), X3)),
        ("this KFeatures has no labels_", lambda: CLUSTERS(BINARY, X3)),
        ("X must be the 90 rows", lambda: CLUSTERS(DPMeans(lam=9.0).fit(X3), X3[:4])),
        ("got a precomputed kernel: draw it by imshow", lambda: CLUSTERS(GRAM, np.eye(4))),
        ("got MixedDPMeans: draw its clusters by Profile", lambda: CLUSTERS(MIXED, X3)),
        ("path must be what cluster_path, feature_path", lambda: PATHS([1])),
        ("panels must be some of", lambda: PATHS(cut_path(CLIQUES, [-0.5]), panels=["errors"])),
        ("shape must be of 2 numbers, as many", lambda: FEATURES(BINARY, shape=(2, 2))),
        ("shape must be height and width, got 2", lambda: FEATURES(BINARY, shape=2)),
        ("this KFeatures has no features", lambda: FEATURES(KFeatures(2))),
        ("assignments must have 1 columns", lambda: FeatureDisplay(**ONE).plot()),
        ("this DynamicMeans has no tracks_", lambda: TRACKS(DynamicMeans())),
        ("KernelDynamicMeans has no centers that could", lambda: TRACKS(KERNEL)),
        ("point_times must be given", lambda: TrackDisplay(**LINE, points=X3[:, :1]).plot()),
        ("tracks must have at least one", lambda: TrackDisplay(**LINE | {"tracks": {}}).plot()),
        ("times must have shape (16,), got (3,)", lambda: TRACKS(MOVING, X2, times=[1, 2, 3])),
        ("X must be the 16 rows", lambda: TRACKS(MOVING, X2[:3], times=TIMES[:3])),
        ("X must have 2 columns, got 1", lambda: TRACKS(MOVING, X2[:, :1], times=TIMES)),
        ("times must be None without X", lambda: TRACKS(MOVING, times=TIMES)),
        ("times must be given with X: one column", lambda: TRACKS(FLAT, X2[:, :1])),
    ],
)
def test_bad_input(message, draw):
    with pytest.raises((ValueError, TypeError, NotFittedError), match=re.escape(message)):
        draw()


# Clusters


BEST = "direction that separates the clusters best"


def test_clusters_in_the_plane():
    model = DPMeans(random_state=0).fit(X3)
    display = ClusterDisplay.from_estimator(model, X3)
    points, centers = (np.asarray(c.get_offsets()) for c in display.ax_.collections)
    assert np.array_equal(np.sort(points, axis=0), np.sort(X3, axis=0))
    assert np.array_equal(centers, model.cluster_centers_)
    assert display.sizes.tolist() == np.bincount(model.labels_).tolist() == [30, 30, 30]
    assert [t.get_text() for t in display.ax_.texts] == ["0", "1", "2"]
    legend = [t.get_text() for t in display.ax_.get_legend().get_texts()]
    assert legend == ["0: 30", "1: 30", "2: 30"]
    assert display.ax_.get_title() == "3 clusters, clear (0.98)\n90 rows, clusters of 30 rows each"
    assert (display.ax_.get_xlabel(), display.ax_.get_ylabel()) == ("column 0", "column 1")
    for point, color in zip(points, display.ax_.collections[0].get_facecolors(), strict=True):
        label = model.labels_[(point == X3).all(axis=1)][0]
        assert np.allclose(color[:3], cluster_colors(3)[label])


def test_labels_without_centers_stand_at_a_row_of_theirs():
    labels = np.array([5, 7, -1])[TRUTH]
    display = ClusterDisplay.from_predictions(X3, labels, feature_names=["a", "$b_{"])
    assert [t.get_text() for t in display.ax_.texts] == ["5", "7"]
    for name, mark in zip((5, 7), display.centers, strict=True):
        rows = X3[labels == name]
        distance = ((rows - rows.mean(axis=0)) ** 2).sum(axis=1)
        assert np.array_equal(mark, rows[distance.argmin()])
    assert "30 in none" in display.ax_.get_title()
    legend = display.ax_.get_legend().get_texts()
    assert [t.get_text() for t in legend] == ["5: 30", "7: 30"]  # no noise
    display.figure_.canvas.draw()


def test_discriminant_axes_separate_clusters_that_principal_components_do_not():
    rng = np.random.default_rng(0)
    truth = np.arange(300) % 3
    X = rng.normal(size=(300, 8)) * np.r_[30.0, 20.0, np.ones(6)]  # wide in two columns, and
    X[:, 4:6] += 8 * np.array([[0, 0], [1, 0], [0, 1]])[truth]  # apart in two others
    centers = np.array([X[truth == k].mean(axis=0) for k in range(3)])
    display = ClusterDisplay.from_predictions(X, truth, centers=centers)
    assert re.fullmatch(rf"{BEST} \(\d+% of the separation\)", display.axis_titles[0])
    for k in range(3):
        own = display.points[truth == k]
        assert own.mean(axis=0) == pytest.approx(display.centers[k], abs=1e-9)
        # a standard deviation of 1 within clusters
        assert own.std(axis=0) == pytest.approx(1.0, abs=0.2)
    nearest = ((display.points[:, None] - display.centers) ** 2).sum(axis=2).argmin(axis=1)
    assert (nearest == truth).mean() > 0.99


def test_discriminant_axis_of_two_clusters_and_where_there_is_none():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4)) * [1, 1, 1, 5]
    X[:30, 0] += 12
    truth = np.repeat([0, 1], 30)
    display = ClusterDisplay.from_predictions(X, truth)
    assert display.axis_titles == (BEST, "first principal component of the rest")
    along = display.points[:, 0]
    assert max(along[:30].max(), -along[30:].min()) < 0 or min(along[:30]) > max(along[30:])
    assert abs(np.corrcoef(display.points[:, 1], X[:, 3])[0, 1]) > 0.99
    for labels in (np.zeros(60, int), np.full(60, -1), np.arange(60)):
        display = ClusterDisplay.from_predictions(X, labels)
        assert re.fullmatch(
            r"first principal component \(\d+% of the variance\)", display.axis_titles[0]
        )
        variances = np.linalg.eigvalsh(np.cov(X.T))[::-1]
        assert np.var(display.points, axis=0, ddof=1) == pytest.approx(variances[:2])
    # equal rows, constant and repeated columns, and more columns than rows
    wide = np.hstack([X, rng.normal(size=(60, 200))])
    for Z in (np.ones((60, 4)), np.column_stack([X, X, np.ones(60)]), wide):
        assert np.isfinite(ClusterDisplay.from_predictions(Z, truth).points).all()


def test_many_points_and_clusters():
    labels = np.arange(200_000) % 300
    X = np.column_stack([labels % 20, labels // 20]) + 0.1 * RNG.normal(size=(200_000, 2))
    display = ClusterDisplay.from_predictions(X, labels)
    assert len(display.points) == 50_000
    assert display.ax_.get_title().startswith("300 clusters\n200,000 rows, 50,000 of them drawn")
    assert display.sizes.sum() == 200_000 and display.ax_.get_legend() is None


# Paths


def test_path_of_clusters():
    path, display = PATH, PathDisplay.from_path(PATH)
    above, middle, below = display.axes_
    assert np.array_equal(middle.lines[0].get_xydata(), np.c_[path.counts, path.error])
    known = np.isfinite(path.criterion)
    behind = (path.criterion - path.criterion.min())[known]
    assert np.array_equal(above.lines[0].get_xydata(), np.c_[path.counts[known], behind])
    chosen = below.collections[1].get_segments()[0]
    i = path.best - 1
    assert chosen.tolist() == [[3, path.lam_low[i]], [3, path.lam_high[i]]]
    assert below.get_xlabel() == "K, number of clusters" and not above.get_xlabel()
    assert len(PathDisplay.from_path(path, panels=["ranges"]).axes_) == 1


def test_path_of_features_and_cuts():
    ranges = PathDisplay.from_path(feature_path(X3, 4, random_state=0)).axes_[-1]
    assert ranges.get_xlabel() == "K, number of features" and ranges.get_yscale() == "log"
    cuts = cut_path(CLIQUES, random_state=0)
    assert cuts.best == 3
    error, ranges = PathDisplay.from_path(cuts, panels=["error", "ranges"]).axes_
    assert np.array_equal(error.lines[0].get_xydata(), np.c_[cuts.counts, cuts.cut])
    assert ranges.get_yscale() == "linear"
    (best,) = ranges.collections[-1].get_segments()
    i = cuts.counts.tolist().index(3)
    assert best.tolist() == [[3, cuts.lam_low[i]], [3, cuts.lam_high[i]]]


def test_paths_with_nothing_to_choose():
    for path in (
        cluster_path(np.ones((4, 2)), random_state=0),
        feature_path(np.zeros((4, 2)), 1, random_state=0),
        cut_path(np.zeros((3, 3))),
        cut_path(CLIQUES, [-0.5]),
    ):
        for panels in (None, ["error"], ["ranges"]):
            PathDisplay.from_path(path, panels=panels).figure_.canvas.draw()
            pyplot.close("all")


# Features


@pytest.mark.parametrize("shape", [None, (2, 3)])
def test_features(shape):
    X = RNG.normal(size=(40, 6))
    model = KFeatures(3, n_init=1, random_state=0).fit(X)
    display = FeatureDisplay.from_estimator(model, shape=shape)
    *panels, last = display.axes_
    assert len(panels) == 3
    for component, axes in zip(model.components_, panels, strict=True):
        drawn = [bar.get_height() for bar in axes.patches]
        if shape:
            drawn = axes.images[0].get_array().ravel()
        assert np.array_equal(drawn, component)
    Z = np.asarray(last.images[0].get_array())
    assert np.array_equal(Z, sorted(map(tuple, model.assignments_), reverse=True))


# Tracks


def test_tracks_in_the_plane():
    display = TrackDisplay.from_estimator(MOVING, X2, times=TIMES)
    points, _gaps, lines, begins, ends = display.ax_.collections
    assert len(points.get_offsets()) == len(X2)
    assert len(lines.get_segments()) == 5 + 1
    for marks, i in ((begins, 0), (ends, -1)):
        expected = [track[i, 1:3] for track in MOVING.tracks_.values()]
        assert np.array_equal(np.asarray(marks.get_offsets()), expected)
    assert [t.get_text() for t in display.ax_.texts] == ["0", "1"]
    faces = ends.get_facecolors()[:, 0]
    assert faces[0] == 1.0 and faces[1] < 1.0  # the second was forgotten
    assert "2 clusters, 1 forgotten" in display.ax_.get_title()


@pytest.mark.parametrize("kind", ["dates", "durations", "names", "categories"])
def test_tracks_over_times_of_other_kinds(kind):
    """Rows and tracks are drawn at the step of their time, whatever it is."""
    pd = pytest.importorskip("pandas")
    X, times = X2, TIMES
    levels = [f"week {t}" for t in range(6)]
    given = {
        "dates": np.datetime64("2026-01-01") + times,
        "durations": times.astype("timedelta64[m]"),
        "names": np.array(levels)[times],
        "categories": pd.Categorical(np.array(levels[::-1])[times], levels[::-1], ordered=True),
    }[kind]
    place = {"dates": times + 20454.0, "durations": 60.0 * times}.get(kind, times)
    model = DynamicMeans(lam=10.0, t_q=2.0, k_tau=2.0).fit(X[:, :1], times=given)
    display = TrackDisplay.from_estimator(model, X[:, :1], times=given)
    drawn = np.asarray(display.ax_.collections[0].get_offsets())
    assert drawn[:, 0] == pytest.approx(place)
    if kind == "names":
        assert [t.get_text() for t in display.ax_.get_xticklabels()] == levels
    display.figure_.canvas.draw()
