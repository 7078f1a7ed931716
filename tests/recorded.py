"""What the search for merge paths found on the problems of ``path_problem``, kept in recorded.txt.

A line of the file has the family and, for each seed, what ``outcome`` returns. A change that is to
find other paths writes the file anew: ``python tests/recorded.py``.
"""

import zlib
from pathlib import Path
from unittest.mock import patch

import numpy as np
from problems import PATH_FAMILIES, path_problem

from smallvar import DPMeans
from smallvar._selection import search as search_module

FILE = Path(__file__).with_suffix(".txt")
SEEDS = 8
UNSURE = "-" * 8  # in place of a hash that depends on the rounding of the data


def fit_problem(p, X, seed, **options):
    """A fit that searches a path, in steps and samples as small as the problem says."""
    assert p.sizes.keys() <= vars(search_module).keys()
    with patch.dict(vars(search_module), p.sizes):
        return DPMeans(
            lam="auto" if p.lam is None else p.lam,
            algorithm="serial" if p.lam is None else "merge",
            init="mean" if p.init is None else p.init,
            max_clusters=p.max_clusters,
            random_state=seed,
            **options,
        ).fit(X, sample_weight=p.weights)


def outcome(path):
    """The number chosen, the two largest confidences in percent, and a hash of all labels."""
    likeliest = sorted(np.nan_to_num(path.confidences), reverse=True)
    first, second = (round(100 * share) for share in [*likeliest, 0.0][:2])
    found = zlib.crc32(path.n_clusters.astype("<i8").tobytes())
    for k in path.n_clusters[path.n_clusters <= path.longest]:
        found = zlib.crc32(path.labels(k).astype("<i4").tobytes(), found)
    return path.best, first, second, f"{found:08x}"


def read():
    """The records by family: for each seed best, percents and hash, or nothing."""
    lines = [line.split("|") for line in FILE.read_text().splitlines()]
    return {family.strip(): [entry.split() for entry in entries] for family, *entries in lines}


def record(family, seed):
    """The outcome as text; no hash, or nothing, where data that differ by rounding have another."""
    p = path_problem(family, seed, n_max=250)
    rng, outcomes = np.random.default_rng(0), []
    for unit in (0.0, *[2e-15 if p.X.dtype == np.float64 else 1e-7] * 4):
        X = p.X * (1 + unit * rng.uniform(-1, 1, size=p.X.shape)).astype(p.X.dtype)
        outcomes.append(outcome(fit_problem(p, X, seed).path_))
    if len({best for best, *_ in outcomes}) > 1:
        return ""
    *numbers, labels = outcomes[0]
    return " ".join(map(str, [*numbers, labels if len(set(outcomes)) == 1 else UNSURE]))


if __name__ == "__main__":
    lines = [
        "|".join([family, *(record(family, seed) for seed in range(SEEDS))])
        for family in PATH_FAMILIES
    ]
    FILE.write_text("\n".join(lines) + "\n")
