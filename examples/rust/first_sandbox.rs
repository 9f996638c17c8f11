//! A first sandbox: a command, a file, code that remembers, and the end.
//!
//! `OPEN_SANDBOX_DOMAIN=localhost:8080 cargo run -p opensandbox --example first_sandbox -- host`

use std::io::Write as _;

use opensandbox::{Event, Sandbox};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let image = std::env::args().nth(1);
    let image = image.unwrap_or_else(|| "python:3.12".to_owned());
    let sandbox = Sandbox::create(image).metadata("example", "first").await?;
    let mut out = std::io::stdout();

    // Output as it comes.
    let mut events = sandbox
        .commands()
        .run("for i in 1 2 3; do echo line $i; done")
        .stream()
        .await?;
    while let Some(event) = events.next().await {
        if let Event::Stdout(text) = event? {
            out.write_all(text.as_bytes())?;
        }
    }

    sandbox.files().write("/tmp/numbers", "1 2 3").await?;
    let code = sandbox.code();
    code.run("numbers = open('/tmp/numbers').read().split()")
        .await?;
    let sum = code.run("sum(map(int, numbers))").await?;
    writeln!(out, "sum {}", sum.text().unwrap_or("unknown"))?;

    sandbox.kill().await?;
    Ok(())
}
