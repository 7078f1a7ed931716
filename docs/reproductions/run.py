"""Run the scripts of this folder one after another, each in a process of its own.

    SMALLVAR_DATA=folder python docs/reproductions/run.py [--quick] [--results FOLDER] [NAME ...]

runs those named, or all of them, which takes two hours or so of one core. What NAME.py prints goes
to results/NAME.txt beside this file, its figures to results/NAME.png and, if there are several,
results/NAME_*.png. At the end there is a line for each: seconds by the clock, and "ok", "failed",
"too long", or "skipped" where a script needs files of SMALLVAR_DATA and that is not set. The exit
status is 1 if one failed or took too long. --quick passes --quick on, which takes each script under
some 20 seconds, and keeps nothing unless --results names a folder.
"""

import argparse
import os
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
    "coresets": Script(),
    "defaults": Script(),
    "dynamic_data": Script(figure=True, data=True),
    "feature_defaults": Script(),
    "feature_quality": Script(figure=True, data=True),
    "first_example": Script(figure=True),
    "gaussian_processes": Script(),
    "hdp_toy": Script(),
    "kulis_jordan": Script(data=True),
    "kulis_jordan_figure": Script(figure=True),
    "kulis_jordan_patches": Script(),
    "mad_bayes": Script(figure=True, data=True),
    "many_machines": Script(),
    "mixed_tables": Script(),
    "moving_gaussians": Script(figure=True),
    "moving_rings": Script(figure=True, alone=True),
    "moving_samplers": Script(figure=True),
    "outliers": Script(),
    "pitman_yor": Script(),
    "rivals": Script(),
    "scaling": Script(figure=True),
    "segments": Script(),
}


def run(name, results, quick):
    """Run a script; return what became of it."""
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
    parser.add_argument("name", nargs="*", metavar="NAME", help=", ".join(SCRIPTS))
    parser.add_argument("--quick", action="store_true", help="smaller problems, nothing is kept")
    parser.add_argument("--results", type=Path, help="folder in place of results, also if quick")
    options = parser.parse_args()
    names = [name.removesuffix(".py") for name in options.name] or list(SCRIPTS)
    if unknown := [name for name in names if name not in SCRIPTS]:
        parser.error(f"no such script: {', '.join(unknown)}; there are {', '.join(SCRIPTS)}")
    lines = []
    with ExitStack() as stack:
        results = options.results or HERE / "results"
        if options.quick and not options.results:
            results = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        results.mkdir(parents=True, exist_ok=True)
        for name in names:
            begin = time.perf_counter()
            outcome = run(name, results, options.quick)
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
