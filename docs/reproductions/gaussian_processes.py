"""Clustering Gaussian processes: section 8.3 of Campbell, Kulis and How (2017).

    python docs/reproductions/gaussian_processes.py [--quick]

takes a quarter of an hour of one core (resume.py: it can be stopped; with --quick, of one record
with 3 steps, seconds), for 300 records as in the paper, and prints the table of
docs/guide/dynamic_kernel_quality.rst. A data point is a set of 30 noisy measurements of one of four
latent functions on [-5, 5], made within a random interval; 1000 such points come in 10 batches of
100. The conversion of the paper lost the functions and all constants, so these are ours: f(x) = x,
sin(2 x), cos(x) + 2 and -x / 2 - 2, noise of standard deviation 0.3, intervals whose ends are
uniform (at least 1 apart), and a Gaussian process with a squared exponential covariance of length 1
and standard deviation 3.

SD-Means, as published, takes as kernel the probability that two sets are measurements of the same
latent function, a priori 0.5: p(both) / (p(both) + p(one) p(other)), with the marginal likelihoods
p of the Gaussian process. D-Means, as published, gets the posterior means of the processes on a
grid; each value is divided by the square root of the number of grid points, so that a squared
distance is a mean square.

Accuracy is that of moving_gaussians.py: under consistent matching, and step by step.
"""

import argparse
import time

import numpy as np
from moving_gaussians import label_accuracy
from resume import resumed
from threadpoolctl import threadpool_limits

from smallvar import DynamicMeans, SpectralDynamicMeans

FUNCTIONS = (
    lambda x: x,
    lambda x: np.sin(2 * x),
    lambda x: np.cos(x) + 2,
    lambda x: -x / 2 - 2,
)
MEASUREMENTS, BATCH, STEPS = 30, 100, 10
NOISE, LENGTH, SCALE = 0.3, 1.0, 3.0
GRID = np.linspace(-5, 5, 41)
LAM, T_Q, K_TAU, BUDGET = 15.0, 5.0, 1.05, 30
LAMS = (0.5, 1.0, 2.0, 4.0, 8.0)  # DynamicMeans, the best of them is shown


def draw(seed, steps=STEPS, batch=BATCH):
    """Rows of 30 positions and 30 measurements, and the functions they are of."""
    rng = np.random.default_rng(seed)
    record = []
    for _ in range(steps):
        which = rng.integers(len(FUNCTIONS), size=batch)
        ends = np.sort(rng.uniform(-5, 5, (batch, 2)), axis=1)
        short = 1 - np.minimum(np.diff(ends, axis=1)[:, 0], 1)  # widened to a length of 1
        low, high = ends[:, 0] - short / 2, ends[:, 1] + short / 2
        x = rng.uniform(low[:, None], high[:, None], (batch, MEASUREMENTS))
        y = np.stack([FUNCTIONS[k](row) for k, row in zip(which, x, strict=True)])
        record.append((np.hstack([x, y + NOISE * rng.standard_normal(y.shape)]), which))
    return record


def covariance(x, other):
    """Squared exponential, of the last axes of both with each other."""
    return SCALE**2 * np.exp(-((x[..., :, None] - other[..., None, :]) ** 2) / (2 * LENGTH**2))


def features(x):
    """Vectors whose inner products are the covariances, to 1e-4 and better."""
    values, vectors = np.linalg.eigh(covariance(GRID, GRID))
    kept = values > 1e-6 * values[-1]
    return covariance(x, GRID) @ (vectors[:, kept] / np.sqrt(values[kept]))


def same_function(X, Y):
    """Probability that two data sets are of the same function; Y is X."""
    x, y = np.split(X, 2, axis=1)
    F = features(x)
    A = np.swapaxes(F, 1, 2) @ F / NOISE**2
    b = (np.swapaxes(F, 1, 2) @ y[..., None])[..., 0] / NOISE**2

    def evidence(A, b):
        """Log marginal likelihood, apart from what does not change when sets are joined."""
        L = np.linalg.cholesky(np.eye(A.shape[-1]) + A)
        half = np.linalg.solve(L, b[..., None])[..., 0]
        log_det = np.log(np.diagonal(L, axis1=-2, axis2=-1)).sum(axis=-1)
        return 0.5 * np.square(half).sum(axis=-1) - log_det

    alone = evidence(A, b)
    one, other = np.triu_indices(len(X))
    log_odds = np.empty(len(one))
    for start in range(0, len(one), 4000):
        i, j = one[start : start + 4000], other[start : start + 4000]
        log_odds[start : start + 4000] = evidence(A[i] + A[j], b[i] + b[j]) - alone[i] - alone[j]
    K = np.empty((len(X), len(X)))
    K[one, other] = K[other, one] = 1 / (1 + np.exp(-np.clip(log_odds, -500, 500)))
    return K


def means_on_grid(X):
    """Posterior means on the grid; squared distances are mean squares."""
    x, y = np.split(X, 2, axis=1)
    C = covariance(x, x) + NOISE**2 * np.eye(x.shape[1])
    mean = covariance(np.broadcast_to(GRID, (len(X), len(GRID))), x) @ np.linalg.solve(
        C, y[..., None]
    )
    return mean[..., 0] / np.sqrt(len(GRID))


def spectral(record, lam=LAM, budget=BUDGET):
    """Labels of every step by SD-Means."""
    model = SpectralDynamicMeans(
        lam=lam, t_q=T_Q, k_tau=K_TAU, kernel=same_function, budget=budget, random_state=0
    )
    return [model.partial_fit(X).labels_ for X, _ in record]


def plain(record, lam):
    """Labels of every step by D-Means on the posterior means."""
    model = DynamicMeans(lam=lam, t_q=T_Q, k_tau=K_TAU, random_state=0, n_threads=1)
    return [model.partial_fit(means_on_grid(X)).labels_ for X, _ in record]


def table(seeds, steps):
    """One line for each method."""
    methods = {f"SpectralDynamicMeans {LAM:g}": spectral}
    methods |= {f"DynamicMeans {lam:g}": lambda r, lam=lam: plain(r, lam) for lam in LAMS}
    print(f"{seeds} records\n")
    print(
        f"{'':26s}{'consistent':>10s}{'spread':>8s}{'stepwise':>9s}{'clusters':>9s}{'s/step':>8s}"
    )
    for name, method in methods.items():
        rows = [
            resumed(
                (name, steps, seed), lambda seed=seed, method=method: score(method, seed, steps)
            )
            for seed in range(seeds)
        ]
        mean, spread = np.mean(rows, axis=0), np.std(rows, axis=0)[0]
        print(f"{name:26s}{mean[0]:10.2f}{spread:8.2f}{mean[1]:9.2f}{mean[2]:9.1f}{mean[3]:8.3f}")


def score(method, seed, steps):
    """Accuracies, clusters in all and seconds a step for one record."""
    record = draw(seed, steps)
    truth = [true for _, true in record]
    begin = time.process_time()
    labels = method(record)
    return (
        label_accuracy(labels, truth),
        label_accuracy(labels, truth, consistent=False),
        len(np.unique(np.concatenate(labels))),
        (time.process_time() - begin) / steps,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=300, help="records of 1000 processes")
    parser.add_argument("--quick", action="store_true", help="one record of 300")
    arguments = parser.parse_args()
    with threadpool_limits(1):
        table(*(1, 3) if arguments.quick else (arguments.records, STEPS))


if __name__ == "__main__":
    main()
