"""What Python sees of the C-level functions: their outcomes, and capsules with their addresses."""

from enum import IntEnum
from typing import Any

__pyx_capi__: dict[str, Any]

class Outcome(IntEnum):
    OK = 0
    NOT_CONVERGED = 1
    BAD_SIZE = -1
    BAD_VALUE = -2
    OUT_OF_RANGE = -3
    FULL = -4
    NO_MEMORY = -5
