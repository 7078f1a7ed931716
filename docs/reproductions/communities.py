"""Known communities of graphs: PenalizedCut against Louvain's method.

    SMALLVAR_DATA=folder python docs/reproductions/communities.py [--speed] [--quick]

The folder has graph_karate_edges.csv, graph_karate_labels.csv and the same of football (Zachary's
karate club; American college football, Girvan and Newman 2002; both are among the network data of
Mark Newman). Louvain's method is networkx's. --speed instead times fits of generated graphs of
250,000, 500,000 and a million edges; of a million also `lam="auto"` and, if it is installed,
leidenalg. --quick takes the smaller of the two graphs and fewer seeds, or graphs of a hundredth of
the edges.
"""

import argparse
import os
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array, triu
from sklearn.metrics import normalized_mutual_info_score

from smallvar import PenalizedCut, cut_path


def read(name):
    """Adjacency matrix and communities."""
    folder = Path(os.environ["SMALLVAR_DATA"])
    table = {"delimiter": ",", "skiprows": 1, "dtype": int}
    u, v = np.loadtxt(folder / f"graph_{name}_edges.csv", **table)[:, :2].T
    truth = np.loadtxt(folder / f"graph_{name}_labels.csv", **table)[:, 1]
    A = np.zeros((len(truth), len(truth)))
    A[u, v] = A[v, u] = 1
    return A, truth


def louvain(A, truth, seeds):
    """NMI and number of communities, medians over the seeds."""
    import networkx

    G = networkx.from_numpy_array(A)
    scores = []
    for seed in range(seeds):
        labels = np.empty(len(A), dtype=int)
        for c, nodes in enumerate(networkx.community.louvain_communities(G, seed=seed)):
            labels[list(nodes)] = c
        scores.append((normalized_mutual_info_score(truth, labels), labels.max() + 1))
    return np.median(scores, axis=0)


def communities(names, seeds):
    """The table."""
    for name in names:
        A, truth = read(name)
        score, k = louvain(A, truth, seeds)
        print(f"{name}: {truth.max() + 1} communities; Louvain: NMI {score:.3f}, K {k:g}")
        for cut in ("normalized", "ratio"):
            for algorithm in ("multilevel", "incremental", "batch"):
                options = {"cut": cut, "algorithm": algorithm, "random_state": 0}
                path = cut_path(A, **options)
                fits = [PenalizedCut(lam=lam, **options).fit(A) for lam in path.lams]
                scores = [normalized_mutual_info_score(truth, fit.labels_) for fit in fits]
                best = int(np.argmax(scores))
                plateau, at = path.labels(), path.counts.tolist().index(path.best)
                print(
                    f"  {cut:10s} {algorithm:11s} best lam {path.lams[best]:6.2f}: NMI "
                    f"{scores[best]:.3f}, K {fits[best].n_clusters_:2d}; plateau "
                    f"{path.lam_low[at]:6.2f} to {path.lam_high[at]:6.2f}: NMI "
                    f"{normalized_mutual_info_score(truth, plateau):.3f}, K {plateau.max() + 1}"
                )


def symmetric(u, v, n):
    """The graph of these edges, without self-links and copies."""
    u, v = u[u != v], v[u != v]
    A = csr_array((np.ones(2 * len(u)), (np.r_[u, v], np.r_[v, u])), shape=(n, n))
    A.data[:] = 1
    return A


def planted(edges, rng):
    """Groups of 50; 16 links a node, 70% of them within."""
    n = edges // 400 * 50
    u, anywhere = rng.integers(n, size=(2, edges))
    near = u // 50 * 50 + rng.integers(50, size=edges)
    v = np.where(rng.random(edges) < 0.7, near, anywhere)
    return symmetric(*rng.permutation(n)[[u, v]], n)


def power_law(edges, rng):
    """Degrees with exponent 2.2, 8 links a node."""
    n = edges // 4
    weight = np.minimum((1 - rng.random(n)) ** (-1 / 1.2), 5 * np.sqrt(n))
    ends = np.searchsorted(np.cumsum(weight), rng.random((2, edges)) * weight.sum())
    return symmetric(*np.minimum(ends, n - 1), n)


def speed(counts):
    """Seconds over edges."""
    for make in (planted, power_law):
        for cut in ("normalized", "ratio"):
            for edges in counts:
                A = make(edges, np.random.default_rng(0))
                start = time.perf_counter()
                model = PenalizedCut(lam=None, cut=cut, n_init=1).fit(A)
                print(
                    f"{make.__name__:9s} {cut:10s} {A.nnz // 2:7d} edges: {model.n_clusters_:6d} "
                    f"clusters, {model.n_iter_:3d} sweeps, {time.perf_counter() - start:5.1f} s",
                    flush=True,
                )
        network(make.__name__, A)


def network(name, A):
    """Seconds of "auto" and of Leiden's method, by the clock and of the processor."""

    def report(method, count):
        wall, cpu = time.perf_counter(), time.process_time()
        k = count()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        print(
            f"{name:9s} {method:10s} {A.nnz // 2:7d} edges: {k:6d} clusters, {wall:5.1f} s, "
            f"of the processor {cpu:5.1f} s",
            flush=True,
        )

    report("auto", lambda: PenalizedCut(random_state=0).fit(A).n_clusters_)
    if find_spec("leidenalg"):
        import igraph
        import leidenalg

        u, v = triu(A).nonzero()
        graph = igraph.Graph(n=A.shape[0], edges=np.c_[u, v])
        kind = leidenalg.ModularityVertexPartition
        report("leiden", lambda: len(leidenalg.find_partition(graph, kind, seed=0)))


def main():
    """Print the table, or times."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--speed", action="store_true", help="time fits of generated graphs")
    parser.add_argument("--quick", action="store_true", help="smaller graphs")
    options = parser.parse_args()
    if options.speed:
        speed((2_500, 5_000, 10_000) if options.quick else (250_000, 500_000, 1_000_000))
    elif "SMALLVAR_DATA" not in os.environ:
        parser.error("SMALLVAR_DATA must name the folder of the graphs, see the head of this file")
    elif options.quick:
        communities(("karate",), 5)
    else:
        communities(("karate", "football"), 20)


if __name__ == "__main__":
    main()
