"""A line of progress on standard error, if that is a terminal and the work takes long."""

import os
import sys
from time import perf_counter

LINE_PATIENCE, LINE_TICK = 1.0, 0.5  # seconds before the line appears, and between updates


class ProgressLine:
    """Context that shows how far the work in it is, and how long it may still take.

    The work calls `show` after each of its steps. If standard error is not a terminal, there is no
    line.
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

    def follow(self, event):
        """Show the latest step of a fit."""
        self.show(event.message, event.done)

    def show(self, note="", done=None):
        """Draw the line, if it is time: a text on the last step, and the share done, if known."""
        if ProgressLine.current is not self or perf_counter() < self.next:
            return
        self.write("\r" + self.words(perf_counter() - self.begin, note, done))
        self.shown, self.next = True, perf_counter() + LINE_TICK

    def words(self, elapsed, note="", done=None):
        """The text of the line: the work, the share done, the time taken and the time left."""
        words = f"{self.what}: {span(elapsed)}"
        if done:
            left = span(elapsed * (1 - done) / done)
            words = f"{self.what}: {done:.0%} after {span(elapsed)}, about {left} left"
        return f"{words}, {note}" if note else words

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


def span(seconds):
    """A length of time as text: 7 s, 3 min 20 s or 2 h 5 min."""
    seconds = round(seconds)
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60} min"
