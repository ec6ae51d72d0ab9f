"""The sub-commands that train and score: they read their options before torch is loaded.

So ``--help`` works where only the client is installed, and torch's threads can be told how to wait.
"""
