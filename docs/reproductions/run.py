"""Run the scripts of this folder one after another, each in a process of its own.

    SMALLVAR_DATA=folder python docs/reproductions/run.py [--quick] [--results FOLDER] [NAME ...]

runs those named, or all scripts of this folder, which takes ten hours or so of one core; with
SMALLVAR_RESUME=folder those of hours go on where they were stopped (resume.py). What NAME.py prints
goes to results/NAME.txt beside this file, its figures to results/NAME.png and, if there are
several, results/NAME_*.png. At the end there is a line for each: seconds by the clock, and "ok",
"failed", "too long", or "skipped" where a script needs files of SMALLVAR_DATA and that is not set.
The exit status is 1 if one failed or took too long. --quick passes --quick on, which takes each
script under some 20 seconds, and keeps nothing unless --results names a folder. Some NAMEs are
programs of asv_bench or parts of a script, which are run only if they are named.

"battery" needs a checkout of github.com/gagolews/clustering-data-v1 in the folder BATTERY.

results/sources.json gets a checksum of the code that has made a file, by which a test finds results
of code that has changed since.
"""

import argparse
import ast
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Script:
    """What a script is like.

    ``figure``: it takes --figure; ``alone``: then it draws and does nothing else, so it is run once
    more for that, but not if it is to be quick; ``data``: it cannot do without SMALLVAR_DATA;
    ``limit``: minutes after which it is stopped.
    """

    figure: bool = False
    alone: bool = False
    data: bool = False
    limit: float = 60


SCRIPTS = {
    "communities": Script(data=True),
    "compared": Script(),
    "coresets": Script(),
    "defaults": Script(),
    "dynamic_data": Script(figure=True, data=True),
    "feature_defaults": Script(),
    "feature_quality": Script(figure=True, data=True),
    "first_example": Script(figure=True),
    "gaussian_processes": Script(),
    "hard_topics": Script(data=True),
    "hdp_toy": Script(),
    "hundred_million": Script(),
    "kulis_jordan": Script(data=True),
    "kulis_jordan_figure": Script(figure=True),
    "kulis_jordan_patches": Script(),
    "links": Script(),
    "mad_bayes": Script(figure=True, data=True),
    "many_machines": Script(),
    "memberships": Script(),
    "mixed_gaps": Script(),
    "mixed_tables": Script(),
    "moving_gaussians": Script(figure=True, limit=120),
    "moving_rings": Script(figure=True, alone=True, limit=120),
    "moving_samplers": Script(figure=True, limit=480),
    "number": Script(),
    "outliers": Script(),
    "pitman_yor": Script(),
    "rivals": Script(),
    "scaling": Script(figure=True, limit=300),
    "segments": Script(),
    "shapes": Script(),
    "speed": Script(figure=True, limit=120),
    "starts": Script(),
    "topics": Script(data=True),
    "tuning": Script(data=True, limit=120),
}


# Programs of asv_bench, and parts of a script, whose output pages show; run without --quick.
PROGRAMS = {
    "battery": (
        *("asv_bench/known_k.py", "--rivals", "--battery", "$BATTERY", "--skip", "g2mg", "h2mg"),
        *("--most-rows", "10000", "--known", "$SMALLVAR_DATA/known_k/known_k.npz"),
    ),
    "number_unknown": ("asv_bench/compare.py", "number_unknown", "all cores"),
    "same_work": ("asv_bench/compare.py", "same_work"),
    "defaults_data_sets": ("docs/reproductions/defaults.py", "data_sets"),
    "defaults_features": ("docs/reproductions/defaults.py", "features"),
    "defaults_graphs": ("docs/reproductions/defaults.py", "graphs"),
    "defaults_kernels": ("docs/reproductions/defaults.py", "kernels"),
    "defaults_moving": ("docs/reproductions/defaults.py", "moving"),
    "defaults_outliers": ("docs/reproductions/defaults.py", "outliers"),
    "defaults_shapes": ("docs/reproductions/defaults.py", "shapes"),
    "defaults_real_shapes": ("docs/reproductions/defaults.py", "real_shapes"),
    "known_k": ("asv_bench/known_k.py", "--rivals"),
}


def code(path):
    """The lines of a script without docstrings, comments on lines of their own, and blank lines."""
    text = path.read_text(encoding="utf-8")
    tree, lines = ast.parse(text), text.splitlines()
    for node in ast.walk(tree):
        documented = isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef)
        if documented and ast.get_docstring(node):
            for number in range(node.body[0].lineno, node.body[0].end_lineno + 1):
                lines[number - 1] = ""
    return [line.rstrip() for line in lines if line.strip() and not line.lstrip().startswith("#")]


def sources(path):
    """A script and what it imports of its folder and of asv_bench, directly or not: paths."""
    found, left = set(), [path]
    folders = (HERE, HERE.parents[1] / "asv_bench")
    while left:
        path = left.pop()
        if path in found:
            continue
        found.add(path)
        imports = re.findall(r"(?m)^ *(?:from|import) ([\w.]+)", path.read_text(encoding="utf-8"))
        names = [name.replace(".", "/") + ".py" for name in imports]
        left += [folder / name for folder in folders for name in names if (folder / name).is_file()]
    return sorted(found)


def checksum(name):
    """Of the code that makes the results of a script."""
    path = HERE / f"{name}.py"
    if name in PROGRAMS:
        path = HERE.parents[1] / PROGRAMS[name][0]
    lines = [line for path in sources(path) for line in code(path)]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def note(name, results):
    """Keep the checksum of the code beside the results that it has made."""
    path = results / "sources.json"
    sums = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    sums = dict(sorted({**sums, name: checksum(name)}.items()))
    path.write_text(json.dumps(sums, indent=4) + "\n", encoding="utf-8")


def run(name, results, quick):
    """Run a script or program; return what became of it."""
    if name in PROGRAMS:
        program, *arguments = PROGRAMS[name]
        arguments = [os.path.expandvars(argument) for argument in arguments]
        command = [sys.executable, str(HERE.parents[1] / program), *arguments]
        with open(results / f"{name}.txt", "w", encoding="utf-8") as output:
            return finish(command, output, 3600)
    script = SCRIPTS[name]
    if script.data and "SMALLVAR_DATA" not in os.environ:
        return "skipped"
    command = [sys.executable, str(HERE / f"{name}.py")]
    drawing = ["--figure", str(results / f"{name}.png")] if script.figure else []
    if quick:
        command.append("--quick")
    commands = [command + (drawing if not script.alone else [])]
    if script.alone and not quick:
        commands.append(command + drawing)
    with open(results / f"{name}.txt", "w", encoding="utf-8") as output:
        for command in commands:
            outcome = finish(command, output, 60 * script.limit)
            if outcome != "ok":
                break
    return outcome


def finish(command, output, seconds):
    """Run a command to its end, or for so long; show what it complains of if it fails."""
    with tempfile.TemporaryFile() as complaints:
        # a session of its own, so that what it starts can be stopped with it
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=complaints,
            env=os.environ | {"PYTHONUTF8": "1", "MPLBACKEND": "Agg"},
            start_new_session=True,
        )
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            if process.poll() is None:
                stop(process)
        complaints.seek(0)
        if status != 0:
            sys.stderr.buffer.write(complaints.read())
            sys.stderr.flush()
    return {0: "ok", None: "too long"}.get(status, "failed")


def stop(process):
    """End the process and all that it started."""
    if hasattr(os, "killpg"):
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()


def main():
    """Run them; return 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("name", nargs="*", metavar="NAME", help=", ".join([*SCRIPTS, *PROGRAMS]))
    parser.add_argument("--quick", action="store_true", help="smaller problems, nothing is kept")
    parser.add_argument("--results", type=Path, help="folder in place of results, also if quick")
    options = parser.parse_args()
    names = [name.removesuffix(".py") for name in options.name] or list(SCRIPTS)
    known = [*SCRIPTS, *PROGRAMS]
    if unknown := [name for name in names if name not in known]:
        parser.error(f"no such script: {', '.join(unknown)}; there are {', '.join(known)}")
    lines = []
    with ExitStack() as stack:
        results = options.results or HERE / "results"
        if options.quick and not options.results:
            results = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        results.mkdir(parents=True, exist_ok=True)
        for name in names:
            begin = time.perf_counter()
            outcome = run(name, results, options.quick)
            if outcome == "ok" and not options.quick:
                note(name, results)
            lines.append((name, time.perf_counter() - begin, outcome))
            print("{:20s}{:8.1f} s  {}".format(*lines[-1]), flush=True)
    counts = {}
    for _, _, outcome in lines:
        counts[outcome] = counts.get(outcome, 0) + 1
    total = sum(seconds for _, seconds, _ in lines)
    told = ", ".join(f"{number} {outcome}" for outcome, number in counts.items())
    print(f"{len(lines)} scripts in {total:.0f} s: {told}")
    return int("failed" in counts or "too long" in counts)


if __name__ == "__main__":
    sys.exit(main())
