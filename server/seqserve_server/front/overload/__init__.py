"""Overload: which calls are served, which wait, and which are refused at once.

A call that is not answered ends with RESOURCE_EXHAUSTED and a retry time (RetryInfo). A refusal has
to cost less than an answer, or a flood of calls would stop the server. So a call passes five
bounds, the cheap ones first:

=====  ==============================  ========================================  =================
order  bound                           where                                     a refusal costs
=====  ==============================  ========================================  =================
1      calls that wait to be served    ``overload/admission.py``                 no task, no reading
2      repeated refusals of a client   ``engine_client/refusals.py``             no tokenizing
3      memory for long texts           ``ServerResources.texts``                 no tokenizing
4      memory for answers              ``ServerResources.answers``               no engine
5      the engine's queue              ``engine/queue/admission.py``             a message
=====  ==============================  ========================================  =================

Each bound is shared fairly: a client that is alone may use half of what is free, two clients get a
third each, so newcomers always find room. Texts are read in turns between clients.

Bound 1 needs a server that takes calls as fast as they arrive. gRPC's own server for asyncio takes
one call of a method in several turns of the event loop, and its core then drops the others without
a word. ``overload/acceptor.py`` replaces that loop. It is the only file that uses private parts of
grpcio, and ``test_grpc_private_parts.py`` says what to do if a release changes them. Calls that the
core drops nevertheless are counted in ``seqserve_lost_calls_total``.

All of this is the state of one front, except the engine's queue. Operators find the options and
their defaults in docs/deploy.md, "Overload".
"""
