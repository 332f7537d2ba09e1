"""Leadership by ZooKeeper: an ephemeral sequential node per candidate, and a lease that the candidate itself times."""
