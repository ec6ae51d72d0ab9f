"""Checks that nothing is kept of requests, clients and rows that have left an engine."""

from seqserve_server.engine.cache import SlotCache
from seqserve_server.engine.decoding.search import Search
from seqserve_server.engine.engine import Engine
from seqserve_server.engine.queue.fair_queue import FairQueue, Waiting
from seqserve_server.engine.queue.request_queue import RequestQueue
from seqserve_server.engine.queue.scheduler import Scheduler
from seqserve_server.engine.queue.score_queue import ScoreQueue
from seqserve_server.engine.queue.turns import Turns
from seqserve_server.engine.worker import Worker


def assert_idle(part: Engine | Worker | Search | SlotCache | RequestQueue | FairQueue) -> None:
    """Checks an engine, or a part of one, and all of its parts."""
    match part:
        case Engine():
            assert_idle(part._scheduler)
            assert_idle(part._score_queue)
        case Worker():
            part._rows.compact(part._search.move)
            assert not (part._rows or part._streaming or part._scoring)
            assert_idle(part._search)
        case Search():
            assert not (part._rows.states or part._drafts.of_rows or part._outputs._rows)
            assert all(batch.advance() == ([], []) for batch in part._beams.values())
            assert_idle(part._cache)
        case SlotCache():
            assert not part._masks.by_row
            assert (part.top_k, part.num_logits, len(part._candidate_step.candidates)) == (0, 0, 0)
        case FairQueue():
            assert all(is_empty(turns) for turns in part._turns.values())
            assert not part._owners
            assert all(each == Waiting() for each in part._parts.values())
        case RequestQueue():
            assert_idle(part._queue)
            if isinstance(part, Scheduler):
                assert not (part._started or part.running or part._cancelled or part._tokens_ahead)
            if isinstance(part, ScoreQueue):
                assert not (part._answers or part._running)


def is_empty(turns: Turns) -> bool:
    root = turns._root
    return not (root.children or root.work or root.requests or turns)
