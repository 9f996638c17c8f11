//! Writes the OpenAPI documents of `specs/` again: `cargo run -p api --example specs`.

use std::path::Path;

use api::spec::Contract;

fn main() -> std::io::Result<()> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../specs");
    std::fs::create_dir_all(&directory)?;
    for contract in Contract::ALL {
        std::fs::write(directory.join(contract.file_name()), contract.render())?;
    }
    Ok(())
}
