"""Clients that write and delete while processes are killed."""

import os
import random
import threading
import time

import hdfs_native
import pytest


def check_what_is_acknowledged(server, largest, kill):
    """Clients write and delete files of up to so many bytes while `kill` ends something, by the dice that it gets: what was acknowledged is there."""
    rounds, seed = int(os.environ.get("FILES_KILLS", 4)), random.randrange(1 << 32)
    print("seed", seed)
    dice, there, gone, stop = random.Random(seed), {}, set(), threading.Event()

    def work(number):
        mine, client, count = random.Random(seed + number), hdfs_native.Client(server.url), 0
        while not stop.is_set():
            count += 1
            path, content = f"/{number}/{count % 7}/{count}", mine.randbytes(mine.randrange(largest))
            try:
                with client.create(path, hdfs_native.WriteOptions(block_size=65_536)) as file:
                    file.write(content)
                there[path] = content
                if mine.random() < 0.3:
                    old = mine.choice([path for path in list(there) if path.startswith(f"/{number}/")])
                    kept = there.pop(old)
                    # Until it is acknowledged it may be there or not.
                    if client.delete(old, False):
                        gone.add(old)
                    else:
                        there[old] = kept
            except Exception:
                client = hdfs_native.Client(server.url)
                time.sleep(0.05)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for worker in workers:
        worker.start()
    for _ in range(rounds):
        time.sleep(dice.uniform(0.3, 1.5))
        kill(dice)
    time.sleep(1)
    stop.set()
    for worker in workers:
        worker.join()
    server.restart()
    client = hdfs_native.Client(server.url)
    assert there, "it did something"
    for path, content in there.items():
        with client.read(path) as file:
            assert file.read() == content, path
    for path in gone:
        with pytest.raises(FileNotFoundError):
            client.get_file_info(path)
