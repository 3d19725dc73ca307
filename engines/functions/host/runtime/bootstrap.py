"""Runs a handler of Python behind Lambda's Runtime API, where the machine's Python has no awslambdaric."""
import http.client
import importlib
import json
import os
import sys
import time
import traceback

API = os.environ["AWS_LAMBDA_RUNTIME_API"]
PATH = "/2018-06-01/runtime/"


class Context:
    """What a handler knows of its invocation."""

    def __init__(self, headers):
        self.aws_request_id = headers["Lambda-Runtime-Aws-Request-Id"]
        self.invoked_function_arn = headers["Lambda-Runtime-Invoked-Function-Arn"]
        self._deadline = int(headers["Lambda-Runtime-Deadline-Ms"])
        self.function_name = os.environ["AWS_LAMBDA_FUNCTION_NAME"]
        self.function_version = os.environ["AWS_LAMBDA_FUNCTION_VERSION"]
        self.memory_limit_in_mb = os.environ["AWS_LAMBDA_FUNCTION_MEMORY_SIZE"]
        self.log_group_name = os.environ["AWS_LAMBDA_LOG_GROUP_NAME"]
        self.log_stream_name = os.environ["AWS_LAMBDA_LOG_STREAM_NAME"]
        client = headers.get("Lambda-Runtime-Client-Context")
        self.client_context = ClientContext(json.loads(client)) if client else None
        self.identity = None

    def get_remaining_time_in_millis(self):
        return max(self._deadline - int(time.time() * 1000), 0)


class ClientContext:
    """What the client says of itself."""

    def __init__(self, fields):
        self.custom, self.env, self.client = fields.get("custom"), fields.get("env"), fields.get("client")


def described(error):
    """An error as Lambda shows it."""
    trace = traceback.extract_tb(error.__traceback__)[1:]
    return json.dumps({
        "errorMessage": str(error),
        "errorType": type(error).__name__,
        "requestId": os.environ.get("_X_REQUEST_ID", ""),
        "stackTrace": traceback.format_list(trace),
    }).encode()


class Api:
    """One connection for all requests."""

    def __init__(self):
        self.connection = http.client.HTTPConnection(API)

    def ask(self, method, path, body=None, headers={}):
        self.connection.request(method, PATH + path, body, headers)
        answer = self.connection.getresponse()
        return answer.headers, answer.read()


def handler_of(name):
    """The function that `module.function` names."""
    module, _, function = name.rpartition(".")
    return getattr(importlib.import_module(module.replace("/", ".")), function)


def main():
    sys.path.insert(0, os.environ["LAMBDA_TASK_ROOT"])
    api = Api()
    try:
        handler = handler_of(os.environ["_HANDLER"])
    except BaseException as error:
        kind = "Runtime.ImportModuleError" if isinstance(error, ImportError) else "Runtime.HandlerNotFound" if isinstance(error, AttributeError) else type(error).__name__
        body = json.loads(described(error))
        body["errorType"] = kind
        api.ask("POST", "init/error", json.dumps(body).encode(), {"Lambda-Runtime-Function-Error-Type": kind})
        sys.exit(1)
    while True:
        headers, event = api.ask("GET", "invocation/next")
        request = headers["Lambda-Runtime-Aws-Request-Id"]
        os.environ["_X_REQUEST_ID"] = request
        os.environ["_X_AMZN_TRACE_ID"] = headers.get("Lambda-Runtime-Trace-Id", "")
        try:
            answer = json.dumps(handler(json.loads(event), Context(headers))).encode()
            sys.stdout.flush()
            api.ask("POST", "invocation/" + request + "/response", answer)
        except Exception as error:
            traceback.print_exc()
            sys.stdout.flush()
            sys.stderr.flush()
            kind = {"Lambda-Runtime-Function-Error-Type": type(error).__name__}
            api.ask("POST", "invocation/" + request + "/error", described(error), kind)


main()
