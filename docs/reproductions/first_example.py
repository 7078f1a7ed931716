"""The README's first example, as a picture.

    python docs/reproductions/first_example.py [--quick] [--figure FILE]

takes two seconds and draws docs/guide/first_example.png, or the file that --figure names; with
--quick it draws only where it is told. 178 wines of three cultivars, told apart
by what is in them. Left the clusters that DPMeans() finds, in the plane in which the wines differ
most; right how it comes to three.
"""

import argparse
import io
from pathlib import Path

import matplotlib
import numpy as np
from PIL import Image  # matplotlib needs it anyway
from scipy.stats import mode
from sklearn.datasets import load_wine
from sklearn.decomposition import PCA
from sklearn.preprocessing import scale

from smallvar import DPMeans

matplotlib.use("Agg")
import matplotlib.pyplot as plt

PICTURE = Path(__file__).resolve().parents[1] / "guide" / "first_example.png"
COLORS = np.array(["C0", "C1", "C2"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="no picture but for --figure")
    parser.add_argument("--figure", type=Path, help="draw to this file")
    options = parser.parse_args()
    figure = options.figure or (None if options.quick else PICTURE)
    X, cultivar = load_wine(return_X_y=True)
    X = scale(X)
    model = DPMeans(random_state=0).fit(X)
    path = model.path_
    usual = np.array([mode(cultivar[model.labels_ == k]).mode for k in range(model.n_clusters_)])
    other = usual[model.labels_] != cultivar
    print(f"{model.n_clusters_} clusters, {other.sum()} wines with those of another cultivar")

    style = {"axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False}
    with plt.rc_context(style):
        fig, (left, right) = plt.subplots(1, 2, figsize=(7, 3), layout="constrained")
        plane = PCA(2, random_state=0).fit_transform(X)
        left.scatter(*plane.T, c=COLORS[model.labels_], s=9)
        ring = {"s": 50, "fc": "none", "ec": "k", "lw": 0.8}
        left.scatter(*plane[other].T, **ring, label="among another cultivar's")
        left.set(xlabel="first component", ylabel="second component", ylim=(None, 5.8))
        left.set_title("178 wines, 13 measurements", fontsize=10)
        left.legend(loc="upper center", fontsize=8)
        right.plot(path.n_clusters, path.criterion, "o-", ms=4, color="0.3")
        right.plot(path.best, path.criterion.min(), "o", ms=12, mfc="none", color="C3")
        right.set(xlabel="number of clusters", ylabel="criterion")
        right.set_title(f"the lowest criterion: {path.best} clusters", fontsize=10)
        right.locator_params(axis="x", integer=True)
        drawn = io.BytesIO()
        fig.savefig(drawn, dpi=120)
    if figure:
        Image.open(drawn).convert("RGB").quantize(128).save(figure, optimize=True)


if __name__ == "__main__":
    main()
