"""Answers of workers that are lost and given again: the fit is that of one machine all the same."""

import numpy as np
import pytest

import smallvar

pytest.importorskip("distributed")
pytest.importorskip("dask.dataframe")
import dask.array as da
from dask_helpers import threads_as_workers

from smallvar.dask import DPMeans, _executor


@pytest.mark.parametrize(("algorithm", "lam"), [("serial", 9.0), ("delayed", 20.0)])
def test_an_answer_given_twice(monkeypatch, algorithm, lam):
    """The second answer is the first one, though the worker has swept its rows already."""
    run = _executor._run

    def twice(*task):
        first = run(*task)
        second = run(*task)
        if hasattr(first, "moved"):
            assert (second.moved, second.fresh) == (first.moved, first.fresh)
            assert all(np.array_equal(second.opened[p], first.opened[p]) for p in first.opened)
        return second

    monkeypatch.setattr(_executor, "_run", twice)
    rng = np.random.default_rng(0)
    X = 3.0 * rng.standard_normal((40, 3))[rng.integers(40, size=3000)]
    X += rng.standard_normal(X.shape)
    model = smallvar.DPMeans(lam=lam, algorithm=algorithm).fit(X)
    assert model.n_clusters_ > 5 and model.n_iter_ > 5
    with threads_as_workers(1):
        there = DPMeans(lam=lam, algorithm=algorithm).fit(da.from_array(X, chunks=(500, 3)))
        assert np.array_equal(there.labels_.compute(), model.labels_)
    assert np.array_equal(there.cluster_centers_, model.cluster_centers_)
    assert there.objective_path_.tolist() == model.objective_path_.tolist()
