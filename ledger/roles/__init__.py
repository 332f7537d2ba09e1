"""The roles: they move values between ports. Each has step() and run(); they import the core and the ports only."""
