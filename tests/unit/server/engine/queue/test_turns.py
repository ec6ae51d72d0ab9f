from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.server.engine.idle import is_empty
from tests.unit.server.engine.requests import queued

from seqserve_server.engine.queue.turns import Turns
from seqserve_server.engine.request import Request

CLIENTS = ["a", "b", "c", "d"]
FLOWS = ["1", "2", "3"]
MAX_LENGTH = 20
SENT = st.lists(
    st.builds(
        queued,
        st.integers(1, MAX_LENGTH),
        caller=st.sampled_from(CLIENTS),
        flow=st.sampled_from(FLOWS),
    ),
    max_size=40,
)


def client_of(one: Request) -> str:
    return one.spec.client_id


def flow_of(one: Request) -> tuple[str, str]:
    return one.spec.client_id, one.spec.flow_id


def filled(requests: list[Request]) -> Turns:
    turns = Turns()
    for one in requests:
        turns.add(one)
    return turns


def serve(turns: Turns) -> Request:
    one = next(iter(turns))
    turns.serve(one)
    return one


def served_before(turns: Turns, newest: Request) -> list[Request]:
    turns.add(newest)
    before = []
    while (one := serve(turns)) is not newest:
        before.append(one)
    return before


@st.composite
def turns_after_a_while(draw: st.DrawFn) -> Turns:
    """Draws turns of requests of which some have been served."""
    turns = filled(draw(SENT))
    for _ in range(draw(st.integers(0, len(turns)))):
        serve(turns)
    return turns


@given(turns_after_a_while())
def test_new_client_waits_for_at_most_one_request_of_each_other_client(turns: Turns) -> None:
    before = served_before(turns, queued(caller="newcomer"))
    assert max(Counter(map(client_of, before)).values(), default=0) <= 1


@given(turns_after_a_while())
def test_new_flow_waits_for_at_most_one_request_of_each_other_flow_of_its_client(
    turns: Turns,
) -> None:
    before = served_before(turns, queued(caller="a", flow="newcomer"))
    flows = Counter(flow_of(one) for one in before if client_of(one) == "a")
    assert max(flows.values(), default=0) <= 1


@given(turns_after_a_while(), st.sampled_from(CLIENTS), st.sampled_from(FLOWS))
def test_work_before_a_request_is_estimated_to_one_request_of_each_other_flow(
    turns: Turns, client: str, flow: str
) -> None:
    newest = queued(caller=client, flow=flow)
    estimate = turns.work_before(newest)
    true = sum(one.spec.work for one in served_before(turns, newest))
    assert abs(estimate - true) <= 2 * MAX_LENGTH * (len(CLIENTS) + len(FLOWS))


@given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9))
def test_work_before_a_request_is_exact_but_for_ties_where_all_are_of_one_size(
    own: int, same_client: int, other: int
) -> None:
    turns = filled(
        [
            *(queued(caller="a", flow="1") for _ in range(own)),
            *(queued(caller="a", flow="2") for _ in range(same_client)),
            *(queued(caller="b") for _ in range(other)),
        ]
    )
    newest = queued(caller="a", flow="1")
    estimate = turns.work_before(newest)
    true = sum(one.spec.work for one in served_before(turns, newest))
    # Of those that start at the same time either may be first, in the client and among clients.
    assert 0 <= estimate - true <= 3 * newest.spec.work


@pytest.mark.parametrize("owner_of", [client_of, flow_of])
@given(sent=SENT)
def test_waiting_clients_and_flows_of_a_client_get_equal_shares_of_work(
    owner_of: Callable[[Request], object], sent: list[Request]
) -> None:
    if owner_of is flow_of:
        sent = [queued(one.work // 2, caller="a", flow=one.spec.flow_id) for one in sent]
    turns = filled(sent)
    owners = {owner_of(one) for one in turns}
    done: Counter[object] = Counter()
    while {owner_of(one) for one in turns} == owners and len(owners) > 1:
        one = serve(turns)
        done[owner_of(one)] += one.spec.work
        shares = [done[owner] for owner in owners]
        assert max(shares) - min(shares) <= 4 * MAX_LENGTH


@given(SENT)
def test_requests_of_one_flow_are_served_in_order(sent: list[Request]) -> None:
    turns = filled(sent)
    order = list(turns)
    assert [serve(turns) for _ in sent] == order, "the order is known before"
    for flow in {flow_of(one) for one in sent}:
        assert [one for one in order if flow_of(one) == flow] == [
            one for one in sent if flow_of(one) == flow
        ]


@given(SENT, st.data())
def test_order_has_each_request_once_after_others_have_left_or_come_again(
    sent: list[Request], data: st.DataObject
) -> None:
    waiting, turns = sent.copy(), filled(sent)
    while waiting:
        order = list(turns)
        assert len(order) == len(waiting) and set(order) == set(waiting)
        if data.draw(st.booleans()):
            assert serve(turns) is order[0]
            waiting.remove(order[0])
        else:
            gone = data.draw(st.sampled_from(waiting))
            turns.leave(gone)
            waiting.remove(gone)
            if data.draw(st.booleans()):
                back = queued(1, caller=client_of(gone), flow=gone.spec.flow_id)
                turns.add(back)
                waiting.append(back)
    assert not len(turns) and turns.work == 0


@given(SENT, st.data())
def test_clients_without_requests_are_forgotten(sent: list[Request], data: st.DataObject) -> None:
    turns = filled(sent)
    while len(turns):
        one = data.draw(st.sampled_from(list(turns)))
        if data.draw(st.booleans()):
            turns.leave(one)
        else:
            turns.serve(one)
            turns.forget(one)
    assert is_empty(turns) and turns.work == 0


def test_a_client_whose_request_runs_has_saved_up_no_turns() -> None:
    turns = filled([queued(caller="idle")])
    serve(turns)
    for _ in range(8):
        turns.add(queued(caller="busy"))
    for _ in range(4):
        serve(turns)
    for _ in range(4):
        turns.add(queued(caller="idle"))
    order = [client_of(serve(turns)) for _ in range(len(turns))]
    assert Counter(order[:4]) == {"idle": 2, "busy": 2}
    assert Counter(order) == {"idle": 4, "busy": 4}
