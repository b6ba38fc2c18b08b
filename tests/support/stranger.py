"""Stranger: another user of the machine, who tries all accesses to a running deployment.

``python -m tests.support.stranger CONTROL RUNTIME,... APP CA`` changes to the user `nobody` if it runs as root,
and prints the outcome of each attempt as JSON: "refused: ..." or the answer. CONTROL is the address of the Control
API, RUNTIME those of the Runtime APIs; CA is empty without TLS.
"""

import hashlib
import json
import os
import re
import ssl
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import grpc
from flwr.cli.build import build_fab_from_disk
from flwr.common.constant import ACCESS_TOKEN_KEY, NOOP_FLWR_AID, REFRESH_TOKEN_KEY
from flwr.common.serde import fab_to_proto
from flwr.proto import control_pb2, runtime_pb2
from flwr.supercore.constant import TaskType
from flwr.supercore.fab import Fab
from flwr.supercore.protobuf.constants import PROTOBUF_MEDIA_TYPE
from flwr.supercore.runtime_version_compatibility import RuntimeVersionMetadata

from simulation.operations.guard.transport import CONTROL_OVER_GRPC, FLEET_OVER_GRPC

NOBODY = 65534
TIMEOUT_S = 20.0


def become_nobody() -> None:
    """Give up root's rights permanently, after all imports."""
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


def post(address: str, path: str, request: Any, authority: str = "", token: str = "") -> Any:
    """Answer of an HTTP API to a Protobuf request."""
    headers = {"Content-Type": PROTOBUF_MEDIA_TYPE, "Accept": PROTOBUF_MEDIA_TYPE}
    headers |= dict(RuntimeVersionMetadata.from_local_component("SuperExec").append_to_grpc_metadata(None))
    headers |= {"Authorization": f"Bearer {token}"} if token else {}
    trust = ssl.create_default_context(cadata=authority) if authority else None
    url = f"{'https' if trust else 'http'}://{address}{path}"
    call = urllib.request.Request(url, request.SerializeToString(), headers, method="POST")
    with urllib.request.urlopen(call, timeout=TIMEOUT_S, context=trust) as answer:
        return answer.read()


def control_over_grpc(address: str, authority: str) -> Callable[[str, Any, str], Any]:
    """Function that calls the Control API with a name, a request and a token."""
    from flwr.proto.control_pb2_grpc import ControlStub
    from flwr.supercore.interceptors import RuntimeVersionClientInterceptor

    trust = grpc.ssl_channel_credentials(authority.encode()) if authority else None
    channel = grpc.secure_channel(address, trust) if trust else grpc.insecure_channel(address)
    stub = ControlStub(grpc.intercept_channel(channel, RuntimeVersionClientInterceptor(component_name="flwr CLI")))

    def call(name: str, request: Any, token: str) -> Any:
        said = ((ACCESS_TOKEN_KEY, token), (REFRESH_TOKEN_KEY, token)) if token else ()
        return getattr(stub, name)(request, timeout=TIMEOUT_S, metadata=said)

    return call


def control_over_http(address: str, authority: str) -> Callable[[str, Any, str], Any]:
    """Function that calls the Control API with a name, a request and a token."""
    return lambda name, request, token: post(address, f"/v1/control/{dashed(name)}", request, authority, token)


def dashed(name: str) -> str:
    """Name of a call in the form of a path: list-runs for ListRuns."""
    return re.sub("(?<!^)([A-Z])", r"-\1", name).lower()


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
    """Try all accesses."""
    control, runtimes, app, authority = sys.argv[1:]
    content = build_fab_from_disk(Path(app))
    fab = Fab(hashlib.sha256(content).hexdigest(), content, {})
    authority = Path(authority).read_text() if authority else ""
    call = (control_over_grpc if CONTROL_OVER_GRPC else control_over_http)(control, authority)
    become_nobody()
    start = control_pb2.StartRunRequest(fab=fab_to_proto(fab))
    first, *_ = runtimes.split(",")
    outcomes = {
        "start a run": attempt(lambda: call("StartRun", start, "")),
        "start a run, with a forged token": attempt(lambda: call("StartRun", start, NOOP_FLWR_AID)),
        "list the runs": attempt(lambda: call("ListRuns", control_pb2.ListRunsRequest(), "")),
        "list the nodes": attempt(lambda: call("ListNodes", control_pb2.ListNodesRequest(), "")),
        "register a node": attempt(
            lambda: call("RegisterNode", control_pb2.RegisterNodeRequest(public_key=b"mine"), "")
        ),
        "find a token": f"found {found}" if (found := tokens_in_command_lines(first)) else "refused: there is none",
    }
    tasks: dict[str, Any] = {"AcquireTask": {"supported_task_types": [*TaskType]}}
    if not hasattr(runtime_pb2, "AcquireTaskRequest"):
        tasks = {"PullPendingTasks": {}, "ClaimTask": {"task_id": 1}}
    for place, runtime in enumerate(runtimes.split(",")):
        trust = authority if place == 0 and not FLEET_OVER_GRPC else ""
        for name, fields in tasks.items():
            request, path = getattr(runtime_pb2, f"{name}Request")(**fields), f"/v1/runtime/{dashed(name)}"
            outcomes[f"{name} of {place}"] = attempt(partial(post, runtime, path, request, trust))
    if CONTROL_OVER_GRPC:
        outcomes["start a run over HTTP"] = attempt(lambda: post(first, "/v1/control/start-run", start))
    print(json.dumps(outcomes))


if __name__ == "__main__":
    main()
