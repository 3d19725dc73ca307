"""Clients of other languages, each with a small program that uses it as its users do."""

import pytest


@pytest.mark.parametrize("language", ["python", "rust", "go", "java"])
def test_a_client_works_as_with_postgresql(server, run_client, language):
    run_client(language, server.port)
