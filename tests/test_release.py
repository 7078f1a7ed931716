"""The rehearsal of a release finds files that do not agree."""

import re
import shutil
from pathlib import Path

import pytest
from helpers import script

ROOT = Path(__file__).parents[1]
FILES = (
    *("smallvar/_version.py", "CHANGELOG.md", "CITATION.cff", "recipe/recipe.yaml"),
    *("docs/_static/switcher.json", "README.md"),
)


@pytest.fixture(scope="module")
def release():
    return script("tools/release.py")


@pytest.fixture
def copy(tmp_path):
    if not all((ROOT / name).is_file() for name in FILES):
        pytest.skip("the source tree is not at hand")
    for name in FILES:
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_the_files_agree(release, copy):
    assert list(release.disagreements(copy)) == []


def test_another_version_is_found_everywhere(release, copy):
    (copy / "smallvar/_version.py").write_text('__version__ = "9.9.9"\n', encoding="utf-8")
    found = list(release.disagreements(copy))
    assert [text.split()[0] for text in found] == list(FILES[1:5])
    assert all("9.9.9" in text for text in found)


def test_a_relative_link_is_found(release, copy):
    with open(copy / "README.md", "a", encoding="utf-8") as file:
        file.write("[the guide](docs/guide/index.rst)\n")
    (found,) = release.disagreements(copy)
    assert found.endswith("docs/guide/index.rst")


def test_lowest_versions(release):
    project = {"dependencies": ["numpy>=1.26", "scipy>=1.12"]}
    assert release.lowest(project) == ["numpy==1.26", "scipy==1.12"]


def released(copy):
    """A copy whose README does not say that there is no release."""
    path = copy / "README.md"
    text = path.read_text(encoding="utf-8").replace("is not on a package index yet", "is there")
    path.write_text(text, encoding="utf-8")
    return copy


def test_a_readme_before_the_first_release(release, copy):
    with open(released(copy) / "README.md", "a", encoding="utf-8") as file:
        file.write("It is not on a\npackage index yet.\n")
    release.write_date(copy, "2026-02-28")
    assert list(release.disagreements(copy)) == []
    (found,) = release.disagreements(copy, release=True)
    assert found.startswith("README.md")


@pytest.mark.parametrize("date", ["2026-02-28", "2027-12-01"])
def test_the_date_of_a_release(release, copy, date):
    release.write_date(released(copy), "2026-01-31")
    release.write_date(copy, date)  # in place of the one before
    assert list(release.disagreements(copy, release=True)) == []
    citation = (copy / "CITATION.cff").read_text(encoding="utf-8")
    assert re.findall(r"(?m)^date-released: (.+)$", citation) == [date]
    path = copy / "CHANGELOG.md"
    log = path.read_text(encoding="utf-8")
    assert f"({date})\n-" in log
    path.write_text(log.replace(date, "2026-02-30"), encoding="utf-8")
    assert sum("2026-02-30" in found for found in release.disagreements(copy)) == 2


@pytest.mark.parametrize("text", ["2026-02-30", "tomorrow", ""])
def test_a_day_that_is_none(release, text):
    with pytest.raises(ValueError, match="does not match|out of range"):
        release.day(text)


def test_the_changelog_begins_with_the_version(release, copy):
    path = copy / "CHANGELOG.md"
    older = path.read_text(encoding="utf-8").partition("\n\n")
    path.write_text(f"{older[0]}\n\n9.9.9 (unreleased)\n---\n\n{older[2]}", encoding="utf-8")
    (found,) = release.disagreements(copy)
    assert "begins with version 9.9.9" in found


def test_recipe_of_a_release(release, copy):
    template = (copy / "recipe/recipe.yaml").read_text(encoding="utf-8")
    recipe = release.filled_recipe(template, "0123abcd", ["one", "another"])
    assert "  sha256: 0123abcd\n" in recipe
    assert "  url: https://pypi.org/packages/source/s/smallvar/smallvar-${{ version }}" in recipe
    assert "  path: .." not in recipe
    assert recipe.endswith("  recipe-maintainers:\n    - one\n    - another\n")
    # no other line changes
    lines = set(template.splitlines())
    added = [line for line in recipe.splitlines() if line not in lines]
    added = [line.split()[0] for line in added]
    assert added == ["url:", "sha256:", "extra:", "recipe-maintainers:", "-", "-"]
    assert release.filled_recipe(template, "0123abcd", []).endswith(template[-200:])
    with pytest.raises(release.Wrong, match="0 places"):
        release.filled_recipe(template.replace("source:", "sources:"), "0123abcd", [])


def test_the_paper():
    """As the Journal of Open Source Software asks: its sections, 750 to 1,750 words, references."""
    folder = ROOT / "paper"
    if not folder.is_dir():
        pytest.skip("the source tree is not at hand")
    _, head, text = (folder / "paper.md").read_text(encoding="utf-8").split("---\n", 2)
    for field in ("title", "tags", "authors", "affiliations", "bibliography: paper.bib"):
        assert re.search(rf"(?m)^{field}", head), field
    sections = ["Summary", "Statement of need", "State of the field", "Software design"]
    assert re.findall(r"(?m)^# (.+)$", text) == [
        *sections,
        "Research impact statement",
        "References",
    ]
    assert 750 <= len(text.split()) <= 1750
    references = (folder / "paper.bib").read_text(encoding="utf-8")
    known = re.findall(r"(?m)^@\w+\{(\w+),$", references)
    assert len(set(known)) == len(known)
    assert set(re.findall(r"@(\w+)", text)) == set(known)
    for entry in references.split("\n\n"):
        assert all(f"\n  {field} = {{" in entry for field in ("author", "title", "year")), entry


def test_figures_of_the_paper():
    """The numbers of sets in the paper are those of results/number.txt."""
    path, results = ROOT / "paper" / "paper.md", ROOT / "docs/reproductions/results/number.txt"
    if not (path.is_file() and results.is_file()):
        pytest.skip("the source tree is not at hand")
    line = r"(?m)^(real compact|real other|generated|single), (\S+)\(?.*?  +(\d+) +(\d+) +\d"
    exact, sets = {}, {}
    for kind, name, count, right in re.findall(line, results.read_text(encoding="utf-8")):
        key = kind.split()[0], name.partition("(")[0].strip(",")
        exact[key] = exact.get(key, 0) + int(right)
        sets[key] = sets.get(key, 0) + int(count)
    text = " ".join(path.read_text(encoding="utf-8").split())
    many = [exact["generated", name] for name in ("DPMeans", "HDBSCAN", "KMeans")]
    one = [exact["single", name] for name in ("DPMeans", "HDBSCAN", "KMeans")]
    real = [exact["real", name] for name in ("DPMeans", "KMeans", "HDBSCAN")]
    assert one[0] == sets["single", "DPMeans"]
    count, tables = sets["generated", "DPMeans"], sets["real", "DPMeans"]
    for words in (
        f"the number of {many[0]} of {count} clusterings and of all {one[0]} single clusters",
        f"`HDBSCAN()` of {many[1]} and {one[1]}, and k-means",
        f"with the best silhouette of {many[2]} and {one[2]}.",
        f"On {tables} labeled tables",
        "`DPMeans()` finds {}, the silhouette {} and `HDBSCAN()` {},".format(*real),
    ):
        assert words in text, words
