"""`make bench`: every benchmark, one after the other."""

from benchmarks import fold_rate, task_time

fold_rate.main()
task_time.main([])
