"""Numbers as people write them: groups of thousands, decimal commas, currencies and percent."""

import re
import unicodedata
from dataclasses import dataclass, field

MINUS = str.maketrans("\u2212\u2013", "--")  # the sign for minus, and the dash that stands for it
APOSTROPHES, SPACES = "'\u2019", " \u00a0\u2009\u202f"  # between thousands
PLAIN = re.compile(r"[\d.,'\u2019 \u00a0\u2009\u202f]*\d[.,]?")
EXPONENT = re.compile(r"[eE][-+]?\d+\Z")
GROUPS = re.compile(
    r"[1-9]\d{0,2}(?:(?P<group>[.,'\u2019 \u00a0\u2009\u202f])\d{3})(?:(?P=group)\d{3})*"
    r"(?:(?P<decimal>[.,])\d*)?"
)
FRACTION = re.compile(r"\d*(?P<decimal>[.,])\d*")


@dataclass
class Evidence:
    """What cells tell of the decimal sign and the sign between thousands.

    ``unclear`` are signs of cells like 1,234, which may be either.
    """

    decimals: set[str] = field(default_factory=set)
    thousands: set[str] = field(default_factory=set)
    unclear: set[str] = field(default_factory=set)

    def add(self, other):
        """Add what other cells tell."""
        self.decimals |= other.decimals
        self.thousands |= other.thousands
        self.unclear |= other.unclear

    @property
    def is_sure(self):
        """Whether the decimal sign is known."""
        return bool(self.decimals)


@dataclass(frozen=True)
class Written:
    """A number taken apart: what stands before and after its digits, and the digits."""

    digits: str
    negative: bool = False
    in_brackets: bool = False
    currency: str = ""
    percent: bool = False

    def evidence(self):
        """What the signs between the digits tell; None if they are not those of a number."""
        body = EXPONENT.sub("", self.digits)
        if body.isdigit():
            return Evidence()
        groups = GROUPS.fullmatch(body)
        if groups is not None:
            sign, decimal = same_sign(groups["group"]), groups["decimal"]
            if decimal == groups["group"]:
                return None
            if decimal is not None:
                return Evidence({decimal}, {sign})
            one_group = len(body.replace(groups["group"], "")) == len(body) - 1
            if one_group and sign in ".,":
                return Evidence(unclear={sign})
            return Evidence(thousands={sign})
        fraction = FRACTION.fullmatch(body)
        if fraction is None or not any(map(str.isdigit, body)):
            return None
        return Evidence({fraction["decimal"]})


def same_sign(sign):
    """One sign for all spaces, and for all apostrophes."""
    return "'" if sign in APOSTROPHES else " " if sign in SPACES else sign


def is_currency(sign):
    """Whether a character is the sign of a currency."""
    return unicodedata.category(sign) == "Sc"


def taken_apart(cell):
    """The parts of a cell that is a number as people write it; None if it is not."""
    text = cell.strip().translate(MINUS)
    if not any(map(str.isdigit, text)) or len(text) > 60:
        return None
    negative = in_brackets = text.startswith("(") and text.endswith(")")
    if in_brackets:
        text = text[1:-1].strip()
    currency, percent, signs = "", False, 0
    while text:
        if text[0] in "+-" and not signs and not in_brackets:
            negative, signs, text = text[0] == "-", 1, text[1:].lstrip()
        elif is_currency(text[0]) and not currency:
            currency, text = text[0], text[1:].lstrip()
        elif is_currency(text[-1]) and not currency:
            currency, text = text[-1], text[:-1].rstrip()
        elif text[-1] == "%" and not percent:
            percent, text = True, text[:-1].rstrip()
        else:
            break
    body = EXPONENT.sub("", text)
    if not body.isascii() and not set(body) - set("0123456789.,") <= set(APOSTROPHES + SPACES):
        return None
    if not PLAIN.fullmatch(body):
        return None
    written = Written(text, negative, in_brackets, currency, percent)
    return None if written.evidence() is None else written


@dataclass(frozen=True)
class Signs:
    """The signs of a file: between thousands (None: none) and of decimals; and those wanted."""

    thousands: str | None = None
    decimal: str = "."
    wanted: str = "."

    def plain(self, cell):
        """The number in a cell as text that a computer reads; the cell if it holds none."""
        written = taken_apart(cell)
        if written is None:
            return cell
        evidence = written.evidence()
        allowed = {self.thousands}
        if not evidence.thousands <= allowed or not evidence.decimals <= {self.decimal}:
            return cell
        if not evidence.unclear <= {self.thousands, self.decimal}:
            return cell
        digits = "".join(
            sign
            for sign in written.digits
            if self.thousands is None or same_sign(sign) != self.thousands
        )
        if self.decimal != self.wanted:
            digits = digits.replace(self.decimal, self.wanted)
        return f"-{digits}" if written.negative else digits


def signs_of(evidence, wanted, thousands=None, by_commas=False):
    """The Signs that the evidence of a file agrees with; None if it does not decide.

    ``wanted`` is the decimal sign of ``--decimal``, ``thousands`` that of ``--thousands``, and
    ``by_commas`` says that commas separate the cells: then they are no decimal signs.
    """
    groups, decimals = set(evidence.thousands), set(evidence.decimals)
    if thousands is not None:
        groups.add(thousands)
    if wanted == ",":
        decimals.add(",")
    if not decimals:
        # 1.234.567 and 1,234,567 leave one sign for decimals
        decimals = {"," for _ in groups & {"."}} | {"." for _ in groups & {","}}
    if not decimals and groups and len(evidence.unclear) == 1:
        decimals = evidence.unclear - groups  # thousands are grouped by another sign
    if not decimals and "," in evidence.unclear and by_commas:
        decimals = {"."}
    if not decimals and evidence.unclear <= {"."}:
        decimals = {"."}
    if len(decimals) != 1:
        return None
    (decimal,) = decimals
    groups |= evidence.unclear - {decimal}
    if decimal in groups or len(groups) > 1:
        return None
    return Signs(next(iter(groups), None), decimal, wanted)
