//! A real X server with the helper's program on it, and an X client that shows things and takes input.

use std::io::{BufRead as _, BufReader, Read as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::Value;
use x11rb::connection::Connection as _;
use x11rb::protocol::Event;
use x11rb::protocol::xproto::{
    Atom, AtomEnum, ClientMessageEvent, ConnectionExt as _, CreateGCAux, CreateWindowAux,
    EventMask, ImageFormat, InputFocus, PropMode, Window, WindowClass,
};
use x11rb::rust_connection::RustConnection;
use x11rb::wrapper::ConnectionExt as _;

pub(crate) const WIDTH: u16 = 1280;
pub(crate) const HEIGHT: u16 = 800;
/// Nothing here takes a tenth of this, on a machine that is not busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// An X server that ends with its value.
pub(crate) struct XServer {
    process: Child,
    pub(crate) number: u32,
}

impl XServer {
    /// On a display that is free, or on this one.
    pub(crate) fn start(number: Option<u32>) -> Self {
        let (reader, writer) = std::io::pipe().unwrap();
        let mut command = Command::new("Xtigervnc");
        if let Some(number) = number {
            command.arg(format!(":{number}"));
        }
        command
            .args([
                "-geometry",
                &format!("{WIDTH}x{HEIGHT}"),
                "-depth",
                "24",
                "-SecurityTypes",
                "None",
                "-localhost",
            ])
            .args(["-ac", "-nolisten", "tcp", "-displayfd", "1"])
            .stdout(OwnedFd::from(writer))
            .stderr(Stdio::null())
            .process_group(0);
        let process = command
            .spawn()
            .expect("Xtigervnc starts: tools/setup test installs it");
        drop(command);
        wait_readable(&OwnedFd::from(reader.try_clone().unwrap()));
        let mut line = String::new();
        BufReader::new(reader).read_line(&mut line).unwrap();
        let number = line.trim().parse().expect("the X server says its display");
        Self { process, number }
    }

    /// As a crash would. What it leaves below /tmp is for the next server of this display, which clears it away:
    /// whoever removed it here might remove what another server has just made for the same display.
    pub(crate) fn kill(mut self) -> u32 {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        self.number
    }
}

impl Drop for XServer {
    /// By a signal at which the server removes its own files.
    fn drop(&mut self) {
        if matches!(self.process.try_wait(), Ok(None)) {
            let pid = rustix::process::Pid::from_child(&self.process);
            rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
            self.process.wait().unwrap();
        }
    }
}

fn wait_readable(fd: &OwnedFd) {
    let wait = Timespec::try_from(PATIENCE).unwrap();
    let ready = poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&wait)).unwrap();
    assert_eq!(ready, 1, "nothing came within {PATIENCE:?}");
}

/// The helper's program, ended with its value.
pub(crate) struct Helper {
    process: Child,
    pub(crate) address: String,
    client: reqwest::Client,
    directory: tempfile::TempDir,
}

/// An answer, read whole.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&self.body)))
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers[name].to_str().unwrap()
    }

    pub(crate) fn ok(self) -> Self {
        assert!(
            (200..300).contains(&self.status),
            "{}: {}",
            self.status,
            String::from_utf8_lossy(&self.body)
        );
        self
    }

    /// An error of ours: its status, its code, and a sentence.
    pub(crate) fn error(&self) -> (u16, String) {
        let body = self.json();
        assert!(
            body["message"]
                .as_str()
                .is_some_and(|message| message.len() > 15),
            "{body}"
        );
        assert!(self.headers.contains_key("x-request-id"));
        (self.status, body["code"].as_str().unwrap().to_owned())
    }
}

impl Helper {
    pub(crate) fn start(server: &XServer) -> Self {
        Self::start_with(server, |command, _| command)
    }

    /// The same, with the command as a test wants it; recordings go to a directory of its own.
    pub(crate) fn start_with(
        server: &XServer,
        change: impl FnOnce(Command, &Path) -> Command,
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let recordings = directory.path().join("recordings");
        std::fs::create_dir(&recordings).unwrap();
        let command = Command::new(env!("CARGO_BIN_EXE_desktop"));
        let mut command = change(command, &recordings);
        command
            .args([
                "--listen",
                "127.0.0.1:0",
                "--display",
                &format!(":{}", server.number),
            ])
            .args(["--vnc", &format!("127.0.0.1:{}", 5900 + server.number)])
            .arg("--recordings")
            .arg(&recordings)
            .arg("--page")
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/desktop/page"))
            .arg("--profile")
            .arg(directory.path().join("profile"))
            .stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
        let address = line
            .trim()
            .strip_prefix("listening on ")
            .expect("it says where")
            .to_owned();
        let client = reqwest::Client::builder()
            .timeout(PATIENCE)
            .no_proxy()
            .build()
            .unwrap();
        Self {
            process,
            address,
            client,
            directory,
        }
    }

    pub(crate) fn profile(&self) -> PathBuf {
        self.directory.path().join("profile")
    }

    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        body: Option<Value>,
        headers: &[(&str, &str)],
    ) -> Answer {
        let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
        let mut request = self
            .client
            .request(method, format!("{}{path}", self.address));
        if let Some(body) = body {
            request = request
                .header("content-type", "application/json")
                .body(body.to_string());
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = request.send().await.unwrap();
        Answer {
            status: response.status().as_u16(),
            headers: response.headers().clone(),
            body: response.bytes().await.unwrap().to_vec(),
        }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, None, &[]).await
    }

    /// Does actions in coordinates of the screen.
    pub(crate) async fn act(&self, actions: Value) -> Answer {
        self.send(
            "POST",
            "/desktop/actions",
            Some(serde_json::json!({"actions": actions, "picture": 0})),
            &[],
        )
        .await
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// An application: one window with a pattern, that keeps what it is told.
pub(crate) struct Application {
    pub(crate) connection: RustConnection,
    pub(crate) window: Window,
    pub(crate) root: Window,
    keymap: (u8, usize, Vec<u32>),
    protocols: Atom,
    ping: Atom,
}

impl Application {
    pub(crate) fn start(server: &XServer) -> Self {
        let (connection, screen) = x11rb::connect(Some(&format!(":{}", server.number))).unwrap();
        let root = connection.setup().roots[screen].root;
        let window = connection.generate_id().unwrap();
        let mask = EventMask::KEY_PRESS
            | EventMask::BUTTON_PRESS
            | EventMask::BUTTON_RELEASE
            | EventMask::POINTER_MOTION
            | EventMask::EXPOSURE;
        let attributes = CreateWindowAux::new()
            .override_redirect(1)
            .background_pixel(0x0020_4060)
            .event_mask(mask);
        connection
            .create_window(
                24,
                window,
                root,
                0,
                0,
                WIDTH,
                HEIGHT,
                0,
                WindowClass::INPUT_OUTPUT,
                0,
                &attributes,
            )
            .unwrap();
        let atom = |name: &str| {
            connection
                .intern_atom(false, name.as_bytes())
                .unwrap()
                .reply()
                .unwrap()
                .atom
        };
        let (protocols, ping) = (atom("WM_PROTOCOLS"), atom("_NET_WM_PING"));
        let title = "A window for tests — ⌘";
        connection
            .change_property8(
                PropMode::REPLACE,
                window,
                atom("_NET_WM_NAME"),
                atom("UTF8_STRING"),
                title.as_bytes(),
            )
            .unwrap();
        connection
            .change_property32(
                PropMode::REPLACE,
                window,
                protocols,
                Atom::from(AtomEnum::ATOM),
                &[ping],
            )
            .unwrap();
        connection.map_window(window).unwrap();
        let mut application = Self {
            connection,
            window,
            root,
            keymap: (0, 1, Vec::new()),
            protocols,
            ping,
        };
        application.until(|event| matches!(event, Event::Expose(_)));
        application
            .connection
            .set_input_focus(InputFocus::PARENT, window, x11rb::CURRENT_TIME)
            .unwrap();
        application.read_keymap();
        application
    }

    /// Shows pixels at a place.
    pub(crate) fn draw(
        &self,
        (x, y): (i16, i16),
        (width, height): (u16, u16),
        pixel: impl Fn(u16, u16) -> [u8; 3],
    ) {
        let context = self.connection.generate_id().unwrap();
        self.connection
            .create_gc(context, self.window, &CreateGCAux::new())
            .unwrap();
        let data: Vec<u8> = (0..height)
            .flat_map(|row| (0..width).map(move |column| (column, row)))
            .flat_map(|(column, row)| {
                let [red, green, blue] = pixel(column, row);
                [blue, green, red, 0]
            })
            .collect();
        self.connection
            .put_image(
                ImageFormat::Z_PIXMAP,
                self.window,
                context,
                width,
                height,
                x,
                y,
                0,
                24,
                &data,
            )
            .unwrap()
            .check()
            .unwrap();
        self.connection.free_gc(context).unwrap().check().unwrap();
    }

    fn read_keymap(&mut self) {
        let setup = self.connection.setup();
        let (first, last) = (setup.min_keycode, setup.max_keycode);
        let reply = self
            .connection
            .get_keyboard_mapping(first, last - first + 1)
            .unwrap()
            .reply()
            .unwrap();
        self.keymap = (first, usize::from(reply.keysyms_per_keycode), reply.keysyms);
    }

    /// Lives until an event is as wanted, as a toolkit does: follows the keymap, answers pings.
    pub(crate) fn until(&mut self, wanted: impl Fn(&Event) -> bool) -> Event {
        let deadline = Instant::now() + PATIENCE;
        self.connection.flush().unwrap();
        loop {
            while let Some(event) = self.connection.poll_for_event().unwrap() {
                self.serve(&event);
                if wanted(&event) {
                    return event;
                }
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "the event did not come");
            let wait = Timespec::try_from(left).unwrap();
            let stream = self.connection.stream();
            let _ = poll(
                &mut [PollFd::from_borrowed_fd(stream.as_fd(), PollFlags::IN)],
                Some(&wait),
            );
        }
    }

    fn serve(&mut self, event: &Event) {
        match event {
            Event::MappingNotify(_) => self.read_keymap(),
            Event::ClientMessage(message) if message.type_ == self.protocols => {
                let data = message.data.as_data32();
                if data[0] == self.ping {
                    let answer = ClientMessageEvent {
                        window: self.root,
                        ..*message
                    };
                    let mask = EventMask::SUBSTRUCTURE_NOTIFY | EventMask::SUBSTRUCTURE_REDIRECT;
                    self.connection
                        .send_event(false, self.root, mask, answer)
                        .unwrap();
                    self.connection.flush().unwrap();
                }
            }
            _ => {}
        }
    }

    /// Reads key presses as text until `count` characters have come.
    pub(crate) fn typed(&mut self, count: usize) -> String {
        let mut text = String::new();
        while text.chars().count() < count {
            let Event::KeyPress(press) = self.until(|event| matches!(event, Event::KeyPress(_)))
            else {
                continue;
            };
            let (first, per_code, keysyms) = &self.keymap;
            let level = usize::from(u16::from(press.state) & 1 != 0);
            let keysym = keysyms[usize::from(press.detail - first) * per_code + level];
            match keysym {
                0xff0d => text.push('\n'),
                0xff09 => text.push('\t'),
                0x20..=0xff => text.push(char::from_u32(keysym).unwrap()),
                0x0100_0100..=0x0110_ffff => {
                    text.push(char::from_u32(keysym - 0x0100_0000).unwrap());
                }
                // Shift and its like.
                _ => {}
            }
        }
        text
    }
}

/// Width, height and red, green, blue of every pixel.
pub(crate) fn decode(png: &[u8]) -> (u32, u32, Vec<u8>) {
    let mut reader = png::Decoder::new(std::io::Cursor::new(png))
        .read_info()
        .unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let frame = reader.next_frame(&mut pixels).unwrap();
    (frame.width, frame.height, pixels)
}

/// Everything that a file holds.
pub(crate) fn read(path: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)
        .unwrap()
        .read_to_end(&mut bytes)
        .unwrap();
    bytes
}
