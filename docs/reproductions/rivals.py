"""What a user might take instead: NMF for features, a Kalman tracker for clusters that move.

    SMALLVAR_DATA=folder python docs/reproductions/rivals.py [--quick] [features] [tracks]

prints a table for each, with --quick of the first two sets. The other tables of this kind are made
by defaults.py (mixtures, Leiden) and asv_bench/known_k.py --rivals (HDBSCAN, KMeans, mixtures).
Sets that need files are left out without them."""

import argparse
import os
import time
import warnings
from itertools import islice
from pathlib import Path

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from sklearn.decomposition import NMF
from sklearn.metrics import normalized_mutual_info_score

from smallvar import BPMeans, DPMeans, DynamicMeans

DATA = Path(os.environ.get("SMALLVAR_DATA", "."))


# Features


def pictures(seed, n_objects, n=200, side=12, noise=0.1):
    """Sums of objects that may overlap, and which are in which."""
    rng = np.random.default_rng(seed)
    objects = rng.random((n_objects, side * side)) < 0.15
    Z = rng.integers(2, size=(n, n_objects))
    return Z @ objects + noise * rng.standard_normal((n, side * side)), Z


def signed(seed, k, n=300, d=20, noise=0.5):
    """Sums of features that may be negative."""
    rng = np.random.default_rng(seed)
    Z = rng.integers(2, size=(n, k))
    return Z @ (2 * rng.standard_normal((k, d))) + noise * rng.standard_normal((n, d)), Z


def dice():
    """The pictures of Broderick, Kulis and Jordan (2013): which of four dice are in each."""
    X = np.loadtxt(DATA / "bp_means_simulated.csv", delimiter=",", skiprows=1) / 255
    _, combination = np.unique(X, axis=0, return_inverse=True)
    return X, (combination.ravel()[:, None] >> np.arange(4)) & 1


def right_entries(Z, loadings):
    """Share of the entries of Z that the best matching of its columns finds, and how many columns.

    A loading counts as "has it" above half of its column's 95th percentile.
    """
    found = loadings > np.quantile(loadings, 0.95, axis=0) / 2
    same = (Z[:, :, None] == found[:, None, :]).mean(axis=0)
    rows, columns = linear_sum_assignment(-same)
    missing = Z.shape[1] - len(rows)  # a feature that is not found: as if nobody had it
    return (same[rows, columns].sum() + missing * (1 - Z.mean())) / Z.shape[1]


def features(most):
    """BPMeans() against NMF, given the number."""
    sets = {f"pictures, {k} objects": pictures(k, k) for k in (3, 5, 8)}
    sets |= {f"signed, {k} features": signed(k, k) for k in (4, 6)}
    if (DATA / "bp_means_simulated.csv").exists():
        sets["pictures of dice"] = dice()
    print(f"{'data':22s} {'method':16s} {'found':>5s} {'true':>5s} {'entries':>8s} {'error':>7s} s")
    for name, (X, Z) in islice(sets.items(), most):
        k = Z.shape[1]
        least = X - np.minimum(X.min(), 0.0)  # NMF takes no negative numbers
        for method in ("BPMeans()", f"NMF({k})"):
            begin = time.perf_counter()
            if method == "BPMeans()":
                model = BPMeans(random_state=0).fit(X)
                loadings = model.assignments_.astype(float)
                error = ((X - loadings @ model.components_) ** 2).sum()
            else:
                model = NMF(k, init="nndsvda", max_iter=2000, random_state=0)
                loadings = model.fit_transform(least)
                error = ((least - loadings @ model.components_) ** 2).sum()
            seconds = time.perf_counter() - begin
            share = error / ((X - X.mean(axis=0)) ** 2).sum()
            print(
                f"{name:22s} {method:16s} {len(model.components_):5d} {k:5d} "
                f"{right_entries(Z, loadings):8.3f} {share:7.4f} {seconds:.2f}"
            )


# Clusters that move


class KalmanTracker:
    """Constant-velocity Kalman filters, one a track, matched to detections by the Hungarian method.

    A detection beyond ``gate`` of every track begins one; a track unseen for ``patience`` steps
    ends. ``noise`` is the standard deviation of a detection, ``jolt`` of the change of velocity.
    """

    def __init__(self, gate, noise, jolt, patience=3):
        self.gate, self.noise, self.jolt, self.patience = gate, noise, jolt, patience

    def fit(self, X, times):
        """Track of each row."""
        d = X.shape[1]
        move = np.block([[np.eye(d), np.eye(d)], [np.zeros((d, d)), np.eye(d)]])
        see = np.hstack([np.eye(d), np.zeros((d, d))])
        drift = self.jolt**2 * np.block(
            [[np.eye(d) / 4, np.eye(d) / 2], [np.eye(d) / 2, np.eye(d)]]
        )
        blur = self.noise**2 * np.eye(d)
        labels, tracks, number = np.empty(len(X), dtype=int), [], 0
        for step in np.unique(times):
            rows = np.flatnonzero(times == step)
            for track in tracks:
                track["state"] = move @ track["state"]
                track["cov"] = move @ track["cov"] @ move.T + drift
                track["unseen"] += 1
            taken = np.full(len(rows), -1)
            if tracks:
                distance = cdist(X[rows], np.array([t["state"][:d] for t in tracks]))
                cost = np.minimum(distance, 1e6)
                for r, t in zip(*linear_sum_assignment(cost), strict=True):
                    if distance[r, t] <= self.gate:
                        taken[r] = t
            for r, t in enumerate(taken):
                if t >= 0:
                    track = tracks[t]
                    gain = track["cov"] @ see.T @ np.linalg.inv(see @ track["cov"] @ see.T + blur)
                    track["state"] = track["state"] + gain @ (X[rows[r]] - see @ track["state"])
                    track["cov"] = track["cov"] - gain @ see @ track["cov"]
                    track["unseen"] = 0
                    labels[rows[r]] = track["name"]
                else:
                    spread = np.diag([self.noise**2] * d + [self.gate**2 / 4] * d)
                    state = np.r_[X[rows[r]], np.zeros(d)]
                    new = {"state": state, "cov": spread, "unseen": 0, "name": number}
                    tracks.append(new)
                    labels[rows[r]] = number
                    number += 1
            tracks = [t for t in tracks if t["unseen"] <= self.patience]
        self.labels_ = labels
        return self


class ClusteredTracker:
    """What a tracker needs where an object is many rows: the centers of each step, by DPMeans."""

    def __init__(self, lam, tracker):
        self.lam, self.tracker = lam, tracker

    def fit(self, X, times):
        """Track of each row."""
        owner, centers, steps = np.empty(len(X), dtype=int), [], []
        for step in np.unique(times):
            rows = times == step
            model = DPMeans(lam=self.lam, algorithm="delayed").fit(X[rows])
            owner[rows] = len(steps) + model.labels_
            centers.append(model.cluster_centers_)
            steps += [step] * model.n_clusters_
        self.labels_ = self.tracker.fit(np.vstack(centers), np.array(steps)).labels_[owner]
        return self


def flights(seed, n_tracks, n_steps, rows, spread=0.3):
    """Straight tracks that come and go in a square of 40, seen by ``rows`` rows in each step."""
    rng = np.random.default_rng(seed)
    X, times, names = [], [], []
    for name in range(n_tracks):
        begin = rng.integers(0, n_steps // 2)
        end = rng.integers(begin + 5, n_steps + 1)
        place, speed = rng.uniform(0, 40, size=2), rng.normal(scale=0.4, size=2)
        for step in range(begin, end):
            center = place + speed * (step - begin)
            X.append(center + spread * rng.standard_normal((rows, 2)))
            times += [step] * rows
            names += [name] * rows
    return np.vstack(X), np.array(times), np.array(names)


def aircraft():
    """As in the gallery: kilometers east, north and, ten times, up; seconds; aircraft."""
    table = np.genfromtxt(DATA / "adsb_quickstart_20s.csv", delimiter=",", names=True)
    table = table[(table["groundspeed"] > 80) & (table["altitude"] < 50_000)]
    east = (table["longitude"] - 2.35) * 111.3 * np.cos(np.radians(48.86))
    north = (table["latitude"] - 48.86) * 111.2
    X = np.column_stack([east, north, 0.003048 * table["altitude"]])
    return X, (table["seconds"] // 20).astype(int), table["id"].astype(int)


def tracks(most):
    """DynamicMeans against a Kalman tracker; both are given the same distances."""
    sets = {
        "12 tracks, 1 row": (*flights(0, 12, 60, 1), 1.5),
        "12 tracks, 5 rows": (*flights(1, 12, 60, 5), 1.5),
        "12 tracks, 50 rows": (*flights(2, 12, 60, 50), 1.5),
        "30 tracks, 20 rows": (*flights(3, 30, 60, 20), 1.5),
    }
    if (DATA / "adsb_quickstart_20s.csv").exists():
        sets["aircraft"] = (*aircraft(), 5.7)
    print(f"{'data':20s} {'method':14s} {'tracks':>6s} {'true':>5s} {'NMI':>6s} {'s':>7s}")
    for name, (X, times, truth, reach) in islice(sets.items(), most):
        single = name == "aircraft"
        lam = 4.0 if single else reach**2
        models = {
            "DynamicMeans": DynamicMeans(
                lam=lam, t_q=3, k_tau=reach**2 / lam + 1e-9 if single else 2.0, random_state=0
            ),
            "Kalman": KalmanTracker(reach, 0.5 if single else 0.3, 1.0 if single else 0.1),
        }
        if np.max(np.unique(np.c_[times, truth], axis=0, return_counts=True)[1]) > 1:
            models["DPMeans+Kalman"] = ClusteredTracker(lam, models["Kalman"])
        for method, model in models.items():
            begin = time.perf_counter()
            labels = model.fit(X, times=times).labels_
            seconds = time.perf_counter() - begin
            print(
                f"{name:20s} {method:14s} {len(np.unique(labels)):6d} {len(np.unique(truth)):5d} "
                f"{normalized_mutual_info_score(truth, labels):6.3f} {seconds:7.2f}"
            )


def main():
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("table", nargs="*", default=["features", "tracks"])
    parser.add_argument("--quick", action="store_true", help="the first two sets of each")
    options = parser.parse_args()
    for table in options.table:
        print(globals()[table].__doc__)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            globals()[table](2 if options.quick else None)


if __name__ == "__main__":
    main()
