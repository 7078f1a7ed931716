"""Files that are not read as they are: worksheets, which become text, and advice for others."""

import csv
import json
import os
import zipfile

from smallvar._cli.errors import UserError
from smallvar._cli.words import shell_quoted

WORKBOOK = ".xlsx"
# functions of pandas that read a kind of files
READ_BY_PANDAS = {
    ".xls": "excel",
    ".ods": "excel",
    ".json": "json",
    ".html": "html",
    ".sav": "spss",
    ".dta": "stata",
    ".sas7bdat": "sas",
    ".xpt": "sas",
    ".feather": "feather",
    ".arrow": "feather",
    ".orc": "orc",
    ".pkl": "pickle",
    ".h5": "hdf",
}
IN_R = (".rds", ".rda", ".rdata")


def advice_for_kind(path, kind):
    """Text: how a file of another kind becomes a table that is read; empty if that is not known."""
    target = f"{os.path.splitext(path)[0]}.csv"
    if kind in READ_BY_PANDAS:
        reader = READ_BY_PANDAS[kind]
        first = "[0]" if reader == "html" else ""
        here, there = map(json.dumps, (path, target))  # double quotes inside those of the shell
        code = f"import pandas; pandas.read_{reader}({here}){first}.to_csv({there}, index=False)"
        return f"; save it as .csv, or python -c {shell_quoted(code)}"
    if kind in IN_R:
        return "; in R, write.csv(table, 'table.csv', row.names = FALSE) makes a .csv file"
    return ""


def sheet_as_text(path, folder):
    """Write the first worksheet of an .xlsx file to a .csv file in a folder.

    Returns its path, and notes, to stand behind the name of the file.
    """
    try:
        import openpyxl
    except ImportError as error:
        raise UserError(
            f"reading {path} needs openpyxl: pip install openpyxl, or save the worksheet as .csv"
        ) from error
    try:
        # formulas count as the values that they had when the file was saved
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
    except (zipfile.BadZipFile, KeyError, ValueError) as error:
        raise UserError(f"{path} is no .xlsx file that can be read: {error}") from error
    target = os.path.join(folder, "table.csv")
    first, *others = book.worksheets
    others, is_table = [sheet.title for sheet in others], False
    with open(target, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        for row in first.iter_rows(values_only=True):
            cells = ["" if cell is None else cell for cell in row]
            filled = sum(cell != "" for cell in cells)
            is_table |= filled > 1
            writer.writerow(cells if filled else [])  # a blank line
    book.close()
    if not others:
        return target, ()
    names = ", ".join(map(repr, others))
    if not is_table:
        here, there = map(json.dumps, (path, f"{os.path.splitext(path)[0]}.csv"))
        code = (
            f"import pandas; pandas.read_excel({here}, {json.dumps(others[0])})"
            f".to_csv({there}, index=False)"
        )
        raise UserError(
            f"{path}: the first worksheet, {first.title!r}, holds no table; others: {names}; save "
            f"one as .csv, or python -c {shell_quoted(code)}"
        )
    return target, (f", worksheet {first.title!r} is read; others: {names}",)
