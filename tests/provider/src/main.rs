//! The fake provider as a program, for clients in any language.

use std::io::Write as _;
use std::net::SocketAddr;

use clap::Parser;
use palimpsest_fake_provider::FakeProvider;

/// Speaks the Messages API at /v1/messages and Chat Completions at /v1/chat/completions. Any key but
/// `invalid` is right. `GET /_control/requests` shows what was asked.
#[derive(Parser)]
struct Options {
    /// Where to listen; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let provider = FakeProvider::listen(options.listen).await?;
    // One line, flushed: a script waits for it.
    let mut out = std::io::stdout();
    writeln!(out, "{}", provider.url())?;
    out.flush()?;
    provider.serve_until_it_fails().await
}
