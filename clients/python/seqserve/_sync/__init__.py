# Generated from seqserve/_async/__init__.py by `make clients`; do not edit.
"""The blocking client."""
