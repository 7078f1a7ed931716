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
from smallvar._centers.hdp_problem import LOCAL_PENALTY, HDPProblem, LocalClusters
from smallvar._core.frame import check_means
from smallvar._selection.penalty import global_lambda, local_lambda
from smallvar._sweeps.divergences import within_members
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

    Costs of a block of rows are computed at once. Rows before the first one that opens a global or
    a local cluster keep what was cheapest; for later ones only that cluster has become cheaper.
    """

    def __init__(self, problem, order, lam_local, lam_global):
        self.problem, self.order = problem, order
        self.lam_local, self.lam_global = lam_local, lam_global
        self.X = np.ascontiguousarray(problem.X[order], dtype=np.float64)
        self.weight = None if problem.weight is None else problem.weight[order]
        self.group, self.n_sets = problem.sets.number[order], len(problem.sets)
        # of each row: the place of its data set in the order of visit
        self.turn = np.append(0, np.cumsum(self.group[1:] != self.group[:-1]))
        self.labels = np.zeros(len(order), dtype=np.int32)
        self.centers = problem.reference.frame.mean[None]
        self.used = np.ones((self.n_sets, 1), dtype=bool)  # local clusters: data sets x centers
        self.n_local, self.error, self.farthest, self.split = 0, 0.0, 0.0, 0.0

    @property
    def k(self):
        """Number of global clusters."""
        return len(self.centers)

    def start(self, centers, labels):
        """Begin at these centers instead of the mean, each row in a cluster (in their order)."""
        self.centers, self.labels = centers.copy(), labels[self.order].astype(np.int32)
        self._note_used()

    def _note_used(self):
        """Set the local clusters: pairs of a data set and a label of its rows."""
        self.used = np.zeros((self.n_sets, self.k), dtype=bool)
        self.used[self.group, self.labels] = True
        self.n_local = int(self.used.sum())

    def _costs(self, rows, centers):
        """Weighted divergences of rows (slice or indices) from centers."""
        table = self.problem.rule.between(self.X[rows, None], centers)
        return table if self.weight is None else table * self.weight[rows, None]

    def sweep(self):
        """Steps 4 to 6; returns whether anything changed, and how many clusters were created."""
        before, k = self.labels.copy(), self.k
        self.farthest = 0.0
        for block in blocks(len(self.X), self.centers.size):
            self._move_rows(block)
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
        self.used = np.column_stack((self.used, np.zeros(self.n_sets, dtype=bool)))

    def _move_rows(self, block):
        """Step 4 for a block of rows: w D(x, mu_p), and lam_local where the data set has no p."""
        group, limit = self.group[block], self.lam_local + self.lam_global
        cost = self._costs(block, self.centers) + self.lam_local * ~self.used[group]
        best, least = cost.argmin(axis=1), cost.min(axis=1)
        event, at = (least > limit) | ~self.used[group, best], 0
        while event[at:].any():
            at += int(event[at:].argmax())
            if least[at] > limit:
                row = block.start + at
                weight = 1.0 if self.weight is None else self.weight[row]
                self._open(self.X[row], weight, least[at], limit)
                best[at], stop = self.k - 1, len(best)
            else:
                stop = at + np.count_nonzero(group[at:] == group[at])
            p = best[at]
            self.used[group[at], p] = True
            at += 1
            # cluster p has become cheaper: for all later rows, or for those of the same data set
            later, g = slice(block.start + at, block.start + stop), group[at:stop]
            new = self._costs(later, self.centers[p : p + 1])[:, 0]
            new += self.lam_local * ~self.used[g, p]
            _amend(best[at:stop], least[at:stop], new, p)
            event[at:stop] = (least[at:stop] > limit) | ~self.used[g, best[at:stop]]
        self.labels[block] = best
        self.farthest = max(self.farthest, float(least.max()))

    def _move_locals(self):
        """Step 5: each local cluster goes to the cheapest global one, or opens one at its mean."""
        k, rule, limit = self.k, self.problem.rule, self.lam_global
        pairs, local = np.unique(self.turn * k + self.labels, return_inverse=True)
        local, own = local.astype(np.int32), pairs % k
        clusters = _LocalMeans(self.problem, self.X, self.weight, local, len(pairs))
        best, least = np.empty(len(pairs), dtype=np.intp), np.empty(len(pairs))

        def compare(which, first=0):
            """Costs s D(m, mu_p) of local clusters in the centers from ``first`` on."""
            means = clusters.means[which, None]
            return clusters.weights[which, None] * rule.between(means, self.centers[first:])

        for block in blocks(len(pairs), self.centers.size):
            cost = compare(block)
            best[block], least[block] = cost.argmin(axis=1), cost.min(axis=1)
        # an event: a local cluster that moves or opens a global one; the others stay, in any order
        event, at, joined = (best != own) | (least > limit), 0, np.arange(len(pairs))
        while event[at:].any():
            at += int(event[at:].argmax())
            if least[at] > limit:
                self._open(clusters.means[at], clusters.weights[at], least[at], limit)
                best[at], rest = self.k - 1, slice(at + 1, None)
                _amend(best[rest], least[rest], compare(rest, self.k - 1)[:, 0], self.k - 1)
                event[rest] = (best[rest] != own[rest]) | (least[rest] > limit)
            elif best[at] > own[at]:
                # the local cluster that it joins is yet to be visited, and has its rows then
                wanted = pairs[at] - own[at] + best[at] if best[at] < k else -1
                other = int(np.searchsorted(pairs, wanted))
                if other < len(pairs) and pairs[other] == wanted:
                    clusters.unite(other, at)
                    joined[at], cost = other, compare(slice(other, other + 1))[0]
                    best[other], least[other] = cost.argmin(), cost.min()
                    event[other] = best[other] != own[other] or least[other] > limit
            at += 1
        # rows that joined a later local cluster went where that one did, the last of a chain first
        for at in np.flatnonzero(joined > np.arange(len(pairs)))[::-1]:
            best[at] = best[joined[at]]
        self.split = float(least.max())
        self.labels = best.astype(np.int32)[local]

    def _move_centers(self):
        """Step 6: means over all data sets; clusters without rows are removed."""
        kept, self.labels = np.unique(self.labels, return_inverse=True)
        self.labels = self.labels.astype(np.int32)
        clusters = _LocalMeans(self.problem, self.X, self.weight, self.labels, len(kept))
        self.centers = clusters.means
        self._note_used()
        local = LocalClusters((), (), self.centers, 0.0, self.problem.rule)
        self.error = local.error(self.X, self.labels, 1, self.weight)

    def drop(self):
        """Data sets give up local clusters, the cheapest first, while that costs < lam_local.

        Rows of such a cluster go to the nearest center that their data set keeps. All data sets do
        so at once, one cluster each in a round. Returns how many clusters were given up.
        """
        rows, dropped = np.arange(len(self.X)), 0
        while len(rows):
            second, gap = np.empty(len(rows), dtype=np.int32), np.empty(len(rows))
            for block in blocks(len(rows), self.centers.size):
                i = rows[block]
                cost = self._costs(i, self.centers)
                cost[~self.used[self.group[i]]] = np.inf
                here = np.arange(len(i)), self.labels[i]
                assigned = cost[here]
                cost[here] = np.inf
                second[block], gap[block] = cost.argmin(axis=1), cost.min(axis=1) - assigned
            pair = self.group[rows].astype(np.intp) * self.k + self.labels[rows]
            loss = np.bincount(pair, gap, self.used.size).reshape(self.used.shape)
            loss[~self.used] = np.inf
            cheapest = loss.argmin(axis=1)
            gives = (loss.min(axis=1) < self.lam_local) & (self.used.sum(axis=1) > 1)
            gives &= np.bincount(self.group[rows], minlength=self.n_sets) > 0
            still = gives[self.group[rows]]
            moves = still & (self.labels[rows] == cheapest[self.group[rows]])
            self.labels[rows[moves]] = second[moves]
            self.used[gives, cheapest[gives]] = False
            rows, dropped = rows[still], dropped + int(gives.sum())
        return dropped

    def result(self):
        """Labels, local labels, centers, and number and list of what each data set uses."""
        labels = np.empty(len(self.order), dtype=np.int32)
        labels[self.order] = self.labels
        local_labels, lists, n_local = self.problem.sets.local(labels, self.k)
        return labels, local_labels, self.centers.copy(), n_local, lists


def _amend(best, least, new, p):
    """Set the cheapest clusters ``best``, and their costs (INOUT), where p has become cheaper."""
    closer = (new < least) | ((new == least) & (p < best))
    best[closer], least[closer] = p, new[closer]


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

    def pooling(self, fit):
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

    def farthest_local(self, number):
        """The local penalty of the farthest-first rule, for this guess of the clusters of a set."""

        def of_set(rows):
            mean = np.clip(self.X[rows].astype(np.float64).mean(axis=0), 0.0, self.rule.high)
            return farthest_first(self.rule, self.X[rows], mean, min(number, len(rows)))

        return local_lambda(self.sets, of_set)

    def farthest_global(self, number):
        """The global penalty of the farthest-first rule, for this guess of all clusters."""
        X, between = self.X, self.rule.between
        from_mean = between(X, SumsFrame(X, None, self.n_threads).mean)
        return global_lambda(self.sets, from_mean, lambda i: between(X, X[i]), number, 0.0)

    def distances(self, means, centers):
        """Divergences of means, which rounding may put outside of the domain, from centers."""
        return self.rule.between(np.clip(means, 0.0, self.rule.high)[:, None], centers)
