"""Gradients of single records, weighted and summed: three ways to the same numbers.

`book_keeping` is ours and fast, `opacus` and `functional` are the independent oracles.
"""
