"""A broker of Kafka of its own: one node that is its own controller, from jars that `tools/install` gets from Maven."""

import base64
import functools
import os
import pathlib
import shutil
import subprocess
import time
import uuid

import pytest

from ports import free_port

JARS = pathlib.Path(os.environ.get("KAFKA_JARS", pathlib.Path(__file__).resolve().parents[1] / "target" / "kafka-jars"))
# What makes one node enough, and quick to begin.
PROPERTIES = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners={protocol}://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners={protocol}://127.0.0.1:{port}
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL
inter.broker.listener.name={protocol}
log.dirs={directory}/log
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
num.network.threads=2
num.io.threads=2
num.recovery.threads.per.data.dir=1
"""
SASL = """sasl.enabled.mechanisms=PLAIN
sasl.mechanism.inter.broker.protocol=PLAIN
listener.name.sasl_plaintext.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\
  username="admin" password="admin" user_admin="admin" user_ann="open sesame";
"""
SCRAM = """sasl.enabled.mechanisms=SCRAM-SHA-256,SCRAM-SHA-512
sasl.mechanism.inter.broker.protocol=SCRAM-SHA-256
listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username="admin" password="admin";
listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username="admin" password="admin";
"""
TLS = """ssl.keystore.type=PEM
ssl.keystore.location={folder}/broker.pem
ssl.truststore.type=PEM
ssl.truststore.location={folder}/ca.pem
ssl.client.auth={clients}
ssl.endpoint.identification.algorithm=
"""
JAVA = ["java", "-Xmx384m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", f"{JARS}/*"]


def need_jars():
    if shutil.which("java") is None or not (JARS / "complete").exists():
        pytest.skip("there is no Java, or no broker of Kafka; tools/install test gets them")


def certificates(folder, *names, host="127.0.0.1"):
    """An authority, and what it has signed for this host, each with its key in one file; for clients in two."""
    folder.mkdir(parents=True, exist_ok=True)

    def openssl(*words):
        subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True, timeout=60, cwd=folder)

    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    openssl("req", "-x509", *curve, "-days", "30", "-subj", "/CN=the tests' authority", "-keyout", "ca.key", "-out", "ca.pem")
    for name in names:
        (folder / "names").write_text(f"subjectAltName=IP:{host}\n")
        openssl("req", *curve, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr")
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "30", "-extfile", "names", "-out", f"{name}.crt")
        (folder / f"{name}.pem").write_text((folder / f"{name}.key").read_text() + (folder / f"{name}.crt").read_text() + (folder / "ca.pem").read_text())


class Broker:
    def __init__(self, directory, password=None, tls=None, knows_clients=False):
        """With a password it asks for users, and with `tls`, a folder of certificates, it is reached by TLS: users log in by SCRAM then."""
        need_jars()
        self.directory, self.process = directory, None
        directory.mkdir(parents=True, exist_ok=True)
        self.port = free_port(beside=(0, 1))
        self.password = password
        self.tls = tls
        self.protocol = protocol = {(False, False): "PLAINTEXT", (True, False): "SASL_PLAINTEXT", (False, True): "SSL", (True, True): "SASL_SSL"}[(bool(password), bool(tls))]
        text = PROPERTIES.format(port=self.port, controller=self.port + 1, directory=directory, protocol=protocol)
        if password:
            text += SCRAM if tls else SASL
        if tls:
            text += TLS.format(folder=tls, clients="required" if knows_clients else "none")
        self.properties = directory / "server.properties"
        self.properties.write_text(text)
        self.log = directory / "broker.log"
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        users = []
        if password and tls:
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
                for user, secret in (("admin", "admin"), ("ann", password)):
                    users += ["--add-scram", f"{mechanism}=[name={user},password={secret}]"]
        self.run("kafka.tools.StorageTool", "format", f"--cluster-id={cluster}", "-c", self.properties, *users)
        self.start()

    def run(self, *words):
        done = subprocess.run([*JAVA, *map(str, words)], capture_output=True, text=True, timeout=120, cwd=self.directory)
        assert done.returncode == 0, done.stdout + done.stderr

    @property
    def servers(self):
        return f"127.0.0.1:{self.port}"

    def client(self, **more):
        """The properties of a client of Python."""
        how = {"security.protocol": self.protocol}
        if self.password:
            how |= {"sasl.mechanism": "SCRAM-SHA-256" if self.tls else "PLAIN", "sasl.username": "admin", "sasl.password": "admin"}
        if self.tls:
            how |= {"ssl.ca.location": f"{self.tls}/ca.pem", "ssl.certificate.location": f"{self.tls}/client.crt", "ssl.key.location": f"{self.tls}/client.key", "ssl.endpoint.identification.algorithm": "none"}
        return {"bootstrap.servers": self.servers, "log_level": 0, **how, **{name.replace("_", "."): value for name, value in more.items()}}

    @functools.cache
    def admin(self):
        """One for all that is asked: what it was asked ends with it."""
        from confluent_kafka.admin import AdminClient

        return AdminClient(self.client())

    def start(self):
        with open(self.log, "a") as log:
            self.process = subprocess.Popen([*JAVA, "kafka.Kafka", self.properties], stdout=log, stderr=log, cwd=self.directory)
        deadline, admin = time.monotonic() + 60, self.admin()
        while True:
            assert self.process.poll() is None, f"the broker ended:\n{self.log.read_text()[-4000:]}"
            try:
                if admin.list_topics(timeout=1).brokers:
                    return
            except Exception as error:
                assert time.monotonic() < deadline, f"{error}\n{self.log.read_text()[-4000:]}"

    def kill(self):
        self.process.kill()
        self.process.wait()

    def topic(self, name, partitions=1, **config):
        from confluent_kafka.admin import NewTopic

        made = self.admin().create_topics([NewTopic(name, partitions, 1, config={key.replace("_", "."): value for key, value in config.items()})])
        for future in made.values():
            future.result(30)
        return name

    def write(self, topic, messages):
        """Writes messages: values, or pairs of a value and the number of its partition, or triples with a key as well."""
        from confluent_kafka import Producer

        producer = Producer(self.client(linger_ms=1))
        failed = []
        for message in messages:
            value, partition, key = (*message, None)[:3] if isinstance(message, tuple) else (message, 0, None)
            producer.produce(topic, key=key, value=value, partition=partition, on_delivery=lambda error, _: error and failed.append(error))
            producer.poll(0)
        assert producer.flush(30) == 0 and not failed, failed

    def read(self, topic, isolation="read_committed"):
        """All messages of all partitions up to their ends, as (key, value), in the order of each partition."""
        from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

        consumer = Consumer(self.client(group_id="test", isolation_level=isolation, enable_partition_eof=True, enable_auto_commit=False, auto_offset_reset="earliest"))
        try:
            partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
            consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
            messages, left, deadline = [], set(partitions), time.monotonic() + 60
            while left:
                assert time.monotonic() < deadline, f"{topic} is not read to its end"
                message = consumer.poll(1)
                if message is None:
                    continue
                if message.error():
                    assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                    left.discard(message.partition())
                else:
                    messages.append((message.key(), message.value()))
            return messages
        finally:
            consumer.close()


def table(broker, name, columns, topic, **options):
    """The declaration of a table in Kafka; an underscore in the name of an option stands for a dot, two for a hyphen."""
    given = {"connector": "kafka", "topic": topic, "properties.bootstrap.servers": broker.servers, "format": "json"}
    given |= {key.replace("__", "-").replace("_", "."): value for key, value in options.items()}
    return f"CREATE TABLE {name} ({columns}) WITH ({', '.join(f'{chr(39)}{key}{chr(39)} = {chr(39)}{value}{chr(39)}' for key, value in given.items())})"
