"""Tenants of a whole node with psql and psycopg."""

import subprocess

import psycopg

from node import Node


def connect(node, database):
    return psycopg.connect(f"host=127.0.0.1 port={node.ports['tenants']} user=postgres dbname={database}", autocommit=True)


def test_psql_makes_a_database_and_goes_there(node):
    script = """CREATE DATABASE shop;
        \\c shop
        CREATE TABLE item (id int PRIMARY KEY, name text NOT NULL, price numeric(8,2) CHECK (price > 0));
        INSERT INTO item VALUES (1, 'lamp', 19.90) RETURNING *;
        INSERT INTO item VALUES (2, 'gift', 0);"""
    psql = ["psql", "-h", "127.0.0.1", "-p", str(node.ports["tenants"]), "-U", "postgres", "-Atq"]
    done = subprocess.run(psql, input=script, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines() == ["1|lamp|19.90"], done.stderr
    assert 'violates check constraint "item_price_check"' in done.stderr


def test_what_was_acknowledged_survives_that_the_whole_process_is_killed(tmp_path):
    node = Node(tmp_path)
    with connect(node, "postgres") as connection:
        connection.execute("CREATE DATABASE shop")
    acknowledged = 0
    for _ in range(2):
        try:
            with connect(node, "shop") as shop:
                shop.execute("CREATE TABLE IF NOT EXISTS sale (id int PRIMARY KEY)")
                while True:
                    shop.execute("INSERT INTO sale VALUES (%s)", (acknowledged,))
                    acknowledged += 1
                    if acknowledged % 50 == 0:
                        node.kill()
        except psycopg.OperationalError:
            pass
        node = Node(tmp_path)
        with connect(node, "shop") as shop:
            assert shop.execute("SELECT count(*), max(id) FROM sale").fetchone() == (acknowledged, acknowledged - 1)
    assert node.stop() == 0
