"""TopicMeans: hard topics, of documents whose words are points of several topics.

Kulis & Jordan (2012), Algorithm 2, where a data set is a document, and squared distances are the
divergences of exponential families (section 7 there): of words, -log phi_kw.
"""

from typing import Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, issparse
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin

from smallvar._centers.topic_path import Corpus, TopicStart, document_of_entry, path_of_topics
from smallvar._core.config import at_most_blas_threads
from smallvar._core.estimator import Estimator, check_fitted, keywords_only, warn_not_converged
from smallvar._core.fit_loop import best_of
from smallvar._core.validation import (
    Data,
    check_lam,
    check_number,
    check_reach,
    check_weights,
    exact_number,
    learned,
    some_rows,
)
from smallvar._selection.penalty import check_exact_number

PREDICT_SWEEPS = 100  # sweeps of new documents, at most; some three are mostly enough


class TopicMeans(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Estimator):
    """Hard topics: groups of words that documents share, their number from the data.

    Minimizes, over the topic z_dw of each word w in each document d, the topics phi_k (shares of
    words) and their number K,

        sum_dw X_dw (-log phi_{z_dw, w}) + lam_local * (number of pairs of a document and a topic
        in use) + lam_global * K + a * sum_k KL(p0 || phi_k),

    where X_dw counts the word in the document, and p0 are the shares of words in all documents
    together. All occurrences of a word in a document are in one topic. With a pseudo-counts, half a
    count for each word that there is, no share is 0: phi_k = (counts_k + a * p0) / (n_k + a), for
    n_k occurrences in topic k. A document of weight w has its words, and its topics, w times in the
    sum; if ``lam_global`` is "auto", pseudo-counts are in documents of the mean weight.

    Parameters
    ----------
    lam_local : float or "auto", default="auto"
        Penalty for each topic of a document, in nats, > 0. "auto" takes the one with the shortest
        code: see Notes.
    lam_global : float or "auto", default="auto"
        Penalty for each topic, in nats, > 0. "auto" chooses the number of topics. With a number
        Algorithm 2 starts from a single topic.
    n_clusters : int, "auto" or None, default=None
        The exact number of topics, if ``lam_global`` is "auto". None or "auto": the data choose.
    n_init : int, default=1
        Starts: with "auto" from other documents each, of which the shortest code wins; otherwise
        in the order of the documents, then in random orders, and the lowest objective wins.
    max_iter : int, default=300
        Largest number of sweeps of a start; those that open topics do not count.
    tol : float, default=0.0
        Stop when a sweep lowers the objective by at most ``tol`` times that after the first one.
    random_state : int, RandomState instance or None, default=None
        Generator of the first documents, and of random orders.
    n_threads : int, default=None
        Threads; None means all that this process may use. The result does not depend on it.
    verbose : int, default=0
        Print a line a sweep.

    Attributes
    ----------
    topics_ : ndarray of shape (n_clusters, n_features), float64
        Shares phi of words, the largest topic first; 0 for words that no document has.
    labels_ : ndarray of shape (n_samples,), int32
        The topic that most of each document is in; -1 for one without words of a topic.
    token_labels_ : ndarray of int32
        Topic of each stored entry of X as CSR (dense X: entry that is not 0, row by row). -1 for 0,
        and for words that no document of positive weight has.
    local_clusters_ : list of ndarray
        The topics that each document uses, ascending.
    n_local_clusters_ : ndarray of shape (n_samples,), int64
        How many these are.
    n_clusters_ : int
        Number of topics.
    objective_ : float
        The objective.
    objective_path_ : ndarray of shape (n_iter,)
        The objective after every sweep; it never rises.
    lam_local_ : float
        The local penalty used.
    lam_global_ : float
        The global penalty used; with "auto" the mean length of the code for the shares of a topic.
    n_iter_ : int
        Sweeps, the last, unchanging one included.
    n_features_in_ : int
        Number of words.
    feature_names_in_ : ndarray of shape (n_features,)
        The words, if X is a table.

    Raises
    ------
    ValueError, TypeError
        From ``fit``, for data below 0, not finite or without a count, and parameters out of bounds.

    See Also
    --------
    HDPMeans : The same for points, by squared distances.
    BregmanDPMeans : Clusters of whole rows of counts.

    Notes
    -----
    A sweep visits documents in order. In each, words move to the cheapest topic (step 4 of
    Algorithm 2), where one that the document does not use costs ``lam_local`` more; the document
    takes up topics that save more than ``lam_local``, and gives up those that save less, one after
    the other, as in facility location (Jiang, Sra & Kulis 2017); then its words in each topic move
    together, or open a topic (step 5). Topics then become the shares of their words (step 6). No
    step raises the objective.

    With "auto", documents as a whole are put into 32 clusters (up to 512, while over half are of
    use). Topics are merged where the objective rises least, down to one, with sweeps at each number
    that is compared. The number kept has the shortest code: a Polya urn for the words in each
    topic, whose base is a * p0, and for each document of N words in m topics of n_k words ::

        log C(K, m) + log C(N - 1, m - 1) + log(N! / prod n_k!) nats.

    Words of real texts come in bursts: their counts vary by a factor f more than those of a
    multinomial distribution. So counts in the urns and log(N! / ...) are divided by f =
    sum (X - E)^2 / sum X, for the counts E expected at the beginning of the path (at least 1 for
    whole numbers). ``lam_local`` is log(2) times the mean number of words in a document, over a
    power of 2, and at the number found changes by factors of sqrt(2): that with the shortest code.

    References
    ----------
    Kulis & Jordan (2012), Revisiting k-means: new algorithms via Bayesian nonparametrics, sections
    4 and 7. Jiang, Sra & Kulis (2017), Combinatorial topic models using small-variance asymptotics.

    Examples
    --------
    >>> import numpy as np
    >>> from smallvar import TopicMeans
    >>> X = np.array([[9, 8, 0, 0], [7, 9, 0, 1], [0, 0, 8, 9], [9, 9, 8, 7]])
    >>> model = TopicMeans(n_clusters=2, lam_local=5.0, random_state=0).fit(X)
    >>> model.labels_
    array([0, 0, 1, 0], dtype=int32)
    >>> model.transform(X)[3].round(2)
    array([0.55, 0.45])
    >>> model.top_words(2, names=["goal", "match", "tax", "law"])
    [['match', 'goal'], ['tax', 'law']]
    """

    topics_: NDArray[np.float64]
    labels_: NDArray[np.int32]
    token_labels_: NDArray[np.int32]
    local_clusters_: list[NDArray[np.int32]]
    n_local_clusters_: NDArray[np.int64]
    n_clusters_: int
    objective_: float
    objective_path_: NDArray[np.float64]
    lam_local_: float
    lam_global_: float
    n_iter_: int
    _takes_sparse = True

    @keywords_only
    def __init__(
        self,
        *,
        lam_local: float | Literal["auto"] = "auto",
        lam_global: float | Literal["auto"] = "auto",
        n_clusters: int | Literal["auto"] | None = None,
        n_init: int = 1,
        max_iter: int = 300,
        tol: float = 0.0,
        random_state: int | np.random.RandomState | None = None,
        n_threads: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.lam_local = lam_local
        self.lam_global = lam_global
        self.n_clusters = n_clusters
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.n_threads = n_threads
        self.verbose = verbose

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        tags.transformer_tags.preserves_dtype = ["float64"]
        return tags

    @property
    def _n_features_out(self):
        return self.n_clusters_

    def _check_parameters(self):
        for name in ("lam_local", "lam_global"):
            check_lam(getattr(self, name), finite=True, name=name, options=("auto",))
        check_exact_number(self, ("lam_global",))
        self._check_starts()

    def _counts(self, X, reset):
        """Checked counts as CSR rows."""
        X = self._validate(X, reset=reset)
        check_reach(X)
        least = (X.data if issparse(X) else X).min(initial=0.0)
        if least < 0.0:
            raise ValueError(
                f"X must hold counts >= 0, got {least:.6g}: Negative values in data passed to "
                f"{type(self).__name__}"
            )
        return X if issparse(X) else csr_array(X)

    def fit(self, X: Data, y: object = None, sample_weight: ArrayLike | None = None) -> Self:
        """Find the topics of documents.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Counts >= 0 of words (columns) in documents (rows); they need not be whole.
        y : None
            Ignored.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of documents >= 0, not all zero; None means 1 each. Those of weight zero take
            no part, and get the labels of ``predict``.

        Returns
        -------
        self : TopicMeans
            The fitted estimator.
        """
        self._check_parameters()
        rng, n_threads = self._rng(), self._threads()
        X = self._counts(X, True)
        weight = check_weights(sample_weight, X.shape[0])
        # documents without words take no part
        active = np.flatnonzero((X @ np.ones(X.shape[1]) * (1.0 if weight is None else weight)) > 0)
        if not len(active):
            raise ValueError("X must have a count > 0 in a document of positive weight, got none")
        relative = self._relative(weight, self.lam_global == "auto", to_mean=True)
        with at_most_blas_threads(n_threads):
            best, order = self._fit(X, relative, active, rng, n_threads)
        self._set_result(X, best, order)
        if not best.progress.ended:
            warn_not_converged(self, self.n_iter_)
        return self

    def _fit(self, X, weight, active, rng, n_threads):
        """The best start, and the order of its documents."""
        loop, number = self._loop(), exact_number(self.n_clusters)

        def corpus_of(order):
            some = None if weight is None else weight[order]
            return Corpus(some_rows(X, order), some, n_threads)

        corpus, lam_local = corpus_of(active), self.lam_local
        lam_local = lam_local if isinstance(lam_local, str) else float(lam_local)
        if "auto" in (lam_local, self.lam_global):
            paths = [path_of_topics(corpus, number, lam_local, rng)]
            while len(paths) < self.n_init:
                paths.append(path_of_topics(corpus, number, lam_local, rng, paths[0]))
            fits = [each.best for each in paths if each.best is not None]
            if not fits:
                raise ValueError(
                    f"n_clusters={number} topics are not found, {paths[0].longest} at most: try a "
                    "smaller lam_local, a larger n_init or another random_state"
                )
            # the paths begin at other documents each: the best end of all tells the local penalty
            first = min(fits, key=lambda fit: fit[0])[1]
            lam_local = first.lam_local
        if self.lam_global == "auto":
            start = TopicStart(corpus, first.labels, lam_local).run(loop)
            # nats of the code become those of the objective
            dispersion = paths[0].dispersion
            price = dispersion * corpus.code(start.labels, start.k, dispersion)[1]
            start.lam_global = max(price, np.finfo(float).tiny)
            start.progress.path += start.lam_global * np.array(start.numbers)
            return start, active
        orders = [active, *(rng.permutation(active) for _ in range(self.n_init - 1))]
        zeros, penalties = np.zeros(len(corpus.mass)), (lam_local, float(self.lam_global))
        starts = [TopicStart(corpus_of(order), zeros, *penalties) for order in orders]
        best = best_of((s.run(loop) for s in starts), total=self.n_init, callback=loop.callback)
        return best, orders[starts.index(best)]

    def _set_result(self, X, start, order):
        """Set what is learned, the largest topic first."""
        corpus, k, path = start.corpus, start.k, np.array(start.progress.path)
        counts = corpus.counts(start.labels, k)
        rank = np.argsort(-counts.sum(axis=0), kind="stable")
        topics = np.exp(-corpus.costs(counts[:, rank])) * (corpus.shares > 0.0)[:, None]
        self.topics_, self.n_clusters_ = np.ascontiguousarray(topics.T), k
        self._shares = corpus.shares
        self.lam_local_, self.lam_global_ = float(start.lam_local), float(start.lam_global)
        self.objective_path_, self.objective_ = path, float(path[-1])
        self.n_iter_ = start.progress.n_iter
        self._multiply("objective_", "objective_path_", "lam_global_")
        # documents of weight zero, and words that only they have, are as in ``predict``
        all_fitted = len(order) == X.shape[0]
        labels = np.full(len(X.data), -1, dtype=np.int32) if all_fitted else self._token_labels(X)
        # the place in X.data of each stored entry: the corpus has documents in an order of its own
        numbers = csr_array((np.arange(len(X.data)), X.indices, X.indptr), shape=X.shape)
        fitted = some_rows(numbers, order).data
        labels[fitted] = -1
        labels[fitted[corpus.entries]] = np.argsort(rank)[start.labels]
        self.token_labels_ = labels
        mass = self._mass(X, labels)
        self.labels_, self.n_local_clusters_ = _main_topic(mass), (mass > 0.0).sum(axis=1)
        used = np.nonzero(mass)[1].astype(np.int32)
        self.local_clusters_ = np.split(used, self.n_local_clusters_.cumsum()[:-1])

    def _mass(self, X, labels):
        """Counts of each document in each topic."""
        k, used = self.n_clusters_, labels >= 0
        cells = document_of_entry(X)[used] * np.int64(k) + labels[used]
        mass = np.bincount(cells, X.data[used], X.shape[0] * k).astype(np.float64)  # also of none
        return mass.reshape(-1, k)

    def _token_labels(self, X):
        """Topics of the stored entries of counts at the fitted topics, -1 for none."""
        topics = learned(self, "topics_", self.n_clusters_, X.shape[1])
        corpus = Corpus(X, None, self._threads(), self._shares)
        labels = np.full(len(X.data), -1, dtype=np.int32)
        if len(corpus.mass):
            costs = np.ascontiguousarray(-np.log(np.where(topics > 0.0, topics, 1.0)).T)
            # each document begins in its cheapest topic
            current = (corpus.rows @ costs).argmin(axis=1)[corpus.doc].astype(np.int32)
            sweep = corpus.sweep(self.lam_local_, np.inf)
            for _ in range(PREDICT_SWEEPS):
                current, _, moved, _ = sweep.sweep(costs, current)
                if not moved:
                    break
            labels[corpus.entries] = current
        return labels

    def transform(self, X: Data) -> NDArray[np.float64]:
        """Return the share of each topic in each document, at the fitted topics.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Counts of words in documents. Words that the fit has not seen are left out.

        Returns
        -------
        shares : ndarray of shape (n_samples, n_clusters), float64
            Shares of words, whose sum is 1; 1 / n_clusters each for a document without words.
        """
        mass = self._mass(*self._predict(X))
        total = mass.sum(axis=1, keepdims=True)
        even = np.full_like(mass, 1.0 / mass.shape[1])
        return np.divide(mass, total, out=even, where=total > 0.0)

    def predict(self, X: Data) -> NDArray[np.int32]:
        """Return the topic that most of each document is in, at the fitted topics.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Counts of words in documents. Each starts in its cheapest topic, and then is swept.

        Returns
        -------
        labels : ndarray of shape (n_samples,), int32
            Index into ``topics_``, the first at a tie; -1 for a document without words.
        """
        return _main_topic(self._mass(*self._predict(X)))

    def _predict(self, X):
        """Checked counts, and the topics of their stored entries."""
        check_fitted(self)
        X = self._counts(X, False)
        return X, self._token_labels(X)

    def score(self, X: Data, y: object = None, sample_weight: ArrayLike | None = None) -> float:
        """Return minus the cost of documents at the fitted topics.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Counts of words in documents.
        y : None
            Ignored.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the documents.

        Returns
        -------
        score : float
            ``-(sum of w * (-log phi of the words + lam_local_ * number of topics))``. Words that
            the fit has not seen are left out.
        """
        X, labels = self._predict(X)
        weight = check_weights(sample_weight, X.shape[0])
        weight = np.ones(X.shape[0]) if weight is None else weight
        n_local, known = (self._mass(X, labels) > 0.0).sum(axis=1), labels >= 0
        costs = X.data[known] * -np.log(self.topics_[labels[known], X.indices[known]])
        error = (weight[document_of_entry(X)[known]] * costs).sum()
        return 0.0 - float(error + self.lam_local_ * (weight @ n_local))

    def top_words(self, n: int = 10, names: ArrayLike | None = None) -> list[list[str]]:
        """Return the words that tell each topic from all documents together.

        Parameters
        ----------
        n : int, default=10
            Number of words.
        names : array-like of shape (n_features,), default=None
            The words; None: ``feature_names_in_``, or x0, x1 and so on.

        Returns
        -------
        words : list of list of str
            For each topic, the words with the largest summands phi log(phi / p0) of its divergence
            from all documents, in descending order.
        """
        check_fitted(self)
        check_number(n, "n", low=1, integer=True)
        if names is None:
            names = getattr(self, "feature_names_in_", [f"x{j}" for j in range(len(self._shares))])
        words = np.asarray(names, dtype=object)
        if words.shape != (self.n_features_in_,):
            shape = f"({self.n_features_in_},), one word for each column of X, got {words.shape}"
            raise ValueError(f"names must have shape {shape}")
        ones, known = np.ones_like(self.topics_), self.topics_ > 0.0
        ratio = np.divide(self.topics_, self._shares, out=ones, where=known)
        order = np.argsort(-self.topics_ * np.log(ratio), axis=1, kind="stable")
        return [[str(word) for word in words[row[:n]]] for row in order]


def _main_topic(mass):
    """The topic with the most counts, the first at a tie; -1 for rows without any."""
    return np.where(mass.any(axis=1), mass.argmax(axis=1), -1).astype(np.int32)
