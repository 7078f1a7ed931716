"""Graphs: checks of what is given, connected components, graphs of clusters."""

import sys
import warnings
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.sparse import csr_array, diags_array
from scipy.sparse.csgraph import connected_components
from sklearn.utils.validation import validate_data

from smallvar._core.tables import opened
from smallvar._core.validation import (
    check_reach,
    check_sparse,
    check_symmetric,
    explained,
)
from smallvar._sweeps.graph import contract


@dataclass
class Graph:
    """The links between different nodes in compressed rows; each node's links and size."""

    indptr: np.ndarray
    indices: np.ndarray
    weight: np.ndarray
    out: np.ndarray  # sum of the links to other nodes
    size: np.ndarray  # degree with self-links, or number of nodes

    @property
    def arrays(self):
        """What the sweeps take."""
        return self.indptr, self.indices, self.weight, self.out, self.size

    def __len__(self):
        return len(self.out)

    @property
    def linked(self):
        """The nodes that have links."""
        return np.diff(self.indptr) > 0

    @cached_property
    def parts(self):
        """How many connected parts there are, and which each node is in."""
        count, part = connected_components(self.adjacency(), directed=False)
        return count, part.astype(np.int32)

    @property
    def ratio(self):
        """What each node's links are of its size, the cut of a cluster of its own."""
        ratio = np.zeros(len(self))
        np.divide(self.out, self.size, out=ratio, where=self.out > 0)
        return ratio

    def unions(self):
        """For each link the nodes that it joins, and the cut of a cluster of these two."""
        row, column = np.repeat(np.arange(len(self)), np.diff(self.indptr)), self.indices
        both = self.out[row] + self.out[column] - 2 * self.weight
        return row, column, both / (self.size[row] + self.size[column])

    def contracted(self, labels, n_clusters):
        """The graph of the clusters."""
        return Graph(*contract(self.arrays, labels, n_clusters))

    def least_lam(self, cut):
        """Below this lam, no two nodes are better off as one cluster."""
        ratio, (row, column, both) = self.ratio, self.unions()
        gain = (ratio[row] + ratio[column] - both).max()
        if cut == "ratio":  # two without a link may gain, too
            gain = max(gain, np.partition(self.out, -2)[-2:].sum() / 2)
        return -float(gain)

    def reordered(self, order):
        """The same graph, node ``order[i]`` as node i."""
        A = self.adjacency()[order][:, order]
        return Graph(
            A.indptr.astype(np.int64),
            A.indices.astype(np.int32),
            A.data,
            self.out[order],
            self.size[order],
        )

    def part(self, start, stop):
        """The nodes start..stop-1, which have no links to others."""
        first, last = self.indptr[start], self.indptr[stop]
        return Graph(
            self.indptr[start : stop + 1] - first,
            self.indices[first:last] - np.int32(start),
            self.weight[first:last],
            self.out[start:stop],
            self.size[start:stop],
        )

    def adjacency(self):
        """The links as a sparse array."""
        shape = (len(self), len(self))
        return csr_array((self.weight, self.indices, self.indptr), shape=shape)

    def laplacian(self):
        """V^-1/2 (D - A) V^-1/2, V the sizes; the nodes without links have zeros."""
        root = np.zeros(len(self))
        np.divide(1.0, np.sqrt(self.size), out=root, where=self.out > 0)
        scale = diags_array(root)
        return csr_array(scale @ (diags_array(self.out) - self.adjacency()) @ scale)


def read_graph(estimator, X, cut):
    """The checked graph of an adjacency matrix or of a networkx graph."""
    networkx = sys.modules.get("networkx")  # if X is a graph of it, it was imported
    if networkx is not None and isinstance(X, networkx.Graph):
        if X.is_directed():
            raise ValueError("X must be an undirected graph, got a directed one")
        if len(X) == 0:
            raise ValueError("X must have at least 1 node, got an empty graph")
        try:
            X = networkx.to_scipy_sparse_array(X, dtype=np.float64, weight="weight", format="csr")
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"X must have numbers as its edges' weights: {error}") from None
    X = opened(X)
    check_sparse(X, type(estimator).__name__, True)
    single = getattr(X, "dtype", None) == np.float32
    with explained(X):
        X = validate_data(
            estimator, X, accept_sparse=["csr", "csc", "coo"], dtype=np.float64, copy=False
        )
    n = X.shape[0]
    if n != X.shape[1]:
        raise ValueError(f"X must be a square adjacency matrix, got shape {X.shape}")
    if n > np.iinfo(np.int32).max:
        raise ValueError(f"X must have fewer than 2**31 nodes, got {n}")
    # by way of coordinates: a copy, and duplicates are added
    X = csr_array(X).tocoo(copy=False) if isinstance(X, np.ndarray) else X.tocoo(copy=False)
    A = csr_array((X.data, (X.row, X.col)), shape=X.shape)
    if A.nnz and A.data.min() < 0:
        raise ValueError(
            f"X must be >= 0, got {A.data.min():.6g}: Negative values in data passed to "
            f"{type(estimator).__name__}, which needs an adjacency matrix"
        )
    A.eliminate_zeros()
    check_reach(A.data)
    given = np.float32 if single else np.float64
    if check_symmetric(A, "X must be a symmetric adjacency matrix", given) > 0:
        A = csr_array((A + A.T) / 2)
    row = np.repeat(np.arange(n, dtype=np.int32), np.diff(A.indptr))
    between = row != A.indices
    row, weight = row[between], A.data[between]
    out = np.bincount(row, weight, minlength=n).astype(np.float64)  # integers if empty
    indptr = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=n))]).astype(np.int64)
    size = out + A.diagonal() if cut == "normalized" else np.ones(n)
    return Graph(indptr, A.indices[between].astype(np.int32), weight, out, size)


def check_labels(init, graph):
    """Given labels numbered from 0, nodes without links on their own; None for None."""
    if init is None:
        return None
    init = np.asarray(init)
    if init.shape != (len(graph),):
        raise ValueError(f"init must have shape ({len(graph)},), got {init.shape}")
    if init.dtype.kind not in "iub":
        raise TypeError(f"init must be integer labels or None, got an array of {init.dtype}")
    _, labels = np.unique(init, return_inverse=True)
    alone = ~graph.linked
    labels[alone] = len(graph) + np.arange(alone.sum())
    return np.unique(labels, return_inverse=True)[1].astype(np.int32)


def warn_useless(lam, graph, cut):
    """Warn where lam alone determines the clusters."""
    if lam >= 0:
        expect = "one cluster for each connected part of the graph"
    elif lam <= graph.least_lam(cut):
        expect = "a cluster for each node"
    else:
        return
    warnings.warn(
        f"lam={lam:.6g} is outside the useful range, {graph.least_lam(cut):.6g} < lam < 0 for this "
        f"graph and cut: expect {expect}.",
        UserWarning,
        stacklevel=3,
    )
