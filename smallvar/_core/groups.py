"""The data sets of the hard HDP (argument ``groups``): names, rows, order, local labels."""

import numpy as np

from smallvar._core.row_names import names_of_rows, several_kinds

LABELS_AT_ONCE = 1 << 12  # labels looked at together, to find where each appears first


class Groups:
    """The data set of each of ``n_samples`` rows; None: all are from one.

    ``names`` are the distinct data sets, sorted; ``number`` (int32) is the index of each row's data
    set among them.
    """

    def __init__(self, groups, n_samples):
        if groups is None:
            self.names, self.number = np.zeros(1, dtype=np.int64), np.zeros(n_samples, np.int32)
            return
        if type(groups) is not np.ndarray or groups.ndim != 1 or groups.dtype.kind not in "iu":
            groups = names_of_rows(groups, "groups", n_samples)
        if len(groups) != n_samples:
            raise ValueError(f"groups must have shape ({n_samples},), got {groups.shape}")
        try:
            self.names, number = np.unique(groups, return_inverse=True)
        except TypeError:
            raise several_kinds("groups", {type(name) for name in groups.tolist()}) from None
        self.number = number.astype(np.int32)

    def __len__(self):
        return len(self.names)

    def order(self, rng=None):
        """Rows in the order of visit: data sets as sorted and rows as given, or both at random."""
        number = self.number
        if rng is None:
            # numpy sorts 16-bit integers by radix, in linear time
            return np.argsort(
                number.astype(np.uint16) if len(self) <= 1 << 16 else number, kind="stable"
            )
        # rows in random order, then stably sorted by the random rank of their data set
        shuffled = rng.permutation(len(number))
        rank = rng.permutation(len(self))
        return shuffled[np.argsort(rank[number[shuffled]], kind="stable")]

    def of(self, rows):
        """The data sets of some rows."""
        return Groups(self.names[self.number[rows]], len(rows))

    def members(self):
        """The list of the row indices of each data set."""
        order = self.order()
        return np.split(order, np.searchsorted(self.number[order], np.arange(1, len(self))))

    def among(self, fitted):
        """The index in ``fitted`` of each row's data set; ``len(fitted)`` if it is not there."""
        names = self.names
        if names.dtype.kind in "mM" and fitted.dtype.kind in "mM":  # equal in any unit
            unit = np.result_type(names, fitted)
            names, fitted = (
                names.astype(unit).astype(np.int64),
                fitted.astype(unit).astype(np.int64),
            )
        index = {name: j for j, name in enumerate(fitted.tolist())}
        numbers = np.array([index.get(name, len(index)) for name in names.tolist()], np.int32)
        return numbers[self.number]

    def pairs(self, labels, k):
        """The pairs, data set * k + global cluster, that rows have, sorted; each row's index."""
        pair_of_row = self.number.astype(np.int64) * k + labels
        if len(self) * k > len(pair_of_row):
            return np.unique(pair_of_row, return_inverse=True)
        there = np.zeros(len(self) * k, dtype=bool)  # faster than to sort the rows, and smaller
        there[pair_of_row] = True
        return np.flatnonzero(there), (np.cumsum(there, dtype=np.int32) - 1)[pair_of_row]

    def local(self, labels, k):
        """Local label of each row; the global clusters of each data set, ascending; how many."""
        # the sorted pairs (data set, global cluster) are the local clusters, data set by data set
        pairs, row = self.pairs(labels, k)
        data_set = pairs // k
        first = np.searchsorted(data_set, np.arange(len(self) + 1))
        lists = np.split((pairs % k).astype(np.int32), first[1:-1])
        return (row - first[self.number]).astype(np.int32), lists, np.diff(first).astype(np.int64)


def local_labels_of(group, labels, lists, k):
    """Local labels of rows of these data sets, from the global clusters (of k) that each uses.

    They are -1 where the data set does not use the cluster, or is not in the list of ``lists``.
    """
    local = np.full((len(lists) + 1, k), -1, dtype=np.int32)
    for j, used in enumerate(lists):
        local[j, used] = np.arange(len(used))
    return local[group, labels]


def first_appearance(labels):
    """Labels >= 0 renumbered (int32) in the order of their first appearance."""
    n, n_left = len(labels), int(labels.max(initial=-1)) + 1
    first = np.full(n_left, n, dtype=np.intp)
    for start in range(0, n, LABELS_AT_ONCE):  # up to the row where all labels have appeared
        cluster = labels[start : start + LABELS_AT_ONCE]
        new = np.flatnonzero(first[cluster] == n)[::-1]
        first[cluster[new]] = start + new  # the last assignment to a label wins
        n_left -= len(np.unique(cluster[new]))
        if n_left == 0:
            break
    used = np.flatnonzero(first < n)
    number = np.empty(len(first), dtype=np.int32)
    number[used[np.argsort(first[used])]] = np.arange(len(used), dtype=np.int32)
    return number[labels]
