"""The roles: projector and reconciler. They move values between ports; each has step() and run().

They import the core, the ports and the tasks, and no vendor's library.
"""
