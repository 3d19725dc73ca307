"""Trees of unusual shapes, and what clients see of them."""

import getpass

import hdfs_native
import pytest


def check_a_thousand_levels(server):
    """A path of as many names as there may be is made, found after a restart, moved and deleted."""
    client = hdfs_native.Client(server.url)
    deep = "/d" * 999
    client.mkdirs(deep, create_parent=True)
    with client.create(f"{deep}/f", hdfs_native.WriteOptions()) as file:
        file.write(b"at the end")
    with pytest.raises(RuntimeError, match="too long"):
        client.mkdirs(f"{deep}/d/d", create_parent=True)
    for _ in range(2):
        server.restart()
        client = hdfs_native.Client(server.url)
        with client.read(f"{deep}/f") as file:
            assert file.read() == b"at the end"
        assert client.get_file_info(deep).isdir
        summary = client.get_content_summary("/d")
        assert (summary.file_count, summary.directory_count, summary.length) == (1, 999, 10)
    client.rename("/d/d", "/moved")
    server.restart()
    client = hdfs_native.Client(server.url)
    moved = "/moved" + "/d" * 997
    assert [status.path for status in client.list_status(moved)] == [f"{moved}/f"]
    assert [status.path for status in client.list_status("/d")] == []
    assert client.delete("/moved", True)
    server.restart()
    client = hdfs_native.Client(server.url)
    assert [status.path for status in client.list_status("/")] == ["/d"]
    assert client.get_content_summary("/").file_count == 0


def check_rights_of_what_is_elsewhere(server, monkeypatch):
    """Who deletes a directory needs all rights in each directory there that is not empty, also where they are not in memory."""

    def client(user):
        monkeypatch.setenv("HADOOP_USER_NAME", user)
        return hdfs_native.Client(server.url)

    def allowed(path, user="ann"):
        try:
            return client(user).delete(path, True)
        except RuntimeError as error:
            assert "Permission denied" in str(error), error
            return False

    root = client(getpass.getuser())
    for name in ("mine", "mode", "sticky", "list"):
        for number in range(30):
            root.mkdirs(f"/home/{name}/{number}/in", create_parent=True)
            for path in (f"/home/{name}/{number}", f"/home/{name}/{number}/in"):
                root.set_owner(path, "ann", "staff")
        root.set_owner(f"/home/{name}", "ann", "staff")
    root.set_owner("/home", "ann", "staff")
    # An empty directory is nobody's concern, and one with something in it is.
    root.set_permission("/home/mine/7/in", 0)
    root.set_permission("/home/mode/7", 0o600)
    root.set_owner("/home/sticky/7", "bob", "staff")
    root.set_owner("/home/sticky/7/in", "bob", "staff")
    root.set_permission("/home/sticky/7", 0o1777)
    root.set_owner("/home/list/7", "bob", "staff")
    root.set_permission("/home/list/7", 0o700)
    root.modify_acl_entries("/home/list/7", [hdfs_native.AclEntry("user", "access", "rwx", "ann")])
    for _ in range(2):
        # It begins with nothing in memory.
        server.restart()
        assert not allowed("/home/mode") and not allowed("/home/sticky") and not allowed("/home/mine", "eve")
    assert allowed("/home/mine") and allowed("/home/list")
    root = client(getpass.getuser())
    assert sorted(status.path for status in root.list_status("/home")) == ["/home/mode", "/home/sticky"]
    assert root.get_content_summary("/home").directory_count == 1 + 2 * 61
    root.set_permission("/home/mode/7", 0o700)
    root.set_permission("/home/sticky/7", 0o777)
    server.restart()
    assert allowed("/home/mode") and allowed("/home/sticky")
    # As for who may do everything.
    assert client(getpass.getuser()).delete("/home", True)
