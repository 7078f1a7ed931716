"""Drawing: arrays in, axes out.

Nothing here knows estimators or tables, opens a window or touches what is global to matplotlib,
which is imported when the first picture is made.
"""
