"""Drawing: displays after scikit-learn's habit, arrays in, axes out.

Nothing here knows an estimator but by the attributes that a fit leaves. matplotlib is imported
when the first picture is made, and pyplot only where no axes are given.
"""
