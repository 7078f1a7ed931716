"""Swaps after a start, and the search for the best row: what the defaults of BPMeans rest on.

    SMALLVAR_DATA=folder python docs/reproductions/feature_defaults.py [--quick]

takes about three minutes and prints tables of feature_starts.rst and features_theory.rst in
docs/guide; --quick takes fewer seeds, swaps and rows. The folder may have
bp_means_tabletop_pca100.csv (see feature_quality.py) and bp_means_simulated.csv (see
docs/examples/plot_dice.py); sets that are not there are left out.
"""

import argparse
import os
import time
from pathlib import Path

import numpy as np

from smallvar import BPMeans, KFeatures

SEEDS, SWAPS = 20, (0, 5, 10, 20, 50)
ROWS, FEW = 2000, 200  # of which the second number are also encoded bit by bit


def planted(seed, n, d, k, *, noise=0.5, positive=False):
    """Rows that have each of k features at random, who has which, and the features."""
    rng = np.random.default_rng(seed)
    A = 2 * rng.standard_normal((k, d))
    A, Z = np.abs(A) if positive else A, rng.integers(2, size=(n, k))
    return Z @ A + noise * rng.standard_normal((n, d)), Z, A


def table(name, divisor=1.0):
    """A file of the folder, or None."""
    path = Path(os.environ.get("SMALLVAR_DATA", "."), name)
    return np.loadtxt(path, delimiter=",", skiprows=1) / divisor if path.exists() else None


def swaps(seeds, numbers):
    """How many of the fits reach the lowest objective of all, and their time on one thread."""
    photos, dice = table("bp_means_tabletop_pca100.csv"), table("bp_means_simulated.csv", 255)
    sets = {
        "photos": (photos, 5, 30.0),
        "dice": (dice, 4, 40.0),
        "150 x 12": (planted(0, 150, 12, 5)[0], 5, 200.0),
        "300 x 20": (planted(1, 300, 20, 8)[0], 8, 400.0),
        "1000 x 10": (planted(2, 1000, 10, 6)[0], 6, 400.0),
        "300 x 16, non-negative": (planted(3, 300, 16, 5, positive=True)[0], 5, 400.0),
    }
    for name, (X, k, lam) in sets.items():
        if X is None:
            continue
        for model in (
            KFeatures(k, n_init=10, n_threads=1),
            BPMeans(lam=lam, n_init=10, n_threads=1),
        ):
            line, objectives = f"{name:24s}{type(model).__name__:12s}", []
            seconds = []
            for number in numbers:
                model.set_params(n_swaps=number)
                begin = time.process_time()
                fits = [model.set_params(random_state=s).fit(X).objective_ for s in range(seeds)]
                seconds.append((time.process_time() - begin) / seeds)
                objectives.append(fits)
            best = np.min(objectives)
            there = np.sum(np.array(objectives) < best * (1 + 1e-6) + 1e-9, axis=1)
            print(
                line
                + "".join(f"{one:4d}" for one in there)
                + "".join(f"{one * 1e3:8.1f}" for one in seconds),
                flush=True,
            )


def bit_by_bit(X, A):
    """Rows of Z: from none set, one bit after the other, as long as any helps."""
    Z, before = np.zeros((len(X), len(A))), None
    residual = X.astype(float)
    while before is None or (before != Z).any():
        before = Z.copy()
        for k, feature in enumerate(A):
            full = residual + np.outer(Z[:, k], feature)
            Z[:, k] = full @ feature > feature @ feature / 2
            residual = full - np.outer(Z[:, k], feature)
    return Z


def search(rows, few_rows):
    """Squared errors of transform and of one bit after the other, by those of the true bits."""
    for k, d, noise, positive in (
        (8, 20, 0.5, False),
        (12, 20, 0.5, True),
        (20, 15, 0.5, False),
        (20, 40, 0.5, True),
        (30, 40, 0.5, False),
        (40, 64, 2.0, False),
        (40, 20, 0.5, False),
    ):
        X, Z, A = planted(k * d, rows, d, k, noise=noise, positive=positive)
        model = KFeatures(k, init=Z, n_threads=1).fit(X)
        model.components_ = A  # the true ones, not those of the fit
        begin = time.process_time()
        found = model.transform(X)
        seconds = time.process_time() - begin
        few, true = X[:few_rows], Z[:few_rows]
        one = np.square(few - bit_by_bit(few, A) @ A).sum() / np.square(few - true @ A).sum()
        all_ = np.square(X - found @ A).sum() / np.square(X - Z @ A).sum()
        kind = "non-negative" if positive else "normal"
        print(
            f"{k:3d} {d:3d} {noise:5.1f} {kind:13s}{one:11.2f}{all_:10.4f}"
            f"{seconds / rows * 1e6:8.1f}"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer seeds, swaps and rows")
    quick = parser.parse_args().quick
    seeds, numbers = (3, SWAPS[:3]) if quick else (SEEDS, SWAPS)
    print(f"swaps: how many of {seeds} fits reach the lowest objective, then CPU ms a fit")
    titles = "".join(f"{n:4d}" for n in numbers) + "".join(f"{n:8d}" for n in numbers)
    print(f"{'set':24s}{'estimator':12s}{titles}")
    swaps(seeds, numbers)
    print("\nsquared errors, those of the true assignments being 1, and CPU microseconds a row")
    print(f"  K   d noise {'features':13s}{'bit by bit':>11s}{'transform':>10s}{'us':>8s}")
    search(*(50, 10) if quick else (ROWS, FEW))


if __name__ == "__main__":
    main()
