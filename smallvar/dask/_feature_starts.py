"""Starts of BP-means over partitions: as in _sweeps/features/starts.pyx, made of rounds of tasks.

Rows of Z stay with the workers; the driver has the features, and adds up what partitions answer. In
a sweep a partition opens features in the order of its rows, and needs to know which ones partitions
before it have opened and removed, and whether others have users elsewhere. So all sweep at once
with what is known; those that it turns out to be wrong for sweep again. The first partition is
right at once, and with each round at least one more, so this ends, and then all are as on one
machine.
"""

import numpy as np
from scipy.spatial.distance import cdist

from smallvar._sweeps.features.parts import NO_ERROR, RUN_ROWS, solve
from smallvar.dask._feature_part import (
    Begun,
    Move,
    Tally,
    add_answers,
    add_totals,
    retrace,
    step,
    tally,
)
from smallvar.dask._sweep import GROWTH

STATE = (  # what a swap that is no better leaves as it was
    "moves",
    "owns",
    "features",
    "users",
    "width",
    "kept",
    "zz",
    "zx",
    "error",
    "objective",
    "solved",
    "path",
    "converged",
    "largest",
)


class Generator:
    """splitmix64."""

    def __init__(self, state):
        self.state = state

    def uniform(self):
        """The next number in [0, 1)."""
        most = 2**64 - 1
        self.state = (self.state + 0x9E3779B97F4A7C15) & most
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & most
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & most
        z ^= z >> 31
        return (z >> 11) * (1.0 / 9007199254740992.0)


def read(bins):
    """The value of a sum of squares."""
    return float(bins[2] + bins[1] + bins[0])


class FeatureStart:
    """One start: what holds for all rows, and the steps that led there."""

    def __init__(self, team, setting, max_iter, tol, verbose=False, number=0, state=0, turn=0):
        self.team, self.setting = team, setting
        self.max_iter, self.tol, self.verbose = max_iter, tol, verbose
        self.number, self.generator = number, Generator(state)
        self.turn, self.base = turn, None  # steps so far; the one to which a swap may go back
        self.moves, self.owns = [], []  # the steps that led here, what each partition was told
        self.path, self.n_iter, self.converged, self.solved = [], 0, False, False
        self.error = self.objective = 0.0

    @property
    def k(self):
        """Number of features."""
        return len(self.features)

    # ---- rounds of tasks ----

    def _ask(self, function, asked, fold, each=None, numbers=None):
        """Answers of partitions; those whose state is lost go all the way again."""
        shared = self.setting, asked
        out = self.team.call(function, shared, each, numbers, fold)[0]
        while out.lost:
            self.team.lost()
            again = {
                p: ([own[p] for own in self.owns], None if each is None else each[p])
                for p in out.lost
            }
            told = function, shared, self.moves
            more = self.team.call(retrace, told, again, sorted(out.lost), fold)[0]
            out.lost = []
            out = fold([out, more])
        return out

    def _move(self, kind, features):
        self.turn += 1
        after = self.moves[-1].number if self.moves else None
        hold = [self.base, after if kind == "sweep" else None]
        hold = tuple(number for number in hold if number is not None)
        width, kept = (0, None) if after is None else (self.width, self.kept)
        return Move(self.turn, after, kind, features, width, kept, hold)

    def _step(self, kind, features, owns=None):
        """A step of all partitions, none of which needs to wait for another."""
        move = self._move(kind, features)
        owns = dict.fromkeys(self.team.numbers) if owns is None else owns
        out = self._ask(step, move, add_answers, owns)
        self._end(move, owns, out.of, len(features))
        self.features = features

    def _end(self, move, owns, answers, width):
        self.moves, self.owns = [*self.moves, move], [*self.owns, owns]
        self.largest = max(answer.largest for answer in answers.values())
        self.users = {}
        for p, answer in answers.items():
            self.users[p] = np.pad(answer.users > 0.0, (0, width - len(answer.users)))
        self.width, self.kept = width, None

    def _tally(self, squares=True, runs=False, sums=False, rows=None):
        asked = Tally(self.moves[-1].number, self.largest if squares else None, runs, sums, rows)
        out = self._ask(tally, asked, add_totals)
        if sums:
            k, (layers, _, _), (_, *bins) = self.width, out.zz.shape, out.zx.shape
            self.zz, self.zx = np.zeros((layers, k, k)), np.zeros((k, *bins))
            self.zz[:, : out.zz.shape[1], : out.zz.shape[1]] = out.zz
            self.zx[: len(out.zx)] = out.zx
            if self.kept is not None:
                self.zz, self.zx = self.zz[:, self.kept][:, :, self.kept], self.zx[self.kept]
        if runs:
            self.runs = out.runs
        return out

    def _keep(self, kept):
        """The features of these numbers become 0, 1, ...; workers are told with the next step."""
        self.features = self.features[kept]
        self.users = {p: users[kept] for p, users in self.users.items()}
        self.kept = kept if self.kept is None else self.kept[kept]

    def _keep_sums(self, kept):
        self.zz, self.zx = self.zz[:, kept][:, :, kept], self.zx[kept]

    # ---- the parts of a start ----

    def total(self, **asked):
        """Sum of w ||r||^2."""
        return read(self._tally(**asked).squares)

    def evaluate(self, **asked):
        """The same, all residuals from the data."""
        self._step("look", self.features)
        return self.total(**asked)

    def begin(self, features, owns=None):
        """From no features, from one that all rows have, or from given rows of Z."""
        self.moves, self.owns = [], []
        self.solved = False
        self._step("begin", features, owns)

    def cleared(self, error):
        """A squared error, or zero where it is nothing but rounding."""
        return error if error > NO_ERROR * self.setting.energy else 0.0

    def least_squares(self):
        """The features, from Z; returns by how much the error falls."""
        features, kept, fall = solve(
            np.ascontiguousarray(self.features), self.zz, self.zx, self.setting.energy
        )
        if len(kept) < self.k:
            self._keep(kept)
            self._keep_sums(kept)
        self.features, self.solved = features, True
        return fall

    def draw(self, error):
        """The residual of a row drawn in proportion to its square (MB13, section 5)."""
        target, n = self.generator.uniform() * error, self.setting.n
        runs = np.zeros(((n + RUN_ROWS - 1) // RUN_ROWS, 3))
        for p, bins in self.runs.items():
            first = self.setting.before[p] // RUN_ROWS
            runs[first : first + len(bins)] += bins  # a run may lie in several partitions
        ends = np.cumsum(runs[:, 2] + runs[:, 1] + runs[:, 0])
        run = int(np.argmax(ends[:-1] > target)) if (ends[:-1] > target).any() else len(ends) - 1
        done, last = float(ends[run - 1]) if run else 0.0, None
        while run < len(ends):
            for square, residual in zip(*self._rows(run * RUN_ROWS), strict=True):
                if square > 0.0:
                    last = residual
                    done += float(square)
                    if done > target:
                        return residual
            run += 1
        return self._rows(0)[1][0] if last is None else last

    def _rows(self, first):
        """w ||r||^2 and r of a run of rows."""
        last = min(self.setting.n, first + RUN_ROWS)
        before = self.setting.before
        ends = [*[before[p] for p in self.team.numbers[1:]], self.setting.n]
        numbers = [
            p
            for p, end in zip(self.team.numbers, ends, strict=True)
            if before[p] < last and end > first
        ]
        asked = Tally(self.moves[-1].number, rows=(first, last))
        found = self._ask(tally, asked, add_totals, numbers=numbers).rows
        squares, residuals = zip(*(found[p] for p in numbers), strict=True)
        return np.concatenate(squares), np.concatenate(residuals)

    def seed(self, mean):
        """The greedy start of MB13, section 5; ``mean`` is the first feature, or None."""
        d = self.setting.layout.origin.shape[0]
        self.begin(np.empty((0, d)) if mean is None else mean[None])
        error = self.total(runs=True)
        while self.k < self.setting.cap and error > NO_ERROR * self.setting.energy:
            residual = self.draw(error)
            self._step("join", np.vstack((self.features, residual)))
            before, error = error, self.total(runs=True)
            if not error + self.setting.lam < before:
                self._keep(np.arange(self.k - 1))
                break
        self._tally(squares=False, sums=True)

    # ---- sweeps ----

    def sweep(self):
        """MB13, eq. 6, as if rows were visited in order.

        Returns how many rows changed, and the numbers of features created and removed.
        """
        move = self._move("sweep", self.features)
        numbers = self.team.numbers
        size = GROWTH if self.n_iter == 0 else len(numbers)
        answers, used, first, width = {}, {}, 0, 1 if self.n_iter == 0 else size
        while first < len(numbers):
            wave = numbers[first : first + width]
            while True:
                begun = self._in_order(numbers[: first + width], answers, used)
                todo = [p for p in wave if p not in used or used[p] != begun[p]]
                if not todo:
                    break
                out = self._ask(step, move, add_answers, begun, todo)
                answers.update(out.of)
                used.update((p, begun[p]) for p in todo)
            first, width = first + width, width * size
        last = numbers[-1]
        opened = np.vstack((used[last].opened, answers[last].opened))
        vacant = np.append(answers[last].vacant, np.zeros(len(answers[last].opened), dtype=bool))
        self._end(move, used, answers, len(vacant))
        self.features = np.vstack((self.features, opened))
        if vacant.any():
            self._keep(np.flatnonzero(~vacant))
        return np.sum([answers[p].counts for p in numbers], axis=0).tolist()

    def _in_order(self, numbers, answers, used):
        """What these partitions start from, as far as is known; the rest is guessed."""
        known, begun = self.k, {}
        opened, lam = self.features[:0], self.setting.lam
        vacant, before = np.zeros(known, dtype=bool), np.zeros(known, dtype=bool)
        after = np.sum([self.users[p] for p in self.team.numbers], axis=0, dtype=int)
        for p in numbers:
            after = after - self.users[p]  # partitions that have users, as before the sweep
            shared = before.copy()
            shared[:known] |= after > 0
            begun[p] = Begun(opened, vacant.copy(), shared & ~vacant)
            if p not in answers:
                before[:known] |= self.users[p]
                continue
            answer, own = answers[p], answers[p].opened
            if used[p] == begun[p]:
                vacant, here = answer.vacant, answer.users > 0.0
                before = np.append(before, np.zeros(len(own), dtype=bool)) | here
            else:  # a guess: it leaves out what is near to features that it did not know
                near = cdist(own, opened, "sqeuclidean").min(axis=1, initial=np.inf) <= lam
                own = own[~near]
                vacant = vacant.copy()
                vacant[:known] |= answer.vacant[:known]
                before[:known] |= answer.users[:known] > 0.0
                before = np.append(before, np.ones(len(own), dtype=bool))
            opened = np.vstack((opened, own))
            vacant = np.append(vacant, np.zeros(len(own), dtype=bool))
        return begun

    def converge(self):
        """Sweeps until nothing changes, or tol or max_iter ends them."""
        begin, counted, lam = len(self.path), 0, self.setting.lam
        self.converged = False
        while True:
            was_solved = self.solved
            changes, created, _ = events = self.sweep()
            previous = self.total(sums=any(events))
            fall = self.least_squares() if any(events) or not was_solved else 0.0
            self.error = previous - fall
            if self.error < 1e-3 * previous:  # most digits of the difference are lost
                self.error = self.evaluate()
            self.error = self.cleared(self.error)
            self.n_iter += 1
            self.objective = self.error + lam * self.k
            self.path.append(self.objective)
            if self.verbose:
                print(
                    f"start {self.number + 1}, sweep {self.n_iter}: {self.k} features, objective "
                    f"{self.objective:.8g}, {changes} rows changed, {created} features created"
                )
            if was_solved and not any(events):
                self.converged = True
                break
            later = len(self.path) > begin + 1
            if (
                self.tol > 0
                and later
                and (self.path[-2] - self.objective <= self.tol * self.path[0])
            ):
                self.converged = True
                break
            # sweeps that open features do not count, but no more than n of them
            fell = not later or self.objective < self.path[-2]
            swept = len(self.path) - begin - counted
            counted += not (created and fell and swept <= self.setting.n)
            if counted >= self.max_iter:
                break

    def swap(self):
        """Take a feature away, seed another, or both, and sweep; keep what is better."""
        before = {name: getattr(self, name) for name in STATE}
        self.base, self.path = self.moves[-1].number, list(self.path)
        which, energy = int(self.generator.uniform() * 3), self.setting.energy
        if which != 1 and self.k > 0:
            removed = int(self.generator.uniform() * self.k)
            kept = np.delete(np.arange(self.k), removed)
            adds = which != 2
            self._keep(kept)
            self._keep_sums(kept)
            self.least_squares()
        else:
            adds = which != 2 or self.k == 0
        error = self.evaluate(runs=True)
        if adds and self.k < self.setting.cap and error > NO_ERROR * energy:
            residual = self.draw(error)
            self._step("join", np.vstack((self.features, residual)))
            self._tally(squares=False, sums=True)
        self.least_squares()
        self.converge()
        old, path = before["objective"], before["path"]
        if self.objective < old - 1e-12 * (old + path[0]):
            self.path = [*path, self.objective]
        else:
            vars(self).update(before)
        self.base = None

    def run(self, n_swaps, mean=None, given=None):
        """From seeding to a fixed point, or from ``given``: rows of Z by partition, their width."""
        if given is None:
            self.seed(mean)
        else:
            owns, k = given
            self.begin(np.zeros((k, self.setting.layout.origin.shape[0])), owns)
            self._tally(squares=False, sums=True)
            self.least_squares()
        self.converge()
        for _ in range(n_swaps):
            self.swap()
        self.least_squares()
        self.error = self.cleared(self.evaluate())
        self.objective = self.error + self.setting.lam * self.k
        self.path[-1] = self.objective
        return self
