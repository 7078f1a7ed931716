"""A line of progress on standard error, if that is a terminal and the work takes long."""

import os
import sys
from time import perf_counter

LINE_PATIENCE, LINE_TICK = 1.0, 0.5  # seconds before the line appears, and between updates


class ProgressLine:
    """Context that shows how far the work in it is, if standard error is a terminal.

    The work calls `show` after each of its steps.
    """

    current = None  # the ProgressLine whose line may be on the terminal

    def __init__(self, what):
        self.what, self.shown = what, False

    def __enter__(self):
        """Start the clock."""
        self.stream, self.begin = sys.stderr, perf_counter()
        self.next = self.begin + LINE_PATIENCE
        if self.stream is not None and self.stream.isatty():
            ProgressLine.current = self
        return self

    def __exit__(self, *error):
        """Clear the line."""
        self.clear()
        ProgressLine.current = None

    def show(self, note):
        """Draw the line, if it is time, with a text on the last step."""
        if ProgressLine.current is not self or perf_counter() < self.next:
            return
        self.write(f"\r{self.what}: {perf_counter() - self.begin:.0f} s, {note}")
        self.shown, self.next = True, perf_counter() + LINE_TICK

    def clear(self):
        """Clear the line, so that other text can be printed; it returns with a later step."""
        if self.shown:
            self.write("\r", end="\r")
            self.shown = False

    def write(self, text, end=""):
        """Write a text that begins with a carriage return, one column less than the terminal has.

        Some terminals wrap at the last column.
        """
        try:
            columns = os.get_terminal_size(self.stream.fileno()).columns
        except OSError:
            columns = 0
        width = columns or 80  # 0 from terminals of unknown size
        self.stream.write(text[:width].ljust(width) + end)
        self.stream.flush()
