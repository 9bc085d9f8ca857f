"""What the daemon tells a service manager, and the units that it is installed with."""
