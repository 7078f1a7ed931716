"""``Visit``: the rows of several sequences in the order in which a sweep visits them."""

import numpy as np

from smallvar._core.groups import Groups
from smallvar._core.validation import check_weights
from smallvar._sweeps.segments import viterbi


class Visit:
    """Rows of sequences, one sequence after another.

    ``number`` is the sequence of each row; sequence j has the rows ``begin[j]`` to
    ``begin[j + 1] - 1``. ``order`` are the numbers of the rows in the order given (None: the same).
    """

    def __init__(self, X, weight, number, order=None):
        self.X, self.weight, self.number, self.order = X, weight, number, order
        self.begin = np.append(0, np.append(np.flatnonzero(np.diff(number)) + 1, len(number)))

    @classmethod
    def of(cls, X, weight, groups):
        """Visit of the rows ``X``, whose sequences are given by ``groups`` (None: one sequence)."""
        sets = Groups(groups, X.shape[0])
        number = sets.number
        if (number[1:] >= number[:-1]).all():
            return cls(X, weight, number)
        order = sets.order()
        return cls(X[order], None if weight is None else weight[order], number[order], order)

    def active(self):
        """Visit of the rows with positive weight only; it has no ``order``."""
        if self.weight is None or self.weight.all():
            return self
        rows = np.flatnonzero(self.weight)
        weight = check_weights(self.weight[rows], len(rows))  # None if all are 1
        return Visit(self.X[rows], weight, self.number[rows])

    def viterbi(self, centers, price, n_threads):
        """Labels of least cost at these centers and this penalty for a switch, in visit order."""
        return viterbi(self.X, self.begin, self.weight, centers, price, n_threads)

    def given(self, labels):
        """Labels in the order in which rows were given, from labels in visit order."""
        if self.order is None:
            return labels
        as_given = np.empty_like(labels)
        as_given[self.order] = labels
        return as_given

    def segments(self, labels):
        """Numbers (as given) of the rows at which segments of equal labels begin."""
        opens = np.zeros(len(labels), dtype=bool)
        opens[self.begin[:-1]] = True
        opens[1:] |= labels[1:] != labels[:-1]
        rows = np.flatnonzero(opens)
        return rows if self.order is None else self.order[rows]
