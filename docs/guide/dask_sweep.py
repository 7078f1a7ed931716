"""The first sweep over five partitions on three workers; drawn by guide/dask.rst."""

import matplotlib.pyplot as plt

LANES = ("worker 1", "worker 2", "worker 3", "driver")
SWEEP, AGAIN, DRIVER = "#cfe3cf", "#f3dcb8", "#e8eef4"
BOXES = (  # lane, begin, width, text, color
    (0, 0.0, 1.6, "rows of 0", SWEEP),
    (3, 1.9, 1.3, "0 opened 2", DRIVER),
    (0, 3.5, 1.6, "rows of 3", SWEEP),
    (1, 3.5, 1.6, "rows of 1\nand of 4", SWEEP),
    (2, 3.5, 1.6, "rows of 2", SWEEP),
    (3, 5.4, 1.9, "2 opened 1, which\n3 and 4 did not know", DRIVER),
    (0, 7.6, 1.5, "rows of 3,\nagain", AGAIN),
    (1, 7.6, 1.5, "rows of 4,\nagain", AGAIN),
    (3, 9.4, 1.2, "all right", DRIVER),
    (0, 10.9, 1.1, "sums", SWEEP),
    (1, 10.9, 1.1, "sums", SWEEP),
    (2, 10.9, 1.1, "sums", SWEEP),
    (3, 12.3, 1.6, "means: the\nnext centers", DRIVER),
)
TIMES = ((0.0, 3.2, "1 partition"), (3.5, 10.6, "4 partitions"), (10.9, 13.9, "means"))
ARROWS = (  # from box, to boxes
    (0, (1,)),
    (1, (2, 3, 4)),
    (2, (5,)),
    (3, (5,)),
    (4, (5,)),
    (5, (6, 7)),
    (6, (8,)),
    (7, (8,)),
    (8, (9, 10, 11)),
    (9, (12,)),
    (10, (12,)),
    (11, (12,)),
)

fig, ax = plt.subplots(figsize=(10, 3.6), layout="constrained")
for lane, name in enumerate(LANES):
    ax.plot([0, 13.9], [lane, lane], color="0.85", lw=1, zorder=0)
    ax.text(-0.2, lane, name, ha="right", va="center", fontsize=8)
for lane, begin, width, text, color in BOXES:
    ax.add_patch(plt.Rectangle((begin, lane - 0.34), width, 0.68, fc=color, ec="0.6", lw=0.8))
    ax.text(begin + width / 2, lane, text, ha="center", va="center", fontsize=7.5)
for source, targets in ARROWS:
    lane, begin, width, *_ = BOXES[source]
    for target in targets:
        other, start, *_ = BOXES[target]
        tip, tail = (start, other), (begin + width, lane)
        style = {"arrowstyle": "->", "color": "0.5", "lw": 0.9, "shrinkA": 0, "shrinkB": 0}
        ax.annotate("", tip, tail, arrowprops=style)
for begin, end, name in TIMES:
    ax.annotate("", (begin, -0.62), (end, -0.62), arrowprops={"arrowstyle": "<->", "color": "0.4"})
    ax.text((begin + end) / 2, -0.72, name, ha="center", va="bottom", fontsize=8)
ax.set(xlim=(-1.5, 14.0), ylim=(3.5, -1.1))
ax.axis("off")
