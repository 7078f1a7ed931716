"""DP-means and the hard HDP on points that are known by a kernel."""

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from smallvar._base import (
    check_flag,
    check_lam,
    check_number,
    check_option,
    check_ratio,
    check_weights,
    learned,
    unchanged_on_error,
    warn_not_converged,
)
from smallvar._gram import (
    BLOCK,
    PRODUCTS,
    Gram,
    KernelEstimator,
    add_rows,
    batches,
    block_size,
    origin_of,
    warn_far,
    warn_indefinite,
)
from smallvar._groups import Groups
from smallvar._penalty import among, check_guess, farthest_by, global_lambda, local_lambda
from smallvar._starts import NO_CAP, Progress, best_of

TIE = 1e-13  # of the terms that a distance is the difference of: their rounding
FIRST_WINDOW, LAST_WINDOW = 16, 4096  # points looked at together between two that move
WEIGHTS = 1e6  # largest ratio of weights where rows are taken out of clusters
FINE = 1e-3  # part of the sum of w K_ii that an objective may be whose sums are only updated
TILE = 256  # rows of the local clusters whose kernel is taken at once
# kernels that may have negative eigenvalues; gamma < 0 is not allowed
INDEFINITE = ("precomputed", "sigmoid", "poly", "polynomial")


def cheapest(cost, size):
    """Index of the least entry of each column, the lowest one of those equal up to rounding.

    Returns it with the least value, and what counts as rounding: TIE times the largest entry of
    the column and ``size``.
    """
    least = cost.min(axis=0)
    tie = TIE * (np.abs(cost).max(axis=0) + size)
    return (cost <= least + tie).argmax(axis=0), least, tie


class _Clusters:
    """A partition of the points, and the sums over its clusters that distances follow from.

    With sums[c, i] = sum_{j in c} w_j K_ij and mass s_c, the squared distance of point i to the
    mean of c is K_ii - 2 sums[c, i] / s_c + norm_c, norm_c = sum_{i in c} w_i sums[c, i] / s_c^2.
    """

    def __init__(self, gram, weight, label):
        n = gram.shape[0]
        self.gram, self.diagonal = gram, gram.diagonal
        self.weight = np.ones(n) if weight is None else weight
        self.live = np.flatnonzero(self.weight > 0)
        self.label = np.zeros(n, dtype=np.int32)
        self.sums = np.zeros((0, n))
        self.n_changes = 0
        self.put(label, int(label.max()) + 1, exact=True)

    def copy(self):
        """The same partition, to go on from."""
        other = object.__new__(type(self))
        vars(other).update(vars(self))
        return other

    @property
    def k(self):
        """Number of clusters."""
        return len(self.sums)

    @property
    def exact(self):
        """Whether the sums were added up from scratch and not changed since."""
        return self.n_changes == 0

    def put(self, label, k, *, exact=False):
        """Take other labels, numbers below ``k``; clusters without mass vanish.

        Returns the new number of each old one, -1 for those that vanish.
        """
        live, old = self.live, self.label
        used = np.zeros(k, dtype=bool)
        used[label[live]] = True
        number = np.where(used, np.cumsum(used) - 1, -1)
        kept = np.flatnonzero(used[: self.k])
        changed = live[label[live] != old[live]]
        now = number[label[changed]]
        # an update reads two rows for each change
        if exact or 2 * len(changed) >= len(live) or self.n_changes > 4 * len(live):
            self.sums = np.zeros((used.sum(), len(old)))
            self.gram.add(self.sums, live, number[label[live]], self.weight[live])
            self.n_changes = 0
        elif len(changed) or len(kept) < k or k > self.k:
            sums = np.zeros((used.sum(), len(old)))
            sums[number[kept]] = self.sums[kept]
            left = used[old[changed]]
            self.gram.add(
                sums,
                np.concatenate([changed, changed[left]]),
                np.concatenate([now, number[old[changed[left]]]]),
                np.concatenate([self.weight[changed], -self.weight[changed[left]]]),
            )
            self.sums = sums
            self.n_changes += len(changed)
        self.label = np.maximum(number[label], 0).astype(np.int32)
        self.measure()
        return number

    def measure(self):
        """Masses, norms and the squared error from the sums."""
        c, w = self.label[self.live], self.weight[self.live]
        self.mass = np.bincount(c, w, self.k)
        square = np.bincount(c, w * self.sums[c, self.live], self.k)
        self.norm = square / self.mass / self.mass
        total = np.bincount(c, w * self.diagonal[self.live], self.k)
        error = float((total - square / self.mass).sum())
        self.size = float(np.abs(total).sum())
        # a negative error is of an indefinite matrix, or rounding
        self.error = 0.0 if abs(error) <= TIE * self.size else error

    def costs(self, columns):
        """norm_c - 2 sums[c, i] / s_c for these points: squared distances less K_ii."""
        cost = self.sums[:, columns] * (-2.0 / self.mass)[:, None]
        cost += self.norm[:, None]
        return cost

    def nearest(self):
        """Nearest mean of each point, its squared distance, and the rounding of that."""
        n = len(self.label)
        label, least, tie = np.empty(n, dtype=np.int32), np.empty(n), np.empty(n)
        size = np.abs(self.norm).max()
        for few in batches(n, max(1, (1 << 18) // self.k)):
            label[few], least[few], tie[few] = cheapest(self.costs(few), size)
        return label, least + self.diagonal, tie + TIE * np.abs(self.diagonal)

    def to_point(self, i, row):
        """Squared distances of all points to point i, whose kernel is ``row``."""
        return self.diagonal - 2.0 * row + self.diagonal[i]


def rounding(clusters):
    """Squared distance that the rounding of the kernel may make out of none."""
    largest = max(
        float(np.abs(clusters.diagonal).max()),
        float(np.abs(clusters.sums / clusters.mass[:, None]).max()),
    )
    precision = clusters.gram.X.dtype if clusters.gram.K is None else clusters.gram.K.dtype
    return (8.0 * float(np.finfo(precision).eps) + TIE) * largest


def farthest_first(gram, rows, distance, n_clusters, noise):
    """The farthest-first rule among ``rows``, from their distances to their mean."""

    def to_row(far):
        row = gram.block(rows[[far]], rows)[0]
        row *= -2.0
        row += gram.diagonal[rows] + gram.diagonal[rows[far]]
        return row

    return farthest_by(among(distance, to_row), n_clusters, noise)


class _Start:
    """Base of starts on a partition: sweeps until one, by sums from scratch, changes nothing.

    ``sweep`` returns labels, the number of clusters and whether either is another than before;
    ``measured`` is the objective of the present partition, ``words`` are what to print of it, and
    ``renumber`` hears of the new numbers of clusters.
    """

    def __init__(self, clusters, order, noise):
        self.clusters, self.order, self.noise = clusters.copy(), order, noise

    @property
    def objective(self):
        """The objective at the end."""
        return self.progress.objective

    def renumber(self, number):
        """New number of each old cluster, -1 where it vanished."""

    def run(self, max_iter, tol, verbose):
        """Sweep to the end, then settle the objective."""
        clusters = self.clusters
        # with an indefinite matrix clusters may open without end
        progress = self.progress = Progress(max_iter, tol, len(self.order), verbose)
        verifying = False
        while progress.goes_on or (verifying and not progress.ended):
            was_exact = clusters.exact
            label, k, changed = self.sweep()
            opened = k - clusters.k
            if verifying and not changed:
                progress.converged = True
                break
            # updated sums drift: a fixed point counts once it is one of sums from scratch
            verifying = not changed and not was_exact
            if changed or verifying:
                self.renumber(clusters.put(label, k, exact=verifying))
                if not clusters.exact and abs(self.measured()) < FINE * clusters.size:
                    # the rounding of updates could be seen in it, as a rise
                    clusters.put(clusters.label, clusters.k, exact=True)
            progress.record(
                self.measured(),
                self.words(),
                changed=changed,
                opened=opened,
                converged=not changed and was_exact,
            )
        if not clusters.exact:
            clusters.put(clusters.label, clusters.k, exact=True)
        progress.objective = self.measured()
        return self


class _DPStart(_Start):
    """One start of DP-means."""

    def __init__(self, clusters, order, lam, algorithm, max_clusters, noise):
        order = clusters.live if order is None else order[clusters.weight[order] > 0]
        super().__init__(clusters, order, noise)
        self.lam, self.cap = lam, NO_CAP if max_clusters is None else max_clusters
        self.step = self.collapse if algorithm == "collapsed" else self.create

    def run(self, max_iter, tol, verbose):
        """Sweep to the end, then settle labels and objective."""
        super().run(max_iter, tol, verbose)
        self.settle()
        return self

    @property
    def k(self):
        """Number of clusters, at the end."""
        return len(self.norm)

    def sweep(self):
        """One sweep; returns labels, the number of clusters, and whether points moved."""
        label, self.n_moved, self.n_opened = self.step()
        return label, self.clusters.k + self.n_opened, self.n_moved > 0

    def measured(self):
        """Error and penalty of the present partition."""
        return self.clusters.error + self.lam * self.clusters.k

    def words(self):
        """What a sweep did."""
        return (
            f"{self.clusters.k} clusters, {{}}, {self.n_moved} points moved, "
            f"{self.n_opened} clusters opened"
        )

    def settle(self):
        """Labels to return, and the means they go with."""
        clusters = self.clusters
        idle = np.flatnonzero(clusters.weight == 0)
        self.center_label, self.norm, self.mass = (
            clusters.label.copy(),
            clusters.norm,
            clusters.mass,
        )
        self.center_label[idle] = -1
        self.label, self.inertia = clusters.label, clusters.error
        closing = not self.progress.converged and self.step != self.collapse
        if not (closing or len(idle)):
            return
        nearest, least, _ = clusters.nearest()
        self.label = self.label.copy()
        self.label[idle] = nearest[idle]
        if closing:
            used = np.zeros(clusters.k, dtype=bool)
            used[nearest[clusters.live]] = True
            number = np.where(used, np.cumsum(used) - 1, -1).astype(np.int32)
            self.center_label = np.append(number, np.int32(-1))[self.center_label]
            self.norm, self.mass = self.norm[used], self.mass[used]
            # a point without weight may have been the only one that was nearest
            if not used[nearest[idle]].all():
                nearest[idle] = np.flatnonzero(used)[
                    cheapest(clusters.costs(idle)[used], np.abs(self.norm).max())[0]
                ]
            self.label = number[nearest]
            self.inertia = float(clusters.weight @ least)
            self.progress.path.append(self.inertia + self.lam * len(self.norm))

    def create(self):
        """One sweep of Algorithm 1; returns labels, points moved and clusters opened."""
        clusters, order = self.clusters, self.order
        label, least, tie = clusters.nearest()
        new, weight = label[order], clusters.weight[order]
        least, tie = least[order], tie[order]
        limit = np.maximum(self.lam, weight * self.noise) + weight * tie
        far = np.flatnonzero(weight * least > limit)
        k = clusters.k
        # each round is one opening; what it does to the later points is what they would find
        while len(far) and k < self.cap:
            i = far[0]
            row = clusters.gram.rows(order[i : i + 1])[0]
            distance = clusters.to_point(order[i], row)[order[i + 1 :]]
            new[i], later = k, np.s_[i + 1 :]
            closer = distance < least[later] - tie[later]
            new[later][closer] = k
            least[later][closer] = distance[closer]
            k += 1
            far = far[1:]
            far = far[weight[far] * least[far] > limit[far]]
        moved = int(np.count_nonzero(new != clusters.label[order]))
        label[order] = new
        return label, moved, k - clusters.k

    def collapse(self):
        """One collapsed sweep (MB13, eq. 8-9); returns labels, points moved, clusters opened."""
        clusters, order = self.clusters, self.order
        n, k, live, moved = len(clusters.label), clusters.k, clusters.k, 0
        label = clusters.label.copy()
        room = k + 8
        sums, mass, square = np.empty((room, n)), np.zeros(room), np.zeros(room)
        sums[:k], mass[:k] = clusters.sums, clusters.mass
        square[:k] = clusters.norm * clusters.mass**2
        count = np.zeros(room, dtype=np.int64)
        count[:k] = np.bincount(label[order], minlength=k)
        at, window = 0, FIRST_WINDOW
        while at < len(order):
            rows = order[at : at + window]
            own, w, places = label[rows], clusters.weight[rows], np.arange(len(rows))
            alone = count[own] == 1
            s = np.where(mass[:k] > 0, mass[:k], 1.0)[:, None]
            distance = sums[:k, rows] * (-2.0 / s)
            distance += square[:k, None] / s / s
            size = np.abs(distance).max(axis=0) + np.abs(clusters.diagonal[rows])
            distance += clusters.diagonal[rows]
            factor = w * s / (w + s)
            # ||x - m|| = ||x - mean|| s / (s - w), s and the mean those with x
            rest = np.where(alone, 1.0, s[own, 0] - w)
            factor[own, places] = w * s[own, 0] / np.maximum(rest, 1e-15 * w)
            cost = distance * factor
            cost[count[:k] == 0] = np.inf
            cost[own[alone], places[alone]] = np.inf
            least = np.minimum(
                cost.min(axis=0), np.where(live - alone < self.cap, self.lam, np.inf)
            )
            good = cost <= least + 1e-12 * least + w * (TIE * size + self.noise)
            best = np.where(good.any(axis=0), good.argmax(axis=0), k)
            leaves = np.flatnonzero((best != own) & ~((best == k) & alone))
            if not len(leaves):
                at += len(rows)
                window = min(2 * window, LAST_WINDOW)
                continue
            j = leaves[0]
            at, window, moved = at + j + 1, FIRST_WINDOW, moved + 1
            i, w, a, b = rows[j], w[j], own[j], best[j]
            if b == k:
                if k == room:
                    room *= 2
                    sums = np.concatenate([sums, np.empty((room - k, n))])
                    mass, square, count = (
                        np.concatenate([x, np.zeros(room - k, dtype=x.dtype)])
                        for x in (mass, square, count)
                    )
                sums[b] = 0.0
                k += 1
                live += 1
            live -= bool(alone[j])
            row = w * clusters.gram.rows(rows[j : j + 1])[0]
            for c, sign in ((a, -1), (b, 1)):
                square[c] += w * (sign * 2.0 * sums[c, i] + row[i])
                sums[c] += sign * row
                mass[c] += sign * w
                count[c] += sign
            if not count[a]:
                mass[a] = 0.0
            label[i] = b
        return label, moved, k - clusters.k


class _HDPStart(_Start):
    """One start of the hard HDP. Points are in the order of visit: ``order``, data set by data set.

    A local cluster is a pair of a data set (the number of its run in that order) and a global one.
    """

    def __init__(self, clusters, order, group, lam_local, lam_global, noise):
        super().__init__(clusters, order, noise)
        first = np.append(True, group[order][1:] != group[order][:-1])
        self.run_of = np.cumsum(first) - 1
        self.stop = np.append(np.flatnonzero(first)[1:], len(order))[self.run_of]
        self.lam_local, self.lam_global = lam_local, lam_global
        self.floor = max(lam_global, noise * len(order))  # what rounding alone may not exceed
        self.diagonal = clusters.diagonal[order]
        self.inside = np.zeros(len(order))  # sum of K over the point's local cluster
        self.seen = np.full(len(order), -1)  # for these labels

    @property
    def k(self):
        """Number of global clusters."""
        return self.clusters.k

    @property
    def n_local(self):
        """Number of local clusters."""
        return len(np.unique(self.run_of * self.clusters.k + self.clusters.label[self.order]))

    def measured(self):
        """Error and penalties of the present partition."""
        clusters = self.clusters
        return clusters.error + self.lam_local * self.n_local + self.lam_global * clusters.k

    def words(self):
        """What there is after a sweep."""
        return f"{self.clusters.k} global clusters, {self.n_local} local ones, {{}}"

    def renumber(self, number):
        """The local clusters follow."""
        self.seen = np.append(number, -1)[self.seen]

    def sweep(self):
        """Steps 4 and 5 of Algorithm 2; returns labels, their number, and whether any changed."""
        clusters = self.clusters
        size = float(np.abs(clusters.norm).max())
        # squared distances of the points to the global clusters, those opened in the sweep too
        self.distance = clusters.costs(self.order) + self.diagonal
        self.n_global = clusters.k
        new = self.move_points(size)
        self.move_locals(new, size)
        label = np.empty_like(new)
        label[self.order] = new
        changed = self.n_global > clusters.k or bool((label != clusters.label).any())
        return label, self.n_global, changed

    def add_global(self, distance):
        """A new global cluster at these distances; returns its number."""
        if self.n_global == len(self.distance):
            self.distance = np.concatenate([self.distance, np.empty_like(self.distance)])
        self.distance[self.n_global] = distance
        self.n_global += 1
        return self.n_global - 1

    def move_points(self, size):
        """Step 4: each point goes where it costs least; returns the labels."""
        clusters, run = self.clusters, self.run_of
        n = len(run)
        has = np.zeros((run[-1] + 1, max(16, 2 * self.n_global)), dtype=bool)
        has[run, clusters.label[self.order]] = True
        new, least, tie = cheapest(
            self.distance + self.lam_local * ~has[run, : self.n_global].T,
            size + np.abs(self.diagonal),
        )
        new = new.astype(np.int32)
        limit = self.lam_local + self.floor + tie
        opens = (least > limit) | ~has[run, new]
        at = 0
        # each round opens one local cluster, and maybe its global one, for the next point that
        # wants it; only what the later points find there is looked at again
        while at < n:
            i = at + int(opens[at:].argmax())
            if not opens[i]:
                break
            at, j = i + 1, run[i]
            if least[i] > limit[i]:
                row = clusters.gram.rows(self.order[i : i + 1])[0]
                c = self.add_global(clusters.to_point(self.order[i], row)[self.order])
                if c == has.shape[1]:
                    has = np.concatenate([has, np.zeros_like(has)], axis=1)
                new[i], later = c, np.s_[i + 1 :]
                cost = self.distance[c, later] + self.lam_local * (run[later] != j)
            else:
                c, later = new[i], np.s_[i + 1 : self.stop[i]]
                cost = self.distance[c, later]
            has[j, c] = True
            better = cost < least[later] - tie[later]
            better |= (cost <= least[later] + tie[later]) & (c < new[later])
            better |= new[later] == c
            better = i + 1 + np.flatnonzero(better)
            new[better] = c
            least[better] = cost[better - i - 1]
            opens[better] = (least[better] > limit[better]) | ~has[run[better], c]
        return new

    def move_locals(self, new, size):
        """Step 5, on labels ``new``: each local cluster as a whole goes where it costs least."""
        run, there = self.run_of, self.n_global
        keys, local = np.unique(run * there + new, return_inverse=True)
        order = np.argsort(local, kind="stable")
        first = np.searchsorted(local[order], np.arange(len(keys) + 1))
        self.add_inside(new, local, order)
        count = np.diff(first).astype(float)
        total = np.bincount(local, self.diagonal)
        square = np.bincount(local, self.inside)  # sum of K over pairs of its points
        cost = np.add.reduceat(self.distance[:there, order], first[:-1], axis=1)
        target, least, tie = cheapest(cost, count * size + np.abs(total))
        origin = keys % there

        def moves(m):
            # sum ||x - mean||^2 = sum K_ii - square / count
            opens = least[m] > self.floor + total[m] - square[m] / count[m] + tie[m]
            return opens, opens | (target[m] != origin[m])

        rows = {}  # of the local clusters that others have joined before their turn
        opens, goes = moves(np.s_[:])
        at = 0
        while at < len(keys):
            m = at + int(goes[at:].argmax())
            if not goes[m]:
                break
            at = m + 1
            mine = rows.pop(m, order[first[m] : first[m + 1]])
            if opens[m]:
                row = np.zeros((1, len(new)))
                self.clusters.gram.add(
                    row, self.order[mine], np.zeros(len(mine), dtype=np.intp), np.ones(len(mine))
                )
                row = row[0][self.order] / count[m]
                c = self.add_global(self.diagonal - 2.0 * row + square[m] / count[m] ** 2)
                other = np.bincount(local, self.distance[c])
                for later, points in rows.items():
                    other[later] = self.distance[c, points].sum()
                cost = np.concatenate([cost, other[None]])
                better = at + np.flatnonzero(other[at:] < least[at:] - tie[at:])
                target[better], least[better] = c, other[better]
                opens[better], goes[better] = moves(better)
                new[mine] = c
                continue
            c = target[m]
            new[mine] = c
            key = run[mine[0]] * there + c
            joined = int(np.searchsorted(keys, key))
            if c < there and m < joined < len(keys) and keys[joined] == key:
                theirs = rows.get(joined, order[first[joined] : first[joined + 1]])
                square[joined] += square[m] + 2.0 * self.between(mine, theirs)
                total[joined] += total[m]
                count[joined] += count[m]
                cost[:, joined] += cost[:, m]
                rows[joined] = np.concatenate([theirs, mine])
                few = np.array([joined])
                target[few], least[few], tie[few] = cheapest(
                    cost[:, few], count[few] * size + np.abs(total[few])
                )
                opens[few], goes[few] = moves(few)

    def between(self, mine, theirs):
        """Sum of K over pairs of a point of the one and a point of the other."""
        step = max(1, BLOCK // len(theirs))
        return sum(
            float(self.clusters.gram.block(self.order[mine[few]], self.order[theirs]).sum())
            for few in batches(len(mine), step)
        )

    def add_inside(self, new, local, order):
        """Bring ``inside`` up to date where a data set has changed since."""
        stale = np.zeros(self.run_of[-1] + 1, dtype=bool)
        stale[self.run_of[self.seen != new]] = True
        order = order[stale[self.run_of[order]]]  # local clusters are still contiguous
        of = local[order]
        for few in batches(len(order), TILE):
            start = np.searchsorted(of, of[few][0])
            stop = np.searchsorted(of, of[few][-1], side="right")
            K = self.clusters.gram.block(self.order[order[few]], self.order[order[start:stop]])
            K = np.where(of[few][:, None] == of[start:stop], K, 0.0)
            self.inside[order[few]] = K.sum(axis=1)
        self.seen = new.copy()


class _KernelClusters(ClusterMixin, KernelEstimator):
    """What both estimators share: the Gram matrix, starts, and distances of new points."""

    def _threads(self):
        return 1  # products are BLAS's, and its threads the user's

    def _check_common(self):
        self._check_kernel()
        check_number(self.max_memory, "max_memory", low=0, low_open=True)
        return self._check_starts()[0]

    _origin = None  # a point near the data, where the kernel is the linear one and they are far

    def _gram(self, X, weight=None):
        self.gamma_ = self._find_gamma(X, weight)
        self._origin = origin_of(X) if self._linear else None
        warn_far(self, X, PRODUCTS[1:])
        gram = Gram(self, X, self.max_memory)
        if callable(self.kernel) or self.kernel in INDEFINITE:
            warn_indefinite(self, gram)
        return gram

    def _best_start(self, start):
        """Run ``start(number)`` for all starts; the path of the best one becomes the result's."""
        starts = (start(number) for number in range(self.n_init))
        finished = (one.run(self.max_iter, self.tol, self.verbose) for one in starts)
        best = best_of(finished, total=self.n_init, verbose=self.verbose)
        self.objective_, self.objective_path_ = best.objective, np.array(best.progress.path)
        self.n_iter_ = best.progress.n_iter
        return best

    @property
    def _linear(self):
        return isinstance(self.kernel, str) and self.kernel == "linear"

    def _kernel_between(self, X, Y):
        if self._linear and self._origin is not None:  # distances are the same from anywhere
            X, Y = X - self._origin, Y - self._origin
        return super()._kernel_between(X, Y)

    @property
    def _precomputed(self):
        return isinstance(self.kernel, str) and self.kernel == "precomputed"

    def _keep(self, X, label, weight, mass, norm):
        """What the distances of new points follow from."""
        self.X_fit_ = None if self._precomputed else X.copy()
        self.center_labels_ = label
        self.center_weights_ = np.where(label >= 0, weight / np.append(mass, 1.0)[label], 0.0)
        self.center_norms_ = norm

    def _costs(self, X):
        """Squared distances of rows to the means, less K(x, x): batches of rows, (K, m) arrays."""
        check_number(self.max_memory, "max_memory", low=0, low_open=True)
        if self._precomputed != (self.X_fit_ is None):
            was = "'precomputed'" if self.X_fit_ is None else "another one than 'precomputed'"
            raise ValueError(f"kernel must stay what it was in fit, {was}, got {self.kernel!r}")
        norms = learned(self, "center_norms_", None)
        own = learned(self, "center_labels_", X.shape[1] if self._precomputed else len(self.X_fit_))
        weights = learned(self, "center_weights_", len(own))
        if own.max() >= len(norms):
            raise ValueError(f"center_labels_ must be < {len(norms)}, got {own.max():.0f}")
        used = np.flatnonzero(own >= 0)
        label, coefficient = own[used].astype(np.int32), -2.0 * weights[used]
        k, size = len(norms), block_size(self.max_memory)
        for few in batches(X.shape[0], max(1, min(4096, size // k))):
            cost = np.zeros((k, len(X[few])))

            def rows(index, some=X[few]):
                if self.X_fit_ is None:
                    return some[:, index].T.astype(np.float64, copy=False)
                K = self._kernel_between(some, self.X_fit_[index])
                return K.T.astype(np.float64, copy=False)

            add_rows(cost, used, label, coefficient, rows, max(1, size // cost.shape[1]))
            cost += norms[:, None]
            yield few, cost

    def _assign(self, X, offset=None):
        """The cheapest cluster of each row, and its cost, less K(x, x)."""
        label, least = np.empty(X.shape[0], dtype=np.int32), np.empty(X.shape[0])
        size = np.abs(self.center_norms_).max()
        for few, cost in self._costs(X):
            if offset is not None:
                cost += offset(few)
            label[few], least[few], _ = cheapest(cost, size)
        return label, least

    def _own_kernel(self, X, wanted):
        """K(x, x) of new points."""
        if self._precomputed:
            raise ValueError(
                f"kernel must not be 'precomputed' for {wanted}: the kernel of the new points "
                "with themselves is not known"
            )
        return self._kernel_diagonal(X)


class KernelDPMeans(ClassNamePrefixFeaturesOutMixin, TransformerMixin, _KernelClusters):
    """DP-means in the feature space of a kernel: clusters that need not be round.

    Minimizes, over labels and the number of clusters K,

        sum_i w_i ||phi(x_i) - m_{z_i}||^2 + lam * K,

    the objective of :class:`DPMeans` for points phi(x_i), whose inner products are the kernel; m_c
    is the weighted mean of a cluster's phi(x_i). All that is needed is the Gram matrix, the kernel
    of each point with each other one.

    Parameters
    ----------
    lam : float or "farthest-first", default="farthest-first"
        Penalty for each cluster, a squared distance in feature space, > 0 (0 is allowed together
        with ``max_clusters``: that is kernel k-means). "farthest-first" derives it from the data
        and the guess ``n_clusters``, by the rule of :func:`farthest_first_lambda`.
    kernel : str or callable, default="rbf"
        A kernel of :func:`sklearn.metrics.pairwise.pairwise_kernels`; "precomputed", where the data
        are the Gram matrix; or a function of two arrays, of shapes (n, n_features) and (m,
        n_features), that returns their kernel matrix, of shape (n, m).
    gamma : float, default=None
        Parameter of the kernels "rbf", "laplacian", "chi2", "poly" and "sigmoid", >= 0. None: for
        "rbf", 0.3 / (median squared distance between rows); for "laplacian", the same with the
        distance that it is made of, the sum of absolute differences; for the others, and where all
        rows are equal, scikit-learn's default, for most 1 / n_features. The median is over rows
        that differ and have a weight, of 500 rows if there are more. A function is given ``gamma``
        if it is not None.
    kernel_params : dict, default=None
        Further parameters of the kernel, such as ``degree`` and ``coef0``.
    n_clusters : int, default=8
        Guess of the number of clusters for ``lam="farthest-first"``, not a bound. Not used with a
        number as ``lam``.
    max_clusters : int, default=None
        Never have more clusters than this. At the cap a far point joins its nearest cluster.
    algorithm : {"serial", "collapsed"}, default="serial"
        "serial" is Algorithm 1 of the paper: points in order, each one beyond ``lam`` opens a
        cluster at once. "collapsed" moves the means with each point: slower, and stops only at
        stronger optima.
    init : "mean" or array-like of shape (n_samples,), default="mean"
        Starting labels, integers; "mean" is one cluster of all points.
    shuffle : bool, default=False
        Visit the points in random order instead of the given one.
    n_init : int, default=1
        Number of starts, the first in the given order (unless ``shuffle``), the others in random
        order. The one with the lowest objective is kept.
    max_iter : int, default=300
        Largest number of sweeps; those that open clusters do not count,
        but there are at most ``max_iter + n_samples``.
    tol : float, default=0.0
        Stop when a sweep lowers the objective by at most ``tol`` times its value after the first
        sweep. 0 runs to a fixed point.
    max_memory : float, default=2e9
        Bytes for the Gram matrix. It is held where it fits, in the type of the data (float32 or
        float64); otherwise its rows are computed again, block by block, wherever they are needed.
        Besides there are a few tables of (n_clusters, n_samples) float64 numbers.
    random_state : int, RandomState instance or None, default=None
        Generator of the random orders.
    verbose : int, default=0
        Print a line a sweep.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,), int32
        Cluster of each row, in order of creation.
    n_clusters_ : int
        Number of clusters found.
    inertia_ : float
        Weighted sum of squared distances to the own means, in feature space.
    objective_ : float
        ``inertia_ + lam_ * n_clusters_``.
    objective_path_ : ndarray of shape (n_sweeps,), float64
        The objective after every sweep; it never rises, unless the Gram matrix is indefinite.
    lam_ : float
        The penalty used.
    gamma_ : float or None
        The ``gamma`` used, in the methods too; None where the kernel has none.
    n_iter_ : int
        Sweeps, the last, unchanging one included.
    X_fit_ : ndarray of shape (n_samples, n_features) or None
        The data, for distances to new points; None for a precomputed kernel.
    center_labels_ : ndarray of shape (n_samples,), int32
        The cluster whose mean a row is part of, -1 for none: ``labels_``, but for rows without
        weight, and where ``tol`` or ``max_iter`` ended the sweeps.
    center_weights_ : ndarray of shape (n_samples,), float64
        Weight of each row in that mean; those of a mean sum to 1.
    center_norms_ : ndarray of shape (n_clusters,), float64
        Squared norms of the means; for the kernel "linear" and data far from zero, of the means
        less a point near the data.
    n_features_in_ : int
        Number of columns of the data.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the columns, if all are strings.

    Raises
    ------
    ValueError, TypeError
        From ``fit``, for data that are not finite, numeric and two-dimensional, a precomputed
        matrix that is not square and symmetric, a kernel that returns anything but finite real
        numbers in the right shape, and parameters out of their bounds. The estimator is then as
        it was before.

    See Also
    --------
    DPMeans : The same for points themselves, much faster.
    KernelHDPMeans : Several data sets with shared clusters.

    Notes
    -----
    A kernel whose Gram matrix is indefinite belongs to no distance (matrices that are only
    conditionally positive definite, such as minus squared distances, do). A warning is given where
    one is found, for kernels that may be; the objective may then rise, and the sweeps go on until
    nothing changes or ``max_iter`` ends them.

    With ``kernel="precomputed"``, ``predict`` takes the kernel between new and training points, of
    shape (n_new, n_samples); ``transform`` and ``score`` are not available.

    References
    ----------
    Kulis & Jordan (2012), Revisiting k-means: new algorithms via Bayesian nonparametrics, sections
    3 and 5.2. "collapsed" and the cap: Broderick, Kulis & Jordan (2013), MAD-Bayes, eq. 8-9 and 12.

    Examples
    --------
    >>> import numpy as np
    >>> from smallvar import KernelDPMeans
    >>> X = np.array([[0.0, 0.0], [0.0, 1.0], [9.0, 9.0], [9.0, 8.0], [0.0, 9.0]])
    >>> model = KernelDPMeans(n_clusters=3).fit(X)
    >>> model.labels_
    array([1, 1, 2, 2, 0], dtype=int32)
    >>> round(model.gamma_, 5), round(model.lam_, 2)  # 0.3 / 81.5, the median
    (0.00368, 0.18)
    >>> model.predict([[8.0, 8.0]])
    array([2], dtype=int32)
    >>> model.transform([[8.0, 8.0]]).round(2)
    array([[0.65, 0.85, 0.1 ]])
    """

    def __init__(
        self,
        lam="farthest-first",
        *,
        kernel="rbf",
        gamma=None,
        kernel_params=None,
        n_clusters=8,
        max_clusters=None,
        algorithm="serial",
        init="mean",
        shuffle=False,
        n_init=1,
        max_iter=300,
        tol=0.0,
        max_memory=2e9,
        random_state=None,
        verbose=0,
    ):
        self.lam = lam
        self.kernel = kernel
        self.gamma = gamma
        self.kernel_params = kernel_params
        self.n_clusters = n_clusters
        self.max_clusters = max_clusters
        self.algorithm = algorithm
        self.init = init
        self.shuffle = shuffle
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.max_memory = max_memory
        self.random_state = random_state
        self.verbose = verbose

    def _check_parameters(self):
        check_number(self.max_clusters, "max_clusters", low=1, integer=True, none=True)
        check_lam(self.lam, capped=self.max_clusters is not None)
        check_number(self.n_clusters, "n_clusters", low=1, integer=True)
        check_option(self.algorithm, "algorithm", ("serial", "collapsed"))
        check_flag(self.shuffle, "shuffle")
        return self._check_common()

    def fit(self, X, y=None, sample_weight=None):
        """Cluster the data.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Data; for ``kernel="precomputed"`` the Gram matrix, of shape (n_samples, n_samples).
            float32 and float64 are used as they are, other types converted once.
        y : None
            Ignored.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights >= 0, not all zero; None means 1 each.

        Returns
        -------
        self : KernelDPMeans
            The fitted estimator.
        """
        with unchanged_on_error(self):
            rng = self._check_parameters()
            X = self._validate_kernel(X, reset=True)
            n = X.shape[0]
            weight = check_weights(sample_weight, n)
            if self.algorithm == "collapsed":
                check_ratio(weight, WEIGHTS, self.algorithm)
            label = check_labels(self.init, weight, n, self.max_clusters)
            if isinstance(self.lam, str):
                check_guess(self.n_clusters, n)
            gram = self._gram(X, weight)
            clusters = _Clusters(gram, weight, np.zeros(n, dtype=np.int32))
            noise = rounding(clusters)
            lam = self._penalty(gram, clusters, noise)
            if label is not None:
                clusters = _Clusters(gram, weight, label)

            def start(number):
                order = rng.permutation(n) if number or self.shuffle else None
                return _DPStart(clusters, order, lam, self.algorithm, self.max_clusters, noise)

            best = self._best_start(start)
            self._keep(X, best.center_label, clusters.weight, best.mass, best.norm)
            self.labels_ = best.label
            self.n_clusters_ = len(best.norm)
            self.inertia_ = best.inertia
            self.lam_ = lam
            if not best.progress.ended:
                warn_not_converged(self, self.n_iter_)
        return self

    def _penalty(self, gram, clusters, noise):
        """The penalty as a number; ``clusters`` has all points in one."""
        if not isinstance(self.lam, str):
            return float(self.lam)
        live = clusters.live
        if (clusters.weight != 1.0).any():  # weights play no part, but for those of zero
            clusters = _Clusters(gram, (clusters.weight > 0).astype(float), clusters.label)
        distance = clusters.nearest()[1][live]
        return farthest_first(clusters.gram, live, distance, self.n_clusters, noise) or 1.0

    def fit_predict(self, X, y=None, sample_weight=None):
        """Fit and return the labels of the data.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Data, as for ``fit``.
        y : None
            Ignored.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights, as for ``fit``.

        Returns
        -------
        labels : ndarray of shape (n_samples,), int32
            ``labels_`` of the fit.
        """
        return self.fit(X, sample_weight=sample_weight).labels_

    def predict(self, X):
        """Nearest mean of each row, in feature space; no row opens a cluster.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            New data; for ``kernel="precomputed"`` their kernel with the training points.

        Returns
        -------
        labels : ndarray of shape (n_samples,), int32
            Number of the cluster; at a tie the lowest one.
        """
        check_is_fitted(self)
        return self._assign(self._validate_kernel(X, reset=False))[0]

    def transform(self, X):
        """Compute distances (not squared) of each row to each mean, in feature space.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            New data.

        Returns
        -------
        distances : ndarray of shape (n_samples, n_clusters)
            Float32 for float32 data. Not available for ``kernel="precomputed"``.
        """
        check_is_fitted(self)
        X = self._validate_kernel(X, reset=False)
        own = self._own_kernel(X, "transform")
        distances = np.empty((X.shape[0], self.n_clusters_), dtype=X.dtype)
        for few, cost in self._costs(X):
            distances[few] = np.sqrt(np.maximum(cost + own[few], 0.0)).T
        return distances

    def score(self, X, y=None, sample_weight=None):
        """Return minus the objective of data at the fitted means.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Data.
        y : None
            Ignored.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.

        Returns
        -------
        score : float
            ``-(sum of w * squared distance to the nearest mean + lam_ * n_clusters_)``. Not
            available for ``kernel="precomputed"``.
        """
        check_is_fitted(self)
        X = self._validate_kernel(X, reset=False)
        weight = check_weights(sample_weight, X.shape[0])
        squared = self._assign(X)[1] + self._own_kernel(X, "score")
        error = squared.sum() if weight is None else weight @ squared
        return -(float(error) + self.lam_ * self.n_clusters_)

    @property
    def _n_features_out(self):
        return self.n_clusters_

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def check_labels(init, weight, n, max_clusters):
    """Starting labels as 0, 1, ... without gaps; None for "mean"."""
    if isinstance(init, str):
        check_option(init, "init", ("mean",))
        return None
    label = np.asarray(init)
    if label.dtype.kind not in "iu":
        raise ValueError(f"init must be 'mean' or integer labels, got {label.dtype}")
    if label.shape != (n,):
        raise ValueError(f"init must have shape ({n},), got {label.shape}")
    label = np.unique(label, return_inverse=True)[1].astype(np.int32)
    found = len(np.unique(label if weight is None else label[weight > 0]))
    if max_clusters is not None and found > max_clusters:
        raise ValueError(f"init must have at most max_clusters={max_clusters} labels, got {found}")
    return label


class KernelHDPMeans(_KernelClusters):
    """Hard HDP in the feature space of a kernel: several data sets that share clusters.

    Minimizes, over labels and the numbers of clusters,

        sum_i ||phi(x_i) - m_{z_i}||^2 + lam_local * (number of local clusters) + lam_global * K,

    the objective of :class:`HDPMeans` for points phi(x_i), whose inner products are the kernel: a
    data set pays ``lam_local`` for each of the K global clusters that it uses, and all of them
    together ``lam_global`` for each that exists.

    Parameters
    ----------
    lam_local : float or "farthest-first", default="farthest-first"
        Penalty for each local cluster, a squared distance in feature space, > 0. "farthest-first"
        derives it from the data and the guess ``n_local``, by the rule of :func:`hdp_lambdas`.
    lam_global : float or "farthest-first", default="farthest-first"
        Penalty for each global cluster, > 0. "farthest-first" derives it from the data and the
        guess ``n_global``. It goes by whole data sets, and a squared distance of the kernel "rbf"
        is never above 2: large data sets need a number here, or all ends in one cluster.
    kernel : str or callable, default="rbf"
        A kernel of :func:`sklearn.metrics.pairwise.pairwise_kernels`; "precomputed", where the data
        are the Gram matrix; or a function of two arrays, of shapes (n, n_features) and (m,
        n_features), that returns their kernel matrix, of shape (n, m).
    gamma : float, default=None
        Parameter of the kernels "rbf", "laplacian", "chi2", "poly" and "sigmoid", >= 0. None: for
        "rbf", 0.3 / (median squared distance between rows); for "laplacian", the same with the
        distance that it is made of, the sum of absolute differences; for the others, and where all
        rows are equal, scikit-learn's default, for most 1 / n_features. The median is over rows
        that differ, of 500 rows if there are more. A function is given ``gamma`` if it is not None.
    kernel_params : dict, default=None
        Further parameters of the kernel, such as ``degree`` and ``coef0``.
    n_local : int, default=5
        Guess of the number of clusters in a data set, cut to its size; not a bound.
    n_global : int, default=15
        Guess of the number of clusters in all, cut to the number of rows; not a bound.
    n_init : int, default=1
        Number of starts: the first visits data sets in sorted order and their rows as given, the
        others in random orders. The one with the lowest objective is kept.
    max_iter : int, default=300
        Largest number of sweeps; those that open global clusters do not
        count, but there are at most ``max_iter + n_samples``.
    tol : float, default=0.0
        Stop when a sweep lowers the objective by at most ``tol`` times its value after the first
        sweep. 0 runs to a fixed point.
    max_memory : float, default=2e9
        Bytes for the Gram matrix. It is held where it fits, in the type of the data (float32 or
        float64); otherwise its rows are computed again, block by block, wherever they are needed.
        Besides there are a few tables of (n_clusters, n_samples) float64 numbers.
    random_state : int, RandomState instance or None, default=None
        Generator of the random orders.
    verbose : int, default=0
        Print a line a sweep.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,), int32
        Global cluster of each row.
    local_labels_ : ndarray of shape (n_samples,), int32
        Number of the row's local cluster within its data set.
    groups_ : ndarray of shape (n_groups,)
        The data sets, sorted.
    local_clusters_ : list of ndarray of int32
        For each data set, the global clusters of its local ones: a row with local label l in data
        set j has the global label ``local_clusters_[j][l]``.
    n_local_clusters_ : ndarray of shape (n_groups,), int64
        Number of local clusters of each data set.
    n_clusters_ : int
        Number of global clusters.
    inertia_ : float
        Sum of squared distances to the own means, in feature space.
    objective_ : float
        ``inertia_ + lam_local_ * n_local_clusters_.sum() + lam_global_ * n_clusters_``.
    objective_path_ : ndarray of shape (n_sweeps,), float64
        The objective after every sweep; it never rises, unless the Gram matrix is indefinite.
    lam_local_ : float
        The local penalty used.
    lam_global_ : float
        The global penalty used.
    gamma_ : float or None
        The ``gamma`` used, in the methods too; None where the kernel has none.
    n_iter_ : int
        Sweeps, the last, unchanging one included.
    X_fit_ : ndarray of shape (n_samples, n_features) or None
        The data, for distances to new points; None for a precomputed kernel.
    center_labels_ : ndarray of shape (n_samples,), int32
        The cluster whose mean a row is part of: ``labels_``.
    center_weights_ : ndarray of shape (n_samples,), float64
        Weight of each row in that mean; those of a mean sum to 1.
    center_norms_ : ndarray of shape (n_clusters,), float64
        Squared norms of the means; for the kernel "linear" and data far from zero, of the means
        less a point near the data.
    n_features_in_ : int
        Number of columns of the data.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the columns, if all are strings.

    Raises
    ------
    ValueError, TypeError
        From ``fit``, for data that are not finite, numeric and two-dimensional, a precomputed
        matrix that is not square and symmetric, a kernel that returns anything but finite real
        numbers in the right shape, and parameters out of their bounds. The estimator is then as
        it was before.

    See Also
    --------
    HDPMeans : The same for points themselves, much faster.
    KernelDPMeans : One data set.

    Notes
    -----
    Indefinite Gram matrices and ``kernel="precomputed"``: see :class:`KernelDPMeans`.

    References
    ----------
    Kulis & Jordan (2012), Revisiting k-means: new algorithms via Bayesian nonparametrics, sections
    4 (Algorithm 2) and 5.2.

    Examples
    --------
    >>> import numpy as np
    >>> from smallvar import KernelHDPMeans
    >>> X = np.array([[0.0], [1.0], [10.0], [0.5], [20.0], [21.0]])
    >>> groups = ["a", "a", "a", "b", "b", "b"]
    >>> model = KernelHDPMeans(2.0, 5.0, kernel="linear").fit(X, groups=groups)
    >>> model.labels_
    array([1, 1, 0, 1, 2, 2], dtype=int32)
    >>> model.predict([[9.0], [1.0]], groups=["a", "b"])
    array([0, 1], dtype=int32)
    """

    def __init__(
        self,
        lam_local="farthest-first",
        lam_global="farthest-first",
        *,
        kernel="rbf",
        gamma=None,
        kernel_params=None,
        n_local=5,
        n_global=15,
        n_init=1,
        max_iter=300,
        tol=0.0,
        max_memory=2e9,
        random_state=None,
        verbose=0,
    ):
        self.lam_local = lam_local
        self.lam_global = lam_global
        self.kernel = kernel
        self.gamma = gamma
        self.kernel_params = kernel_params
        self.n_local = n_local
        self.n_global = n_global
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.max_memory = max_memory
        self.random_state = random_state
        self.verbose = verbose

    def _check_parameters(self):
        for name in ("lam_local", "lam_global"):
            check_lam(getattr(self, name), finite=True, name=name)
        check_number(self.n_local, "n_local", low=1, integer=True)
        check_number(self.n_global, "n_global", low=1, integer=True)
        return self._check_common()

    def fit(self, X, y=None, *, groups=None):
        """Cluster the data sets.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The rows of all data sets; for ``kernel="precomputed"`` their Gram matrix, of shape
            (n_samples, n_samples). float32 and float64 are used as they are, other types converted
            once.
        y : None
            Ignored.
        groups : array-like of shape (n_samples,), default=None
            The data set that each row is from: numbers or strings. None: all from one.

        Returns
        -------
        self : KernelHDPMeans
            The fitted estimator.
        """
        with unchanged_on_error(self):
            rng = self._check_parameters()
            X = self._validate_kernel(X, reset=True)
            n = X.shape[0]
            groups = Groups(groups, n)
            clusters = _Clusters(self._gram(X), None, np.zeros(n, dtype=np.int32))
            noise = rounding(clusters)
            lam_local, lam_global = self.lam_local, self.lam_global
            if isinstance(lam_local, str):
                lam_local = local_of_gram(clusters.gram, groups, self.n_local, noise)
            if isinstance(lam_global, str):
                lam_global = global_of_gram(clusters, groups, self.n_global, noise)
            lam_local, lam_global = float(lam_local), float(lam_global)

            def start(number):
                order = groups.order(rng if number else None)
                return _HDPStart(clusters, order, groups.number, lam_local, lam_global, noise)

            best = self._best_start(start)
            found = best.clusters
            self._keep(X, found.label, found.weight, found.mass, found.norm)
            self.labels_, self.groups_ = found.label, groups.names
            self.local_labels_, *local = groups.local(found.label, found.k)
            self.local_clusters_, self.n_local_clusters_ = local
            self.n_clusters_ = found.k
            self.inertia_ = found.error
            self.lam_local_, self.lam_global_ = lam_local, lam_global
            if not best.progress.ended:
                warn_not_converged(self, self.n_iter_)
        return self

    def predict(self, X, groups=None):
        """Global cluster of new rows, at the costs of the fit; no row opens a global cluster.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            New data; for ``kernel="precomputed"`` their kernel with the training points.
        groups : array-like of shape (n_samples,), default=None
            The data set of each row. One that the fit has not seen, or None, has no local clusters
            yet, so that the nearest mean is the cheapest.

        Returns
        -------
        labels : ndarray of shape (n_samples,), int32
            Number of the cluster; at a tie the lowest one.
        """
        check_is_fitted(self)
        X = self._validate_kernel(X, reset=False)
        if groups is None:
            return self._assign(X)[0]
        group = Groups(groups, X.shape[0]).among(self.groups_)
        opens = np.ones((len(self.groups_) + 1, self.n_clusters_), dtype=bool)
        for j, used in enumerate(self.local_clusters_):
            opens[j, used] = False
        return self._assign(X, lambda few: self.lam_local_ * opens[group[few]].T)[0]


def local_of_gram(gram, groups, n_local, noise):
    """The penalty of a local cluster, in feature space."""

    def rule(rows):
        within = np.zeros(len(rows))  # sums of K over the data set
        for few in batches(len(rows), max(1, BLOCK // len(rows))):
            within[few] = gram.block(rows[few], rows).sum(axis=1)
        within /= len(rows)
        distance = gram.diagonal[rows] - 2.0 * within + within.mean()
        return farthest_first(gram, rows, distance, min(n_local, len(rows)), noise)

    return local_lambda(groups, rule)


def global_of_gram(clusters, groups, n_global, noise):
    """The penalty of a global cluster, in feature space."""

    def to_row(i):
        return clusters.to_point(i, clusters.gram.rows(np.array([i]))[0])

    return global_lambda(groups, clusters.nearest()[1], to_row, n_global, noise)
