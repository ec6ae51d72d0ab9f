"""Texts and tokens: how a vocabulary spells, divides and joins them."""
