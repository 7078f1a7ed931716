"""Tables for the tests of the command line, as arrays and as files."""

import io

import numpy as np
import pandas as pd
from sklearn.datasets import load_iris, make_moons


def as_csv(X, header=""):
    """A text file from which the numbers are read back exactly."""
    file = io.StringIO()
    np.savetxt(file, X, delimiter=",", header=header, comments="", fmt="%.17g")
    return file.getvalue().encode()


def as_npy(X):
    """A .npy file."""
    file = io.BytesIO()
    np.save(file, X)
    return file.getvalue()


def blobs():
    """Three clusters of 20 points each."""
    X = np.repeat([[0.0, 0.0, 0.0], [10.0, 0.0, 5.0], [0.0, 20.0, 5.0]], 20, axis=0)
    return X + np.random.default_rng(0).normal(size=X.shape)


def stream():
    """Rows x, t, y: three groups over 20 steps, one gone from step 8 to 9 and one from 12."""
    rng = np.random.default_rng(0)
    rows = []
    for step in range(20):
        for group, gone in enumerate([(), (8, 9), range(12, 20)]):
            if step not in gone:
                center = [10.0 * group + 0.1 * step, 5.0 - 0.15 * step * group]
                rows += [[center[0], 100.0 + step / 2, center[1]] for _ in range(5)]
    rows = np.array(rows)[rng.permutation(len(rows))]  # not in the order of time
    rows[:, [0, 2]] += 0.1 * rng.normal(size=(len(rows), 2))
    return rows


def sums():
    """Thirty rows that are sums of three features and a little noise."""
    rng = np.random.default_rng(0)
    A = np.array([[9.0, 9, 0, 0, 0, 0], [0, 0, 7, 7, 0, 0], [0, 5, 0, 0, 5, 5]])
    return (rng.random((30, 3)) < 0.5) @ A + rng.normal(scale=0.1, size=(30, 6))


def uneven():
    """Two clusters that only the narrow column tells apart, and a constant column."""
    rng = np.random.default_rng(0)
    narrow = np.repeat([0.0, 1.0], 20) + 0.01 * rng.normal(size=40)
    return np.column_stack([1000 * rng.random(40), narrow, np.full(40, 0.1)])


def sorted_blobs():
    """Five far clusters of 600, 610, ... points, one after another; and the cluster of each row."""
    sizes = 600 + 10 * np.arange(5)
    X = 0.1 * np.random.default_rng(0).normal(size=(sizes.sum(), 3))
    X += np.repeat(np.random.default_rng(1).random((5, 3)) * 20, sizes, axis=0)
    return X, np.repeat(np.arange(5), sizes)


def mixed(n=120, gaps=0.1):
    """Three clusters, told by numbers, words and counts, and the cluster of each row."""
    g = np.random.default_rng(0)
    kind = g.integers(3, size=n)
    table = pd.DataFrame(
        {
            "id": [f"row {i}" for i in range(n)],
            "size": (np.array([1.0, 5.0, 9.0])[kind] + 0.3 * g.normal(size=n)).round(3),
            "color": np.array(["red", "green", "blue"], dtype=object)[kind],
            "count": g.poisson(np.array([5, 60, 200])[kind]).astype(float),
        }
    )
    for name in ("size", "color", "count"):
        table.loc[g.random(n) < gaps, name] = None
    return table, kind


BLOBS, STREAM, SUMS, UNEVEN, IRIS = blobs(), stream(), sums(), uneven(), load_iris().data
SUBSETS = np.array([[0, 0], [1, 0], [0, 1], [1, 1]])
FILES = {
    "blobs.csv": as_csv(BLOBS, "x,y,z"),
    "stream.csv": as_csv(STREAM, "x,t,y"),
    "sums.csv": as_csv(SUMS, "a,b,c,d,e,f"),
    "uneven.csv": as_csv(UNEVEN, "wide,narrow,same"),
    "iris.npy": as_npy(IRIS),  # 4 clusters are slightly ahead of 3
    "batches.npy": as_npy(sorted_blobs()[0]),
    "moons.npy": as_npy(make_moons(600, noise=0.08, random_state=0)[0]),
    "equal.npy": as_npy(np.full((9, 2), 7.0)),
    "zeros.npy": as_npy(np.zeros((3, 2))),
    "exact.npy": as_npy(np.repeat(SUBSETS @ [[0.1, 0.7, 0], [0.3, 0, 1.9]], 3, axis=0)),
    "pairs.npy": as_npy(np.array([[0, 1.0], [0, 5.0], [1, 1.0], [2, 2.0], [2, 2.0]])),
    "single.npy": as_npy(np.array([[0, 1.0], [1, 1.0], [2, 2.0]])),
    "digits.npy": as_npy(np.array([[2**60, 1], [2**60 + 1, 2], [2**60 + 2, 3]])),
    "digits.csv": f"t,x\n{2**53},1\n,2\n{2**53 + 2},3\n".encode(),
    "commas.csv": b"t;x\n0,5;1,5\n0,25;2,5\n",
    "few.csv": b"5,5\n5,5\n0,0\n",
    "gaps.csv": b"a,b,word\n1,2,u\n,3,u\n4,NA,u\n5,6,\n7,nan,u\n9,8,u\n",
    "words.csv": mixed()[0].to_csv(index=False, lineterminator="\n").encode(),
    "small.csv": b"a,b,b,c\n1,2,3,4\n",
}
