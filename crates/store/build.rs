//! Compiles the storage proto in-process, so that builds do not need `protoc`.

use std::error::Error;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    let root = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR")?).join("../../proto");
    let files = [
        "event", "memory", "message", "snapshot", "state", "view", "working",
    ]
    .map(|name| root.join(format!("palimpsest/storage/v1/{name}.proto")));
    println!(
        "cargo:rerun-if-changed={}",
        root.join("palimpsest/storage").display()
    );
    let descriptors = protox::compile(files, [&root])?;
    prost_build::Config::new()
        .bytes(["."])
        .compile_fds(descriptors)?;
    Ok(())
}
