"""A registry of schemas of our own, by as much of Confluent's protocol as is asked for: numbers, subjects, and what it refuses."""

import base64
import http.server
import json
import threading

from ports import free_port


class Registry:
    """Schemas by number, and by subject in the order in which they were registered."""

    def __init__(self, user=None):
        self.user, self.port = user, free_port()
        self.schemas, self.subjects, self.asked = {}, {}, []
        # A field of a subject whose schema is refused if it is not there.
        self.wanted = {}
        self.server = None
        self.start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def add(self, schema, number=None, kind=None):
        """A schema, as text or not; tells its number."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        number = number or max(self.schemas, default=0) + 1
        self.schemas[number] = {"schema": text} | ({"schemaType": kind} if kind else {})
        return number

    def register(self, subject, text):
        for number in self.subjects.setdefault(subject, []):
            if self.schemas[number]["schema"] == text:
                return 200, {"id": number}
        names = {field["name"] for field in json.loads(text)["fields"]}
        if subject in self.wanted and self.wanted[subject] not in names:
            return 409, {"error_code": 409, "message": f"Schema being registered is incompatible: READER_FIELD_MISSING_DEFAULT_VALUE {self.wanted[subject]}"}
        number = self.add(text)
        self.subjects[subject].append(number)
        return 200, {"id": number}

    def answer(self, method, path, body):
        self.asked.append(path)
        match (method, path.strip("/").split("/")):
            case ("GET", ["schemas", "ids", number]) if int(number) in self.schemas:
                return 200, self.schemas[int(number)]
            case ("GET", ["schemas", "ids", _]):
                return 404, {"error_code": 40403, "message": "Schema not found"}
            case ("POST", ["subjects", subject, "versions"]):
                return self.register(subject, json.loads(body)["schema"])
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def start(self):
        registry = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.reply("GET", b"")

            def do_POST(self):
                self.reply("POST", self.rfile.read(int(self.headers["Content-Length"])))

            def reply(self, method, body):
                expected = registry.user and "Basic " + base64.b64encode(registry.user.encode()).decode()
                if expected and self.headers.get("Authorization") != expected:
                    status, answer = 401, {"error_code": 40101, "message": "Unauthorized"}
                else:
                    status, answer = registry.answer(method, self.path, body)
                text = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self):
        if self.server is not None:
            self.server.shutdown()
            self.server.server_close()
            self.server = None
