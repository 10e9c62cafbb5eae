"""What is said of answers: in sentences, in tables, and as plain values for JSON.

These files read answers and import nothing that makes them: every layer can speak through them.
"""
