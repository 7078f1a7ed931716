"""Graphs for the penalized cut: ``Graph``, and checks of adjacency matrices, labels and penalties.

A Graph has the links between different nodes in compressed rows (CSR). Its methods give the graph
of its clusters, its connected components, and the range of useful penalties.
"""

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
    level_of_caller,
)
from smallvar._sweeps.graph import contract


@dataclass
class Graph:
    """A weighted graph: the links between different nodes in compressed rows, and sizes of nodes.

    The cut of a cluster c is links(c, rest) / size(c); with ``out`` and ``size`` of its nodes added
    up, a cluster is a node of the contracted graph.
    """

    indptr: np.ndarray
    indices: np.ndarray
    weight: np.ndarray
    out: np.ndarray  # sum of the links to other nodes
    size: np.ndarray  # degree with self-links, or number of nodes

    @property
    def arrays(self):
        """The arrays that the compiled sweeps take."""
        return self.indptr, self.indices, self.weight, self.out, self.size

    def __len__(self):
        return len(self.out)

    @property
    def linked(self):
        """Mask of the nodes that have links to others."""
        return np.diff(self.indptr) > 0

    @property
    def ends(self):
        """Both nodes of each link, in both directions."""
        return np.repeat(np.arange(len(self)), np.diff(self.indptr)), self.indices

    @cached_property
    def components(self):
        """Number of connected components, and the component of each node."""
        count, component = connected_components(self.adjacency(), directed=False)
        return count, component.astype(np.int32)

    @property
    def ratio(self):
        """Cut of each node as a cluster of its own: its links to others over its size."""
        ratio = np.zeros(len(self))
        np.divide(self.out, self.size, out=ratio, where=self.out > 0)
        return ratio

    def unions(self):
        """The two nodes of each link, and the cut of a cluster of these two nodes."""
        row, column = self.ends
        links = self.out[row] + self.out[column] - 2 * self.weight
        return row, column, links / (self.size[row] + self.size[column])

    def contracted(self, labels, n_clusters):
        """The graph whose nodes are the clusters of ``labels``."""
        return Graph(*contract(self.arrays, labels, n_clusters))

    def least_lam(self, cut):
        """Least useful penalty: below it, no two nodes have a lower objective as one cluster.

        A union changes the cut by union - ratio_i - ratio_j, and saves lam.
        """
        ratio, (row, column, union) = self.ratio, self.unions()
        gain = (ratio[row] + ratio[column] - union).max()
        if cut == "ratio":  # here also a union of two nodes without a link may lower the cut
            gain = max(gain, np.partition(self.out, -2)[-2:].sum() / 2)
        return -float(gain)

    def part(self, nodes):
        """The graph of these nodes, which must have no links to others."""
        A = self.adjacency()[nodes][:, nodes]
        indptr, indices = A.indptr.astype(np.int64), A.indices.astype(np.int32)
        return Graph(indptr, indices, A.data, self.out[nodes], self.size[nodes])

    def adjacency(self):
        """Adjacency matrix of the links, a sparse array without self-links."""
        shape = (len(self), len(self))
        return csr_array((self.weight, self.indices, self.indptr), shape=shape)

    def laplacian(self):
        """V^-1/2 (D - A) V^-1/2 with V the sizes, a sparse array; zero for nodes without links."""
        root = np.zeros(len(self))
        np.divide(1.0, np.sqrt(self.size), out=root, where=self.out > 0)
        scale = diags_array(root)
        return csr_array(scale @ (diags_array(self.out) - self.adjacency()) @ scale)


def read_graph(estimator, X, cut):
    """Checked Graph from an adjacency matrix or a networkx graph.

    ``cut`` decides what the size of a node is: its degree with self-links ("normalized"), or 1.
    """
    networkx = sys.modules.get("networkx")  # it is imported already if X is one of its graphs
    if networkx is not None and isinstance(X, networkx.Graph):
        if X.is_directed():
            raise ValueError("X must be an undirected graph, got a directed one")
        if len(X) == 0:
            raise ValueError("X must have at least 1 node, got an empty graph")
        try:
            X = networkx.to_scipy_sparse_array(X, dtype=np.float64, weight="weight", format="csr")
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"X must have numbers as its edges' weights: {error}") from None
    X = check_sparse(opened(X), type(estimator).__name__, True)
    is_float32 = getattr(X, "dtype", None) == np.float32
    with explained(X, gaps_advice=""):
        X = validate_data(
            estimator, X, accept_sparse=["csr", "csc", "coo"], dtype=np.float64, copy=False
        )
    n = X.shape[0]
    if n != X.shape[1]:
        raise ValueError(f"X must be a square adjacency matrix, got shape {X.shape}")
    if n > np.iinfo(np.int32).max:
        raise ValueError(f"X must have fewer than 2**31 nodes, got {n}")
    # the way over coordinates copies the data and adds up duplicate entries
    X = csr_array(X).tocoo(copy=False) if isinstance(X, np.ndarray) else X.tocoo(copy=False)
    A = csr_array((X.data, (X.row, X.col)), shape=X.shape)
    if A.nnz and A.data.min() < 0:
        raise ValueError(
            f"X must be >= 0, got {A.data.min():.6g}: Negative values in data passed to "
            f"{type(estimator).__name__}, which needs an adjacency matrix"
        )
    A.eliminate_zeros()
    check_reach(A.data)
    dtype = np.float32 if is_float32 else np.float64
    if check_symmetric(A, "X must be a symmetric adjacency matrix", dtype) > 0:
        A = csr_array((A + A.T) / 2)
    row = np.repeat(np.arange(n, dtype=np.int32), np.diff(A.indptr))
    is_link = row != A.indices
    row, weight = row[is_link], A.data[is_link]
    out = np.bincount(row, weight, minlength=n).astype(np.float64)  # int64 if empty
    indptr = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=n))]).astype(np.int64)
    size = out + A.diagonal() if cut == "normalized" else np.ones(n)
    return Graph(indptr, A.indices[is_link].astype(np.int32), weight, out, size)


def check_labels(init, graph):
    """Starting labels numbered from 0, with nodes without links in clusters of their own.

    None if ``init`` is None.
    """
    if init is None:
        return None
    init = np.asarray(init)
    if init.shape != (len(graph),):
        raise ValueError(f"init must have shape ({len(graph)},), got {init.shape}")
    if init.dtype.kind not in "iub":
        raise TypeError(f"init must be integer labels or None, got an array of {init.dtype}")
    _, labels = np.unique(init, return_inverse=True)
    unlinked = ~graph.linked
    labels[unlinked] = len(graph) + np.arange(unlinked.sum())
    return np.unique(labels, return_inverse=True)[1].astype(np.int32)


def warn_useless(lam, graph, cut):
    """Warn if lam is outside the useful range, where the clusters do not depend on the links."""
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
        stacklevel=level_of_caller(),
    )
