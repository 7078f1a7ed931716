"""
What are these pictures made of?
================================

A hundred small pictures, each showing any of four objects. :class:`~smallvar.BPMeans` is given the
penalty of a feature, and neither the objects nor their number. (After the dice pictures of
Broderick, Kulis and Jordan, 2013.)
"""

# %%
# The pictures
# ------------
#
# Four objects on a grid of 14 x 14 pixels. A pixel is 1 where there is an object, else 0. Every
# picture shows a random subset of the four, possibly none.

import matplotlib.pyplot as plt
import numpy as np

from smallvar import BPMeans, feature_path

plt.rcParams["figure.constrained_layout.use"] = True

DRAWING = """
. a a a a . . . . . . . . .
a . . . . a . . b . . . b .
a . . . . a . . . b . b . .
a . . . . a . . . . b . . .
a . . . . a . . . b . b . .
. a a a a . . . b . . . b .
. . . . . . . . . . . . . .
. . . . . . . . . . . . . .
. c . . . . . . . . d . . .
. c c . . . . . . d d d . .
. c c c . . . . d d d d d .
. c c c c . . . . d d d . .
. c c c c c . . . . d . . .
. . . . . . . . . . . . . .
"""
grid = np.array(DRAWING.split()).reshape(14 * 14)
objects = np.array([grid == name for name in "abcd"], dtype=float)

rng = np.random.default_rng(0)
shown = rng.integers(2, size=(100, 4))
X = shown @ objects
print(X.shape)


def show(ax, values, title=None):
    """196 values as a picture: white is 0, blue 1, red -1."""
    picture = values.reshape(14, 14)
    ax.imshow(picture, cmap="RdBu", vmin=-1.5, vmax=1.5)
    ax.set(xticks=[], yticks=[], title=title)


fig, axes = plt.subplots(2, 8, figsize=(8, 2.2))
for ax, picture in zip(axes.flat, X, strict=False):
    show(ax, picture)

# %%
# The features
# ------------
#
# With `lam=40` a feature has to explain 40 pixels of all pictures together. Few starts end in the
# best solution, but a start takes about a tenth of a millisecond, so make 2,000.

for n_init in (1, 10, 100, 2000):
    model = BPMeans(lam=40, n_init=n_init, n_swaps=0, random_state=0).fit(X)
    error = model.reconstruction_err_**2
    print(
        f"{n_init:4d} starts: {model.n_components_} features, "
        f"squared error {error:.1f}, objective {model.objective_:.1f}"
    )

# %%
# The last one has four features and no error, so it costs 4 x 40. Its features are the objects, in
# an order of their own.

fig, axes = plt.subplots(1, 4, figsize=(8, 2.2))
for k, ax in enumerate(axes):
    users = model.assignments_[:, k].sum()
    show(ax, model.components_[k], f"feature {k}: {users} pictures")

# %%
# The others need more features for the same pictures. Here is what 10 starts find. Some features
# hold more than one object, and others take objects away (red).

few = BPMeans(lam=40, n_init=10, n_swaps=0, random_state=0).fit(X)
fig, axes = plt.subplots(1, few.n_components_, figsize=(8, 2.0))
for k, ax in enumerate(axes):
    show(ax, few.components_[k], f"feature {k}")

# %%
# How pictures are composed
# -------------------------
#
# Every picture is the sum of the features in its row of `assignments_`.

size = model.assignments_.sum(axis=1)
rows = [np.flatnonzero(size == count)[0] for count in (1, 2, 3, 4)]
fig, axes = plt.subplots(4, 5, figsize=(7, 6))
for ax in axes.flat:
    ax.axis("off")
for line, row in zip(axes, rows, strict=True):
    used = np.flatnonzero(model.assignments_[row])
    parts = [X[row], *model.components_[used]]
    titles = [f"picture {row}", *(f"feature {k}" for k in used)]
    for ax, part, title in zip(line, parts, titles, strict=False):
        ax.axis("on")
        show(ax, part, title)
    for ax, sign in zip(line[1:], "=+++"[: len(used)], strict=False):
        ax.text(-2.4, 7.5, sign, fontsize=16, ha="center")

# %%
# How many features?
# ------------------
#
# :func:`~smallvar.feature_path` minimizes the squared error for each number of features. From four
# on there is nothing left to explain. It also tells for which `lam` each number is best.

path = feature_path(X, 7, n_init=1000, n_swaps=0, random_state=0)
for k in range(5):
    low, high = path.lam_low[k], path.lam_high[k]
    print(f"{k} features: best for lam from {low:.0f} to {high:.0f}")

fig, ax = plt.subplots(figsize=(5, 3))
ax.plot(path.n_components, path.error, "o-")
ax.set(xlabel="number of features", ylabel="squared error")
ax.spines[["top", "right"]].set_visible(False)
plt.show()

# sphinx_gallery_thumbnail_path = "examples_built/panels/plot_dice_4.png"
