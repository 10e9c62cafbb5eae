"""Where the true marginals lie."""
