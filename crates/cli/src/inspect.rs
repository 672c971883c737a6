//! `palimpsest inspect`: prints the messages of a view and the use of the context window.

use std::collections::HashMap;

use anstyle::AnsiColor;
use clap::Args;
use palimpsest_proto::context::v1::{
    BlockForm, BudgetState, GetViewRequest, ListMessagesRequest, Message, MessageFilter,
    MessageForm, PrepareContextRequest, PrepareContextResponse, Provider, Role, Target,
    TokenBreakdown, TranscriptMessage, Visibility, block,
};

use super::client::{Clients, Remote, block_on, reply_of};
use super::output::{
    BarSegment, align_right, context_bar, number, one_line, print, print_styled, table, words,
};
use super::view::{ProviderArg, prepare};

/// The width of the bar, in characters.
const BAR_CELLS: usize = 72;
/// The maximum length of a message in the table, in characters.
const MAX_OUTLINE: usize = 100;

/// Print the messages of a session's view, in its order, and the use of the context window
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  palimpsest inspect my-session
  palimpsest inspect my-session --all | less -R")]
pub(super) struct Inspect {
    /// Id or full name of the session
    session: String,
    /// Provider that receives the view [default: that of the last view]
    #[arg(long, value_enum)]
    provider: Option<ProviderArg>,
    /// Number of messages to print, counted from the last one
    #[arg(long, value_name = "COUNT", default_value_t = 40)]
    limit: usize,
    /// Print all messages
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    remote: Remote,
}

impl Inspect {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let (view, messages) = block_on(self.fetch())?;
        let limit = if self.all { usize::MAX } else { self.limit };
        show_messages(&messages, limit)?;
        show_window(&view)?;
        show_state(&view)
    }

    async fn fetch(&self) -> anyhow::Result<(PrepareContextResponse, Vec<TranscriptMessage>)> {
        let session = self.remote.session(&self.session)?;
        let mut clients = self.remote.connect().await?;
        // Without a target, the server uses the one of the last view, with its model and its window.
        let target = self.provider.map(|provider| Target {
            provider: Provider::from(provider).into(),
            ..Target::default()
        });
        let request = PrepareContextRequest {
            session: session.clone(),
            target: target.clone(),
            // An inspection must not change the session. Serving the view would seal its pending messages.
            dry_run: true,
            ..PrepareContextRequest::default()
        };
        let view = prepare(&mut clients, request).await?;
        let mut messages = list(&mut clients, session.clone()).await?;
        let places = places(&mut clients, session, target).await?;
        // Messages that no view contains yet are sent last. The sort keeps their order.
        messages.sort_by_key(|message| places.get(&message.id).copied().unwrap_or(usize::MAX));
        Ok((view, messages))
    }
}

async fn list(clients: &mut Clients, session: String) -> anyhow::Result<Vec<TranscriptMessage>> {
    let mut messages = Vec::new();
    let mut page_token = String::new();
    loop {
        let request = ListMessagesRequest {
            session: session.clone(),
            // The server lowers it to its own limit.
            page_size: 1_000,
            page_token,
            filter: Some(MessageFilter {
                visibilities: vec![Visibility::Visible.into()],
                ..MessageFilter::default()
            }),
            form: MessageForm::Typed.into(),
            ..ListMessagesRequest::default()
        };
        let page = reply_of(clients.sessions.list_messages(request).await)?;
        messages.extend(page.messages);
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return Ok(messages);
        }
    }
}

/// Returns the places of the messages in the view by their ids. A summary precedes the messages that a compaction kept,
/// although it is later in the transcript.
async fn places(
    clients: &mut Clients,
    session: String,
    target: Option<Target>,
) -> anyhow::Result<HashMap<String, usize>> {
    let mut places = HashMap::new();
    let mut page_token = String::new();
    loop {
        let request = GetViewRequest {
            session: session.clone(),
            target: target.clone(),
            // The server lowers it to its own limit.
            page_size: 1_000,
            page_token,
            // Only the order is of use, and 0 would mean no limit.
            max_text_chars: 1,
            ..GetViewRequest::default()
        };
        let page = reply_of(clients.sessions.get_view(request).await)?;
        for block in page.blocks {
            // An added text names the message that made it necessary, and can be beside another one.
            if block.form() != BlockForm::Added {
                let next = places.len();
                places.entry(block.message_id).or_insert(next);
            }
        }
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return Ok(places);
        }
    }
}

fn show_messages(messages: &[TranscriptMessage], limit: usize) -> anyhow::Result<()> {
    let skipped = messages.len().saturating_sub(limit);
    if skipped > 0 {
        let shown = messages.len() - skipped;
        print(&format!(
            "The last {} of {} messages (--all prints all):\n",
            number(shown as u64),
            number(messages.len() as u64)
        ))?;
    }
    let mut table = table(&["#", "role", "turn", "tokens", "id", "content"]);
    for message in &messages[skipped..] {
        let content = message.message.as_ref();
        table.add_row([
            number(message.ordinal),
            content.map_or("", role).to_owned(),
            message.turn_id.clone(),
            number(message.tokens.into()),
            message.id.clone(),
            content.map(outline).unwrap_or_default(),
        ]);
    }
    align_right(&mut table, &[0, 3]);
    print(&format!("{table}\n"))
}

fn role(message: &Message) -> &'static str {
    match message.role() {
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::System => "system",
        Role::Unspecified => "",
    }
}

/// Returns the beginning of a message on one line.
fn outline(message: &Message) -> String {
    let parts = message.blocks.iter().filter_map(|block| {
        Some(match block.block.as_ref()? {
            block::Block::Text(text) => one_line(&text.text, 60),
            block::Block::Image(_) => "[image]".to_owned(),
            block::Block::Document(_) => "[document]".to_owned(),
            block::Block::ToolUse(call) => {
                let input = String::from_utf8_lossy(&call.input_json);
                format!("→ {} {}", call.tool_name, one_line(&input, 40))
            }
            block::Block::ToolResult(result) => {
                let failed = if result.is_error { "failed " } else { "" };
                format!("← {failed}{}", result.call_key)
            }
            block::Block::Thinking(_) | block::Block::RedactedThinking(_) => {
                "[thinking]".to_owned()
            }
            block::Block::Opaque(other) => format!("[{}]", other.r#type),
        })
    });
    let line = parts.collect::<Vec<_>>().join("  ");
    // A message can have many blocks, and a pipe has no width at which the table could wrap.
    match line.char_indices().nth(MAX_OUTLINE) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

fn parts(breakdown: &TokenBreakdown) -> Vec<BarSegment> {
    let part = |name, tokens: u32, color, glyph| BarSegment {
        name,
        tokens: tokens.into(),
        color,
        glyph,
    };
    vec![
        part("system", breakdown.system_tokens, AnsiColor::Magenta, '█'),
        part("tools", breakdown.tools_tokens, AnsiColor::Blue, '▓'),
        part("memory", breakdown.summary_tokens, AnsiColor::Cyan, '▒'),
        part("messages", breakdown.messages_tokens, AnsiColor::Green, '█'),
        part("results", breakdown.results_tokens, AnsiColor::Yellow, '▓'),
        part(
            "attachments",
            breakdown.attachments_tokens,
            AnsiColor::Red,
            '▒',
        ),
    ]
}

fn show_window(view: &PrepareContextResponse) -> anyhow::Result<()> {
    // Message fields are optional in the generated code.
    let (Some(tokens), Some(budget)) = (&view.tokens, &view.budget) else {
        return Ok(());
    };
    let parts = parts(&tokens.breakdown.unwrap_or_default());
    let bar = context_bar(
        &parts,
        budget.window_tokens.into(),
        budget.compact_at_tokens.into(),
        BAR_CELLS,
    );
    print_styled(&format!("{bar}\n"))?;
    for part in parts.iter().filter(|part| part.tokens > 0) {
        let style = anstyle::Style::new().fg_color(Some(part.color.into()));
        print_styled(&format!(
            "{style}{}{style:#} {} {}  ",
            part.glyph,
            part.name,
            number(part.tokens)
        ))?;
    }
    let state = match budget.state() {
        BudgetState::Normal | BudgetState::Unspecified => "normal",
        BudgetState::Warning => "warning",
        BudgetState::Critical => "critical",
        BudgetState::Exhausted => "exhausted",
    };
    print(&format!(
        "· free {}\n{} of {} tokens, {state}; compaction is due at {}, {:.0} % remain until then\n",
        number(budget.free_tokens.into()),
        number(budget.used_tokens.into()),
        number(budget.window_tokens.into()),
        number(budget.compact_at_tokens.into()),
        budget.remaining_percent,
    ))
}

fn show_state(view: &PrepareContextResponse) -> anyhow::Result<()> {
    let sendable = if view.sendable {
        "sendable".to_owned()
    } else {
        let reason = view.not_sendable_reason().as_str_name();
        format!("not sendable ({})", words(reason, "NOT_SENDABLE_REASON_"))
    };
    print(&format!(
        "{} messages to send, {} repairs, revision {}, epoch {}: {sendable}\n",
        number(view.view_messages.into()),
        number(view.repairs.len() as u64),
        view.revision,
        view.epoch,
    ))
}
