#!/bin/bash
# The image's entrypoint, under the names that published examples use. execd runs the code, so
# there is nothing to start: a command given as arguments becomes the workload, else the sandbox
# waits. Of each language the image has one version; asking for another is answered, not ignored.
asked() { # variable what-there-is
    local version=${!1:-}
    if [ -n "$version" ] && [[ "$2" != "$version"* ]]; then
        echo "code-interpreter: $1=$version was asked for; this image has $2" >&2
    fi
}
asked PYTHON_VERSION 3.13
asked NODE_VERSION 24
asked JAVA_VERSION 21
asked GO_VERSION 1.24
if [ $# -gt 0 ]; then
    exec "$@"
fi
exec tail -f /dev/null
