"""Decoding options of a request: bounds, rules, and the engine's form of them."""
