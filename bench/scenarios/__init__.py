"""The comparisons: each module measures a subject, and lays its numbers out in tables."""
