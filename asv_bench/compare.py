"""The README's comparisons, as whole fits: seconds, number of clusters, quality.

``python asv_bench/compare.py kmeans`` holds DPMeans against scikit-learn's KMeans on identical
work: the same starting centers, a penalty that opens nothing, to strict convergence.

``python asv_bench/compare.py wide`` times sweeps over many columns next to those of faiss (pip
install faiss-cpu) and of KMeans: the first one, which computes every distance, and 20.

``python asv_bench/compare.py auto`` times DPMeans() without a number against KMeans that is told
the true one, and shows what was found.

``python asv_bench/compare.py delayed`` times delayed creation from the mean of the data. It takes
smallvar if that can be imported, else pdc-dp-means, which needs an environment of its own
(scikit-learn before 1.3).

``python asv_bench/compare.py features`` times one start of K-features on 100 photographs of a
tabletop against plain numpy (data: Griffiths & Ghahramani's photos, 100 principal components, from
the folder in SMALLVAR_DATA; generated data of that shape without it), then larger problems.

``python asv_bench/compare.py threads [part of a name ...]`` times a fit of each estimator with one
thread and with two, by the clock, on a machine that has nothing else to do: at the sizes of
benchmarks/scaling.py, with as many rows as it takes to last a tenth of a second.

``python asv_bench/compare.py rivals [part of a name ...]`` holds each estimator beside what a user
would take instead, in CPU seconds of one thread; see the folder ``rivals``.
"""

import os
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
    (80_000, 200, 200, 3.0, "float32"),
    (500_000, 5, 50, 1.5, "float32"),
    (100_000, 768, 1000, 6.0, "float32"),
    (1000, 2, 5, 0.2, "float64"),
]
# the same, with clusters that can be told apart
AUTO_CASES = [
    (1000, 2, 5, 0.1, "float64"),
    (100_000, 16, 50, 1.0, "float64"),
    (1_000_000, 3, 20, 0.1, "float64"),
    (1_000_000, 16, 50, 1.0, "float32"),
    (100_000, 128, 200, 3.0, "float32"),
]
# rows, columns, clusters: what embeddings look like
WIDE_CASES = [(100_000, 384, 500), (100_000, 384, 1000)]
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
        dp = DPMeans(lam=1e30, init=init)
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


def wide():
    """Seconds of the first sweep and of each of 20."""
    import faiss
    from sklearn.cluster import KMeans

    from smallvar import DPMeans

    def of_smallvar(X, init, sweeps):
        DPMeans(lam=1e30, init=init, max_iter=sweeps).fit(X)

    def of_kmeans(X, init, sweeps):
        KMeans(len(init), init=init, n_init=1, tol=0, max_iter=sweeps).fit(X)

    def of_faiss(X, init, sweeps):
        rival = faiss.Kmeans(X.shape[1], len(init), niter=sweeps, max_points_per_centroid=len(X))
        rival.train(X, init_centroids=init)

    fits = {"smallvar": of_smallvar, "faiss": of_faiss, "KMeans": of_kmeans}
    for n, d, k in WIDE_CASES:
        X, _ = mixture(n, d, k, 4.0, "float32", 0)
        init = X[np.random.default_rng(9).choice(n, k, replace=False)]
        seconds = {(name, sweeps): [] for name in fits for sweeps in (1, 20)}
        for _ in range(3):
            for (name, sweeps), times in seconds.items():
                begin = time.perf_counter()
                fits[name](X, init, sweeps)
                times.append((time.perf_counter() - begin) / sweeps)
        for sweeps in (1, 20):
            told = (f"{name} {np.median(seconds[name, sweeps]):.3f}" for name in fits)
            print(f"{n} x {d}, {k}: seconds a sweep of {sweeps}: {', '.join(told)}", flush=True)


def auto():
    """DPMeans without a number against KMeans with the true one."""
    from sklearn.cluster import KMeans
    from sklearn.metrics import adjusted_rand_score

    from smallvar import DPMeans

    for seed, (n, d, k, deviation, dtype) in enumerate(AUTO_CASES):
        X, truth = mixture(n, d, k, deviation, dtype, seed)
        told = []
        for model in (DPMeans(random_state=0), KMeans(k, random_state=0)):
            seconds = median_seconds(model, X, 3 if n < 1_000_000 else 1)
            found = len(model.cluster_centers_), adjusted_rand_score(truth, model.labels_)
            told.append("{:.3g} s, K {}, ARI {:.3f}".format(seconds, *found))
        print(f"{n} x {d}, {k}: smallvar {told[0]}; KMeans {told[1]}", flush=True)


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
            model = DPMeans(lam=lam, algorithm="delayed", max_iter=1000)
            seconds = median_seconds(model, X, 5)
        nmi = normalized_mutual_info_score(truth, model.labels_)
        error = ((X - model.cluster_centers_[model.labels_]) ** 2).sum()
        objective = error + lam * len(model.cluster_centers_)
        print(
            f"lam {lam:g}, {k} clusters: {seconds:.3f} s, K = {len(model.cluster_centers_)}, "
            f"NMI {nmi:.4f}, objective {objective:.1f}, {model.n_iter_} sweeps"
        )


def numpy_start(X, k, rng):
    """One start of K-features as one writes it in numpy, vectorized over the rows."""
    A = X.mean(axis=0)[None]
    Z = np.ones((len(X), 1))
    while len(A) < k:
        R = X - Z @ A
        square = (R**2).sum(axis=1)
        f = R[rng.choice(len(X), p=square / square.sum())]
        Z = np.column_stack([Z, ((R - f) ** 2).sum(axis=1) < square])
        A = np.vstack([A, f])
    while True:
        before = Z.copy()
        for j in range(k):
            without = X - Z @ A + np.outer(Z[:, j], A[j])
            Z[:, j] = ((without - A[j]) ** 2).sum(axis=1) < (without**2).sum(axis=1)
        A = np.linalg.lstsq(Z, X, rcond=None)[0]
        if np.array_equal(Z, before):
            return ((X - Z @ A) ** 2).sum()


def features():
    """K-features against numpy, and how its time grows."""
    from smallvar import BPMeans, KFeatures

    folder = os.environ.get("SMALLVAR_DATA")
    if folder:
        name = os.path.join(folder, "bp_means_tabletop_pca100.csv")
        X, k = np.loadtxt(name, delimiter=",", skiprows=1), 5
    else:
        X, k = planted(100, 100, 5), 5
    rng = np.random.default_rng(0)
    begin = time.perf_counter()
    best = min(numpy_start(X, k, rng) for _ in range(200))
    theirs = (time.perf_counter() - begin) / 200
    for threads in (1, 2):
        model = KFeatures(k, n_init=2000, n_swaps=0, random_state=0, n_threads=threads)
        ours = median_seconds(model, X, 5) / 2000
        print(
            f"{X.shape[0]} x {X.shape[1]}, {k} features, {threads} threads: smallvar "
            f"{ours * 1e6:.1f} us a start (best of 2000: {model.objective_:.2f}), numpy "
            f"{theirs * 1e3:.2f} ms (best of 200: {best:.2f}), ratio {theirs / ours:.0f}"
        )
    for n in (50_000, 100_000, 200_000):
        model = KFeatures(20, n_init=1, n_swaps=0, max_iter=30, random_state=0)
        print(
            f"{n} x 64, 20 features, {model.max_iter} sweeps: "
            f"{median_seconds(model, planted(n, 64, 20), 3):.2f} s"
        )
    X = planted(1000, 64, 10)
    given = KFeatures(10, random_state=0, n_init=50, n_swaps=0, n_threads=1).fit(X).assignments_
    for start in (given, (np.random.default_rng(0).random(given.shape) < 0.3)):
        seconds = []
        for algorithm in ("sweep", "collapsed"):
            model = BPMeans(lam=6400.0, algorithm=algorithm, init=start, n_threads=1)
            total = median_seconds(model, X, 5)
            seconds.append(total / model.n_iter_)
            print(
                f"1000 x 64, {algorithm}: {seconds[-1] * 1e3:.2f} ms a pass, "
                f"{model.n_iter_} passes, {model.n_components_} features"
            )
        print(f"collapsed / sweep: {seconds[1] / seconds[0]:.1f}")


def planted(n, d, k):
    """Sums of random subsets of k features, and noise."""
    rng = np.random.default_rng(0)
    A = rng.standard_normal((k, d))
    return (rng.random((n, k)) < 0.3) @ A + 0.3 * rng.standard_normal((n, d))


def threads():
    """Seconds of a fit with one thread and with two, in turns; medians of five."""
    from benchmarks.scaling import FAMILIES
    from threadpoolctl import threadpool_limits

    print("estimator                     rows      1 thread    2 threads   ratio")
    for family in FAMILIES:
        name = family.names[0]
        if sys.argv[2:] and not any(part in name for part in sys.argv[2:]):
            continue
        _, d, k = family.base
        for n in sorted({*family.rows, family.base[0]}):
            case = next(case for case, size in family.cases.items() if size == (n, d, k))
            problem = family()
            problem.setup(case, name)
            problem.limits.restore_original_limits()
            problem.estimator.fit(problem.X)
            begin = time.perf_counter()
            problem.estimator.fit(problem.X)
            if time.perf_counter() - begin > 0.1:
                break
        seconds = {1: [], 2: []}
        for turn in range(10):
            number = 1 + turn % 2
            with threadpool_limits(number):
                model = getattr(problem.estimator, "model", problem.estimator)
                if "n_threads" in model.get_params():
                    model.set_params(n_threads=number)
                begin = time.perf_counter()
                problem.estimator.fit(problem.X)
                seconds[number].append(time.perf_counter() - begin)
        one, two = (np.median(seconds[number]) for number in (1, 2))
        print(f"{name:24s}{n:10,}{one:12.3f} s{two:11.3f} s{one / two:8.2f}", flush=True)


def rivals():
    """Each estimator beside its rivals."""
    from rivals import compare

    compare(sys.argv[2:])


if __name__ == "__main__":
    MODES = {
        "kmeans": kmeans,
        "wide": wide,
        "auto": auto,
        "delayed": delayed,
        "features": features,
        "rivals": rivals,
        "threads": threads,
    }
    MODES[sys.argv[1]]()
