"""
Which topics does a library's documentation have?
=================================================

Texts become points, points become clusters, clusters become topics: with
`BERTopic <https://maartengr.github.io/BERTopic>`_ in one call. It takes any clusterer of
scikit-learn's kind in place of HDBSCAN. One of smallvar chooses the number of topics, puts every
text into one of them, and predicts those of new texts.

The texts are the docstrings of SciPy and scikit-learn.
"""

# %%
# Texts and points
# ----------------
# A model of sentences would make better points; these are of words that stand together, found by an
# SVD, and scaled to length 1, so that distances go by the angle.

import importlib
import inspect

import matplotlib.pyplot as plt
import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.preprocessing import normalize

from smallvar import DPMeans

plt.rcParams["figure.constrained_layout.use"] = True

MODULES = [
    *("scipy.stats", "scipy.signal", "scipy.sparse", "scipy.spatial", "scipy.optimize"),
    *("sklearn.cluster", "sklearn.linear_model", "sklearn.metrics"),
]
docs, module = [], []
for name in MODULES:
    for _, thing in inspect.getmembers(importlib.import_module(name), callable):
        text = inspect.getdoc(thing)
        if text and len(text) > 300 and text[:1500] not in docs:
            docs.append(text[:1500])
            module.append(name)

words = {"stop_words": "english", "token_pattern": "[a-z]{3,}", "min_df": 3, "max_df": 0.3}
weights = TfidfVectorizer(sublinear_tf=True, **words).fit_transform(docs)
X = normalize(TruncatedSVD(20, random_state=0).fit_transform(weights)).astype(np.float32)
print(f"{len(docs)} texts, {weights.shape[1]} words, points in {X.shape[1]} dimensions")

# %%
# Clusters
# --------
#
# With so many topics, a few more or fewer fit about as well: the fit warns that the number is not
# clear.

model = DPMeans(random_state=0).fit(X)
print(f"{model.n_clusters_} topics of {np.bincount(model.labels_).min()} texts and more")

# %%
# Topics
# ------
# A topic is named by the words that are more frequent in it than elsewhere; BERTopic weighs them in
# much the same way.

counter = CountVectorizer(**words)
counts = counter.fit_transform(docs)
of_topic = np.vstack([counts[model.labels_ == k].sum(axis=0) for k in range(model.n_clusters_)])
of_topic = np.asarray(of_topic, dtype=float)
share = of_topic / of_topic.sum(axis=1, keepdims=True)
value = share * np.log(1 + of_topic.sum() / len(of_topic) / of_topic.sum(axis=0))
names = [
    ", ".join(counter.get_feature_names_out()[np.argsort(-row, kind="stable")[:4]]) for row in value
]

sizes = np.zeros((model.n_clusters_, len(MODULES)), dtype=int)
np.add.at(sizes, (model.labels_, [MODULES.index(name) for name in module]), 1)
shown = np.argsort(-sizes.sum(axis=1), kind="stable")[:15]
figure, ax = plt.subplots(figsize=(9, 6))
left = np.zeros(len(shown))
for m, name in enumerate(MODULES):
    ax.barh(range(len(shown)), sizes[shown, m], left=left, color=plt.cm.tab10(m), label=name)
    left += sizes[shown, m]
ax.set_yticks(range(len(shown)), [names[k] for k in shown])
ax.invert_yaxis()
ax.set_xlabel("texts")
ax.set_title(f"The {len(shown)} largest of {model.n_clusters_} topics, and where they come from")
ax.legend()
plt.show()

# %%
# The same by BERTopic
# --------------------
# It is not needed for this page; where it is installed, this makes the same topics::
#
#     from bertopic import BERTopic
#     from bertopic.dimensionality import BaseDimensionalityReduction
#
#     topics = BERTopic(
#         hdbscan_model=DPMeans(random_state=0),
#         umap_model=BaseDimensionalityReduction(),  # leaves the points as they are
#         vectorizer_model=CountVectorizer(stop_words="english"),
#     )
#     numbers, _ = topics.fit_transform(docs, embeddings=X)
#     topics.get_topic_info()
#
# With :class:`~smallvar.MiniBatchDPMeans` in its place, ``partial_fit`` of BERTopic takes texts as
# they come.
#
# New texts
# ---------
# Labels of new texts are those of the nearest center. For programs without Python, a
# :class:`~sklearn.cluster.KMeans` of the same centers can be exported, as to ONNX.

kmeans = model.to_sklearn_kmeans()
print(f"same labels: {np.mean(kmeans.predict(X) == model.predict(X)):.0%}")

# sphinx_gallery_thumbnail_path = "examples_built/panels/plot_topics_1.png"
