"""The order in which rows of sequences are visited."""

import numpy as np

from smallvar._core.groups import Groups
from smallvar._core.validation import check_weights
from smallvar._sweeps.segments import viterbi


class Visit:
    """Rows sequence by sequence; ``order`` are their numbers as given, None for 0, 1, 2 ..."""

    def __init__(self, X, weight, number, order=None):
        self.X, self.weight, self.number, self.order = X, weight, number, order
        self.begin = np.append(0, np.append(np.flatnonzero(np.diff(number)) + 1, len(number)))

    @classmethod
    def of(cls, X, weight, groups):
        """Rows as given, in the order of visit."""
        sets = Groups(groups, X.shape[0])
        number = sets.number
        if (number[1:] >= number[:-1]).all():
            return cls(X, weight, number)
        order = sets.order()
        return cls(X[order], None if weight is None else weight[order], number[order], order)

    def active(self):
        """The rows that have weight."""
        if self.weight is None or self.weight.all():
            return self
        rows = np.flatnonzero(self.weight)
        weight = check_weights(self.weight[rows], len(rows))
        return Visit(self.X[rows], weight, self.number[rows])

    def viterbi(self, centers, price, n_threads):
        """The cheapest labels, in the order of visit."""
        return viterbi(self.X, self.begin, self.weight, centers, price, n_threads)

    def given(self, labels):
        """The same in the order given."""
        if self.order is None:
            return labels
        out = np.empty_like(labels)
        out[self.order] = labels
        return out

    def segments(self, labels):
        """The rows, as given, at which segments begin."""
        opens = np.zeros(len(labels), dtype=bool)
        opens[self.begin[:-1]] = True
        opens[1:] |= labels[1:] != labels[:-1]
        rows = np.flatnonzero(opens)
        return rows if self.order is None else self.order[rows]
