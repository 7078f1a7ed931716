"""The pages of the documentation as source: every page in one place, links that lead somewhere."""

import importlib.util
import inspect
import re
from collections import Counter
from pathlib import Path

import pytest

import smallvar
import smallvar.dask

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
if not (DOCS / "conf.py").is_file():
    pytest.skip("the source tree is not at hand", allow_module_level=True)

BUILT = ("_build", "generated", "examples_built")
PAGES = sorted(
    page for page in DOCS.rglob("*.rst") if not set(page.relative_to(DOCS).parts) & set(BUILT)
)
GROUPS = ("Start", "Choose and judge", "Estimators", "Why it works", "Evidence")


def toctrees(page):
    """The captions of the lists of pages that a page has, and the names in each."""
    pattern = r"(?m)^\.\. toctree::\n((?:   :.*\n)+)\n((?:   .+\n?)+)"
    for options, names in re.findall(pattern, page.read_text(encoding="utf-8")):
        caption = re.search(r":caption: (.+)", options)
        yield caption and caption[1], names.split()


def test_every_page_of_the_guide_is_in_one_group():
    groups = dict(toctrees(DOCS / "guide/index.rst"))
    assert tuple(groups) == GROUPS
    listed = Counter(name for names in groups.values() for name in names)
    assert set(listed.values()) == {1}
    assert set(listed) == {page.stem for page in (DOCS / "guide").glob("*.rst")} - {"index"}


def test_the_list_of_the_api_has_every_name_once():
    text = (DOCS / "api.rst").read_text(encoding="utf-8")
    blocks = re.findall(r"(?m)^\.\. autosummary::\n(?:   :.*\n)+\n((?:   .+\n)+)", text)
    listed = Counter(name for block in blocks for name in block.split())
    assert set(listed.values()) == {1}
    names = {name for name in smallvar.__all__ if name != "__version__"}
    assert set(listed) == names | {f"dask.{name}" for name in smallvar.dask.__all__}


@pytest.fixture(scope="module")
def formulas():
    spec = importlib.util.spec_from_file_location("formulas", DOCS / "formulas.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("plain", "latex"),
    [
        (
            "sum_i w_i ||x_i - mu_{z_i}||^2 + lam * K,",
            r"\sum _{i} w_{i} \lVert x_{i} - \mu _{z_{i}} \rVert^{2} + \lambda \, K,",
        ),
        ("tr(S_k^-1) >= x . mu", r"\operatorname{tr} (S_{k}^{-1}) \ge  x \cdot \mu "),
        ("sum_{a, b in one cluster} T_ab", r"\sum _{a, b\text{ in one cluster}} T_{ab}"),
        (
            "lam_local * (number of t with z_t != 0)",
            r"\lambda _{\text{local}}\, (\text{number of }t\text{ with }z_{t} \ne  0)",
        ),
        ("sum_k new_costs_k", r"\sum _{k} \mathrm{new\_costs}_{k}"),
        ('lam * K   (cut="ratio")', r'\lambda \, K \qquad (\texttt{cut="ratio"})'),
    ],
)
def test_formulas_of_docstrings_are_set(formulas, plain, latex):
    assert formulas.set_line(plain) == latex


def test_what_is_a_formula(formulas):
    """Indented paragraphs with a sum, a norm or a penalty are; blocks of code are not."""
    text = (
        "Minimizes\n\n    sum_i x_i,\n    + lam * K\n\nover z ::\n\n    sum_i x_i\n\n    a list\n"
    )
    rows = (
        "\\begin{aligned}\n   & \\sum _{i} x_{i}, \\\\\n   & + \\lambda \\, K\n   \\end{aligned}\n"
    )
    first = "    sum_i x_i,\n    + lam * K\n"
    assert formulas.set_formulas(text) == text.replace(first, f".. math::\n\n   {rows}")


def test_the_objective_of_every_estimator_is_a_formula(formulas):
    without = {"dask.ShapeMeans"}  # that of ShapeMeans, which it names
    estimators = {
        name: getattr(smallvar, name)
        for name in smallvar.__all__
        if hasattr(getattr(smallvar, name), "get_params")
    } | {f"dask.{name}": getattr(smallvar.dask, name) for name in smallvar.dask.__all__}
    assert len(estimators) > 20
    for name, estimator in estimators.items():
        head = inspect.getdoc(estimator).partition("\nParameters\n")[0]
        assert (".. math::" in formulas.set_formulas(head)) == (name not in without), name
