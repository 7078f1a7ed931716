"""The package as a whole: imports, names, version, build facts."""

import ast
import importlib.metadata
import inspect
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import textwrap
import tomllib
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import make_blobs

import smallvar
from smallvar._selection.envelope import Path as ClusteringPath

INSTALLED = Path(smallvar.__file__).parent
SOURCES = Path(__file__).parents[1] / "smallvar"


def run(*arguments, **options):
    """Run python with these arguments."""
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=120, check=False,
        **options,
    )  # fmt: skip


HEAVY = {"matplotlib", "pandas", "dask", "distributed", "polars", "tqdm"}


def test_import_and_fit_are_light():
    """Nothing heavy is loaded that scikit-learn and scipy had not loaded already."""
    script = (
        "import sys, joblib, scipy.linalg, sklearn.cluster, threadpoolctl\n"
        "before = set(sys.modules)\n"
        "import smallvar\n"
        "smallvar.DPMeans(n_clusters=2).fit([[0.0], [1.0], [5.0]]).predict([[0.0]])\n"
        f"print(sorted({HEAVY!r} & (set(sys.modules) - before)))"
    )
    result = run("-c", script)
    assert result.stdout.strip() == "[]", result.stderr


def test_works_without_the_optional_packages():
    # not None in sys.modules: scikit-learn 1.6 takes what is there for pandas
    script = (
        "import sys\n"
        "class Missing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.partition('.')[0] in {HEAVY!r}:\n"
        "            raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Missing())\n"
        "import smallvar\n"
        "print(smallvar.DPMeans(lam=4.0).fit([[0.0], [1.0], [9.0]]).labels_.tolist())"
    )
    result = run("-c", script)
    assert result.stdout.strip() == "[0, 0, 1]", result.stderr


def python_files():
    files = sorted(INSTALLED.rglob("*.py"))
    assert len(files) > 5
    return files


def test_only_public_scikit_learn():
    """Nothing private: it changes without notice."""
    for path in python_files():
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"(from|import)\s+sklearn[\w.]*\._", text), path
        assert not re.search(r"from\s+sklearn[\w.]*\s+import\s+_", text), path


def test_sweeps_cimport_neither_numpy_nor_scikit_learn():
    if not (SOURCES / "_sweeps").is_dir():
        pytest.skip("the source tree is not at hand")
    files = [p for suffix in ("pyx", "pxd") for p in (SOURCES / "_sweeps").rglob(f"*.{suffix}")]
    assert files
    for path in files:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"cimport\s+(numpy|sklearn)|from\s+(numpy|sklearn)\S*\s+cimport", text)


# The folders of the package, and the modules in each: imports run from the top of this table down,
# so that a module imports from those before it only.
LAYERS = {
    "_core": (
        *(
            "progress",
            "tables",
            "profiles",
            "validation",
            "config",
            "identifiers",
        ),
        *("fit_loop", "estimator", "links"),
        *("row_names", "groups", "fitted_rows"),
        *("linear_algebra", "frame", "mixture", "row_model"),
    ),
    "_selection": (
        *("columns", "scale", "confidence", "components", "criterion"),
        *(
            "own_shapes",
            "column_selection",
            "boundary",
            "boundaries",
            "touching",
            "cost_boundaries",
            "boundary_table",
        ),
        *("representatives", "described"),
        *("envelope", "descent", "sphere", "sample", "least_size", "cluster_path"),
        *("search", "path", "penalty", "pieces"),
    ),
    "_centers": (
        *(
            "unit_rows",
            "center_estimator",
            "starts",
            "large_clusters",
            "linked",
            "dpmeans",
            "coreset",
            "minibatch",
        ),
        *("noise", "uniform_noise", "robust", "shapes"),
        *(
            "divergence_rules",
            "divergence",
            "divergence_path",
            "bregman",
            "sphere_problem",
            "spherical",
            "gaussians",
        ),
        *(
            "gaussian_path",
            "gaussian_number",
            "gaussian_starts",
            "mahalanobis",
            "hdp_problem",
            "divergence_hdp",
            "hdp_choice",
            "hdp",
            "hdp_bound",
        ),
        *("topic_path", "topics"),
    ),
    "_mixed": (
        *("reading", "kinds", "order", "columns", "profiles"),
        *("measure", "deviances", "single", "mixed_path", "mixed_boundaries", "mixed_search"),
        *("families", "imputing", "mixed_dpmeans"),
    ),
    "_features": ("starts", "feature_path", "feature_estimator", "bpmeans"),
    "_kernel": (
        "gram",
        "partition",
        "kernel_dpmeans",
        "hdp_start",
        "kernel_hdp",
        "relaxation",
        "spectral",
    ),
    "_time": (
        *("moving", "rule_step", "dynamic", "tune", "exchange", "dynamic_kernel"),
        *("record", "segment_search", "segments"),
        *("summary", "renumber"),
    ),
    "_graph": ("network", "neighbors", "cuts", "cut_path", "penalized_cut"),
}


def test_imports_run_one_way():
    """Sweeps know nothing of the estimators, and only the command line knows pictures."""
    order = [f"{folder}.{module}" for folder, names in LAYERS.items() for module in names]
    folders = {name.partition(".")[0] for name in order}
    modules = {
        f"{path.parent.name}.{path.stem}"
        for path in python_files()
        if path.parent.name in folders and path.stem != "__init__"
    }
    assert modules == set(order)
    for path in python_files():
        text = path.read_text(encoding="utf-8")
        folder, module = path.parent.name, f"{path.parent.name}.{path.stem}"
        if folder == "_sweeps":
            assert not re.search(r"(?m)^(import|from) (sklearn|smallvar\._[a-rt-z])", text), path
        if module in order:
            imported = set(re.findall(r"(?m)^\s*from smallvar\.(_[a-z]+\.\w+) import", text))
            below = {*order[: order.index(module)]}
            assert {name for name in imported if not name.startswith("_sweeps.")} <= below, path
        if folder == "_plot":
            assert not re.search(
                r"(?m)^\s*(import|from) smallvar(?!\._plot|\._core\.(?:validation|row_names)"
                r"|\._selection\.confidence)",  # how sure a number is, in words
                text,
            ), path
        if folder != "dask":
            assert not re.search(r"(?m)^\s*(import|from) smallvar\.dask", text), path
            assert not HEAVY & set(re.findall(r"(?m)^(?:import|from) (\w+)", text)), path


def entries(fit, X):
    """Modules that calls enter, in order, with memory of X among the arguments."""
    found = []

    def module(frame):
        """The module of the nearest frame of smallvar; None if there is none."""
        while frame is not None:
            path = Path(frame.f_code.co_filename)
            if INSTALLED in path.parents:
                return f"{path.parent.name}.{path.stem}"
            frame = frame.f_back

    def profile(frame, event, _):
        if event == "call" and module(frame) not in (None, module(frame.f_back)):
            values, code = frame.f_locals, frame.f_code  # arguments come first in co_varnames
            names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            values = [values.get(name) for name in names] + list(values.get("args", ()))
            if any(isinstance(v, np.ndarray) and np.may_share_memory(v, X) for v in values):
                found.append(module(frame))

    sys.setprofile(profile)
    try:
        fit(X)
    finally:
        sys.setprofile(None)
    return found


@pytest.mark.parametrize(
    ("model", "most", "most_upward"),
    [
        (smallvar.DPMeans(random_state=0), 14, 4),
        (smallvar.MixedDPMeans(random_state=0), 10, 2),
        (smallvar.HDPMeans(lam_local=2.0, lam_global=20.0), 9, 2),
    ],
)
def test_the_way_of_data_through_a_fit(model, most, most_upward):
    """Objects that hold the data are handed down, not the data themselves, and seldom up."""
    order = [f"{folder}.{module}" for folder, names in LAYERS.items() for module in names]
    X = make_blobs(300, 3, centers=3, random_state=0)[0]
    found = entries(model.fit, X)
    layers = [order.index(module) for module in found]
    assert 5 < len(found) <= most
    assert sum(b > a for a, b in pairwise(layers)) <= most_upward


def test_estimators_know_no_pictures():
    files = [p for p in python_files() if p.parent.name not in ("_plot", "_cli", "smallvar")]
    assert len(files) > 20
    for path in files:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"(import|from)\s+smallvar\._plot|import\s+_plot", text), path


# Folders whose modules take of others what has no underscore.
PUBLIC_NAMES_ONLY = (
    *("_selection", "_centers", "_features", "_kernel", "_time", "_graph", "_cli", "_plot", "dask"),
)
OF_SCIKIT_LEARN = {"kmeans._n_features_out"}  # which a copy of a fitted KMeans has to have
OF_NAMED_TUPLES = {"_asdict", "_fields", "_make", "_replace"}  # public in spite of it


def private_uses(tree):
    """Yield line and name where code takes an underscore name of anything but itself."""

    def private(name):
        return name.startswith("_") and not name.startswith("__") and name not in OF_NAMED_TUPLES

    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=owner, attr=name) if private(name):
                pass
            case ast.Call(
                func=ast.Name(id="getattr" | "hasattr"),
                args=[owner, ast.Constant(value=str(name)), *_],
            ) if private(name):
                pass
            case ast.ImportFrom(module=str(module), names=names) if module.startswith("smallvar"):
                yield from ((node.lineno, f"{module}.{a.name}") for a in names if private(a.name))
                continue
            case _:
                continue
        owner = ast.unparse(owner)
        if owner not in ("self", "cls") and not owner.startswith("super("):
            yield node.lineno, f"{owner}.{name}"


@pytest.mark.parametrize("folder", PUBLIC_NAMES_ONLY)
def test_public_names_only(folder):
    files = sorted((INSTALLED / folder).rglob("*.py"))
    assert files
    found = [
        f"{path.name}:{line}: {name}"
        for path in files
        for line, name in private_uses(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert [use for use in found if use.partition(": ")[2] not in OF_SCIKIT_LEARN] == []


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("estimator._kernel(X)", ["estimator._kernel"]),
        ("self.model._state", ["self.model._state"]),
        ("getattr(estimator, '_labels', None)", ["estimator._labels"]),
        ("from smallvar._core.validation import _z, check", ["smallvar._core.validation._z"]),
        ("self._begin(); cls._of(1); super()._begin(); pair._replace(a=1); x.__len__", []),
        ("from smallvar._core.validation import check; from os import _exit", []),
    ],
)
def test_private_uses(code, found):
    assert [name for _, name in private_uses(ast.parse(code))] == found


def private_imports(tree, own, public):
    """Yield what is imported of smallvar that is neither public nor of the package ``own``.

    ``public`` are the public names, by module.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = (alias.name for alias in node.names)
            yield from (name for name in names if name.startswith("smallvar.") and name != own)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            if re.match(r"smallvar\b|\.", module) and not module.startswith(f"{own}."):
                allowed = public.get(module, ())
                yield from (f"{module}.{a.name}" for a in node.names if a.name not in allowed)


def test_the_command_line_imports_public_names():
    public = {
        "smallvar": smallvar.__all__,
        "smallvar._version": ["__version__"],
        "smallvar._core.profiles": ["in_words"],
        # columns are left out by the same rule
        "smallvar._core.identifiers": ["identifies"],
        # columns are warned of by the same rule
        "smallvar._selection.scale": ["wide_of_many", "wide_in_words"],
        # the same doubt as in the warnings of the estimators
        "smallvar._selection.confidence": ["CALLED_CLEAR", "SIMILAR"],
    }
    files = sorted((INSTALLED / "_cli").glob("*.py"))
    assert len(files) > 5
    for path in files:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        assert list(private_imports(tree, "smallvar._cli", public)) == [], path


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("from smallvar import DPMeans, Frame", ["smallvar.Frame"]),
        ("from smallvar._core.frame import Frame", ["smallvar._core.frame.Frame"]),
        ("from smallvar.dask._executor import LOOPBACK", ["smallvar.dask._executor.LOOPBACK"]),
        ("from smallvar._client import f", ["smallvar._client.f"]),
        ("from .._core import frame", [".._core.frame"]),
        ("def f():\n    import smallvar._core.frame as frame", ["smallvar._core.frame"]),
        ("from smallvar._cli.table import Table; import smallvar; from smallvars import x", []),
    ],
)
def test_private_imports(code, found):
    public = {"smallvar": ["DPMeans"], "smallvar.dask": ["fit"]}
    assert list(private_imports(ast.parse(code), "smallvar._cli", public)) == found


def test_names():
    names = smallvar.__all__
    assert sorted(set(names)) == sorted(names)
    assert {"DPMeans", "MiniBatchDPMeans", "farthest_first_lambda", "show_config"} <= set(names)
    text = (INSTALLED / "__init__.pyi").read_text(encoding="utf-8")
    stub = re.findall(r"(?m)^from (smallvar\.[\w.]+) import (\w+) as \2$", text)
    assert [name for _, name in stub] == sorted(names, key=[name for _, name in stub].index)
    for module, name in stub:  # type checkers see what programs get
        assert getattr(importlib.import_module(module), name) is getattr(smallvar, name), name
    assert set(names) <= set(dir(smallvar))
    for name in names:
        if name != "__version__":
            assert inspect.getdoc(getattr(smallvar, name)), name


def public_functions():
    """By name: the public functions, and methods and properties of the public classes."""
    found = {}
    for name in smallvar.__all__:
        value = getattr(smallvar, name)
        if inspect.isfunction(value):
            found[name] = value
        elif inspect.isclass(value):
            made_by_users = not issubclass(value, ClusteringPath)
            found |= methods_of(value, {"__init__"} if made_by_users else set())
    return found


def methods_of(kind, private):
    """What scikit-learn defines is not ours to annotate."""
    ours = [base for base in kind.__mro__ if base.__module__.startswith("smallvar.")]
    members = {name: value for base in reversed(ours) for name, value in vars(base).items()}
    return {
        f"{kind.__name__}.{name}": value.fget if isinstance(value, property) else value
        for name, value in members.items()
        if (name in private or not name.startswith("_"))
        and (inspect.isfunction(value) or isinstance(value, property))
    }


def test_public_functions_are_annotated():
    """Of the type checker's own options none tells public functions from private ones."""
    functions = public_functions()
    assert {"DPMeans.__init__", "HDPMeans.fit", "KFeatures.transform", "cut_path"} <= set(functions)
    assert {"ClusterPath.labels", "DynamicMeans.tracks_"} <= set(functions)
    for name, function in functions.items():
        signature = inspect.signature(function)
        assert signature.return_annotation is not signature.empty, name
        for parameter in signature.parameters.values():
            annotated = parameter.annotation is not parameter.empty
            assert annotated or parameter.name == "self", (name, parameter.name)
    assert (INSTALLED / "py.typed").is_file()  # without it type checkers look at none of them


def test_version():
    assert smallvar.__version__ == importlib.metadata.version("smallvar")
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*", smallvar.__version__)


def test_show_config(capsys):
    assert smallvar.show_config() is None
    lines = capsys.readouterr().out.splitlines()
    facts = {key.strip(): value for key, value in (line.split(":", 1) for line in lines)}
    assert facts["smallvar"].strip() == smallvar.__version__
    assert re.search(r"(?i)gcc|clang|msvc|\d", facts["compiler"])
    assert facts["BLAS"].strip()
    on = smallvar._core.config.openmp_enabled()
    openmp = r" on \(standard \d{6}\)" if on else r" off \(one thread\)"
    assert re.fullmatch(openmp, facts["OpenMP"])
    assert int(facts["threads"]) == smallvar._core.config.resolve_threads(None)
    runs, built = re.fullmatch(r" (\w+) \(built: ([\w, ]+)\)", facts["SIMD"]).groups()
    assert runs in built.split(", ")
    # "lowest first", and a build that leaves out the higher ones does leave them out
    if runs in ("v2", "v3", "v4"):
        assert built.split(", ") == sorted(built.split(", "))
        assert built.split(", ")[-1] <= os.environ.get("SMALLVAR_SIMD", "v4")


def checked(tmp_path, name, *flags):
    """Return what a compiler says about a file that includes ``_sweeps/_assumptions.h``."""
    compiler = shutil.which(name)
    if compiler is None or sys.platform == "win32":
        pytest.skip(f"no {name} at hand")
    source = tmp_path / "source.c"
    source.write_text('#include "_assumptions.h"\n')
    warnings = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror"]
    command = [compiler, *warnings, *flags, f"-I{INSTALLED / '_sweeps'}", "-fsyntax-only", source]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


@pytest.mark.parametrize("name", ["gcc", "clang"])
@pytest.mark.parametrize("flags", ["-std=c99", "-std=c11", "-x c++ -std=c++11"])
def test_assumptions_hold(tmp_path, name, flags):
    assert checked(tmp_path, name, *flags.split()) == (0, "")


@pytest.mark.skipif(sys.platform != "linux", reason="Apple's clang may know its targets only")
@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("s390x-linux-gnu", ""),  # big-endian
        ("x86_64-pc-windows-msvc", ""),
        ("armv7-linux-gnueabihf", "needs a 64-bit platform"),
        ("i686-linux-gnu", "float64 must be rounded to float64"),
    ],
)
def test_assumptions_on_other_platforms(tmp_path, target, said):
    status, messages = checked(tmp_path, "clang", f"--target={target}", "-ffreestanding")
    assert (status == 0) == (said == ""), messages
    assert said in messages


@pytest.mark.parametrize("name", ["gcc", "clang"])
@pytest.mark.parametrize("flag", ["-ffast-math", "-ffinite-math-only"])
def test_fast_math_is_refused(tmp_path, name, flag):
    status, messages = checked(tmp_path, name, flag)
    assert status != 0
    assert "compile without -ffast-math" in messages


def test_unbuilt_source_tree(tmp_path):
    """Without the compiled sweeps: one sentence, with the remedy."""
    shutil.copytree(
        INSTALLED, tmp_path / "smallvar", ignore=shutil.ignore_patterns("*.so", "*.pyd", "*.c")
    )
    paths = [str(tmp_path), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    # -S: without the hooks of an editable install, which would find its compiled files.
    script = f"import sys; sys.path[:0] = {paths!r}; import smallvar"
    result = run("-S", "-c", script, cwd=tmp_path)
    assert result.returncode == 1
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: ")
    assert "pip install -e ." in last
    assert last.count(". ") <= 1


def test_source_tree_that_hides_the_installed_package(tmp_path):
    """As when someone types python in the checkout after ``pip install .``."""
    shutil.copytree(
        INSTALLED, tmp_path / "smallvar", ignore=shutil.ignore_patterns("*.so", "*.pyd", "*.c")
    )
    options = {"cwd": tmp_path, "env": os.environ | {"PYTHONPATH": str(INSTALLED.parent)}}
    result = run("-c", "import smallvar", **options)
    assert result.returncode == 1
    last = result.stderr.strip().splitlines()[-1]
    assert f"found before the installed {INSTALLED.resolve()}: start Python in another" in last
    remedy = run("-P", "-c", "import smallvar; print(smallvar.DPMeans())", **options)
    assert remedy.stdout.strip() == "DPMeans()", remedy.stderr


def test_runs_from_anywhere(tmp_path):
    """The package does not depend on the current directory, nor on a clone that is there."""
    (tmp_path / "smallvar" / "smallvar").mkdir(parents=True)
    result = run("-c", "import smallvar; print(smallvar.DPMeans())", cwd=tmp_path)
    assert result.stdout.strip() == "DPMeans()", result.stderr


@pytest.fixture(scope="module")
def project():
    path = Path(__file__).parents[1] / "pyproject.toml"  # beside the tests wherever they run
    return tomllib.loads(path.read_text(encoding="utf-8"))


def test_lint_of_docstrings_covers_the_public_functions(project):
    """A function in a private module is left out, unless it is named there."""
    checks = project["tool"]["numpydoc_validation"]
    excluded = re.compile("|".join(checks["exclude"]))
    for name in smallvar.__all__:
        value = getattr(smallvar, name)
        if inspect.isfunction(value) or inspect.isclass(value):
            module = value.__module__.rpartition(".")[2]  # numpydoc goes by the file
            assert not excluded.search(f"{module}.{name}"), name
    for name in ("_fit.fit", "_fit.partial_fit", "_predict.predict_proba", "_predict.score"):
        assert not excluded.search(name), name
    assert excluded.search("dpmeans.resolve_lam") and excluded.search("_fit.check_supported")


def test_recipe_is_in_step(project):
    """The recipe for conda-forge names the same version, Python, requirements and test as here."""
    path = SOURCES.parent / "recipe" / "recipe.yaml"
    if not path.is_file():
        pytest.skip("the source tree is not at hand")
    recipe = path.read_text(encoding="utf-8")

    def listed(section):
        block = re.search(rf"(?m)^  {section}:\n((?:    .*\n)+)", recipe).group(1)
        return set(re.findall(r"(?m)^    - (?!if:)(.+)$", block))

    about, runs = project["project"], listed("run")
    assert f'version: "{smallvar.__version__}"' in recipe
    lowest = about["requires-python"].removeprefix(">=")
    assert f'  skip:\n    - match(python, "<{lowest}")\n' in recipe
    assert f"license: {about['license']}\n" in recipe
    assert f"homepage: {about['urls']['Homepage']}\n" in recipe
    spaced = {re.sub(r"(>=)", r" \1", wanted) for wanted in about["dependencies"]}
    assert runs == spaced | {"python"}  # its version comes from the variant that is built
    built = {wanted.lower().replace(">=", " >=") for wanted in project["build-system"]["requires"]}
    assert built <= listed("host")
    (entry,) = about["scripts"].items()
    assert " = ".join(entry) in recipe
    assert "pytest -m smoke" in recipe


DEVELOPERS_PAGES = ("developer", "exactness", "recipes", "benchmarks")


@pytest.fixture(scope="module")
def developers_guide():
    pages = [SOURCES.parent / "docs" / f"{name}.rst" for name in DEVELOPERS_PAGES]
    if not pages[0].is_file():
        pytest.skip("the source tree is not at hand")
    return "\n".join(path.read_text(encoding="utf-8") for path in pages)


def sources():
    """The source files, by their paths from the package."""
    files = (p for p in SOURCES.rglob("*") if p.suffix in (".py", ".pyx", ".pxd", ".h"))
    return {p.relative_to(SOURCES).as_posix(): p.read_text(encoding="utf-8") for p in files}


def test_the_guide_names_every_folder(developers_guide):
    """The drawing has every folder of the package, and no other."""
    drawn, inside = set(), ()
    drawing = developers_guide.partition("   smallvar/  ")[2].partition("\n   tests/")[0]
    for line in drawing.splitlines()[1:]:
        indent, name = re.fullmatch(r"   ( +)(\w+)/ {2,}\S.*", line).groups()
        inside = (*inside[: len(indent) // 2 - 1], name)
        drawn.add("/".join(inside))
    assert drawn == {file.rpartition("/")[0] for file in sources()} - {""}


def test_the_guide_names_files_that_exist(developers_guide):
    """Every file that the page names, maybe without its folders, is somewhere in the tree."""
    root = SOURCES.parent
    folders = [root / name for name in ("smallvar", "tests", "docs", "asv_bench", "tools")]
    files = [*root.glob("*"), *(path for folder in folders for path in folder.rglob("*"))]
    paths = ["/" + path.relative_to(root).as_posix() for path in files]
    names = set(re.findall(r"`((?:\w+/)*\w+\.(?:py|pyx|pxd|h|c|rst))`", developers_guide))
    assert len(names) > 40
    assert [name for name in names if not any(path.endswith("/" + name) for path in paths)] == []


NUMBER = r"(?<![\w.])(0x1p-\d+|2\.0 ?\*\* ?-\d+|\d+(?:\.\d+)?(?:e[+-]?\d+)?)"
NAMED = re.compile(r"\s*(#define \w+ |[A-Z][A-Z\d_]*(, [A-Z][A-Z\d_]*)* = )")
UNNAMED = {  # tiny numbers that need no name of their own
    ("_centers/minibatch.py", 1e-3),  # the default of a parameter
}


def number(text):
    """A number as the code writes it."""
    base, _, power = text.replace("0x1p", "2**").partition("**")
    return float(base) ** float(power or 1)


def code_of(text):
    """A source file without docstrings, comments and strings; C within Cython is code."""
    return re.sub(
        r'from \*:\s+"""(?s:(.*?))"""|"""(?s:.*?)"""|/\*(?s:.*?)\*/|"[^"\n]*"|#(?!define).*',
        lambda match: match[1] or "",
        text,
    )


def test_tolerances_have_names():
    """Every tiny number in the code stands in the definition of a constant."""
    if not (SOURCES / "_sweeps" / "_tolerances.h").is_file():
        pytest.skip("the source tree is not at hand")
    unnamed, named = set(), 0
    for file, text in sources().items():
        for line in code_of(text).splitlines():
            tiny = {x for x in map(number, re.findall(NUMBER, line)) if 0 < x < 0.002}
            if NAMED.match(line):
                named += len(tiny)
            else:
                unnamed |= {(file, x) for x in tiny}
    assert unnamed == UNNAMED
    assert named > 50


TYPE = re.compile(r"^(?:cdef |ctypedef )*(?:packed )?(?:class|struct|fused) (\w+)()", re.MULTILINE)
CONSTANT = re.compile(
    r"^(?:cdef (?:\w+ )+)?([A-Z][A-Z\d_]+(?:, [A-Z][A-Z\d_]+)*)(?:: [^=\n]+)? = (.+?)(?: +#.*)?$",
    re.MULTILINE,
)
ENUMERATORS = re.compile(r"^cdef enum[^:\n]*:\n((?:    .+\n)+)", re.MULTILINE)


def with_several_meanings(definition, files):
    """Names that a pattern finds in several modules, by their modules; not with the same value."""
    meanings = defaultdict(dict)
    for file, text in files.items():
        text = ENUMERATORS.sub(lambda match: textwrap.dedent(match[1]), text)
        for match in definition.finditer(text):
            for place, name in enumerate(match[1].split(", ")):
                meanings[name][file] = (match[2], place) if match[2] else file
    return {name: list(each) for name, each in meanings.items() if len(set(each.values())) > 1}


def test_a_name_is_one_thing():
    """Private types, and constants of different value, do not share names across modules."""
    files = {file: text for file, text in sources().items() if file.endswith((".py", ".pyx"))}
    if not any(file.endswith(".pyx") for file in files):
        pytest.skip("the source tree is not at hand")
    types = with_several_meanings(TYPE, files)
    assert len(types) <= 3, types
    constants = with_several_meanings(CONSTANT, files)
    assert len(constants) <= 5, constants
