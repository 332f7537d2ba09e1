"""`make bench`: every benchmark, one after the other."""

from benchmarks import fold_rate

fold_rate.main()
