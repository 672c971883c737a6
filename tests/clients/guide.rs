//! Tests the API guide in `docs/api`. The blocks of one language on a page form one program, which runs as printed.
//!
//! A program begins with the first block of its language in the quick start, which connects. The JSON block there
//! configures the TypeScript compiler. TOML blocks are the configuration of the server. The `text` blocks together are
//! the complete output of the program, identical in each language.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::{Path, PathBuf};

use palimpsest_fake_provider::FakeProvider;
use palimpsest_tests::Server;
use palimpsest_tests::markdown::{Block, blocks_of};

use crate::language::Language;

/// The page whose first program connects.
const QUICK_START: &str = "quick-start";
/// The server's address in the pages.
const ADDRESS: &str = "127.0.0.1:50051";
/// The port of the hook service in the pages.
const HOOK_PORT: &str = "50061";

/// A page of the guide.
struct Page {
    name: String,
    blocks: Vec<Block>,
}

impl Page {
    fn read(path: &Path) -> Self {
        Self {
            name: path.file_stem().unwrap().to_str().unwrap().to_owned(),
            blocks: blocks_of(path),
        }
    }

    /// The texts of all blocks of a language.
    fn of<'a>(&'a self, language: &'a str) -> impl Iterator<Item = &'a str> {
        let blocks = self.blocks.iter();
        blocks
            .filter(move |block| block.language == language)
            .map(|block| block.text.as_str())
    }

    /// The program of a language. `connect` is the first block of the quick start.
    fn program(&self, language: &str, connect: &str) -> String {
        let own: Vec<_> = self.of(language).collect();
        let own = own.join("\n");
        if self.name == QUICK_START {
            return own;
        }
        format!("{connect}\n{own}")
    }

    /// Returns the kind of model that the program calls. Most pages need an answer that is a summary.
    fn model(&self) -> &'static str {
        match self.name.as_str() {
            "turns" => "claude-fake+say=The_disk_is_full.",
            _ => "claude-fake",
        }
    }
}

/// All pages with programs, in the order of their names.
fn pages() -> Vec<Page> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/api");
    let entries = std::fs::read_dir(folder).unwrap();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let pages = paths.iter().map(|path| Page::read(path));
    pages.filter(|page| !page.blocks.is_empty()).collect()
}

/// A server, and a port for the hook service that it calls.
struct World {
    server: Server,
    hook_port: String,
    _folder: tempfile::TempDir,
}

impl World {
    fn start(settings: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        // The port is free again when a program of the guide starts its hook service.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let hook_port = listener.local_addr().unwrap().port().to_string();
        let file = folder.path().join("palimpsest.toml");
        std::fs::write(&file, settings.replace(HOOK_PORT, &hook_port)).unwrap();
        let args = ["--config", file.to_str().unwrap()];
        Self {
            server: Server::start(&folder.path().join("data"), &args),
            hook_port,
            _folder: folder,
        }
    }

    /// Replaces the addresses that the page shows by those of this world.
    fn place(&self, program: &str) -> String {
        program
            .replace(ADDRESS, self.server.address())
            .replace(HOOK_PORT, &self.hook_port)
    }
}

/// Runs the programs of all pages in one language. `extension` is the file name extension of that language.
async fn run(language: Language, extension: &str) {
    palimpsest_tests::binary();
    let built = language.build().await;
    let pages = pages();
    let quick_start = pages.iter().find(|page| page.name == QUICK_START).unwrap();
    let connect = quick_start.of(language.name()).next().unwrap();
    let folder = built.join("guide");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let options = quick_start.of("json").next().unwrap();
    std::fs::write(folder.join("tsconfig.json"), options).unwrap();
    // Pages with equal settings share a server, because each page uses its own sessions.
    let mut worlds: BTreeMap<String, World> = BTreeMap::new();
    for page in &pages {
        let settings: String = page.of("toml").collect();
        let world = worlds
            .entry(settings)
            .or_insert_with_key(|settings| World::start(settings));
        let program = world.place(&page.program(language.name(), connect));
        let file = format!("{}.{extension}", page.name);
        std::fs::write(folder.join(file), program).unwrap();
    }
    language
        .call("compile", &built, &[folder.as_path()], &[])
        .await;
    let provider = FakeProvider::start().await.unwrap();
    let url = provider.url();
    let with_version = format!("{url}/v1");
    for page in &pages {
        let vars = [
            ("MODEL", page.model()),
            ("ANTHROPIC_API_KEY", "key"),
            ("ANTHROPIC_BASE_URL", &url),
            ("OPENAI_API_KEY", "key"),
            ("OPENAI_BASE_URL", &with_version),
            ("PALIMPSEST_API_KEY", "key"),
        ];
        let args = [folder.as_os_str(), page.name.as_ref()];
        let printed = language.call("program", &built, &args, &vars).await;
        let expected: String = page.of("text").collect();
        assert_eq!(printed, expected, "docs/api/{}.md, {language:?}", page.name);
    }
    let requests = provider.requests();
    assert!(!requests.is_empty(), "no program called the model");
    for request in requests {
        assert_eq!(request.status, 200, "{language:?}: {request:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_python_programs_of_the_guide_print_the_documented_output() {
    run(Language::Python, "py").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_typescript_programs_of_the_guide_print_the_documented_output() {
    run(Language::TypeScript, "ts").await;
}

#[test]
fn every_guide_page_has_python_and_typescript_programs() {
    let pages = pages();
    assert!(pages.len() >= 10, "{}", pages.len());
    for page in &pages {
        let [python, typescript] = ["python", "typescript"].map(|it| page.of(it).count());
        assert!(python > 0, "{}: no program", page.name);
        assert_eq!(python, typescript, "{}: python, typescript", page.name);
        assert!(page.of("text").count() > 0, "{}: no output", page.name);
    }
}
