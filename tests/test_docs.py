"""The pages of the documentation as source: every page in one place, links that lead somewhere."""

import inspect
import re
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from helpers import script

import smallvar
import smallvar.dask

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
if not (DOCS / "conf.py").is_file():
    pytest.skip("the source tree is not at hand", allow_module_level=True)

APART = ("_build", "_templates", "generated", "examples_built")
PAGES = sorted(
    page for page in DOCS.rglob("*.rst") if not set(page.relative_to(DOCS).parts) & set(APART)
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
    return script("docs/formulas.py")


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
    estimators = {
        name: getattr(smallvar, name)
        for name in smallvar.__all__
        if hasattr(getattr(smallvar, name), "get_params")
    }
    assert len(estimators) >= 20
    for name, estimator in estimators.items():
        head = inspect.getdoc(estimator).partition("\nParameters\n")[0]
        assert ".. math::" in formulas.set_formulas(head), name


# Links

REPOSITORY = re.compile(
    r"https://(?:github\.com/smallvar/smallvar/(?:blob|tree|raw)"
    r"|raw\.githubusercontent\.com/smallvar/smallvar)/main/([^#]+)"
)
MARKDOWN = [*ROOT.glob("*.md"), *(ROOT / ".github").rglob("*.md"), *(ROOT / "recipe").glob("*.md")]


def outside(target):
    """Whether a link leads out of the tree; it must then be an address as it should be."""
    if not re.match(r"\w+:", target):
        return False
    parts = urlsplit(target)
    assert parts.scheme in ("https", "http", "mailto"), target
    assert parts.scheme == "mailto" or re.fullmatch(r"(?:[\w-]+\.)+\w{2,}", parts.netloc), target
    assert not re.search(r"\s", target), target
    return True


def absent(folder, target):
    """Whether a link to a file of this tree leads nowhere."""
    here = REPOSITORY.fullmatch(target)
    if here:
        return not (ROOT / here[1]).exists()
    return not outside(target) and not (folder / target.partition("#")[0]).exists()


NEEDS_RESULTS = pytest.mark.skipif(
    not (DOCS / "reproductions" / "results").is_dir(), reason="the sdist has no results to link to"
)


@NEEDS_RESULTS
def test_links_of_markdown_lead_somewhere():
    missing = []
    for path in MARKDOWN:
        text = re.sub(r"(?s)```.*?```|`[^`]*`", "", path.read_text(encoding="utf-8"))
        targets = re.findall(r"\]\(\s*([^)\s]+)", text)
        targets += re.findall(r"(?m)^\[[^\]]+\]: (\S+)", text)
        missing += [(path.name, target) for target in targets if absent(path.parent, target)]
    assert missing == []


def test_what_a_broken_link_is():
    assert absent(ROOT, "no_such_file.md")
    assert absent(ROOT, "https://github.com/smallvar/smallvar/blob/main/no_such_file.md")
    assert not absent(ROOT, "https://github.com/smallvar/smallvar/blob/main/README.md#in-python")
    assert not absent(DOCS, "guide/tutorial.rst")
    for wrong in ("htp://example.org/", "https:/example.org", "https://example/a"):
        with pytest.raises(AssertionError):
            absent(ROOT, wrong)


def made(target):
    """Whether a page, a label or a file is made when the documentation is built."""
    return bool(re.search(r"(^|/)(generated|examples_built)/|sphx_glr_|^(gen|mod|)index$", target))


@pytest.fixture(scope="module")
def labels():
    texts = [page.read_text(encoding="utf-8") for page in PAGES]
    return {label for text in texts for label in re.findall(r"(?m)^\.\. _([\w-]+):$", text)}


def roles(text, role):
    """The targets of a role, with a text before them or without."""
    found = re.findall(rf":{role}:`([^`]+)`", text)
    return [" ".join(re.sub(r"(?s).*<(.*)>", r"\1", target).split()) for target in found]


def missing(page, labels):
    """The links of a page that lead nowhere."""
    text = page.read_text(encoding="utf-8")
    pages = roles(text, "doc") + re.findall(r":link: (\S+)\n\s+:link-type: doc", text)
    files = re.findall(r"\.\. (?:image|figure|literalinclude|include):: (\S+)", text)
    for target in [f"{name}.rst" for name in pages] + files:
        path = DOCS / target[1:] if target[0] == "/" else page.parent / target
        if not made(target) and not path.exists():
            yield target
    for name in roles(text, "ref"):
        if not made(name) and name not in labels:
            yield name
    for target in re.findall(r"`[^`]+<(https?:[^>]+)>`_", text):
        if absent(page.parent, "".join(target.split())):
            yield target


@NEEDS_RESULTS
def test_links_of_pages_lead_somewhere(labels):
    found = {page.name: list(missing(page, labels)) for page in PAGES}
    assert {name: targets for name, targets in found.items() if targets} == {}


def test_a_broken_link_of_a_page_is_found(tmp_path):
    page = tmp_path / "page.rst"
    page.write_text(
        ":doc:`nowhere` :ref:`so <no-label>`\n\n.. image:: none.png\n", encoding="utf-8"
    )
    assert list(missing(page, {"a-label"})) == ["nowhere.rst", "none.png", "no-label"]


# Length

WORDS = 1500


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


def test_no_page_is_too_long():
    lengths = {page.name: len(page.read_text(encoding="utf-8").split()) for page in PAGES}
    assert {name: length for name, length in lengths.items() if length > WORDS} == {}
