"""Features beside NMF, which is told their number; communities beside Leiden's method in C."""

import random

import numpy as np
from benchmarks.bpmeans import planted as sums_of_features
from benchmarks.graph import planted as planted_partition
from sklearn.decomposition import NMF
from sklearn.metrics import normalized_mutual_info_score

from smallvar import BPMeans, KFeatures, PenalizedCut

from . import Comparison

BOUND = 3.0
GRAPHS = ((3_000, 30), (20_000, 100))  # nodes, communities
DEGREES = (10, 20)


def comparisons():
    """Defaults of both sides, but for the number of features and one thread."""
    yield from features()
    yield from graphs()


def features():
    """Sums of features of any sign; for the rival the least number is subtracted."""
    X, _, truth = sums_of_features(5_000, 64, 8)
    least = X - X.min()

    def quality(model):
        error = model.reconstruction_err_**2 / truth
        return f"(K {len(model.components_)}, {error:.4f} of the error of the truth)"

    for model in (KFeatures(8, random_state=0, n_threads=1), BPMeans(random_state=0, n_threads=1)):
        yield Comparison(
            f"{type(model).__name__} 5,000 x 64",
            lambda model=model: model.fit(X),
            {"NMF": lambda: NMF(8, random_state=0).fit(least)},
            quality,
            BOUND,
        )


def graphs():
    """Planted partitions; the rival is Leiden's method for modularity, in igraph."""
    import igraph

    for n, k in GRAPHS:
        for degree in DEGREES:
            A, truth = planted_partition(n * degree // 2, k, degree)
            links = A.tocoo()
            upper = links.row < links.col
            graph = igraph.Graph(n=n, edges=np.c_[links.row[upper], links.col[upper]])
            graph.es["weight"] = links.data[upper]

            def leiden(graph=graph):
                random.seed(0)
                return graph.community_leiden("modularity", weights="weight")

            def quality(found, truth=truth):
                labels = getattr(found, "labels_", None)
                labels = np.array(found.membership) if labels is None else labels
                nmi = normalized_mutual_info_score(truth, labels)
                return f"(K {labels.max() + 1}, NMI {nmi:.4f})"

            yield Comparison(
                f"PenalizedCut {n:,} nodes, {degree} links each",
                lambda A=A: PenalizedCut(random_state=0).fit(A),
                {"igraph's Leiden": leiden},
                quality,
                BOUND,
            )
