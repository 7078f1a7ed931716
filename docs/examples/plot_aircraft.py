"""
Which aircraft is which?
========================

Every 20 seconds there is a list of positions of aircraft, without names. Which of them is the same
aircraft as 20 seconds ago? :class:`~smallvar.DynamicMeans` gives clusters numbers that stay, so
here a cluster is an aircraft, its life is a track, and births and deaths are aircraft that come and
go.

The positions, around Paris, are not part of smallvar. If the environment variable `SMALLVAR_DATA`
names a folder with adsb_quickstart_20s.csv, they are used. It has the columns id, seconds,
latitude, longitude, altitude (feet), groundspeed (knots) and track; the sample "quickstart" of the
Python package traffic, put on a grid of 20 seconds, becomes such a table. Otherwise the script lets
points fly.
"""

# %%
# The positions
# -------------
#
# `lam` is a squared distance, so all columns should be in the same unit: kilometers east and north
# of Paris. The altitude counts ten times, because aircraft that are 300 m apart in height may well
# be at the same place on the map. Aircraft on the ground are left out.

import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from smallvar import DynamicMeans

plt.rcParams["figure.constrained_layout.use"] = True
NAME = "adsb_quickstart_20s.csv"


def read_positions(path):
    """Kilometers east and north, tens of kilometers up; seconds; aircraft."""
    table = np.genfromtxt(path, delimiter=",", names=True)
    table = table[(table["groundspeed"] > 80) & (table["altitude"] < 50_000)]
    east = (table["longitude"] - 2.35) * 111.3 * np.cos(np.radians(48.86))
    north = (table["latitude"] - 48.86) * 111.2
    up = table["altitude"] * 0.0003048
    X = np.column_stack([east, north, 10 * up])
    return X, table["seconds"].astype(int), table["id"].astype(int)


def fly(n_aircraft=230, n_steps=540):
    """Straight flights through a circle of 100 km, seen 19 times of 20."""
    rng = np.random.default_rng(0)
    X, seconds, names = [], [], []
    for name in range(n_aircraft):
        enter = 2 * np.pi * rng.random()
        course = enter + np.pi + rng.uniform(-0.8, 0.8)
        speed = rng.uniform(2, 5)  # kilometers in 20 seconds
        step = np.arange(200)
        place = 100 * np.array([np.cos(enter), np.sin(enter)])
        place = place + speed * step[:, None] * [np.cos(course), np.sin(course)]
        height = np.full(len(step), rng.uniform(20, 110))
        first = rng.integers(-50, n_steps)
        seen = (np.hypot(*place.T) <= 100.01) & (rng.random(len(step)) < 0.95)
        seen &= (first + step >= 0) & (first + step < n_steps)
        X.append(np.column_stack([place, height])[seen])
        seconds.append(20 * (first + step[seen]))
        names.append(np.full(seen.sum(), name))
    return np.concatenate(X), np.concatenate(seconds), np.concatenate(names)


path = Path(os.environ.get("SMALLVAR_DATA", "."), NAME)
if path.exists():
    print("Aircraft around Paris")
    X, seconds, names = read_positions(path)
else:
    print("Generated flights, as SMALLVAR_DATA names no folder with positions")
    X, seconds, names = fly()
print(f"{len(X)} positions of {len(np.unique(names))} aircraft, {len(np.unique(seconds))} steps")

# %%
# The parameters
# --------------
#
# - `lam` says how far apart two clusters have to be in the same step. Every position is to be a
#   cluster of its own, unless a place is reported twice: 2 km, so `lam=4`.
# - `k_tau` says how far a cluster may go in a step, as a multiple: the square of that distance is
#   `k_tau * lam` at most. An airliner makes 5 km in 20 seconds, and the farthest that is allowed
#   should be a little more: 5.7 km, so `k_tau=8`.
# - `t_q` is the number of steps after which a cluster that was not seen is forgotten. It need not
#   be large, for a cluster stays where it was last seen while its aircraft flies on: `t_q=3`, a
#   minute.

model = DynamicMeans(lam=4, t_q=3, k_tau=8, random_state=0).fit(X, times=seconds)
print(f"{len(model.tracks_)} tracks, revived {sum(map(len, model.revivals_))} times")

# %%
# The names of the aircraft were not used. They tell how well this works: how many of the steps from
# one position of an aircraft to its next, 20 seconds later, stay in one cluster? And how many
# positions in a track are of the aircraft that has most of them?

order = np.lexsort((seconds, names))
next_one = (np.diff(names[order]) == 0) & (np.diff(seconds[order]) == 20)


def followed(model):
    """Share of the steps of an aircraft that stay in a cluster."""
    return np.mean(np.diff(model.labels_[order])[next_one] == 0)


def pure(model):
    """Share of the positions that are of the main aircraft of their track."""
    _, track = np.unique(model.labels_, return_inverse=True)
    common = np.zeros((track.max() + 1, names.max() + 1), dtype=int)
    np.add.at(common, (track, names), 1)
    return common.max(axis=1).sum() / len(names)


for k_tau in (1.01, 2, 4, 8, 16, 32):
    other = DynamicMeans(lam=4, t_q=3, k_tau=k_tau, random_state=0).fit(X, times=seconds)
    print(
        f"k_tau={k_tau:<4g}  up to {np.sqrt(4 * k_tau):.1f} km in a step: {followed(other):6.1%} "
        f"followed, {pure(other):6.1%} pure, {len(other.tracks_):4d} tracks"
    )

# %%
# Below 5 km, fast aircraft get a new number in every step. Far above, there are fewer tracks, as
# some are taken up again after a gap; but then more of them hold two aircraft or more.
#
# Tracks
# ------
#
# All tracks with at least five positions that were born in one half hour. A dot is where a track
# begins.


def draw_tracks(tracks, begin, end, ax):
    """Tracks on the map, a color each."""
    kept = [
        track
        for track in tracks.values()
        if len(track) >= 5 and begin <= model.times_[int(track[0, 0])] < end
    ]
    colors = plt.colormaps["turbo"](np.random.default_rng(1).permutation(len(kept)) / len(kept))
    for track, color in zip(kept, colors, strict=True):
        ax.plot(track[:, 1], track[:, 2], color=color, lw=1.2)
        ax.plot(*track[0, 1:3], "o", color=color, ms=3.5)
    ax.set(xlabel="km east", aspect="equal", title=f"{len(kept)} tracks")


now = (seconds >= 5400) & (seconds < 7200)
fig, (left, right) = plt.subplots(1, 2, figsize=(8, 4), sharex=True, sharey=True)
left.plot(*X[now, :2].T, ".", color="0.4", ms=2)
left.set(xlabel="km east", ylabel="km north", aspect="equal", title=f"{now.sum()} positions")
draw_tracks(model.tracks_, 5400, 7200, right)

# %%
# Height over time tells which of them took off, landed, or passed by.

fig, ax = plt.subplots(figsize=(8, 3))
for track in model.tracks_.values():
    if len(track) >= 5:
        ax.plot(model.times_[track[:, 0].astype(int)] / 60, track[:, 3] / 10, lw=0.8)
ax.set(xlabel="minutes", ylabel="km up", xlim=(90, 120))
ax.spines[["top", "right"]].set_visible(False)

# %%
# What it cannot do
# -----------------
#
# D-Means knows where a cluster was, but not where it was heading. An aircraft that was not seen for
# a minute has gone 15 km and comes back as a new cluster; and a distance that lets a fast one be
# followed lets two slow ones on the same approach be mixed up. A tracker that knows velocities does
# better at this.
plt.show()

# sphinx_gallery_thumbnail_path = "examples_built/panels/plot_aircraft_1.png"
