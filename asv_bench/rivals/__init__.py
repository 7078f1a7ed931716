"""Each estimator beside what a user would take instead.

``python asv_bench/compare.py rivals [part of a name ...]`` prints, for each comparison, CPU seconds
of one thread (medians of fits in turns, in one process), the ratio to the rival, and the quality of
both. Each module of this folder has a function ``comparisons`` that yields them.
"""

import importlib
import pkgutil
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from threadpoolctl import threadpool_limits

ENOUGH = 2.0  # seconds of each fit in all after which no more turns are made, but for three


@dataclass
class Comparison:
    """A task, ours and its rivals; each is a function without arguments that returns its result."""

    name: str
    ours: Callable[[], object]
    rivals: dict[str, Callable[[], object]] = field(default_factory=dict)
    quality: Callable[[object], str] = lambda result: ""
    bound: float | None = None  # of the ratio to the fastest rival or, without one, of seconds
    calls: int = 1  # in each turn, for what takes microseconds
    turns: int = 9


def measure(comparison):
    """Median seconds and last result of ours and of each rival."""
    tasks = {"smallvar": comparison.ours, **comparison.rivals}
    seconds, results = {name: [] for name in tasks}, {}
    for name, task in tasks.items():
        results[name] = task()  # what is made once for all is not counted
    for turn in range(comparison.turns):
        for name, task in tasks.items():
            if turn >= 3 and sum(seconds[name]) > ENOUGH:
                continue
            begin = time.process_time()
            for _ in range(comparison.calls):
                results[name] = task()
            seconds[name].append((time.process_time() - begin) / comparison.calls)
    return {name: (statistics.median(seconds[name]), results[name]) for name in tasks}


def line(comparison):
    """What is printed of a comparison."""
    found = measure(comparison)
    ours, rivals = found["smallvar"][0], [found[name][0] for name in comparison.rivals]
    told = [
        f"{name} {1e3 * seconds:.4g} ms {comparison.quality(result)}".rstrip()
        for name, (seconds, result) in found.items()
    ]
    value = ours / min(rivals) if rivals else ours
    unit = "" if rivals else " s"
    end = "" if comparison.bound is None else f" (bound {comparison.bound:g}{unit})"
    return f"{comparison.name}: {value:.3g}{unit}{end}; {'; '.join(told)}"


def compare(parts=()):
    """Print all comparisons, or those with one of these parts in their names."""
    with threadpool_limits(1):
        for module in sorted(m.name for m in pkgutil.iter_modules(__path__)):
            for comparison in importlib.import_module(f"{__name__}.{module}").comparisons():
                if not parts or any(part in comparison.name for part in parts):
                    print(line(comparison), flush=True)
