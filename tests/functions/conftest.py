"""A node that serves functions alone, and boto3 as its client."""

import io
import zipfile

import pytest

from functions_server import Server

ROLE = "arn:aws:iam::000000000000:role/any"


def zip_of(files):
    """A zip of files by their names; one that is run is given as (content, mode)."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            content, mode = content if isinstance(content, tuple) else (content, 0o644)
            info = zipfile.ZipInfo(name)
            info.external_attr = (0o100000 | mode) << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, content)
    return buffer.getvalue()


@pytest.fixture
def server(tmp_path):
    server = Server(tmp_path)
    yield server
    server.kill()


@pytest.fixture
def client(server):
    return server.client()


@pytest.fixture
def make(client):
    """Makes a function of one file of Python."""

    def made(name, source, **settings):
        settings = {"Runtime": "python3.11", "Handler": "main.handler", "Role": ROLE, "Timeout": 20, **settings}
        return client.create_function(FunctionName=name, Code={"ZipFile": zip_of({"main.py": source})}, **settings)

    return made
