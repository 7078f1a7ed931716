"""The samplers of docs/reproductions against posteriors that can be added up."""

import importlib.util
import itertools
import math
from pathlib import Path

import numpy as np
import pytest


def script(name):
    """A module of docs/reproductions."""
    path = Path(__file__).parents[1] / "docs" / "reproductions" / f"{name}.py"
    if not path.is_file():
        pytest.skip("the source tree is not at hand")
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
        module = script("ddp_sampler")
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
