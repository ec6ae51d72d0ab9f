"""Pairs made of pairs: a small corpus, widened by what its language leaves to the writer.

Names, numbers, punctuation, letters, phrases and nouns, as files beside this one have them for each
language. A recipe asks for them in ``[data.made]``.
"""
