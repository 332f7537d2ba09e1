"""Leadership by ZooKeeper: an ephemeral sequential node per candidate, and a lease that is counted on this side."""
