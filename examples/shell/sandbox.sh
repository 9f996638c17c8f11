#!/bin/sh
# A sandbox with nothing but curl: create, find execd's endpoint, run a command, delete.
#
# Prints:
#   Running
#   hello from a sandbox
#   gone: 404
set -eu
server=http://${OPEN_SANDBOX_DOMAIN:-localhost:8080}
api() { # METHOD PATH [BODY]
    curl --silent --show-error --fail-with-body -X "$1" "$server$2" \
        -H "OPEN-SANDBOX-API-KEY: ${OPEN_SANDBOX_API_KEY:-}" -H 'Content-Type: application/json' ${3:+--data "$3"}
}
# The string behind a name in a JSON text.
field() { sed -n "s/.*\"$1\": *\"\([^\"]*\)\".*/\1/p"; }

id=$(api POST /v1/sandboxes '{
    "image": {"uri": "host"}, "entrypoint": ["sleep", "infinity"], "timeout": 600,
    "resourceLimits": {"cpu": "1", "memory": "256Mi"}
}' | field id)
trap 'api DELETE "/v1/sandboxes/$id" || true' EXIT
echo "$(api GET "/v1/sandboxes/$id" | field state)"

# Port 44772 is execd. The endpoint comes with the header that it wants.
endpoint=$(api GET "/v1/sandboxes/$id/endpoints/44772")
address=$(echo "$endpoint" | field endpoint)
token=$(echo "$endpoint" | field X-EXECD-ACCESS-TOKEN)
# The answer is a stream of events, one a line.
curl --silent --show-error --fail-with-body "http://$address/command" \
    -H "X-EXECD-ACCESS-TOKEN: $token" -H 'Content-Type: application/json' \
    --data '{"command": "echo hello from a sandbox"}' |
    sed -n 's/.*"type":"stdout".*"text":"\([^"\\]*\)[^"]*".*/\1/p; s/.*"text":"\([^"\\]*\)[^"]*".*"type":"stdout".*/\1/p'

api DELETE "/v1/sandboxes/$id"
trap - EXIT
echo "gone: $(curl --silent -o /dev/null -w '%{http_code}' -H "OPEN-SANDBOX-API-KEY: ${OPEN_SANDBOX_API_KEY:-}" \
    "$server/v1/sandboxes/$id")"
