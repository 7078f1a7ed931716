"""Documents of hard topics: the sweeps of a start, and the path on which the number is chosen.

``Corpus`` holds the words of documents, ``TopicStart`` repeats sweeps of them. ``path_of_topics``
chooses the number of topics and ``lam_local`` by the length of a code for the words.
"""

import numpy as np
from scipy.sparse import csr_array
from scipy.special import gammaln, xlogy

from smallvar._centers.hdp_choice import log_choices
from smallvar._core.fit_loop import LoopSettings, Progress, RecordedStart
from smallvar._sweeps.topics import TopicSweep

# document clusters at the beginning, twice as many while over half are of use, up to the most:
# tables have so many columns, and mergers compare all pairs
FIRST_TOPICS, MOST_TOPICS = 32, 512
DOCUMENT_SWEEPS = 10  # sweeps, at most, in which documents move as a whole
COMPARED = LoopSettings(10, 1e-3)  # sweeps by which penalties and numbers are compared
PENALTY_FACTORS = 2.0**-0.5, 2.0**0.5  # of local penalties that are compared at the end
HALVINGS = 5  # of the first local penalty, which divides an average document in two
EXCESS_TIE = 1e-9  # relative accuracy of the cost of a document beyond that by its own shares
LEAST_WORD_SHARE = 2.0**-1000  # in a topic: smaller ones may have no float64 inverse
LEAST_DISPERSION = 1e-9  # of counts that are not whole, where topics explain all
STEP_RATIO = 1.25  # of neighboring numbers in the first comparison


class Corpus:
    """Documents X (CSR, entries >= 0), as entries of positive mass: a word of a document each.

    ``weight`` is that of each document. ``shares`` are the pooled shares of the words (None: those
    of X); words of share 0 are left out. ``smoothing`` are the pseudo-counts a of a topic.
    """

    def __init__(self, X, weight, n_threads, shares=None):
        self.n, self.n_words = X.shape
        self.weight = np.ones(self.n) if weight is None else weight
        doc = document_of_entry(X)
        if shares is None:
            shares = np.bincount(X.indices, self.weight[doc] * X.data, self.n_words)
            shares = shares / (shares.sum() or 1.0)
        self.shares, self.n_threads = shares, n_threads
        self.smoothing = 0.5 * (shares > 0.0).sum()
        self.prior = self.smoothing * shares
        # the stored entries that take part
        self.entries = np.flatnonzero((X.data > 0.0) & (shares[X.indices] > 0.0))
        self.doc, self.word = doc[self.entries], X.indices[self.entries].astype(np.int32)
        self.mass = X.data[self.entries].astype(np.float64)
        self.begin = np.append(0, np.bincount(self.doc, minlength=self.n).cumsum())
        self.rows = csr_array((self.mass, self.word, self.begin), shape=X.shape)
        self.weighted = self.weight[self.doc] * self.mass

    def sweep(self, lam_local, lam_global):
        """The sweep at these penalties."""
        parts = self.begin, self.word, self.mass, self.weight, self.prior
        return TopicSweep(*parts, lam_local, lam_global, self.n_threads)

    def counts(self, labels, k):
        """Weighted counts of words in topics, (words, k); entries are added in their order."""
        cells = self.word * np.int64(k) + labels
        return np.bincount(cells, self.weighted, self.n_words * k).reshape(-1, k)

    def costs(self, counts):
        """-log phi_kw for phi_k = (counts_k + a p0) / (n_k + a); 0 for words of share 0."""
        smoothed = counts + self.prior[:, None]
        total = counts.sum(axis=0) + self.smoothing
        kept = np.maximum(smoothed, LEAST_WORD_SHARE * total)
        return np.log(np.divide(total, kept, out=np.ones_like(counts), where=smoothed > 0.0))

    def error(self, counts, costs):
        """The objective without penalties: -log phi of all words, and a KL(p0 || phi_k)."""
        prior = self.prior @ costs + xlogy(self.prior, self.shares).sum()
        return float((counts * costs).sum() + prior.sum())

    def mass_of_topics(self, labels, k):
        """Mass of each document in each topic, (documents, k)."""
        return np.bincount(self.doc * k + labels, self.mass, self.n * k).reshape(-1, k)

    def dispersion(self, labels, k):
        """How many times the variance of counts is their mean, given topics of entries; >= 1.

        sum (X_dw - E_dw)^2 / (sum X_dw (1 - K / n)), where E = sum_k n_dk phi_kw, and K of the n
        numbers of each word are fitted. Less than 1 only where counts are no whole numbers.
        """
        counts, mass = self.counts(labels, k), self.mass_of_topics(labels, k)
        topics = np.where(self.shares[:, None] > 0.0, np.exp(-self.costs(counts)), 0.0)
        weighted = self.weight[:, None] * mass
        squares = (self.weighted * self.mass).sum() - 2.0 * (weighted * (self.rows @ topics)).sum()
        squares += ((weighted.T @ mass) * (topics.T @ topics)).sum()
        ratio = float(squares / self.weighted.sum() / max(1.0 - k / self.n, 0.5))
        return max(1.0 if (self.mass == np.rint(self.mass)).all() else LEAST_DISPERSION, ratio)

    def code(self, labels, k, dispersion):
        """Length in nats of a code for the words, and its part that is for topics alone.

        Counts are divided by the dispersion. The words in a topic are coded in turn, each by the
        shares of those before it and a p0 (a Polya urn, so the code has the parameters in it). The
        topics of the words have the code of ``hdp_choice.label_code``, log(N! / ...) divided, too.
        """
        counts, a = self.counts(labels, k), self.smoothing
        prior = np.where(self.prior > 0.0, self.prior, 1.0)[:, None]
        plain, counts = self.error(counts, self.costs(counts)) / dispersion, counts / dispersion
        n = counts.sum(axis=0)
        urn = (gammaln(n + a) - gammaln(a)).sum() - (gammaln(counts + prior) - gammaln(prior)).sum()
        mass = self.mass_of_topics(labels, k)
        m = (mass > 0.0).sum(axis=1).astype(float)
        n = np.maximum(mass.sum(axis=1), m)  # masses below 1 may sum to less than m
        names = (gammaln(n + 1.0) - gammaln(mass + 1.0).sum(axis=1)) / dispersion
        names += log_choices(float(k), m) + log_choices(n - 1.0, m - 1.0)
        return float(urn + self.weight @ names), max(0.0, float(urn - plain)) / k

    def document_clusters(self, k, rng):
        """Labels of entries whose documents are in up to k clusters as a whole.

        Sweeps of step 5 alone from k documents, drawn as by k-means++: with a probability
        proportional to the cost of a document beyond that by its own shares.
        """
        n = np.bincount(self.doc, self.mass, self.n)
        by_its_shares = -np.bincount(self.doc, xlogy(self.mass, self.mass / n[self.doc]), self.n)
        least, columns = np.full(self.n, np.inf), []
        excess = self.weight * n
        while len(columns) < k and excess.any():
            total = excess.cumsum()
            drawn = np.searchsorted(total, rng.random_sample() * total[-1], "right")
            d = min(int(drawn), self.n - 1)
            entries = slice(self.begin[d], self.begin[d + 1])
            counts = np.bincount(self.word[entries], self.weighted[entries], self.n_words)
            columns.append(self.costs(counts[:, None])[:, 0])
            least = np.minimum(least, self.rows @ columns[-1])
            # what is left by rounding is no reason to draw a document
            beyond = least - by_its_shares
            excess = self.weight * np.where(beyond > EXCESS_TIE * least, beyond, 0.0)
            excess[d] = 0.0
        costs, labels = np.column_stack(columns), np.full(len(self.doc), -1)
        for _ in range(DOCUMENT_SWEEPS):
            moved = (self.rows @ costs).argmin(axis=1)[self.doc]
            if (moved == labels).all():
                break
            labels, k = without_gaps(moved)
            costs = self.costs(self.counts(labels, k))
        return labels

    def merged(self, labels, k, target, lam_local):
        """Labels after topics were merged, two at a time, at the least increase of the objective.

        Two topics that the same document uses save it ``lam_local``.
        """
        counts, used = self.counts(labels, k), self.mass_of_topics(labels, k) > 0.0
        used, topic_of = used.astype(float), np.arange(k)
        convex = self._convex(counts)
        increase, left = np.full((k, k), np.inf), np.arange(k)

        def compare(i, others):
            """Set the increase by merging topic i with others."""
            joint = self._convex(counts[:, [i]] + counts[:, others]) - convex[i] - convex[others]
            joint -= lam_local * ((self.weight * used[:, i]) @ used[:, others])
            increase[i, others] = increase[others, i] = joint

        for i in range(k - 1):
            compare(i, left[i + 1 :])
        while len(left) > target:
            i, j = sorted(divmod(int(increase.argmin()), k))
            counts[:, i] += counts[:, j]
            used[:, i] = np.maximum(used[:, i], used[:, j])
            topic_of[topic_of == j] = i
            increase[j] = increase[:, j] = np.inf
            left = left[left != j]
            convex[i] = self._convex(counts[:, [i]])[0]
            if len(left) > 1:
                compare(i, left[left != i])
        return without_gaps(topic_of[labels])[0]

    def _convex(self, counts):
        """The share of each topic in the objective, at its best phi, less a constant.

        f(c) = (n + a) log(n + a) - sum_w (c_w + a p0_w) log(c_w + a p0_w), and f(0) = 0.
        """
        a, total = self.smoothing, counts.sum(axis=0) + self.smoothing
        smoothed = counts + self.prior[:, None]
        zero = xlogy(a, a) - xlogy(self.prior, self.prior).sum()
        logs = np.log(np.maximum(smoothed, np.finfo(float).tiny))  # much faster than xlogy
        return xlogy(total, total) - (smoothed * logs).sum(axis=0) - zero


def document_of_entry(X):
    """Document of each stored entry of CSR rows."""
    return np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))


def without_gaps(labels):
    """Labels of the topics that are in use, and their number."""
    used, labels = np.unique(labels, return_inverse=True)
    return labels.astype(np.int32), len(used)


class TopicStart(RecordedStart):
    """One start: sweeps until nothing changes, from the given labels of entries."""

    def __init__(self, corpus, labels, lam_local, lam_global=np.inf):
        self.corpus, self.lam_local, self.lam_global = corpus, lam_local, lam_global
        (self.labels, self.k), self.numbers = without_gaps(labels), []

    def run(self, loop):
        """Sweep to the end; at an infinite ``lam_global`` objectives are those without it."""
        corpus, progress = self.corpus, Progress(loop, len(self.labels))
        sweep = corpus.sweep(self.lam_local, self.lam_global)
        costs = corpus.costs(corpus.counts(self.labels, self.k))
        price = self.lam_global if np.isfinite(self.lam_global) else 0.0
        while progress.should_continue:
            before = self.k
            labels, self.n_local, moved, k = sweep.sweep(costs, self.labels)
            self.labels, self.k = without_gaps(labels)
            counts = corpus.counts(self.labels, self.k)
            costs = corpus.costs(counts)
            objective = corpus.error(counts, costs) + price * self.k
            objective += self.lam_local * float(corpus.weight @ self.n_local)
            line = f"{self.k} topics, {self.n_local.sum()} local ones, {{}}"
            opened = k - before
            progress.record(objective, line, changed=moved > 0, opened=opened, n_clusters=self.k)
            self.numbers.append(self.k)
        self.progress = progress
        return self


def path_of_topics(corpus, number, lam_local, rng, like=None):
    """The TopicPath of documents, begun at as many clusters of them as are of use.

    ``number`` is an exact number of topics or None; ``like`` is a path of the same documents, whose
    size and dispersion the result has, so that codes can be compared.
    """
    if like is not None:
        size, dispersion = like.size, like.dispersion
    else:
        size, dispersion = max(1, min(FIRST_TOPICS, corpus.n // 2)), None
        if number is not None:
            size = max(FIRST_TOPICS, 2 * number)
    path = TopicPath(corpus, size, number, lam_local, rng, dispersion)
    path.descend()
    # begin at twice as many clusters, while over half are of use or the code is shorter
    while like is None and number is None and 4 * path.size <= min(corpus.n, 2 * MOST_TOPICS):
        best, larger = path.best[1], TopicPath(corpus, 2 * path.size, None, lam_local, rng)
        # the best one so far in the same unit
        code = corpus.code(best.labels, best.k, larger.dispersion)[0]
        if 4 * best.k <= larger.size and not larger.fits[larger.longest][0] < code:
            break
        path = larger
        path.descend()
    if lam_local == "auto" and path.best is not None:
        path.choose_penalty()
    return path


class TopicPath:
    """Starts at merged document clusters, by their number of topics, each with its code.

    It begins at ``size`` clusters of documents as a whole, swept at the local penalty with the
    shortest code. ``number`` is an exact number of topics or None.
    """

    def __init__(self, corpus, size, number, lam_local, rng, dispersion=None):
        self.corpus, self.size, self.number, self.fits = corpus, size, number, {}
        penalties = [lam_local]
        if lam_local == "auto":
            # naming the topic of each word of a divided document costs up to log(2) a word
            most = np.log(2.0) * corpus.mass.sum() / corpus.n
            penalties = [most / 2.0**j for j in range(HALVINGS + 1)]
        labels = corpus.document_clusters(size, rng)
        starts = [TopicStart(corpus, labels, lam).run(COMPARED) for lam in penalties]
        first = min(starts, key=lambda start: corpus.code(start.labels, start.k, 1.0)[0])
        self.dispersion = dispersion or corpus.dispersion(first.labels, first.k)
        self.longest = self._add(first)

    def _add(self, start):
        """Keep a start with the shortest code of its number of topics, which is returned."""
        code = self.corpus.code(start.labels, start.k, self.dispersion)[0]
        if start.k not in self.fits or code < self.fits[start.k][0]:
            self.fits[start.k] = code, start
        return start.k

    def descend(self):
        """Merge topics down to one, or the exact number, and compare neighbors of the best."""
        self._merge(self.longest, self.number or 1, STEP_RATIO)
        if self.number is None:
            numbers = sorted(self.fits)
            i = numbers.index(self.best[1].k)
            low, high = numbers[max(0, i - 1)], numbers[min(i + 1, len(numbers) - 1)]
            self._merge(high, low + 1, 1.0)

    def _merge(self, k, low, ratio):
        """Merge topics from k on down to ``low``, by this ratio, with sweeps at each number."""
        while k > low:
            start, target = self.fits[k][1], max(low, min(k - 1, int(k / ratio)))
            labels = self.corpus.merged(start.labels, k, target, start.lam_local)
            # sweeps may leave a topic without words, so fewer may remain
            k = self._add(TopicStart(self.corpus, labels, start.lam_local).run(COMPARED))

    def choose_penalty(self):
        """Sweep at other local penalties, as long as the code of the best start gets shorter."""
        for factor in PENALTY_FACTORS:
            code = np.inf
            while self.best[0] < code:
                code, start = self.best
                other = TopicStart(self.corpus, start.labels, factor * start.lam_local)
                self._add(other.run(COMPARED))

    @property
    def best(self):
        """Code and start of the number that was asked for (None: not found), or of the best."""
        if self.number is not None:
            return self.fits.get(self.number)
        return min(self.fits.values(), key=lambda fit: fit[0])
