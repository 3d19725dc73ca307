"""A switch that waits for its lock."""

from server import wait_until


class Switching:
    """A session that is about to switch: it has looked at all rows, and somebody who reads the old table keeps it from the lock."""

    def __init__(self, database, definition, options="", settings="", reads="customer"):
        self.reader, self.session = database.connect(), database.connect()
        self.said = []
        self.session.add_notice_handler(lambda notice: self.said.append(notice.message_primary))
        self.reader.execute(f"BEGIN; SELECT FROM {reads} LIMIT 1")
        self.session.execute(f"SET lock_timeout = '1min'; {settings}")
        text = definition.replace("'", "''")
        self.session.pgconn.send_query(f"SELECT bullfrog.migrate('m', '{text}'{options})".encode())
        self.wait_until_told()

    def wait_until_told(self):
        def is_told():
            self.session.pgconn.consume_input()
            assert self.session.pgconn.is_busy(), self.session.pgconn.get_result().error_message.decode()
            return "tables are in use, trying again for 1min" in self.said

        wait_until(is_told, "the switch waits for who uses the table")

    def answer(self):
        """Lets it have the lock: its error, if it is refused."""
        self.reader.execute("COMMIT")
        result = self.session.pgconn.get_result()
        while self.session.pgconn.get_result():
            pass
        return result.error_message.decode()
