"""One broker for all tests of this folder; those that kill one have their own."""

import pytest

from broker import Broker


@pytest.fixture(scope="session")
def broker(tmp_path_factory):
    broker = Broker(tmp_path_factory.mktemp("kafka"))
    yield broker
    broker.kill()


@pytest.fixture
def own_broker(tmp_path):
    broker = Broker(tmp_path / "broker")
    yield broker
    if broker.process.poll() is None:
        broker.kill()
