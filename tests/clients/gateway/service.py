"""A service of gRPC whose messages are bytes: every kind of call, for test_grpc.py. Prints `listening`."""

import sys
import threading
from concurrent import futures

import grpc

LARGE = 64 * 1024 * 1024
given_up = threading.Semaphore(0)


def echo(request, context):
    seen = {name: value for name, value in context.invocation_metadata()}
    context.send_initial_metadata((("x-seen", ",".join(sorted(seen))), ("x-host", context.peer())))
    context.set_trailing_metadata((("x-trailer", "from inside"), ("x-raw-bin", b"\x00\xff")))
    return request


def count(request, context):
    for number in range(int(request)):
        yield b"%d" % number


def total(requests, context):
    return b"%d" % sum(len(request) for request in requests)


def converse(requests, context):
    for request in requests:
        yield b"heard " + request


def fail(request, context):
    context.set_trailing_metadata((("x-trailer", "of a failure"),))
    context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not like this: \u00e9")


def hang(request, context):
    ended = threading.Event()
    context.add_callback(ended.set)
    yield b"begun"
    ended.wait()
    given_up.release()


def was_given_up(request, context):
    given_up.acquire()
    return b"yes"


def handlers():
    unary, streamed = grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler
    return grpc.method_handlers_generic_handler("test.Service", {
        "Echo": unary(echo),
        "Count": streamed(count),
        "Total": grpc.stream_unary_rpc_method_handler(total),
        "Converse": grpc.stream_stream_rpc_method_handler(converse),
        "Fail": unary(fail),
        "Hang": streamed(hang),
        "WasGivenUp": unary(was_given_up),
    })


server = grpc.server(futures.ThreadPoolExecutor(8), options=[
    ("grpc.max_receive_message_length", LARGE), ("grpc.max_send_message_length", LARGE),
])
server.add_generic_rpc_handlers([handlers()])
server.add_insecure_port(f"127.0.0.1:{sys.argv[1]}")
server.start()
print("listening", flush=True)
server.wait_for_termination()
