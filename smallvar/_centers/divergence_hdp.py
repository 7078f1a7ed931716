"""The hard HDP with a Bregman divergence in place of the squared distance.

Kulis & Jordan (2012), Algorithm 2 and section 7; Jiang, Kulis & Jordan (2012). Centers are
arithmetic means for every divergence D, and a local cluster of weight s and mean m moves as a whole
by s D(m, mu_p), as sum_i w_i D(x_i, mu) = sum_i w_i D(x_i, m) + s D(m, mu) (Banerjee et al. 2005).
"""

from functools import cached_property

import numpy as np

from smallvar._centers.bregman import DivergenceProblem, checked_reference
from smallvar._centers.divergence import SumsFrame, blocks, farthest_first
from smallvar._centers.divergence_path import Family
from smallvar._centers.hdp_problem import (
    GLOBAL_GUESS,
    LOCAL_GUESS,
    LOCAL_PENALTY,
    HDPProblem,
    LocalClusters,
)
from smallvar._core.frame import check_means
from smallvar._selection.penalty import global_lambda, local_lambda
from smallvar._sweeps.divergences import join_cheapest, within_members
from smallvar._sweeps.sums import Sums


class _LocalMeans:
    """Weights and means of clusters of rows that have labels 0..k-1, none of them empty."""

    def __init__(self, problem, X, weight, labels, k):
        layout = problem.reference.frame.layout
        self.sums = Sums(layout, k)
        self.sums.add(X, labels, weight, problem.n_threads)
        self.weights, means = self.sums.totals[1][:k], self.sums.means[:k]
        check_means(means, layout)
        share = (1.0 if weight is None else float(weight.min())) / self.weights
        self.means = within_members(means, X, labels, share, problem.rule.high)

    def unite(self, a, b):
        """Add the members of cluster b to cluster a."""
        self.sums.unite(a, b)
        mean, self.weights[a] = self.sums.center(a)
        # rounding must not put it outside of the domain, or on its border
        self.means[a] = np.clip(mean, *np.sort(self.means[[a, b]], axis=0))


class DivergenceHDPSweep:
    """Algorithm 2 of Kulis & Jordan (2012) by a divergence; the interface is that of ``HDPSweep``.

    ``offset`` is what a row of each data set pays for each global cluster beside its divergence:
    ``lam_local``, or 0 where its data set has a local cluster there.
    """

    def __init__(self, problem, order, lam_local, lam_global):
        self.problem, self.order = problem, order
        self.lam_local, self.lam_global = lam_local, lam_global
        self.X = problem.X[order]
        self.weight = None if problem.weight is None else problem.weight[order]
        self.group, self.n_sets = problem.sets.number[order], len(problem.sets)
        # of each row: the place of its data set in the order of visit
        self.turn = np.append(0, np.cumsum(self.group[1:] != self.group[:-1]))
        self.labels = np.zeros(len(order), dtype=np.int32)
        self.centers = problem.reference.frame.mean[None]
        self.offset = np.zeros((self.n_sets, 1))
        self.n_local, self.error, self.farthest, self.split = 0, 0.0, 0.0, 0.0

    @property
    def k(self):
        """Number of global clusters."""
        return len(self.centers)

    def start(self, centers, labels):
        """Begin at these centers instead of the mean, each row in a cluster (in their order)."""
        self.centers, self.labels = centers.copy(), labels[self.order].astype(np.int32)
        self._set_locals()

    def _set_locals(self):
        """Set the local clusters: pairs of a data set and a label of its rows."""
        self.offset = np.full((self.n_sets, self.k), self.lam_local)
        self.offset[self.group, self.labels] = 0.0
        self.n_local = int((self.offset == 0.0).sum())

    def sweep(self):
        """Steps 4 to 6; returns whether anything changed, and how many clusters were created."""
        before, k = self.labels.copy(), self.k
        self._move_rows()
        self._move_locals()
        created = self.k - k
        changed = created > 0 or not np.array_equal(before, self.labels)
        self._move_centers()
        return changed, created

    def _open(self, x, weight, cost, penalty):
        """Add a global cluster at x, whose weighted divergence from the centers was ``cost``.

        Components on the border are moved toward the mean of all rows, if that cluster, too, is
        worth the penalty: see BregmanDPMeans.
        """
        rule = self.problem.rule
        center = rule.off_border(x, self.problem.reference.m0)
        if not cost - weight * rule.between(x, center) > penalty:
            center = x
        self.centers = np.vstack((self.centers, center))
        self.offset = np.column_stack((self.offset, np.full(self.n_sets, self.lam_local)))

    def _move_rows(self):
        """Step 4: each row joins the cheapest global cluster, or opens one."""
        at, limit, costs = 0, self.lam_local + self.lam_global, np.empty(len(self.X))
        while True:
            at = join_cheapest(
                self.problem.rule.kind, self.X, self.weight, self.group, self.centers, self.offset,
                self.labels, costs, first=at, limit=limit, is_free_then=True,
            )  # fmt: skip
            if at == len(self.X):
                break
            weight = 1.0 if self.weight is None else self.weight[at]
            self._open(self.X[at].astype(np.float64), weight, costs[at], limit)
            self.labels[at] = self.k - 1
            self.offset[self.group[at], -1] = 0.0
            at += 1
        self.farthest = float(costs.max())

    def _move_locals(self):
        """Step 5: each local cluster goes to the cheapest global one, or opens one at its mean."""
        k, limit = self.k, self.lam_global
        pairs, local = np.unique(self.turn * k + self.labels, return_inverse=True)
        assigned = (pairs % k).astype(np.int32)
        local = local.astype(np.int32)
        clusters = _LocalMeans(self.problem, self.X, self.weight, local, len(pairs))
        target, costs, joined = assigned.copy(), np.empty(len(pairs)), np.arange(len(pairs))
        at, no_group = 0, np.zeros(len(pairs), dtype=np.int32)
        while True:
            at = join_cheapest(
                self.problem.rule.kind, clusters.means, clusters.weights, no_group, self.centers,
                np.zeros((1, self.k)), target, costs, first=at, limit=limit, stops_above=True,
            )  # fmt: skip
            if at == len(pairs):
                break
            if costs[at] > limit:
                self._open(clusters.means[at], clusters.weights[at], costs[at], limit)
                target[at] = self.k - 1
            elif target[at] < k:
                # the local cluster that it joins is yet to be visited, and has its rows then
                pair = pairs[at] - assigned[at] + target[at]
                other = int(np.searchsorted(pairs, pair))
                if other < len(pairs) and pairs[other] == pair:
                    clusters.unite(other, at)
                    joined[at] = other
            at += 1
        # rows that joined a later local cluster went where that one did, the last of a chain first
        for at in np.flatnonzero(joined > np.arange(len(pairs)))[::-1]:
            target[at] = target[joined[at]]
        self.split = float(costs.max())
        self.labels = target[local]

    def _move_centers(self):
        """Step 6: means over all data sets; clusters without rows are removed."""
        kept, labels = np.unique(self.labels, return_inverse=True)
        self.labels = labels.astype(np.int32)
        clusters = _LocalMeans(self.problem, self.X, self.weight, self.labels, len(kept))
        self.centers = clusters.means
        self._set_locals()
        local = LocalClusters((), (), self.centers, 0.0, self.problem.rule)
        self.error = local.error(self.X, self.labels, 1, self.weight)

    def drop(self):
        """Data sets give up local clusters, the cheapest first, while that costs < lam_local.

        Rows of such a cluster go to the nearest center that their data set keeps. All data sets do
        so at once, one cluster each in a round. Returns how many clusters were given up.
        """
        rows, dropped, used = np.arange(len(self.X)), 0, self.offset == 0.0
        while len(rows):
            second, gap = np.empty(len(rows), dtype=np.int32), np.empty(len(rows))
            for block in blocks(len(rows), self.centers.size):
                i = rows[block]
                cost = self.problem.rule.between(self.X[i, None], self.centers)
                cost *= 1.0 if self.weight is None else self.weight[i, None]
                cost[~used[self.group[i]]] = np.inf
                here = np.arange(len(i)), self.labels[i]
                assigned = cost[here]
                cost[here] = np.inf
                second[block], gap[block] = cost.argmin(axis=1), cost.min(axis=1) - assigned
            pair = self.group[rows].astype(np.intp) * self.k + self.labels[rows]
            loss = np.bincount(pair, gap, used.size).reshape(used.shape)
            loss[~used] = np.inf
            cheapest = loss.argmin(axis=1)
            gives = (loss.min(axis=1) < self.lam_local) & (used.sum(axis=1) > 1)
            gives &= np.bincount(self.group[rows], minlength=self.n_sets) > 0
            still = gives[self.group[rows]]
            moves = still & (self.labels[rows] == cheapest[self.group[rows]])
            self.labels[rows[moves]] = second[moves]
            used[gives, cheapest[gives]] = False
            rows, dropped = rows[still], dropped + int(gives.sum())
        self.offset[~used] = self.lam_local
        return dropped

    def result(self):
        """Labels, local labels, centers, and number and list of what each data set uses."""
        labels = np.empty(len(self.order), dtype=np.int32)
        labels[self.order] = self.labels
        local_labels, lists, n_local = self.problem.sets.local(labels, self.k)
        return labels, local_labels, self.centers.copy(), n_local, lists


class DivergenceHDPProblem(HDPProblem):
    """The rows of a fit by a divergence, ``rule``, with their data sets."""

    @cached_property
    def reference(self):
        """The mean of the rows, and what is known of each row relative to it."""
        frame = SumsFrame(self.X, self.weight, self.n_threads)
        return checked_reference(self.rule, self.X, self.weight, frame)

    def criterion_of(self, X):
        """The likelihood of the family."""
        return Family(self.rule)(X, self.weight, self.n_threads)[0]

    def as_one_set(self, fit):
        """The rows as one data set, for starts of DP-means."""
        rows = self.X, self.weight, None
        return DivergenceProblem(fit, self.rule, *rows, self.reference, self.n_threads)

    def derived_penalty(self, pooled):
        """The local penalty 3/2 phi log(u), for u rows, phi the dispersion of the family.

        In units of -2 log likelihood a local cluster saves 2 D / phi. For squared distances, phi is
        2 s^2, and the penalty 3 s^2 log(u).
        """
        family = self.criterion
        u, n, state = family.distinct, family.n, family.relabeled(pooled.labels, pooled.n_clusters)
        phi = family.dispersion(pooled.inertia / n, state.weights / n, state.centers)
        return 0.5 * LOCAL_PENALTY * phi * np.log(u) * n / u

    def sweep(self, order, lam_local, lam_global):
        """The sweep of these rows, visited in this order."""
        return DivergenceHDPSweep(self, order, lam_local, lam_global)

    def farthest_local(self):
        """The local penalty of the farthest-first rule, for rows of weight 1."""

        def of_set(rows):
            X = self.X[rows]
            mean = np.clip(X.mean(axis=0, dtype=np.float64), 0.0, self.rule.high)
            return farthest_first(self.rule, X, mean, min(LOCAL_GUESS, len(rows)))

        return local_lambda(self.sets, of_set)

    def farthest_global(self):
        """The global penalty of the farthest-first rule, for rows of weight 1."""
        X, between = self.X, self.rule.between
        from_mean = between(X, SumsFrame(X, None, self.n_threads).mean)
        return global_lambda(
            self.sets, from_mean, lambda i: between(X, X[i].astype(np.float64)), GLOBAL_GUESS, 0.0
        )

    def distances(self, means, centers):
        """Divergences of means, which rounding may put outside of the domain, from centers."""
        return self.rule.between(np.clip(means, 0.0, self.rule.high)[:, None], centers)
