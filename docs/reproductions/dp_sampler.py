"""Gibbs sampling of the Dirichlet process mixture of Gaussians that DP-means is the limit of.

    x_i ~ N(mu_{z_i}, sigma I),    mu_k ~ N(0, rho I),
    p(z) = alpha^K prod_k (n_k - 1)! Gamma(alpha) / Gamma(alpha + n),

sections 2.2 and 3.1 of Kulis and Jordan (2012), who use Algorithm 2 of Neal (2000): it draws labels
given the means and means given the labels. Algorithm 3, "collapsed", integrates the means out and
has the same posterior of the labels. sigma may have an inverse gamma prior and alpha a gamma prior,
as in section 6.1; alpha is then drawn as in Escobar and West (1995), section 6.

Many chains run side by side, each with data and parameters of its own: numpy's loops are over
chains, clusters and columns, Python's over the points. tests/test_samplers.py compares frequencies
with the posterior of all 203 partitions of six points.
"""

import numpy as np

BLOCK = 64  # points whose random numbers are drawn at once


class DirichletProcess:
    """Chains of a Gibbs sampler, all from a single cluster.

    X is (n, d), or (chains, n, d) with other rows for each chain; sigma and alpha are numbers or
    have one for each chain. ``sigma_prior`` is (shape, scale) of an inverse gamma distribution,
    ``alpha_prior`` (shape, rate) of a gamma distribution; None keeps what is given. ``labels`` is
    (chains, n): equal numbers in a row of it are a cluster.
    """

    def __init__(
        self,
        X,
        sigma,
        rho,
        alpha,
        *,
        chains=1,
        collapsed=True,
        sigma_prior=None,
        alpha_prior=None,
        seed=0,
    ):
        X = np.asarray(X, dtype=np.float64)
        self.X = np.ascontiguousarray(np.broadcast_to(X, (chains, *X.shape[-2:])))
        self.chains, self.n, self.d = self.X.shape
        self.sigma = np.broadcast_to(np.asarray(sigma, dtype=np.float64), (chains,)).copy()
        self.alpha = np.broadcast_to(np.asarray(alpha, dtype=np.float64), (chains,)).copy()
        self.rho, self.collapsed = float(rho), collapsed
        self.sigma_prior, self.alpha_prior = sigma_prior, alpha_prior
        self.rng = np.random.default_rng(seed)
        self.labels = np.zeros((chains, self.n), dtype=np.intp)
        self.width = 1  # slots for clusters in each chain

    @property
    def n_clusters(self):
        """Clusters in each chain."""
        return (self._counts(self.width) > 0).sum(axis=1)

    def sweep(self):
        """Draw every label once, then sigma and alpha where they have priors."""
        self._gather()
        for i in range(self.n):
            if i % BLOCK == 0:
                noise = self.rng.gumbel(size=(min(BLOCK, self.n - i), self.chains, self.width))
            if noise.shape[2] < self.width:  # there are more slots than before
                more = self.width - noise.shape[2]
                more = self.rng.gumbel(size=(*noise.shape[:2], more))
                noise = np.concatenate([noise, more], axis=2)
            self._draw(i, noise[i % BLOCK])
        if self.sigma_prior is not None:
            self._draw_sigma()
        if self.alpha_prior is not None:
            self._draw_alpha()

    def _counts(self, width):
        flat = np.arange(self.chains)[:, None] * width + self.labels
        return np.bincount(flat.ravel(), minlength=self.chains * width).reshape(-1, width)

    def _gather(self):
        """Put the clusters of each chain into its first slots, and the state of each beside it."""
        used = self._counts(self.width) > 0
        rank = np.cumsum(used, axis=1) - 1
        self.labels = np.take_along_axis(rank, self.labels, axis=1)
        self.width = int(used.sum(axis=1).max()) + 4
        self.first = np.arange(self.chains) * self.width
        flat = self.first[:, None] + self.labels
        self.count = np.bincount(flat.ravel(), minlength=self.chains * self.width)
        self.sums = np.zeros((self.chains * self.width, self.d))
        np.add.at(self.sums, flat.ravel(), self.X.reshape(-1, self.d))
        self.open = self.first + used.sum(axis=1)
        self.rows = np.arange(self.chains) * (self.n + 1)  # of the tables, for no points
        self._tabulate()
        chain = np.arange(self.chains).repeat(self.width)
        row = chain * (self.n + 1) + self.count
        self.rate, self.weight = self.rates[row], self.weights[row]
        self.weight[self.open] = self.new_weight
        if self.collapsed:
            self.center = self.shrink[row][:, None] * self.sums
        else:
            self.center = self._means(np.arange(len(row)), chain)

    def _tabulate(self):
        """For each chain and number of points of a cluster, n from 0: what its score is made of.

        Given n points with mean m, mu has the mean n rho / (sigma + n rho) m and the variance
        v = sigma rho / (sigma + n rho). A score is log n - d/2 log s - ||x - c||^2 / (2 s); s is
        sigma + v around the mean of mu if means are integrated out, else sigma around mu, but for
        a new cluster, whose mean always is integrated out.
        """
        sigma = self.sigma[:, None]
        n = np.arange(self.n + 1)
        self.shrink = self.rho / (sigma + n * self.rho)
        spread = sigma + (sigma * self.shrink if self.collapsed else np.where(n, 0, self.rho))
        with np.errstate(divide="ignore"):
            self.weights = (np.log(n) - 0.5 * self.d * np.log(spread)).ravel()
        self.new_weight = np.log(self.alpha) - 0.5 * self.d * np.log(spread[:, 0])
        self.rates, self.shrink = (-0.5 / spread).ravel(), self.shrink.ravel()

    def _means(self, slots, chain):
        """Draw the means of these slots; 0 for the empty ones."""
        shrink = self.shrink[chain * (self.n + 1) + self.count[slots]]
        deviation = np.sqrt(self.sigma[chain] * shrink) * (self.count[slots] > 0)
        normal = self.rng.standard_normal((len(slots), self.d))
        return shrink[:, None] * self.sums[slots] + deviation[:, None] * normal

    def _draw(self, i, noise):
        """Take point i of every chain out of its cluster and draw another one."""
        x = self.X[:, i]
        slots = self.first + self.labels[:, i]
        count = self._add(slots, x, -1)
        if not count.all():
            emptied = count == 0
            self.center[slots[emptied]] = self.sums[slots[emptied]] = 0.0
        away = self.center.reshape(self.chains, self.width, self.d) - x[:, None]
        score = np.einsum("rkd,rkd->rk", away, away)
        score *= self.rate.reshape(score.shape)
        score += self.weight.reshape(score.shape)
        score += noise  # the largest score plus Gumbel noise is a draw from exp(score)
        self.labels[:, i] = label = score.argmax(axis=1)
        slots = self.first + label
        born = np.flatnonzero(self._add(slots, x, 1) == 1)
        if len(born):
            if not self.collapsed:
                self.center[slots[born]] = self._means(slots[born], born)
            self._open(born)

    def _add(self, slots, x, sign):
        """Points x come (1) or go (-1); returns how many there are now."""
        self.count[slots] = count = self.count[slots] + sign
        row = self.rows + count
        self.rate[slots], self.weight[slots] = self.rates[row], self.weights[row]
        self.sums[slots] = sums = self.sums[slots] + sign * x
        if self.collapsed:
            self.center[slots] = self.shrink[row][:, None] * sums
        return count

    def _open(self, chains):
        """Offer an empty slot to these chains, whose last one has been taken."""
        empty = self.count.reshape(self.chains, self.width) == 0
        if not empty[chains].any(axis=1).all():
            self._widen()
            empty = self.count.reshape(self.chains, self.width) == 0
        self.open[chains] = self.first[chains] + empty[chains].argmax(axis=1)
        self.weight[self.open] = self.new_weight

    def _widen(self):
        """Twice as many slots."""
        for name in ("count", "rate", "weight", "sums", "center"):
            old = getattr(self, name)
            old = old.reshape(self.chains, self.width, *old.shape[1:])
            new = np.zeros((self.chains, 2 * self.width, *old.shape[2:]), dtype=old.dtype)
            new[:, : self.width] = old
            if name == "weight":
                new[:, self.width :] = -np.inf
            if name == "rate":
                new[:, self.width :] = self.rates.reshape(self.chains, -1)[:, :1]
            setattr(self, name, new.reshape(-1, *old.shape[2:]))
        offer = self.open - self.first
        self.width *= 2
        self.first = np.arange(self.chains) * self.width
        self.open = self.first + offer

    def _draw_sigma(self):
        """Given means drawn for this and then forgotten."""
        shape, scale = self.sigma_prior
        chain = np.arange(self.chains).repeat(self.width)
        means = self._means(np.arange(len(chain)), chain)
        away = self.X - means[self.first[:, None] + self.labels]
        scale = scale + 0.5 * np.einsum("rnd,rnd->r", away, away)
        self.sigma = scale / self.rng.gamma(shape + 0.5 * self.n * self.d, size=self.chains)

    def _draw_alpha(self):
        shape, rate = self.alpha_prior
        k = (self.count.reshape(self.chains, self.width) > 0).sum(axis=1)
        rate = rate - np.log(self.rng.beta(self.alpha + 1.0, self.n))
        odds = (shape + k - 1.0) / (self.n * rate)
        more = self.rng.random(self.chains) * (1.0 + odds) < odds
        self.alpha = self.rng.gamma(shape + k - 1.0 + more) / rate
