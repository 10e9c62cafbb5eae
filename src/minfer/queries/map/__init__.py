"""The best assignment where no clique tree fits: a good one, a bound on all, and often the proof.

| file | what |
|---|---|
| ``search.py`` | what is run, in which order, and when it ends |
| ``problem.py`` | the model as the others see it |
| ``dual.py`` | dual block ascent: the bound, and assignments read off it |
| ``flow.py`` | binary pairwise models: cuts, balanced signs, roof duality |
| ``moves.py`` | moves that never make an assignment worse |
| ``toulbar.py`` | proof by toulbar2, where it is installed |
"""
