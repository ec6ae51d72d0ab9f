"""The sub-commands ``train`` and ``evaluate``: they read their options before torch is loaded.

So ``--help`` works with the client alone, and OpenMP's wait policy is set in time.
"""
