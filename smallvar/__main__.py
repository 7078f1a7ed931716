"""``python -m smallvar``, and the entry point of ``smallvar``."""

import sys

from smallvar._cli.main import main

if __name__ == "__main__":
    sys.exit(main())
