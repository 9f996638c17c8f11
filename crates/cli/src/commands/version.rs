//! `osb version`: of this program, and of the server it speaks to.

use super::{DONE, Outcome};
use crate::app::App;
use crate::output::Record;

pub(super) async fn run(app: &App) -> Outcome {
    let printer = app.printer();
    let server = app.client()?.version().await;
    let mut record = Record::new().with("client", env!("CARGO_PKG_VERSION"));
    match &server {
        Ok(version) => {
            record.set("server", version.version.as_str());
            record.set("domain", app.config()?.domain());
        }
        Err(_) => record.set("server", crate::output::Value::Null),
    }
    printer.record("Version", &record)?;
    // A server that is not there is said, behind what is known.
    server?;
    Ok(DONE)
}
