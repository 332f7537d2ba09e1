"""The past of a ledger: its state at a moment, the changes between two, and what-if folds.

`moment` parses a moment, `resolve_moment` finds its offsets, `historical_log` is the log up to a moment. `state_diff`
compares two moments, `event_trace` folds event by event, `what_if` folds without some records. `bundling` and
`bundle_about` put evidence into a file, `historical_runner` answers for runners of the past. `timeline` is a job's life
on one time axis, `timeline_svg` and `svg` draw it as SVG.
"""
