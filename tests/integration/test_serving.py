"""`streamforest serve` as a process: replicas whose owner is killed, labels, tokens, TLS, stops."""

from __future__ import annotations

import json
import random
import socket
import ssl
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from integration.groups import Group, LateGroup, Member
from integration.oracle import committed, read_all
from integration.serving import PROBES, Answers, Served
from integration.waiting import until

from streamforest.testing.broker.server import Broker
from streamforest.testing.certificates import Authority

PIECES = 3
"""Times that events are sent between two kills."""


def ready(*servers: Served) -> None:
    for server in servers:
        server.until(lambda one: one.says()[0] == 200)  # type: ignore[attr-defined]


def last_commit(group: Group) -> int:
    said = committed(group.servers, group.name, group.topic).values()
    return max(metadata["commit"] for _, metadata in said)


def has_followed(server: Served, commit: int) -> bool:
    """Whether an answer is at least of a commit; a replica on a busy machine may say "not yet"."""
    status, told = server.ask(f"/predict?at_least={commit}&wait_seconds=30", PROBES[0])
    assert status == 200 or told["error"]["reason"] == "not_yet", told
    return bool(status == 200 and told["commit"] >= commit)


def follow_and_kill(
    broker: Broker, folder: Path, replicas: int, kills: int, requests: int, bound: int
) -> Answers:
    """Ask the replicas while the owner is killed; at the end every answer is judged."""
    group = Group(broker, folder)
    answers = Answers(bound)
    draw = random.Random(11)
    with ExitStack() as stack:
        owner = stack.enter_context(Member(group))
        owner.until_ready()
        # one of them has no part in the owner's folder: it learns the whole journal
        flags = [(), ("--set", f"run.folder={folder / 'elsewhere'}"), ("--set", "serve.copies=1")]
        served = [
            stack.enter_context(
                Served(group.path, "--set", f"serve.max_behind_seconds={bound}", *flags[n % 3])
            )
            for n in range(replicas)
        ]
        ready(*served)
        connections = [one.connect() for one in served]
        each = requests // (PIECES * (kills + 1))
        for turn in range(PIECES * (kills + 1)):
            group.feed(100)
            kill = turn % PIECES == 1 and turn < PIECES * kills
            for number in range(each):
                answers.take(connections[number % replicas])
                if kill and number == each // 2:
                    time.sleep(draw.random() / 10)
                    owner.kill()
                    owner = stack.enter_context(Member(group))
            until(lambda: group.committed() == group.sent)
            last = last_commit(group)
            answers.committed(last)
            for one, connection in zip(served, connections):
                until(lambda one=one, last=last: has_followed(one, last))  # type: ignore[misc]
                answers.take(connection)
        assert len(answers.by_commit) >= PIECES * kills
        assert answers.all_alike()
        commits = len(answers.by_commit)
        owner.stop()
    answers.judge(group)
    print(
        f"\n{replicas} replicas, owner killed {kills} times, {answers.requests:,} requests, "
        f"{answers.refused:,} of them refused, answers of {commits:,} commits: each that of the model at "
        f"its commit, none more than {bound} s old"
    )
    return answers


def test_replicas_of_a_killed_owner_answer_as_the_model_at_their_commit(
    kafka_broker: Broker, tmp_path: Path
) -> None:
    answers = follow_and_kill(kafka_broker, tmp_path, replicas=2, kills=1, requests=240, bound=30)
    assert answers.refused < answers.requests / 2


@pytest.mark.slow
def test_three_replicas_and_ten_kills(kafka_broker: Broker, tmp_path: Path) -> None:
    answers = follow_and_kill(
        kafka_broker, tmp_path, replicas=3, kills=10, requests=10_000, bound=10
    )
    assert answers.requests >= 9_900


def test_labels_are_published_and_learned(kafka_broker: Broker, tmp_path: Path) -> None:
    group = LateGroup(kafka_broker, tmp_path, "topic", second=True)
    with (
        Member(group) as owner,
        Served(group.path, "--set", "serve.accept_labels=true") as replica,
    ):
        group.feed(50)
        owner.until_ready()
        until(lambda: group.committed() == group.sent)
        ready(replica)
        status, told = replica.ask(
            "/labels", [{"id": "e-unknown", "y": "lion"}, {"id": "e-2"}, {"y": "lion"}]
        )
        assert status == 200
        assert [sorted(one) for one in told] == [
            ["offset", "partition", "topic"],
            ["error"],
            ["error"],
        ]
        place = told[0]
        assert group.labels is not None
        found = read_all(group.servers, group.labels)[place["partition"]]
        (record,) = [one for one in found if one.offset == place["offset"]]
        assert json.loads(record.value) == {"id": "e-unknown", "y": "lion"}
        until(lambda: group.committed() == group.sent + 1)  # the pipeline has read it
        assert (
            replica.ask("/labels", {"id": 1, "y": 2}, {"content-type": "application/msgpack"})[0]
            == 415
        )


@pytest.fixture(scope="module")
def snapshot(kafka_broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served")
    group = Group(kafka_broker, folder)
    group.feed(200)
    group.drain()
    return folder / "run"


def test_a_stop_says_so_first_and_then_finishes(snapshot: Path) -> None:
    with Served(snapshot, "--set", "serve.drain_seconds=2") as server:
        ready(server)
        connection = server.connect()
        connection.request("GET", "/livez")
        connection.getresponse().read()
        server._process.send_signal(15)  # type: ignore[union-attr]
        server.until(lambda one: one.says()[0] == 503)  # type: ignore[attr-defined]
        assert server.ask("/predict", PROBES[0])[0] == 200
        assert server.wait() == 0
        assert server.messages()[-1] == "stopped"


def test_what_is_no_http_gets_no_traceback(snapshot: Path) -> None:
    heads = [
        b"\x00\xff\xfe\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
        b"POST /predict HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /model HTTP/1.1\r\nHost: localhost\r\n" + b"a: b\r\n" * 20_000,
        b"GET /" + b"a" * 200_000,
    ]
    with Served(snapshot) as server:
        ready(server)
        for head in heads:
            with socket.create_connection(("127.0.0.1", server.port), timeout=20) as raw:
                raw.sendall(head)
                raw.shutdown(socket.SHUT_WR)
                told = b""
                try:
                    while part := raw.recv(65_536):
                        told += part
                except ConnectionResetError:
                    pass
                assert b" 500 " not in told
                assert b"Traceback" not in told
        assert server.ask("/predict", PROBES[0])[0] == 200
        assert "Traceback" not in server.log()


def test_mutual_tls_and_a_token(snapshot: Path, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    node, (certificate, key) = authority.node("localhost"), authority.client("asker")
    token = tmp_path / "token"
    token.write_text("open sesame\n", encoding="utf-8")
    context = ssl.create_default_context(cafile=authority.file)
    context.check_hostname = False
    flags = {
        "serve.tls_certfile": node,
        "serve.tls_keyfile": node,
        "serve.tls_client_cafile": authority.file,
        "serve.token_file": token,
    }
    settings = [one for key, value in flags.items() for one in ("--set", f"{key}={value}")]
    with Served(snapshot, *settings, tls=context) as server:
        server.until(lambda one: any("listening on https" in m for m in one.messages()))
        with pytest.raises((ssl.SSLError, ConnectionResetError, BrokenPipeError)):
            server.ask("/readyz")
        context.load_cert_chain(certificate, key)
        until(lambda: server.ask("/readyz")[0] == 200)
        assert server.ask("/predict", PROBES[0])[0] == 401
        assert server.ask("/predict", PROBES[0], {"authorization": "Bearer open sesame"})[0] == 200
        assert "sesame" not in server.log()
