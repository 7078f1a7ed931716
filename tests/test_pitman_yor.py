"""The objective of docs/reproductions/pitman_yor.py, and what of it DP-means finds anyway."""

import numpy as np
import pytest
from helpers import all_partitions, reproduction, seeds
from twins.dpmeans import serial


@pytest.fixture(scope="module")
def script():
    return reproduction("pitman_yor")


def test_penalty(script):
    """One cluster lam; the second lam - theta ln 1, the third lam - theta ln 2 more."""
    found = [script.penalty(k, 5.0, 2.0) for k in (1, 2, 3, 4)]
    log = 2.0 * np.log([2.0, 3.0])
    np.testing.assert_allclose(found, [5, 10, 15 - log[0], 20 - log.sum()], rtol=1e-15)


@seeds(8)
def test_what_is_optimal_is_so_for_dp_means(seed, script):
    """Of all partitions, at the penalty lam - theta ln K."""
    rng = np.random.default_rng(seed)
    X = rng.standard_t(3, size=(7, 2))
    table = {}
    for labels in all_partitions(7):
        centers, labels = script.means(X, np.array(labels))
        k, error = len(centers), script.error(X, labels, centers)
        table[k] = min(error, table.get(k, np.inf))
    for lam in np.geomspace(0.05, 20, 25):
        for ratio in (0.05, 0.2, 0.5):
            objective = {k: e + script.penalty(k, lam, ratio * lam) for k, e in table.items()}
            best = min(objective, key=objective.get)
            other = lam * (1 - ratio * np.log(best))
            plain = {k: e + other * k for k, e in table.items()}
            assert plain[best] <= min(plain.values()) + 1e-12


@seeds(6)
def test_without_theta_it_is_dp_means(seed, script):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(4, 3))[rng.integers(4, size=60)] * 5 + rng.normal(size=(60, 3))
    labels = script.cluster(X, 20.0, 0.0, mergers=False)
    expected = serial(X, 20.0)
    assert np.unique(np.column_stack([labels, expected.labels]), axis=0).shape[0] == max(labels) + 1


def test_threshold_falls(script):
    """9 > 8 opens one at 3; then 6.25 > 8 - 4 ln 2 opens another, 6.25 < 8 does not."""
    X = np.array([[0.0], [3.0], [5.5]])
    assert script.sweep(X, np.zeros((1, 1)), 8.0, 4.0).tolist() == [0, 1, 2]
    assert script.sweep(X, np.zeros((1, 1)), 8.0, 0.0).tolist() == [0, 1, 1]


def test_mergers(script):
    """0 and 1 cost 1/2 to merge, 10 many: with lam = 1 the first two are merged, with 0.4 none."""
    X = np.array([[0.0], [1.0], [10.0]])
    labels, merged = script.merge(X, np.arange(3), 1.0, 0.0)
    assert merged
    assert labels.tolist() == [0, 0, 1]
    assert script.merge(X, np.arange(3), 0.4, 0.0)[0].tolist() == [0, 1, 2]
    assert script.merge(X, np.arange(3), 1.0, 0.8)[0].tolist() == [0, 1, 2]  # 1 - 0.8 ln 2 < 1/2


def test_sizes(script):
    """Seats 1 to 3: the third opens a table with the chance that the process gives."""
    new = [
        len(set(script.sizes(np.random.default_rng(seed), 3, 9)[:3])) == 3 for seed in range(2000)
    ]
    # (1 + 0.6) / 2 for the second seat, (1 + 1.2) / 3 for the third
    assert np.mean(new) == pytest.approx(0.8 * 2.2 / 3, abs=0.04)
