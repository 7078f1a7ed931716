"""How many topics are found among the news of the BBC, by which estimator after which reduction?

The texts are 2,225 news in five topics (Greene & Cunningham 2006), as 100 components of their
TF-IDF rows, divided by their lengths. They are reduced as BERTopic does it, by default by UMAP to
five columns, or by PCA. The table has the number of clusters, the share of texts in none, and the
ARI, for which texts in none are a cluster of their own.

The file is text/bbc_news_svd100.npz in the folder SMALLVAR_DATA: arrays X and y. Lines of UMAP
need umap-learn. ``python docs/reproductions/topics.py`` takes a minute of one core; ``--quick``
takes PCA with five columns only.
"""

import argparse
import os
import warnings
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from sklearn.cluster import HDBSCAN
from sklearn.decomposition import PCA
from sklearn.metrics import adjusted_rand_score
from sklearn.preprocessing import normalize

from smallvar import DPMeans, MahalanobisMeans, RobustDPMeans, ShapeMeans, SphericalDPMeans

ESTIMATORS = {
    "SphericalDPMeans()": SphericalDPMeans(random_state=0),
    "RobustDPMeans()": RobustDPMeans(random_state=0),
    "DPMeans()": DPMeans(random_state=0),
    "ShapeMeans()": ShapeMeans(random_state=0),
    "MahalanobisMeans()": MahalanobisMeans(random_state=0),
    "HDBSCAN(10)": HDBSCAN(10, copy=True),
    "HDBSCAN(15)": HDBSCAN(15, copy=True),
}


def reductions(X, quick):
    """Name and rows of each reduction."""
    for columns in (5,) if quick else (5, 10, 20, 50):
        yield f"PCA, {columns} columns", PCA(columns, random_state=0).fit_transform(X)
    if quick:
        return
    yield "all 100 columns", X
    if find_spec("umap") is None:
        print("no UMAP: umap-learn is not installed")
        return
    from umap import UMAP

    for seed in (0, 1):
        # what BERTopic does where it is given nothing
        umap = UMAP(15, n_components=5, min_dist=0.0, metric="cosine", random_state=seed)
        yield f"UMAP, seed {seed}", umap.fit_transform(X).astype(float)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="PCA with five columns only")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    with np.load(Path(os.environ["SMALLVAR_DATA"], "text", "bbc_news_svd100.npz")) as arrays:
        X, truth = normalize(arrays["X"].astype(float)), arrays["y"]
    print(f"{len(X)} texts in {len(np.unique(truth))} topics\n")
    print(f"{'':40s}clusters  in none    ARI")
    for reduction, rows in reductions(X, options.quick):
        for name, estimator in ESTIMATORS.items():
            labels = estimator.fit(rows).labels_
            ari = adjusted_rand_score(truth, labels)
            title = f"{reduction}, {name}"
            print(f"{title:40s}{labels.max() + 1:8d}{np.mean(labels < 0):9.1%}{ari:7.2f}")


if __name__ == "__main__":
    main()
