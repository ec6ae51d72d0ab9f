"""Glossaries: terms that the operator keeps in files, by name and languages."""
