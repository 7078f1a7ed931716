"""
Which colors does a video need?
===============================

A video is to be shown with few colors. A palette made for each frame alone suits that frame, but
from frame to frame the same wall jumps between similar colors: it flickers.
:class:`~smallvar.DynamicMeans` lets the colors of the last frame move to where they are now, and
opens and forgets colors as things come and go. (After section 8.5 of Campbell, Kulis and How,
2017.)

The frames are not part of smallvar. If the environment variable `SMALLVAR_DATA` names a folder with
carphone_30x144x176_rgb.npz (30 frames of 144 x 176 pixels, as `X`), they are used; the sequence
"carphone" is in many collections of test videos. Otherwise the script draws a video.
"""

# %%
# The video
# ---------
#
# Colors are rows of three numbers from 0 to 255. A palette is made from 2,000 pixels, the same
# places in all frames, and then used for all pixels.

import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.cluster import KMeans
from sklearn.metrics import pairwise_distances_argmin

from smallvar import DPMeans, DynamicMeans

plt.rcParams["figure.constrained_layout.use"] = True
NAME = "carphone_30x144x176_rgb.npz"


def draw_video():
    """Two balls pass before a wall, while the light changes a little."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:144, :176]
    wall = 60 + 0.5 * x[..., None] * [1, 0.8, 0.5] + 0.3 * y[..., None] * [0, 0.5, 1]
    frames = []
    for t in range(30):
        frame = wall * (1 + 0.01 * np.sin(t))
        red, blue = (60, 8 * t - 30, [220, 60, 50]), (100, 190 - 7 * t, [40, 90, 200])
        for row, column, color in (red, blue):
            far = np.hypot(y - row, x - column)[..., None] / 28
            frame = np.where(far < 1, (1 - 0.5 * far) * color, frame)
        frames.append(frame + rng.normal(0, 1, frame.shape))
    return np.clip(np.round(frames), 0, 255)


path = Path(os.environ.get("SMALLVAR_DATA", "."), NAME)
if path.exists():
    print("The carphone sequence")
    video = np.load(path)["X"].astype(float)
else:
    print("A drawn video, as SMALLVAR_DATA names no folder with frames")
    video = draw_video()
n_frames, height, width, _ = video.shape
pixels = video.reshape(n_frames, -1, 3)
sample = pixels[:, np.random.default_rng(0).permutation(height * width)[:2000]]

# %%
# Four kinds of palettes
# ----------------------
#
# A color that is more than 50 from all in the palette is worth a new one: `lam=50**2`. A color is
# to be kept for some time when it is not seen, since it may come back: `t_q=15`, half a second of
# video. Colors hardly move from frame to frame, so `k_tau` is close to 1.

model = DynamicMeans(lam=50**2, t_q=15, k_tau=1.01, random_state=0)
palettes = {"DynamicMeans": []}
for frame in sample:
    model.partial_fit(frame)
    palettes["DynamicMeans"].append(model.cluster_centers_[model.ages_ == 1])
sizes = [len(palette) for palette in palettes["DynamicMeans"]]
K = round(np.mean(sizes))
print(f"DynamicMeans: {min(sizes)} to {max(sizes)} colors in a frame, {K} on average")

# %%
# The others shall have about as many. For DP-means, take the penalty that comes closest. k-means
# starts anew in every frame, or once and for all: one palette, made of all frames, is as steady as
# can be, but it needs the whole video beforehand.


def palettes_alone(lam):
    """DP-means, frame by frame; so few pixels are not worth a second thread."""
    return [DPMeans(lam=lam, n_threads=1).fit(frame).cluster_centers_ for frame in sample]


found = [palettes_alone(length**2) for length in (32, 36, 40, 44, 48, 52)]
counts = [np.mean([len(palette) for palette in kind]) for kind in found]
palettes["DPMeans"] = found[np.argmin(np.abs(np.array(counts) - K))]
palettes["KMeans"] = [
    KMeans(K, n_init=1, random_state=0).fit(frame).cluster_centers_ for frame in sample
]
one = KMeans(K, n_init=1, random_state=0).fit(sample[:, :500].reshape(-1, 3))
palettes["one palette"] = [one.cluster_centers_] * n_frames

# %%
# Flicker
# -------
#
# Quantize all frames: every pixel takes the nearest color of its frame's palette. Then look at the
# pixels whose original color stays the same from one frame to the next, up to the noise: no channel
# changes by more than 2 (of 255). By how much does their quantized color change? The mean of its
# squared change, over these pixels and all frames, is the flicker. The squared error of the
# quantized colors tells whether it was paid for with worse colors.

still = np.abs(np.diff(pixels, axis=0)).max(axis=2) <= 2
print(f"{still.mean():.0%} of the pixels stay the same from one frame to the next")
quantized, flicker, error = {}, {}, {}
for name, kind in palettes.items():
    quantized[name] = np.array(
        [
            palette[pairwise_distances_argmin(frame, palette)]
            for frame, palette in zip(pixels, kind, strict=True)
        ]
    )
    change = (np.diff(quantized[name], axis=0) ** 2).sum(axis=2)
    flicker[name] = change[still].mean()
    error[name] = ((quantized[name] - pixels) ** 2).sum(axis=2).mean()
    size = np.mean([len(palette) for palette in kind])
    print(
        f"{name:14s}{size:5.1f} colors, flicker {flicker[name]:6.1f}, "
        f"squared error {error[name]:6.1f}"
    )

fig, axes = plt.subplots(1, 2, figsize=(8, 2.4), sharey=True)
for ax, values, title in zip(axes, (flicker, error), ("flicker", "squared error"), strict=True):
    bars = ax.barh(list(values), list(values.values()), color=["C1", "C0", "C0", "0.7"])
    ax.bar_label(bars, fmt="%.0f", padding=3)
    ax.set(title=title, xticks=[])
    ax.spines[["top", "right", "bottom"]].set_visible(False)
axes[0].invert_yaxis()

# %%
# What it looks like
# ------------------
#
# The two frames between which k-means flickers most, and where the quantized color of a pixel
# changes although the original does not (the darker, the more).

change = (np.diff(quantized["KMeans"], axis=0) ** 2).sum(axis=2)
worst = np.argmax((change * still).sum(axis=1) / still.sum(axis=1))
shape = (height, width, 3)
fig, axes = plt.subplots(3, 4, figsize=(8, 5.0))
pictures = {"original": pixels} | {name: quantized[name] for name in list(palettes)[:3]}
for column, (name, frames) in zip(axes.T, pictures.items(), strict=True):
    for ax, frame in zip(column, frames[worst : worst + 2], strict=False):
        ax.imshow(frame.reshape(shape).astype(np.uint8))
    change = np.sqrt(((frames[worst + 1] - frames[worst]) ** 2).sum(axis=1)) * still[worst]
    column[2].imshow(change.reshape(shape[:2]), cmap="Greys", vmin=0, vmax=60)
    column[0].set_title(name)
for ax, label in zip(axes[:, 0], (f"frame {worst}", f"frame {worst + 1}", "change"), strict=True):
    ax.set_ylabel(label)
for ax in axes.flat:
    ax.set(xticks=[], yticks=[])
plt.show()

# sphinx_gallery_thumbnail_path = "examples_built/panels/plot_flicker_1.png"
