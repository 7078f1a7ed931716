"""
What is on the table?
=====================

Griffiths and Ghahramani took 100 photos of a table with up to four objects on it: a stone axe, a
Klein bottle, a phone and a banknote. Broderick, Kulis and Jordan (2013) let BP-means find the
objects; this page does the same.

The photos are not part of smallvar. They come with the program of that paper, published as bp-means
by Tamara Broderick. If the environment variable `SMALLVAR_DATA` names a folder with
bp_means_tabletop_60x80_rgb.npz (the photos at 60 x 80 pixels, as `X`) and
bp_means_tabletop_pca100.csv (their principal components), they are used. Otherwise the script draws
pictures of the same kind: four soft spots on a table.
"""

# %%
# The photos
# ----------
#
# A row of the data is one photo, flattened: its pixels in all three colors, one after the other.
# Thousands of pixels are many columns for 100 rows. A hundred principal components keep all
# distances and are much faster to work with. Those of the photos were made as in Broderick's
# program: the pixels of all three colors, from 0 to 1, divided by the square root of n - 1, less
# the mean photo. From the drawn pictures nothing is subtracted.

import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from smallvar import BPMeans, KFeatures, feature_path

plt.rcParams["figure.constrained_layout.use"] = True
NAMES = ("bp_means_tabletop_60x80_rgb.npz", "bp_means_tabletop_pca100.csv")


def principal_components(photos):
    """As many coordinates as there are photos, with the same distances."""
    flat = photos.reshape(len(photos), -1) / np.sqrt(len(photos) - 1)
    u, s, _ = np.linalg.svd(flat, full_matrices=False)
    return u * s


def draw_photos(n=100):
    """A table with up to four spots, all of them a little noisy."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:60, :80]
    table = 0.1 + 0.004 * np.maximum(y - 28, 0)
    table = table[..., None] * [0.9, 1.0, 0.5]
    spots = [
        (44, 20, 6, 8, [0.6, 0.45, 0.1]),
        (24, 36, 9, 4, [0.3, 0.55, 0.4]),
        (38, 60, 4, 9, [0.2, 0.25, 0.6]),
        (50, 50, 4, 12, [0.5, 0.6, 0.4]),
    ]
    photos = np.empty((n, 60, 80, 3))
    for photo in photos:
        photo[:] = table * rng.normal(1.0, 0.05)  # the light changes a little
        for row, column, height, width, color in spots:
            if rng.random() < 0.5:
                dy, dx = rng.normal(0.0, 0.4, size=2)  # not quite the same place
                far = ((y - row - dy) / height) ** 2 + ((x - column - dx) / width) ** 2
                photo += np.exp(-(far**2))[..., None] * color
    photos += 0.02 * rng.standard_normal(photos.shape)
    return photos.clip(0.0, 1.0)


folder = Path(os.environ.get("SMALLVAR_DATA", "."))
if all((folder / name).exists() for name in NAMES):
    print("Griffiths and Ghahramani's photos")
    photos = np.load(folder / NAMES[0])["X"] / 255
    X = np.loadtxt(folder / NAMES[1], delimiter=",", skiprows=1)
else:
    print("Drawn pictures, as SMALLVAR_DATA names no folder with photos")
    photos = draw_photos()
    X = principal_components(photos)


def show(ax, picture, title=None):
    """A color picture; values outside of 0 to 1 are cut off."""
    ax.imshow(np.clip(picture, 0, 1))
    ax.set(xticks=[], yticks=[], title=title)


fig, axes = plt.subplots(2, 5, figsize=(8, 2.6))
for ax, photo in zip(axes.flat, photos, strict=False):
    show(ax, photo)

# %%
# How many features?
# ------------------
#
# The squared error (drawn as its logarithm) bends where no more objects are left to explain. The
# number of features that is best for the widest range of `lam`, as a ratio, is a good choice.

path = feature_path(X, 8, n_init=50, n_swaps=50, random_state=0)
ratio = path.lam_high[1:-1] / path.lam_low[1:-1]
K = 1 + int(np.nanargmax(ratio))
low, high = path.lam_low[K], path.lam_high[K]
print(f"{K} features are best for lam from {low:.1f} to {high:.1f}")

fig, ax = plt.subplots(figsize=(5, 3))
ax.plot(path.n_components, path.error, "o-")
ax.plot(K, path.error[K], "o", ms=12, mfc="none")
ax.set(xlabel="number of features", ylabel="squared error")
ax.semilogy()
ax.spines[["top", "right"]].set_visible(False)

# %%
# A `lam` inside this range lets BP-means find as many by itself. Swaps make the starts better.

lam = np.sqrt(low * high)
model = BPMeans(lam=lam, n_init=50, n_swaps=50, random_state=0).fit(X)
error = model.reconstruction_err_**2
print(f"lam={lam:.1f}: {model.n_components_} features, squared error {error:.2f}")
print(f"path: {K} features, squared error {path.error[K]:.2f}")

# %%
# Features as pictures
# --------------------
#
# `components_` are features in coordinates of the principal components. As pictures they are what
# explains the photos best, given who has which feature: the least squares of the photos on
# `assignments_`.


def as_pictures(Z):
    """Photos are about Z times these."""
    flat = photos.reshape(len(photos), -1)
    pictures = np.linalg.lstsq(Z.astype(float), flat, rcond=None)[0]
    return pictures.reshape(-1, *photos.shape[1:])


def show_features(Z):
    """Features, on gray ground unless all photos have them."""
    pictures = as_pictures(Z)
    _, axes = plt.subplots(1, len(pictures), figsize=(8, 1.7))
    for k, ax in enumerate(axes):
        ground = 0.0 if Z[:, k].all() else 0.5
        title = f"feature {k}:\n{Z[:, k].sum()} photos"
        show(ax, ground + pictures[k], title)


show_features(model.assignments_)

# %%
# Many allocations describe the same sums. A table without the note and a table with it, one of them
# in every photo, say as much as a table in every photo and a note in some. And a feature that takes
# the phone away from a table with a phone says as much as one that puts it there. The objective
# cannot choose between them, so choose the one that is easiest to read: a table that all photos
# have, and features that make a photo brighter.


def easy_to_read(Z):
    """The same sums, from a feature of all photos and brighter ones."""
    new = np.ones((len(Z), 1), dtype=int)
    for column in Z.T:
        more = np.column_stack([new, column])
        if np.linalg.matrix_rank(more) == more.shape[1]:
            new = more
    if new.shape[1] > Z.shape[1]:
        return Z  # there is nothing that all photos have
    darker = as_pictures(new).sum(axis=(1, 2, 3)) < 0
    new[:, darker] = 1 - new[:, darker]
    return new


Z = easy_to_read(model.assignments_)
pictures = as_pictures(Z)
show_features(Z)

# %%
# The objective is the same. A fit that starts from these rows stays there:

again = KFeatures(K, init=Z).fit(X)
print(f"squared error {error:.6f} before, {again.objective_:.6f} now")
print(f"{np.count_nonzero(again.assignments_ != Z)} bits changed")

# %%
# How photos are composed
# -----------------------
#
# On the left the photo, then the sum of its features, then the features.

size = Z.sum(axis=1)
rows = [np.flatnonzero(size == count)[0] for count in np.unique(size)[-4:]]
fig, axes = plt.subplots(len(rows), K + 2, figsize=(8, 4.2))
for ax in axes.flat:
    ax.axis("off")
for line, row in zip(axes, rows, strict=True):
    show(line[0], photos[row], f"photo {row}")
    show(line[1], np.tensordot(Z[row], pictures, 1), "sum")
    for ax, k in zip(line[2:], np.flatnonzero(Z[row]), strict=False):
        show(ax, pictures[k] if Z[:, k].all() else 0.5 + pictures[k])
        sign = "=" if ax is line[2] else "+"
        ax.text(-10, 33, sign, fontsize=12, ha="center")
plt.show()

# sphinx_gallery_thumbnail_path = "examples_built/panels/plot_tabletop_5.png"
