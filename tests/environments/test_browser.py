"""The image browser: what is shown is what pictures show, and Playwright drives it from outside."""

import io
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote

import pytest
from conftest import CHROMIUM, HELPER, KEY, Environment
from PIL import Image, ImageChops

BROWSERS = 8
PAGE = "data:text/html," + quote("""<!doctype html><title>Shown</title><style>*{margin:0}body{background:rgb(10,200,60)}
#box{position:absolute;left:100px;top:100px;width:200px;height:100px;background:rgb(250,20,90)}</style>
<div id=box></div><textarea id=text style="position:absolute;left:100px;top:300px;width:800px;height:200px"></textarea>
<script>document.onclick=e=>document.title=e.screenX+','+e.screenY</script>""")


def picture(environment, query=""):
    status, headers, body = environment.ask("GET", f"/desktop/screenshot{query}")
    assert status == 200, body
    return Image.open(io.BytesIO(body)).convert("RGB"), headers


@pytest.fixture(scope="module")
def chromium(browser_sandbox, playwright):
    """The published Playwright at the plain http address of the endpoint, nothing rewritten by hand."""
    address, headers = browser_sandbox.endpoint(HELPER)
    browser = playwright.chromium.connect_over_cdp(address, headers=headers)
    yield browser
    browser.close()


@pytest.fixture
def page(chromium):
    page = chromium.contexts[0].pages[0]
    page.goto(PAGE)
    return page


def still(environment):
    return environment.json("GET", "/desktop/still?quiet_ms=300&timeout_ms=10000")


def test_a_picture_shows_what_the_page_says_it_shows(browser_sandbox, page):
    still(browser_sandbox)
    shown, headers = picture(browser_sandbox)
    assert shown.size == (1280, 800)
    assert headers["x-picture-size"] == "1280x800"
    left, top, right, bottom = box_of(shown, (250, 20, 90))
    assert (right - left, bottom - top) == (200, 100)
    by_playwright = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    width, height = by_playwright.size
    inside = shown.crop((left - 100, top - 100, left - 100 + width, top - 100 + height))
    difference = ImageChops.difference(inside, by_playwright).convert("L").point(lambda level: 255 * (level > 40))
    assert difference.getbbox() is None, difference.getbbox()


def box_of(image, colour):
    """The smallest box around all pixels of a colour."""
    solid = Image.new("RGB", image.size, colour)
    return ImageChops.difference(image, solid).convert("L").point(lambda level: 255 * (level == 0)).getbbox()


def click_into_text(environment):
    """Gives the keyboard to the page's text area, by the mouse."""
    still(environment)
    left, top, _, _ = box_of(picture(environment)[0], (250, 20, 90))
    environment.json("POST", "/desktop/actions", {
        "actions": [{"type": "click", "x": left + 50, "y": top + 250}], "picture": 0})


def test_actions_reach_the_page(browser_sandbox, page):
    click_into_text(browser_sandbox)
    page.wait_for_function("document.activeElement.id == 'text'")
    page.evaluate("document.title = 'Shown'")
    text = "Grüße, мир, 漢字, مرحبا 🎉"
    done = browser_sandbox.json("POST", "/desktop/actions", {
        "actions": [{"type": "type", "text": text}], "picture": 0, "then": {"max_edge": 640, "still": {}}})
    assert page.locator("#text").input_value() == text
    assert (done["picture"]["width"], done["picture"]["height"]) == (640, 400)
    # A click in the small picture arrives where it was on the large one.
    browser_sandbox.json("POST", "/desktop/actions", {"actions": [{"type": "click", "x": 400, "y": 350}]})
    page.wait_for_function("document.title != 'Shown'")
    x, y = map(int, page.title().split(","))
    assert abs(x - 801) <= 1 and abs(y - 701) <= 1


def test_copied_text_comes_out_and_put_text_goes_in(browser_sandbox, page):
    click_into_text(browser_sandbox)
    page.locator("#text").fill("copied from the page")
    keys = lambda *names: {"actions": [{"type": "key", "keys": name} for name in names], "picture": 0,
                           "then": {"still": {}, "max_edge": 64}}
    browser_sandbox.json("POST", "/desktop/actions", keys("ctrl+a", "ctrl+c"))
    assert browser_sandbox.json("GET", "/desktop/clipboard") == {"text": "copied from the page"}
    browser_sandbox.json("PUT", "/desktop/clipboard", {"text": "put from outside ✓"})
    browser_sandbox.json("POST", "/desktop/actions", keys("ctrl+a", "ctrl+v"))
    page.wait_for_function("document.getElementById('text').value == 'put from outside ✓'")


def test_the_window_is_listed(browser_sandbox, page):
    page.evaluate("document.title = 'A title for the list'")
    page.wait_for_function("document.title == 'A title for the list'")
    still(browser_sandbox)
    windows = browser_sandbox.json("GET", "/desktop/windows")["windows"]
    assert any("A title for the list" in window["title"] for window in windows), windows
    seen = browser_sandbox.json("GET", "/desktop")
    assert "A title for the list" in seen["window"]["title"] and seen["browser"]["is_running"]


def test_addresses_of_json_work_from_outside(browser_sandbox, playwright):
    for port in (HELPER, CHROMIUM):
        address, headers = browser_sandbox.endpoint(port)
        version = browser_sandbox.json("GET", "/json/version", port=port)
        assert version["webSocketDebuggerUrl"] == address.replace("http", "ws", 1) + "/cdp"
        browser = playwright.chromium.connect_over_cdp(version["webSocketDebuggerUrl"], headers=headers)
        assert browser.contexts[0].pages
        browser.close()
    tabs = browser_sandbox.json("GET", "/json/list")
    assert all(tab["webSocketDebuggerUrl"].startswith(address.rsplit("/", 1)[0].replace("http", "ws", 1)) for tab in tabs)


def test_a_download_goes_to_the_known_directory(browser_sandbox, chromium, page):
    session = chromium.new_browser_cdp_session()
    session.send("Browser.setDownloadBehavior", {
        "behavior": "allow", "downloadPath": "/home/user/Downloads", "eventsEnabled": True})
    done = threading.Event()
    session.on("Browser.downloadProgress", lambda event: event["state"] == "completed" and done.set())
    page.evaluate("""() => { const a = document.createElement('a'); a.download = 'report.txt';
        a.href = 'data:text/plain,downloaded inside'; a.click(); }""")
    deadline = time.monotonic() + 30
    while not done.is_set() and time.monotonic() < deadline:
        page.wait_for_timeout(20)
    assert done.is_set()
    assert browser_sandbox.sandbox.files.read_file("/home/user/Downloads/report.txt") == "downloaded inside"


def test_the_live_view_is_seen_in_a_second_browser(browser_sandbox, page, second_chromium, playwright):
    page.evaluate("document.activeElement.blur()")
    still(browser_sandbox)
    for link in ("page", "view_only"):
        path = browser_sandbox.json("GET", "/desktop")["live_view"][link]
        other = playwright.chromium.launch(executable_path=second_chromium)
        try:
            viewer = other.new_page(viewport={"width": 1280, "height": 800})
            viewer.goto(browser_sandbox.link(path))
            viewer.wait_for_function("document.documentElement.classList.contains('noVNC_connected')")
            inside, _ = picture(browser_sandbox)
            deadline = time.monotonic() + 30
            while True:
                seen = Image.open(io.BytesIO(viewer.screenshot())).convert("RGB")
                points = [(x, y) for x in range(40, 1280, 80) for y in range(200, 780, 60)]
                alike = sum(close(inside.getpixel(point), seen.getpixel(point)) for point in points)
                if alike > len(points) * 0.9:
                    break
                assert time.monotonic() < deadline, f"{link}: {alike} of {len(points)} points are alike"
                viewer.wait_for_timeout(100)
        finally:
            other.close()


def close(one, other):
    return all(abs(a - b) < 24 for a, b in zip(one, other))


def test_the_browser_comes_back_under_the_same_address(server, playwright):
    environment = Environment(server, "opensandbox/chrome:latest")
    try:
        environment.ready()
        address, headers = environment.endpoint(CHROMIUM)
        stable = address.replace("http", "ws", 1) + "/cdp"
        first = playwright.chromium.connect_over_cdp(stable, headers=headers)
        version = first.new_browser_cdp_session().send("Browser.getVersion")["product"]
        environment.run("kill -9 $(pgrep -o -u user chromium)")
        second = playwright.chromium.connect_over_cdp(stable, headers=headers, timeout=60_000)
        assert second.new_browser_cdp_session().send("Browser.getVersion")["product"] == version
        second.close()
        # The X server too, and all that is on it.
        environment.run("kill -9 $(pgrep -o Xtigervnc)")
        environment.ready()
        third = playwright.chromium.connect_over_cdp(stable, headers=headers, timeout=60_000)
        assert third.contexts
        third.close()
    finally:
        environment.close()


def test_a_page_cannot_use_the_desktop(browser_sandbox, page):
    """A page in the browser inside asks the helper on loopback, as any page of the web could."""
    page.goto("data:text/html,<title>evil</title>")
    before = browser_sandbox.json("GET", "/desktop")["cursor"]
    for port in (HELPER, CHROMIUM):
        outcome = page.evaluate("""async port => {
            const post = await fetch(`http://127.0.0.1:${port}/desktop/actions`, {method: 'POST', mode: 'no-cors',
                body: JSON.stringify({actions: [{type: 'move', x: 1, y: 1}], picture: 0})}).then(() => 'sent', String);
            const socket = await new Promise(done => { const s = new WebSocket(`ws://127.0.0.1:${port}/cdp`);
                s.onopen = () => done('open'); s.onerror = () => done('refused'); });
            return [post, socket];
        }""", port)
        assert outcome[1] == "refused", outcome
    assert browser_sandbox.json("GET", "/desktop")["cursor"] == before


# A page's own store, whose promise is kept when what was put is on the disk. Chromium writes cookies when it likes.
STORE = """value => new Promise((done, failed) => {
    const opening = indexedDB.open('session', 1);
    opening.onupgradeneeded = () => opening.result.createObjectStore('kept');
    opening.onerror = () => failed(opening.error);
    opening.onsuccess = () => {
        const change = opening.result.transaction('kept', value ? 'readwrite' : 'readonly', {durability: 'strict'});
        const asked = value ? change.objectStore('kept').put(value, 'key') : change.objectStore('kept').get('key');
        change.oncomplete = () => done(asked.result);
        change.onerror = () => failed(change.error);
    };
})"""


def test_a_sandbox_from_a_snapshot_continues_the_session(server, playwright):
    """What a page keeps in the profile is there in the next sandbox, although the profile is locked in the name of the
    machine it was used on."""
    environment = Environment(server, "opensandbox/browser:latest")
    try:
        environment.sandbox.files.write_file("/home/user/page.html", "<title>a page</title>")
        assert stored(environment.ready(), playwright, "signed in") == "key"
        assert environment.run("readlink /home/user/profile/SingletonLock").startswith(environment.sandbox.id[:8])
        snapshot = environment.snapshot()
    finally:
        environment.close()
    second = Environment(server, None, snapshot_id=snapshot)
    try:
        assert stored(second.ready(), playwright, None) == "signed in"
    finally:
        second.close()
        second.delete_snapshot(snapshot)


def stored(environment, playwright, value):
    """Puts a value into the store of a page inside, or reads the one that is there."""
    address, headers = environment.endpoint(CHROMIUM)
    browser = playwright.chromium.connect_over_cdp(address, headers=headers, timeout=60_000)
    try:
        page = browser.contexts[0].pages[0]
        page.goto("file:///home/user/page.html")
        return page.evaluate(STORE, value)
    finally:
        browser.close()


def test_eight_browsers_at_once(server, playwright):
    with ThreadPoolExecutor(BROWSERS) as pool:
        environments = list(pool.map(
            lambda _: Environment(server, "opensandbox/browser:latest", memory="1Gi"), range(BROWSERS)))
        try:
            list(pool.map(lambda environment: environment.ready(), environments))
            for number, environment in enumerate(environments):
                address, headers = environment.endpoint(CHROMIUM)
                browser = playwright.chromium.connect_over_cdp(address, headers=headers, timeout=60_000)
                page = browser.contexts[0].pages[0]
                page.goto(f"data:text/html,<title>browser {number}</title>")
                assert page.title() == f"browser {number}"
                browser.close()
        finally:
            list(pool.map(lambda environment: environment.close(), environments))


def test_the_sdk_uses_the_desktop(server, browser_sandbox, page):
    from osb import Client, Config, Desktop, Failed

    client = Client(Config(server, KEY))
    desktop = Desktop(client.sandbox(browser_sandbox.sandbox.id))
    desktop.ready()
    assert (desktop.info()["width"], desktop.info()["height"]) == (1280, 800)
    click_into_text(browser_sandbox)
    seen = desktop.act_and_see({"type": "type", "text": "by the SDK ✓"}, max_edge=640, picture=0)
    assert Image.open(io.BytesIO(seen)).size == (640, 400)
    assert page.locator("#text").input_value() == "by the SDK ✓"
    part = Image.open(io.BytesIO(desktop.screenshot(region=(0, 0, 320, 200), format="jpeg", quality=60)))
    assert (part.size, part.format) == ((320, 200), "JPEG")
    desktop.set_clipboard("from outside")
    assert desktop.clipboard() == "from outside"
    desktop.act({"type": "move", "x": 5, "y": 6}, picture=0)
    assert desktop.info()["cursor"] == {"x": 5, "y": 6}
    assert any(window["title"] for window in desktop.windows())
    # The link's token becomes a cookie.
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    with browser.open(desktop.live_view(view_only=True), timeout=30) as answer:
        assert answer.status == 200 and b"noVNC" in answer.read()
    with client.create("host", resources={"cpu": "1", "memory": "512Mi"}) as plain:
        with pytest.raises(Failed, match="nothing answers on port 6080; the images browser and desktop have one"):
            Desktop(plain).act({"type": "move", "x": 1, "y": 1})
