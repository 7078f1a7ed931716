"""
What was the machine doing, and when?
=====================================

A pump is off, runs idle, works, or works against a blocked pipe; now and then someone changes that.
All there is are two readings a second, its current and its pressure. How many things does it do,
and when did it do which?

:class:`~smallvar.SegmentMeans` cuts the record into segments whose states come back. A state costs
something, and so does each switch; how much is found from the noise between neighboring rows.
"""

# %%
# The record
# ----------
#
# Two of the four states differ by little more than the noise, in both columns.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import adjusted_rand_score

from smallvar import DPMeans, SegmentMeans

plt.rcParams["figure.constrained_layout.use"] = True

rng = np.random.default_rng(3)
states = np.array([[0.0, 0.0], [2.0, 0.6], [5.0, 3.5], [6.2, 4.6]])  # amperes, bars
order = [0, 1, 2, 1, 2, 3, 2, 1, 0, 1, 2, 3, 1, 2, 0]
truth = np.repeat(order, rng.integers(40, 160, size=len(order)))
X = states[truth] + rng.normal(size=(len(truth), 2)) * 0.8

# %%
# With and without time
# ---------------------
#
# :class:`~smallvar.DPMeans` sees the rows without their order. Above are its clusters along the
# record, below those of `SegmentMeans`. Both choose their number.

apart = DPMeans(random_state=0).fit(X)
model = SegmentMeans().fit(X)

colors = np.array(plt.get_cmap("tab10").colors)
seconds = np.arange(len(X)) / 2
fig, axes = plt.subplots(2, 1, figsize=(8, 5), sharex=True, sharey=True)
for ax, fitted in zip(axes, (apart, model), strict=True):
    ax.scatter(seconds, X[:, 0], s=5, color=colors[fitted.labels_])
    ax.plot(seconds, fitted.cluster_centers_[fitted.labels_, 0], color="black", lw=0.8)
    score = adjusted_rand_score(truth, fitted.labels_)
    name = type(fitted).__name__
    ax.set(ylabel="current (A)", title=f"{name}: {fitted.n_clusters_} states, ARI {score:.3f}")
axes[1].set(xlabel="seconds")

# %%
# What it did, and when
# ---------------------
#
# `segments_` are the rows at which segments begin. Here are the states as they were gone through,
# and the first of them with their seconds.

path = model.labels_[model.segments_]
print("states:", path.tolist())
print("truth: ", order)
for start, state in zip(model.segments_[:5], path[:5], strict=True):
    amperes, bars = model.cluster_centers_[state]
    print(f"from {seconds[start]:6.1f} s: {amperes:4.1f} A, {bars:4.1f} bar")

# %%
# A new record
# ------------
#
# `predict` finds the cheapest way through the states that are known. Its rows are a record, too:
# the order matters.

again = np.repeat([1, 3, 2], 50)
new = states[again] + rng.normal(size=(150, 2)) * 0.8
found = model.predict(new)
print("rows with the right state:", int((found == again).sum()), "of", len(again))

# %%
# One switch more or less
# -----------------------
#
# With a lower `lam_switch` short excursions of the noise become segments; with a higher one short
# stays are passed over. The number that the data chose is the dotted line.

prices = model.lam_switch_ * np.array([0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20])
counts = [SegmentMeans(lam_switch=price).fit(X).n_switches_ for price in prices]
fig, ax = plt.subplots(figsize=(6, 3))
ax.loglog(prices, counts, "o-")
ax.axhline(len(order) - 1, color="0.6", lw=1, label="true number")
ax.axvline(model.lam_switch_, color="black", ls=":", label="lam_switch_")
ax.set(xlabel="lam_switch", ylabel="switches")
ax.legend()

plt.show()

# sphinx_gallery_thumbnail_path = "examples_built/panels/plot_segments_1.png"
