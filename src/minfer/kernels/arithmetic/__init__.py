"""Numbers: many side by side, without a range, sorted."""
