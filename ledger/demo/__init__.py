"""The demonstration: jobs on real input, from submit to retirement, with crash and failover; explained and checked."""
