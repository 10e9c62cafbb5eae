"""The paper's experiments, each a module that measures and returns numbers."""
