#!/bin/sh
# The published server starts every sandbox with this, from its execd image, and with the sandbox's
# own program as arguments.
exec /opt/opensandbox/execd --init -- "$@"
