"""The login of Amazon MSK: signed by the published rules of SigV4, computed here a second time."""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote

import pytest
from kafka.errors import KafkaError

from streamforest.io.kafka.auth.connection import Connection, Security
from streamforest.io.kafka.auth.iam import CredentialsError, IamLogin, region_of

HOST = "b-1.demo.a1b2c3.c4.kafka.eu-central-1.amazonaws.com"
KEY, SECRET, SESSION = (
    "AKIDEXAMPLE",
    "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
    "AQoDYXdz/EXAMPLE+token==",
)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing of this machine's own AWS settings, and nobody to ask for a role."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)


def said(host: str = HOST) -> dict[str, str]:
    login = IamLogin(host=host, security_protocol="SASL_SSL")
    fields: dict[str, str] = json.loads(login.auth_bytes())
    return fields


def signature(fields: dict[str, str], region: str, session: str | None = None) -> str:
    """The signature of a presigned GET of `/`, step by step as AWS documents it."""
    stamp = fields["x-amz-date"]
    scope = f"{stamp[:8]}/{region}/kafka-cluster/aws4_request"
    query = {
        "Action": "kafka-cluster:Connect",
        "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
        "X-Amz-Credential": f"{KEY}/{scope}",
        "X-Amz-Date": stamp,
        "X-Amz-Expires": fields["x-amz-expires"],
        "X-Amz-SignedHeaders": "host",
    }
    if session is not None:
        query["X-Amz-Security-Token"] = session
    pairs = sorted((quote(k, safe="-_.~"), quote(v, safe="-_.~")) for k, v in query.items())
    request = "\n".join(
        [
            "GET",
            "/",
            "&".join(f"{k}={v}" for k, v in pairs),
            f"host:{fields['host']}",
            "",
            "host",
            hashlib.sha256(b"").hexdigest(),
        ]
    )
    hashed = hashlib.sha256(request.encode()).hexdigest()
    to_sign = "\n".join(["AWS4-HMAC-SHA256", stamp, scope, hashed])
    key = f"AWS4{SECRET}".encode()
    for part in (stamp[:8], region, "kafka-cluster", "aws4_request", to_sign):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key.hex()


@pytest.mark.parametrize("session", [None, SESSION])
def test_the_signature_is_that_of_the_published_rules(
    monkeypatch: pytest.MonkeyPatch, session: str | None
) -> None:
    if session is not None:
        monkeypatch.setenv("AWS_SESSION_TOKEN", session)
    fields = said()
    assert fields.get("x-amz-security-token") == session
    assert fields["x-amz-signature"] == signature(fields, "eu-central-1", session)
    assert fields["action"] == "kafka-cluster:Connect"
    assert fields["version"] == "2020_10_22"
    assert fields["host"] == HOST
    assert SECRET not in json.dumps(fields)


def test_botocore_itself_signs_the_same() -> None:
    """AWS' own signer, given the same time."""
    from botocore.auth import SigV4QueryAuth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    fields = said()
    request = AWSRequest("GET", f"https://{HOST}/?Action=kafka-cluster%3AConnect")
    request.context["timestamp"] = fields["x-amz-date"]
    signer = SigV4QueryAuth(
        Credentials(KEY, SECRET),
        "kafka-cluster",
        "eu-central-1",
        expires=int(fields["x-amz-expires"]),
    )
    signer._modify_request_before_signing(request)
    text = signer.string_to_sign(request, signer.canonical_request(request))
    assert signer.signature(text, request) == fields["x-amz-signature"]


def test_the_region_is_the_brokers_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "us-west-2")
    assert "/eu-central-1/kafka-cluster/" in said()["x-amz-credential"]
    assert "/us-west-2/kafka-cluster/" in said("kafka.example.org")["x-amz-credential"]
    monkeypatch.delenv("AWS_REGION")
    with pytest.raises(CredentialsError, match=r"no AWS region for broker 'kafka\.example\.org'"):
        said("kafka.example.org")
    assert region_of("b-1.x.kafka.cn-north-1.amazonaws.com.cn") == "cn-north-1"


def test_credentials_are_asked_for_at_every_login(monkeypatch: pytest.MonkeyPatch) -> None:
    before = said()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDOTHER")
    assert said()["x-amz-credential"].startswith("AKIDOTHER/")
    assert before["x-amz-credential"].startswith(f"{KEY}/")


def test_without_credentials_it_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(CredentialsError, match="set AWS_ACCESS_KEY_ID") as refused:
        said()
    assert "KafkaConnectionError" not in str(refused.value)


class Refusing(BaseHTTPRequestHandler):
    """AWS' service for roles, which gives this one to nobody."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        body = b"<ErrorResponse><Error><Code>AccessDenied</Code><Message>no</Message></Error></ErrorResponse>"
        self.send_response(403)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing."""


def test_a_role_that_is_refused_may_be_given_later(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    (tmp_path / "token").write_text("a web identity")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/streamforest")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", f"http://127.0.0.1:{server.server_port}")
        try:
            with pytest.raises(CredentialsError, match="AccessDenied") as refused:
                said()
        finally:
            server.shutdown()
    assert isinstance(refused.value, KafkaError), "any other error ends kafka-python's own task"


def test_clients_get_no_password() -> None:
    arguments = Connection(
        f"{HOST}:9098", Security("SASL_SSL", mechanism="AWS_MSK_IAM")
    ).arguments()
    assert arguments["sasl_mechanism"] == "AWS_MSK_IAM"
    assert not [name for name in arguments if "password" in name or "provider" in name]
