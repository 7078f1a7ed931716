"""The samplers of docs/reproductions against posteriors that can be added up."""

import itertools
import math
from collections import Counter
from itertools import combinations_with_replacement
from types import SimpleNamespace

import numpy as np
import pytest
from helpers import reproduction
from scipy.special import gammaln, logsumexp, roots_genlaguerre
from scipy.stats import chi2, gamma, invgamma


class TestIndianBuffet:
    """ibp_sampler.py: three rows of two columns, their 3,432 allocations of at most 7 features."""

    X = np.array([[2.0, -0.6], [1.5, 1.3], [-0.4, 2.4]])
    ALPHA, NOISE, FEATURE = 0.6, 0.5, 1.0
    PRIORS = {"alpha_prior": (2.0, 5.0), "noise_prior": (3.0, 1.5), "feature_prior": (3.0, 2.0)}
    FIXED = dict.fromkeys(PRIORS)
    # columns as numbers from 1 to 7, in order: one allocation for each class
    ALLOCATIONS = [c for k in range(8) for c in combinations_with_replacement(range(1, 8), k)]
    DRAWS = 2000

    def likelihood(self, variances, allocations=ALLOCATIONS):
        """log of the sum of exp(log weight) p(X | Z) over pairs of variances and log weights.

        Columns of X are N(0, feature ZZ' + noise I), by eigenvectors of ZZ'.
        """
        bits = (np.arange(8)[:, None] >> np.arange(3)) & 1
        outer = bits[:, :, None] * bits[:, None, :]
        shared = np.array([outer[list(columns)].sum(axis=0) for columns in allocations])
        values, vectors = np.linalg.eigh(shared.astype(float))
        squares = np.square(vectors.transpose(0, 2, 1) @ self.X).sum(axis=2)
        total = np.full(len(allocations), -np.inf)
        for noise, feature, log_weight in variances:
            each = feature * values + noise
            log = -(self.X.shape[1] * np.log(2 * np.pi * each) + squares / each).sum(axis=1) / 2
            total = np.logaddexp(total, log + log_weight)
        return total

    def prior(self, alpha_prior):
        """log P([Z]) but for a constant; alpha is fixed or integrated out."""
        n, harmonic = 3, 11 / 6
        size = np.array([0, *(int(c).bit_count() for c in range(1, 8))])
        column = gammaln(size) + gammaln(n - size + 1) - gammaln(n + 1)
        k = np.array([len(columns) for columns in self.ALLOCATIONS])
        each = [
            column[list(columns)].sum() - gammaln(np.array([*Counter(columns).values()]) + 1).sum()
            for columns in self.ALLOCATIONS
        ]
        if alpha_prior is None:
            return each + k * np.log(self.ALPHA)
        shape, rate = alpha_prior
        return each + gammaln(shape + k) - k * np.log(rate + harmonic)

    @staticmethod
    def nodes(noise_prior, feature_prior):
        """Pairs of variances with their log weights: Gauss-Laguerre quadrature of precisions."""
        both = []
        for shape, scale in (noise_prior, feature_prior):
            precision, weight = roots_genlaguerre(12, shape - 1)
            both.append(list(zip(scale / precision, np.log(weight), strict=True)))
        return [(one, other, a + b) for one, a in both[0] for other, b in both[1]]

    def posterior(self, alpha_prior=None, noise_prior=None, feature_prior=None):
        """Probabilities of all allocations."""
        if noise_prior is None:
            variances = [(self.NOISE, self.FEATURE, 0.0)]
        else:
            variances = self.nodes(noise_prior, feature_prior)
        log = self.likelihood(variances) + self.prior(alpha_prior)
        return np.exp(log - logsumexp(log))

    def chain(self, Z, priors):
        return reproduction("ibp_sampler").IndianBuffet(
            self.X,
            Z,
            np.random.default_rng(0),
            alpha=self.ALPHA,
            noise=self.NOISE,
            feature=self.FEATURE,
            **priors,
        )

    def frequencies(self, priors, change=None):
        """How often each class was drawn; the last number is for more than 7 features."""
        chain = self.chain(np.ones((3, 1)), priors)
        if change is not None:
            change(chain)
        number = {columns: i for i, columns in enumerate(self.ALLOCATIONS)}
        found = np.zeros(len(self.ALLOCATIONS) + 1)
        for step in range(self.DRAWS + 10):
            chain.step()
            if step >= 10:
                columns = tuple(sorted((chain.Z.T @ [1, 2, 4]).astype(int).tolist()))
                found[number.get(columns, -1)] += 1
        return found

    @staticmethod
    def surprise(found, probability):
        """Pearson's statistic over its 1 - 1e-6 quantile; rare allocations are one cell."""
        expected = found.sum() * np.append(probability, 0.0)
        rare = expected < 10
        expected = np.append(expected[~rare], expected[rare].sum())
        found = np.append(found[~rare], found[rare].sum())
        return np.sum((found - expected) ** 2 / expected) / chi2(len(expected) - 1).isf(1e-6)

    @pytest.mark.parametrize("priors", [FIXED, PRIORS], ids=["fixed", "drawn"])
    def test_frequencies_are_the_posterior(self, priors):
        probability = self.posterior(**priors)
        most = [len(columns) == 7 for columns in self.ALLOCATIONS]
        assert probability[most].sum() < 2e-3  # so that more than 7 hardly matter
        found = self.frequencies(priors)
        assert np.count_nonzero(found) > 100
        assert self.surprise(found, probability) < 1
        # and so many draws do tell posteriors apart
        self.ALPHA, alpha_prior = 0.8 * self.ALPHA, (2.0, 4.0)
        other = priors if priors == self.FIXED else priors | {"alpha_prior": alpha_prior}
        assert self.surprise(found, self.posterior(**other)) > 1

    @pytest.mark.parametrize("mistake", ["own features forgotten", "A taken for its mean"])
    def test_mistakes_show(self, mistake):
        def change(chain):
            shared, own = chain.draw_shared, chain.draw_own
            if mistake == "own features forgotten":
                chain.draw_shared = lambda x, z, count: shared(x, z, 0)
            else:
                chain.draw_own = lambda square, variance: own(square, chain.noise)

        found = self.frequencies(self.FIXED, change)
        assert self.surprise(found, self.posterior()) > 1

    @pytest.mark.parametrize("mean", [False, True], ids=["drawn", "A taken for its mean"])
    def test_variances_given_the_bits(self, mean):
        Z, (noise_prior, feature_prior) = [[1, 0], [1, 1], [0, 1]], [*self.PRIORS.values()][1:]
        chain = self.chain(Z, self.PRIORS)
        if mean:
            chain.rng = SimpleNamespace(gamma=chain.rng.gamma, standard_normal=np.zeros)
        draws = []
        for _ in range(4000):
            chain.draw_variances()
            draws.append((1 / chain.noise, 1 / chain.feature))
        nodes = self.nodes(noise_prior, feature_prior)
        log = [self.likelihood([node], [(3, 6)])[0] for node in nodes]
        precisions = [(1 / noise, 1 / feature) for noise, feature, _ in nodes]
        expected = np.average(precisions, axis=0, weights=np.exp(log))
        batches = np.mean(np.reshape(draws, (40, 100, 2)), axis=1)
        error = batches.std(axis=0, ddof=1) / np.sqrt(40)
        far = np.abs(batches.mean(axis=0) - expected) / error
        assert (far.max() > 10) == mean, far
        assert (far.max() < 5) != mean, far

    def test_log_joint_orders_allocations_as_the_posterior_does(self):
        these = [(), (3,), (1, 6), (2, 2, 5), (4, 4, 4, 7, 7)]
        values = []
        for columns in these:
            Z = (np.array(columns, dtype=int) >> np.arange(3)[:, None]) & 1
            chain = self.chain(Z, self.FIXED)
            values.append(chain.log_joint())
        log = np.log(self.posterior()[[self.ALLOCATIONS.index(c) for c in these]])
        assert np.diff(values) == pytest.approx(np.diff(log), abs=1e-9)


class TestDependentDirichletProcess:
    """ddp_sampler.py: steps of 3, 0 and 3 points, so clusters of the first wait for two steps."""

    PARAMETERS = {"alpha": 0.8, "survival": 0.6, "noise": 0.5, "motion": 0.4}
    PRIOR = {"place": 0.2, "reach": 1.1}
    FIRST = np.array([[0.0, 0.3], [0.4, -0.2], [1.6, 0.9]])
    SECOND = np.array([[0.3, 0.4], [1.4, 1.2], [0.6, 0.1]])
    DRAWS = 8_000
    BOUND = 0.06  # of the total variation distance; by chance alone it is 0.043 on average

    def density(self, members, motion=None):
        """Log density of the points of a cluster, (step, coordinates) each: by its covariance."""
        motion = self.PARAMETERS["motion"] if motion is None else motion
        steps = np.array([step for step, _ in members])
        points = np.array([point for _, point in members])
        began = steps.min()
        walked = motion**2 * (np.minimum.outer(steps, steps) - began)
        shared = self.PRIOR["reach"] ** 2 + walked
        covariance = shared + self.PARAMETERS["noise"] ** 2 * np.eye(len(steps))
        gap = points - self.PRIOR["place"]
        width = np.linalg.slogdet(2 * np.pi * covariance)[1]  # for each of the two columns
        return -width - (gap * np.linalg.solve(covariance, gap)).sum() / 2

    def partitions(self, names, n):
        """Labels of n points out of these names, or out of their own numbers from 3 on."""
        for labels in itertools.product([*names, *range(3, 3 + n)], repeat=n):
            if all(k in names or labels.index(k) == k - 3 for k in labels):
                yield labels

    def urn(self, first, second, alpha, survival, sequence):
        """Proportion of the labels of the second step; as a sequence, probability by eq. 8."""
        result, counts = 1.0, {}
        for label in second:
            of = {
                name: first.count(name) + counts[name]
                if name in counts
                else survival**2 * first.count(name)
                for name in {*first, *counts}
            }
            result *= of.get(label, alpha) / (sum(of.values()) + alpha if sequence else 1)
            counts[label] = counts.get(label, 0) + 1
        return result

    def exact(self, sequence, alpha=None, survival=None, motion=None):
        """Probability of every labeling of both steps.

        For filters that keep the first step as it is drawn: p(first | its points) p(second | all).
        As a ``sequence``, the posterior of both.
        """
        alpha = self.PARAMETERS["alpha"] if alpha is None else alpha
        survival = self.PARAMETERS["survival"] if survival is None else survival
        result = {}
        for first in {tuple(z.index(k) for k in z) for z in itertools.product(range(3), repeat=3)}:
            groups = {k: [(0, self.FIRST[i]) for i in range(3) if first[i] == k] for k in first}
            tables = math.prod(math.factorial(len(group) - 1) for group in groups.values())
            before = {k: self.density(group, motion) for k, group in groups.items()}
            alone = alpha ** len(groups) * tables * math.exp(sum(before.values()))
            follows = {}
            for second in self.partitions(set(first), 3):
                density = 0.0
                for k in set(second):
                    now = [(2, self.SECOND[i]) for i in range(3) if second[i] == k]
                    density += self.density(groups.get(k, []) + now, motion) - before.get(k, 0.0)
                prior = self.urn(first, second, alpha, survival, sequence)
                follows[second] = prior * math.exp(density)
            whole = 1.0 if sequence else sum(follows.values())
            for second, worth in follows.items():
                result[first + second] = alone * worth / whole
        whole = sum(result.values())
        return {labels: worth / whole for labels, worth in result.items()}

    def draws(self, sampler, n_states=DRAWS):
        """Labels of both steps, in so many chains or particles, and `log_joint` of the second."""
        module = reproduction("ddp_sampler")
        mixture = module.Mixture(**self.PARAMETERS, **self.PRIOR)
        states = module.States(mixture, n_states, 2, 0)
        names = np.empty((n_states, 0), dtype=int)
        for points in (self.FIRST, self.FIRST[:0], self.SECOND):
            if sampler == "gibbs":
                columns = module.gibbs_step(states, points[None], 6)[0][-1]
            else:
                columns, before = module.particle_step(states, points[None])
                names = names[before]
            worth = states.log_joint()
            names = np.hstack([names, states.end(columns, points[None])])
        return names, worth

    @pytest.mark.parametrize("sampler", ["gibbs", "particles"])
    def test_frequencies(self, sampler):
        """Those of the right labelings; a little off, a parameter would be beyond the bound."""
        found, times = np.unique(self.draws(sampler)[0], axis=0, return_counts=True)
        found = dict(zip(map(tuple, found.tolist()), times / self.DRAWS, strict=True))

        def distance(**changed):
            exact = self.exact(sampler == "particles", **changed)
            assert set(found) <= set(exact)
            return sum(abs(exact[z] - found.get(z, 0)) for z in exact) / 2

        assert distance() < self.BOUND
        for changed in ({"alpha": 1.0}, {"survival": 0.75}, {"motion": 0.6}):
            assert distance(**changed) > self.BOUND

    def test_log_joint(self):
        """Apart from what the first step decides, the log of the exact probability."""
        names, worth = self.draws("gibbs", 500)
        exact = self.exact(False)
        rest = worth - np.log([exact[z] for z in map(tuple, names.tolist())])
        for first in np.unique(names[:, :3], axis=0):
            same = rest[(names[:, :3] == first).all(axis=1)]
            assert np.ptp(same) < 1e-9


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
        sampler = reproduction("dp_sampler").DirichletProcess(
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
        sampler = reproduction("dp_sampler").DirichletProcess(
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
        sampler = reproduction("dp_sampler").DirichletProcess(
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
