from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.server.engine.idle import is_empty

from seqserve_server.contract.options import DecodingOptions
from seqserve_server.contract.request import GenerateSpec
from seqserve_server.engine.queue.turns import Turns
from seqserve_server.engine.request import Request

CLIENTS = ["a", "b", "c", "d"]
FLOWS = ["1", "2", "3"]
MAX_LENGTH = 20
SENT = st.lists(
    st.tuples(st.sampled_from(CLIENTS), st.sampled_from(FLOWS), st.integers(1, MAX_LENGTH)),
    max_size=40,
)


def request(client: str, flow: str = "", length: int = 3) -> Request:
    """Makes a request whose work is twice its length."""
    options = DecodingOptions(max_decoding_length=99)
    return Request(
        GenerateSpec(source=[4] * length, options=options, client_id=client, flow_id=flow)
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


@given(SENT, st.integers(0, 40))
def test_new_client_waits_for_at_most_one_request_of_each_other_client(
    sent: list[tuple[str, str, int]], served: int
) -> None:
    turns = filled([request(*each) for each in sent])
    for _ in range(min(served, len(turns))):
        serve(turns)
    before = served_before(turns, request("newcomer"))
    assert max(Counter(map(client_of, before)).values(), default=0) <= 1


@given(SENT, st.integers(0, 40))
def test_new_flow_waits_for_at_most_one_request_of_each_other_flow_of_its_client(
    sent: list[tuple[str, str, int]], served: int
) -> None:
    turns = filled([request(*each) for each in sent])
    for _ in range(min(served, len(turns))):
        serve(turns)
    before = served_before(turns, request("a", "newcomer"))
    flows = Counter(flow_of(one) for one in before if client_of(one) == "a")
    assert max(flows.values(), default=0) <= 1


@given(SENT, st.integers(0, 40), st.sampled_from(CLIENTS), st.sampled_from(FLOWS))
def test_work_before_a_request_is_estimated_to_one_request_of_each_other_flow(
    sent: list[tuple[str, str, int]], served: int, client: str, flow: str
) -> None:
    turns = filled([request(*each) for each in sent])
    for _ in range(min(served, len(turns))):
        serve(turns)
    newest = request(client, flow)
    estimate = turns.work_before(newest)
    true = sum(one.spec.work for one in served_before(turns, newest))
    assert abs(estimate - true) <= 2 * MAX_LENGTH * (len(CLIENTS) + len(FLOWS))


@given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9))
def test_work_before_a_request_is_exact_but_for_ties_where_all_are_of_one_size(
    own: int, same_client: int, other: int
) -> None:
    turns = filled(
        [
            *(request("a", "1") for _ in range(own)),
            *(request("a", "2") for _ in range(same_client)),
            *(request("b") for _ in range(other)),
        ]
    )
    newest = request("a", "1")
    estimate = turns.work_before(newest)
    true = sum(one.spec.work for one in served_before(turns, newest))
    # Of those that start at the same time either may be first, in the client and among clients.
    assert 0 <= estimate - true <= 3 * newest.spec.work


@given(SENT)
def test_waiting_clients_get_equal_shares_of_work(sent: list[tuple[str, str, int]]) -> None:
    turns = filled([request(*each) for each in sent])
    clients = {client for client, _, _ in sent}
    done: Counter[str] = Counter()
    while {client_of(one) for one in turns} == clients and len(clients) > 1:
        one = serve(turns)
        done[client_of(one)] += one.spec.work
        shares = [done[client] for client in clients]
        assert max(shares) - min(shares) <= 4 * MAX_LENGTH


@given(SENT)
def test_waiting_flows_of_a_client_get_equal_shares_of_its_work(
    sent: list[tuple[str, str, int]],
) -> None:
    turns = filled([request("a", flow, length) for _, flow, length in sent])
    flows = {("a", flow) for _, flow, _ in sent}
    done: Counter[tuple[str, str]] = Counter()
    while {flow_of(one) for one in turns} == flows and len(flows) > 1:
        one = serve(turns)
        done[flow_of(one)] += one.spec.work
        shares = [done[flow] for flow in flows]
        assert max(shares) - min(shares) <= 4 * MAX_LENGTH


@given(SENT)
def test_requests_of_one_flow_are_served_in_order(sent: list[tuple[str, str, int]]) -> None:
    requests = [request(*each) for each in sent]
    turns = filled(requests)
    order = list(turns)
    assert [serve(turns) for _ in requests] == order, "the order is known before"
    for flow in {flow_of(one) for one in requests}:
        assert [one for one in order if flow_of(one) == flow] == [
            one for one in requests if flow_of(one) == flow
        ]


@given(SENT, st.data())
def test_order_has_each_request_once_after_others_have_left_or_come_again(
    sent: list[tuple[str, str, int]], data: st.DataObject
) -> None:
    waiting = [request(*each) for each in sent]
    turns = filled(waiting)
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
                back = request(*flow_of(gone), length=1)
                turns.add(back)
                waiting.append(back)
    assert not len(turns) and turns.work == 0


@given(SENT, st.data())
def test_clients_without_requests_are_forgotten(
    sent: list[tuple[str, str, int]], data: st.DataObject
) -> None:
    turns = filled([request(*each) for each in sent])
    while len(turns):
        one = data.draw(st.sampled_from(list(turns)))
        if data.draw(st.booleans()):
            turns.leave(one)
        else:
            turns.serve(one)
            turns.forget(one)
    assert is_empty(turns) and turns.work == 0


def test_a_client_whose_request_runs_has_saved_up_no_turns() -> None:
    turns = filled([request("idle")])
    serve(turns)
    for _ in range(8):
        turns.add(request("busy"))
    for _ in range(4):
        serve(turns)
    for _ in range(4):
        turns.add(request("idle"))
    order = [client_of(serve(turns)) for _ in range(len(turns))]
    assert Counter(order[:4]) == {"idle": 2, "busy": 2}
    assert Counter(order) == {"idle": 4, "busy": 4}
