"""Draw the logo, the icon and the social preview of the documentation, and the README's badges.

    python tools/logo.py [--badges]

writes logo.svg, logo_dark.svg, icon.svg, social.png (1280 x 640 pixels) and the badges, with
--badges only these, into docs/_static. It needs matplotlib, and smallvar, whose clusters the
preview shows. The badges say what pyproject.toml and the package do, and need no service on the
network.
"""

import re
import sys
import tomllib
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_blobs

from smallvar import DPMeans

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "_static"
COLORS = ("#1f77b4", "#ff7f0e", "#2ca02c")  # the first three of every picture of the package
DARK, LIGHT = "#222832", "#f3f4f5"  # text on light pages, and on dark ones
TAGLINE = "Clustering for when you do not\nknow the number of clusters"


def draw_icon(ax):
    """Three clusters of seven dots each, in a square of side 2.2."""
    angles = np.pi / 3 * np.arange(6)
    around = np.column_stack([np.cos(angles), np.sin(angles)])
    dots = 0.34 * np.vstack([[0, 0], around])
    for center, color in zip([(0.51, 0.52), (1.69, 0.52), (1.1, 1.65)], COLORS, strict=True):
        for x, y in dots + center:
            ax.add_patch(plt.Circle((x, y), 0.145, color=color, lw=0))


def blank(width, height):
    """A figure without a background, of so many inches, and its axes in the units of an icon."""
    figure = plt.figure(figsize=(width, height), facecolor="none")
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, 2.2 * width / height), ylim=(0, 2.2), aspect="equal")
    ax.axis("off")
    return figure, ax


def save(figure, name, **options):
    """Write a picture whose bytes depend on nothing but this script and its packages."""
    empty = dict.fromkeys(("Creator", "Date", "Format", "Type")) if name.endswith("svg") else None
    figure.savefig(FOLDER / name, metadata=empty, **options)
    plt.close(figure)


def logo(name, color):
    """The icon, and the name beside it."""
    figure, ax = blank(4.3, 1.0)
    draw_icon(ax)
    ax.text(2.6, 0.98, "smallvar", size=46, weight="bold", color=color, va="center")
    save(figure, name)


def social():
    """The logo and what the package is for, beside clusters that it found."""
    figure = plt.figure(figsize=(12.8, 6.4), facecolor="white")
    ax = figure.add_axes((0.055, 0.56, 0.45, 0.3))
    ax.set(xlim=(0, 6.6), ylim=(0, 2.2), aspect="equal", anchor="W")
    ax.axis("off")
    draw_icon(ax)
    ax.text(2.6, 0.98, "smallvar", size=64, weight="bold", color=DARK, va="center")
    figure.text(0.062, 0.36, TAGLINE, size=24, color=DARK, va="center", linespacing=1.5)
    figure.text(0.062, 0.15, "DPMeans().fit(X)", size=24, color="#0a7d91", family="monospace")

    X, _ = make_blobs(
        [300, 200, 150, 100, 60, 40, 30],
        cluster_std=0.9,
        random_state=0,
        centers=[(0, 0), (7, 1), (3, 6), (-5, 5), (9, 8), (-6, -4), (4, -5)],
    )
    model = DPMeans(random_state=0).fit(X)
    ax = figure.add_axes((0.58, 0.05, 0.39, 0.9))
    palette = np.array(plt.get_cmap("tab10").colors)
    ax.scatter(*X.T, s=30, c=palette[model.labels_ % 10], alpha=0.8, lw=0)
    ax.scatter(*model.cluster_centers_.T, s=260, marker="+", c=DARK, lw=3)
    ax.axis("off")
    save(figure, "social.png", dpi=100)


BADGE = """\
<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img">
  <title>{name}: {value}</title>
  <rect width="{width}" height="20" rx="3" fill="#222832"/>
  <path d="M{left} 0h{rest}a3 3 0 0 1 3 3v14a3 3 0 0 1 -3 3h-{rest}z" fill="#0a7d91"/>
  <g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">
    <text x="7" y="14" textLength="{name_length}">{name}</text>
    <text x="{start}" y="14" textLength="{value_length}">{value}</text>
  </g>
</svg>
"""


def badges():
    """What each badge says, by its name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    version = (ROOT / "smallvar" / "_version.py").read_text(encoding="utf-8")
    newest = max(
        tuple(map(int, match.groups()))
        for match in map(re.compile(r".* :: (\d+)\.(\d+)").match, project["classifiers"])
        if match
    )
    return {
        "version": re.search(r'__version__ = "(.+)"', version)[1],
        "license": project["license"],
        "python": project["requires-python"].removeprefix(">=") + " to {}.{}".format(*newest),
    }


def badge(name, value):
    """The text of a badge, in letters of seven pixels, which a browser stretches or squeezes."""
    name_length, value_length = 7 * len(name), 7 * len(value)
    left, width = name_length + 14, name_length + value_length + 28
    return BADGE.format(
        name=name,
        value=value,
        width=width,
        left=left,
        rest=width - left - 3,
        start=left + 7,
        name_length=name_length,
        value_length=value_length,
    )


def main():
    """Write all."""
    for name, value in badges().items():
        (FOLDER / f"badge_{name}.svg").write_text(badge(name, value), encoding="utf-8")
    if "--badges" in sys.argv[1:]:
        return
    plt.rcParams["svg.hashsalt"] = "smallvar"
    logo("logo.svg", DARK)
    logo("logo_dark.svg", LIGHT)
    figure, ax = blank(1.0, 1.0)
    draw_icon(ax)
    save(figure, "icon.svg")
    social()


if __name__ == "__main__":
    main()
