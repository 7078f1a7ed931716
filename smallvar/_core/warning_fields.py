"""Warnings whose texts name parameters, for the command line to name its options instead."""

import warnings

from smallvar._core.validation import level_of_caller


def warn_in_fields(category, template, names=None, **fields):
    """Warn with a text whose fields name parameters, for another interface to word in its way.

    The warning has ``template`` and ``fields``. A field is a pair: a parameter, and the value
    advised or None; "path_.labels", and a number of clusters; "columns", and their positions; or
    a class of this package, and None.
    ``names`` are those of all columns, if they have names.
    """

    def in_python(what, value):
        if what == "columns":
            words = [str(j) if names is None else repr(str(names[j])) for j in value[:5]]
            return ", ".join(words) + (", ..." if len(value) > 5 else "")
        if what == "path_.labels":
            return f"path_.labels({value})"
        return what if value is None else f"{what}={value!r}"

    text = template.format(**{name: in_python(*field) for name, field in fields.items()})
    warning = category(text)
    warning.template, warning.fields = template, fields
    warnings.warn(warning, stacklevel=level_of_caller())
