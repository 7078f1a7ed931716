"""Fifty small data sets that share clusters: section 6.3 of Kulis and Jordan (2012).

    python docs/reproductions/hdp_toy.py [--quick]

takes half a minute (with --quick, of 3 draws, some seconds) and prints what is shown in
docs/guide/hdp_quality.rst. A draw has 15 Gaussians with standard deviation 0.1 and means uniform in
the unit square, and 50 data sets of 5 of these with 5 points each. The paper has one draw; here are
100, from seeds 0, 1, ....

Penalties come from the farthest-first rules and the true numbers, 5 and 15, as in the paper, whose
rule for the HDP is one sentence and read as `hdp_lambdas` says. A third table has other readings.

The normalized mutual information (NMI) of true and found labels is averaged in two ways: over data
sets, which is what the paper describes, and over all points at once, where clusters of separate
fits are all different, as nothing says which of them belong together. Only the second sees whether
clusters are shared. NMI is the mutual information divided by the mean of both entropies. Some
divide by the smaller of both ("by min"), which favors many clusters; the paper does not say.

The second table varies the experiment, with the default penalties of `HDPMeans()` and with those of
farthest-first and the true numbers: NMI over all points, and in brackets the clusters found.

Two rows use the truth: each point gets the nearest of the 15 true means, or the nearest of the 5
true means of its data set. No method that finds the means can be expected to do better.
"""

import argparse
import time
import warnings

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.cluster import KMeans
from sklearn.metrics import normalized_mutual_info_score as nmi

from smallvar import DPMeans, HDPMeans, farthest_first_lambda, hdp_bound, hdp_lambdas

TRUE_GLOBAL, TRUE_LOCAL, SETS, POINTS, SD = 15, 5, 50, 5, 0.1
PAPER = {  # NMI, global clusters, local clusters
    "HDPMeans": (0.81, "17", "4.4"),
    "HDPMeans, 10 starts": (None, "", ""),
    "KMeans, pooled": (0.77, "15", ""),
    "KMeans, pooled, 10 starts": (None, "15", ""),
    "DPMeans, pooled": (0.73, "", ""),
    "KMeans, separate": (0.79, "", "5"),
    "DPMeans, separate": (0.79, "", ""),
    "nearest of the true means": (None, "", ""),
    "nearest of the set's means": (None, "", ""),
}
# data sets, their clusters, points of each, all clusters, columns, standard deviation
VARIED = (
    *((50, 5, 5, 15, 2, sd) for sd in (0.02, 0.05, 0.07, 0.1, 0.15)),
    *((10, 5, 5, 15, 2, 0.1), (200, 5, 5, 15, 2, 0.1), (50, 5, 10, 15, 2, 0.1)),
    *((25, 5, 20, 15, 2, 0.1), (50, 2, 8, 15, 2, 0.1), (50, 10, 5, 15, 2, 0.1)),
    *((100, 5, 5, 30, 2, 0.1), (50, 3, 5, 8, 2, 0.1)),
    *((50, 5, 5, 15, 3, 0.15), (50, 5, 5, 15, 5, 0.2), (50, 5, 5, 15, 8, 0.3)),
)
POOLED = [name for name in PAPER if "pooled" in name]


# Readings of "replace distances of points to elements of T with sums of distances of points in a
# data set to elements of T": what is added to T, whether the nearest element of T is that of each
# point or of the whole data set, and the power of the distance.
READINGS = {
    "farthest point (hdp_lambdas)": ("farthest", True, 2),
    "mean of the data set": ("mean", True, 2),
    "all points of the data set": ("all", True, 2),
    "farthest point, one element a set": ("farthest", False, 2),
    "mean, one element a set": ("mean", False, 2),
    "farthest point, not squared": ("farthest", True, 1),
    "mean, not squared": ("mean", True, 1),
}


def draw(seed):
    """Points, true clusters, the data set of each point, and labels that use the truth."""
    rng = np.random.default_rng(seed)
    means = rng.random((TRUE_GLOBAL, 2))
    truth = np.concatenate(
        [rng.permutation(TRUE_GLOBAL)[:TRUE_LOCAL].repeat(POINTS) for _ in range(SETS)]
    )
    groups = np.arange(SETS).repeat(TRUE_LOCAL * POINTS)
    X = means[truth] + SD * rng.standard_normal((len(truth), 2))
    nearest = cdist(X, means, "sqeuclidean")
    absent = np.array([~np.isin(np.arange(TRUE_GLOBAL), truth[groups == j]) for j in range(SETS)])
    oracles = {
        "nearest of the true means": nearest.argmin(axis=1),
        "nearest of the set's means": np.where(absent[groups], np.inf, nearest).argmin(axis=1),
    }
    return X, truth, groups, oracles


def separately(X, groups, fit):
    """Labels of one fit for each data set, different ones in different data sets."""
    labels, used = np.empty(len(X), dtype=int), 0
    for group in np.unique(groups):
        rows = groups == group
        labels[rows] = used + fit(X[rows])
        used = labels.max() + 1
    return labels


def fits(X, groups, seed):
    """Name -> labels, and the seconds of the hard HDP."""
    lam_local, lam_global = hdp_lambdas(X, groups, TRUE_LOCAL, TRUE_GLOBAL)
    found = {}
    model = HDPMeans(lam_local=lam_local, lam_global=lam_global)
    begin = time.perf_counter()
    found["HDPMeans"] = model.fit(X, groups=groups).labels_
    seconds = time.perf_counter() - begin
    model = HDPMeans(lam_local=lam_local, lam_global=lam_global, n_init=10, random_state=seed)
    found["HDPMeans, 10 starts"] = model.fit(X, groups=groups).labels_
    kmeans = KMeans(TRUE_GLOBAL, n_init=1, random_state=seed)
    found["KMeans, pooled"] = kmeans.fit(X).labels_
    kmeans = KMeans(TRUE_GLOBAL, n_init=10, random_state=seed)
    found["KMeans, pooled, 10 starts"] = kmeans.fit(X).labels_
    found["DPMeans, pooled"] = DPMeans(lam=farthest_first_lambda(X, TRUE_GLOBAL)).fit(X).labels_
    kmeans = KMeans(TRUE_LOCAL, n_init=1, random_state=seed)
    found["KMeans, separate"] = separately(X, groups, lambda part: kmeans.fit(part).labels_)
    found["DPMeans, separate"] = separately(
        X,
        groups,
        lambda part: DPMeans(lam=farthest_first_lambda(part, TRUE_LOCAL)).fit(part).labels_,
    )
    return found, seconds, (lam_local, lam_global)


def scores(truth, groups, labels):
    """NMI averaged over data sets, by the mean and by the minimum; over all points; clusters."""
    parts = [(truth[groups == j], labels[groups == j]) for j in np.unique(groups)]
    return (
        np.mean([nmi(*part) for part in parts]),
        np.mean([nmi(*part, average_method="min") for part in parts]),
        nmi(truth, labels),
        len(np.unique(labels)),
        np.mean([len(np.unique(part[1])) for part in parts]),
    )


def varied(draws):
    """Print a line for each variation of the experiment: means over the draws."""
    names = "HDPMeans()", "farthest-first"
    print(f"\nNMI over all points and clusters found, means of {draws} draws")
    print(f"{'sets':>4s}{'clusters':>10s}{'rows':>6s}{'columns':>9s}{'sd':>6s}", end="")
    print("".join(f"{name:>17s}" for name in names))
    for sets, local, points, clusters, d, sd in VARIED:
        results = {name: [] for name in names}
        for seed in range(draws):
            rng = np.random.default_rng([seed, 1])
            means = rng.random((clusters, d))
            truth = np.concatenate([rng.permutation(clusters)[:local] for _ in range(sets)])
            truth, groups = truth.repeat(points), np.arange(sets).repeat(local * points)
            X = means[truth] + sd * rng.standard_normal((len(truth), d))
            lams = hdp_lambdas(X, groups, local, clusters)
            models = (
                HDPMeans(random_state=0),
                HDPMeans(lam_local=lams[0], lam_global=lams[1]),
            )
            for name, model in zip(names, models, strict=True):
                labels = model.fit(X, groups=groups).labels_
                results[name].append((nmi(truth, labels), len(np.unique(labels))))
        setting = f"{sets:4d}{f'{local} of {clusters}':>10s}{local * points:6d}{d:9d}{sd:6.2f}"
        means = [np.mean(result, axis=0) for result in results.values()]
        print(setting + "".join(f"{f'{m[0]:.3f} ({m[1]:.1f})':>17s}" for m in means))


def read(X, groups, added, by_point, power):
    """The global penalty by one reading of the rule, for the true number of clusters."""
    T, members = [X.mean(axis=0)], [X[groups == j] for j in range(SETS)]
    for _ in range(TRUE_GLOBAL):
        tables = [cdist(rows, np.array(T)) ** power for rows in members]
        sums = [t.min(axis=1).sum() if by_point else t.sum(axis=0).min() for t in tables]
        j = int(np.argmax(sums))
        farthest = members[j][tables[j].min(axis=1).argmax()]
        mean = members[j].mean(axis=0)
        T.extend({"farthest": [farthest], "mean": [mean], "all": members[j]}[added])
    return sums[j]


def readings(draws):
    """Print a line for each reading: means over the draws."""
    print(f"\nOther readings of the rule for lam_global, means of {draws} draws")
    print(f"{'added to T':36s}{'lam_global':>12s}{'global':>9s}{'by data set':>13s}")
    for name, reading in READINGS.items():
        results = []
        for seed in range(draws):
            X, truth, groups, _ = draw(seed)
            lam_local, _ = hdp_lambdas(X, groups, TRUE_LOCAL, TRUE_GLOBAL)
            lam_global = read(X, groups, *reading)
            model = HDPMeans(lam_local=lam_local, lam_global=lam_global).fit(X, groups=groups)
            by_set = scores(truth, groups, model.labels_)[0]
            results.append((lam_global, model.n_clusters_, by_set))
        print("{:36s}{:12.2f}{:9.1f}{:13.3f}".format(name, *np.mean(results, axis=0)))


def bounds(draws):
    """Print how the objectives found compare with a lower bound: means over the draws."""
    print(f"\nObjectives, and the bound on all of them, means of {draws} draws")
    print(f"{'penalties':20s}{'1 start':>12s}{'10 starts':>12s}{'bound':>12s}{'ratio':>12s}")
    for name in ("farthest-first", "HDPMeans()"):
        results = []
        for seed in range(draws):
            X, _, groups, _ = draw(seed)
            if name == "HDPMeans()":
                model = HDPMeans(random_state=0).fit(X, groups=groups)
                lams, found = (model.lam_local_, model.lam_global_), model.objective_
            else:
                lams, found = hdp_lambdas(X, groups, TRUE_LOCAL, TRUE_GLOBAL), np.inf
            objectives = [
                HDPMeans(lam_local=lams[0], lam_global=lams[1], n_init=n, random_state=0)
                .fit(X, groups=groups)
                .objective_
                for n in (1, 10)
            ]
            bound = hdp_bound(X, groups, *lams)
            results.append((*objectives, bound, bound / min(found, *objectives)))
        print("{:20s}{:12.2f}{:12.2f}{:12.2f}{:12.3f}".format(name, *np.mean(results, axis=0)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--quick", action="store_true", help="3 draws")
    options = parser.parse_args()
    draws = 3 if options.quick else options.draws
    warnings.filterwarnings("ignore", "KMeans is known to have a memory leak")
    rows, seconds, penalties, ahead = {name: [] for name in PAPER}, [], [], 0
    for seed in range(draws):
        X, truth, groups, oracles = draw(seed)
        found, duration, lams = fits(X, groups, seed)
        for name, labels in (found | oracles).items():
            rows[name].append(scores(truth, groups, labels))
        seconds.append(duration)
        penalties.append(lams)
        best = max(rows[name][-1][0] for name in POOLED)
        ahead += rows["HDPMeans"][-1][0] > best
    header = ["", "by data set", "sd", "by min", "all points", "global", "local"]
    print(("{:28s}" + "{:>12s}" * 9).format(*header, "paper", "global", "local"))
    for name, (quoted, k, local) in PAPER.items():
        mean, sd = np.mean(rows[name], axis=0), np.std(rows[name], axis=0)[0]
        print(
            f"{name:28s}{mean[0]:12.3f}{sd:12.3f}{mean[1]:12.3f}{mean[2]:12.3f}{mean[3]:12.1f}"
            f"{mean[4]:12.1f}{quoted or '':>12}{k:>12s}{local:>12s}"
        )
    print(f"\n{draws} draws; HDPMeans by data set is ahead of all pooled fits in {ahead} of them")
    print("penalties, local and global, mean: {:.3f} {:.3f}".format(*np.mean(penalties, axis=0)))
    print(f"HDPMeans, one fit: {1e3 * np.median(seconds):.2f} ms (median); paper: 28.8 s")
    bounds(draws)
    varied(1 if options.quick else 4)
    readings(2 if options.quick else 12)


if __name__ == "__main__":
    main()
