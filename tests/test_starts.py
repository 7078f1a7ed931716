"""How starts go on and end, and which of them is kept."""

from types import SimpleNamespace
from typing import get_type_hints

import numpy as np
import pytest
from smallvar._sweeps.dpmeans import CollapsedSweep

from smallvar._centers.divergence import DivergenceSweep
from smallvar._centers.starts import Sweep
from smallvar._core import fit_loop
from smallvar._core.fit_loop import LoopSettings, Progress, best_of
from smallvar._core.progress import print_event


def recorded(objectives, *, opened=0, changed=True, max_iter=300, tol=0.0, n=10, **counts):
    progress = Progress(LoopSettings(max_iter, tol), n)
    for objective in objectives:
        progress.record(objective, "{}", changed=changed, opened=opened, **counts)
    return progress


def test_what_counts_toward_max_iter():
    assert recorded([3.0, 2.0]).counted == 2
    assert recorded([3.0], opened=1).counted == 0
    assert recorded([3.0, 2.0], opened=1).counted == 0
    assert recorded([3.0, 3.0], opened=1).counted == 1  # it did not fall
    # one for each row is let off, and no more than clusters there are and max_iter
    falling = np.arange(100.0, 51.0, -1.0)
    assert recorded(falling, opened=1).counted == 49 - 10
    assert recorded(falling, opened=1, max_iter=5, n_clusters=3).counted == 49 - 5 - 3
    assert recorded(falling, opened=1, max_iter=5, n_clusters=300).counted == 49 - 10
    assert recorded(falling, opened=1, max_iter=5, n_clusters=1, n_open=4).counted == 49 - 5 - 4


def test_when_a_start_is_over():
    assert recorded([3.0, 2.0]).should_continue
    assert not recorded([3.0, 2.0], max_iter=2).should_continue
    assert not recorded([3.0, 2.0], max_iter=2).ended
    assert recorded([3.0, 2.0], opened=1, max_iter=2).should_continue
    still = recorded([3.0, 3.0], changed=False)
    assert still.converged
    assert not still.should_continue
    # a fall of 1 is no more than 1/4 of 4, whatever the sign
    assert recorded([4.0, 3.0], tol=0.25).within_tol
    assert not recorded([4.0, 3.0], tol=0.24).within_tol
    assert recorded([-4.0, -5.0], tol=0.25).within_tol
    assert not recorded([-4.0, -5.0], tol=0.24).within_tol
    assert not recorded([4.0], tol=0.25).within_tol
    assert not recorded([4.0, 4.0]).within_tol  # tol 0 waits for a fixed point


def start(objective, name=""):
    return SimpleNamespace(objective=objective, k=1, name=name)


def test_an_earlier_start_wins_a_tie():
    a, b, c = start(5.0), start(5.0), start(4.0)
    assert best_of([a, b]) is a
    assert best_of([b, a]) is b
    assert best_of([a, c, b]) is c
    # lower by rounding alone
    assert best_of([a, start(5.0 * (1 - 1e-13))]) is a
    low = start(5.0 * (1 - 1e-11))
    assert best_of([a, low]) is low
    negative = start(-5.0)
    assert best_of([negative, start(-5.0 * (1 + 1e-13))]) is negative
    assert best_of([a, c], rounding=1.5) is a
    assert best_of([start(np.inf, "first"), start(np.inf)]).name == "first"


def test_verbose(capsys):
    best_of([start(1.0)], total=1, callback=print_event)
    assert capsys.readouterr().out == ""
    best_of([start(2.0), start(1.0)], total=2, callback=print_event)
    lines = capsys.readouterr().out.splitlines()
    assert lines == [f"start {i}: 1 clusters, objective {v}" for i, v in ((1, 2), (2, 1))]


def test_long_fits_tell_how_long(capsys, monkeypatch):
    now = iter([0.0, 0.0, 30.0, 30.0, 60.0])
    monkeypatch.setattr(fit_loop.time, "perf_counter", lambda: next(now))
    progress = Progress(LoopSettings(5, callback=print_event), 10)
    progress.record(3.0, "2 clusters, {}", changed=True)
    progress.record(2.0, "2 clusters, {}", changed=True)
    assert capsys.readouterr().out.splitlines() == [
        "sweep 1: 2 clusters, objective 3",
        "sweep 2: 2 clusters, objective 2 (15 s a sweep, at most 45 s left)",
    ]
    best_of([start(2.0)], total=3, callback=print_event)
    assert capsys.readouterr().out == "start 1: 1 clusters, objective 2 (about 60 s left)\n"


@pytest.mark.parametrize("sweep", [CollapsedSweep, DivergenceSweep])
def test_sweeps_have_what_a_start_drives(sweep):
    methods = [name for name, value in vars(Sweep).items() if callable(value) and name[0] != "_"]
    assert {"create", "collapse", "move_centers"} <= set(methods)
    for name in methods:
        assert callable(getattr(sweep, name))
    if sweep is CollapsedSweep:  # the other one sets them on the instance
        for name in get_type_hints(Sweep):
            assert hasattr(sweep, name)
