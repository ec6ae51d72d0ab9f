"""Pictures of what is inside: positions, masks, attention, trainings, benchmarks, the scheduler.

``seqserve plot`` draws each from the code that trains and serves, never from a second formula.
"""
