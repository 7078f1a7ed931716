"""The samplers of docs/reproductions against posteriors that can be added up."""

import importlib.util
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from scipy.special import gammaln, logsumexp
from scipy.stats import chi2, gamma, invgamma


def script(name):
    """A module of docs/reproductions."""
    path = Path(__file__).parents[1] / "docs" / "reproductions" / f"{name}.py"
    if not path.is_file():
        pytest.skip("the source tree is not at hand")
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class TestDirichletProcess:
    """dp_sampler.py: six points, their 203 partitions, all moves of both samplers."""

    X = np.array([[0.0, 0.2], [0.6, -0.5], [1.4, 0.3], [2.1, 1.0], [-1.2, 0.4], [2.5, -0.8]])
    SIGMA, RHO, ALPHA = 0.5, 2.0, 1.3
    SIGMA_PRIOR, ALPHA_PRIOR = (3.0, 1.5), (0.5, 0.3)  # shape and scale; shape and rate
    CHAINS, SPACING, DRAWS = 1000, 5, 8

    @staticmethod
    def partitions(n):
        """All of them, numbered by first occurrence."""
        if n == 0:
            return [()]
        return [
            (*p, k)
            for p in TestDirichletProcess.partitions(n - 1)
            for k in range(max(p, default=-1) + 2)
        ]

    def likelihood(self, sigmas):
        """log p(X | z) of every partition: columns of a cluster are N(0, sigma I + rho 11')."""
        of_cluster = {}

        def evidence(rows):
            if rows not in of_cluster:
                x = self.X[list(rows)]
                cov = sigmas[:, None, None] * np.eye(len(x)) + self.RHO
                logdet = np.linalg.slogdet(2 * np.pi * cov)[1]
                squares = np.sum(x * np.linalg.solve(cov, x[None]), axis=(1, 2))
                of_cluster[rows] = -0.5 * (x.shape[1] * logdet + squares)
            return of_cluster[rows]

        return np.stack(
            [
                sum(evidence(tuple(np.flatnonzero(np.equal(p, k)).tolist())) for k in set(p))
                for p in self.partitions(len(self.X))
            ]
        )

    def prior(self, alphas):
        """log p(z): the Chinese restaurant process."""
        n = len(self.X)
        sizes = [list(Counter(p).values()) for p in self.partitions(n)]
        return np.stack(
            [
                len(s) * np.log(alphas) + gammaln(s).sum() + gammaln(alphas) - gammaln(alphas + n)
                for s in sizes
            ]
        )

    def posterior(self, sigma_prior=None, alpha_prior=None, alpha=ALPHA):
        """Probabilities; a prior is cut into 500 pieces of equal probability, by the midpoint."""
        middle = (np.arange(500) + 0.5) / 500
        sigmas, alphas = np.array([self.SIGMA]), np.array([alpha])
        if sigma_prior is not None:
            sigmas = invgamma(sigma_prior[0], scale=sigma_prior[1]).ppf(middle)
        if alpha_prior is not None:
            alphas = gamma(alpha_prior[0], scale=1 / alpha_prior[1]).ppf(middle)
        joint = logsumexp(self.likelihood(sigmas), axis=1) + logsumexp(self.prior(alphas), axis=1)
        return np.exp(joint - logsumexp(joint))

    def frequencies(self, **options):
        """How often each partition was drawn, by chains that are apart, after some sweeps."""
        sampler = script("dp_sampler").DirichletProcess(
            self.X, self.SIGMA, self.RHO, self.ALPHA, chains=self.CHAINS, **options
        )
        number = {p: i for i, p in enumerate(self.partitions(len(self.X)))}
        found = np.zeros(len(number))
        for sweep in range(self.SPACING * (self.DRAWS + 3)):
            sampler.sweep()
            if sweep >= 3 * self.SPACING and sweep % self.SPACING == 0:
                for row in sampler.labels.tolist():
                    names = {k: i for i, k in enumerate(dict.fromkeys(row))}
                    found[number[tuple(names[k] for k in row)]] += 1
        return found

    @staticmethod
    def surprise(found, probability):
        """Pearson's statistic over its 1 - 1e-6 quantile; rare partitions are one cell."""
        expected = found.sum() * probability
        rare = expected < 10
        expected = np.append(expected[~rare], expected[rare].sum())
        found = np.append(found[~rare], found[rare].sum())
        statistic = np.sum((found - expected) ** 2 / expected)
        return statistic / chi2(len(expected) - 1).isf(1e-6)

    @pytest.mark.parametrize("collapsed", [True, False])
    @pytest.mark.parametrize("priors", [(), ("sigma_prior", "alpha_prior")])
    def test_frequencies_are_the_posterior(self, collapsed, priors):
        given = {name: getattr(self, name.upper()) for name in priors}
        found = self.frequencies(collapsed=collapsed, **given)
        assert found.sum() == self.CHAINS * self.DRAWS
        assert np.count_nonzero(found) > 150
        assert self.surprise(found, self.posterior(**given)) < 1
        # so many draws do tell posteriors apart that are near
        other = {"alpha_prior": (0.5, 0.5)} if priors else {"alpha": 0.75 * self.ALPHA}
        assert self.surprise(found, self.posterior(**{**given, **other})) > 1
        if priors:
            other = {"sigma_prior": (3.0, 1.1)}
            assert self.surprise(found, self.posterior(**{**given, **other})) > 1

    @pytest.mark.parametrize("collapsed", [True, False])
    def test_state_after_many_new_clusters(self, collapsed):
        """Slots are added within a sweep; what lies in them is what the labels say."""
        n = 60
        X = np.random.default_rng(0).normal(size=(n, 3))
        sampler = script("dp_sampler").DirichletProcess(
            X, self.SIGMA, self.RHO, 300.0, chains=4, collapsed=collapsed
        )
        sampler.sweep()
        assert sampler.n_clusters.min() > 20
        shape = (4, sampler.width)
        count, sums = sampler.count.reshape(shape), sampler.sums.reshape(*shape, 3)
        weight, rate = sampler.weight.reshape(shape), sampler.rate.reshape(shape)
        center = sampler.center.reshape(*shape, 3)
        for chain, labels in enumerate(sampler.labels):
            np.testing.assert_array_equal(count[chain], np.bincount(labels, minlength=shape[1]))
            for k, size in enumerate(count[chain]):
                np.testing.assert_allclose(sums[chain, k], X[labels == k].sum(0), atol=1e-12)
                spread, log_size = self.SIGMA, np.log(size) if size else -np.inf
                if collapsed or not size:
                    mean = self.RHO * sums[chain, k] / (self.SIGMA + size * self.RHO)
                    np.testing.assert_allclose(center[chain, k], mean, atol=1e-12)
                    spread = self.SIGMA + self.SIGMA * self.RHO / (self.SIGMA + size * self.RHO)
                if k == sampler.open[chain] - chain * shape[1]:
                    assert size == 0
                    log_size = np.log(300.0)
                np.testing.assert_allclose(rate[chain, k], -0.5 / spread)
                np.testing.assert_allclose(weight[chain, k], log_size - 1.5 * np.log(spread))

    def test_alpha_given_the_number_of_clusters(self):
        """Density p(alpha) alpha^K Gamma(alpha) / Gamma(alpha + n), by Kolmogorov's distance."""
        sampler = script("dp_sampler").DirichletProcess(
            self.X, self.SIGMA, self.RHO, self.ALPHA, chains=20_000, alpha_prior=(0.5, 0.3)
        )
        sampler.labels[:, 3:], sampler.width = [1, 1, 2], 3
        sampler._gather()
        for _ in range(30):
            sampler._draw_alpha()
        edges = np.geomspace(1e-4, 100, 4001)
        middle = np.sqrt(edges[1:] * edges[:-1])
        density = (0.5 + 3 - 1) * np.log(middle) - 0.3 * middle
        density += gammaln(middle) - gammaln(middle + len(self.X))
        cumulated = np.cumsum(np.exp(density) * np.diff(edges))
        cumulated /= cumulated[-1]
        found = np.searchsorted(np.sort(sampler.alpha), edges[1:]) / len(sampler.alpha)
        assert np.abs(found - cumulated).max() < 0.015  # 2 / sqrt(chains) is 0.014
