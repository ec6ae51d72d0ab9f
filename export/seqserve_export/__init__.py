"""Exports a checkpoint to an artifact, and proves that both decode alike."""
