"""The README's comparisons, as whole fits: seconds, number of clusters, quality.

``python asv_bench/compare.py kmeans`` holds DPMeans against scikit-learn's KMeans on identical
work: the same starting centers, a penalty that opens nothing, to strict convergence.

``python asv_bench/compare.py delayed`` times delayed creation from the mean of the data. It takes
smallvar if that can be imported, else pdc-dp-means, which needs an environment of its own
(scikit-learn before 1.3).
"""

import sys
import time
import warnings

import numpy as np

warnings.filterwarnings("ignore")

# rows, columns, clusters, standard deviation, dtype
KMEANS_CASES = [
    (200_000, 16, 50, 1.0, "float64"),
    (1_000_000, 3, 64, 0.2, "float64"),
    (300_000, 128, 500, 3.0, "float32"),
    (100_000, 2, 20, 0.3, "float64"),
    (200_000, 8, 1000, 0.5, "float64"),
    (1000, 2, 5, 0.2, "float64"),
]
# lam, clusters
DELAYED_CASES = [(100.0, 50), (60.0, 50), (60.0, 200), (60.0, 300)]


def mixture(n, d, k, deviation, dtype, seed):
    """Gaussian clusters and the number of the cluster each row is from."""
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(k, d)) * (3 if d > 4 else 1)
    truth = rng.integers(k, size=n)
    return (centers[truth] + deviation * rng.normal(size=(n, d))).astype(dtype), truth


def median_seconds(model, X, runs):
    """Median time of several fits."""
    seconds = []
    for _ in range(runs):
        begin = time.perf_counter()
        model.fit(X)
        seconds.append(time.perf_counter() - begin)
    return float(np.median(seconds))


def kmeans():
    """DPMeans against KMeans."""
    from sklearn.cluster import KMeans

    from smallvar import DPMeans

    ratios = []
    for seed, (n, d, k, deviation, dtype) in enumerate(KMEANS_CASES):
        X, _ = mixture(n, d, k, deviation, dtype, seed)
        init = X[np.random.default_rng(9).choice(n, k, replace=False)]
        runs = 3 if X.size < 5e6 else 1
        dp = DPMeans(1e30, init=init)
        ours = median_seconds(dp, X, runs)
        rivals = [KMeans(k, init=init, tol=0, algorithm=a) for a in ("lloyd", "elkan")]
        theirs, km = min(
            ((median_seconds(m, X, runs), m) for m in rivals), key=lambda pair: pair[0]
        )
        ratios.append(theirs / ours)
        print(
            f"{n} x {d}, {k}: smallvar {ours:.4f} s ({dp.n_iter_} sweeps, SSE {dp.inertia_:.6g}), "
            f"KMeans {theirs:.4f} s ({km.n_iter_}, {km.inertia_:.6g}), ratio {ratios[-1]:.2f}"
        )
    print(f"geometric mean {np.exp(np.mean(np.log(ratios))):.2f}, worst {min(ratios):.2f}")


def delayed():
    """Delayed creation, by whichever package is here."""
    from sklearn.metrics import normalized_mutual_info_score

    for lam, k in DELAYED_CASES:
        X, truth = mixture(200_000, 16, k, 1.0, "float64", 0)
        try:
            from smallvar import DPMeans
        except ImportError:
            from pdc_dp_means import DPMeans as Rival

            first = X.mean(axis=0)[None]
            model = Rival(n_clusters=1, n_init=1, init=first, delta=lam, max_iter=1000, tol=0)
            seconds = median_seconds(model, X, 1)
        else:
            model = DPMeans(lam, algorithm="delayed", max_iter=1000)
            seconds = median_seconds(model, X, 5)
        nmi = normalized_mutual_info_score(truth, model.labels_)
        error = ((X - model.cluster_centers_[model.labels_]) ** 2).sum()
        objective = error + lam * len(model.cluster_centers_)
        print(
            f"lam {lam:g}, {k} clusters: {seconds:.3f} s, K = {len(model.cluster_centers_)}, "
            f"NMI {nmi:.4f}, objective {objective:.1f}, {model.n_iter_} sweeps"
        )


if __name__ == "__main__":
    {"kmeans": kmeans, "delayed": delayed}[sys.argv[1]]()
