//! Compiles the public contract in-process, so that nobody who builds this needs `protoc`.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs};

use prost::Message as _;

const PACKAGE_DIR: &str = "palimpsest/context/v1";

fn main() -> Result<(), Box<dyn Error>> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("../../proto");
    println!("cargo:rerun-if-changed={}", root.display());

    // With source info: reflection then shows the comments, and they become rustdoc.
    let mut compiler = protox::Compiler::new([&root])?;
    compiler.include_imports(true).include_source_info(true);
    compiler.open_files(protos(&root.join(PACKAGE_DIR))?)?;
    let descriptors = compiler.file_descriptor_set();

    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(
        out.join("palimpsest_context_v1.bin"),
        descriptors.encode_to_vec(),
    )?;
    tonic_prost_build::configure()
        // A payload of megabytes is shared with the buffer that it arrived in, not copied.
        .bytes(".")
        // The largest variants: an event or a report of anything else stays small.
        .boxed(".palimpsest.context.v1.SessionEvent.event.policy_changed")
        .boxed(".palimpsest.context.v1.SessionEvent.event.compacted")
        .boxed(".palimpsest.context.v1.LevelReport.detail.compaction")
        .compile_fds(descriptors)?;
    Ok(())
}

/// Every proto file of the folder, in a fixed order.
fn protos(dir: &Path) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_some_and(|ext| ext == "proto") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
