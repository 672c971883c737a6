//! `palimpsest view`: prints the array to send, as JSON.

use anyhow::bail;
use bytes::Bytes;
use clap::{Args, ValueEnum};
use palimpsest_proto::context::v1::{
    PrepareContextRequest, PrepareContextResponse, Provider, StreamContextRequest, Target,
};

use super::client::{Clients, Remote, block_on, next_message, reply_of};
use super::output::print_document;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ProviderArg {
    /// Anthropic Messages
    Anthropic,
    /// OpenAI Chat Completions
    #[value(name = "openai")]
    OpenAi,
    /// Anthropic models on Amazon Bedrock
    Bedrock,
    /// OpenAI Responses
    #[value(name = "openai-responses")]
    OpenAiResponses,
}

impl From<ProviderArg> for Provider {
    fn from(provider: ProviderArg) -> Self {
        match provider {
            ProviderArg::Anthropic => Self::Anthropic,
            ProviderArg::OpenAi => Self::Openai,
            ProviderArg::Bedrock => Self::Bedrock,
            ProviderArg::OpenAiResponses => Self::OpenaiResponses,
        }
    }
}

impl ProviderArg {
    /// The same provider as a type of the core.
    pub(super) fn of_views(self) -> palimpsest_core::view::Provider {
        use palimpsest_core::view::Provider as CoreProvider;
        match self {
            Self::Anthropic => CoreProvider::Anthropic,
            Self::OpenAi => CoreProvider::OpenAi,
            Self::Bedrock => CoreProvider::Bedrock,
            Self::OpenAiResponses => CoreProvider::OpenAiResponses,
        }
    }
}

/// Print the messages array of a session that would be sent now
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  palimpsest view my-session --provider anthropic | jq length
  palimpsest view my-session --provider openai --model gpt-4.1 > messages.json")]
pub(super) struct ViewCommand {
    /// Id or full name of the session
    session: String,
    /// Provider that receives the array [default: that of the last view]
    #[arg(long, value_enum)]
    provider: Option<ProviderArg>,
    /// Model that receives the array; only its own thinking is shown [default: the model of the
    /// last view]
    #[arg(long, default_value = "", hide_default_value = true)]
    model: String,
    /// Prepare the view for a request with thinking
    #[arg(long)]
    thinking: bool,
    #[command(flatten)]
    remote: Remote,
}

impl ViewCommand {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let messages = block_on(self.fetch())?;
        // The messages are printed as the server sent them. A parser could change numbers and the order of keys.
        print_document("[")?;
        for (index, message) in messages.iter().enumerate() {
            print_document(if index == 0 { "\n" } else { ",\n" })?;
            print_document(&String::from_utf8_lossy(message))?;
        }
        print_document("\n]\n")
    }

    async fn fetch(&self) -> anyhow::Result<Vec<Bytes>> {
        let session = self.remote.session(&self.session)?;
        let mut clients = self.remote.connect().await?;
        let provider = self.provider.map_or(Provider::Unspecified, Provider::from);
        let target = Target {
            provider: provider.into(),
            model: self.model.clone(),
            thinking: self.thinking,
            ..Target::default()
        };
        // Without a target, the server uses the one of the last view, with its model and its window.
        let target = Some(target).filter(|target| *target != Target::default());
        fetch_full_view(&mut clients, session, target).await
    }
}

/// Fetches the whole array of a session, without a limit on its size.
async fn fetch_full_view(
    clients: &mut Clients,
    session: String,
    target: Option<Target>,
) -> anyhow::Result<Vec<Bytes>> {
    let mut request = PrepareContextRequest {
        session: session.clone(),
        target,
        dry_run: true,
        ..PrepareContextRequest::default()
    };
    let preview = prepare(clients, request.clone()).await?;
    if !preview.view_omitted {
        // A dry run seals nothing, so most calls leave the session unchanged.
        return Ok(preview.messages_json);
    }
    // A view that is too large for one reply is streamed. Only a served view can be streamed, so this call is no dry
    // run.
    request.dry_run = false;
    let served = prepare(clients, request).await?;
    let request = StreamContextRequest {
        session,
        etag: served.etag,
        skip_messages: 0,
    };
    let mut stream = reply_of(clients.context.stream_context(request).await)?;
    let mut messages = Vec::new();
    while let Some(chunk) = next_message(&mut stream).await? {
        messages.extend(chunk.messages_json);
        if chunk.last {
            return Ok(messages);
        }
    }
    bail!(
        "the stream of the view ended after {} messages, before its last chunk: run the command again",
        messages.len()
    )
}

pub(super) async fn prepare(
    clients: &mut Clients,
    request: PrepareContextRequest,
) -> anyhow::Result<PrepareContextResponse> {
    reply_of(clients.context.prepare_context(request).await)
}
