"""The choice among the estimators as a tree of questions; drawn by guide/index.rst."""

import matplotlib.pyplot as plt

# a question, then what each answer leads to: another question, or an estimator
TREE = (
    "How many groups may\na row belong to?",
    [
        (
            "one",
            "What are the data?",
            [
                (
                    "points",
                    "What do clusters look like?",
                    [
                        ("compact", "DPMeans", None),
                        ("compact, among noise", "RobustDPMeans", None),
                        ("compact, rows come in batches", "MiniBatchDPMeans", None),
                        ("directions: embeddings, text", "SphericalDPMeans", None),
                        ("long, each in its own direction", "MahalanobisMeans", None),
                        ("counts, spectra, fractions", "BregmanDPMeans", None),
                        ("shared by several data sets", "HDPMeans", None),
                        ("moving, coming and going", "DynamicMeans", None),
                        ("rows in an order stay in a state", "SegmentMeans", None),
                    ],
                ),
                (
                    "a kernel",
                    "What else?",
                    [
                        ("any outline", "KernelDPMeans", None),
                        ("and a bound on the objective", "SpectralDPMeans", None),
                        ("shared by several data sets", "KernelHDPMeans", None),
                        ("moving", "KernelDynamicMeans,\nSpectralDynamicMeans", None),
                    ],
                ),
                ("a table: words, flags, gaps", "MixedDPMeans", None),
                ("links of a graph", "PenalizedCut", None),
            ],
        ),
        (
            "several",
            "Is their number known?",
            [("no", "BPMeans", None), ("yes", "KFeatures", None)],
        ),
    ],
)
COLUMNS = (0.0, 3.3, 7.4, 13.4)  # where the questions of each depth begin
WIDTHS = (2.3, 2.2, 2.8, 2.9)


def leaves(branches):
    """How many estimators there are below."""
    return sum(1 if below is None else leaves(below) for _, _, below in branches)


def draw(ax, text, branches, depth, top):
    """Draw a question with all that is below it."""
    n = leaves(branches)
    x, y = COLUMNS[depth], top + (n - 1) / 2
    box(ax, text, x, y, WIDTHS[depth], "#e8eef4")
    row = top
    for answer, then, below in branches:
        size = 1 if below is None else leaves(below)
        end = 3 if below is None else depth + 1
        at = row + (size - 1) / 2
        if below is None:
            box(ax, then, COLUMNS[3], at, WIDTHS[3], "#cfe3cf")
        else:
            draw(ax, then, below, end, row)
        start = x + WIDTHS[depth]
        ax.plot([start, start + 0.15, start + 0.15], [y, y, at], color="0.6", lw=1, zorder=0)
        ax.plot([start + 0.15, COLUMNS[end]], [at, at], color="0.6", lw=1, zorder=0)
        ax.text(start + 0.2, at - 0.08, answer, fontsize=7.5, va="bottom", color="0.2")
        row += size


def box(ax, text, x, y, width, color):
    """A box with text, its left end at x."""
    ax.add_patch(plt.Rectangle((x, y - 0.4), width, 0.8, fc=color, ec="0.6", lw=0.8))
    ax.text(x + width / 2, y, text, ha="center", va="center", fontsize=7.5)


fig, ax = plt.subplots(figsize=(10, 6), layout="constrained")
draw(ax, *TREE, 0, 0)
ax.set(xlim=(-0.1, 16.4), ylim=(leaves(TREE[1]) - 0.4, -0.6))
ax.axis("off")
