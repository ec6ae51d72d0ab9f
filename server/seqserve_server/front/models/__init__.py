"""Models and their versions: which are loaded, which serve, and how they come and go."""
