"""Sweeps of hard topics: words of documents move between topics (Kulis & Jordan 2012, Algorithm 2, steps 4 and 5).

A document is a data set, and its words are points. Entry i of a document is a word w of mass X_dw, which moves as a
whole; it costs X_dw C_wk in topic k, where C_wk = -log phi_kw. A document pays lam_local for each topic that it uses.

Topics do not change while documents move, except that new ones open. So documents are visited in parallel, each to
labels beside those before the sweep. If one would open a topic, its visit goes on alone, and those after it are visited
once more with that topic. So the result is that of one document after the other.
"""

from cython.parallel cimport prange
from libc.math cimport HUGE_VAL, fabs, log
from libc.stdint cimport int64_t
from libc.string cimport memset

from smallvar._sweeps.parallel cimport PAYS, ParallelLoop, begin_chunk, begin_loop, end_loop
from smallvar._sweeps.rows cimport poll_signals

import numpy as np

cdef enum:
    NONE = -1               # no topic; no step at which one opens
    FIRST_ROUND = 64        # documents of the first round, and of that after a topic has opened
    TOPIC_WORK = 1 << 26    # of a round, and between two checks for signals, at most: entries times topics, four times

cdef extern from *:
    """
    /* relative accuracy of costs of a document: what saves less than that is no move */
    #define SMALLVAR_COST_TIE 1e-12
    """
    const double COST_TIE "SMALLVAR_COST_TIE"


cdef struct Corpus:
    const int64_t* begin        # entries begin[d]..begin[d + 1] - 1 are those of document d
    const int* word             # of each entry
    const double* mass          # > 0
    const double* weight        # of each document
    const double* prior         # a p0_w of each word
    double total_prior          # a
    double lam_local
    double lam_global
    const double* cost          # words x capacity: C_wk
    Py_ssize_t capacity
    Py_ssize_t k                # number of topics


cdef struct Part:               # entries that move together: those of first..last - 1 in a topic
    Py_ssize_t first
    Py_ssize_t last
    int topic


cdef struct Scratch:            # of a thread, for one document at a time
    int* used                   # by topic: the number of the document's entries there
    int* name                   # the topics that the document uses, ascending
    Py_ssize_t n_used           # how many these are
    double* sum                 # by topic


cdef inline double xlogx(double x) noexcept nogil:
    return x * log(x) if x > 0.0 else 0.0


cdef inline double share_of_totals(const Corpus* corpus, double n) noexcept nogil:
    """(n + a) log(n + a) - a log a, and as much more as rounding may take from it."""
    cdef double total = xlogx(n + corpus.total_prior), empty = xlogx(corpus.total_prior)
    return total - empty + COST_TIE * (fabs(total) + fabs(empty) + n + corpus.total_prior)


cdef void list_used(const Corpus* corpus, Scratch* own) noexcept nogil:
    """Set the list of the topics that the document uses."""
    cdef Py_ssize_t k
    own.n_used = 0
    for k in range(corpus.k):
        if own.used[k]:
            own.name[own.n_used] = <int> k
            own.n_used += 1


cdef inline void relabel(const Corpus* corpus, Scratch* own, int* label, int topic) noexcept nogil:
    """Move an entry of the document to a topic.  INOUT label : of the entry"""
    own.used[label[0]] -= 1
    own.used[topic] += 1
    if own.used[label[0]] == 0 or own.used[topic] == 1:
        list_used(corpus, own)
    label[0] = topic


cdef void enter(const Corpus* corpus, Scratch* own, const int* label, Py_ssize_t d) noexcept nogil:
    """Set the scratch memory to a document."""
    cdef Py_ssize_t i
    memset(own.used, 0, corpus.k * sizeof(int))
    for i in range(corpus.begin[d], corpus.begin[d + 1]):
        own.used[label[i]] += 1
    list_used(corpus, own)


cdef inline const double* costs_of(const Corpus* corpus, Py_ssize_t i) noexcept nogil:
    """C_wk of the word of entry i, by topic."""
    return corpus.cost + corpus.word[i] * corpus.capacity


cdef inline Part part_of(const Corpus* corpus, const int* label, Py_ssize_t d, Py_ssize_t step) noexcept nogil:
    """The entries of a step of a document: one each (step 4), and then all in a topic, by topic (step 5)."""
    cdef Py_ssize_t first = corpus.begin[d], last = corpus.begin[d + 1]
    if step < last - first:
        return Part(first + step, first + step + 1, label[first + step])
    return Part(first, last, <int> (step - (last - first)))


cdef bint pays(const Corpus* corpus, const int* label, Py_ssize_t d, Part part, double cost) noexcept nogil:
    """Whether a topic of a part alone saves more than (lam_global + f) / weight, cost being that of now less lam_local.

    f is its share of the objective:
    f(c) = (n + a) log(n + a) - a log a - sum_w [(c_w + a p0_w) log(c_w + a p0_w) - a p0_w log(a p0_w)].
    """
    cdef Py_ssize_t i
    cdef double n = 0.0, f = 0.0, mass, prior
    if not (corpus.lam_global < HUGE_VAL and corpus.weight[d] * cost > corpus.lam_global):
        return False
    for i in range(part.first, part.last):
        if label[i] == part.topic:
            mass, prior = corpus.weight[d] * corpus.mass[i], corpus.prior[corpus.word[i]]
            n += mass
            f -= xlogx(mass + prior) - xlogx(prior)
    f += share_of_totals(corpus, n)
    return corpus.weight[d] * cost > (corpus.lam_global + f) * (1.0 + COST_TIE)


cdef bint move(const Corpus* corpus, Scratch* own, int* label, Py_ssize_t d, Part part) noexcept nogil:
    """Move a part to the cheapest topic, the first at a tie; returns whether it is to open a topic instead.

    A topic that no other entry of the document uses costs lam_local, also the present one.
    """
    cdef Py_ssize_t i, k, m, n = 0
    cdef int best = part.topic
    cdef double cost = 0.0, other, t
    for i in range(part.first, part.last):
        if label[i] == part.topic:
            cost += corpus.mass[i] * costs_of(corpus, i)[part.topic]
            n += 1
    cost += corpus.lam_local if n == own.used[part.topic] else 0.0
    t = cost - COST_TIE * cost
    if cost > corpus.lam_local or part.last - part.first > 1:
        memset(own.sum, 0, corpus.k * sizeof(double))
        for i in range(part.first, part.last):
            if label[i] == part.topic:
                for k in range(corpus.k):
                    own.sum[k] += corpus.mass[i] * costs_of(corpus, i)[k]
        for k in range(corpus.k):
            other = own.sum[k] + (0.0 if own.used[k] else corpus.lam_local)
            if k != part.topic and other < t:
                t, best = other, <int> k
    else:  # costs are not below 0, so a topic that the document does not use is no cheaper
        for m in range(own.n_used):
            k = own.name[m]
            other = corpus.mass[part.first] * costs_of(corpus, part.first)[k]
            if k != part.topic and other < t:
                t, best = other, <int> k
    if pays(corpus, label, d, part, (cost if best == part.topic else t) - corpus.lam_local):
        return True
    if best != part.topic:
        for i in range(part.first, part.last):
            if label[i] == part.topic:
                relabel(corpus, own, &label[i], best)
    return False


cdef bint add_topic(const Corpus* corpus, Scratch* own, int* label, Py_ssize_t d) noexcept nogil:
    """Let the document use the topic that saves it most, if that is more than lam_local; returns whether there is one.

    The entries for which it is cheaper move there.
    """
    cdef Py_ssize_t i, k, best = NONE
    cdef const double* cost
    cdef double present, t, total = 0.0, most
    memset(own.sum, 0, corpus.k * sizeof(double))
    for i in range(corpus.begin[d], corpus.begin[d + 1]):
        cost = costs_of(corpus, i)
        present = corpus.mass[i] * cost[label[i]]
        total += present
        for k in range(corpus.k):  # what the entry would save in topic k
            t = present - corpus.mass[i] * cost[k]
            own.sum[k] += t if t > 0.0 else 0.0
    most = corpus.lam_local + COST_TIE * total
    for k in range(corpus.k):
        if own.used[k] == 0 and own.sum[k] > most:
            most, best = own.sum[k], k
    if best == NONE:
        return False
    for i in range(corpus.begin[d], corpus.begin[d + 1]):
        cost = costs_of(corpus, i)
        if cost[best] < cost[label[i]]:
            relabel(corpus, own, &label[i], <int> best)
    return True


cdef Py_ssize_t second_topic(const Corpus* corpus, const Scratch* own, Py_ssize_t i, int label) noexcept nogil:
    """The cheapest topic for entry i of those that its document uses, except the present one; NONE: there is none."""
    cdef Py_ssize_t m, best = NONE
    cdef const double* cost = costs_of(corpus, i)
    for m in range(own.n_used):
        if own.name[m] != label and (best == NONE or cost[own.name[m]] < cost[best]):
            best = own.name[m]
    return best


cdef bint drop_topic(const Corpus* corpus, Scratch* own, int* label, Py_ssize_t d) noexcept nogil:
    """Let the document give up the topic it loses least by, if that is less than lam_local; returns whether it does.

    Its entries move to the cheapest of the topics that are left.
    """
    cdef Py_ssize_t i, k, second, least = NONE
    cdef const double* cost
    cdef double total = 0.0
    memset(own.sum, 0, corpus.k * sizeof(double))
    for i in range(corpus.begin[d], corpus.begin[d + 1]):
        cost = costs_of(corpus, i)
        second = second_topic(corpus, own, i, label[i])
        if second == NONE:  # the document has one topic only
            return False
        own.sum[label[i]] += corpus.mass[i] * (cost[second] - cost[label[i]])
        total += corpus.mass[i] * cost[label[i]]
    for k in range(corpus.k):
        if own.used[k] and (least == NONE or own.sum[k] < own.sum[least]):
            least = k
    if least == NONE or not own.sum[least] < corpus.lam_local - COST_TIE * total:
        return False
    for i in range(corpus.begin[d], corpus.begin[d + 1]):
        if label[i] == least:
            relabel(corpus, own, &label[i], <int> second_topic(corpus, own, i, label[i]))
    return True


cdef Py_ssize_t visit(
    const Corpus* corpus, Scratch* own, int* label, Py_ssize_t d, Py_ssize_t step
) noexcept nogil:
    """Steps of a document from this one on; returns the step at which a topic is to open, NONE at the end.

    INOUT label
    """
    cdef Py_ssize_t size = corpus.begin[d + 1] - corpus.begin[d]
    cdef Part part
    while step < size + corpus.k:
        if step == size:  # each entry has its topic: whole topics are taken up, and given up, while that pays
            while add_topic(corpus, own, label, d):
                pass
            while drop_topic(corpus, own, label, d):
                pass
        part = part_of(corpus, label, d, step)
        if own.used[part.topic] and move(corpus, own, label, d, part):
            return step
        step += 1
    return NONE


cdef class TopicSweep:
    """Labels of the entries of documents, and the sweep that moves them.

    begin, word, mass : IN arrays, CSR rows of positive entries;  weight : IN array (documents,)
    prior : IN array (words,), a p0
    """

    cdef Corpus corpus
    cdef Py_ssize_t n
    cdef int threads
    cdef list arrays                    # keeps the buffers of the corpus alive
    cdef int[::1] label, staged         # before and after the sweep
    cdef double[:, ::1] cost
    cdef int[:, ::1] used               # 2 rows for each thread
    cdef double[:, ::1] sums            # threads x capacity
    cdef int64_t[::1] n_local           # documents: the number of topics that it uses
    cdef Py_ssize_t[::1] opens          # documents: the step at which it would open a topic, or NONE

    def __init__(
        self, const int64_t[::1] begin, const int[::1] word, const double[::1] mass, const double[::1] weight,
        const double[::1] prior, double lam_local, double lam_global, int n_threads,
    ):
        cdef Corpus* corpus = &self.corpus
        self.n, self.threads = weight.shape[0], n_threads
        if begin.shape[0] != self.n + 1 or not begin[self.n] == word.shape[0] == mass.shape[0] > 0:
            raise ValueError("documents must have entries, each with a word and a mass")
        corpus.begin, corpus.word, corpus.mass, corpus.weight = &begin[0], &word[0], &mass[0], &weight[0]
        corpus.prior, corpus.total_prior = &prior[0], np.sum(prior)
        corpus.lam_local, corpus.lam_global = lam_local, lam_global
        self.arrays = [begin, word, mass, weight, prior]
        self.label, self.staged = np.zeros((2, len(word)), dtype=np.int32)
        self.opens = np.zeros(self.n, dtype=np.intp)
        self.n_local = np.zeros(self.n, dtype=np.int64)

    cdef reserve(self, const double[:, :] cost, Py_ssize_t capacity):
        """Make memory for so many topics, with these costs (IN, words x topics)."""
        self.cost = np.zeros((cost.shape[0], capacity))
        self.cost[:, :cost.shape[1]] = cost
        self.used = np.zeros((2 * self.threads, capacity), dtype=np.int32)
        self.sums = np.zeros((self.threads, capacity))
        self.corpus.cost, self.corpus.capacity = &self.cost[0, 0], capacity

    cdef Scratch scratch(self, int thread) noexcept nogil:
        """Scratch memory of a thread."""
        cdef int* used = &self.used[2 * thread, 0]
        return Scratch(used, used + self.corpus.capacity, 0, &self.sums[thread, 0])

    cdef void visit(self, Py_ssize_t d, int thread, Py_ssize_t step) noexcept nogil:
        """Visit a document from this step on; its staged labels are final if it opens no topic."""
        cdef Scratch own = self.scratch(thread)
        cdef Py_ssize_t i
        if step == 0:
            for i in range(self.corpus.begin[d], self.corpus.begin[d + 1]):
                self.staged[i] = self.label[i]
        enter(&self.corpus, &own, &self.staged[0], d)
        self.opens[d] = visit(&self.corpus, &own, &self.staged[0], d, step)
        self.n_local[d] = own.n_used

    def sweep(self, const double[:, ::1] cost, const int[::1] labels):
        """Visit all documents; returns labels (entries,), topics of each document, entries moved, and all topics.

        cost : IN array (words, topics), C;  labels : IN array (entries,), below the number of topics
        """
        cdef Py_ssize_t d, start = 0, stop, size = FIRST_ROUND, work = 0, products
        cdef ParallelLoop loop
        self.label[:] = labels
        self.corpus.k = cost.shape[1]
        self.reserve(cost, cost.shape[1])
        with nogil:
            while start < self.n:
                stop = min(self.n, start + size)
                products = 4 * (self.corpus.begin[stop] - self.corpus.begin[start]) * self.corpus.k
                loop = begin_loop(stop - start, self.threads if products > PAYS else 1)
                for d in prange(start, stop, schedule="dynamic", chunksize=1, num_threads=loop.threads):
                    self.visit(d, begin_chunk(&loop), 0)
                end_loop(&loop)
                poll_signals(&work, products, TOPIC_WORK)
                size = min(2 * size, max(<Py_ssize_t> self.threads, (stop - start) * TOPIC_WORK // (products + 1)))
                for d in range(start, stop):
                    if self.opens[d] != NONE:
                        while self.opens[d] != NONE:
                            self.open_topic(d, part_of(&self.corpus, &self.staged[0], d, self.opens[d]))
                            self.visit(d, 0, self.opens[d] + 1)
                        stop, size = d + 1, FIRST_ROUND
                        break
                start = stop
        found = np.array(self.staged)
        return found, np.array(self.n_local), np.count_nonzero(found != labels), self.corpus.k

    cdef int open_topic(self, Py_ssize_t d, Part part) except -1 nogil:
        """Open a topic of a part of a document."""
        cdef Py_ssize_t i, w, k = self.corpus.k
        cdef double n = self.corpus.total_prior, mass
        with gil:
            if k == self.corpus.capacity:
                self.reserve(np.array(self.cost), 2 * k)
            for w in range(self.cost.shape[0]):
                self.cost[w, k] = self.corpus.prior[w]
        for i in range(part.first, part.last):
            if self.staged[i] == part.topic:
                mass = self.corpus.weight[d] * self.corpus.mass[i]
                self.cost[self.corpus.word[i], k] += mass
                n += mass
                self.staged[i] = <int> k
        for w in range(self.cost.shape[0]):
            self.cost[w, k] = log(n / self.cost[w, k]) if self.cost[w, k] > 0.0 else 0.0
        self.corpus.k += 1
        return 0
