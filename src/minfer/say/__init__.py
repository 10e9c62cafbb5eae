"""What is said of answers: in sentences, in tables, and as plain values for JSON.

These files read answers and import nothing that makes them, so that every layer can speak through
them. ``answers`` is about any answer, ``intervals`` and ``reduced`` about those; ``tables`` has a
row for each variable. Counts, times and sizes are in :mod:`minfer.basics.words`, what notebooks and
terminals show in :mod:`minfer.basics.notebook`.
"""
