"""Gibbs sampler of the linear-Gaussian model with an Indian buffet process, in plain numpy.

    Z ~ IBP(alpha),   A_kd ~ N(0, feature),   X_nd ~ N((Z A)_nd, noise)

with `feature` and `noise` the variances rho^2 and sigma^2 of Broderick, Kulis and Jordan (2013),
eqs. 4 and 5. It is the sampler of Griffiths and Ghahramani (2006) that they compare BP-means to: A
is integrated out; the bits of a row are drawn one by one given all others, then the number of
features that only this row has. mad_bayes.py runs it; tests/test_samplers.py compares it with sums
over all feature allocations of three rows.

What a row needs to know of the others is the posterior of A given them. With C = Z'Z and B = Z'X
over the others, and M = (C + noise / feature I)^-1,

    A ~ N(M B, noise M),   so   x ~ N(z M B, (noise (1 + z M z') + own feature) I)

for a row with bits z among the features of the others, and `own` features besides. This form,
which Doshi-Velez and Ghahramani (2009) call accelerated, has the same conditionals as the
one with determinants and traces. The prior odds of a feature that m of the N - 1 others have are
m : N - m; the number of own features is Poisson with mean alpha / N, cut off at `MOST_OWN`.

After every sweep, alpha and the variances are drawn, with priors that are gamma for alpha and
inverse gamma for the variances: Gibbs steps, those of the variances given an A that is drawn for
them and then forgotten. (The paper has hyperpriors too, but does not say which.)
"""

from collections import Counter
from math import log

import numpy as np
from scipy.special import gammaln

MOST_OWN = 10


class IndianBuffet:
    """A chain of Z, alpha, noise and feature, from given values.

    The prior of alpha is shape and rate, those of noise and feature are shape and scale; what has
    None stays as it is.
    """

    def __init__(
        self,
        X,
        Z,
        rng,
        *,
        alpha=1.0,
        noise=1.0,
        feature=0.5,
        alpha_prior=(1.0, 1.0),
        noise_prior=(1.0, 1.0),
        feature_prior=(1.0, 1.0),
    ):
        Z = np.asarray(Z, dtype=float)
        self.X, self.Z, self.rng = np.asarray(X, dtype=float), Z[:, Z.any(axis=0)], rng
        self.alpha, self.noise, self.feature = alpha, noise, feature
        self.alpha_prior = alpha_prior
        self.noise_prior, self.feature_prior = noise_prior, feature_prior
        self.harmonic = float(np.sum(1 / np.arange(1, len(self.X) + 1)))

    def step(self):
        """Draw everything once."""
        self.draw_bits()
        if self.alpha_prior is not None:
            self.draw_alpha()
        if self.noise_prior is not None or self.feature_prior is not None:
            self.draw_variances()

    def draw_bits(self):
        """A sweep over the rows."""
        self.C, self.B = self.Z.T @ self.Z, self.Z.T @ self.X
        for i in range(len(self.X)):
            self.draw_row(i)

    def draw_row(self, i):
        """Draw the bits of row i, with C and B those of the other rows meanwhile."""
        x, z = self.X[i], self.Z[i]
        self.C -= np.outer(z, z)
        self.B -= np.outer(z, x)
        shared = self.C.diagonal() > 0.5  # counts
        own = z.size - np.count_nonzero(shared)
        if own:
            self.Z = self.Z[:, shared]
            self.C, self.B = self.C[shared][:, shared], self.B[shared]
        own = self.draw_own(*self.draw_shared(x, self.Z[i], own))
        if own:
            new = np.zeros((len(self.X), own))
            new[i] = 1
            self.Z = np.hstack([self.Z, new])
            self.C, self.B = self.Z.T @ self.Z, self.Z.T @ self.X
        else:
            z = self.Z[i]
            self.C += np.outer(z, z)
            self.B += np.outer(z, x)

    def draw_shared(self, x, z, own, /):
        """Draw z, in place, one bit after the other; ||x - z M B||^2 and noise (1 + z M z')."""
        M = np.linalg.inv(self.C + self.noise / self.feature * np.eye(len(z)))
        A = M @ self.B
        G = A @ A.T
        counts, half, extra = self.C.diagonal(), len(x) / 2, own * self.feature
        odds = np.log(counts / (len(self.X) - counts)).tolist()
        residual = x - z @ A
        square, spread = float(residual @ residual), float(z @ M @ z)
        toward, along = A @ residual, M @ z
        uniform = self.rng.random(len(z))
        logit = np.log(uniform / (1 - uniform)).tolist()
        for k in range(len(z)):
            sign = 1.0 - 2.0 * z[k]
            turned = square - 2 * sign * toward[k] + G[k, k]
            spread_turned = spread + 2 * sign * along[k] + M[k, k]
            now = self.noise * (1 + spread) + extra
            then = self.noise * (1 + spread_turned) + extra
            gain = sign * odds[k] + half * log(now / then) + square / now / 2 - turned / then / 2
            if logit[k] < gain:
                z[k] += sign
                square, spread = turned, spread_turned
                toward -= sign * G[k]
                along += sign * M[k]
        return square, self.noise * (1 + spread)

    def draw_own(self, square, variance):
        """Draw the number of features that only this row has, given its other bits."""
        own = np.arange(MOST_OWN + 1)
        variances = variance + own * self.feature
        logs = own * log(self.alpha / len(self.X)) - gammaln(own + 1)
        logs -= (self.X.shape[1] * np.log(variances) + square / variances) / 2
        weights = np.exp(logs - logs.max()).cumsum()
        return int(np.searchsorted(weights, self.rng.random() * weights[-1], side="right"))

    def draw_alpha(self):
        """Draw alpha given the number of features, which is Poisson(alpha * harmonic)."""
        shape, rate = self.alpha_prior
        self.alpha = self.rng.gamma(shape + self.Z.shape[1], 1 / (rate + self.harmonic))

    def draw_variances(self):
        """Draw A given Z, the variances given both."""
        precision = self.Z.T @ self.Z
        precision += self.noise / self.feature * np.eye(len(precision))
        A = np.linalg.solve(precision, self.Z.T @ self.X)
        normal = self.rng.standard_normal(A.shape)  # times L'^-1, for precision = L L'
        A += self.noise**0.5 * np.linalg.solve(np.linalg.cholesky(precision).T, normal)
        residual = self.X - self.Z @ A
        if self.noise_prior is not None:
            self.noise = self.draw_variance(self.noise_prior, residual)
        if self.feature_prior is not None:
            self.feature = self.draw_variance(self.feature_prior, A)

    def draw_variance(self, prior, values):
        """Draw the variance of normal values with mean 0."""
        shape, scale = prior
        scale += np.square(values).sum() / 2
        return scale / self.rng.gamma(shape + values.size / 2)

    def log_joint(self):
        """log p(X, [Z] | alpha, noise, feature), [Z] the class of Z up to the order of columns."""
        n, d = self.X.shape
        k = self.Z.shape[1]
        precision = self.Z.T @ self.Z + self.noise / self.feature * np.eye(k)
        explained = self.Z.T @ self.X
        quadratic = np.square(self.X).sum() - np.sum(
            explained * np.linalg.solve(precision, explained)
        )
        log_likelihood = (
            -(
                n * d * log(2 * np.pi)
                + (n - k) * d * log(self.noise)
                + k * d * log(self.feature)
                + d * np.linalg.slogdet(precision)[1]
                + quadratic / self.noise
            )
            / 2
        )
        counts = self.Z.sum(axis=0)
        equal = np.array([*Counter(map(tuple, self.Z.T)).values()])
        log_prior = (
            k * log(self.alpha)
            - self.alpha * self.harmonic
            - gammaln(equal + 1).sum()
            + np.sum(gammaln(counts) + gammaln(n - counts + 1) - gammaln(n + 1))
        )
        return float(log_likelihood + log_prior)
