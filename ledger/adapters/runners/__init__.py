"""The runners, and the code that they share.

`subprocess` runs jobs as processes of one host. `contained` runs plug-ins, each in a separate process. `outside` stands
for jobs that their producers run. `calls`, `plain` and `wire` connect to a runner in another process. `one_instance`
passes calls to a runner only while it is the expected instance, such as the agent that a record names."""
