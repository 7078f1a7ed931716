"""
What are these texts about?
===========================

Fifteen hundred short texts, no topics given. A text becomes a row with a column for every word,
nearly all of them 0, and its length says nothing: only its direction does.
:class:`~smallvar.SphericalDPMeans` clusters directions and takes such sparse rows as they are. It
is given how alike the texts of a topic should be, not how many topics there are.

The texts are what the functions and classes of scipy and scikit-learn say of themselves.
"""

# %%
# From texts to directions
# ------------------------
#
# Words are counted, and rare ones count more. Examples, which are code, are left out.

import importlib
import inspect
import pkgutil
import re

import matplotlib.pyplot as plt
import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.manifold import TSNE
from sklearn.metrics import normalized_mutual_info_score

from smallvar import SphericalDPMeans

plt.rcParams["figure.constrained_layout.use"] = True


def descriptions(package):
    """What the public functions and classes of a package say of themselves, and where they are."""
    found = {}
    root = importlib.import_module(package)
    names = [package] + [f"{package}.{info.name}" for info in pkgutil.iter_modules(root.__path__)]
    for name in names:
        if re.search(r"\._|test|conftest", name):
            continue
        module = importlib.import_module(name)
        for member in getattr(module, "__all__", ()):
            try:
                item = getattr(module, member)
            except (AttributeError, ImportError):  # announced, but to be switched on first
                continue
            home = getattr(item, "__module__", None) or ""
            text = inspect.getdoc(item) or ""
            if callable(item) and home.startswith(package) and len(text) > 400:
                found.setdefault(id(item), (name, re.sub(r"(?m)^\s*(>>>|\.\.\.).*$", "", text)))
    return list(found.values())


places, texts = zip(
    *(one for name in ("scipy", "sklearn") for one in descriptions(name)), strict=True
)
vectorizer = TfidfVectorizer(
    stop_words="english", sublinear_tf=True, min_df=3, max_df=0.2, token_pattern="[a-zA-Z]{3,}"
)
tfidf = vectorizer.fit_transform(texts)
n, d = tfidf.shape
print(f"{n} texts, {d} words, of which {tfidf.nnz / n:.0f} are in a text")

# %%
# Topics
# ------
#
# With `min_cosine=0.05` a text whose direction has a cosine below 0.05 with all topics opens one of
# its own. That is little, but two texts have few words in common. The center of a topic is a
# direction, too: its largest columns are the typical words.

model = SphericalDPMeans(min_cosine=0.05, random_state=0).fit(tfidf)
words = vectorizer.get_feature_names_out()
sizes = np.bincount(model.labels_)
order = np.argsort(-sizes, kind="stable")


def typical(k, n):
    """The words with the largest weight in a topic."""
    return ", ".join(words[model.cluster_centers_[k].argsort()[::-1][:n]])


print(f"{model.n_clusters_} topics")
for k in order[:16]:
    print(f"{sizes[k]:4d}  {typical(k, 6)}")

# %%
# A map
# -----
#
# t-SNE puts similar directions side by side. Each text has the color of its topic; the ten largest
# are named, the others gray.

few = TruncatedSVD(50, random_state=0).fit_transform(tfidf)
place = TSNE(metric="cosine", init="random", random_state=0).fit_transform(few)
colors = plt.get_cmap("tab10").colors
fig, ax = plt.subplots(figsize=(8, 6))
ax.scatter(*place.T, s=3, color="0.85")
for color, k in zip(colors, order, strict=False):
    here = model.labels_ == k
    ax.scatter(*place[here].T, s=5, color=color, label=typical(k, 3))
ax.set(xticks=[], yticks=[], title=f"The ten largest of {model.n_clusters_} topics")
ax.legend(fontsize=7, markerscale=3, loc="upper left", bbox_to_anchor=(1, 1), frameon=False)

# %%
# How many topics?
# ----------------
#
# The module that a text is from is not its topic, but has to do with it. A larger `min_cosine` asks
# for topics of texts that are more alike, and so for more topics.

for given in (0.02, 0.05, 0.1, 0.15):
    m = SphericalDPMeans(min_cosine=given, random_state=0).fit(tfidf)
    nmi = normalized_mutual_info_score(places, m.labels_)
    print(f"min_cosine={given:.2f}: {m.n_clusters_:4d} topics, NMI with the modules {nmi:.2f}")

# %%
# A new text goes to the topic with the largest cosine.

new = vectorizer.transform(["Sort the frequencies of a discrete Fourier transform."])
labels, cosines = model.predict(new, return_cosines=True)
print(f"{typical(labels[0], 6)} (cosine {cosines[0]:.2f})")
plt.show()

# sphinx_gallery_thumbnail_path = "examples_built/panels/plot_text_1.png"
