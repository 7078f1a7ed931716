# What the scripts of this folder share; sourced by them, from any directory.
#
# They need bash, git, gcc, binutils, Python >= 3.11 (PYTHON names another interpreter) and a package
# index. They work on copies of the tree (what git tracks or would track), so nothing is left behind.
# SAMPLE=1 takes the minute's choice of the tests (`-m smoke`); `run` sets it, and CI_WORK, for the
# others.
# shellcheck shell=bash
set -euo pipefail
exec </dev/null
cd "$(dirname "${BASH_SOURCE[0]}")/.."

root=$PWD
: "${PYTHON:=python3}" "${SAMPLE:=0}"
choice=(-n 2)
if [ "$SAMPLE" = 1 ]; then choice=(-m smoke); fi # `run` has other work for the second core
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1
export PIP_COMPILE=0 # what is imported is compiled then, and the rest never is
unset PYTHONDONTWRITEBYTECODE # or every start compiles all tests again
if [ -d ../shared/data ]; then
    : "${SMALLVAR_DATA:=$(cd ../shared/data && pwd)}"
    export SMALLVAR_DATA # data sets that are not part of the project; tests that want them skip
fi

title=
work=${CI_WORK:-$(mktemp -d)}
finish() {
    local status=$?
    if [ -z "${CI_WORK:-}" ]; then rm -rf "$work"; fi
    if [ "$status" -ne 0 ]; then echo "FAILED after $SECONDS s: $title" >&2; fi
}
trap finish EXIT

section() {
    title=$1
    printf '\n==== %s (%s at %d s)\n' "$title" "$(basename "$0")" "$SECONDS"
}

# A clean copy of the tree in $1.
copy_tree() {
    mkdir -p "$1"
    git -C "$root" ls-files -z --cached --others --exclude-standard |
        while IFS= read -r -d '' file; do
            if [ -e "$root/$file" ]; then printf '%s\0' "$file"; fi
        done |
        tar --null -C "$root" -T - -cf - | tar -xf - -C "$1"
}

# Run a command with the virtual environment $work/$1 active.
within() {
    local venv=$work/$1
    shift
    VIRTUAL_ENV=$venv PATH=$venv/bin:$PATH "$@"
}

# Install Debian packages, if this runs as root.
install() {
    { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q \
        --no-install-recommends "$@"; } >"$work/apt.log" 2>&1
}

# Whether clang and its OpenMP are here, or can be had.
have_clang() {
    clang -fopenmp -x c -o "$work/probe" - <<<'int main(void) { return 0; }' 2>"$work/why" ||
        install clang libomp-dev
}

# What pyproject.toml asks for, one a line: the dependencies and those of the extras given. With
# --lowest each in the lowest version allowed.
requirements() {
    "$PYTHON" - "$@" <<'PY'
import sys
import tomllib

with open("pyproject.toml", "rb") as file:
    project = tomllib.load(file)["project"]
lowest = "--lowest" in sys.argv
for extra in [None, *(name for name in sys.argv[1:] if name != "--lowest")]:
    for wanted in project["optional-dependencies"][extra] if extra else project["dependencies"]:
        print(wanted.replace(">=", "==") if lowest else wanted)
PY
}

# The tests in $work/outside, away from the source, and an environment `user` with what they need.
prepare() {
    if [ ! -d "$work/outside" ]; then
        mkdir -p "$work/outside/docs"
        cp -r tests asv_bench pyproject.toml "$work/outside" # scripts beside the package are tested, too
        cp -r docs/reproductions "$work/outside/docs"
    fi
    if [ ! -d "$work/user" ]; then
        "$PYTHON" -m venv "$work/user"
        requirements test >"$work/requirements.txt"
        within user pip install -q -r "$work/requirements.txt"
    fi
}

# Build a copy of the tree into $work/$1/site, to be put on PYTHONPATH.
build_into() {
    copy_tree "$work/$1"
    within user pip install -q --no-deps --target "$work/$1/site" "$work/$1"
}
