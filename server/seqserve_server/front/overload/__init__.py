"""Overload: which calls are served, which wait, and which are refused at once.

A call that is not answered ends with RESOURCE_EXHAUSTED and a retry time (RetryInfo). A refusal has
to cost less than an answer, or a flood of calls would stop the server. So a call passes six
bounds, the cheap ones first:

=====  ============================  =================================  ====================
order  bound                         where                              a refusal saves
=====  ============================  =================================  ====================
1      calls that wait to be served  ``overload/admission.py``          a task, the reading
2      memory for messages           ``overload/admission.py``          nothing: the call waits
3      repeated refusals of a queue  ``engine_client/engine.py``        the tokenizing
4      memory for long texts         ``overload/memory.py``             the tokenizing
5      memory for answers            ``overload/memory.py``             the engine's work
6      the engine's queue            ``engine/queue/request_queue.py``  the engine's work
=====  ============================  =================================  ====================

Each bound is shared fairly: a client that is alone may use half of what is free, two clients get a
third each, so newcomers always find room. Long texts are read in slices, in turns between clients
(``overload/turns.py``), and languages are detected in turns.

Bound 1 needs a server that takes calls as fast as they arrive. gRPC's own server for asyncio takes
one call of a method in several turns of the event loop, and its core then drops others without a
word. ``overload/acceptor.py`` replaces that loop. It is the only file that uses private parts of
grpcio, and ``test_grpc_private_parts.py`` says what to do if a release changes them. Calls that the
core drops nevertheless are counted in ``seqserve_lost_calls_total``.

Everything here is the state of one front; only the engine's queue is shared by all its clients.
Operators find the options and their defaults in docs/overload.md.
"""
