"""A time step of 200 points: no other package has these estimators, so the bounds are seconds."""

from itertools import cycle

import numpy as np
from sklearn.metrics import normalized_mutual_info_score

from smallvar import DynamicMeans, KernelDynamicMeans, SpectralDynamicMeans

from . import Comparison

POINTS, STEPS, CLUSTERS = 200, 40, 10
FIRST = 12  # steps before those that are timed: kept points have filled their budget


def stream():
    """Batches without end, of clusters that go round in circles, and the cluster of each row."""
    rng = np.random.default_rng(0)
    middle = 4.0 * np.column_stack([np.arange(CLUSTERS) % 4, np.arange(CLUSTERS) // 4])
    truth = np.arange(POINTS) % CLUSTERS
    batches = []
    for angle in 2 * np.pi * np.arange(STEPS) / STEPS:
        centers = middle + np.array([np.cos(angle), np.sin(angle)])
        batches.append(centers[truth] + 0.4 * rng.standard_normal((POINTS, 2)))
    return cycle(batches), truth


def step_of(model):
    """A function that takes in the next step, and returns how good it is."""
    batches, truth = stream()
    for _ in range(FIRST):
        model.partial_fit(next(batches))
    return lambda: (model.partial_fit(next(batches)), truth)


def quality(result):
    """NMI with the clusters that the step was drawn from, clusters seen, objective."""
    model, truth = result
    agreement = normalized_mutual_info_score(truth, model.labels_)
    found = len(np.unique(model.labels_))
    return f"(NMI {agreement:.3f}, K {found}, objective {model.objective_:.4g})"


def comparisons():
    """Yield a step of each estimator."""
    yield Comparison(
        "DynamicMeans, step of 200 points",
        step_of(DynamicMeans(lam=4.0, random_state=0)),
        quality=quality,
        bound=0.4e-3,
        calls=40,
    )
    yield Comparison(
        "KernelDynamicMeans, step of 200 points",
        step_of(KernelDynamicMeans(lam=1.0, gamma=0.5, random_state=0)),
        quality=quality,
        bound=20e-3,
        calls=4,
    )
    yield Comparison(
        "SpectralDynamicMeans, step of 200 points",
        step_of(SpectralDynamicMeans(lam=6.0, gamma=0.5, random_state=0)),
        quality=quality,
        bound=40e-3,
        calls=4,
    )
