"""Sphinx configuration. Builds without a network: no intersphinx, pictures drawn at build time."""

import os
import subprocess
import sys
import warnings
from pathlib import Path

import smallvar

sys.path.insert(0, str(Path(__file__).parent))
import formulas
import pictures

project = "smallvar"
author = "The smallvar developers"
copyright = "The smallvar developers"
version = release = smallvar.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx-mathjax-offline",  # formulas without a network
    "matplotlib.sphinxext.plot_directive",
    "numpydoc",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "sphinxext.opengraph",
]
templates_path = ["_templates"]
exclude_patterns = ["_build", "_templates", "examples"]
default_role = "literal"
nitpicky = True  # a name that leads nowhere is an error, but for names of other packages
nitpick_ignore_regex = [
    ("py:.*", r"(pandas|scipy|sklearn|threadpoolctl)\b.*"),
    ("py:obj", r"[a-z]+(_[a-z]+)*_"),  # learned attributes, which numpydoc lists
    ("py:obj", "criterion|error|metric|ranking"),  # those of paths
]

# The class template lists the methods; numpydoc would list them once more.
numpydoc_show_class_members = False
# Types are in the docstrings, in words, with shapes.
autodoc_typehints = "none"
# The list of the methods beside a page has no room for the class.
toc_object_entries_show_parents = "hide"

# What is copied are the commands, without prompts and what they print.
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
# A block without prompts is copied whole; these are not for copying: help texts and results.
copybutton_selector = "div.highlight:not(.highlight-text *, .highlight-none *) pre"

plot_include_source = True
plot_html_show_source_link = False
plot_html_show_formats = False
plot_formats = [("png", 144)]
plot_rcparams = {
    "figure.figsize": (7.0, 3.2),
    "figure.constrained_layout.use": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
}
plot_apply_rcparams = True

sphinx_gallery_conf = {
    "examples_dirs": "examples",
    "gallery_dirs": "examples_built",
    "backreferences_dir": "generated/backreferences",  # the examples that use a class, for its page
    "doc_module": ("smallvar",),
    "reference_url": {"smallvar": None},
    "image_scrapers": ("pictures.save_pictures",),
    "capture_repr": (),  # what is to be seen is printed
    "download_all_examples": False,
    "run_stale_examples": True,  # what they show depends on SMALLVAR_DATA too
    "remove_config_comments": True,
    "within_subsection_order": "FileNameSortKey",
    "show_signature": False,
    "write_computation_times": False,
    "min_reported_time": 60,
    "abort_on_example_error": True,
}

html_theme = "pydata_sphinx_theme"
html_title = f"smallvar {release}"
html_logo = "_static/logo.svg"
html_favicon = "_static/icon.svg"
html_baseurl = os.environ.get("READTHEDOCS_CANONICAL_URL", "")
html_theme_options = {
    "logo": {"image_dark": "_static/logo_dark.svg", "alt_text": "smallvar"},
    # The list of the newest pages serves those of all versions. It is read by the browser only.
    "switcher": {
        "json_url": "https://smallvar.readthedocs.io/en/latest/_static/switcher.json",
        "version_match": "latest" if os.environ.get("READTHEDOCS_VERSION") == "latest" else release,
    },
    "check_switcher": False,
    "navbar_end": ["version-switcher", "theme-switcher", "navbar-icon-links"],
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "footer_start": ["copyright"],
    "footer_end": [],
    "use_edit_page_button": True,
}
html_context = {
    "github_user": "smallvar",
    "github_repo": "smallvar",
    "github_version": "main",
    "doc_path": "docs",
    "default_mode": "auto",
}
# What other pages show of a link to one of these.
ogp_site_url = html_baseurl or "https://smallvar.readthedocs.io/en/latest/"
ogp_site_name = "smallvar"
ogp_image = "_static/social.png"
ogp_social_cards = {"enable": False}
html_show_sourcelink = False
html_static_path = ["_static"]
html_css_files = ["wide.css"]
html_sidebars = {page: [] for page in ("install", "changelog")}


def format_warning(message, category, filename, lineno, line=None):
    """A warning as the examples show it: without the path of the machine that built the page."""
    return f"{category.__name__}: {message}\n"


def setup(app):
    """Show pictures first, set formulas; write what the command line says as help."""
    warnings.formatwarning = format_warning
    app.connect("source-read", pictures.picture_first)
    app.connect("autodoc-process-docstring", formulas.process, priority=400)  # before numpydoc
    environment = os.environ | {"COLUMNS": "74", "NO_COLOR": "1"}
    folder = Path(app.srcdir, "generated")
    folder.mkdir(exist_ok=True)
    usage = subprocess.run(
        # -P: the folder smallvar of the source, where sphinx is started, is not built
        [sys.executable, "-P", "-m", "smallvar", "--help"],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    ).stdout
    indented = "".join(f"   {line}\n" if line else "\n" for line in usage.splitlines())
    Path(folder, "command_line.inc").write_text(f".. code-block:: text\n\n{indented}")
