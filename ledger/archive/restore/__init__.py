"""Disaster recovery: `restoring` rebuilds the topics from an archive, `layout` computes each record's new position."""
