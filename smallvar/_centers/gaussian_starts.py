"""The starts of MahalanobisMeans, of which the best one is kept."""

import numpy as np

from smallvar._centers.gaussian_number import GaussianNumber
from smallvar._centers.gaussian_path import (
    begin_path,
    cut_path,
    distant_rows,
    rows_for,
    until_some_agree,
)
from smallvar._centers.gaussians import Gaussians, GaussianStart, PointGaussians
from smallvar._core.fit_loop import best_of

FIRST = 30  # clusters that mergers begin with, at least
PATH_ROWS = 10_000  # of more rows, mergers see a sample
START_ROWS = 5 * PATH_ROWS  # of more rows, starts see a sample, larger if many clusters are given
# times the number of rows that a row of the sample stands for, the least price of a parameter where
# lam is that of BIC: the objective is lower for the rows to which parameters are fitted than for
# others. AIC3, the criterion of Bozdogan (1993) for mixtures
SAMPLE_PRICE = 3.0


class GaussianStarts:
    """The starts of a fit, each from a merge path, from seeds, or from one cluster of all rows.

    ``fit`` is the MahalanobisMeans, for its parameters; ``seeds`` are given centers and ``known``
    given covariances (None: found). ``number`` is that of clusters (None: found). The penalties are
    ``reg`` of covariances, ``lam`` of a cluster (None: K is fixed), and ``cost`` of one that opens
    at a row (None: none does); ``parameters`` are those of a cluster, and ``reg_of(data)`` is the
    first penalty for a sample. Sweeps have the settings ``loop``.
    """

    def __init__(self, fit, seeds, known, number, penalties, parameters, reg_of, loop, rng):
        self.fit, self.seeds, self.known, self.number = fit, seeds, known, number
        (self.reg, self.lam, self.cost), self.parameters = penalties, parameters
        self.reg_of, self.loop, self.rng = reg_of, loop, rng
        self.total = 1 if seeds is not None and self.cost is None else fit.n_init

    def best(self, data, free):
        """The best start, and the NumberChoice of its number of clusters (None: not ``free``)."""
        if not self._merges():
            return self._best_of(self._begun(data)), None
        d = data.X.shape[1]
        size = max(START_ROWS, rows_for(self.number or 0, d))
        part = data.sample(size, self.rng)

        def best(number=None):
            # paths mostly end at the same clustering, so not all n_init of them are made
            return self._best_of(until_some_agree(self._merged(part, number), part.w))

        found, choice = best(), None
        if free and self.known is None:
            choice = self._choice(part, found.k)
            if choice.best != found.k:
                found = best(choice.best)
        if part is not data:  # the best start goes on with all rows
            found = self._joined(data, found.state, found.k)
        return found, choice

    def _best_of(self, starts):
        return best_of(starts, total=self.total, callback=self.loop.callback)

    def _choice(self, data, found):
        """The number of clusters that describes the rows best; ``found`` have the objective."""
        part = data.sample(PATH_ROWS, self.rng)
        begin = max(1, min(len(part.w) // (part.X.shape[1] + 2), max(FIRST, 2 * found)))

        def state_of(part):
            return self._state(part, self.reg_of(part))

        return GaussianNumber(part, state_of, begin, self.rng).choice()

    def _merges(self):
        """Whether starts come down a merge path."""
        fit = self.fit
        if fit.volume == "clusters" or not (self.number is None or isinstance(fit.init, str)):
            return False
        return (
            self.number is None
            or fit.init == "merge"
            or (fit.init == "auto" and np.ndim(self.known) != 3)
        )

    def _state(self, data, reg=None):
        """The clusters of these rows, of which there are none yet."""
        fit, lam = self.fit, self.lam or 0.0
        if data.stand_for > 1.0 and self.number is None and fit.lam is None:
            lam = max(lam, SAMPLE_PRICE * data.stand_for * self.parameters)
        reg = self.reg if reg is None else reg
        kind = PointGaussians if fit.volume == "points" else Gaussians
        return kind(data.X, data.w, lam, float(fit.scale), reg, self.known, data)

    def _merged(self, data, number=None):
        """Starts from merge paths; of samples where there are many rows.

        ``number`` of clusters: None for ``n_clusters`` or, where that is not given, the best.
        """
        (n, d), rng = data.X.shape, self.rng
        rows = min(n, PATH_ROWS)
        number = self.number if number is None else number
        # a covariance needs d + 2 rows, so there are no more clusters to begin with
        most = max(1, rows // (d + 2)) if number is None else rows
        many = min(most, FIRST if number is None else max(FIRST, 2 * number))
        for _ in range(self.total):
            part = data.sample(PATH_ROWS, rng)
            path = self._state(part)
            while True:
                k, label = cut_path(path, begin_path(path, self.seeds, many, number, rng), number)
                if number is not None or self.seeds is not None or k <= many // 2 or many == most:
                    break
                # the best number is among the first mergers: begin with twice as many
                many = min(2 * many, most)  # for the starts to come, too
            if k is None:  # mergers passed over the number of clusters that is wanted
                drawn = distant_rows(data.X, number, data.w, rng)
                yield self._start(data, drawn)
                continue
            if part is data:
                yield GaussianStart(self._state(data), k, label).run(False, self.loop)
            else:
                path.refit(label, k)
                yield self._joined(data, path, k)

    def _joined(self, data, found, k):
        """The start of all rows from the k clusters of a state ``found`` of a sample."""
        state = self._state(data)
        state.take(found)
        label, least = state.assign()
        start = GaussianStart(state, k, label)
        start.restart(least)
        return start.run(False, self.loop)

    def _begun(self, data):
        """Starts from seeds, or from one cluster of all rows."""
        n = len(data.w)
        for start in range(self.total):
            order = None
            if self.cost is not None:
                order = np.arange(n) if start == 0 else self.rng.permutation(n)
            yield self._start(data, self.seeds, order)

    def _start(self, data, seeds, order=None):
        """The start at these seeds or, if clusters open, at one cluster; else at rows far apart."""
        state, cost = self._state(data), self.cost if order is not None else None
        if seeds is None and cost is not None:
            label = np.zeros(len(data.w), dtype=np.int32)
            return GaussianStart(state, 1, label, cost, order).run(False, self.loop)
        if seeds is None:
            seeds = distant_rows(data.X, self.number, data.w, self.rng)
        k, first = len(seeds), state.identity if self.known is None else self.known
        shares = np.full(k, 1.0 / k) if state.by_point else None
        covariances = np.broadcast_to(first, (k, *state.identity.shape))
        state.set_clusters(seeds.astype(np.float64), covariances, shares)
        label, least = state.assign()
        if cost is None:
            start = GaussianStart(state, k, label)
            start.restart(least)
        else:
            kept, label = np.unique(label, return_inverse=True)
            start = GaussianStart(state, len(kept), label.astype(np.int32), cost, order)
        return start.run(True, self.loop)
