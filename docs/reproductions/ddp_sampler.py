"""Samplers of the mixture that D-Means is the limit of, in plain numpy.

The Markov chain Gaussian mixture (Campbell, Kulis and How, 2017, section 2; Lin, Grimson and
Fisher, 2010, who call it a dependent Dirichlet process): a cluster with c points in the past, not
seen for D steps, lives on with probability q^D. A point of the present step joins

    a cluster that already has n points of this step      in proportion to  c + n,
    a cluster that has none yet                           in proportion to  q^D c,
    a new one                                             in proportion to  alpha        (eq. 8).

Centers of new clusters are N(m, s^2), between steps centers move by N(0, motion^2), and points are
N(center, noise^2), all isotropic. Given the labels, the center of every cluster is Gaussian, by a
Kalman filter; so centers are integrated out, and both samplers draw labels alone. The past goes on
as it was labeled: they are filters, as in the paper.

`gibbs_step` draws each point's label given those of all others of the step, with the proportions
above (eq. 53), sweep after sweep. Its stationary distribution has a step's labels in proportion to

    product over old clusters with n > 0 points of q^D Gamma(c + n) / Gamma(c)
    times product over new ones of alpha Gamma(n)      times the density of the points.

`particle_step` is particle learning (Carvalho, Lopes, Polson and Taddy, 2010): for each point in
turn, particles are drawn anew by how well they predict it, then each draws its label. It follows
(8) as a sequence, where the sum of the proportions depends on which clusters have points already,
and so on the order of the points. Where no cluster waits to be revived the two agree.

Many states, chains or particles, are held side by side in arrays.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln, logsumexp

TINY = np.finfo(float).tiny


@dataclass(frozen=True)
class Mixture:
    """Parameters of the mixture."""

    alpha: float  # proportion of a new cluster
    survival: float  # q, for a step
    noise: float  # standard deviation of points, in each direction
    motion: float  # of a center from step to step
    place: float | np.ndarray  # mean of new centers
    reach: float  # standard deviation of new centers


class States:
    """Clusters of many states, in columns that each state fills as it likes.

    Labels are columns; `named` turns them into numbers that stay. What a step changes is packed,
    so that a point takes few calls: `held` has, for each column, its points of this step, their
    sum, its points in the past, its proportion while it has none of this step, and precision and
    precision times mean of its center before this step; `found` has what the next point would find,
    the proportion, the log of it times the density at the mean, 1 / (2 variance), and the mean.
    """

    SPARE = 8  # columns that are added when a state has none left
    PAST = ("name", "count", "age", "center", "variance")

    def __init__(self, mixture, n_states, d, seed):
        self.mixture, self.d = mixture, d
        self.rng = np.random.default_rng(seed)
        self.rows = np.arange(n_states)
        self.name = np.full((n_states, 0), -1)  # number of a cluster of the past; -1: free
        self.count = np.zeros((n_states, 0))  # its points in the past
        self.age = np.zeros((n_states, 0))  # steps since it had points
        self.center = np.zeros((n_states, 0, d))  # mean and variance of its center before this step
        self.variance = np.zeros((n_states, 0))
        self.n_points = 0  # of all steps so far
        self.held = self.found = None

    def _widen(self):
        """Add free columns."""
        shape, reach = (len(self.rows), self.SPARE), self.mixture.reach
        place = np.broadcast_to(self.mixture.place, (*shape, self.d))
        added = {"name": np.full(shape, -1), "count": np.zeros(shape), "age": np.zeros(shape)}
        added |= {"center": place, "variance": np.full(shape, reach**2)}
        if self.held is not None:
            held = np.zeros((*shape, 4 + 2 * self.d))
            held[..., self.d + 3] = reach**-2
            held[..., self.d + 4 :] = place / reach**2
            added |= {"held": held, "found": self._next(held)}
        for field, values in added.items():
            setattr(self, field, np.concatenate([getattr(self, field), values], axis=1))

    def begin(self):
        """A new step without points: clusters have aged and moved."""
        self.held = None
        if (self.name >= 0).all(axis=1).any():
            self._widen()
        old = self.name >= 0
        self.age = self.age + old
        self.variance = self.variance + self.mixture.motion**2 * old
        waiting = self.mixture.survival**self.age * self.count
        waiting = np.maximum(waiting, TINY * old)  # 0 is for free columns
        self.held = np.zeros((*old.shape, 4 + 2 * self.d))
        self.held[..., self.d + 1] = self.count
        self.held[..., self.d + 2] = waiting
        self.held[..., self.d + 3] = 1 / self.variance
        self.held[..., self.d + 4 :] = self.center / self.variance[..., None]
        self.found = self._next(self.held)

    def _posterior(self, held):
        """Precision and mean of centers given the past and the points of this step."""
        gain = self.mixture.noise**-2
        precision = held[..., self.d + 3] + gain * held[..., 0]
        weighted = held[..., self.d + 4 :] + gain * held[..., 1 : self.d + 1]
        return precision, weighted / precision[..., None]

    def _next(self, held):
        """What the next point would find."""
        result = np.empty((*held.shape[:-1], 3 + self.d))
        precision, result[..., 3:] = self._posterior(held)
        width = 1 / precision + self.mixture.noise**2
        now = held[..., 0]
        urn = np.where(now > 0, held[..., self.d + 1] + now, held[..., self.d + 2])  # 0 where free
        result[..., 0] = urn
        # a free column is as wide as a new cluster, which comes before it by a factor of 1e307
        result[..., 1] = np.log(np.maximum(urn, TINY)) - self.d / 2 * np.log(2 * np.pi * width)
        result[..., 2] = 0.5 / width
        return result

    def _scores(self, point):
        """Log of proportion times density for every column, and for a new cluster, last."""
        mixture, found = self.mixture, self.found
        gap = found[..., 3:] - point[:, None]
        result = np.empty((len(found), found.shape[1] + 1))
        result[:, :-1] = found[..., 1] - found[..., 2] * np.einsum("rkd,rkd->rk", gap, gap)
        width = mixture.reach**2 + mixture.noise**2
        far = ((point - mixture.place) ** 2).sum(axis=1) / (2 * width)
        result[:, -1] = np.log(mixture.alpha) - self.d / 2 * np.log(2 * np.pi * width) - far
        return result

    def _shift(self, columns, point, sign):
        """Add a point to a cluster of every state, or take it away."""
        held = self.held[self.rows, columns]
        held[:, 0] += sign
        held[:, 1 : self.d + 1] += sign * point
        held[:, 1 : self.d + 1] *= (held[:, 0] > 0)[:, None]  # no rounding stays
        self.held[self.rows, columns] = held
        self.found[self.rows, columns] = self._next(held)

    def _join(self, score, point):
        """Draw a cluster in every state, and put the point there."""
        share = np.exp(score - score.max(axis=1, keepdims=True)).cumsum(axis=1)
        mark = (1 - self.rng.random(len(share))) * share[:, -1]  # above 0
        column = (share < mark[:, None]).sum(axis=1)
        opened = np.flatnonzero(column == score.shape[1] - 1)
        if len(opened):
            column[opened] = (self.found[opened, :, 0] > 0).argmin(axis=1)
        self._shift(column, point, 1)
        if len(opened) and (self.found[opened, :, 0] > 0).all(axis=1).any():
            self._widen()
        return column

    def log_joint(self):
        """Log of the stationary distribution of `gibbs_step`, apart from a constant."""
        precision, mean = self._posterior(self.held)
        old, now = self.name >= 0, self.held[..., 0]
        prior = np.where(
            old,
            self.age * np.log(self.mixture.survival) - gammaln(np.maximum(self.count, 1)),
            np.log(self.mixture.alpha),
        ) + gammaln(np.maximum(self.count + now, 1))
        drawn = (self.center**2).sum(axis=2) / self.variance - precision * (mean**2).sum(axis=2)
        density = -(self.d * np.log(self.variance * precision) + drawn) / 2
        return ((prior + density) * (now > 0)).sum(axis=1)

    def named(self, columns):
        """Numbers of clusters: of a new one, that of its first point in the whole record."""
        if not columns.shape[1]:
            return columns
        name = np.take_along_axis(self.name, columns, axis=1)
        same = columns[:, :, None] == columns[:, None]
        return np.where(name >= 0, name, self.n_points + same.argmax(axis=2))

    def end(self, columns, points):
        """The step is labeled so for good; returns the numbers of the clusters."""
        names = self.named(columns)
        self.held[..., : self.d + 1] = 0
        index = (self.rows[:, None], columns)
        np.add.at(self.held[..., 0], index, 1)
        np.add.at(self.held[..., 1 : self.d + 1], index, points)
        precision, mean = self._posterior(self.held)
        now = self.held[..., 0]
        seen = now > 0
        self.center = np.where(seen[..., None], mean, self.center)
        self.variance = np.where(seen, 1 / precision, self.variance)
        self.count = self.count + now
        self.age = np.where(seen, 0, self.age)
        self.name[index] = names
        self.n_points += columns.shape[1]
        return names

    def take(self, rows, fields):
        """Go on with these states, some more than once, others not at all."""
        for field in fields:
            setattr(self, field, getattr(self, field)[rows])


def gibbs_step(states, points, n_samples):
    """Samples of the labels (columns) of a step, and log_joint of each; then `states.end` one.

    ``points`` has shape (n_states or 1, n, d). In the first sweep every point is labeled given
    those before it.
    """
    states.begin()
    n = points.shape[1]
    columns = np.empty((n_samples, len(states.rows), n), dtype=int)
    worth = np.empty((n_samples, len(states.rows)))
    for sample in range(n_samples):
        for i in range(n):
            if sample:
                states._shift(columns[sample - 1, :, i], points[:, i], -1)
            columns[sample, :, i] = states._join(states._scores(points[:, i]), points[:, i])
        worth[sample] = states.log_joint()
    return columns, worth


def particle_step(states, points):
    """Labels (columns) of a step in every particle, and which one it was before the step.

    Then `states.end` these labels.
    """
    states.begin()
    n, n_states = points.shape[1], len(states.rows)
    columns, before = np.empty((n_states, n), dtype=int), states.rows
    for i in range(n):
        score = states._scores(points[:, i])
        worth = logsumexp(score, axis=1) - np.log(
            states.found[..., 0].sum(axis=1) + states.mixture.alpha
        )
        share = np.exp(worth - worth.max()).cumsum()
        comb = (states.rows + states.rng.random()) / n_states * share[-1]
        drawn = np.minimum(np.searchsorted(share, comb, side="right"), n_states - 1)
        states.take(drawn, ("held", "found"))
        columns[:, :i], before = columns[drawn, :i], before[drawn]
        columns[:, i] = states._join(score[drawn], points[:, i])
    states.take(before, states.PAST)  # which no point changes
    return columns, before
