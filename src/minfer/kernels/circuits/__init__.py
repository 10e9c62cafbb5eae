"""Circuits: small eliminations, residuals of factors, the search, and its trace laid out."""
