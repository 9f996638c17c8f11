//! The routes: what is asked is read, given to the part that does it, and answered.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{DefaultBodyLimit, Path, Query, Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{any, get, post, put};
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde::{Deserialize, Serialize};
use x11rb::protocol::xproto::ConnectionExt as _;

use crate::actions::{Action, Hands};
use crate::args::Options;
use crate::browser::Browser;
use crate::display::{Display, Session};
use crate::error::{Error, Result};
use crate::limits::{BODY_BYTES_MAX, CLIPBOARD_OWNER_MAX, X_ANSWER_MAX};
use crate::picture::{Format, Frame, Frames, ScreenshotOptions};
use crate::recording::{Order, Recording, Recordings};
use crate::still::{self, Still, Stillness};
use crate::vnc::{self, Vnc};
use crate::windows::{self, Change, Window, Windows};
use crate::{capture, clipboard, guard, page, size};

const REQUEST_ID: &str = "x-request-id";
/// What noVNC asks for; it means that messages are bytes.
const BINARY: &str = "binary";
const LIVE_VIEW: &str = "vnc.html?autoconnect=true&resize=scale&reconnect=true&path=desktop/vnc";
const LIVE_VIEW_ONLY: &str = "vnc.html?autoconnect=true&resize=scale&reconnect=true&view_only=true&path=desktop/vnc%3Fview_only%3Dtrue";

/// All that requests use.
pub(crate) struct Desk {
    display: Arc<Display>,
    frames: Frames,
    hands: Hands,
    recordings: Arc<Recordings>,
    vnc: Vnc,
    browser: Option<Browser>,
    options: Options,
}

type Shared = State<Arc<Desk>>;

pub(crate) fn router(options: Options) -> Router {
    let display = Arc::new(Display::new(options.display.clone()));
    let desk = Desk {
        hands: Hands::new(Arc::clone(&display)),
        display,
        frames: Frames::default(),
        recordings: Arc::new(Recordings::new(options.recordings.clone())),
        vnc: Vnc::new(options.vnc),
        browser: options.profile.clone().map(Browser::new),
        options,
    };
    Router::new()
        .route("/desktop", get(desktop))
        .route("/desktop/screenshot", get(screenshot))
        .route("/desktop/actions", post(actions))
        .route("/desktop/still", get(wait_until_still))
        .route(
            "/desktop/clipboard",
            get(read_clipboard).put(write_clipboard),
        )
        .route("/desktop/windows", get(list_windows))
        .route("/desktop/windows/{id}", post(change_window))
        .route("/desktop/size", put(set_size))
        .route(
            "/desktop/recordings",
            get(list_recordings).post(start_recording),
        )
        .route(
            "/desktop/recordings/{id}",
            get(get_recording).delete(stop_recording),
        )
        .route("/desktop/vnc", get(live_view))
        // The path that noVNC and upstream's links have without being told another.
        .route("/websockify", get(live_view))
        .route("/cdp", get(cdp))
        .route("/json", any(json))
        .route("/json/{*rest}", any(json))
        .route("/devtools/{*rest}", any(devtools))
        .fallback(get(static_file))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(middleware::from_fn(answer))
        .with_state(Arc::new(desk))
}

/// Around every request: the guard, the request's id, and errors as JSON that carry it.
async fn answer(request: Request, next: Next) -> Response {
    let given = request
        .headers()
        .get(REQUEST_ID)
        .and_then(|id| id.to_str().ok())
        .map(str::to_owned);
    let id = given.unwrap_or_else(|| uuid::Uuid::now_v7().simple().to_string());
    let allowed = guard::check(request.method(), request.headers());
    let mut response = match allowed {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    };
    if response.status() == StatusCode::METHOD_NOT_ALLOWED {
        response = (
            StatusCode::METHOD_NOT_ALLOWED,
            Error::Invalid("this path does not take this method".to_owned()).into_response(),
        )
            .into_response();
        *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
    }
    if let Ok(value) = HeaderValue::from_str(&id) {
        response
            .headers_mut()
            .insert(HeaderName::from_static(REQUEST_ID), value);
    }
    response
}

type Body_<T> = std::result::Result<Json<T>, JsonRejection>;
type Query_<T> = std::result::Result<Query<T>, QueryRejection>;

/// A body or query that was not understood, in one shape.
fn read<T, E: std::fmt::Display>(input: std::result::Result<T, E>) -> Result<T> {
    input.map_err(|rejection| Error::Invalid(rejection.to_string()))
}

#[derive(Serialize)]
struct Place {
    x: i16,
    y: i16,
}

#[derive(Serialize)]
struct LiveView {
    page: &'static str,
    view_only: &'static str,
    websocket: &'static str,
}

#[derive(Serialize)]
struct BrowserSeen {
    is_running: bool,
    cdp: String,
}

#[derive(Serialize)]
struct Seen {
    width: u16,
    height: u16,
    cursor: Place,
    window: Option<Window>,
    /// Paths from where this answer was asked for.
    live_view: LiveView,
    #[serde(skip_serializing_if = "Option::is_none")]
    browser: Option<BrowserSeen>,
}

async fn desktop(State(desk): Shared, headers: HeaderMap) -> Result<Json<Seen>> {
    let (size, cursor, window) = desk
        .display
        .run(|session| {
            Ok((
                session.size()?,
                pointer(session)?,
                windows::focused(session)?,
            ))
        })
        .await?;
    let browser = match &desk.browser {
        Some(browser) => Some(BrowserSeen {
            is_running: browser.is_running().await,
            cdp: guard::Outside::of(&headers).websocket("/cdp"),
        }),
        None => None,
    };
    Ok(Json(Seen {
        width: size.0,
        height: size.1,
        cursor,
        window,
        live_view: LiveView {
            page: LIVE_VIEW,
            view_only: LIVE_VIEW_ONLY,
            websocket: "desktop/vnc",
        },
        browser,
    }))
}

fn pointer(session: &Session) -> Result<Place> {
    let at = session.connection.query_pointer(session.root)?.reply()?;
    Ok(Place {
        x: at.root_x,
        y: at.root_y,
    })
}

/// A picture that was taken, and where its coordinates lie.
struct Taken {
    frame: Frame,
    format: Format,
    bytes: Vec<u8>,
}

impl Taken {
    /// The bytes, with what belongs to them in headers.
    fn raw(self) -> Response {
        let Frame {
            id,
            width,
            height,
            region,
        } = self.frame;
        let told = [
            ("x-picture-id", id.to_string()),
            ("x-picture-size", format!("{width}x{height}")),
            (
                "x-picture-region",
                format!(
                    "{},{},{},{}",
                    region.x, region.y, region.width, region.height
                ),
            ),
        ];
        let mut response = self.bytes.into_response();
        let headers = response.headers_mut();
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static(self.format.content_type()),
        );
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        for (name, value) in told {
            if let Ok(value) = HeaderValue::from_str(&value) {
                headers.insert(name, value);
            }
        }
        response
    }
}

async fn take(desk: &Arc<Desk>, options: ScreenshotOptions) -> Result<Taken> {
    let quality = options.quality()?;
    let (region, size, format, bytes) = desk
        .display
        .run(move |session| {
            let region = options.region(session.size()?)?;
            let (width, height) = options.size(region)?;
            let mut pixels = capture::pixels(session, region)?;
            if options.cursor {
                pixels.draw(&capture::cursor(session)?, region);
            }
            if (width, height) != (pixels.width, pixels.height) {
                pixels = pixels.scaled(width, height);
            }
            Ok((
                region,
                (width, height),
                options.format,
                pixels.encode(options.format, quality)?,
            ))
        })
        .await?;
    Ok(Taken {
        frame: desk.frames.keep(region, size),
        format,
        bytes,
    })
}

async fn screenshot(State(desk): Shared, options: Query_<ScreenshotOptions>) -> Result<Response> {
    let Query(options) = read(options)?;
    Ok(take(&desk, options).await?.raw())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ActionsRequest {
    actions: Vec<Action>,
    /// Whose coordinates these are: a picture's number, 0 for the screen, the last picture by default.
    picture: Option<u64>,
    then: Option<FollowUp>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum FollowUp {
    Name(Screenshot),
    Options(Box<FollowUpScreenshot>),
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Screenshot {
    Screenshot,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct FollowUpScreenshot {
    region: Option<String>,
    max_edge: Option<u16>,
    #[serde(default)]
    format: Format,
    quality: Option<u8>,
    #[serde(default)]
    cursor: bool,
    /// Waits for this before the picture is taken.
    still: Option<Still>,
}

#[derive(Serialize)]
struct PictureBody {
    #[serde(flatten)]
    frame: Frame,
    format: Format,
    /// Base64.
    data: String,
}

#[derive(Serialize)]
struct ActionsResponse {
    cursor: Place,
    #[serde(skip_serializing_if = "Option::is_none")]
    still: Option<Stillness>,
    #[serde(skip_serializing_if = "Option::is_none")]
    picture: Option<PictureBody>,
}

/// Does a list of actions, and answers with a picture when one is asked for: in JSON, or as it is when
/// the caller accepts pictures.
async fn actions(
    State(desk): Shared,
    headers: HeaderMap,
    request: Body_<ActionsRequest>,
) -> Result<Response> {
    let Json(request) = read(request)?;
    let then = request.then.map(|then| match then {
        FollowUp::Name(Screenshot::Screenshot) => Box::default(),
        FollowUp::Options(options) => options,
    });
    // Wrong options are refused before anything is done.
    let options = then.as_ref().map(|then| ScreenshotOptions {
        region: then.region.clone(),
        max_edge: then.max_edge,
        format: then.format,
        quality: then.quality,
        cursor: then.cursor,
    });
    let size = desk.display.run(|session| session.size()).await?;
    if let Some(options) = &options {
        options.quality()?;
        options.size(options.region(size)?)?;
    }
    let times = then
        .as_ref()
        .and_then(|then| then.still)
        .map(|still| still.times())
        .transpose()?;
    let frame = desk.frames.find(request.picture, size)?;
    desk.hands.perform(&request.actions, frame).await?;
    let still = match times {
        Some((quiet, timeout)) => Some(stillness(&desk, quiet, timeout).await?),
        None => None,
    };
    let taken = match options {
        Some(options) => Some(take(&desk, options).await?),
        None => None,
    };
    let wants_bytes = headers
        .get(ACCEPT)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|value| value.starts_with("image/"));
    let taken = match taken {
        Some(taken) if wants_bytes => return Ok(taken.raw()),
        other => other,
    };
    let cursor = desk.display.run(pointer).await?;
    let picture = taken.map(|taken| PictureBody {
        frame: taken.frame,
        format: taken.format,
        data: STANDARD.encode(&taken.bytes),
    });
    Ok(Json(ActionsResponse {
        cursor,
        still,
        picture,
    })
    .into_response())
}

async fn stillness(desk: &Arc<Desk>, quiet: Duration, timeout: Duration) -> Result<Stillness> {
    desk.display
        .run_apart(timeout + X_ANSWER_MAX, move |display| {
            still::wait(display, quiet, timeout)
        })
        .await
}

async fn wait_until_still(State(desk): Shared, still: Query_<Still>) -> Result<Json<Stillness>> {
    let Query(still) = read(still)?;
    let (quiet, timeout) = still.times()?;
    stillness(&desk, quiet, timeout).await.map(Json)
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Clipboard {
    text: String,
}

async fn read_clipboard(State(desk): Shared) -> Result<Json<Clipboard>> {
    let text = desk
        .display
        .run_apart(CLIPBOARD_OWNER_MAX + X_ANSWER_MAX, clipboard::read)
        .await?;
    Ok(Json(Clipboard { text }))
}

async fn write_clipboard(State(desk): Shared, clipboard: Body_<Clipboard>) -> Result<StatusCode> {
    let Json(Clipboard { text }) = read(clipboard)?;
    desk.display
        .run_apart(X_ANSWER_MAX, move |display| clipboard::write(display, text))
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn list_windows(State(desk): Shared) -> Result<Json<Windows>> {
    desk.display.run(windows::list).await.map(Json)
}

async fn change_window(
    State(desk): Shared,
    Path(id): Path<String>,
    change: Body_<Change>,
) -> Result<StatusCode> {
    let Json(change) = read(change)?;
    let id: u32 = id
        .parse()
        .map_err(|_| Error::NotFound(format!("a window's id is a number, not {id:?}")))?;
    desk.display
        .run(move |session| windows::change(session, id, &change))
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Size {
    width: u16,
    height: u16,
}

async fn set_size(State(desk): Shared, wanted: Body_<Size>) -> Result<Json<Size>> {
    let Json(Size { width, height }) = read(wanted)?;
    let (width, height) = desk
        .display
        .run(move |session| size::set(session, width, height))
        .await?;
    Ok(Json(Size { width, height }))
}

#[derive(Serialize)]
struct RecordingList {
    recordings: Vec<Recording>,
}

async fn list_recordings(State(desk): Shared) -> Json<RecordingList> {
    Json(RecordingList {
        recordings: desk.recordings.list(),
    })
}

async fn get_recording(State(desk): Shared, Path(id): Path<String>) -> Result<Json<Recording>> {
    desk.recordings.get(&id).map(Json)
}

async fn start_recording(
    State(desk): Shared,
    order: Body_<Order>,
) -> Result<(StatusCode, Json<Recording>)> {
    let Json(order) = read(order)?;
    let recordings = Arc::clone(&desk.recordings);
    let started = desk
        .display
        .run_apart(X_ANSWER_MAX, move |display| {
            recordings.start(display, &order)
        })
        .await?;
    Ok((StatusCode::CREATED, Json(started)))
}

async fn stop_recording(State(desk): Shared, Path(id): Path<String>) -> Result<Json<Recording>> {
    let recordings = Arc::clone(&desk.recordings);
    desk.display
        .run_apart(X_ANSWER_MAX * 2, move |_| recordings.stop(&id))
        .await
        .map(Json)
}

#[derive(Deserialize)]
struct View {
    #[serde(default)]
    view_only: bool,
}

async fn live_view(
    State(desk): Shared,
    view: Query_<View>,
    socket: WebSocketUpgrade,
) -> Result<Response> {
    let Query(View { view_only }) = read(view)?;
    let viewer = desk.vnc.connect().await?;
    Ok(socket
        .protocols([BINARY])
        .on_upgrade(move |socket| vnc::relay(viewer, socket, view_only)))
}

fn browser(desk: &Desk) -> Result<&Browser> {
    desk.browser
        .as_ref()
        .ok_or_else(|| Error::NotFound("this image has no browser of its own".to_owned()))
}

async fn cdp(State(desk): Shared, request: http::Request<Body>) -> Result<Response> {
    browser(&desk)?.cdp(request).await
}

async fn json(State(desk): Shared, request: http::Request<Body>) -> Result<Response> {
    browser(&desk)?.json(request).await
}

async fn devtools(State(desk): Shared, request: http::Request<Body>) -> Result<Response> {
    browser(&desk)?.pass(request).await
}

async fn static_file(State(desk): Shared, request: Request) -> Result<Response> {
    let path = match request.uri().path().trim_start_matches('/') {
        "" => "vnc.html",
        path => path,
    };
    page::file(&desk.options.page, path).await
}
