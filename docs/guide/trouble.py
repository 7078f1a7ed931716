"""Pictures of the page on trouble: what one sees on the left, and on the right what helps."""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_blobs, make_moons
from sklearn.preprocessing import scale

from smallvar import DPMeans, MahalanobisMeans, RobustDPMeans, ShapeMeans

COLORS = np.array(plt.get_cmap("tab20").colors)[np.r_[0:20:2, 1:20:2]]


def draw(X, seen, better, aspect="equal"):
    """Two pictures of the same rows, each with a title and the estimator whose labels it shows."""
    _, axes = plt.subplots(1, 2, figsize=(7.0, 2.7), sharex=True, sharey=True)
    for ax, (title, labels) in zip(axes, (seen, better), strict=True):
        color = np.where(labels[:, None] < 0, 0.75, COLORS[labels % 20])
        ax.scatter(*X.T, s=6, c=color)
        ax.set(xticks=[], yticks=[], title=title, aspect=aspect)
    axes[0].title.set_color("#b00020")
    axes[1].title.set_color("#00713a")
    return axes


def groups():
    """Seven groups, as in the examples of the page."""
    return make_blobs(
        [300, 200, 150, 100, 60, 40, 30],
        cluster_std=1.2,
        random_state=0,
        centers=[(0, 0), (7, 1), (3, 6), (-5, 5), (9, 8), (-6, -4), (4, -5)],
    )[0]


def quiet(model, X):
    """Labels of a fit whose warnings the page tells of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(X).labels_


def unscaled():
    """Four groups of people: of two heights in meters, and of two incomes."""
    centers = [(1.6, 20_000), (1.85, 20_000), (1.6, 50_000), (1.85, 50_000)]
    rng = np.random.default_rng(0)
    people = np.repeat(centers, 100, axis=0) + rng.normal(size=(400, 2)) * [0.04, 4000]
    wrong = quiet(DPMeans(random_state=0), people)
    right = quiet(DPMeans(random_state=0), scale(people))
    axes = draw(people, ("DPMeans() of rows as they are", wrong), ("of scaled rows", right), "auto")
    axes[0].set(xlabel="height in meters", ylabel="income")
    axes[1].set(xlabel="height in meters")


def one_for_all():
    """The seven groups, with a penalty that only a merge path reaches."""
    X = groups()
    wrong = quiet(DPMeans(lam=500), X)
    draw(X, ("DPMeans(lam=500)", wrong), ("DPMeans()", quiet(DPMeans(random_state=0), X)))


def one_for_two():
    """Two groups that overlap, three standard deviations apart."""
    group = np.repeat([0, 1], [160, 80])
    X = np.random.default_rng(0).normal(size=(240, 2))
    X[:, 0] += 3 * group
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = DPMeans(random_state=0).fit(X).path_
    title = f"{path.best} cluster, confidence {path.confidence:.2f}"
    draw(X, (title, path.labels(path.best)), ("path_.labels(2)", path.labels(2)))


def too_many():
    """The seven groups, with a penalty below the squared distances within them."""
    X = groups()
    wrong = quiet(DPMeans(lam=11), X)
    draw(X, ("DPMeans(lam=11)", wrong), ("DPMeans()", quiet(DPMeans(random_state=0), X)))


def long():
    """Three long groups that touch."""
    X = make_blobs(500, random_state=170)[0] @ [[0.6, -0.6], [-0.4, 0.8]]
    wrong = quiet(DPMeans(random_state=0), X)
    right = quiet(MahalanobisMeans(random_state=0), X)
    draw(X, ("DPMeans()", wrong), ("MahalanobisMeans()", right))


def bent():
    """Two moons."""
    X = make_moons(500, noise=0.05, random_state=30)[0]
    wrong = quiet(DPMeans(random_state=0), X)
    draw(X, ("DPMeans()", wrong), ("ShapeMeans()", quiet(ShapeMeans(random_state=0), X)))


def noise():
    """The seven groups, and rows that belong to none of them."""
    spread = np.random.default_rng(1).uniform(-15, 20, size=(200, 2))
    X = np.vstack([groups(), spread])
    wrong = quiet(DPMeans(random_state=0), X)
    draw(X, ("DPMeans()", wrong), ("RobustDPMeans()", quiet(RobustDPMeans(random_state=0), X)))
