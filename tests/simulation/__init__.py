"""Deterministic simulation: the production core and roles on the memory adapters, one scheduler, virtual time.

The minimal tests that incident 001 demands, and where they are:
    job graph serialisation, and the expected records
        tests/schemas/test_codec.py, tests/operations/test_submitting.py,
        test_race.py::test_the_records_of_one_job_are_the_expected_ones
    submission while a leader exists, while none exists, during handover
        test_race.py::test_a_submission_is_started_once[leader | no leader | handover]
    granting and revoking, interleaved with submission and restart
        test_race.py::test_every_schedule_of_a_race (every schedule to a depth), test_walk.py (by seed)
    process failure with one and with several jobs
        test_race.py::test_processes_die_with_jobs_running[1 | 5]
"""
