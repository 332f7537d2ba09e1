"""`make bench`: every benchmark, one after the other."""

from benchmarks import fold_rate, jvm_options, take_over, task_time

fold_rate.main()
task_time.main([])
jvm_options.main([])
take_over.main([])
