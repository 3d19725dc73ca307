"""The commands of `savanna` that ask a node, where it has a certificate and asks for a token."""

import json
import os
import subprocess

import pytest

from conftest import PASSWORD, TOKEN, USER
from node import SAVANNA


def savanna(*arguments, **variables):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SAVANNA_")}
    return subprocess.run([SAVANNA, *map(str, arguments)], env={**environment, **variables}, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def url(guarded):
    return f"https://localhost:{guarded.ports['http']}"


@pytest.fixture
def trusted(papers, url):
    return ["--url", url, "--ca-file", papers[1] / "server.pem", "--token-file", papers[1] / "token"]


def test_every_command_reaches_it(trusted, tmp_path):
    def done(*arguments):
        ran = savanna(*arguments, *trusted)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    assert "pgwire" in done("status")
    done("tenants", "create", "shop")
    done("tenants", "backup", "shop", tmp_path / "shop.backup")
    done("tenants", "restore", "shop2", tmp_path / "shop.backup")
    done("tenants", "drop", "shop")
    assert "shop2" in done("tenants", "list") and "shop2" in done("tenants", "top", "--seconds", "1")
    endless = """CREATE TABLE cli_endless WITH ('connector' = 'nexmark', 'next-event.rate' = '10', 'rate-limited' = 'true');
        CREATE TABLE cli_swallowed (n BIGINT) WITH ('connector' = 'blackhole');
        INSERT INTO cli_swallowed SELECT bid.auction FROM cli_endless WHERE event_type = 2"""
    done("sql", "-c", endless)
    assert "cli_endless" in done("sql", "-c", "SHOW TABLES")
    query = next(query["query"] for query in json.loads(done("queries", "list", "--output", "json"))["queries"] if query["state"] == "running")
    assert query in done("queries", "show", query)
    done("queries", "stop", query)


def test_the_token_comes_from_a_flag_a_variable_or_a_file(papers, url, guarded):
    settings, folder = papers
    ca = ["--ca-file", folder / "server.pem"]
    assert savanna("status", "--url", url, *ca, "--token", TOKEN).returncode == 0
    assert savanna("status", "--url", url, *ca, SAVANNA_TOKEN=TOKEN).returncode == 0
    assert savanna("status", "--url", url, "--token", TOKEN, SAVANNA_CA_FILE=str(folder / "server.pem")).returncode == 0
    assert savanna("status", "--url", url, *ca, "--token", TOKEN, SAVANNA_TOKEN="another-token-of-16").returncode == 0, "the flag counts"
    # As on the machine of the node, with its configuration.
    own = {name: value for name, value in settings.items() if name.startswith(("SAVANNA_HTTP", "SAVANNA_AUTH"))}
    ran = savanna("status", **own, SAVANNA_ADDRESS="0.0.0.0", SAVANNA_HTTP_PORT=str(guarded.ports["http"]))
    assert ran.returncode == 0, ran.stderr


def test_a_user_comes_in_with_name_and_password(papers, url, guarded, tmp_path):
    settings, folder = papers
    node = ["--url", url, "--ca-file", folder / "server.pem"]
    users = {"SAVANNA_AUTH_USERS": settings["SAVANNA_AUTH_USERS"]}
    password = tmp_path / "password"
    password.write_text(PASSWORD + "\n")
    password.chmod(0o600)
    for arguments, variables in [
        (["--user", USER, "--password-file", password], {}),
        (["--user", USER], {"SAVANNA_PASSWORD": PASSWORD}),
        (["--user", USER], {**users, "SAVANNA_TOKEN": "another-token-of-16"}),
        ([], {"SAVANNA_USER": USER, "SAVANNA_PASSWORD": PASSWORD}),
    ]:
        ran = savanna("status", *node, *arguments, **variables)
        assert ran.returncode == 0, (arguments, variables, ran.stderr)
    # As on the machine of the node, with its configuration. Another node is not sent the password.
    own = {name: value for name, value in settings.items() if name.startswith("SAVANNA_HTTP")} | users
    ran = savanna("status", **own, SAVANNA_ADDRESS="0.0.0.0", SAVANNA_HTTP_PORT=str(guarded.ports["http"]))
    assert ran.returncode == 0, ran.stderr
    for code, words, arguments, variables in [
        (1, "the node asks for its token or a user", [], users),
        (1, "the node asks for its token or a user", ["--user", USER], {"SAVANNA_PASSWORD": "wrong"}),
        (1, "the node asks for its token or a user", ["--user", "nobody"], {"SAVANNA_PASSWORD": PASSWORD}),
        (2, f"expected the password of user {USER}", ["--user", USER], {}),
        (2, "has no line for this user", ["--user", "nobody"], users),
        (2, "chmod 600", ["--user", USER, "--password-file", folder / "server.pem"], {}),
    ]:
        ran = savanna("status", *node, *arguments, **variables)
        assert words in ran.stderr and ran.returncode == code, (arguments, variables, ran.returncode, ran.stderr)


def test_errors_say_what_was_expected(papers, url, guarded, node, tmp_path):
    folder = papers[1]
    ca, token = ["--ca-file", folder / "server.pem"], ["--token-file", folder / "token"]
    other = url.replace("localhost", "127.0.0.2")
    readable = tmp_path / "readable"
    readable.write_text(TOKEN)
    readable.chmod(0o644)
    cases = [
        (1, "the node asks for its token or a user", ["--url", url, *ca]),
        (1, "the node asks for its token or a user", ["--url", url, *ca, "--token", "another-token-of-16"]),
        (3, "name the certificate that signed the node's with --ca-file FILE", ["--url", url, *token]),
        (3, "name the node in --url as its certificate does", ["--url", other, *ca, *token]),
        (3, "use https:// in --url", ["--url", url.replace("https", "http"), *token]),
        (3, "use http:// in --url", ["--url", f"https://127.0.0.1:{node.ports['http']}", *ca]),
        (2, "takes a PEM file with certificates", ["--url", url, "--ca-file", folder / "token", *token]),
        (2, "takes a PEM file with certificates", ["--url", url, "--ca-file", folder / "nowhere", *token]),
        (2, "--token-file: ", ["--url", url, *ca, "--token-file", folder / "nowhere"]),
        (2, "chmod 600", ["--url", url, *ca, "--token-file", readable]),
        (2, "--token takes a token of 16 or more", ["--url", url, *ca, "--token", "short"]),
        (2, "--url takes http://HOST:PORT or https://HOST:PORT", ["--url", "ftp://localhost"]),
        (2, "--url takes no user or password", ["--url", "https://ann:secret@localhost:1"]),
    ]
    for code, words, arguments in cases:
        for command in (["status"], ["sql", "-c", "SHOW TABLES"]):
            ran = savanna(*command, *arguments)
            assert words in ran.stderr and ran.returncode == code, (command, arguments, ran.returncode, ran.stderr)
