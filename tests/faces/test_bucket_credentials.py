"""Streams and a store that does not let them in: who is told what, and what a query does that loses its rights while it runs."""

import json
import time
import urllib.request

import boto3
import psycopg
import pytest

from ports import free_port
from test_buckets import SESSIONS, Store, start, undisturbed  # noqa: F401 (fixtures)
from test_delta import into
from test_survival import BIDS, HOT, NEXMARK, connect, hot, named, states, until

ALL = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}


class Guarded(Store):
    """A store that lets in whom it knows, and asks whether they may."""

    def __init__(self):
        super().__init__()
        users = boto3.client("iam", endpoint_url=self.url, region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test")
        keys = {}
        for name, action in [("root", "*"), ("ann", "s3:*"), ("bob", "s3:GetObject")]:
            users.create_user(UserName=name)
            policy = {**ALL, "Statement": [{**ALL["Statement"][0], "Action": action}]}
            users.put_user_policy(UserName=name, PolicyName="may", PolicyDocument=json.dumps(policy))
            key = users.create_access_key(UserName=name)["AccessKey"]
            keys[name] = {"AWS_ACCESS_KEY_ID": key["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"]}
        self.keys = keys
        # From now on.
        plain = {"Content-Type": "text/plain"}
        urllib.request.urlopen(urllib.request.Request(f"{self.url}/moto-api/reset-auth", data=b"0", headers=plain, method="POST"), timeout=5)
        self.environment = {**self.environment, **keys["ann"]}
        self.client, self.users = (self.by("root", service) for service in ("s3", "iam"))

    def by(self, name, service):
        key = self.keys[name]
        return boto3.client(service, endpoint_url=self.url, region_name="us-east-1", aws_access_key_id=key["AWS_ACCESS_KEY_ID"],
                            aws_secret_access_key=key["AWS_SECRET_ACCESS_KEY"])

    def let_in(self, may):
        """Gives ann all rights, or takes all of them away."""
        policy = {**ALL, "Statement": [{**ALL["Statement"][0], "Effect": "Allow" if may else "Deny"}]}
        self.users.put_user_policy(UserName="ann", PolicyName="may", PolicyDocument=json.dumps(policy))


@pytest.fixture
def store():
    store = Guarded()
    yield store
    store.process.kill()
    store.process.wait()


def spent(node, seconds):
    """Processor time of a node in the next seconds."""
    before = node.processor_seconds()
    time.sleep(seconds)
    return node.processor_seconds() - before


@pytest.mark.parametrize("wrong, told", [
    ("key", "expected credentials that the store knows, got InvalidAccessKeyId .* as access key AKIANOBODY; correct AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"),
    ("secret", "expected credentials that the store knows, got SignatureDoesNotMatch .* as access key .*; correct AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"),
    ("rights", "expected the right to do so, got AccessDenied .* as access key .*; let the owner of these credentials read, write, list and remove"),
    ("bucket", "expected a bucket of this name, got NoSuchBucket"),
])
def test_who_is_not_let_in_is_told_what_to_do_and_nothing_is_tried_again_and_again(tmp_path, store, start, monkeypatch, wrong, told):  # noqa: F811
    given = {"key": {"AWS_ACCESS_KEY_ID": "AKIANOBODY"}, "secret": {"AWS_SECRET_ACCESS_KEY": "open sesame"}, "rights": store.keys["bob"], "bucket": {}}[wrong]
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    node = start()
    if wrong == "bucket":
        for name in store.names(""):
            store.client.delete_object(Bucket="bucket", Key=name)
        store.client.delete_bucket(Bucket="bucket")
    with connect(node) as connection:
        for statement in [NEXMARK, BIDS]:
            connection.execute(statement)
        begun = time.monotonic()
        for what, table, settings in [
            ("file", hot("s3://bucket/out/hot"), []),
            ("delta", into("s3://bucket/out/delta"), []),
            ("store", hot(tmp_path / "here"), ["SET 'snapshot-interval' = '100ms'", "SET 'query.store' = 's3://bucket/kept'"]),
        ]:
            connection.execute("DROP TABLE IF EXISTS hot")
            for statement in [table, *settings, named(what)]:
                connection.execute(statement)
            with pytest.raises(psycopg.Error, match=f"s3://bucket/.*: {told}") as raised:
                connection.execute(HOT)
            assert raised.value.sqlstate == "42501"
        with pytest.raises(psycopg.Error, match="s3://bucket/saved/hot") as raised:
            connection.execute("RESUME QUERY FROM SAVEPOINT 's3://bucket/saved/hot'")
        # What passes by itself is tried for 5 min.
        assert time.monotonic() - begun < 30
    assert spent(node, seconds=2) < 1, "nobody spins"


def test_who_has_no_credentials_at_all_is_told_which_are_expected(store, start, monkeypatch):  # noqa: F811
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    # The machine has no service that would tell the credentials of its role.
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", f"http://127.0.0.1:{free_port()}")
    node = start()
    with connect(node) as connection:
        for statement in [NEXMARK, BIDS, hot("s3://bucket/out/hot"), named("hot")]:
            connection.execute(statement)
        before = node.processor_seconds()
        with pytest.raises(psycopg.Error, match="expected credentials for the store, got none: AWS_ACCESS_KEY_ID is not set, and this machine has no role .*; set AWS_ACCESS_KEY_ID"):
            connection.execute(HOT)
        assert node.processor_seconds() - before < 3, "nobody spins"


@pytest.mark.parametrize("what", ["file", "store"])
def test_a_query_that_loses_its_rights_fails_with_the_reason_and_goes_on_when_it_has_them_again(tmp_path, store, start, what):  # noqa: F811
    node = start()
    settings = ["SET 'snapshot-interval' = '100ms'", "SET 'query.store' = 's3://bucket/kept'"] if what == "store" else []
    with connect(node) as connection:
        for statement in [NEXMARK, BIDS, hot("s3://bucket/out/hot"), *settings, named("hot"), SESSIONS]:
            connection.execute(statement)
    until(lambda: store.lines("out/hot"))
    store.let_in(False)
    until(lambda: states(node)["hot"]["state"] == "failed")
    error = states(node)["hot"]["error"]
    assert "expected the right to do so, got AccessDenied" in error and "s3:PutObject" in error, error
    assert spent(node, seconds=3) < 1, "nobody spins"
    # A node that starts then says the same, and waits.
    node.kill()
    node = start()
    until(lambda: states(node)["hot"]["state"] == "failed")
    assert "got AccessDenied" in states(node)["hot"]["error"]
    assert spent(node, seconds=3) < 1, "nobody spins"
    store.let_in(True)
    with connect(node) as connection:
        connection.execute("RESUME QUERY 'hot'")
    until(lambda: "hot" not in states(node), deadline=120)
    assert store.lines("out/hot") == undisturbed(tmp_path / "expected", SESSIONS)
