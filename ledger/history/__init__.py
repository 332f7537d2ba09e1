"""The past of a ledger, and its alternatives.

`moment` and `moments` resolve what people call a moment, `past` is the log up to one. `differing` compares two moments,
`stepping` folds event by event, `what_if` folds without one record. `bundling` and `bundle_about` put evidence into a
file, `recorded` answers for runners of the past. `timeline` is a job's life on one time axis, `drawing` and `strokes`
draw it as SVG.
"""
