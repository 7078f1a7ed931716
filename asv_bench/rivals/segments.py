"""SegmentMeans of large records: rows in no order, rows that stay in their states, given prices."""

import numpy as np
from sklearn.metrics import adjusted_rand_score

from smallvar import SegmentMeans

from . import Comparison

ROWS = 100_000, 1_000_000
COLUMNS, STATES, STAY = 16, 10, 50
UNORDERED = 5.0  # seconds for a million rows


def record(n, stay):
    """Rows, each ``stay`` in a state that is drawn, and the state of each."""
    rng = np.random.default_rng(0)
    centers = rng.uniform(-10.0, 10.0, (STATES, COLUMNS))
    truth = np.repeat(rng.integers(STATES, size=-(-n // stay)), stay)[:n]
    X = (centers[truth] + rng.standard_normal((n, COLUMNS))).astype(np.float32)
    return X, truth


def quality(truth):
    """The number of states, the agreement with the true ones, and the objective."""

    def told(model):
        index = adjusted_rand_score(truth, model.labels_)
        return f"K {model.n_clusters_} ARI {index:.3f} objective {model.objective_:.6g}"

    return told


def comparisons():
    """Yield them."""
    chosen, given = {}, {"lam": 10_000.0, "lam_switch": 20.0}
    tasks = (
        ("unordered", 1, chosen, UNORDERED),
        ("ordered", STAY, chosen, None),
        ("ordered, given prices", STAY, given, None),
    )
    for n in ROWS:
        for name, stay, prices, seconds in tasks:
            X, truth = record(n, stay)
            model = SegmentMeans(n_threads=1, **prices)
            yield Comparison(
                f"SegmentMeans {n} x {COLUMNS} {name}",
                lambda model=model, X=X: model.fit(X),
                quality=quality(truth),
                bound=None if seconds is None else seconds * n / ROWS[-1],
                turns=1,
            )
