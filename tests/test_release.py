"""The rehearsal of a release finds files that do not agree."""

import importlib.util
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = ("smallvar/_version.py", "CHANGELOG.md", "CITATION.cff", "recipe/recipe.yaml", "README.md")


@pytest.fixture(scope="module")
def release():
    script = ROOT / "tools" / "release.py"
    if not script.is_file():
        pytest.skip("the source tree is not at hand")
    spec = importlib.util.spec_from_file_location("release", script)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def copy(tmp_path):
    if not all((ROOT / name).is_file() for name in FILES):
        pytest.skip("the source tree is not at hand")
    for name in FILES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_the_files_agree(release, copy):
    assert list(release.disagreements(copy)) == []


def test_another_version_is_found_everywhere(release, copy):
    (copy / "smallvar/_version.py").write_text('__version__ = "9.9.9"\n', encoding="utf-8")
    found = list(release.disagreements(copy))
    assert [text.split()[0] for text in found] == list(FILES[1:4])
    assert all("9.9.9" in text for text in found)


def test_a_relative_link_is_found(release, copy):
    with open(copy / "README.md", "a", encoding="utf-8") as file:
        file.write("[the guide](docs/guide/index.rst)\n")
    (found,) = release.disagreements(copy)
    assert found.endswith("docs/guide/index.rst")


def test_lowest_versions(release):
    project = {"dependencies": ["numpy>=1.26", "scipy>=1.12"]}
    assert release.lowest(project) == ["numpy==1.26", "scipy==1.12"]
