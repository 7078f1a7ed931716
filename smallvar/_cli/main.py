"""The command line: ``smallvar`` and ``python -m smallvar``.

Each command is one function of its own arguments, entered in ``COMMANDS``; a command line
that begins with none of their names goes to the first. Whatever is the user's to
put right is raised as `UserError` and ends in one line and exit code 2.
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
ARGUMENT = re.compile(r"\b(algorithm|lam)='(\w+)'")  # of an estimator, as its warnings advise it


def main(argv=None):
    """Run the command line.

    Parameters
    ----------
    argv : list of str, optional
        The arguments, by default those of the process.

    Returns
    -------
    code : int
        The exit code: 0, or 2 for a mistake of the user's, 130 after Ctrl-C, 141 when the
        reader of the output has gone away.
    """
    argv = sys.argv[1:] if argv is None else argv
    if not argv or argv[0] not in COMMANDS:
        argv = [next(iter(COMMANDS)), *argv]
    try:
        # --help and its like end as SystemExit, errors as UserError.
        # With --out - the report goes elsewhere; redirect_stdout puts all back in the end.
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
        # What is still buffered goes nowhere, rather than failing once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return 0


def in_options(warning):
    """Turn the arguments that a warning advises into options of the command line."""
    return ARGUMENT.sub(r"--\1 \2", str(warning))
