"""The runners, and what they share.

`subprocess` runs jobs as processes of one host, `contained` runs plug-ins in processes of their own, `outside` stands
for jobs that their producer runs. `calls`, `plain` and `wire` are a runner behind a connection, `one_instance` binds
a runner to one of its instances.
"""
