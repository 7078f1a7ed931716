"""Links between rows: pairs that are to be in one cluster, or in two, at a price for each violated.

``check_links`` makes ``RowLinks`` of the arrays of a user. Its nodes are the rows or, where no link
may be violated, the groups of rows that must-links join. ``LinkedNodes`` has the labels of the
nodes that are linked, and moves these, given what each costs in each cluster.
"""

import math

import numpy as np
from scipy.sparse import coo_array, csr_array, issparse
from scipy.sparse.csgraph import breadth_first_order, connected_components

from smallvar._core.validation import exact_number

EXCHANGE_TIE = 1e-12  # exchanges that lower the costs by less than this share of them tie
SHOWN_ROWS = 10  # rows of a chain or a set that an error names


def _pairs(pairs, name, n):
    """Numbers of linked rows as an array (m, 2): each pair once, the smaller number first."""
    array = np.asarray([] if pairs is None else pairs)
    if array.shape in ((0,), (0, 2)):
        return np.empty((0, 2), dtype=np.intp)
    if array.ndim != 2 or array.shape[1] != 2:
        raise ValueError(f"{name} must have shape (n_pairs, 2), got {array.shape}")
    if array.dtype.kind not in "iu":
        raise ValueError(f"{name} must hold integers, the numbers of rows, got {array.dtype}")
    outside = array[(array < 0) | (array >= n)]
    if outside.size:
        raise ValueError(f"{name} must hold numbers of rows >= 0 and < {n}, got {outside[0]}")
    return np.unique(np.sort(array.astype(np.intp), axis=1), axis=0)


def _graph(pairs, n, value=1.0):
    """Symmetric sparse matrix (n, n) with this value for each pair."""
    ends = np.concatenate([pairs, pairs[:, ::-1]]).T
    return coo_array((np.full(ends.shape[1], value), (ends[0], ends[1])), (n, n)).tocsr()


def _listed(rows, sign):
    """The numbers of rows as text, those in the middle left out if there are many."""
    words, half = [str(row) for row in rows], SHOWN_ROWS // 2
    return sign.join(words if len(words) <= SHOWN_ROWS else [*words[:half], "...", *words[-half:]])


def check_links(estimator, must_link, cannot_link, weight, n):
    """The RowLinks of a fit of n rows of these weights (None: 1 each); None if there is no link.

    Links of rows of weight zero are left out, as these take no part in a fit.
    """
    vars(estimator).pop("n_violated_", None)  # of the fit before
    must, cannot = _pairs(must_link, "must_link", n), _pairs(cannot_link, "cannot_link", n)
    for i, j in cannot[cannot[:, 0] == cannot[:, 1]][:1]:
        raise ValueError(f"cannot_link must link two different rows, got ({i}, {j})")
    must = must[must[:, 0] != must[:, 1]]
    if weight is not None:
        must, cannot = (pairs[(weight[pairs] > 0).all(axis=1)] for pairs in (must, cannot))
    if not len(must) and not len(cannot):
        return None
    required = {"algorithm": "serial", "metric": "euclidean", "min_cluster_size": None}
    for name, value in required.items():
        got = getattr(estimator, name, value)
        if got != value:
            raise ValueError(f"{name} must be {value!r} with links, got {got!r}")
    links = RowLinks(must, cannot, n, float(estimator.link_penalty))
    for name in ("n_clusters", "max_clusters"):
        links.check_number(exact_number(getattr(estimator, name, None)), name)
    return links


class RowLinks:
    """Links between nodes; ``price`` is that of a violated link, ``groups`` the node of each row.

    Nodes are numbered by their first rows, ``first``; with a finite price each row is one. ``must``
    and ``cannot`` are pairs of nodes; there are no must-links if the price is infinite.
    """

    def __init__(self, must, cannot, n, price):
        self.price, self.must, self.cannot = price, must, cannot
        self.groups = self.first = np.arange(n)
        if math.isfinite(price):
            return
        graph = _graph(must, n)
        groups = connected_components(graph, directed=False)[1]
        first, groups = np.unique(groups, return_index=True, return_inverse=True)[1:]
        order = np.argsort(first)
        self.first, self.groups = first[order], np.argsort(order)[groups]
        ends = np.sort(self.groups[cannot], axis=1)
        for i, j in cannot[ends[:, 0] == ends[:, 1]][:1]:
            chain, before = [j], breadth_first_order(graph, i, directed=False)[1]
            while chain[-1] != i:
                chain.append(before[chain[-1]])
            raise ValueError(
                f"cannot_link must not link rows that must_link joins, got ({i}, {j}), joined by "
                f"{_listed(chain[::-1], ' - ')}: leave out a link or set a finite link_penalty"
            )
        self.must, self.cannot = must[:0], np.unique(ends, axis=0)

    def contracted(self, X, weight):
        """Nodes as rows, the means of theirs; their weights; the squares about these means."""
        w = np.ones(X.shape[0]) if weight is None else weight
        sizes = np.bincount(self.groups, w, len(self.first))
        if len(sizes) == X.shape[0]:
            return X, sizes, 0.0
        share = np.divide(w, sizes[self.groups], out=np.ones(len(w)), where=w > 0)
        rows = csr_array((share, (self.groups, np.arange(len(w)))), (len(sizes), len(w))) @ X
        apart = X - rows[self.groups]
        squares = apart.multiply(apart) if issparse(X) else np.square(apart)
        return rows, sizes, math.fsum(w * np.ravel(squares.sum(axis=1)))

    def check_number(self, most, name):
        """Raise if there are too few nodes, or more exclude each other than this parameter says."""
        if math.isfinite(self.price) or most is None:
            return
        n = len(self.first)
        if name == "n_clusters" and most > n:
            raise ValueError(
                f"n_clusters must be at most {n}, what must_link leaves apart, got {most}"
            )
        graph = _graph(self.cannot, n)
        near, degree = np.split(graph.indices, graph.indptr[1:-1]), np.diff(graph.indptr)
        # cliques: from each node on, the neighbor with most neighbors among those of all before
        for start in np.flatnonzero(degree >= most):
            clique, left = [start], near[start]
            while len(left):
                clique.append(left[degree[left].argmax()])
                left = np.intersect1d(left, near[clique[-1]])
            if len(clique) > most:
                rows = _listed(np.sort(self.first[clique[: int(most) + 1]]), ", ")
                raise ValueError(
                    f"{name} must be at least {most + 1}, as cannot_link links each two of rows "
                    f"{rows}, or rows that must_link joins to them, got {most}"
                )

    def n_violated(self, nodes, k):
        """Number of violated links of the LinkedNodes of a result; raise if none may be."""
        if nodes.n_violated and not math.isfinite(self.price):
            raise ValueError(
                f"no clustering into {k} clusters without a violated link was found, though there "
                "may be one: allow more clusters, or set a finite link_penalty"
            )
        return nodes.n_violated


class LinkedNodes:
    """The linked nodes of a start: ``rows`` are their numbers, ``labels`` their clusters, -1: none.

    Nodes of one of the ``colors`` are not linked to each other, so that they are assigned at once.
    They are visited by ascending ``rank``.
    """

    def __init__(self, links, rank):
        self.price = links.price
        ends = [np.ravel(links.must), np.ravel(links.cannot)]
        self.rows, index = np.unique(np.concatenate(ends), return_inverse=True)
        n, m = len(self.rows), len(links.must)
        pairs = index.reshape(-1, 2)
        self.must, self.cannot = pairs[:m], pairs[m:]
        self.graph = _graph(pairs, n)
        # its product with the labels counts violated cannot-links less must-links that are kept
        self.signed = _graph(self.cannot, n) + _graph(self.must, n, -1.0)
        self.labels = np.full(n, -1, dtype=np.int32)
        self.colors = self._colored(rank[self.rows])

    def _colored(self, rank):
        """Nodes of each color: the first one that no neighbor has, most neighbors first."""
        # few colors (greedy, by degree) are few rounds, in each of which nodes are decided together
        start, color = self.graph.indptr, np.full(len(rank), -1)
        for i in np.lexsort((rank, -np.diff(start))):
            taken = set(color[self.graph.indices[start[i] : start[i + 1]]].tolist())
            color[i] = next(c for c in range(len(taken) + 1) if c not in taken)
        order = np.argsort(rank)
        return [order[color[order] == c] for c in range(color.max(initial=-1) + 1)]

    @property
    def n_violated(self):
        """Number of violated links."""
        must, cannot = self.labels[self.must], self.labels[self.cannot]
        return int((must[:, 0] != must[:, 1]).sum() + (cannot[:, 0] == cannot[:, 1]).sum())

    @property
    def penalty(self):
        """Price of the violated links."""
        n_violated = self.n_violated
        return self.price * n_violated if n_violated else 0.0

    def assign(self, costs, to_node, opens_beyond, cap):
        """Assign each node to the cluster of least cost, links included, or let it open one.

        ``costs`` (n, k) are weighted squared distances, ``to_node(i)`` those of all nodes to node
        i, ``opens_beyond`` (n,) is what opens a cluster. If no link may be violated, the fewest
        are, whatever the distances. Where no node moves, ``_exchange`` follows. Returns how many
        moved, and at which nodes clusters opened.
        """
        opened, k, before = [], costs.shape[1], self.labels.copy()
        for color in self.colors:
            present = np.flatnonzero(self.labels >= 0)
            at = present, self.labels[present]
            members = csr_array((np.ones(len(present)), at), (len(costs), k))
            # violated links, less those of a node that is alone: all its must-links
            more = (self.signed[color] @ members).toarray()
            fewest = more.min(axis=1) if math.isinf(self.price) else np.zeros(len(color))
            more -= fewest[:, None]
            cost = costs[color] + np.multiply(self.price, more, out=more, where=more != 0.0)
            least = cost.min(axis=1)
            label, least[fewest > 0.0] = cost.argmin(axis=1).astype(np.int32), np.inf
            for at in np.flatnonzero(least > opens_beyond[color]):
                i, later = color[at], color[at + 1 :]
                if k == cap or least[at] <= opens_beyond[i]:
                    continue
                label[at] = k
                opened.append(i)
                costs = np.column_stack([costs, to_node(i)])
                closer = at + 1 + np.flatnonzero(costs[later, k] < least[at + 1 :])
                label[closer], least[closer] = k, costs[color[closer], k]
                k += 1
            self.labels[color] = label
        if np.array_equal(before, self.labels):
            self._exchange(costs)
        return int((before != self.labels).sum()), opened

    def _exchange(self, costs):
        """Nodes of two clusters that links connect change sides where that lowers the costs.

        They change together, so that links stay kept or violated. No node of them could move alone.
        """
        ends = np.sort(self.labels[np.concatenate([self.must, self.cannot])], axis=1)
        for a, b in np.unique(ends[ends[:, 0] < ends[:, 1]], axis=0):
            inside = np.flatnonzero((self.labels == a) | (self.labels == b))
            other = np.where(self.labels[inside] == a, b, a)
            here, there = costs[inside, self.labels[inside]], costs[inside, other]
            if not (there < here).any():
                continue
            set_of = connected_components(self.graph[inside][:, inside], directed=False)[1]
            change = np.bincount(set_of, there - here)
            lower = change < -EXCHANGE_TIE * np.bincount(set_of, there + here)
            self.labels[inside] = np.where(lower[set_of], other, self.labels[inside])
