"""How many topics TopicMeans finds, how good they are, and how long that takes, beside others.

The news are those of the BBC (2,225 documents, 2,949 words, five topics; Greene & Cunningham 2006):
odd documents, even ones (by which the rules were chosen), and all. NMI compares the main topics of
documents with the five, NPMI is the coherence of the ten top words (pairs in the same documents),
seconds are of one core. Documents drawn as by LDA have topics of words; NMI there is of words.

The file is text/bbc_counts.npz in the folder SMALLVAR_DATA. Lines of the HDP need gensim. It takes
some minutes; ``--quick`` takes the odd documents, and a small draw.
"""

import argparse
import os
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array
from sklearn.decomposition import NMF, LatentDirichletAllocation
from sklearn.metrics import normalized_mutual_info_score as nmi

from smallvar import TopicMeans


def coherence(X, tops):
    """Mean NPMI of the pairs of top words, by the documents that they are in."""
    used, values = (X > 0).astype(float), []
    for words in tops:
        joint = (used[:, words].T @ used[:, words]).toarray() / X.shape[0]
        alone, (i, j) = joint.diagonal(), np.triu_indices(len(words), 1)
        p = joint[i, j]
        with np.errstate(divide="ignore", invalid="ignore"):
            npmi = np.log(p / (alone[i] * alone[j])) / -np.log(p)
        values.append(np.where(p > 0, npmi, -1.0).mean())
    return np.mean(values)


def gensim_hdp(X):
    """Main topics of documents and topics of the online HDP, with its defaults."""
    from gensim.matutils import Sparse2Corpus
    from gensim.models import HdpModel

    documents = list(Sparse2Corpus(csr_array(X).T.tocsc(), documents_columns=True))
    model = HdpModel(documents, {i: str(i) for i in range(X.shape[1])}, random_state=0)
    shares = [dict(model[document]) for document in documents]
    labels = np.array([max(share, key=share.get) if share else -1 for share in shares])
    return labels, model.get_topics()[np.unique(labels[labels >= 0])]


def line(name, X, y, fit):
    """Print the results of a fit, which returns main topics of documents and topics."""
    begin = time.process_time()
    labels, topics = fit()
    seconds = time.process_time() - begin
    tops = np.argsort(-topics, axis=1, kind="stable")[:, :10]
    good = f"{nmi(y, labels):7.2f}{coherence(X, tops):7.2f}"
    print(f"{name:24s}{len(topics):7d}{good}{seconds:8.1f}", flush=True)


def news(X, y, quick):
    """Lines of one set of news."""

    def ours(seed, **options):
        model = TopicMeans(random_state=seed, n_threads=1, **options).fit(X)
        return model.labels_, model.topics_

    def theirs(model):
        return lambda: (model.fit_transform(X).argmax(axis=1), model.components_)

    print(f"{'':24s} topics    NMI   NPMI seconds")
    for seed in range(1 if quick else 3):
        line(f"TopicMeans, seed {seed}", X, y, lambda seed=seed: ours(seed))
    found = len(ours(0)[1])
    line("TopicMeans, given 5", X, y, lambda: ours(0, n_clusters=5))
    for k in sorted({5, found}):
        lda = LatentDirichletAllocation(k, max_iter=20, random_state=0)
        line(f"LDA, given {k}", X, y, theirs(lda))
        line(f"NMF, given {k}", X, y, theirs(NMF(k, init="nndsvda", max_iter=500, random_state=0)))
    if find_spec("gensim") is None:
        print("no HDP: gensim is not installed")
    else:
        line("HDP of gensim", X, y, lambda: gensim_hdp(X))


def drawn(k, n, seed):
    """Documents of 150 words, drawn as by LDA, and the topic of each word in each document."""
    rng = np.random.default_rng(seed)
    phi, X, truth = rng.dirichlet(np.full(1000, 0.05), k), np.zeros((n, 1000)), []
    for d in range(n):
        sizes = rng.multinomial(150, rng.dirichlet(np.full(k, 1.0 / k)))
        counts = np.array([rng.multinomial(size, p) for size, p in zip(sizes, phi, strict=True)])
        X[d] = counts.sum(axis=0)
        truth.append(counts.argmax(axis=0)[X[d] > 0])
    return csr_array(X), np.concatenate(truth)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="odd documents and a small draw only")
    options = parser.parse_args()
    with np.load(Path(os.environ["SMALLVAR_DATA"], "text", "bbc_counts.npz")) as arrays:
        parts = arrays["data"].astype(float), arrays["indices"], arrays["indptr"]
        X, y = csr_array(parts, shape=tuple(arrays["shape"])), arrays["y"]
    halves = {"even": slice(0, None, 2), "odd": slice(1, None, 2), "all": slice(None)}
    for name in ("odd",) if options.quick else halves:
        print(f"\nNews, {name} documents")
        news(X[halves[name]], y[halves[name]], options.quick)
    print("\nDrawn, topics  found by seed       NMI of words      seconds")
    for k, n in ((5, 300),) if options.quick else ((5, 1000), (20, 1000), (100, 2000)):
        begin, found, agree = time.process_time(), [], []
        for seed in range(10, 11 if k == 100 else 13):
            Z, truth = drawn(k, n, seed)
            model = TopicMeans(random_state=0, n_threads=1).fit(Z)
            found.append(model.n_clusters_)
            agree.append(f"{nmi(truth, model.token_labels_):.2f}")
        seconds = (time.process_time() - begin) / len(found)
        shown = ", ".join(map(str, found)), ", ".join(agree)
        print(f"{k:13d}  {shown[0]:20s}{shown[1]:18s}{seconds:7.1f}", flush=True)


if __name__ == "__main__":
    main()
