"""Section 5.1 of the paper as a tool: pictures without their noise."""
