"""The samplers of docs/reproductions against posteriors that can be added up."""

import importlib.util
from collections import Counter
from itertools import combinations_with_replacement
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import gammaln, logsumexp, roots_genlaguerre
from scipy.stats import chi2


def script(name):
    """A module of docs/reproductions."""
    path = Path(__file__).parents[1] / "docs" / "reproductions" / f"{name}.py"
    if not path.is_file():
        pytest.skip("the source tree is not at hand")
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
        return script("ibp_sampler").IndianBuffet(
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
