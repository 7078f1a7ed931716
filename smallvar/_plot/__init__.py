"""Displays of fits, with the interface of scikit-learn's displays: arrays in, axes out.

The displays use the fitted attributes of estimators, and no class of estimators. matplotlib is
imported when the first display is drawn, and pyplot only where no axes are given.
"""
