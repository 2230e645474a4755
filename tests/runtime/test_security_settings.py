"""The settings that say how to reach a broker: all that is wrong at once, and never a secret in it."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from streamforest.cli import root
from streamforest.errors import ConfigError
from streamforest.runtime.config.kafka_auth import connection_from
from streamforest.runtime.config.load import load_pipeline
from streamforest.testing.certificates import Authority

WORD = "hunter2-4711"
HEAD = '[pipeline]\nname = "p"\n[kafka]\nbootstrap_servers = "127.0.0.1:9092"\n'
LOGIN = 'security_protocol = "SASL_SSL"\nsasl_username = "alice"\nsasl_password_env = "KAFKA_PW"\n'


def check(tmp_path: Path, text: str, *arguments: str, **environ: str) -> Result:
    path = tmp_path / "p.toml"
    path.write_text(HEAD + text, encoding="utf-8")
    return CliRunner().invoke(root, ["check", str(path), *arguments], env=environ)


def problems(done: Result) -> list[str]:
    assert done.exit_code == 2, done.output
    lines = done.stderr.splitlines()
    return [line.strip() for line in lines[1:]] or [lines[0].partition("p.toml: ")[2]]


def test_a_login_is_described_without_its_password(tmp_path: Path) -> None:
    done = check(tmp_path, LOGIN, KAFKA_PW=WORD)
    assert done.exit_code == 0, done.stderr
    assert (
        "TLS, logs in as user 'alice' by SCRAM-SHA-512, trusts the certificate authorities of this"
        in done.stdout
    )
    assert WORD not in done.output


@pytest.mark.parametrize(
    "key",
    ["password", "sasl_password", "passwd", "sasl_plain_password", "ssl_key_password", "token"],
)
@pytest.mark.parametrize("how", ["file", "flag", "environment"])
def test_a_password_that_is_written_down_is_refused_and_not_repeated(
    tmp_path: Path, key: str, how: str
) -> None:
    name = f"STREAMFOREST_KAFKA__{key.upper()}"
    done = check(
        tmp_path,
        LOGIN + (f'{key} = "{WORD}"\n' if how == "file" else ""),
        *(["--set", f"kafka.{key}={WORD}"] if how == "flag" else []),
        **({name: WORD} if how == "environment" else {}),
        KAFKA_PW="right",
    )
    (problem,) = problems(done)
    assert problem.startswith(f"kafka.{key}")
    assert "secrets do not belong here" in problem
    assert "password_env or kafka." in problem
    assert {"flag": "from --set", "environment": name}.get(how, "") in problem
    assert WORD not in done.output


def test_commands_that_messages_quote_leave_out_what_nobody_has_checked(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text(HEAD, encoding="utf-8")
    flags = ["run.keep_snapshots=4", f"serve.token_env={WORD}"]
    quoted = load_pipeline(path, {}, flags).arguments
    assert quoted == (str(path), "--set", "run.keep_snapshots=4")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--set", f"password={WORD}"],
        ["--set", f"kafka.password {WORD}"],
        ["--set", f"kafka.password.x={WORD}"],
        ["--set", f"kafka.sasl_password_env={WORD}"],
        ["--set", f"kafka.sasl_password_file={WORD}"],
        ["--set", "kafka.sasl_password_env=[1]"],
    ],
)
def test_nor_is_one_that_stands_where_something_else_belongs(
    tmp_path: Path, arguments: list[str]
) -> None:
    done = check(tmp_path, 'security_protocol = "SASL_SSL"\nsasl_username = "a"\n', *arguments)
    assert done.exit_code == 2
    assert WORD not in done.output
    done = check(tmp_path, f'security_protocol = "SASL_SSL"\npassword = "{WORD}"\n', *arguments)
    assert WORD not in done.output


@pytest.mark.parametrize(
    "address", [f"alice:{WORD}@h:9092", f"sasl://alice:{WORD}@h:1", "kafka://h:1"]
)
def test_a_login_in_an_address_is_refused_and_not_repeated(tmp_path: Path, address: str) -> None:
    done = check(tmp_path, "", "--set", f"kafka.bootstrap_servers={address}")
    (problem,) = problems(done)
    assert problem.startswith("kafka.bootstrap_servers (from --set): expected host:port")
    assert WORD not in done.output
    with pytest.raises(ConfigError) as caught:
        connection_from({}, [], address, "here:1")
    assert WORD not in str(caught.value)
    done = CliRunner().invoke(root, ["replay", "digits", "--bootstrap-servers", address])
    assert (done.exit_code, WORD in done.output) == (2, False)


def test_everything_that_is_wrong_at_once(tmp_path: Path) -> None:
    text = (
        'security_protocol = "SASL_PLAINTEXT"\nssl_cafile = "ca.pem"\nsasl_mechanism = "GSSAPI"\n'
        'sasl_password_env = "A"\nsasl_password_file = "b"\nallow_unencrypted_login = "yes"\n'
    )
    found = problems(check(tmp_path, text))
    expected = [
        "kafka.sasl_mechanism = 'GSSAPI': expected one of 'SCRAM-SHA-512', 'SCRAM-SHA-256', 'PLAIN'",
        "kafka.allow_unencrypted_login = 'yes': expected true or false",
        "kafka.sasl_password_file: kafka.sasl_password_env is set too; remove one of the two",
        "kafka.ssl_cafile: has no effect with kafka.security_protocol = 'SASL_PLAINTEXT'; set that to 'SSL'",
        "kafka.sasl_username: missing; give the user name",
        "kafka.sasl_password_env: missing; name an environment variable",
        "kafka.security_protocol = 'SASL_PLAINTEXT': the login would be sent unencrypted",
    ]
    assert len(found) == len(expected)
    for start, problem in zip(expected, found):
        assert problem.startswith(start), problem


def test_a_login_without_encryption_must_be_allowed(tmp_path: Path) -> None:
    text = LOGIN.replace("SASL_SSL", "SASL_PLAINTEXT")
    (problem,) = problems(check(tmp_path, text, KAFKA_PW=WORD))
    assert "set kafka.allow_unencrypted_login = true" in problem
    done = check(tmp_path, text + "allow_unencrypted_login = true\n", KAFKA_PW=WORD)
    assert done.exit_code == 0
    assert "are unencrypted, logs in as user 'alice'" in done.stdout


def test_keys_without_effect_are_mistakes(tmp_path: Path) -> None:
    found = problems(
        check(tmp_path, 'sasl_username = "a"\nsasl_password_env = "B"\nssl_cafile = "c"\n')
    )
    assert found == [
        "kafka.ssl_cafile: has no effect with kafka.security_protocol = 'PLAINTEXT'; set that to 'SSL' or "
        "'SASL_SSL', or remove them",
        "kafka.sasl_username, kafka.sasl_password_env: has no effect with kafka.security_protocol = "
        "'PLAINTEXT'; set that to 'SASL_SSL' or 'SASL_PLAINTEXT', or remove them",
    ]


TOKENS = (
    'security_protocol = "SASL_SSL"\nsasl_mechanism = "OAUTHBEARER"\n'
    'sasl_oauthbearer_token_endpoint_url = "https://login.example.org/token"\n'
    'sasl_oauthbearer_client_id = "me"\nsasl_oauthbearer_client_secret_env = "THE_SECRET"\n'
)


def test_a_login_with_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THE_SECRET", WORD)
    more = (
        'sasl_oauthbearer_scope = "kafka"\n'
        'sasl_oauthbearer_extensions = "logicalCluster=lkc-1, identityPoolId=pool-1"\n'
    )
    done = check(tmp_path, TOKENS + more)
    assert done.exit_code == 0, done.stderr
    assert "TLS, logs in as client 'me' by OAUTHBEARER, trusts" in done.stdout
    assert WORD not in done.output
    pipeline = load_pipeline(tmp_path / "p.toml")
    assert pipeline.config.kafka is not None
    credentials = pipeline.config.kafka.security.credentials
    assert credentials is not None
    assert credentials.scope == "kafka"
    assert credentials.extensions == (("logicalCluster", "lkc-1"), ("identityPoolId", "pool-1"))
    assert WORD not in repr(pipeline)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            'security_protocol = "SASL_SSL"\nsasl_mechanism = "OAUTHBEARER"\nsasl_username = "a"\n',
            [
                "kafka.sasl_username: has no effect with kafka.sasl_mechanism = 'OAUTHBEARER'",
                "kafka.sasl_oauthbearer_token_endpoint_url: missing",
                "kafka.sasl_oauthbearer_client_id: missing",
                "kafka.sasl_oauthbearer_client_secret_env: missing; name an environment variable",
            ],
        ),
        (
            LOGIN + 'sasl_oauthbearer_scope = "x"\n',
            [
                "kafka.sasl_oauthbearer_scope: has no effect with kafka.sasl_mechanism = 'SCRAM-SHA-512'"
            ],
        ),
        (
            TOKENS.replace("https:", "http:"),
            [
                "kafka.sasl_oauthbearer_token_endpoint_url: the client's secret would be sent unencrypted"
            ],
        ),
        (
            TOKENS.replace("https://", f"https://me:{WORD}@"),
            ["kafka.sasl_oauthbearer_token_endpoint_url: expected the address of a token endpoint"],
        ),
        (
            TOKENS + f'client_secret = "{WORD}"\n',
            ["kafka.client_secret: secrets do not belong here"],
        ),
        (
            TOKENS + 'sasl_oauthbearer_extensions = "auth=me"\n',
            ["kafka.sasl_oauthbearer_extensions = 'auth=me': expected name=value"],
        ),
        (
            'security_protocol = "SASL_PLAINTEXT"\nsasl_mechanism = "AWS_MSK_IAM"\n'
            "allow_unencrypted_login = true\n",
            ["kafka.security_protocol = 'SASL_PLAINTEXT': 'AWS_MSK_IAM' needs 'SASL_SSL'"],
        ),
    ],
)
def test_mistakes_with_tokens(tmp_path: Path, text: str, expected: list[str]) -> None:
    done = check(tmp_path, text, THE_SECRET=WORD, KAFKA_PW=WORD)
    found = problems(done)
    assert WORD not in done.output
    assert len(found) == len(expected), found
    for start, problem in zip(expected, found):
        assert problem.startswith(start), problem


def test_a_secret_that_is_not_there_is_told(tmp_path: Path) -> None:
    (problem,) = problems(check(tmp_path, TOKENS))
    assert problem.startswith(
        "kafka.sasl_oauthbearer_client_secret_env: the environment has no variable of the name"
    )


def test_msk_needs_botocore(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = 'security_protocol = "SASL_SSL"\nsasl_mechanism = "AWS_MSK_IAM"\n'
    done = check(tmp_path, text)
    assert done.exit_code == 0, done.stderr
    assert "logs in as the AWS identity of this machine by AWS_MSK_IAM" in done.stdout
    monkeypatch.setattr("streamforest.io.kafka.auth.iam.find_spec", lambda name: None)
    (problem,) = problems(check(tmp_path, text))
    assert problem.endswith("needs botocore: pip install 'streamforest[msk]'")


def test_files_are_looked_at(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.client("carol")
    other, _ = authority.client("dave")
    (tmp_path / "empty.pem").write_text("")

    def lines(**files: Path) -> str:
        return 'security_protocol = "SSL"\n' + "".join(f'{k} = "{v}"\n' for k, v in files.items())

    good = lines(ssl_cafile=authority.file, ssl_certfile=cert, ssl_keyfile=key)
    assert check(tmp_path, good).exit_code == 0
    for text, message in (
        (lines(ssl_cafile=tmp_path / "no.pem"), "no.pem': no such file"),
        (lines(ssl_cafile=tmp_path / "empty.pem"), "empty.pem': holds no PEM certificate"),
        (lines(ssl_cafile=tmp_path), "cannot be read"),
        (lines(ssl_keyfile=key), "kafka.ssl_certfile: missing"),
        (lines(ssl_certfile=cert, ssl_keyfile=tmp_path / "no.key"), "no.key': no such file"),
        (lines(ssl_certfile=other, ssl_keyfile=key), "the private key does not belong to this"),
        (lines(ssl_certfile=cert), "or its private key cannot be read as PEM"),
    ):
        (problem,) = problems(check(tmp_path, text))
        assert message in problem


def test_an_encrypted_key_needs_its_password_and_never_asks_at_the_terminal(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization as s

    authority = Authority(tmp_path)
    cert, key = authority.client("carol")
    plain = s.load_pem_private_key(key.read_bytes(), None)
    locked = s.BestAvailableEncryption(WORD.encode())
    key.write_bytes(plain.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, locked))
    text = f'security_protocol = "SSL"\nssl_certfile = "{cert}"\nssl_keyfile = "{key}"\n'
    for environ, setting in (({}, ""), ({"KEY_PW": "wrong"}, 'ssl_key_password_env = "KEY_PW"\n')):
        (problem,) = problems(check(tmp_path, text + setting, **environ))
        assert (
            "the private key is encrypted, and its password (kafka.ssl_key_password_env" in problem
        )
    done = check(tmp_path, text + 'ssl_key_password_env = "KEY_PW"\n', KEY_PW=WORD)
    assert done.exit_code == 0, done.stderr


def test_without_a_pipeline_file_the_environment_and_flags_say_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    environ = {
        "STREAMFOREST_KAFKA__SECURITY_PROTOCOL": "SASL_SSL",
        "STREAMFOREST_KAFKA__SASL_USERNAME": "alice",
    }
    with pytest.raises(ConfigError, match="set STREAMFOREST_KAFKA_PASSWORD"):
        connection_from(environ, [], None, "here:1")
    monkeypatch.setenv("STREAMFOREST_KAFKA_PASSWORD", WORD)
    connection = connection_from(environ, ["kafka.sasl_username=bob"], None, "here:1")
    assert (connection.servers, connection.security.user) == ("here:1", "bob")
    assert connection.arguments()["sasl_plain_password"] == WORD
    assert (
        connection_from({}, ["kafka.bootstrap_servers=there:2"], None, "here:1").servers
        == "there:2"
    )
    with pytest.raises(ConfigError) as caught:
        connection_from({}, [f"kafka.password={WORD}"], None, "here:1")
    assert WORD not in str(caught.value)


def test_the_password_is_nowhere_in_a_loaded_pipeline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_PW", WORD)
    path = tmp_path / "p.toml"
    path.write_text(HEAD + LOGIN)
    assert WORD not in repr(load_pipeline(path))


@pytest.mark.parametrize("user", ["5", '""', "[1]"])
def test_a_wrong_user_is_told_and_nothing_is_tried_with_it(tmp_path: Path, user: str) -> None:
    text = (
        f'security_protocol = "SASL_SSL"\nsasl_username = {user}\nsasl_password_env = "KAFKA_PW"\n'
    )
    (problem,) = problems(check(tmp_path, text, KAFKA_PW=WORD))
    assert problem.startswith("kafka.sasl_username = ")
    assert "expected the user name" in problem


def test_every_file_that_is_missing_is_named(tmp_path: Path) -> None:
    text = (
        'security_protocol = "SASL_SSL"\nsasl_username = "a"\n'
        'sasl_password_file = "no.pw"\nssl_cafile = "no.pem"\n'
    )
    first, second = problems(check(tmp_path, text))
    assert first.startswith("kafka.ssl_cafile = 'no.pem': no such file")
    assert second.startswith("kafka.sasl_password_file: the file named there")


def test_without_a_pipeline_file_there_is_no_table_but_kafka() -> None:
    with pytest.raises(
        ConfigError, match=r"kafa \(from --set\): unknown table; did you mean kafka"
    ):
        connection_from({}, ["kafa.security_protocol=SSL"], None, "here:1")
    with pytest.raises(ConfigError, match="STREAMFOREST_KAFA__SECURITY"):
        connection_from({"STREAMFOREST_KAFA__SECURITY": "SSL"}, [], None, "here:1")
    with pytest.raises(ConfigError, match=r"model\.n_trees .*without a pipeline file"):
        connection_from({}, ["model.n_trees=4"], None, "here:1")
    others = {"STREAMFOREST_MODEL__N_TREES": "4"}  # of another command's pipeline file
    assert connection_from(others, [], None, "here:1").servers == "here:1"


@pytest.mark.parametrize(
    ("servers", "message"),
    [
        ("h:abc", "the port of 'h:abc' is not a number"),
        ("h:99999", "the port of 'h:99999' is not a number"),
        ("h:0", "the port of 'h:0'"),
        (":9092", "':9092' has no valid host"),
        ("my host:9092", "'my host:9092' has no valid host"),
        ("localhost", "'localhost' has no port, e.g. localhost:9092"),
        ("a:1, b", "'b' has no port"),
        ("a:1,,b:2", "nothing before or after a comma"),
    ],
)
def test_an_address_is_checked_wherever_it_is_given(
    tmp_path: Path, servers: str, message: str
) -> None:
    (problem,) = problems(check(tmp_path, "", "--set", f"kafka.bootstrap_servers={servers}"))
    assert problem.startswith("kafka.bootstrap_servers (from --set): expected host:port")
    assert message in problem
    for arguments in (
        ["replay", "digits", "--bootstrap-servers", servers],
        ["run", str(tmp_path / "p.toml"), "--broker", servers],
        ["bench", "pipeline", "--bootstrap-servers", servers],
    ):
        done = CliRunner().invoke(root, arguments)
        assert done.exit_code == 2
        assert message in done.stderr


def test_several_servers_are_one_text(tmp_path: Path) -> None:
    assert check(tmp_path, "", "--set", "kafka.bootstrap_servers=a:1, [::1]:2").exit_code == 0
    (problem,) = problems(check(tmp_path, "", "--set", 'kafka.bootstrap_servers=["a:1", "b:2"]'))
    assert "several as one text: 'a:9092,b:9092'" in problem
    done = check(tmp_path, "", "--set", f'kafka.bootstrap_servers=["x:{WORD}@a:1"]')
    assert (done.exit_code, WORD in done.output) == (2, False)


def test_a_text_where_the_table_belongs_is_told_once(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text('kafka = "h:1"\n[pipeline]\nname = "p"\n')
    (problem,) = problems(CliRunner().invoke(root, ["check", str(path)]))
    assert problem == "kafka = 'h:1': expected a table, [kafka]"
