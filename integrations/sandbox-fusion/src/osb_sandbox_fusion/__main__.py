"""The program: `osb-sandbox-fusion --image code-interpreter`."""

import argparse

from osb import Client

from .languages import LANGUAGES
from .running import Runner
from .serving import serve


def main() -> None:
    parser = argparse.ArgumentParser(description="SandboxFusion's POST /run_code on OSB sandboxes.")
    parser.add_argument("--image", required=True, help="the image that code runs in")
    parser.add_argument("--image-of", action="append", default=[], metavar="LANGUAGE=IMAGE",
                        help="the image of one language; may be given more than once")
    parser.add_argument("--listen", default="127.0.0.1:8081", metavar="HOST:PORT", help="%(default)s unless said")
    parser.add_argument("--at-once", type=int, default=64, metavar="N", help="sandboxes at once; %(default)s unless said")
    given = parser.parse_args()
    images = dict(pair.split("=", 1) for pair in given.image_of if "=" in pair)
    if len(images) != len(given.image_of) or not set(images) <= set(LANGUAGES):
        parser.error(f"--image-of is LANGUAGE=IMAGE, each language once; there are {', '.join(LANGUAGES)}")
    host, _, port = given.listen.rpartition(":")
    if not port.isdigit() or given.at_once < 1:
        parser.error("--listen is HOST:PORT, and --at-once at least 1")
    server = serve(Runner(Client(), given.image, images, given.at_once), host.strip("[]"), int(port))
    print(f"listening on {server.server_address[0]}:{server.server_address[1]}", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
