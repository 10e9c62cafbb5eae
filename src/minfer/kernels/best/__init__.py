"""Best assignments."""
