"""Formulas of docstrings, which are plain text in `help`, set by LaTeX on the pages.

A formula is an indented paragraph with a sum, a norm, a matrix or a penalty. A block of code, after
`::`, is none.
"""

import re

GREEK = {"lam": r"\lambda", "Gamma": r"\Gamma"} | {
    name: f"\\{name}" for name in ("mu", "phi", "theta", "tau", "gamma", "xi")
}
FUNCTIONS = {name: f"\\{name}" for name in ("sum", "log", "exp", "det", "cos", "max", "min")} | {
    name: rf"\operatorname{{{name}}}" for name in ("tr", "diag")
}
WORDS = ("if", "in", "of")
SIGNS = {
    ">=": r"\ge ",
    "<=": r"\le ",
    "!=": r"\ne ",
    " * ": r"\, ",
    " . ": r" \cdot ",
    "{": r"\{",
    "}": r"\}",
}
TOKEN = re.compile(
    r"""(?P<code>[a-z]+="\w+")|(?P<name>(?!lam_)[a-z]{3,}_[a-z]{3,})|\|\|(?P<norm>.*?)\|\|
    |_(?:\{(?P<braced>[^}]*)\}|(?P<sub>\w+(?:,\w+)*))|\^(?P<power>-?\w(?:/\d)?)
    |(?P<word>[A-Za-z]+)|(?P<sign>>=|<=|!=|[ ]\*[ ]|[ ]\.[ ]|[ ]{3,}|[{}])""",
    re.VERBOSE,
)
MARKS = re.compile(r"sum_|sum over|\|\||lam \* K|\[\[")
PARAGRAPH = re.compile(r"(?<=\n\n)((?: {4}.*\n)+)(?=\n|\Z)")


def set_token(match):
    """LaTeX of one token of a formula."""
    kind, text = match.lastgroup, match[match.lastgroup]
    if kind == "code":
        return rf"\texttt{{{text}}}"
    if kind == "name":
        return r"\mathrm{" + text.replace("_", r"\_") + "}"
    if kind == "norm":
        return rf"\lVert {set_line(text)} \rVert"
    if kind in ("braced", "sub"):
        return f"_{{{set_line(text)}}}"
    if kind == "power":
        return f"^{{{text}}}"
    if kind == "sign":
        return SIGNS.get(text, r" \qquad ")  # else spaces
    if text in GREEK or text in FUNCTIONS:
        return (GREEK | FUNCTIONS)[text] + " "
    # letters side by side, as of x_ij, are one symbol each
    return rf"\text{{{text}}}" if len(text) > 2 or text in WORDS else text


def set_line(line):
    """LaTeX of one line of a formula in plain text."""
    # words that follow each other are one text, with the spaces around them
    line = re.sub(r"(\\text\{\w+\}) +(?=\\text\{)", r"\1", TOKEN.sub(set_token, line))
    return re.sub(r" *\\text\{((?:\w|\}\\text\{)+)\} ?", as_text, line)


def as_text(match):
    """Words of a formula as one text, with the spaces that stood around them."""
    words = match[1].replace(r"}\text{", " ")
    before = " " if match[0].startswith(" ") else ""
    after = " " if match[0].endswith(" ") else ""
    return rf"\text{{{before}{words}{after}}}"


def set_formula(text):
    """A formula in plain text, of one or more lines, as a block of LaTeX."""
    lines = [set_line(line.strip()) for line in text.strip().splitlines()]
    if len(lines) == 1:
        return f".. math:: {lines[0]}\n"
    rows = " \\\\\n   ".join(rf"& {line}" for line in lines)
    return f".. math::\n\n   \\begin{{aligned}}\n   {rows}\n   \\end{{aligned}}\n"


def set_formulas(text):
    """Set the formulas of a docstring."""

    def replace(match):
        literal = text[: match.start()].rstrip().endswith("::")
        return match[0] if literal or not MARKS.search(match[0]) else set_formula(match[0])

    return PARAGRAPH.sub(replace, text)


def process(app, what, name, obj, options, lines):
    """Set the formulas of a docstring that autodoc reads."""
    lines[:] = set_formulas("\n".join(lines) + "\n").splitlines()
