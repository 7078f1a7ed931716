#!/usr/bin/env -S uv run --script
# /// script
# dependencies = ["nox"]
# ///
"""Sessions for nox, each a part of .ci/run."""

import nox

nox.needs_version = ">=2024.4.15"
nox.options.default_venv_backend = "uv|virtualenv"


@nox.session
def tests(session):
    """Run the tests against an installed copy."""
    session.install(".[test]")
    tests = f"{session.invoked_from}/tests"
    session.chdir(session.create_tmp())  # the source tree is not built
    session.run("pytest", "-c", f"{session.invoked_from}/pyproject.toml", tests, *session.posargs)


@nox.session
def lint(session):
    """Run the linters."""
    session.install("ruff", "cython-lint", "mypy", "numpy", "numpydoc", "validate-pyproject[all]")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("cython-lint", "smallvar")
    session.run("mypy", "smallvar")
    session.run("validate-pyproject", "pyproject.toml")


@nox.session(default=False)
def docs(session):
    """Build the documentation."""
    session.install(".[docs]")
    session.run("sphinx-build", "-W", "--keep-going", "docs", "docs/_build/html")


@nox.session(default=False)
def benchmarks(session):
    """Run benchmarks for two commits and compare them, HEAD^ and HEAD unless others are given."""
    session.install("asv", "virtualenv")
    session.chdir("asv_bench")
    session.run("asv", "machine", "--yes")
    commits = session.posargs or ["HEAD^", "HEAD"]
    session.run("asv", "continuous", "--factor", "1.5", *commits)


@nox.session(default=False)
def benchmark_pages(session):
    """Make the pages of all results, in asv_bench/.asv/html."""
    session.install("asv", "virtualenv")
    session.chdir("asv_bench")
    session.run("asv", "publish")


if __name__ == "__main__":
    nox.main()
