"""Tables for the tests of the command line, as arrays and as files."""

import gzip
import io
import re
from pathlib import Path

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


def write(name, content):
    """Write text, bytes or an array to a file; text is compressed for .gz."""
    if isinstance(content, np.ndarray):
        content = as_npy(content)
    elif isinstance(content, str):
        content = content.encode()
        if name.lower().endswith(".gz"):
            content = gzip.compress(content)
    Path(name).write_bytes(content)
    return name


def typed(message):
    """The options that an error says to type, as words of a shell."""
    ways = [r"give (--[a-z]+ \S)", r"try (--encoding \S+)", r"(--encoding \S+) \("]
    ways += [r"(--[a-z-]+[ =](?:'[^']*'|\S+)) (?:takes|leaves|keeps)"]
    return next(m[1] for way in ways if (m := re.search(way, message)))


def blobs():
    """Three clusters of 20 points each."""
    X = np.repeat([[0.0, 0.0, 0.0], [10.0, 0.0, 5.0], [0.0, 20.0, 5.0]], 20, axis=0)
    return X + np.random.default_rng(0).normal(size=X.shape)


def uneven():
    """Two clusters that only the narrow column tells apart, and a constant column."""
    rng = np.random.default_rng(0)
    narrow = np.repeat([0.0, 1.0], 20) + 0.01 * rng.normal(size=40)
    return np.column_stack([1000 * rng.random(40), narrow, np.full(40, 0.1)])


def mixed(n=120, gaps=0.1):
    """Three clusters, told by numbers, words and counts."""
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
    return table


BLOBS, UNEVEN, IRIS = blobs(), uneven(), load_iris().data
SUBSETS = np.array([[0, 0], [1, 0], [0, 1], [1, 1]])
FILES = {
    "blobs.csv": as_csv(BLOBS, "x,y,z"),
    "uneven.csv": as_csv(UNEVEN, "wide,narrow,same"),
    "iris.npy": as_npy(IRIS),
    "moons.npy": as_npy(make_moons(600, noise=0.08, random_state=0)[0]),
    "equal.npy": as_npy(np.full((9, 2), 7.0)),
    "exact.npy": as_npy(np.repeat(SUBSETS @ [[0.1, 0.7, 0], [0.3, 0, 1.9]], 3, axis=0)),
    "gaps.csv": b"a,b,word\n1,2,u\n,3,u\n4,NA,u\n5,6,\n7,nan,u\n9,8,u\n",
    "words.csv": mixed().to_csv(index=False, lineterminator="\n").encode(),
}
