"""Stranger: another user of the machine, who tries all ways into a running deployment.

``python -m tests.support.stranger CONTROL RUNTIME,... APP CA`` becomes the user nobody where it is started by root, and
prints as JSON the outcome of each attempt: "refused: ..." or what it was given. CONTROL is the address of the Control
API, RUNTIME those of the Runtime APIs; CA is empty without TLS.
"""

import hashlib
import json
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
from flwr.cli.build import build_fab_from_disk
from flwr.common.constant import ACCESS_TOKEN_KEY, NOOP_FLWR_AID, REFRESH_TOKEN_KEY
from flwr.common.serde import fab_to_proto
from flwr.proto import control_pb2, runtime_pb2
from flwr.proto.control_pb2_grpc import ControlStub
from flwr.supercore.fab import Fab
from flwr.supercore.interceptors import RuntimeVersionClientInterceptor
from flwr.supercore.protobuf.constants import PROTOBUF_MEDIA_TYPE
from flwr.supercore.runtime_version_compatibility import RuntimeVersionMetadata

NOBODY = 65534
TIMEOUT_S = 20.0


def become_nobody() -> None:
    """Give up root's rights for good, after everything has been imported."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)


def attempt(call: Callable[[], Any]) -> str:
    """Outcome of a call."""
    try:
        return str(call())[:2000] or "done"
    except grpc.RpcError as error:
        return f"refused: {error.code().name}"
    except urllib.error.HTTPError as error:
        return f"refused: {error.code}"
    except OSError as error:
        return f"refused: {error}"


def post(address: str, path: str, request: Any) -> Any:
    """Answer of an HTTP API to a Protobuf request."""
    headers = {"Content-Type": PROTOBUF_MEDIA_TYPE, "Accept": PROTOBUF_MEDIA_TYPE}
    headers |= dict(RuntimeVersionMetadata.from_local_component("SuperExec").append_to_grpc_metadata(None))
    call = urllib.request.Request(f"http://{address}{path}", request.SerializeToString(), headers, method="POST")
    with urllib.request.urlopen(call, timeout=TIMEOUT_S) as answer:
        return answer.read()


def tokens_in_command_lines(runtime: str) -> list[str]:
    """Tokens for a Runtime API in the command lines of all processes, which every user can read."""
    found = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = process.read_bytes().split(b"\0")
            if runtime.encode() in words and b"--token" in words:
                found.append(words[words.index(b"--token") + 1].decode())
    return found


def main() -> None:
    """Try everything."""
    control, runtimes, app, authority = sys.argv[1:]
    content = build_fab_from_disk(Path(app))
    fab = Fab(hashlib.sha256(content).hexdigest(), content, {})
    trust = grpc.ssl_channel_credentials(Path(authority).read_bytes()) if authority else None
    become_nobody()
    channel = grpc.secure_channel(control, trust) if trust else grpc.insecure_channel(control)
    stub = ControlStub(grpc.intercept_channel(channel, RuntimeVersionClientInterceptor(component_name="flwr CLI")))
    start = control_pb2.StartRunRequest(fab=fab_to_proto(fab))
    forged = ((ACCESS_TOKEN_KEY, NOOP_FLWR_AID), (REFRESH_TOKEN_KEY, NOOP_FLWR_AID))
    first, *_ = runtimes.split(",")
    outcomes = {
        "start a run": attempt(lambda: stub.StartRun(start, timeout=TIMEOUT_S)),
        "start a run, with a forged token": attempt(lambda: stub.StartRun(start, timeout=TIMEOUT_S, metadata=forged)),
        "list the runs": attempt(lambda: stub.ListRuns(control_pb2.ListRunsRequest(), timeout=TIMEOUT_S)),
        "list the nodes": attempt(lambda: stub.ListNodes(control_pb2.ListNodesRequest(), timeout=TIMEOUT_S)),
        "register a node": attempt(
            lambda: stub.RegisterNode(control_pb2.RegisterNodeRequest(public_key=b"mine"), timeout=TIMEOUT_S)
        ),
        "find a token": f"found {found}" if (found := tokens_in_command_lines(first)) else "refused: there is none",
    }
    for place, runtime in enumerate(runtimes.split(",")):
        tasks = runtime_pb2.PullPendingTasksRequest()
        outcomes[f"pull the tasks of {place}"] = attempt(
            lambda at=runtime, ask=tasks: post(at, "/v1/runtime/pull-pending-tasks", ask)
        )
        claim = runtime_pb2.ClaimTaskRequest(task_id=1)
        outcomes[f"claim a task of {place}"] = attempt(
            lambda at=runtime, ask=claim: post(at, "/v1/runtime/claim-task", ask)
        )
    outcomes["start a run over HTTP"] = attempt(lambda: post(first, "/v1/control/start-run", start))
    print(json.dumps(outcomes))


if __name__ == "__main__":
    main()
