"""Calls of the Runtime API through a socket, and over HTTP where that fails."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
from flwr.proto.runtime_pb2 import GetNodesRequest, PullAppMessagesRequest, PullAppMessagesResponse
from flwr.superlink.federation import NoOpFederationManager

from simulation.flower_internals.runtime_socket import SOCKET, SocketRuntime, answer_of, decode_request, serve_socket
from simulation.flower_internals.superlink import answer_call, in_memory_factories


class OverHttp:
    """Flower's client, which notes what is asked of it."""

    def __init__(self):
        self.asked, self.closed = [], False

    def PullMessages(self, request):
        self.asked.append(list(request.message_ids))
        return "over HTTP"

    def close(self):
        self.closed = True


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[str]]]:
    """Questions to a socket's server, which answers the token "known" alone, with an empty response."""
    monkeypatch.setenv(SOCKET, "")
    found = []

    def answer(token, name, request):
        found.append((token, list(decode_request(name, request).message_ids)))
        if token != "known":
            return b"\1unknown"
        return answer_of(PullAppMessagesResponse)

    serve_socket(tmp_path, answer)
    return found


def test_threads_share_the_socket(asked):
    over_http = OverHttp()
    runtime = SocketRuntime("known", over_http)
    both = threading.Barrier(8)

    def ask(number):
        both.wait()
        return [runtime.PullMessages(PullAppMessagesRequest(message_ids=[f"{number}"])) for _ in range(20)]

    with ThreadPoolExecutor(8) as pool:
        found = [each for answers in pool.map(ask, range(8)) for each in answers]
    assert found == [PullAppMessagesResponse()] * 160
    assert sorted(asked) == sorted([("known", [f"{number}"]) for number in range(8)] * 20)
    assert over_http.asked == []
    assert len(runtime._free) <= 8
    runtime.close()
    assert over_http.closed


def test_what_the_socket_refuses_goes_over_http(asked):
    over_http = OverHttp()
    assert SocketRuntime("stolen", over_http).PullMessages(PullAppMessagesRequest(message_ids=["a"])) == "over HTTP"
    assert asked == [("stolen", ["a"])]
    assert over_http.asked == [["a"]]


def test_without_a_server_calls_go_over_http(tmp_path, monkeypatch):
    monkeypatch.setenv(SOCKET, str(tmp_path / "nobody"))
    over_http = OverHttp()
    assert SocketRuntime("known", over_http).PullMessages(PullAppMessagesRequest(message_ids=["a"])) == "over HTTP"


def test_a_superlink_answers_the_tokens_of_its_tasks_alone(tmp_path):
    state = in_memory_factories(str(tmp_path / "superlink.db"), NoOpFederationManager())[1].state()
    request = GetNodesRequest().SerializeToString()
    assert answer_call(state, "", "GetNodes", request) == b"\1The token is of no task."
    task = SimpleNamespace(type="flwr-agentapp", run_id=1)
    assert answer_call(SimpleNamespace(get_task_by_token=lambda _: task), "a", "GetNodes", request)[:1] == b"\1"
    assert b"no call of the socket" in answer_call(
        SimpleNamespace(get_task_by_token=lambda _: task), "a", "GetConnector", b""
    )
