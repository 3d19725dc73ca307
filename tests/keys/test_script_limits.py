"""What scripts may do: replies, and the log of refusals, are those of Redis."""

import pytest

from resp import Client, Refused


@pytest.fixture
def both(redis, savanna):
    pair = Client(redis.port), Client(savanna.port)
    for client in pair:
        client.call("FLUSHALL")
        client.call("ACL", "LOG", "RESET")
    return pair


def same(both, *words):
    theirs, ours = (client.call(*words) for client in both)
    if isinstance(theirs, Refused):
        assert isinstance(ours, Refused), (words, ours)
        theirs, ours = theirs.split(" script:")[0], ours.split(" script:")[0]
        assert theirs.split(" ", 2)[0] == ours.split(" ", 2)[0], words
        return ours
    assert ours == theirs, words
    return ours


@pytest.mark.parametrize("count", [100, 7_900, 8_100, 70_000])
def test_tables_of_many_fields_are_packed(both, count):
    for at in ("i", "'f' .. i"):
        fill = f"local t = {{}} for i = 1, {count} do t[{at}] = i end "
        same(both, "EVAL", fill + f"local u = cmsgpack.unpack(cmsgpack.pack(t)) local i = {count} return u[{at}]", 0)
        same(both, "EVAL", fill + "return #cmsgpack.pack(t)", 0)
        same(both, "EVAL", fill + f"local i = {count} return cjson.decode(cjson.encode(t))[{at}]", 0)
    same(both, "EVAL", f"local t = {{}} for i = 1, {count} do t[i] = 'e' .. i end return t", 0)
    fill = f"local t = {{}} for i = 1, {count} do t['f' .. i] = true end redis.setresp(3) "
    for type_ in ("map", "set"):
        replies = [client.call("EVAL", fill + f"return {{{type_} = t}}", 0) for client in both]
        assert len(replies[0]) == len(replies[1])


def test_a_script_that_changes_nothing_publishes_nothing(both):
    listeners = []
    for client in both:
        listeners.append(Client(client.socket.getpeername()[1]))
        listeners[-1].call("SUBSCRIBE", "news")
    for command in ("EVAL_RO", "EVAL"):
        text = "return redis.call('publish', 'news', 'x')"
        if command == "EVAL":
            text = "#!lua flags=no-writes\n" + text
        refusal = same(both, command, text, 0)
        assert isinstance(refusal, Refused) or "read-only" in refusal, refusal
    same(both, "EVAL", "return redis.call('publish', 'news', 'y')", 0)
    for listener in listeners:
        assert listener.receive() == [b"message", b"news", b"y"], "nothing came before it"


def test_what_a_script_is_refused_is_in_the_log_of_refusals(both):
    entries = []
    for client in both:
        client.call("ACL", "SETUSER", "amina", "on", "nopass", "~a*", "+@all", "-set")
        user = Client(client.socket.getpeername()[1])
        assert user.call("AUTH", "amina", "x") == "OK"
        assert isinstance(user.call("EVAL", "return redis.call('set', KEYS[1], '1')", 1, "a"), Refused)
        entry = client.call("ACL", "LOG")[0]
        fields = dict(zip(entry[::2], entry[1::2]))
        address = b"addr=%s:%d " % tuple(part.encode() if isinstance(part, str) else part for part in user.socket.getsockname())
        assert address in fields[b"client-info"] and b" user=amina " in fields[b"client-info"], "the client, not the script"
        entries.append({name: fields[name] for name in (b"count", b"reason", b"context", b"object", b"username")})
        client.call("ACL", "DELUSER", "amina")
    assert entries[1] == entries[0] and entries[0][b"context"] == b"lua"
