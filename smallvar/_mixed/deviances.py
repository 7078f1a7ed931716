"""Rows of mixed columns as a mixture compares them with clusters: deviances, and densities."""

from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln, xlogy

from smallvar._mixed.measure import Measure
from smallvar._sweeps.mixed import NORMAL, POISSON


@dataclass
class RowsOfTable:
    """Packed rows: ``numbers`` (n, p) and ``codes`` (n, q), as in ``Packed``."""

    numbers: np.ndarray
    codes: np.ndarray

    @property
    def shape(self):
        """The number of rows, and of columns."""
        return len(self.numbers), self.numbers.shape[1] + self.codes.shape[1]

    def __getitem__(self, rows):
        return RowsOfTable(self.numbers[rows], self.codes[rows])


@dataclass
class MixedDeviances:
    """Twice the divergences, in nats, of rows from centers."""

    measure: Measure
    centers: np.ndarray

    def __call__(self, rows, n_threads):
        compared = self.measure.rows(rows.numbers, rows.codes, None, None, n_threads)
        compared.set_centers(self.centers)
        return 2.0 * compared.divergences(False)


@dataclass
class MixedVolumes:
    """What the log density of rows has besides half of their deviance, by the laws of the columns.

    ``d`` is the number of dimensions of the mixture, whose densities have log(2 pi) / 2 for each.
    """

    measure: Measure
    d: float

    def __call__(self, rows):
        out = np.full(rows.shape[0], 0.5 * self.d * np.log(2.0 * np.pi))
        for j, (kind, variance) in enumerate(
            zip(self.measure.kind, self.measure.variance, strict=True)
        ):
            x, a = rows.numbers[:, j].astype(np.float64), 1.0 / variance
            if kind == NORMAL:
                part = np.where(np.isnan(x), np.nan, -0.5 * np.log(2.0 * np.pi * variance))
            elif kind == POISSON:
                part = xlogy(x, x) - x - gammaln(x + 1.0) - 0.5 * np.log(variance)
            else:  # gamma laws of shape a
                part = a * np.log(a) - a - gammaln(a) - np.log(x)
            out += np.nan_to_num(part)  # cells that are missing
        return out
