"""Answers the texts of a whole corpus, each exactly once, however often the run is broken off."""
