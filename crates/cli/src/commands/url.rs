//! `osb url`: a link by which a browser opens a port of a sandbox.

use jiff::Timestamp;

use super::{DONE, Outcome};
use crate::app::App;
use crate::args::transfer::Url;
use crate::output::{Format, Record};

pub(super) async fn run(app: &App, args: &Url) -> Outcome {
    let printer = app.printer();
    let until = args.lifetime.map(|lifetime| Timestamp::now() + lifetime);
    let sandbox = app.sandbox(&args.sandbox_id).await?;
    let link = sandbox.link(args.port, until).await?;
    match printer.format() {
        Format::Json | Format::Yaml => {
            let record = Record::new()
                .with("sandbox_id", &args.sandbox_id)
                .with("port", i64::from(args.port))
                .with("url", &link);
            printer.record("Link", &record)?;
        }
        _ => printer.text(&link)?,
    }
    Ok(DONE)
}
