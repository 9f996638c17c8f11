#!/bin/bash
# The entrypoint of the images browser and desktop: an X server that is also a VNC server, a session of
# windows, Chromium, and the helper that everything is reached through. What ends is started again: the
# helper outlives the X server and the browser, and the browser's address stays the same.
#
#   DESKTOP_SIZE       the screen, 1280x800
#   VNC_PASSWORD       asked of VNC clients; without it VNC listens on loopback only
#   BROWSER_URL        the first page, about:blank
#   BROWSER_PROFILE    Chromium's profile, /home/user/profile; a volume keeps it
#   BROWSER_FLAGS      more of Chromium's options
#   BROWSER=off        no Chromium
#   DESKTOP_ADDRESS    where the helper listens, 127.0.0.1:6080 (0.0.0.0:6080 to publish the port by Docker)
#
# A command given as arguments runs beside all this and is the sandbox's workload.
set -u
readonly display=${DISPLAY:-:1}
readonly size=${DESKTOP_SIZE:-1280x800}
readonly vnc_port=${VNC_PORT:-5901}
readonly profile=${BROWSER_PROFILE:-/home/user/profile}
readonly state=/run/desktop
# Programs that end at once would take a whole processor otherwise.
readonly restart_seconds=1
readonly start_seconds_max=30
export DISPLAY=$display XDG_RUNTIME_DIR=$state/user LANG=${LANG:-C.UTF-8}

say() { echo "desktop: $*" >&2; }

if ! [[ $size =~ ^[0-9]{2,4}x[0-9]{2,4}$ ]]; then
    say "DESKTOP_SIZE is WIDTHxHEIGHT, such as 1280x800, not '$size'"
    exit 2
fi

# Everything runs as the image's user, unless the sandbox is somebody else's already.
as_user() {
    if [ "$(id -u)" -eq 0 ]; then
        exec setpriv --reuid=user --regid=user --init-groups env HOME=/home/user USER=user "$@"
    fi
    exec "$@"
}

mkdir -p "$state/user" "$profile" /tmp/.X11-unix
chmod 1777 /tmp/.X11-unix
if [ "$(id -u)" -eq 0 ]; then
    chown user:user "$state" "$state/user" "$profile"
    # A profile from a volume may be root's, and one from a snapshot is the user's already.
    find "$profile" -maxdepth 1 -not -user user -exec chown -R user:user {} +
fi
chmod 700 "$state/user"

# The X server, and everything that draws on it; ends when the X server does.
x_server() {
    local number=${display#:} ready=$state/ready password=(-SecurityTypes None -localhost)
    if [ -n "${VNC_PASSWORD:-}" ]; then
        (umask 077 && printf '%s\n' "$VNC_PASSWORD" | vncpasswd -f >"$state/vnc-password")
        [ "$(id -u)" -ne 0 ] || chown user:user "$state/vnc-password"
        password=(-SecurityTypes VncAuth -rfbauth "$state/vnc-password" -localhost=0)
    fi
    # A server that was killed, or whose sandbox became a snapshot, leaves these behind.
    rm -f "/tmp/.X$number-lock" "/tmp/.X11-unix/X$number" "$ready"
    mkfifo "$ready"
    [ "$(id -u)" -ne 0 ] || chown user:user "$ready"
    (as_user Xtigervnc "$display" -geometry "$size" -depth 24 -rfbport "$vnc_port" -AlwaysShared \
        -AcceptSetDesktopSize=1 -ac -nolisten tcp -displayfd 9 "${password[@]}" 9>"$ready" >>"$state/x.log" 2>&1) &
    local server=$! answer=
    if ! read -r -t "$start_seconds_max" answer <>"$ready"; then
        say "the X server did not start: $(tail -3 "$state/x.log" 2>/dev/null)"
        kill "$server" 2>/dev/null
        wait "$server"
        return
    fi
    session &
    local session=$!
    browser &
    local browser=$!
    wait "$server"
    say "the X server ended"
    kill "$session" "$browser" 2>/dev/null
    wait "$session" "$browser" 2>/dev/null
}

session() {
    case ${DESKTOP_SESSION_NAME:-openbox} in
        xfce) as_user dbus-launch --exit-with-session startxfce4 >>"$state/session.log" 2>&1 ;;
        *) as_user openbox >>"$state/session.log" 2>&1 ;;
    esac
}

browser() {
    [ "${BROWSER:-on}" != off ] || return
    local child=
    trap '[ -z "$child" ] || kill "$child" 2>/dev/null; exit' TERM
    # The flags: the boundary is the sandbox's, whose filter leaves Chromium no namespaces of its own
    # (--test-type hides the bar that would say so); nothing asks a person questions.
    while :; do
        # A profile that was copied names the machine it was last used on.
        rm -f "$profile"/Singleton* "$profile/DevToolsActivePort"
        # shellcheck disable=SC2086  # more options are words
        (as_user chromium --user-data-dir="$profile" --remote-debugging-port=0 --no-sandbox --test-type \
            --no-first-run --no-default-browser-check --password-store=basic --disable-dev-shm-usage \
            --hide-crash-restore-bubble --window-position=0,0 --window-size="${size/x/,}" --start-maximized \
            ${BROWSER_FLAGS:-} "${BROWSER_URL:-about:blank}" >>"$state/browser.log" 2>&1) &
        child=$!
        wait "$child"
        say "the browser ended"
        sleep "$restart_seconds"
    done
}

helper() {
    while :; do
        (as_user /opt/opensandbox/desktop --listen "${DESKTOP_ADDRESS:-127.0.0.1:6080}" --listen 127.0.0.1:9222 \
            --display "$display" --vnc "127.0.0.1:$vnc_port" --profile "$profile" \
            --recordings /home/user/Recordings)
        say "the helper ended"
        sleep "$restart_seconds"
    done
}

helper &
if [ $# -gt 0 ]; then
    (while :; do x_server; sleep "$restart_seconds"; done) &
    exec "$@"
fi
while :; do
    x_server
    sleep "$restart_seconds"
done
