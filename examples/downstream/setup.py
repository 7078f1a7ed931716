"""Builds one Cython module that calls smallvar; metadata is in pyproject.toml.

Cython finds smallvar/cython_api.pxd in the installed smallvar. The functions are looked up when the
module is imported, so that there is nothing to link.
"""

import sys

from Cython.Build import cythonize
from setuptools import Extension, setup

# Apple's clang needs libomp for OpenMP; without it the loop has one thread.
openmp = {"linux": ["-fopenmp"], "win32": ["/openmp"]}.get(sys.platform, [])

setup(
    ext_modules=cythonize(
        [
            Extension(
                "patches",
                ["patches.pyx"],
                extra_compile_args=openmp,
                extra_link_args=[] if sys.platform == "win32" else openmp,
            )
        ],
        compiler_directives={"language_level": 3, "boundscheck": False, "wraparound": False},
    )
)
