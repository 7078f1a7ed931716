"""The command line: ``smallvar`` and ``python -m smallvar``.

Each command is a function of its arguments, registered in ``COMMANDS``. A command line that begins
with none of their names is for the first command. Mistakes of the user are raised as `UserError`
and end in one line and exit code 2.
"""

import os
import sys
from contextlib import redirect_stdout, suppress

from smallvar._cli.arguments import COMMANDS, nearest
from smallvar._cli.cluster import cluster
from smallvar._cli.errors import UserError
from smallvar._cli.features import features
from smallvar._cli.output import complain, warnings_told
from smallvar._cli.table import KEPT_FILES
from smallvar._cli.track import track

COMMANDS.update(cluster=cluster, features=features, track=track)


def main(argv=None):
    """Run a command.

    Returns the exit code: 0; 1 if the output cannot be written; 2 for a mistake of the user; 130
    after Ctrl-C; 141 if the reader of the output has closed it.
    """
    argv = sys.argv[1:] if argv is None else argv
    try:
        if not argv or argv[0] not in COMMANDS:
            refuse_misspelled(argv)
            argv = [next(iter(COMMANDS)), *argv]
        # --help and --version raise SystemExit. With --out - the parser replaces sys.stdout, which
        # redirect_stdout restores at the end.
        with suppress(SystemExit), KEPT_FILES, warnings_told(), redirect_stdout(sys.stdout):
            COMMANDS[argv[0]](argv[1:])
        if sys.stdout is not None:
            sys.stdout.flush()
    except UserError as error:
        complain(error)
        return 2
    except KeyboardInterrupt:
        complain("interrupted")
        return 130
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


def refuse_misspelled(argv):
    """Raise a UserError if the first argument is no file, but nearly the name of a command."""
    for name in argv[:1]:
        near = nearest(name.lower(), COMMANDS)
        if near and os.path.basename(name) == name and not os.path.lexists(name):
            raise UserError(f"{name} is neither a command nor a file; did you mean {near}?")


def discard_output():
    """Discard what is buffered for standard output, so that flushing at exit cannot fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
