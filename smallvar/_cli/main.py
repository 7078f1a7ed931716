"""The command line: ``smallvar`` and ``python -m smallvar``.

Each command is a function of its arguments, registered in ``COMMANDS``. A command line that begins
with none of their names is for the first command. Mistakes of the user are raised as `UserError`
and end in one line and exit code 2.
"""

import os
import re
import sys
import warnings
from contextlib import redirect_stdout, suppress

from smallvar._cli.arguments import COMMANDS
from smallvar._cli.cluster import cluster
from smallvar._cli.features import features
from smallvar._cli.output import complain
from smallvar._cli.table import UserError
from smallvar._cli.track import track

COMMANDS.update(cluster=cluster, features=features, track=track)
ARGUMENT = re.compile(r"\b(algorithm|lam)='(\w+)'")  # a parameter in a warning of an estimator


def main(argv=None):
    """Run a command.

    Parameters
    ----------
    argv : list of str, optional
        The arguments, by default those of the process.

    Returns
    -------
    code : int
        The exit code: 0; 2 for a mistake of the user; 130 after Ctrl-C; 141 if the reader of the
        output has closed it.
    """
    argv = sys.argv[1:] if argv is None else argv
    if not argv or argv[0] not in COMMANDS:
        argv = [next(iter(COMMANDS)), *argv]
    try:
        # --help and --version raise SystemExit. With --out - the parser replaces sys.stdout, which
        # redirect_stdout restores at the end.
        with suppress(SystemExit), warnings.catch_warnings(), redirect_stdout(sys.stdout):
            warnings.showwarning = lambda warning, *_: complain("warning:", in_options(warning))
            COMMANDS[argv[0]](argv[1:])
        sys.stdout.flush()
    except UserError as error:
        complain(error)
        return 2
    except KeyboardInterrupt:
        complain("interrupted")
        return 130
    except BrokenPipeError:
        # buffered output is discarded, so that flushing at exit does not fail again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return 0


def in_options(warning):
    """The text of a warning, with parameters of estimators as options of the command line."""
    return ARGUMENT.sub(r"--\1 \2", str(warning))
