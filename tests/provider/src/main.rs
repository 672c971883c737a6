//! The fake provider as a program, for clients in any language.

use std::io::Write as _;
use std::net::SocketAddr;

use clap::Parser;
use palimpsest_fake_provider::FakeProvider;

/// Serves the Messages API at /v1/messages, Chat Completions at /v1/chat/completions and Responses at /v1/responses.
/// Accepts any key except `invalid`.
///
/// GET /_control/requests returns the recorded requests, and GET /_control/bill the bill of the request's key.
/// POST /_control/script adds a script for matching requests. POST /_control/clock advances the clock, and
/// POST /_control/refuse refuses new connections, both by `{"ms": N}`.
#[derive(Parser)]
struct Options {
    /// The listen address. Port 0 selects a free port.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let provider = FakeProvider::listen(options.listen).await?;
    // A script waits for this line, so it is flushed.
    let mut out = std::io::stdout();
    writeln!(out, "{}", provider.url())?;
    out.flush()?;
    provider.serve_until_it_fails().await
}
