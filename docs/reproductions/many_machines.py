"""DP-means on 10, 100 and 1,000 machines, of which none is here: what the sweeps would take.

    python docs/reproductions/many_machines.py [--quick]

prints the tables of docs/guide/dask.rst. The driver is the one that fits dask collections
(smallvar.dask), and so are the functions that its workers run; but the workers are played by this
process, one after another, and a clock counts what they would have taken. A worker keeps its own
state, everything sent is pickled, and what may happen is drawn at random: a slow task, a worker
that dies, with what it holds, before or after its task is done, a task that another worker takes
over. After each fit, labels, centers and objectives are compared with those of smallvar.DPMeans,
bit by bit.

1. Rates of this machine: memory, searched rows, tasks.
2. What speculation costs: rounds, passes over the rows and clusters proposed in the first sweep.
3. Fits on workers that fail, and the simulated time of a sweep. Rows here stand for more of them.
4. What a sweep would take with a thousand million rows and with a thousand times as many.

--quick takes fewer rows and fits: half a minute instead of some minutes.
"""

import argparse
import math
import pickle
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import partial
from warnings import catch_warnings, simplefilter

import numpy as np
from distributed import Client
from smallvar._sweeps.ranges import column_range
from smallvar._sweeps.sums import Layout

from smallvar import DPMeans
from smallvar._centers.starts import Start, StartPoint
from smallvar._core.fit_loop import LoopSettings
from smallvar._core.frame import nearest_sweep
from smallvar.dask import _executor, _part, _sweep
from smallvar.dask._executor import FOLD, LOOPBACK, MEMORY_SHARE, Block, Executor
from smallvar.dask._part import MAX_OPENED, CollectionFrame, gather_facts, overall_mean
from smallvar.dask._sweep import CollectionSweep

NET = 1.25e9  # bytes a second: 10 Gbit
STORAGE = 1e9  # bytes a second that a worker reads
MEMORY = 64e9  # bytes of a worker
PART = 256e6  # bytes of a partition that is read in every sweep
LATENCY = 0.5e-3  # seconds that a message takes, the median
MISSED = 3.0  # seconds until a worker that died is missed
BOUNDS = 12  # bytes of a row beside its values: label and bounds
D, THREADS = 16, 2  # columns, float32; cores of a worker


# Rates of this machine


@dataclass
class Rates:
    """What a worker like this machine does in a second."""

    memory: float  # bytes read
    search: float  # floating-point operations of scores
    task: float  # the other way round: seconds of the scheduler for a task of held rows,
    part: float  # and for one of a partition that is read


def shortest(work, times=5):
    """The shortest time of some runs."""
    spans = []
    for _ in range(times):
        begin = time.perf_counter()
        work()
        spans.append(time.perf_counter() - begin)
    return min(spans)


def nothing(parts, shared, each):
    """A task without work."""


def measured():
    """The rates, each the best of several runs."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((4_000_000, D), dtype=np.float32)
    memory = X.nbytes / shortest(lambda: column_range(X, None, THREADS))
    X, centers = X[:200_000], rng.standard_normal((1000, D))
    flops = 2.0 * len(X) * D * len(centers)
    search = flops / shortest(lambda: nearest_sweep(X, None, centers, THREADS))
    with Client(processes=False, n_workers=1, set_as_default=False, **LOOPBACK) as client:

        def hold(count):
            client.gather([client.submit(nothing, [], None, [i], pure=False) for i in range(count)])

        def read(count):
            Executor(client, [(None, 0)] * count, Block, False).call(nothing, None)

        task, part = (
            (shortest(partial(run, 450)) - shortest(partial(run, 50))) / 400 for run in (hold, read)
        )
    return Rates(memory, search, task, part)


def show_rates(rates):
    """What the times below are made of."""
    print(
        f"a worker: {THREADS} cores, {rates.memory / 1e9:.1f} GB/s of memory, "
        f"{rates.search / 1e9:.0f} GFLOP/s of scores (measured)\n"
        f"a task: {1e3 * rates.task:.2f} ms of the scheduler, {1e3 * rates.part:.2f} ms where it "
        "reads its rows (measured)\n"
        f"network {NET / 1e9:g} GB/s, {1e3 * LATENCY:g} ms a message; storage {STORAGE / 1e9:g} "
        f"GB/s and memory {MEMORY / 1e9:g} GB a worker (assumed)"
    )


# Workers, played by this process


class Players:
    """An Executor whose workers are played one after another, and a clock of what they would take.

    ``times`` is how many rows a row here stands for; ``risks`` are the probabilities that a task
    meets with each of RISKS.
    """

    held, fit = True, "played"

    def __init__(self, X, parts, workers, rates, seed=0, times=1.0, risks=None):
        self.blocks = [Block(some, None, len(some)) for some in np.array_split(X, parts)]
        self.numbers = list(range(parts))
        self.workers, self.rates, self.times = workers, rates, times
        self.rng, self.risks = np.random.default_rng(seed), risks or dict.fromkeys(RISKS, 0.0)
        self.kept = [{} for _ in range(workers)]  # what each worker knows of a fit
        self.at = [p * workers // parts for p in range(parts)]  # who has a partition
        self.where = None  # and who is thought to
        self.scores = self.read = 0  # so far: scores computed, rows read
        self.happened, self.rounds = Counter(), []

    # what an Executor does

    def restrict(self, numbers):
        """Restrict later rounds to the partitions of these numbers."""
        self.numbers = sorted(numbers)

    def groups(self, numbers):
        """Partitions that go into one task, and the worker that is thought to have them."""
        if self.where is None:
            self.where = list(self.at)
        groups = defaultdict(list)
        for p in numbers:
            groups[self.where[p]].append(p)
        return list(groups.items())

    def relocate(self):
        """Look again where the partitions are."""
        self.where = None

    def call(self, function, shared, each=None, numbers=None, fold=None):
        """As Executor.call; notes what it took."""
        groups = self.groups(self.numbers if numbers is None else numbers)
        sent, results, works, ends = pickle.dumps(shared), [], [], []
        before = self.scores
        for started, (worker, some) in enumerate(groups, 1):
            own = [None if each is None else each[p] for p in some]
            work, lost, result = self.task(worker, function, some, sent, own)
            ends.append(started * self.rates.task + self.message() + work + lost)
            works.append(work)
            results.append(result)
        spans = Counter(work=np.median(works), tasks=len(groups) * self.rates.task)
        spans["waiting"] = max(ends) - spans["work"] - spans["tasks"]
        # what all need goes from worker to worker, each time twice as many have it
        spans["network"] = math.ceil(math.log2(len(groups) + 1)) * len(sent) / NET
        while fold is not None and len(results) > FOLD:
            several = [results[i : i + FOLD] for i in range(0, len(results), FOLD)]
            spans["network"] += sum(map(len, several[0][1:])) / NET
            spans["tasks"] += len(several) * self.rates.task
            spans["waiting"] += max(self.message() for _ in several)
            results = [pickle.dumps(fold(list(map(pickle.loads, some)))) for some in several]
        spans["network"] += sum(map(len, results)) / NET
        spans["waiting"] += 2 * self.message()
        self.rounds.append(Round(function, shared, len(groups), self.scores - before, spans))
        results = list(map(pickle.loads, results))
        return [fold(results)] if fold is not None else results

    # what may happen to a task

    def message(self):
        """Seconds until a message arrives; some take long."""
        return LATENCY * self.rng.lognormal(0.0, 0.7)

    def happens(self, what):
        """Whether it does, this time."""
        yes = self.rng.random() < self.risks[what]
        self.happened[what] += yes
        return yes

    def task(self, worker, function, some, sent, own):
        """Seconds of work, seconds lost to what happened, and the answer as bytes."""
        lost = 0.0
        if self.happens("elsewhere"):  # it has copies of the partitions then
            worker = int(self.rng.integers(self.workers))
        if self.happens("dies"):
            worker, lost = self.replaced(worker)
        lost += self.fetched(worker, some)
        work, answer = self.run(worker, function, some, sent, own)
        again = self.happens("again")
        if self.happens("dies after"):
            worker, more = self.replaced(worker)
            lost, again = lost + more + self.fetched(worker, some), True
        if again:
            lost += work
            work, answer = self.run(worker, function, some, sent, own)
        if self.happens("slow"):
            lost += work * self.rng.pareto(2.0)
        return work, lost, answer

    def replaced(self, worker):
        """A worker dies, and whoever has least takes what it held: who takes its task, and when."""
        self.kept[worker] = {}
        load = np.bincount(self.at, minlength=self.workers)
        load[worker] = 0  # another one has come in its place
        lost = MISSED
        for p in [p for p, at in enumerate(self.at) if at == worker]:
            self.at[p] = int(load.argmin())
            load[self.at[p]] += 1
            lost = max(lost, MISSED + self.nbytes(p) / STORAGE)
        return int(self.rng.integers(self.workers)), lost

    def fetched(self, worker, some):
        """Seconds until a worker has these partitions."""
        return sum(self.nbytes(p) for p in some if self.at[p] != worker) / NET

    def nbytes(self, p):
        """Bytes of what a partition stands for."""
        return self.blocks[p].X.nbytes * self.times

    def run(self, worker, function, some, sent, own):
        """Seconds of work, by rows read and scores computed, and the function's own answer."""
        _executor._STATES = self.kept[worker]
        scores, read = self.scores, self.read
        parts = [(p, self.blocks[p]) for p in some]
        shared = pickle.loads(sent)
        answer = pickle.dumps(function(parts, shared, own))
        if function is not _part.run_step or shared.error:
            self.read += sum(block.X.shape[0] for _, block in parts)
        nbytes = (self.read - read) * (D * self.blocks[0].X.itemsize + BOUNDS)
        flops = 2.0 * D * (self.scores - scores)
        return self.times * (nbytes / self.rates.memory + flops / self.rates.search), answer


RISKS = {
    "dies": "a worker dies before its task is done",
    "dies after": "or when it is done, before anyone has the answer",
    "again": "an answer is lost, and the worker that gave it has to give it again",
    "elsewhere": "another worker takes the task",
    "slow": "a task takes 1 + Pareto(2) times as long",
}


@dataclass
class Round:
    """A round of tasks: what for, how many, the scores they computed, and seconds by cause."""

    function: object
    shared: object
    tasks: int
    scores: int
    spans: Counter


class Counting:
    """Counts what the workers of a team compute, and what they propose in the first sweep."""

    def __init__(self, team):
        self.team, self.passes, self.proposed = team, 0, 0

    def __enter__(self):
        self.sweep_rows = _sweep.State.sweep_rows
        self.kept = _executor._STATES

        def sweep_rows(state, p, step):
            self.sweep_rows(state, p, step)
            self.team.scores += state.sweep.n_approximate
            self.team.read += state.block.X.shape[0]
            if step.iteration == 0:
                self.passes += 1
                self.proposed += len(state.opened)

        _sweep.State.sweep_rows = sweep_rows
        return self

    def __exit__(self, *error):
        _sweep.State.sweep_rows = self.sweep_rows
        _executor._STATES = self.kept


def fit(team, X, lam, max_iter=300, algorithm="serial", init=None):
    """A fit by the driver of smallvar.dask; stops if a bit differs from that of one machine."""
    options = {"algorithm": algorithm, "max_iter": max_iter}
    with catch_warnings():
        simplefilter("ignore")  # a single sweep does not converge
        model = DPMeans(lam=lam, init="mean" if init is None else init, **options).fit(X)
    known = gather_facts(team)
    place = CollectionFrame(team, known, init)
    centers = overall_mean(team, place).reshape(1, -1) if init is None else init
    sweep = CollectionSweep(team, place, len(X), MAX_OPENED)
    point = StartPoint(None, init, lam, algorithm, None)
    start = Start(point, sweep, centers, are_means=init is None)
    start.run(LoopSettings(max_iter))
    for name, ours, theirs in (
        ("centers", sweep.centers, model.cluster_centers_),
        ("labels", nearest_sweep(X, None, sweep.centers, 1).labels, model.labels_),
        ("objectives", start.progress.path, model.objective_path_),
    ):
        if not np.array_equal(ours, theirs):
            raise SystemExit(f"{name} differ from those of one machine: {team.happened}")
    return start


def drawn(n, in_order, k=100):
    """Gaussians that touch, in random order or one after another."""
    rng = np.random.default_rng(0)
    label = rng.integers(k, size=n)
    if in_order:
        label.sort()
    X = 2.0 * rng.standard_normal((k, D))[label] + rng.standard_normal((n, D))
    return X.astype(np.float32)


# What is printed


def show_speculation(rates, quick):
    """Rounds, passes and proposals of the first sweep."""
    n, all_parts = (20_000, (16, 256)) if quick else (200_000, (16, 64, 256, 1024))
    print(
        f"\nthe first sweep of {n:,} rows, {D} columns, 100 Gaussians\n"
        "order   lam  partitions       K  rounds  passes  proposed"
    )
    for order in ("random", "sorted"):
        X = drawn(n, order == "sorted")
        for lam in (100.0, 60.0) if quick else (100.0, 60.0, 40.0):
            for parts in all_parts:
                team = Players(X, parts, min(parts, 64), rates)
                with Counting(team) as counts:
                    start = fit(team, X, lam, max_iter=1)
                first = [
                    one
                    for one in team.rounds
                    if one.function is _part.run_step and one.shared.iteration == 0
                ]
                print(
                    f"{order:6s} {lam:4.0f}  {parts:10d}  {start.sweep.k:6d}  {len(first):6d}  "
                    f"{counts.passes / parts:6.2f}  {counts.proposed:8d}",
                    flush=True,
                )


def show_fits(rates, quick):
    """Fits on workers that fail; returns the share of scores that a later sweep computes."""
    n, stands = 20_000 if quick else 200_000, 1e9
    print(
        f"\nfits of {n:,} rows that stand for {stands:.0e}, two partitions a worker; once in 20 "
        "rounds:\n" + "\n".join(f"  {name}: {words}" for name, words in RISKS.items())
    )
    shares = []
    fits = {
        "serial, random order": {"lam": 100.0, "max_iter": 6 if quick else 300},
        "serial, sorted": {"lam": 100.0, "in_order": True},
        "delayed": {"lam": 150.0, "algorithm": "delayed"},
    }
    for name, options in list(fits.items())[: 1 if quick else None]:
        X = drawn(n, options.pop("in_order", False))
        print(
            f"{name}\nworkers    K  sweeps  rounds   tasks  first s  median s: work  network  "
            "tasks  waiting  longest s  fit s  " + "  ".join(RISKS)
        )
        for workers in (10, 100, 1000):
            risks = dict.fromkeys(RISKS, 1 / (20 * workers)) | {"slow": 0.01}
            team = Players(X, 2 * workers, workers, rates, times=stands / n, risks=risks)
            with Counting(team):
                start = fit(team, X, **options)
            sweeps = defaultdict(Counter)
            for one in team.rounds:
                if one.function is _part.run_step:
                    sweeps[one.shared.iteration] += one.spans
                    sweeps[one.shared.iteration]["scores"] += one.scores
            first, *later = [sweeps[turn] for turn in sorted(sweeps)]
            causes = ("work", "network", "tasks", "waiting")
            seconds = [sum(sweep[cause] for cause in causes) for sweep in (first, *later)]
            middle = later[np.argsort(seconds[1:])[len(later) // 2]]
            shares.append(np.median([sweep["scores"] for sweep in later]) / (n * start.sweep.k))
            print(
                f"{workers:7d} {start.sweep.k:4d} {start.progress.n_iter:7d} "
                f"{len(team.rounds):7d} {sum(one.tasks for one in team.rounds):7d}  "
                f"{seconds[0]:7.2f}  {np.median(seconds[1:]):8.2f}:"
                + "".join(f" {middle[cause]:7.4f}" for cause in causes)
                + f"  {max(seconds):9.2f}  {sum(seconds):5.1f}  "
                + "  ".join(f"{team.happened[what]:{len(what)}d}" for what in RISKS),
                flush=True,
            )
    return float(np.median(shares))


def show_predictions(rates, share):
    """What a sweep would take, and what limits it."""
    print(
        "labels, centers and objectives have the bits of one machine in all of these fits\n"
        "\na sweep of n rows on W workers, seconds: the first, and one that computes "
        f"{share:.1%} of the scores\n"
        "columns      K      n     W   first  limited by      later  limited by  held"
    )
    for d, k in ((16, 1000), (768, 10_000)):
        for n in (10**9, 10**12):
            for workers in (10, 100, 1000):
                line = f"{d:7d} {k:6d}  {n:.0e} {workers:5d}"
                for scores in (1.0, share):
                    spans, held = prediction(rates, d, k, n, workers, scores)
                    line += f" {sum(spans.values()):9.3g}  {max(spans, key=spans.get):10s}"
                print(line, "yes" if held else "no")


def prediction(rates, d, k, n, workers, share):
    """Seconds of a sweep by their causes, and whether the workers hold the rows."""
    row = 4 * d
    held = n * row <= MEMORY_SHARE * MEMORY * workers
    tasks = workers if held else max(workers, math.ceil(n * row / PART))
    answer = 8 * k * (layout(d, n).bins * (d + 1) + 1)
    levels = math.ceil(math.log(workers, FOLD))  # of the tree that adds up
    return {
        "memory": n / workers * (row + BOUNDS) / rates.memory,
        "storage": 0.0 if held else n / workers * row / STORAGE,
        "scores": share * n / workers * 2.0 * d * k / rates.search,
        "network": math.ceil(math.log2(workers + 1)) * 8 * k * d / NET
        + (levels * (FOLD - 1) + math.ceil(tasks / workers)) * answer / NET,
        "tasks": tasks * (1 + 1 / (FOLD - 1)) * (rates.task if held else rates.part),
        "messages": (2 + levels) * LATENCY,
    }, held


def layout(d, n):
    """The bins of the sums of so many rows."""
    return Layout.of_statistics(-np.ones(d), np.ones(d), n, None, lambda *_: np.zeros(d))


def main():
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer rows")
    quick = parser.parse_args().quick
    rates = measured()
    show_rates(rates)
    show_speculation(rates, quick)
    share = show_fits(rates, quick)
    show_predictions(rates, share)


if __name__ == "__main__":
    main()
