"""Tables whose columns are of several kinds, with cells that are missing."""
