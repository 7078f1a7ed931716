"""Pictures of the examples: at the top of their pages, and one panel as thumbnail."""

import re
from pathlib import Path

import matplotlib.pyplot as plt
from sphinx_gallery.scrapers import matplotlib_scraper

BLOCK = ".. GENERATED FROM PYTHON SOURCE"
PICTURE = r"\.\. image-sg::.*\n(?:   .*\n)+"
PICTURES = rf"\.\. rst-class:: sphx-glr-horizontal\n\n\n(?:    \*\n\n(?:      .*\n)+\n?)+|{PICTURE}"


def picture_first(app, docname, source):
    """Show the first picture of an example below its introduction, above all code."""
    pictures = re.search(PICTURES, source[0])
    if docname.startswith("examples_built/plot_") and pictures:
        text = source[0].replace(pictures[0], "")
        source[0] = text.replace(BLOCK, f"{pictures[0]}\n{BLOCK}", 1)


def save_pictures(block, block_vars, gallery_conf):
    """Save the pictures of an example, and the first panel of each for the thumbnail."""
    folder = Path(gallery_conf["src_dir"], "examples_built", "panels")
    folder.mkdir(parents=True, exist_ok=True)
    name, saved = Path(block_vars["src_file"]).stem, block_vars["image_path_iterator"].paths
    for number, figure in enumerate(map(plt.figure, plt.get_fignums()), len(saved) + 1):
        figure.canvas.draw()
        panel = figure.axes[0].get_tightbbox().padded(6)
        bounds = panel.transformed(figure.dpi_scale_trans.inverted())
        figure.savefig(folder / f"{name}_{number}.png", bbox_inches=bounds)
    return matplotlib_scraper(block, block_vars, gallery_conf)
