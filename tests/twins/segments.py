"""Segments of records: the cheapest states, the best pieces, sweeps, all answers of tiny ones."""

from itertools import pairwise, product

import numpy as np

from twins.exact import first_appearance, squared_distances, sum_of_squares, weighted_means


def viterbi(X, begin, weights, centers, price):
    """The labels that minimize squared distances plus price for each row of another state."""
    X = np.asarray(X, dtype=float)
    labels = np.empty(len(X), dtype=int)
    for start, stop in pairwise(begin):
        cost = weights[start:stop, None] * squared_distances(X[start:stop], centers)
        above = np.zeros(len(centers))  # what ways that end in a state cost more than the best
        least, moved = [], []
        for t, row in enumerate(cost):
            moved.append(above > price if t else np.zeros(len(centers), dtype=bool))
            above = (np.minimum(above, price) if t else above) + row
            same = t > 0 and above[least[-1]] == above.min()
            least.append(least[-1] if same else above.argmin())
            above = above - above.min()
        state = least[-1]
        for t in reversed(range(len(cost))):
            labels[start + t] = state
            if t and moved[t][state]:
                state = least[t - 1]
    return labels


def n_switches(labels, begin):
    """Rows of another state than the row before in their sequence."""
    return sum(np.count_nonzero(np.diff(part)) for part in np.split(labels, begin[1:-1]))


def objective(X, begin, weights, labels, lam, price):
    """Squared error about the means, plus the price of switches and states."""
    centers = weighted_means(X, weights, labels)
    error = sum_of_squares(X, weights, labels, centers)
    return error + price * n_switches(labels, begin) + lam * len(centers)


def sweeps(X, begin, weights, labels, lam, price):
    """Cheapest states and means in turn until nothing changes: labels, centers and objectives."""
    X, labels = np.asarray(X, dtype=float), first_appearance(labels)
    path = []
    while True:
        centers = weighted_means(X, weights, labels)
        found = viterbi(X, begin, weights, centers, price)
        same = (found == labels).all()
        labels = first_appearance(found)
        path.append(objective(X, begin, weights, labels, lam, price))
        if same or (len(path) > 1 and not path[-1] < path[-2]):
            return labels, weighted_means(X, weights, labels), path


def pieces(X, begin, weights, origin, price):
    """Where the pieces begin that minimize squared error plus price for each, without pruning."""
    X = np.asarray(X, dtype=float) - origin
    opens = np.zeros(len(X), dtype=bool)
    for start, stop in pairwise(begin):
        part, w = X[start:stop], weights[start:stop]
        square = np.zeros(len(part))
        for x in part.T:
            square = square + x * x
        sums = np.vstack([np.zeros(part.shape[1]), np.cumsum(w[:, None] * part, axis=0)])
        squares = np.append(0.0, np.cumsum(w * square))
        cumulative_weights = np.append(0.0, np.cumsum(w))
        least, last = [0.0], []
        for t in range(1, len(part) + 1):
            apart = squared_distances(sums[t : t + 1], sums[:t])[0]
            value = np.array(least) + (
                (squares[t] - squares[:t])
                - apart / (cumulative_weights[t] - cumulative_weights[:t])
            )
            last.append(int(value.argmin()))
            least.append(value.min() + price)
        t = len(part)
        while t > 0:
            t = last[t - 1]
            opens[start + t] = True
    return opens


def piece_cost(X, weights, opens, price):
    """What pieces cost that begin at these rows."""
    labels = np.cumsum(opens) - 1
    error = sum_of_squares(X, weights, labels, weighted_means(X, weights, labels))
    return error + price * (labels[-1] + 1)


def all_labels(n, k):
    """All ways to label n rows by k states."""
    return [np.array(labels) for labels in product(range(k), repeat=n)]
