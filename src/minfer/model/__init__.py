"""Names of states, evidence as given, joint tables, directed networks."""
