"""The command line: ``smallvar`` and ``python -m smallvar``.

Options are parsed before anything is imported that takes long, so that ``--help`` does not wait.
Mistakes of the user are raised as `UserError` and end in one line and exit code 2.
"""

import os
import signal
import sys
import threading
from contextlib import contextmanager, redirect_stdout

from smallvar._cli.arguments import parse
from smallvar._cli.output import complain
from smallvar._cli.words import UserError


class Terminated(BaseException):
    """A signal that asks the process to end; it unwinds, so that drafts of files are deleted."""


def main(argv=None):
    """Run the command.

    Returns the exit code: 0; 1 if the output cannot be written; 2 for a mistake of the user; 130
    after Ctrl-C; 141 if the reader of the output has closed it; 143 after SIGTERM.
    """
    try:
        with signals_as_exceptions():
            run(sys.argv[1:] if argv is None else argv)
        if sys.stdout is not None:
            sys.stdout.flush()
    except UserError as error:
        complain(error)
        return 2
    except KeyboardInterrupt:
        complain("interrupted")
        return 130
    except Terminated as error:
        return 128 + error.args[0]
    except BrokenPipeError:
        discard_output()
        return 141
    except OSError as error:
        # errors of files are UserErrors by now, and name their file
        if error.filename is not None:
            raise
        discard_output()
        complain(f"cannot write standard output: {error.strerror or error}")
        return 1
    return 0


def run(argv):
    """Parse the options, and cluster; with ``--out -`` the report goes to standard error."""
    try:
        args = parse(argv)
    except SystemExit:  # of --help and --version
        return
    from smallvar._cli.cluster import cluster
    from smallvar._cli.output import warnings_told
    from smallvar._cli.table import KEPT_FILES

    args.stdout = sys.stdout
    report = sys.stderr if args.out == "-" else sys.stdout
    with KEPT_FILES, warnings_told(), redirect_stdout(report):
        cluster(args)


@contextmanager
def signals_as_exceptions():
    """Context in which SIGTERM and SIGHUP raise `Terminated`, unless somebody handles them."""
    names = [name for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    ours = [number for name in names if signal.getsignal(number := getattr(signal, name)) == 0]
    if threading.current_thread() is not threading.main_thread():
        ours = []  # where handlers cannot be set

    def end(number, frame):
        raise Terminated(number)

    for number in ours:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


def discard_output():
    """Discard what is buffered for standard output, so that flushing at exit cannot fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
