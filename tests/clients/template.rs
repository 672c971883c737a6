//! The template at the top of the repository, as a user runs it.

use std::path::Path;
use std::process::Command;

use palimpsest_tests::files_below;

use crate::tool;

#[test]
fn the_template_generates_the_public_contract_alone() {
    let folder = tempfile::tempdir().unwrap();
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let buf = tool("node_modules/.bin/buf");
    let mut generate = Command::new(buf);
    generate.arg("generate").arg("--output").arg(folder.path());
    let output = generate.current_dir(&top).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    let public = folder.path().join("gen/ts/palimpsest/context/v1");
    let generated = files_below(folder.path());
    assert!(generated.iter().all(|file| file.starts_with(&public)));
    let protos = std::fs::read_dir(top.join("proto/palimpsest/context/v1")).unwrap();
    let protos = protos.map(|entry| entry.unwrap().path());
    for proto in protos.filter(|path| path.extension().is_some_and(|it| it == "proto")) {
        let name = proto.file_stem().unwrap().to_str().unwrap();
        let stub = public.join(format!("{name}_pb.ts"));
        assert!(stub.is_file(), "{} is missing: {text}", stub.display());
    }
}
