"""Compiled extensions of smallvar and the OpenMP probe; all metadata is in pyproject.toml.

Environment variables read at build time:

SMALLVAR_OPENMP
    ``auto`` (default): use it if the compiler has it; fail where it always should (Linux
    with gcc). ``1``: fail loudly without it. ``0``: build without it, with one thread.
SMALLVAR_SIMD
    ``v4`` (default), ``v3`` or ``v2``: the highest instruction set the inner loops are compiled
    for on x86-64 (AVX-512, AVX2 with FMA, SSE2). The lower ones are always built, and the best
    that the processor has is chosen when the library is loaded; leaving out the higher ones shows
    on one machine what another would do. Elsewhere there is one set, and nothing to leave out.
SMALLVAR_DEBUG
    ``1``: a slow build that checks memory accesses: Cython's bounds checks, and
    gcc's or clang's address and undefined-behavior sanitizers in the C code
    (run it with the sanitizer's runtime preloaded, see CONTRIBUTING.md).
CYTHON_CACHE_DIR
    Cython's own: a folder where translated files are kept from one build to the next.
"""

import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

SWEEPS = Path("smallvar", "_sweeps")
OPENMP = os.environ.get("SMALLVAR_OPENMP", "auto")
SIMD = os.environ.get("SMALLVAR_SIMD", "v4")
DEBUG = os.environ.get("SMALLVAR_DEBUG", "0") == "1"

PROBE = """
#include <omp.h>
int main(void) { return omp_get_max_threads() < 1; }
"""


def openmp_flags(compiler_type):
    """Compile and link flags that usually switch OpenMP on, most likely first."""
    if compiler_type == "msvc":
        return [(["/openmp"], [])]
    if sys.platform == "darwin":
        # Apple's clang knows the pragma but ships no runtime (libomp or llvm-openmp does).
        return [(["-Xpreprocessor", "-fopenmp"], ["-lomp"]), (["-fopenmp"], ["-fopenmp"])]
    return [(["-fopenmp"], ["-fopenmp"])]


class BuildExt(build_ext):
    """Translates to C, only when it builds; adds compiler flags once the compiler is known."""

    def run(self):
        """Translate and build."""
        translated = cythonize(
            self.extensions,
            shared_utility_qualified_name=SHARED,
            compiler_directives={
                "language_level": 3,
                "boundscheck": DEBUG,
                "wraparound": False,
                "initializedcheck": False,
                "cdivision": True,
                "embedsignature": True,
                # No sweep has state that another could touch: what outlives a call belongs to the
                # calling thread, but for a flag that is set once, after a fork.
                "freethreading_compatible": True,
            },
            force=True,
            nthreads=os.cpu_count() or 1,
            cache=os.environ.get("CYTHON_CACHE_DIR") or False,
        )
        sources = {ext.name: ext.sources for ext in translated}
        for ext in self.extensions:
            ext.sources = sources[ext.name]
        super().run()

    def build_extensions(self):
        """Probe for OpenMP, set the flags, build."""
        if SIMD not in ("v2", "v3", "v4"):
            raise SystemExit(f"SMALLVAR_SIMD must be v2, v3 or v4, got {SIMD!r}")
        openmp, openmp_link = self.find_openmp()
        compile_args, link_args = [], []
        if self.compiler.compiler_type == "msvc":
            compile_args += ["/O2", "/fp:precise"]
        else:
            # Contracting a*b+c to one rounding changes bits between builds: decisions
            # are made in plain float64 arithmetic, so it is off unless a loop asks for it.
            # Python's own flags have signed numbers wrap around, for its own sake: an inner loop
            # then takes up to a third longer, since its index might wrap. Ours never do.
            compile_args += ["-O3", "-ffp-contract=off", "-fno-wrapv"]
            compile_args += ["-Wno-unused-function", "-Wno-psabi", "-fopenmp-simd"]
            # A loop that happens to begin elsewhere in a cache line takes up to a third longer: a
            # change of one function would slow down others.
            compile_args += ["-falign-loops=64"]
            if DEBUG:
                sanitize = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
                compile_args += ["-O1", "-g", "-fno-omit-frame-pointer", *sanitize]
                link_args += sanitize
            else:
                compile_args += ["-g0"]  # symbols for a debugger are four fifths of a wheel
        for ext in self.extensions:
            ext.extra_compile_args = compile_args + openmp
            ext.extra_link_args = link_args + openmp_link
            ext.define_macros += [("SMALLVAR_SIMD", SIMD[1])]
        # Without force, setuptools keeps objects that were built with other flags.
        self.force = True
        self.parallel = self.parallel or os.cpu_count()
        super().build_extensions()

    def find_openmp(self):
        """Return the OpenMP flags, or none, as SMALLVAR_OPENMP says."""
        if OPENMP not in ("auto", "0", "1"):
            raise SystemExit(f"SMALLVAR_OPENMP must be auto, 0 or 1, got {OPENMP!r}")
        if OPENMP == "0":
            return [], []
        for compile_args, link_args in openmp_flags(self.compiler.compiler_type):
            if self.links(compile_args, link_args):
                return list(compile_args), list(link_args)
        if OPENMP == "1" or (sys.platform == "linux" and "gcc" in self.c_compiler_version()):
            raise SystemExit(
                "smallvar: the C compiler cannot build an OpenMP program. Install its OpenMP "
                "runtime, or set SMALLVAR_OPENMP=0 for a build with one thread."
            )
        print("smallvar: no OpenMP found, building with one thread", file=sys.stderr)
        return [], []

    def links(self, compile_args, link_args):
        """Whether the probe compiles and links (it is not run: cross-compiling must work)."""
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder, "probe.c")
            source.write_text(PROBE)
            try:
                objects = self.compiler.compile(
                    [str(source)], output_dir=folder, extra_postargs=compile_args
                )
                self.compiler.link_executable(
                    objects, "probe", output_dir=folder, extra_postargs=link_args
                )
            except Exception:  # each compiler class raises errors of its own
                return False
        return True

    def c_compiler_version(self):
        """First words of the compiler's --version, lower case, or an empty string."""
        command = getattr(self.compiler, "compiler_so", None) or [sysconfig.get_config_var("CC")]
        try:
            out = subprocess.run(
                [command[0], "--version"], capture_output=True, text=True, check=True
            )
        except (OSError, subprocess.CalledProcessError):
            return ""
        return out.stdout.lower() + " gcc" * ("Free Software Foundation" in out.stdout)


def extension(name):
    """One sweep module; every header it may include is a dependency."""
    headers = [str(p) for pattern in ("*.h", "*.pxd") for p in SWEEPS.rglob(pattern)]
    return Extension(
        f"smallvar._sweeps.{name}",
        [str(SWEEPS.joinpath(*name.split(".")).with_suffix(".pyx"))],
        include_dirs=[str(SWEEPS)],
        depends=headers,
    )


MODULES = (
    "parallel",
    "stopping",
    "rows",
    "ranges",
    "sums",
    "exact",
    "memberships",
    "dense",
    "sparse",
    "nearest",
    "nearest_sweep",
    "affine",
    "pairs",
    "divergences",
    "means",
    "dpmeans",
    "noise",
    "draws",
    "merge",
    "residual_density",
    "boundary",
    "gaussians",
    "mixed_rows",
    "mixed",
    "in_order",
    "dynamic",
    "exchange",
    "hdp",
    "topics",
    "segments",
    "direct",
    "graph",
    "features.state",
    "features.sweeps",
    "features.collapsed",
    "features.starts",
)

# What Cython adds for memoryviews is compiled once instead of in every module: a third of the time.
SHARED = "smallvar._sweeps._cyutility"

setup(
    ext_modules=[
        *(extension(name) for name in MODULES),
        Extension(
            "smallvar.cython_api",
            [str(Path("smallvar", "cython_api.pyx"))],
            include_dirs=[str(SWEEPS)],
            depends=[str(path) for path in SWEEPS.glob("*.[hp]*")],
        ),
        Extension(SHARED, [str(SWEEPS / "_cyutility.c")]),
    ],
    cmdclass={"build_ext": BuildExt},
)
