"""Disaster recovery: `restoring` makes topics anew from an archive, `layout` places each record."""
